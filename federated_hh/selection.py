"""Client side: which of its words a device brings to a round.

TensorFlow functions over a block of devices, for use inside a client computation.
The population's columns are mapped into the worker's memory from their files, so a
block carries no words, only which devices it holds.
"""

import dataclasses
import enum

import numpy as np
import tensorflow as tf

from simulation import client_words

_PHILOX = 1


class WordSelection(enum.Enum):
    """How a device picks the one word that it votes with."""

    # The single-word setting: its most frequent word, in every round.
    MOST_FREQUENT = "most_frequent"
    # The multi-word setting (Zhu et al. 2020, Algorithm 3): one of its words with
    # probability proportional to how often it has it, anew each round.
    BY_FREQUENCY = "by_frequency"


@dataclasses.dataclass(frozen=True)
class MappedPopulation:
    """Where the worker finds a population's columns.

    Attributes:
        population: The population, whose files have to stay where they are.
    """

    population: client_words.ClientWords

    def _column(self, name: str, values: np.ndarray) -> tf.Tensor:
        return tf.raw_ops.ImmutableConst(
            dtype=tf.dtypes.as_dtype(values.dtype),
            shape=values.shape,
            memory_region_name=self.population.column_path(name),
        )

    def select(
        self, selection: WordSelection, clients: tf.Tensor, bits: tf.Tensor
    ) -> tf.Tensor:
        """Returns the word of each client of a block.

        Args:
            selection: How to pick it.
            clients: int64, shape [block]: indices into the population.
            bits: uint64, shape [block]: each client's random bits of this round.
                MOST_FREQUENT uses none.

        Returns:
            int32, shape [block]: indices into the population's words; -1 for a client
            that has no word.
        """
        if selection is WordSelection.MOST_FREQUENT:
            favorites = self._column("favorites", self.population.favorites)
            return tf.gather(favorites, clients)
        splits = self._column("row_splits", self.population.row_splits)
        word_ids = self._column("word_ids", self.population.word_ids)
        starts = tf.gather(splits, clients)
        ends = tf.gather(splits, clients + 1)
        entries = self._entries_by_frequency(starts, ends, bits)
        # A client without words must not read the next client's row, nor past the
        # end of the column.
        has_word = ends > starts
        words = tf.gather(word_ids, tf.where(has_word, entries, 0))
        return tf.where(has_word, words, -1)

    def _entries_by_frequency(
        self, starts: tf.Tensor, ends: tf.Tensor, bits: tf.Tensor
    ) -> tf.Tensor:
        """Returns, for each client, an entry drawn in proportion to its count."""
        counts = self._column("counts", self.population.counts)
        lengths = ends - starts
        block_ends = tf.cumsum(lengths)
        block_starts = block_ends - lengths
        # The entries of all clients of the block, one client after the other.
        entries = tf.repeat(starts - block_starts, lengths) + tf.range(
            tf.reduce_sum(lengths)
        )
        cumulative = tf.cumsum(tf.cast(tf.gather(counts, entries), tf.int64))
        cumulative = tf.concat([[tf.constant(0, tf.int64)], cumulative], axis=0)
        before = tf.gather(cumulative, block_starts)
        total = tf.gather(cumulative, block_ends) - before
        # Taking 64 bits modulo a total below 2^40 changes a probability by less than
        # a factor of 1 + 2^-24.
        modulus = tf.cast(tf.maximum(total, 1), tf.uint64)
        ticket = before + tf.cast(tf.math.floormod(bits, modulus), tf.int64)
        drawn = tf.searchsorted(cumulative[1:], ticket, side="right", out_type=tf.int64)
        # A client without words behind all entries gets one place more than there
        # are; the caller drops what it reads there.
        return tf.gather(tf.concat([entries, starts[:1]], axis=0), drawn)


def random_bits(seed: tf.Tensor, first: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns 64 random bits for each of `count` consecutive places in a cohort.

    The bits of a place depend on the seed and the place only, so they are the same
    however a cohort is cut into blocks. Each place has one counter of Philox4x32.

    Args:
        seed: int32, shape [2].
        first: int64 scalar, the first place, at least 0.
        count: int32 scalar, how many places.

    Returns:
        uint64, shape [count].
    """
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    counter = counter + tf.stack([tf.cast(first, tf.uint64), tf.constant(0, tf.uint64)])
    pairs = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[count, 2], key=key, counter=counter, alg=_PHILOX, dtype=tf.uint64
    )
    return pairs[:, 0]
