"""Client side: which of its words a device brings to a round.

TensorFlow functions over a block of devices, for use inside a client computation.
"""

import dataclasses
import enum

import numpy as np
import tensorflow as tf

from federated_hh.populations.columns import client_words
from federated_hh.runtime import compiled


@dataclasses.dataclass(frozen=True)
class MappedColumns:
    """The columns of a population, as the worker reads them.

    They are mapped from their files, so a block of devices carries no words, only
    which devices it holds.

    Attributes:
        population: The population, whose files have to stay where they are.
    """

    population: client_words.ClientWords

    def favorites(self) -> tf.Tensor:
        """Returns each client's most frequent word: int32, shape [clients]."""
        return self._column("favorites", self.population.favorites)

    def row_splits(self) -> tf.Tensor:
        """Returns the start of each client's entries: int64, shape [clients + 1]."""
        return self._column("row_splits", self.population.row_splits)

    def entries(self) -> tf.Tensor:
        """Returns words with their counts, packed: int32 or int64, shape [entries].

        There has to be one: what is mapped cannot be empty.
        """
        return self._column("entries", self.population.entries)

    def entries_of(self, clients: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the entries of some clients, one client after the other.

        Args:
            clients: int64, shape [block]: indices into the population, which has to
                have an entry.

        Returns:
            The entries: shape [entries of the block]. Where each client's begin, and
            the last one's end: int64, shape [block + 1].
        """
        splits = self.row_splits()
        places = tf.ragged.range(
            tf.gather(splits, clients), tf.gather(splits, clients + 1)
        )
        return tf.gather(self.entries(), places.values), places.row_splits

    def word_ids(self, entries: tf.Tensor) -> tf.Tensor:
        """Returns the words of entries: int32, of the same shape."""
        bits = tf.constant(self.population.packing.count_bits, entries.dtype)
        return tf.cast(tf.bitwise.right_shift(entries, bits), tf.int32)

    def counts(self, entries: tf.Tensor) -> tf.Tensor:
        """Returns the counts of entries' words: int64, likewise."""
        mask = tf.constant(self.population.packing.max_count, entries.dtype)
        return tf.cast(tf.bitwise.bitwise_and(entries, mask), tf.int64)

    def _column(self, name: str, values: np.ndarray) -> tf.Tensor:
        return tf.raw_ops.ImmutableConst(
            dtype=tf.dtypes.as_dtype(values.dtype),
            shape=values.shape,
            memory_region_name=self.population.column_path(name),
        )


_PHILOX = 1


class WordSelection(enum.Enum):
    """Ways in which a client picks the one word that it votes with."""

    # The single-word setting: its most frequent word, in every round.
    MOST_FREQUENT = "most_frequent"
    # The multi-word setting (Zhu et al. 2020, Algorithm 3): one of its words with
    # probability proportional to how often it has it, again each round.
    BY_FREQUENCY = "by_frequency"


class MappedPopulation(MappedColumns):
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
        counts, words = self.counts(entries), self.word_ids(entries)
        return picked_by_count(words, counts, row_splits, bits)


def picked_by_count(
    words: tf.Tensor, counts: tf.Tensor, row_splits: tf.Tensor, bits: tf.Tensor
) -> tf.Tensor:
    """Returns a word of each client, drawn in proportion to its count.

    Args:
        words: int32, shape [entries]: client by client.
        counts: int64, shape [entries].
        row_splits: int64, shape [block + 1]: where each client's entries begin.
        bits: uint64, shape [block]: each client's random bits.

    Returns:
        int32, shape [block]; -1 for a client without words.
    """
    starts, ends = row_splits[:-1], row_splits[1:]
    drawn = drawn_by_count(counts, starts, ends, bits)
    # A client without words must not read the next client's entry; behind all entries
    # there is none to read.
    words = tf.concat([words, [-1]], axis=0)
    return tf.where(ends > starts, tf.gather(words, drawn), -1)


def drawn_by_count(
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


def votes(items: tf.Tensor, num_items: int, block_size: int) -> tf.Tensor:
    """Returns the number of clients that vote for each item.

    Args:
        items: int32, shape [block]: each client's item; -1 for none.
        num_items: Number of items.
        block_size: The most clients of a block.

    Returns:
        int64, shape [num_items].
    """

    def counted(items):
        # Below 0 nothing is added up.
        ones = tf.ones_like(items, tf.int64)
        return tf.math.unsorted_segment_sum(ones, items, num_items)

    with compiled.reading():
        items = compiled.padded(items, block_size, -1)
    return compiled.compiled(counted)(items)


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
