"""Client side: the items that a device reports on, at most a bound of them.

A device's items at a level are the candidates that its words begin with; words that
share a prefix are one item, whose counts add up. TensorFlow functions over a block of
devices, for use inside a client computation (Sun et al. 2024, Algorithm 2, lines 11
to 13).
"""

import enum

import numpy as np
import tensorflow as tf

from federated_hh import alphabet as alphabet_lib
from simulation import client_words

# The keys that items are ordered by are 63 bits: the device in the block, the inverse
# of the count, a random tie-breaker.
_COUNT_BITS = 16
_RANDOM_BITS = 28
_MAX_BLOCK = 1 << (63 - _COUNT_BITS - _RANDOM_BITS)


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
        self._words_path = population.derived_column(
            f"{name}_words", lambda: self._spell()[0]
        )
        self._counts_path = population.derived_column(
            f"{name}_counts", lambda: self._spell()[1]
        )

    def _spell(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the words' ranks and counts, each row in the order of the ranks."""
        population = self.population
        ranks = np.empty(len(self.places), np.int64)
        ranks[self.places] = np.arange(len(self.places))
        words = np.empty(population.num_entries, np.int32)
        counts = np.empty(population.num_entries, np.int32)
        splits = population.row_splits
        rank_bits = max(1, (len(ranks) - 1).bit_length())
        count_bits = max(1, int(population.counts.max(initial=1)).bit_length())
        clients = 1 << min(16, 63 - rank_bits - count_bits)
        for first in range(0, population.num_clients, clients):
            last = min(first + clients, population.num_clients)
            entries = slice(int(splits[first]), int(splits[last]))
            rows = np.repeat(np.arange(last - first), np.diff(splits[first : last + 1]))
            keys = (rows << rank_bits) | ranks[population.word_ids[entries]]
            keys = (keys << count_bits) | population.counts[entries]
            keys.sort()
            counts[entries] = keys & ((1 << count_bits) - 1)
            words[entries] = (keys >> count_bits) & ((1 << rank_bits) - 1)
        return words, counts

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
            clients: int64, shape [block]: indices into the population; at most
                2^19 of them.
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
        devices, items, counts = self._distinct(clients, candidate_of_word)
        held = tf.math.bincount(
            devices, minlength=tf.size(clients), maxlength=tf.size(clients)
        )
        over = tf.gather(held, devices) > bound
        within = tf.boolean_mask(items, ~over)
        chosen = self._choose(
            sampler,
            tf.boolean_mask(devices, over),
            tf.boolean_mask(items, over),
            tf.boolean_mask(counts, over),
            tf.where(held > bound, held, 0),
            bound,
            seed,
        )
        return tf.concat([within, chosen], axis=0)

    def _distinct(
        self, clients: tf.Tensor, candidate_of_word: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns device, item and count of each distinct item, device by device."""
        splits = tf.raw_ops.ImmutableConst(
            dtype=tf.int64,
            shape=self.population.row_splits.shape,
            memory_region_name=self.population.column_path("row_splits"),
        )
        starts = tf.gather(splits, clients)
        lengths = tf.gather(splits, clients + 1) - starts
        block_starts = tf.cumsum(lengths, exclusive=True)
        entries = tf.repeat(starts - block_starts, lengths)
        entries += tf.range(tf.size(entries, tf.int64))
        devices = tf.repeat(tf.range(tf.size(clients)), lengths)
        words = tf.gather(self._column(self._words_path), entries)
        items = tf.gather(candidate_of_word, words)
        held = items >= 0
        devices = tf.boolean_mask(devices, held)
        items = tf.boolean_mask(items, held)
        counts = tf.gather(
            self._column(self._counts_path), tf.boolean_mask(entries, held)
        )
        # Equal items of a device are neighbours, as the words are in spelling order.
        first = tf.not_equal(devices[1:], devices[:-1]) | tf.not_equal(
            items[1:], items[:-1]
        )
        first = tf.concat([tf.ones([tf.minimum(tf.size(items), 1)], tf.bool), first], 0)
        runs = tf.cumsum(tf.cast(first, tf.int32)) - 1
        totals = tf.math.segment_sum(tf.cast(counts, tf.int64), runs)
        return tf.boolean_mask(devices, first), tf.boolean_mask(items, first), totals

    def _choose(
        self,
        sampler: ItemSampler,
        devices: tf.Tensor,
        items: tf.Tensor,
        counts: tf.Tensor,
        held: tf.Tensor,
        bound: int,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """Returns `bound` items of each device that has more; `held` says how many."""
        # A tie of 28 random bits goes to the item first by spelling: of two items
        # that compete for a place, with a chance of 2^-28.
        keys = tf.random.stateless_uniform(
            tf.shape(items), seed, 0, 1 << _RANDOM_BITS, tf.int64
        )
        if sampler is ItemSampler.GREEDY:
            most = (1 << _COUNT_BITS) - 1
            rarity = most - tf.minimum(counts, most)
            keys = tf.bitwise.bitwise_or(
                tf.bitwise.left_shift(rarity, _RANDOM_BITS), keys
            )
        device_bits = tf.bitwise.left_shift(
            tf.cast(devices, tf.int64), _COUNT_BITS + _RANDOM_BITS
        )
        order = tf.argsort(tf.bitwise.bitwise_or(device_bits, keys), stable=True)
        # Where a device's items begin, in that order.
        begins = tf.cumsum(tf.cast(held, tf.int32), exclusive=True)
        place = tf.range(tf.size(items)) - tf.gather(begins, tf.gather(devices, order))
        return tf.gather(items, tf.boolean_mask(order, place < bound))


def check_block_size(size: int) -> None:
    """Raises a `ValueError` for a block of more devices than the keys have room for."""
    if size > _MAX_BLOCK:
        raise ValueError(
            f"a block has {size:,} devices; at most {_MAX_BLOCK:,} are possible: use "
            "more blocks"
        )
