"""The privacy curve of rounds of votes with a threshold: TrieHH's guarantee.

In a round a uniform cohort of m of n clients is drawn, each client votes for at most
one candidate, and the candidates with theta votes are released. D' is D with one client
emptied, who then votes for nothing. If k clients of D would vote for the client's
candidate and q_k = P(Hypergeometric(n, k, m) = theta), then for every alpha >= 0

    sum over outputs t of (P(t | D) - alpha P(t | D'))_+  <=  max over k of
        q_k (1 - alpha (1 - theta / k))_+             for alpha >= 1,
        1 - alpha + alpha q_k theta / k               for alpha <= 1,

whatever was released before, and rounds compose as products (docs/triehh_privacy.md).
"""

import dataclasses
import math
import sys

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import loss_composition

_LARGEST_POPULATION = 2**31 - 1
# Of `point_upper`: a bound on the error of ln P(X = x), which is below 1e-12 but for
# populations of a billion, far from the mean: below 3e-10.
_LOG_SLACK = 1e-9
# Below, the error of Stirling's formula is taken from exact factorials.
_EXACT_BELOW = 16


@dataclasses.dataclass(frozen=True)
class VotingRounds:
    """Rounds of votes on the same clients, with a known curve.

    Attributes:
        population_size: Clients n that cohorts are drawn from; 2 to 2^31 - 1.
        cohort_size: Clients m of a round, drawn without replacement; 1 to n.
        threshold: Votes theta that a candidate needs; 1 to 2^31 - 1.
        num_rounds: Rounds of all runs together; 1 to 10^7.

    Raises:
        ValueError: A value is no integer or outside its range.
    """

    population_size: int
    cohort_size: int
    threshold: int
    num_rounds: int

    def __post_init__(self):
        for name, least, most in (
            ("population_size", 2, _LARGEST_POPULATION),
            ("cohort_size", 1, self.population_size),
            ("threshold", 1, _LARGEST_POPULATION),
            ("num_rounds", 1, loss_composition.LARGEST_COUNT),
        ):
            value = checks.integer(
                least=least, most=most, **{name: getattr(self, name)}
            )
            object.__setattr__(self, name, value)

    @property
    def least_delta(self) -> float:
        """The delta that no epsilon avoids: each round may show theta holders."""
        return loss_composition.least_delta([self.mechanisms()])

    def epsilon(self, delta: float) -> float:
        """Computes the epsilon of all rounds together, from D to D'.

        Args:
            delta: In (0, 1).

        Returns:
            An upper bound of the smallest epsilon at this delta.

        Raises:
            ValueError: No epsilon has so small a delta; the message says which is the
                smallest.
        """
        delta = checks.probability(delta=delta)
        if self.least_delta > delta:
            raise ValueError(
                f"no guarantee at delta = {delta:g} for threshold = {self.threshold} "
                f"and cohort_size = {self.cohort_size} in a population_size of "
                f"{self.population_size}: the smallest delta is "
                f"{self.least_delta:.4g}, from words with {self.threshold} holders. "
                "Use a larger threshold, a smaller cohort or a larger delta"
            )
        return loss_composition.composed_epsilon([self.mechanisms()], delta)

    def delta(self, epsilon: float) -> float:
        """Computes the delta of all rounds together, from D to D'.

        Args:
            epsilon: Finite, of any sign; at 0, delta is the total variation distance,
                which has no direction.

        Returns:
            An upper bound of the hockey-stick divergence, at most 1.

        Raises:
            ValueError: `epsilon` is not finite.
        """
        checks.holds(math.isfinite(epsilon), "finite", epsilon=epsilon)
        return loss_composition.composed_delta([self.mechanisms()], epsilon)

    def mechanisms(self) -> loss_composition.Mechanisms:
        """Returns the rounds as mechanisms to be composed with others."""
        return loss_composition.Mechanisms(
            self._delta_at,
            # k = theta + 1 has no larger loss, and k = theta an infinite one.
            math.log(self.threshold + 1) * (1 + 1e-14),
            self.num_rounds,
            one_sided_deltas=self.deltas,
        )

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """Computes the curve of one round.

        For alpha >= 1, f(k) = q_k (theta - (alpha - 1)(k - theta)) / k rises up to
        some k and falls beyond it: f(k + 1) / f(k) is a product of three factors that
        fall with k. That k is found by bisection, in exact integers.

        Args:
            epsilons: float64 [points], at least 0; may be infinite.

        Returns:
            float64 [points]: max over k of f(k) at alpha = e^epsilon, rounded upwards.
        """
        found = [self._worst_holders(epsilon) for epsilon in epsilons.tolist()]
        chances = point_upper(
            self.population_size,
            np.array([holders for holders, _ in found]),
            self.cohort_size,
            self.threshold,
        )
        gains = np.array([gain for _, gain in found])
        return np.minimum(1.0, chances * gains * (1 + 1e-15))

    def _delta_at(self, epsilon: float) -> float:
        return float(self.deltas(np.array([epsilon]))[0])

    def _worst_holders(self, epsilon: float) -> tuple[int, float]:
        """Returns the k of the largest f(k), and its f(k) / q_k, rounded upwards."""
        n, m, theta = self.population_size, self.cohort_size, self.threshold
        if epsilon > math.log(theta + 1):
            return theta, 1.0
        # alpha - 1 = excess / scale, rounded downwards, which makes f larger.
        excess, scale = max(0.0, math.expm1(epsilon) * (1 - 1e-15)).as_integer_ratio()

        def gain(k: int) -> int:
            return theta * scale - excess * (k - theta)

        def rises(k: int) -> bool:
            left = k * gain(k + 1) * (n - k - m + theta)
            return left > (k + 1 - theta) * gain(k) * (n - k)

        # Beyond theta (n + 1) / m, q_k falls; from gain(k) <= 0 on, f is 0.
        low, high = theta, min(n, theta * (n + 1) // m)
        if excess:
            high = min(high, theta + theta * scale // excess)
        while low < high:
            middle = (low + high) // 2
            if rises(middle):
                low = middle + 1
            else:
                high = middle
        return low, max(0.0, gain(low) / (scale * low)) * (1 + 1e-15)


def point_upper(
    population: int, holders: np.ndarray, cohort: int, votes: int
) -> np.ndarray:
    """Bounds the probability that a uniform cohort has exactly `votes` holders.

    Every factorial is Stirling's formula and its error; the formulas combine to four
    relative entropies, so nothing large cancels (Loader 2000, "Fast and Accurate
    Computation of Binomial Probabilities").

    Args:
        population: Clients n, 1 to 2^31.
        holders: int64 array of any shape: holders k among them, 0 to n.
        cohort: Clients m that are drawn without replacement, 1 to n.
        votes: Any integer of at least 0.

    Returns:
        float64 of the shape of `holders`, in [0, 1]: no less than P(Hypergeometric(n,
        k, m) = votes), by a relative 2e-9 at most; 2.3e-308 where that is below.
    """
    n, m, x = float(population), float(cohort), float(votes)
    held = np.asarray(holders, np.float64)
    # The four cells of the table: voting and silent holders, and the others.
    counts = [np.full_like(held, x), held - x]
    counts += [np.full_like(held, m - x), n - held - m + x]
    expected = [held * m, held * (n - m), (n - held) * m, (n - held) * (n - m)]
    possible = np.min(counts, axis=0) >= 0
    log = _log_error(held) + _log_error(n - held)
    log += _log_error(m) + _log_error(n - m) - _log_error(n)
    for count, products in zip(counts, expected, strict=True):
        count = np.maximum(count, 0.0)
        log = log - _log_error(count) - _relative_entropy(count, products / n)
    found = np.exp(np.minimum(log + _LOG_SLACK, 0.0))
    return np.where(possible, np.maximum(found, sys.float_info.min), 0.0)


def _log_error(x: np.ndarray | float) -> np.ndarray:
    """Returns ln x! - (x ln x - x), of integers x."""
    x = np.asarray(x, np.float64)
    large = np.maximum(x, _EXACT_BELOW)
    inverse = 1 / (large * large)
    series = 1 / 1260 - inverse * (1 / 1680 - inverse / 1188)
    series = (1 / 12 - inverse * (1 / 360 - inverse * series)) / large
    small = _SMALL_ERRORS[np.minimum(x, _EXACT_BELOW - 1).astype(np.int64)]
    return np.where(x < _EXACT_BELOW, small, series + 0.5 * np.log(2 * math.pi * large))


def _relative_entropy(x: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Returns x ln(x / mean) + mean - x, which is 0 or more."""
    off = (x - mean) / np.where(mean > 0, mean, 1.0)
    near = np.where(np.abs(off) < 0.1, off, 0.0)
    series = np.zeros_like(off)
    for power in range(18, 1, -1):
        series = (-1) ** power / (power * (power - 1)) + near * series
    far = np.where(np.abs(off) < 0.1, 0.0, off)
    with np.errstate(divide="ignore", invalid="ignore"):
        direct = np.where(x > 0, (1 + far) * np.log1p(far), 0.0) - far
    return mean * np.where(np.abs(off) < 0.1, near * near * series, direct)


_SMALL_ERRORS = np.array(
    [
        math.log(math.factorial(x)) - (x * math.log(x) - x if x else 0.0)
        for x in range(_EXACT_BELOW)
    ]
)
