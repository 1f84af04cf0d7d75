"""Subset Selection (Sun et al. 2024, Algorithm 1)."""

import dataclasses
import fractions

import numpy as np
import tensorflow as tf

from federated_hh.options import checks
from federated_hh.privacy.shuffle import blanket
from federated_hh.randomizers import (
    coins,
    local_randomizer,
    subset_draws,
    subset_sums,
)
from federated_hh.randomness import identities
from federated_hh.runtime import compiled


@identities.identity("federated_hh.randomizers.subset_selection.SubsetSelection")
class SubsetSelection(local_randomizer.LocalRandomizer):
    """Sends a set of d items: the true one with probability p, the rest uniform.

    With s items, d = ceil(s / (e^epsilon + 1)) and
    p = d e^epsilon / (d e^epsilon + s - d); the rest of the set is a uniform subset of
    the other items. Every set has one of two probabilities, whose ratio is e^epsilon.
    Optimal for frequency estimation in squared error (Ye and Barg 2017, who choose d as
    one of the two integers next to s / (e^epsilon + 1)).

    A report is an int32 row of d items in ascending order.

    Attributes:
        subset_size: The size d of the sets.
    """

    def __init__(
        self, epsilon: float, domain_size: int, subset_size: int | None = None
    ):
        """Checks and keeps the parameters.

        Args:
            epsilon: See `LocalRandomizer`.
            domain_size: See `LocalRandomizer`.
            subset_size: The size d, in [1, domain_size - 1]; None: Algorithm 1's.

        Raises:
            ValueError: If a parameter is out of its range.
        """
        super().__init__(epsilon, domain_size)
        if subset_size is None:
            subset_size = blanket.best_subset_size(self.epsilon, self.domain_size)
        largest = self.domain_size - 1
        self.subset_size = checks.integer(
            subset_size=subset_size, least=1, most=largest
        )
        size, rest = self.subset_size, self.domain_size - self.subset_size
        # Rounded down, so that sets with the item are not too likely.
        self._coin = coins.Coin.at_most(
            coins.exact(lambda e: size * e / (size * e + rest), self.epsilon)
        )
        self._draw = subset_draws.SubsetDraw(self.domain_size, self.subset_size)
        self._check_gap()

    @property
    def guarantee(self) -> local_randomizer.LocalGuarantee:
        """Epsilon in the replacement model; see the base class."""
        if self.subset_size != blanket.best_subset_size(self.epsilon, self.domain_size):
            return super().guarantee
        return dataclasses.replace(
            super().guarantee,
            amplification="subset_selection",
            amplification_reason=(
                "the privacy blanket of Subset Selection for this domain size: every "
                "set has at least the same probability under all items"
            ),
        )

    @property
    def bits_per_report(self) -> int:
        """A list of d indices or a bit an item, whichever is shorter."""
        index = local_randomizer.bits_of_index(self.domain_size)
        return min(self.subset_size * index, self.domain_size)

    @property
    def own_probability(self) -> fractions.Fraction:
        """The chance p in force; see the base class."""
        return self._coin.probability

    @property
    def other_probability(self) -> fractions.Fraction:
        """The chance (d - p) / (s - 1); see the base class."""
        return (self.subset_size - self.own_probability) / (self.domain_size - 1)

    @property
    def values_per_report(self) -> int:
        """The d items."""
        return self.subset_size

    def _randomize(self, items: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        shape = [tf.size(items)]
        included = self._coin.toss(shape, local_randomizer.fold_in(seed, 0))
        return self._draw.draw(items, included, local_randomizer.fold_in(seed, 1))

    def tally(self, reports: tf.Tensor) -> tf.Tensor:
        """Counts the sets that have each item; see the base class."""

        def tally(reports):
            items = tf.reshape(reports, [-1])
            return local_randomizer.counted(items, self.domain_size)

        return compiled.compiled(tally)(reports)

    def _sum_of_reports(
        self, histogram: np.ndarray, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Draws the sum without the reports.

        A report can be drawn in another way: with probability b = s (1 - p) / (s - d)
        it is a uniform d-subset of the whole domain, whatever the true item (the
        blanket); else it is the true item and a uniform (d - 1)-subset of the others.

        The last item serves as a ghost. The other s - 1 items have to be drawn with the
        true item left out; they are drawn with the ghost left out instead, and where
        the true item turns up it stands for the ghost.
        """
        generator = np.random.default_rng(seed)
        size, ghost = self.subset_size, self.domain_size - 1
        blanket = (1 - self.own_probability) * fractions.Fraction(
            self.domain_size, self.domain_size - size
        )
        blind = coins.count_heads(generator, histogram, blanket)
        truthful = histogram - blind
        num_blind = int(blind.sum())
        blind_with_ghost = int(
            coins.count_heads(
                generator, num_blind, fractions.Fraction(size, self.domain_size)
            )
        )
        anonymous = np.zeros(size + 1, np.int64)
        anonymous[size] = num_blind - blind_with_ghost
        anonymous[size - 1] = blind_with_ghost + truthful[ghost]
        counts, own_again = subset_sums.sum_of_subsets(
            generator, anonymous, size - 1, truthful[:ghost]
        )
        ghosts = blind_with_ghost + truthful[ghost] + own_again.sum()
        return np.append(counts + truthful[:ghost], ghosts)
