"""Adaptive weights of set union, on integers: totals, levels, thresholds, guarantee.

Chen et al. 2025, "Scalable Private Partition Selection via Adaptive Weighting": after a
pass, clients give less weight to words that need none and to words that cannot reach a
threshold. Here a word's noisy sums of all passes also add up to a total, so that a pass
without a release is not lost. docs/set_union_privacy.md has the theorem and its proof.
"""

import dataclasses
import fractions
import math
from typing import Any, Self

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy.sets import weighted_gaussian
from federated_hh.randomness import discrete_gaussian

# A client's weights are in proportion to its words' levels, from 1 to this one.
MOST_LEVEL = 16
# Of a word above its threshold's reach, which needs less weight than others.
_LEAST_ABOVE = 4
# The weight that words are expected to gain, as clients leave out others, and the
# standard deviations in which a level falls to 0. No guarantee depends on either.
_EXPECTED_GAIN = 1.7
_WIDTH = 3.0
_LARGEST_FACTOR = 64
_MOST_PASSES = 16


@dataclasses.dataclass(frozen=True)
class AdaptiveGaussian(weighted_gaussian.WeightedGaussian):
    """The noise, thresholds and factors of one run's passes with adaptive weights.

    A word's total after a pass is the sum of its noisy sums so far, each times its
    pass's factor. Thresholds are for totals.

    Attributes:
        factors: Factor of each pass.

    Raises:
        ValueError: If a number is out of range, or their counts differ.
    """

    factors: tuple[int, ...]

    def __post_init__(self):
        super().__post_init__()
        # Noisy sums have 53 bits, and totals 63.
        checks.integer(least=1, most=_MOST_PASSES, num_passes=self.num_passes)
        if len(self.factors) != self.num_passes:
            raise ValueError(
                f"factors has {len(self.factors)} numbers; it has to have one for each "
                f"of the {self.num_passes} noise multipliers"
            )
        for factor in self.factors:
            checks.integer(factor=factor, least=1, most=_LARGEST_FACTOR)

    @classmethod
    def of_noise(
        cls,
        contribution_bound: int,
        noise_multipliers: tuple[float, ...],
        delta_of_a_pass: float,
        **fields: Any,
    ) -> Self:
        """Returns the passes with factors in proportion to their zCDP; see the base."""
        least = fractions.Fraction(min(noise_multipliers))
        shares = [(least / fractions.Fraction(z)) ** 2 for z in noise_multipliers]
        fields["factors"] = tuple(
            max(1, round(_LARGEST_FACTOR * share)) for share in shares
        )
        return super().of_noise(
            contribution_bound, noise_multipliers, delta_of_a_pass, **fields
        )

    def unit(self, number: int) -> int:
        """Returns the total of a client with one word after a pass, from 0."""
        return sum(self.factors[: number + 1]) * weighted_gaussian.NORM

    def total_stddev(self, number: int) -> float:
        """Returns the standard deviation of the noise on a total after a pass."""
        return math.sqrt(
            sum(
                factor**2 * (self.stddev(i) ** 2 + discrete_gaussian.ROUNDING_VARIANCE)
                for i, factor in enumerate(self.factors[: number + 1])
            )
        )

    def crossing_at(self, number: int, threshold: int) -> float:
        """Bounds the probability that a pass releases a word that one client alone has.

        Args:
            number: The pass, from 0.
            threshold: Total that a word needs, at least 1.

        Returns:
            The largest of 1 - (1 - q_t)^t for t words. q_t is the probability that the
            total of one of them reaches the threshold if it has its weight of the first
            pass, that of t words, and the whole norm in all later ones.
        """
        first, *later = self.factors[: number + 1]
        weights = weighted_gaussian.weights(self.contribution_bound)[1:]
        own = first * weights + sum(later) * weighted_gaussian.NORM
        # The lattice's cubes reach half the sum of the factors farther down.
        least = threshold - own - math.ceil((first + sum(later)) / 2)
        variances = (
            self.stddev(i) ** 2 + discrete_gaussian.ROUNDING_VARIANCE
            for i in range(number + 1)
        )
        log_tails = weighted_gaussian.log_normal_tail(least / self.total_stddev(number))
        return weighted_gaussian.any_crosses(
            log_tails + sum(1 / (24 * variance) for variance in variances)
        )

    def levels(self, number: int, totals: np.ndarray) -> np.ndarray:
        """Returns the levels of unreleased words for the pass after another.

        The level is highest for totals that reach the last threshold with the noise to
        come, and falls to both sides.

        Args:
            number: The pass that is over, from 0.
            totals: int64 [words]: totals of words that the pass did not release.

        Returns:
            uint8 [words]: from 1 to 16; 0 of a word that no client sends again.
        """
        if number == self.num_passes - 1:
            return np.zeros(len(totals), np.uint8)
        gain = _EXPECTED_GAIN * sum(self.factors[number + 1 :])
        gain /= sum(self.factors[: number + 1])
        noise, last = self.total_stddev(number), self.total_stddev(self.num_passes - 1)
        peak = self.thresholds[-1] / (1 + gain)
        width = math.hypot(math.sqrt(last**2 - noise**2), gain * noise) / (1 + gain)
        away = (totals - peak) / (_WIDTH * width)
        found = np.rint(MOST_LEVEL * (1 - np.abs(away)))
        least = np.where(away > 0, _LEAST_ABOVE, 0)
        return np.maximum(found, least).astype(np.uint8)


def kind_of(weights: str) -> type[weighted_gaussian.WeightedGaussian]:
    """Returns the passes of clients' weights: 'uniform' or 'adaptive'."""
    kinds = {
        "uniform": weighted_gaussian.WeightedGaussian,
        "adaptive": AdaptiveGaussian,
    }
    return kinds[weights]
