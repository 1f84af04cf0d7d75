"""Client side: the items that a device reports on, at most a bound of them.

A device's items at a level are the candidates that its words begin with; words that
share a prefix are one item, whose counts add up. TensorFlow functions over a block of
devices, for use inside a client computation (Sun et al. 2024, Algorithm 2, lines 11
to 13).
"""

import enum
import math
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from federated_hh import alphabet as alphabet_lib
from federated_hh.randomizers import local_randomizer
from simulation import client_words, column_writer, ordered_work, progress

# The bits of the keys that items are chosen by: a count above, a tie-breaker below.
_COUNT_BITS = 31
_RANDOM_BITS = 32
# So many rows of some 50 words are sorted in the processor's cache.
_ROWS_AT_ONCE = 1 << 12
_ENTRIES_AT_ONCE = 1 << 22


class ItemSampler(enum.Enum):
    """Which items a device reports on that has more than it may."""

    # Those it has most often; of equally frequent ones, random ones.
    GREEDY = "greedy"
    # A uniformly random subset, however often it has them.
    RANDOM = "random"


class SpelledPopulation:
    """A population's words in the order of their spelling, within each client.

    In that order, words that share a prefix stand side by side, so that a device
    merges them without sorting. The columns are derived from the population's once,
    and mapped into the worker's memory from their files.

    Attributes:
        population: The population.
        codes: uint16, shape [words, length]: the words' codes, by spelling.
        places: int64, shape [words]: for each word of `codes`, its index in the
            population's words.
    """

    def __init__(
        self,
        population: client_words.ClientWords,
        alphabet: alphabet_lib.Alphabet,
        length: int,
    ):
        """Sorts the words, and the clients' rows if no earlier run has.

        Args:
            population: The population.
            alphabet: Has all characters of the words.
            length: How many symbols of a word matter.

        Raises:
            ValueError: If a word has a character outside the alphabet.
        """
        self.population = population
        codes = alphabet.encode(population.words, length)
        self.places = np.lexsort(codes.T[::-1])
        self.codes = codes[self.places]
        name = f"spelled_{length}_{alphabet.fingerprint}"
        self._words_path, self._counts_path = population.derived_columns(
            [f"{name}_words", f"{name}_counts"], self._spell
        )

    def _spell(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the words' ranks and counts, each row in the order of the ranks."""
        population = self.population
        ranks = np.empty(len(self.places), np.int64)
        ranks[self.places] = np.arange(len(self.places))
        splits = population.row_splits
        # The row, the rank and the count make one number, whose order is the rows'.
        rank_bits = max(1, (len(ranks) - 1).bit_length())
        count_bits = self._largest_count().bit_length()
        rows_at_once = min(_ROWS_AT_ONCE, 1 << (63 - rank_bits - count_bits))
        num_clients = population.num_clients

        def spell(index: int) -> tuple[np.ndarray, np.ndarray]:
            first = index * rows_at_once
            last = min(first + rows_at_once, num_clients)
            ends = splits[first : last + 1]
            keys = np.repeat(np.arange(last - first), np.diff(ends)) << rank_bits
            keys |= ranks[self._read("word_ids", ends[0], ends[-1])]
            keys <<= count_bits
            keys |= self._read("counts", ends[0], ends[-1])
            keys.sort()
            words = (keys >> count_bits) & ((1 << rank_bits) - 1)
            counts = keys & ((1 << count_bits) - 1)
            return words.astype(np.int32), counts.astype(np.int32)

        pieces = math.ceil(num_clients / rows_at_once)
        with progress.Progress("Sorting words", num_clients, "clients") as bar:
            for index, columns in enumerate(ordered_work.in_order(spell, pieces)):
                yield columns
                bar.set(min((index + 1) * rows_at_once, num_clients))

    def _largest_count(self) -> int:
        largest = 1
        for first in range(0, self.population.num_entries, _ENTRIES_AT_ONCE):
            last = min(first + _ENTRIES_AT_ONCE, self.population.num_entries)
            largest = max(largest, int(self._read("counts", first, last).max()))
        return largest

    def _read(self, name: str, first: int, last: int) -> np.ndarray:
        """Returns a part of a column, which stays out of this process's memory."""
        dtype = column_writer.COLUMNS[name]
        return np.fromfile(
            self.population.column_path(name),
            dtype,
            int(last - first),
            offset=int(first) * dtype.itemsize,
        )

    def _column(self, path: str) -> tf.Tensor:
        return tf.raw_ops.ImmutableConst(
            dtype=tf.int32,
            shape=[self.population.num_entries],
            memory_region_name=path,
        )

    def items_of_block(
        self,
        sampler: ItemSampler,
        clients: tf.Tensor,
        candidate_of_word: tf.Tensor,
        bound: int,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """Returns the items that the devices of a block report on.

        Args:
            sampler: What a device with more than `bound` items does.
            clients: int64, shape [block]: indices into the population.
            candidate_of_word: int32, shape [words]: for each word of `codes` the
                candidate that it begins with, or -1.
            bound: The most items of a device.
            seed: int32, shape [2]: the block's seed.

        Returns:
            int32, shape [items]: the items of all devices, in no order; no device has
            more than `bound` among them, and none twice.
        """
        # ImmutableConst cannot be empty, and an empty population has no items.
        if self.population.num_entries == 0:
            return tf.zeros([0], tf.int32)
        items, splits, counts = self._distinct(sampler, clients, candidate_of_word)
        begins, held = splits[:-1], splits[1:] - splits[:-1]
        within = tf.where(held <= bound)[:, 0]
        places = tf.ragged.range(
            tf.gather(begins, within), tf.gather(splits, within + 1)
        )
        chosen = _choose(items, counts, begins, held, bound, seed)
        return tf.concat([tf.gather(items, places.values), chosen], axis=0)

    def _distinct(
        self, sampler: ItemSampler, clients: tf.Tensor, candidate_of_word: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Returns the distinct items of all devices, device by device.

        Returns:
            The items: int32, shape [items]. Where each device's begin: int64, shape
            [block + 1]. How often the device has each: int64, shape [items], or None
            where the sampler does not ask.
        """
        splits = tf.raw_ops.ImmutableConst(
            dtype=tf.int64,
            shape=self.population.row_splits.shape,
            memory_region_name=self.population.column_path("row_splits"),
        )
        entries = tf.ragged.range(
            tf.gather(splits, clients), tf.gather(splits, clients + 1)
        )
        words = tf.gather(self._column(self._words_path), entries.values)
        items = tf.gather(candidate_of_word, words)
        # Words without a candidate leave first: a known word may stand between two
        # that share a prefix.
        kept = tf.where(items >= 0)[:, 0]
        row_splits = _places_of(entries.row_splits, kept)
        items = tf.gather(items, kept)
        # Equal items of a device are neighbours, as the words are in spelling order.
        rows = tf.boolean_mask(row_splits[:-1], row_splits[1:] > row_splits[:-1])
        is_first = tf.tensor_scatter_nd_update(
            tf.concat(
                [tf.ones_like(items[:1], tf.bool), tf.not_equal(items[1:], items[:-1])],
                axis=0,
            ),
            rows[:, None],
            tf.ones_like(rows, tf.bool),
        )
        places = tf.where(is_first)[:, 0]
        totals = None
        if sampler is ItemSampler.GREEDY:
            counts = tf.gather(
                self._column(self._counts_path), tf.gather(entries.values, kept)
            )
            sums = tf.cumsum(tf.cast(counts, tf.int64))
            sums = tf.concat([[0], sums], axis=0)
            sums = tf.gather(sums, tf.concat([places, row_splits[-1:]], axis=0))
            totals = sums[1:] - sums[:-1]
        return tf.gather(items, places), _places_of(row_splits, places), totals


def _places_of(values: tf.Tensor, increasing: tf.Tensor) -> tf.Tensor:
    """Returns how many of `increasing` are below each of `values`: int64."""
    return tf.raw_ops.LowerBound(
        sorted_inputs=increasing[None], values=values[None], out_type=tf.int64
    )[0]


def _choose(
    items: tf.Tensor,
    counts: tf.Tensor | None,
    begins: tf.Tensor,
    held: tf.Tensor,
    bound: int,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Returns `bound` items of each device that has more of them.

    Devices with about as many items make one matrix, a device a row, of which the
    largest keys of each row are taken: much less work than to sort all items.

    Args:
        items: int32, shape [items]: device by device.
        counts: int64, shape [items], for those most often held, where more than
            2^31 - 1 counts as that; None for random ones.
        begins: int64, shape [block]: where the items of a device begin.
        held: int64, shape [block]: how many a device has.
        bound: How many to choose.
        seed: int32, shape [2].
    """
    most = tf.reduce_max(tf.concat([held, [0]], axis=0))

    def choose_in_group(group, chosen):
        least = tf.bitwise.left_shift(tf.constant(bound, tf.int64), group)
        devices = tf.where((held > least) & (held <= 2 * least))[:, 0]
        width = tf.range(tf.minimum(2 * least, most))
        first = tf.gather(begins, devices)[:, None]
        places = tf.minimum(first + width, tf.size(items, tf.int64) - 1)
        # Equal keys go to the item first by spelling: of two items that compete for
        # a place, with a chance of 2^-63, or of 2^-32 where their counts are equal.
        keys = tf.random.stateless_uniform(
            tf.shape(places),
            local_randomizer.fold_in(seed, group),
            None,
            None,
            tf.int64,
        )
        if counts is None:
            keys = tf.bitwise.bitwise_and(keys, np.iinfo(np.int64).max)
        else:
            often = tf.minimum(tf.gather(counts, places), (1 << _COUNT_BITS) - 1)
            keys = tf.bitwise.bitwise_and(keys, (1 << _RANDOM_BITS) - 1)
            keys |= tf.bitwise.left_shift(often, tf.constant(_RANDOM_BITS, tf.int64))
        keys = tf.where(width < tf.gather(held, devices)[:, None], keys, -1)
        best = tf.math.top_k(keys, bound, sorted=False, index_type=tf.int64).indices
        best = tf.gather(items, tf.reshape(first + best, [-1]))
        return group + 1, tf.concat([chosen, best], axis=0)

    return tf.while_loop(
        lambda group, _: (
            tf.bitwise.left_shift(tf.constant(bound, tf.int64), group) < most
        ),
        choose_in_group,
        [tf.constant(0, tf.int64), tf.zeros([0], tf.int32)],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
        parallel_iterations=1,
    )[1]
