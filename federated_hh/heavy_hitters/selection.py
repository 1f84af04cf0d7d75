"""Client side: which of its words a device brings to a round.

TensorFlow functions over a block of devices, for use inside a client computation.
"""

import enum

import tensorflow as tf

from federated_hh.heavy_hitters import mapped_columns

_PHILOX = 1


class WordSelection(enum.Enum):
    """Ways in which a client picks the one word that it votes with."""

    # The single-word setting: its most frequent word, in every round.
    MOST_FREQUENT = "most_frequent"
    # The multi-word setting (Zhu et al. 2020, Algorithm 3): one of its words with
    # probability proportional to how often it has it, again each round.
    BY_FREQUENCY = "by_frequency"


class MappedPopulation(mapped_columns.MappedColumns):
    """The words that clients vote with, as the worker reads them."""

    def select(
        self, selection: WordSelection, clients: tf.Tensor, bits: tf.Tensor
    ) -> tf.Tensor:
        """Returns the word of each client of a block.

        Args:
            selection: Way to pick it.
            clients: int64, shape [block]: indices into the population.
            bits: uint64, shape [block]: each client's random bits of this round.
                MOST_FREQUENT uses none.

        Returns:
            int32, shape [block]: indices into the population's words; -1 for a client
            that has no word.
        """
        if selection is WordSelection.MOST_FREQUENT:
            return tf.gather(self.favorites(), clients)
        if not self.population.num_entries:  # what is mapped cannot be empty
            return tf.fill(tf.shape(clients), -1)
        entries, row_splits = self.entries_of(clients)
        starts, ends = row_splits[:-1], row_splits[1:]
        drawn = _drawn_by_count(self.counts(entries), starts, ends, bits)
        # A client without words must not read the next client's entry; behind all
        # entries there is none to read.
        words = tf.concat([self.word_ids(entries), [-1]], axis=0)
        return tf.where(ends > starts, tf.gather(words, drawn), -1)


def _drawn_by_count(
    counts: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor, bits: tf.Tensor
) -> tf.Tensor:
    """Returns an entry of each client, drawn in proportion to its count.

    Args:
        counts: int64, shape [entries]: client by client.
        starts: int64, shape [block]: where a client's entries start.
        ends: int64, shape [block]: where they end.
        bits: uint64, shape [block]: each client's random bits.

    Returns:
        int64, shape [block]; of a client without entries a place in [0, entries], which
        is none of its own.
    """
    cumulative = tf.concat([[tf.constant(0, tf.int64)], tf.cumsum(counts)], axis=0)
    before = tf.gather(cumulative, starts)
    total = tf.gather(cumulative, ends) - before
    # Taking 64 bits modulo a total below 2^40 changes a probability by less than a
    # factor of 1 + 2^-24.
    modulus = tf.cast(tf.maximum(total, 1), tf.uint64)
    ticket = before + tf.cast(tf.math.floormod(bits, modulus), tf.int64)
    return tf.searchsorted(cumulative[1:], ticket, side="right", out_type=tf.int64)


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
