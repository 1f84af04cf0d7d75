"""Count mean sketch (Apple 2017, "Learning with Privacy at Scale").

Zhu et al. 2020, appendix C, describes it with the signs of the vector v turned round;
with the server's formula of Apple's paper, which it leaves out, v has to be +1 at the
cell of the item and -1 elsewhere, as there and here.
"""

import fractions

import numpy as np
import tensorflow as tf

from federated_hh.randomizers import (
    affine_hashes,
    arguments,
    coins,
    local_randomizer,
)
from federated_hh.randomness import identities


@identities.identity("federated_hh.randomizers.count_mean_sketch.CountMeanSketch")
class CountMeanSketch(local_randomizer.LocalRandomizer):
    """Sends a bit for each cell that one of k public hash functions maps items to.

    A device draws one of the functions, h_j, and sends j with a row of m bits: 1 for
    the cell of its item, 0 for the others, each turned round with probability
    1 / (e^(epsilon / 2) + 1). The rows of two items differ in two bits at most, so that
    epsilon is in the replacement model. A report speaks for all items that h_j maps to
    cells with a 1.

    A report is an int32 row: j, and the m bits. The sum of reports is a *sketch*: for
    each function, the number of reports with a 1 in each cell, and, in its last column,
    the number of reports.
    """

    def __init__(
        self,
        epsilon: float,
        domain_size: int,
        *,
        num_hashes: int = 2048,
        num_cells: int = 1024,
        hash_seed: int = 0,
    ):
        """Checks and keeps the parameters.

        Args:
            epsilon: See `LocalRandomizer`.
            domain_size: See `LocalRandomizer`.
            num_hashes: k, in [1, 2^20].
            num_cells: m, a power of two in [2, 2^20].
            hash_seed: Seed of the hash functions; public.

        Raises:
            ValueError: If a parameter is out of its range.
        """
        super().__init__(epsilon, domain_size)
        self.hashes = affine_hashes.AffineHashes(
            num_hashes, num_cells, domain_size, hash_seed
        )
        # Rounded down, so that no bit is too likely to be right.
        self._right = coins.Coin.at_most(
            coins.exact(lambda e: e / (e + 1), epsilon / 2)
        )
        self._check_gap()

    def canonical_text(self) -> str:
        """Returns everything that reports depend on; see `identities.canonical`."""
        hashes = self.hashes
        return (
            f"CountMeanSketch({self.epsilon!r}, {self.domain_size}, "
            f"num_hashes={hashes.num_functions}, num_cells={hashes.num_cells}, "
            f"hash_seed={hashes.seed})"
        )

    @property
    def bits_per_report(self) -> int:
        """The function's number, and a bit for each cell."""
        functions, cells = self.hashes.num_functions, self.hashes.num_cells
        return local_randomizer.bits_of_index(functions) + cells

    @property
    def own_probability(self) -> fractions.Fraction:
        """The chance of a one in the true item's cell; see the base class."""
        return self._right.probability

    @property
    def other_probability(self) -> fractions.Fraction:
        """The chance of a one in the cell of another item, over all hash functions.

        In one case of m the two have one cell.
        """
        right, wrong = self._right.probability, self._right.opposite.probability
        return wrong + (right - wrong) / self.hashes.num_cells

    @property
    def values_per_report(self) -> int:
        """The row; or for `tally` a value for each item, where that is more."""
        return max(self.hashes.num_cells + 1, self.domain_size)

    @property
    def sketch_shape(self) -> tuple[int, int]:
        """The shape of a sketch: [num_hashes, num_cells + 1]."""
        return self.hashes.num_functions, self.hashes.num_cells + 1

    def variance(self, true_counts: np.ndarray, num_reports: int) -> np.ndarray:
        """Returns the variance of the estimates where no two reports have one item.

        Frequent items add `variance_of_collisions`: all of their reports meet an item's
        cell under the same functions. See the base class.
        """
        return super().variance(true_counts, num_reports)

    def variance_of_collisions(self, histogram: np.ndarray) -> np.ndarray:
        """Returns the variance that the choice of hash functions adds.

        The sum of N (N - 1) over the other items, N the reports of each, divided by
        k (m - 1). With `variance` it is the exact variance over reports and functions,
        as these are three-wise independent.

        Args:
            histogram: Integers, shape [domain_size].

        Returns:
            float64, shape [domain_size].
        """
        counts = arguments.check_histogram(
            histogram, self.domain_size, self.values_per_report
        ).astype(np.float64)
        pairs = counts * (counts - 1)
        functions, cells = self.hashes.num_functions, self.hashes.num_cells
        return (pairs.sum() - pairs) / (functions * (cells - 1))

    def _randomize(self, items: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        reports, cells = tf.size(items), self.hashes.num_cells
        seeds = [local_randomizer.fold_in(seed, i) for i in range(2)]
        # 64 bits modulo k: its chances are even to one in 2^44.
        drawn = tf.random.stateless_uniform(
            [reports], seeds[0], minval=None, maxval=None, dtype=tf.uint64, alg="philox"
        )
        functions = tf.cast(
            tf.math.floormod(drawn, tf.constant(self.hashes.num_functions, tf.uint64)),
            tf.int32,
        )
        own = self.hashes.cells_in_graph(functions, items)
        right = self._right.toss([reports, cells], seeds[1])
        is_own = tf.equal(own[:, tf.newaxis], tf.range(cells))
        bits = tf.cast(tf.equal(is_own, right), tf.int32)
        return tf.concat([functions[:, tf.newaxis], bits], axis=1)

    def tally(self, reports: tf.Tensor) -> tf.Tensor:
        """Counts the reports that speak for each item; see the base class."""
        functions = tf.repeat(reports[:, 0], self.domain_size)
        items = tf.tile(tf.range(self.domain_size), [tf.shape(reports)[0]])
        cells = self.hashes.cells_in_graph(functions, items)
        cells = tf.reshape(cells, [-1, self.domain_size])
        bits = tf.gather(reports[:, 1:], cells, batch_dims=1)
        return tf.reduce_sum(tf.cast(bits, tf.int64), axis=0)

    def sketch_per_report(
        self,
        items: tf.types.experimental.TensorLike,
        seed: tf.types.experimental.TensorLike,
    ) -> tf.Tensor:
        """Draws the report of each item; returns their sum: int64, `sketch_shape`.

        Arguments and errors are those of `randomize`; see `sum_per_report`.
        """
        items, seed = self._checked(items, seed)
        functions, columns = self.sketch_shape

        def sketch(reports: tf.Tensor) -> tf.Tensor:
            rows = tf.concat([reports[:, 1:], tf.ones_like(reports[:, :1])], axis=1)
            return tf.math.unsorted_segment_sum(
                tf.cast(rows, tf.int64), reports[:, 0], functions
            )

        return self._sum_in_batches(
            items, seed, sketch, [functions, columns], values_per_report=columns
        )

    def sketch_of_histogram(
        self, histogram: np.ndarray, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Draws the sketch of independent reports, given the holders of each item.

        Given the functions that reports chose, all bits are independent: the ones of a
        cell are two binomials, of the reports whose item it is and of the others. How
        many reports of an item chose each function is a multinomial draw, which of
        few reports is made one by one. So the cost is that of k m cells, and for each
        item that is held of its reports or of k functions, whichever are fewer.

        Args:
            histogram: See `sum_of_reports`.
            seed: The seed of all randomness.

        Returns:
            int64, `sketch_shape`.
        """
        histogram = arguments.check_histogram(
            histogram, self.domain_size, self.values_per_report
        )
        generator = np.random.default_rng(seed)
        own = self._cells_of(histogram, generator)
        reports = own.sum(axis=1, keepdims=True)
        held = own > 0
        right = self.own_probability
        ones = coins.count_heads(generator, reports - own, 1 - right)
        ones[held] += coins.count_heads(generator, own[held], right)
        return np.concatenate([ones, reports], axis=1)

    def _cells_of(
        self, histogram: np.ndarray, generator: np.random.Generator
    ) -> np.ndarray:
        """Draws the number of reports with their item in each cell: int64 [k, m]."""
        functions, cells = self.hashes.num_functions, self.hashes.num_cells
        seldom = np.where(histogram < functions, histogram, 0)
        items = np.repeat(np.arange(self.domain_size), seldom)
        chosen = generator.integers(0, functions, len(items))
        places = chosen * cells + self.hashes.cells(chosen, items)
        own = np.bincount(places, minlength=functions * cells)
        own = own.astype(np.int64).reshape(functions, cells)
        every = np.arange(functions)
        for item in np.flatnonzero(histogram >= functions):
            chosen = generator.multinomial(
                histogram[item], np.full(functions, 1 / functions)
            )
            own[every, self.hashes.cells(every, item)] += chosen
        return own

    def tally_of_sketch(self, sketch: np.ndarray) -> np.ndarray:
        """Returns the reports that speak for each item: int64 [domain_size].

        Args:
            sketch: int64, `sketch_shape`.
        """
        return self.hashes.sums_over_functions(sketch[:, :-1])

    def _sum_of_reports(
        self, histogram: np.ndarray, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Draws the sketch without the reports, and counts it."""
        return self.tally_of_sketch(self.sketch_of_histogram(histogram, seed))
