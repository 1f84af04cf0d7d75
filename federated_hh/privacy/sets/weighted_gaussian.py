"""The weighted Gaussian of set union, on integers: weights, thresholds, guarantee.

Gopi et al. 2020, "Differentially Private Set Union": a client gives each of its t words
the weight 1/sqrt(t), so that its vector has an L2 norm of at most 1. The sums get
Gaussian noise, and words whose noisy sum reaches a threshold are released. Here weights
are integers in units of 2^-20, the noise is the integer noise of training, and later
passes leave out the words that earlier ones released. docs/set_union_privacy.md has the
theorem and its proof.
"""

import dataclasses
import fractions
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import conversions, drawn_noise, rounding
from federated_hh.privacy.dp_ftrl import noise_calibration
from federated_hh.randomness import discrete_gaussian

# The L2 norm of a client's integers. Sums of 2^31 clients are exact in float64.
NORM = 1 << 20
# Each word is a weight of the client, and a term of the threshold's delta.
MOST_WORDS = 100_000
MOST_PASSES = 100
# Beyond it nothing is proved of the drawn noise at a usual delta.
LARGEST_EPSILON = 50.0
# Of delta: the noise has it, the thresholds have the other half.
_NOISE_SHARE = fractions.Fraction(1, 2)
# Relative: what the drawn noise and the rounding of parameters may add.
_SLACK = 1e-6


def weight(num_words: int) -> int:
    """Returns the weight of each of a client's words: t w^2 is at most 2^40."""
    return math.isqrt(NORM**2 // num_words)


@functools.lru_cache(maxsize=8)
def weights(most: int) -> np.ndarray:
    """Returns the weights by number of words: int64 [most + 1], 0 for no word."""
    found = np.array([0, *map(weight, range(1, most + 1))], np.int64)
    found.setflags(write=False)
    return found


def log_noise_tail(least: np.ndarray, stddev: float) -> np.ndarray:
    """Bounds the probability that the noise on a sum is large.

    Args:
        least: Whole numbers, any shape.
        stddev: Standard deviation S of the Gaussian, in units of the sums.

    Returns:
        Of each number m an upper bound on ln P(Z >= m), for Z with the law of a
        Gaussian that is rounded at random. For m >= 1 the sum of exp(-n^2 / 2v), n >= m
        and v = S^2 + 5, is at most the integral from m - 1 on.
    """
    deviation = math.sqrt(stddev**2 + discrete_gaussian.ROUNDING_VARIANCE)
    return log_normal_tail((np.asarray(least, np.float64) - 1) / deviation)


def log_normal_tail(away: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the standard normal tail, rounded upwards.

    Args:
        away: Any shape; below 0 the result is 0. May be off by a few roundings.
    """
    from scipy import special

    found = special.log_ndtr(-away)
    # Of the division and of SciPy's function, as in `conversions.gaussian_delta`.
    error = rounding.UNIT * (16 * np.abs(away) * (np.abs(away) + 1) - 128 * found + 16)
    return np.where(away < 0, 0.0, np.minimum(found + error, 0.0))


@dataclasses.dataclass(frozen=True)
class WeightedGaussian:
    """The noise and the thresholds of one run's passes.

    Attributes:
        contribution_bound: The most words that a client sends in a pass.
        noise_multipliers: The noise of each pass: its standard deviation over the L2
            norm of a client's weights.
        thresholds: The noisy sum that a word needs in each pass, in integers.

    Raises:
        ValueError: If a number is out of range, or their counts differ.
    """

    contribution_bound: int
    noise_multipliers: tuple[float, ...]
    thresholds: tuple[int, ...]

    def __post_init__(self):
        checks.integer(
            contribution_bound=self.contribution_bound, least=1, most=MOST_WORDS
        )
        passes = len(self.noise_multipliers)
        checks.integer(least=1, most=MOST_PASSES, num_passes=passes)
        for multiplier in self.noise_multipliers:
            # The most fits in 62 bits.
            is_possible = 2**-10 <= multiplier <= 2**36
            limits = "from 2^-10 to 2^36"
            checks.holds(is_possible, limits, noise_multiplier=multiplier)
        if len(self.thresholds) != passes:
            raise ValueError(
                f"thresholds has {len(self.thresholds)} numbers; it has to have one "
                f"for each of the {passes} noise multipliers"
            )
        for threshold in self.thresholds:
            checks.integer(threshold=threshold, least=1, most=2**62)

    @property
    def num_passes(self) -> int:
        """Number of passes."""
        return len(self.thresholds)

    def stddev(self, number: int) -> float:
        """Returns the noise's standard deviation in a pass, from 0, in integers."""
        return self.noise_multipliers[number] * NORM

    def unit(self, number: int) -> int:
        """Returns the unit of a pass's threshold: a client with one word, from 0."""
        del number
        return NORM

    def total_stddev(self, number: int) -> float:
        """Returns the standard deviation of the noise that a pass's threshold meets."""
        return self.stddev(number)

    def crossing_at(self, number: int, threshold: int) -> float:
        """Returns `crossing` of a pass, from 0, at another threshold."""
        return crossing(threshold, self.stddev(number), self.contribution_bound)

    @classmethod
    def of_noise(
        cls,
        contribution_bound: int,
        noise_multipliers: tuple[float, ...],
        delta_of_a_pass: float,
        **fields: Any,
    ) -> Self:
        """Returns the passes whose thresholds are the smallest for their delta.

        Args:
            contribution_bound: The most words that a client sends in a pass.
            noise_multipliers: The noise of each pass.
            delta_of_a_pass: The most that `crossing_at` may be, in (0, 1).
            **fields: Fields of a subclass.
        """
        highest = (2**62,) * len(noise_multipliers)
        made = cls(contribution_bound, noise_multipliers, highest, **fields)
        thresholds = (
            least_threshold(
                delta_of_a_pass, functools.partial(made.crossing_at, number)
            )
            for number in range(made.num_passes)
        )
        return dataclasses.replace(made, thresholds=tuple(thresholds))

    @functools.cached_property
    def rho(self) -> fractions.Fraction:
        """The zCDP of the passes' Gaussian noise together."""
        costs = [1 / (2 * fractions.Fraction(z) ** 2) for z in self.noise_multipliers]
        return sum(costs, fractions.Fraction())

    @functools.cached_property
    def crossing(self) -> float:
        """Bound on the probability that a word of one client alone is released."""
        each = (
            self.crossing_at(number, threshold)
            for number, threshold in enumerate(self.thresholds)
        )
        return math.fsum(each) * (1 + _UNIT)

    def holders_needed(self, probability: float, num_words: int) -> int:
        """Returns the holders of a word that some pass releases so surely.

        Args:
            probability: The probability of a release, in (0, 1).
            num_words: Words that each holder sends, 1 to the contribution bound, in
                every pass and with equal weights.
        """
        from scipy import special

        checks.probability(probability=probability)
        least = min(
            (threshold + special.ndtri(probability) * self.total_stddev(number))
            * (NORM / self.unit(number))
            for number, threshold in enumerate(self.thresholds)
        )
        return max(1, math.ceil(least / weight(num_words)))

    def epsilon(
        self, delta: float, num_runs: int = 1, *, replaced: bool = False
    ) -> drawn_noise.DrawnEpsilon:
        """Computes the epsilon of the drawn noise and the thresholds.

        Args:
            delta: Delta, in (0, 1).
            num_runs: Number of runs on the same clients, at least 1.
            replaced: Whether neighbours differ in all of a client's words, and not in
                a client with words or without.

        Returns:
            Epsilon in both directions, rounded upwards.

        Raises:
            ValueError: If the thresholds alone take all of delta.
        """
        beyond = num_runs * self.crossing * (1 + _UNIT)
        left = (delta - beyond) * (1 - _UNIT)
        if left <= 0:
            raise ValueError(
                f"delta is {delta:g}; it has to be above {beyond:.4g}, the probability "
                "that words of one client alone are released"
            )
        rho = rounding.upwards(num_runs * self.rho * (2 if replaced else 1))
        missed = -math.log1p(-beyond) * (1 + 4 * _UNIT)
        return drawn_noise.of_gaussian(
            lambda part: (
                (conversions.zcdp_to_epsilon(rho, part) + missed) * (1 + _UNIT)
            ),
            left,
            num_runs * self.num_passes,
            beyond,
        )


_UNIT = 4 * rounding.UNIT


def crossing(threshold: int, stddev: float, most: int) -> float:
    """Bounds the probability that a pass releases a word that one client alone sends.

    Args:
        threshold: Noisy sum that a word needs, at least 1.
        stddev: Standard deviation of the noise, in integers.
        most: The most words of a client.

    Returns:
        The largest of 1 - (1 - q_t)^t for t words of weight w_t, where q_t is the
        probability that one of them reaches the threshold.
    """
    return any_crosses(log_noise_tail(threshold - weights(most)[1:], stddev))


def any_crosses(log_tails: np.ndarray) -> float:
    """Bounds the probability that one of a client's words reaches a threshold.

    Args:
        log_tails: [most]: bound on ln q_t, where q_t is the probability of one of t
            words, from t = 1.

    Returns:
        The largest of 1 - (1 - q_t)^t, rounded upwards.
    """
    if log_tails.max() >= 0:
        return 1.0
    counts = np.arange(1, len(log_tails) + 1)
    missed = counts * np.log1p(-np.exp(log_tails))
    return min(1.0, float(np.max(-np.expm1(missed))) * (1 + 32 * rounding.UNIT))


def least_threshold(delta: float, crossing_at: Callable[[int], float]) -> int:
    """Finds the smallest threshold of a pass.

    Args:
        delta: The most that the crossing may be, in (0, 1).
        crossing_at: Returns the crossing of a threshold, which it does not exceed at
            larger ones.
    """
    low, high = 0, NORM
    while crossing_at(high) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        is_enough = crossing_at(middle) <= delta
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def solve(
    epsilon: float,
    delta: float,
    contribution_bound: int,
    shares: Sequence[float],
    kind: type[WeightedGaussian] = WeightedGaussian,
) -> WeightedGaussian:
    """Finds the noise and the thresholds of a guarantee.

    Args:
        epsilon: Epsilon of one run, in (0, 50].
        delta: Delta, in (0, 1): half for the noise, half for the thresholds, of which
            each pass has an equal part.
        contribution_bound: The most words that a client sends in a pass.
        shares: Shares of the zCDP of each pass, above 0; scaled to a sum of 1.
        kind: Class of the passes.

    Raises:
        ValueError: If an argument is out of range, or no noise is proved to have the
            guarantee.
    """
    checks.positive(epsilon=epsilon, most=LARGEST_EPSILON)
    checks.probability(delta=delta)
    for share in shares:
        checks.positive(share=share)
    total = sum(map(fractions.Fraction, shares))
    # What `WeightedGaussian.epsilon` adds for the thresholds.
    left = epsilon + math.log1p(-delta * float(1 - _NOISE_SHARE))
    if left <= 0:
        raise ValueError(
            f"epsilon is {epsilon:g}, less than the thresholds of delta = {delta:g} "
            "take; give a larger epsilon or a smaller delta"
        )
    multiplier = noise_calibration.noise_multiplier_of(
        lambda z: 1 / (2 * z**2),
        left * (1 - _SLACK),
        delta * float(_NOISE_SHARE) * (1 - _SLACK),
    )
    multipliers = tuple(
        multiplier * math.sqrt(total / fractions.Fraction(share)) for share in shares
    )
    of_a_pass = delta * float(1 - _NOISE_SHARE) * (1 - _SLACK) / len(shares)
    found = kind.of_noise(contribution_bound, multipliers, of_a_pass)
    reached = found.epsilon(delta)
    if not reached.is_proved or reached.epsilon > epsilon:
        raise ValueError(
            f"epsilon is {epsilon:g} and delta {delta:g}: nothing is proved of the "
            "integer noise; give a smaller epsilon or a larger delta"
        )
    return found
