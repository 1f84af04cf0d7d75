"""The positions of sentences at which a keyboard could help."""

import dataclasses

import numpy as np

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text, raw_columns

_FIRST_WORD = len(vocabulary_lib.SPECIAL_TOKENS)


@dataclasses.dataclass(frozen=True)
class Places:
    """Sentences and all of their positions, client by client.

    A sentence w1 ... wn has the inputs <bos> w1 ... wn and the targets w1 ... wn <eos>,
    cut after `max_words` words: a longer one has no end. Training and evaluation cut in
    the same way; see `examples.MappedText`.

    Attributes:
        inputs: int32 [sentences, max_words + 1], padded.
        rows: int64 [places], ascending: the sentence of each place.
        columns: int64 [places]: the place in the sentence, from 0.
        targets: int32 [places]: the token that follows.
        clients: int64 [places], ascending: the client, as an index into `held_out`.
        held_out: int64 [clients]: indices into the population.
    """

    inputs: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    targets: np.ndarray
    clients: np.ndarray
    held_out: np.ndarray
    _following: np.ndarray

    @classmethod
    def of(
        cls,
        text: client_text.ClientText,
        held_out: np.ndarray,
        max_sentences: int,
        max_words: int,
        num_following: int = 0,
    ) -> "Places":
        """Returns the positions of clients' sentences.

        Args:
            text: All clients' sentences.
            held_out: int64 [clients], at least one: indices into the population.
            max_sentences: The first sentences of a client that are used, at least 1.
            max_words: The first words of a sentence that are used, at least 1.
            num_following: Number of tokens after each target in `following`.

        Raises:
            ValueError: If there is no client, or one is not in the population.
        """
        if not len(held_out):
            raise ValueError("held_out is empty; it has to have at least one client.")
        if held_out.min() < 0 or held_out.max() >= text.num_clients:
            raise ValueError(
                f"held_out has {held_out.min()} to {held_out.max()}; it has to be in "
                f"[0, {text.num_clients})."
            )
        sentences, counts = text.used_sentences(held_out, max_sentences)
        starts = text.sentence_splits[sentences]
        lengths = text.sentence_splits[sentences + 1] - starts
        used = np.minimum(lengths, max_words)
        num_places = used + (lengths <= max_words)
        rows = np.repeat(np.arange(len(sentences)), num_places)
        columns = raw_columns.ranges(np.zeros(len(sentences), np.int64), num_places)

        def token(offset: int) -> np.ndarray:
            """Returns the token at an offset from each target; padding after an end."""
            at = columns + offset
            left = lengths[rows] - at
            found = text.tokens[starts[rows] + np.where(left > 0, at, 0)]
            special = np.where(left == 0, vocabulary_lib.EOS, vocabulary_lib.PAD)
            return np.where(left > 0, found, special).astype(np.int32)

        inputs = np.zeros((len(sentences), max_words + 1), np.int32)
        before = text.tokens[starts[rows] + np.maximum(columns - 1, 0)]
        inputs[rows, columns] = np.where(columns == 0, vocabulary_lib.BOS, before)
        following = [token(i) for i in range(1, num_following + 1)]
        return cls(
            inputs=inputs,
            rows=rows,
            columns=columns,
            targets=token(0),
            clients=np.repeat(np.arange(len(held_out)), counts)[rows],
            held_out=held_out,
            _following=np.array(following, np.int32).reshape(num_following, len(rows)),
        )

    @property
    def is_typed(self) -> np.ndarray:
        """Whether a word follows, of the vocabulary or not: bool [places]."""
        return self.targets != vocabulary_lib.EOS

    @property
    def is_known(self) -> np.ndarray:
        """Whether a word of the vocabulary follows: bool [places]."""
        return self.targets >= _FIRST_WORD

    def following(self, number: int) -> np.ndarray:
        """Returns the targets and the tokens after them.

        Args:
            number: Number of tokens, at least 1 and at most `num_following` + 1.

        Returns:
            int32 [places, number]; padding after a sentence's end. For a cut sentence
            they are still its own words.
        """
        return np.vstack([self.targets, self._following[: number - 1]]).T

    def sums(self, values: np.ndarray, at: np.ndarray | None = None) -> np.ndarray:
        """Returns the sum of each client's values: float64 [clients].

        Args:
            values: Numbers or booleans, one per position.
            at: int64: the values' positions; None for all.
        """
        clients = self.clients if at is None else self.clients[at]
        return np.bincount(clients, np.asarray(values, np.float64), len(self.held_out))
