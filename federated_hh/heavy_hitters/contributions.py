"""Client side: the items that a device reports on, at most a bound of them.

A device's items at a level are the candidates that its words begin with; words that
share a prefix are one item, whose counts add up. TensorFlow functions over a block of
devices, for use inside a client computation (Sun et al. 2024, Algorithm 2, lines 11
to 13).
"""

import dataclasses
import enum
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from federated_hh.heavy_hitters import selection
from federated_hh.populations.columns import client_words
from federated_hh.randomizers import local_randomizer

# The bits of the keys that items are chosen by: a count above, a tie-breaker below.
_COUNT_BITS = 31
_RANDOM_BITS = 32


class ItemSampler(enum.Enum):
    """The reported items of a client that has more than it may report."""

    # Those it has most often; of equally frequent ones, random ones.
    GREEDY = "greedy"
    # A uniformly random subset, however often it has them.
    RANDOM = "random"


class MappedItems(selection.MappedColumns):
    """The items of a population's clients, as the worker reads them.

    A device's words are sorted by spelling, so words with a common prefix are adjacent,
    and a device merges them without sorting.
    """

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
            sampler: Choice of a client with more than `bound` items.
            clients: int64, shape [block]: indices into the population.
            candidate_of_word: int32, shape [words]: for each word of the population
                the candidate that it begins with, or -1.
            bound: The most items of a device.
            seed: int32, shape [2]: the block's seed.

        Returns:
            int32, shape [items]: the items of all devices, in no order; no device has
            more than `bound` among them, and none twice.
        """
        # ImmutableConst cannot be empty, and an empty population has no items.
        if self.population.num_entries == 0:
            return tf.zeros([0], tf.int32)
        items, splits, counts = self.distinct_items(sampler, clients, candidate_of_word)
        begins, held = splits[:-1], splits[1:] - splits[:-1]
        within = tf.where(held <= bound)[:, 0]
        places = tf.ragged.range(
            tf.gather(begins, within), tf.gather(splits, within + 1)
        )
        chosen = _choose(items, counts, begins, held, bound, seed)
        return tf.concat([tf.gather(items, places.values), chosen], axis=0)

    def distinct_items(
        self, sampler: ItemSampler, clients: tf.Tensor, candidate_of_word: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Returns the distinct items of all devices, device by device.

        Args:
            sampler: Whether counts are asked for.
            clients: int64, shape [block]: indices into the population, which has to
                have an entry.
            candidate_of_word: int32, shape [words]: see `items_of_block`.

        Returns:
            The items: int32, shape [items]. Where each device's begin: int64, shape
            [block + 1]. How often the device has each: int64, shape [items], or None
            where the sampler does not ask.
        """
        entries, row_splits = self.entries_of(clients)
        items = tf.gather(candidate_of_word, self.word_ids(entries))
        # Words without a candidate are removed first: a known word may be between two
        # with a common prefix.
        kept = tf.where(items >= 0)[:, 0]
        row_splits = _places_of(row_splits, kept)
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
        firsts = tf.where(is_first)[:, 0]
        totals = None
        if sampler is ItemSampler.GREEDY:
            sums = tf.cumsum(self.counts(tf.gather(entries, kept)))
            sums = tf.concat([[0], sums], axis=0)
            sums = tf.gather(sums, tf.concat([firsts, row_splits[-1:]], axis=0))
            totals = sums[1:] - sums[:-1]
        return tf.gather(items, firsts), _places_of(row_splits, firsts), totals


@dataclasses.dataclass(frozen=True)
class ColumnItems:
    """The items that clients on disk report on; `generated_clients` has another kind.

    Attributes:
        population: The population.
        sampler: Choice of a client with more than `bound` items.
        bound: The most items of a client.
        growing: Names of message arrays whose first dimension differs between levels.
    """

    population: client_words.ClientWords
    sampler: ItemSampler
    bound: int

    growing = frozenset[str]()

    def message(
        self, candidate_of_word: np.ndarray, seed: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Returns what a level's clients are told.

        Args:
            candidate_of_word: int32, shape [words]: for each word of the population
                the candidate that it begins with, or -1.
            seed: int32, shape [2]: the level's seed.
        """
        del seed  # a block has its own
        return {"candidate_of_word": candidate_of_word}

    def items_of_block(
        self, message: Mapping[str, tf.Tensor], block: Mapping[str, tf.Tensor]
    ) -> tf.Tensor:
        """Returns the items that the clients of a block report on, in no order.

        Args:
            message: Result of `message`.
            block: See `block_round.BlockRound`.
        """
        return MappedItems(self.population).items_of_block(
            self.sampler,
            block["clients"],
            message["candidate_of_word"],
            self.bound,
            local_randomizer.fold_in(block["seed"], 0),
        )


def _places_of(values: tf.Tensor, increasing: tf.Tensor) -> tf.Tensor:
    """Returns the number of `increasing` below each of `values`: int64."""
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

    Devices with similar numbers of items form one matrix, one row per device, and the
    largest keys of each row are taken: much less work than sorting all items.

    Args:
        items: int32, shape [items]: device by device.
        counts: int64, shape [items], for those most often held, where more than
            2^31 - 1 counts as that; None for random ones.
        begins: int64, shape [block]: where the items of a device begin.
        held: int64, shape [block]: how many a device has.
        bound: Number to choose.
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
