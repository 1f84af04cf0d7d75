"""The positions of clients' text: the target, and the two tokens before it.

They are those of `examples.MappedText.batch`, on the coordinator and without padding: a
sentence w1 ... wn has the targets w1 ... wn and its end, cut after `max_words` words.
"""

import dataclasses

import numpy as np

from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text, raw_columns
from training.text import examples

# The target, and the tokens that may be used before it.
WIDTH = 3


@dataclasses.dataclass(frozen=True)
class Windows:
    """Places of sentences, one sentence after the other.

    Attributes:
        tokens: int32 [places, 3]: the last column has the targets, those before it
            the tokens that stand before them. Before the first word of a sentence
            stands its beginning, and before that padding.
        num_tokens: Size of the vocabulary with its special tokens.
    """

    tokens: np.ndarray
    num_tokens: int

    @property
    def targets(self) -> np.ndarray:
        """The tokens to predict: int32 [places]."""
        return self.tokens[:, -1]

    @property
    def columns(self) -> np.ndarray:
        """Each position's number in its sentence, from 0: int64 [places]."""
        lengths = self._lengths
        return raw_columns.ranges(np.zeros_like(lengths), lengths)

    @property
    def _lengths(self) -> np.ndarray:
        """The places of each sentence: int64 [sentences]."""
        firsts = np.flatnonzero(self.tokens[:, -2] == vocabulary.BOS)
        return np.diff(np.append(firsts, len(self.tokens)))

    def contexts(self, order: int) -> np.ndarray:
        """Returns the context of each position as one number: int64 [places].

        Args:
            order: n, in 1..3: so many tokens less one are the digits of the number,
                in the base of `num_tokens`, the last one the least.
        """
        numbers = np.zeros(len(self.tokens), np.int64)
        for column in range(WIDTH - order, WIDTH - 1):
            numbers *= self.num_tokens
            numbers += self.tokens[:, column]
        return numbers

    def sequences(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the sentences as rows, padded; see `examples.Batch`.

        Args:
            length: The length of a row: at least the places of the longest sentence.

        Returns:
            Inputs and targets: int32 [sentences, length].
        """
        lengths = self._lengths
        places = raw_columns.ranges(np.arange(len(lengths)) * length, lengths)
        rows = []
        for column in (-2, -1):
            row = np.full(len(lengths) * length, vocabulary.PAD, np.int32)
            row[places] = self.tokens[:, column]
            rows.append(row.reshape(-1, length))
        return rows[0], rows[1]


def of_clients(
    text: client_text.ClientText,
    clients: np.ndarray,
    limits: examples.ClientLimits,
    num_tokens: int,
) -> Windows:
    """Returns the places of clients' text that training and judging use.

    Args:
        text: The sentences.
        clients: int64 [n], indices into the population.
        limits: Limits on a client's text.
        num_tokens: Size of the vocabulary with its special tokens.
    """
    sentences, _ = text.used_sentences(clients, limits.max_sentences)
    starts = text.sentence_splits[sentences]
    words = text.sentence_splits[sentences + 1] - starts
    # One that is cut has no end.
    lengths = np.minimum(words + 1, limits.max_words)
    lengths += words == limits.max_words
    lengths = lengths.astype(np.int64)
    windows = np.empty((int(lengths.sum()), WIDTH), np.int32)
    firsts = np.cumsum(lengths) - lengths
    is_end = np.zeros(len(windows), bool)
    is_end[(firsts + words)[words <= limits.max_words]] = True
    targets = windows[:, -1]
    targets[is_end] = vocabulary.EOS
    used = np.minimum(words, limits.max_words)
    targets[~is_end] = text.tokens[raw_columns.ranges(starts, used)]
    for column, first in ((1, vocabulary.BOS), (0, vocabulary.PAD)):
        windows[1:, column] = windows[:-1, column + 1]
        windows[firsts, column] = first
    return Windows(windows, num_tokens)
