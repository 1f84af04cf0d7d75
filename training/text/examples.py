"""Client side: a client's sentences as batches of token sequences.

TensorFlow functions for use inside a client computation. The columns are mapped into
the worker's memory from their files, so that a block carries no text, only which
clients it holds.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from federated_hh.options import checks
from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text, resampled_text
from federated_hh.randomness import identities


@identities.identity("ClientLimits", "max_sentences max_words batch_size")
@dataclasses.dataclass(frozen=True)
class ClientLimits:
    """Limits on a client's text.

    Attributes:
        max_sentences: The first sentences of a client that are used, at least 1.
        max_words: The first words of a sentence that are used, at least 1.
        batch_size: Sentences of a batch, at least 1; a client's last batch may be
            smaller.
    """

    max_sentences: int = 256
    max_words: int = 20
    batch_size: int = 16

    def __post_init__(self):
        checks.integer(least=1, **dataclasses.asdict(self))


class Batch(NamedTuple):
    """Sentences that a client trains on together.

    A sentence w1 ... wn becomes the inputs <bos> w1 ... wn and the targets
    w1 ... wn <eos>, cut after the most words that are used: a longer one has no end.

    Attributes:
        inputs: int32 [sentences, time], padded at the end of each sentence.
        targets: int32 [sentences, time], padded where the inputs are.
    """

    inputs: tf.Tensor
    targets: tf.Tensor


@dataclasses.dataclass(frozen=True)
class MappedText:
    """Clients' sentences for the worker, and their limits.

    Attributes:
        text: The sentences, whose files have to stay where they are.
        limits: Limits on a client's text.
    """

    text: client_text.ClientText
    limits: ClientLimits

    def _column(self, name: str, values: np.ndarray) -> tf.Tensor:
        return tf.raw_ops.ImmutableConst(
            dtype=tf.dtypes.as_dtype(values.dtype),
            shape=values.shape,
            memory_region_name=self.text.column_path(name),
        )

    def sentences_of(self, client: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a client's first sentence, and the number of sentences used.

        Args:
            client: int64 scalar, index into the population.

        Returns:
            int64 scalars.
        """
        splits = self._column("client_splits", self.text.client_splits)
        first = tf.gather(splits, client)
        count = tf.gather(splits, client + 1) - first
        return first, tf.minimum(count, self.limits.max_sentences)

    def num_batches(self, count: tf.Tensor) -> tf.Tensor:
        """Returns the batches of a number of sentences: int64 scalar."""
        size = self.limits.batch_size
        return (count + size - 1) // size

    def batch(self, first: tf.Tensor, count: tf.Tensor, number: tf.Tensor) -> Batch:
        """Returns a batch of a client.

        Args:
            first: See `sentences_of`.
            count: See `sentences_of`.
            number: int64 scalar, in [0, num_batches(count)).

        Returns:
            At most batch_size sentences, of max_words + 1 steps each.
        """
        size, length = self.limits.batch_size, self.limits.max_words + 1
        numbers = tf.range(number * size, tf.minimum((number + 1) * size, count))
        sequences = self._sequences(self._sentences_at(first + numbers))
        sequences = tf.ensure_shape(sequences, [None, length + 1])
        targets = sequences[:, 1:]
        # The input that belongs to no target is padding too: where a sentence ended.
        padding = tf.equal(targets, vocabulary.PAD)
        return Batch(tf.where(padding, vocabulary.PAD, sequences[:, :-1]), targets)

    def _sentences_at(self, places: tf.Tensor) -> tf.Tensor:
        """Returns the sentences that clients have: int64 [n]."""
        if not isinstance(self.text, resampled_text.ResampledText):
            return places
        drawn = self._column("sentences", self.text.sentences)
        return tf.cast(tf.gather(drawn, places), tf.int64)

    def _sequences(self, sentences: tf.Tensor) -> tf.Tensor:
        """Returns <bos>, words, <eos> and padding: int32 [n, max_words + 2]."""
        splits = self._column("sentence_splits", self.text.sentence_splits)
        tokens = self._column("tokens", self.text.tokens)
        sentences = sentences[:, tf.newaxis]
        starts, ends = tf.gather(splits, sentences), tf.gather(splits, sentences + 1)
        most = self.limits.max_words
        offsets = tf.range(-1, most + 1, dtype=tf.int64)[tf.newaxis, :]
        places = starts + offsets
        is_word = (offsets >= 0) & (offsets < most) & (places < ends)
        words = tf.gather(tokens, tf.where(is_word, places, 0))
        # A cut sentence is unfinished: it has no end.
        is_end = tf.equal(places, ends)
        special = tf.where(offsets < 0, vocabulary.BOS, vocabulary.PAD)
        special = tf.where(is_end, vocabulary.EOS, special)
        return tf.where(is_word, words, special)
