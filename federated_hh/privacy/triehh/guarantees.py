"""The guarantee of TrieHH, and its worst-case discovery rate.

TrieHH (Zhu, Kairouz, McMahan, Sun, Li, "Federated Heavy Hitters Discovery with
Differential Privacy", AISTATS 2020) adds no noise: the sampling of a cohort and the
vote threshold are the mechanism.

The guarantee is that of the votes of L rounds (`triehh_curve`): P(M(D) in S) <=
e^epsilon P(M(D') in S) + delta for all S, where D' is D with one client emptied, and
M(D) is the trie after every round. It is one-sided: the opposite inequality is not
claimed, and does not hold for all populations. Take 54 clients of whom all but one hold
one of two first symbols, 27 and 26 of them, a cohort of 9 and a threshold of 5. When
the last client also holds one of the two, some symbol always gets 5 of 9 votes; when it
is emptied, nothing is found with probability above 0.04.
"""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import voting_rounds as triehh_curve

# Theorem 1 of Zhu et al. holds from here on.
SMALLEST_PROVED_THRESHOLD = 4
# Relative slack that covers the few roundings of an epsilon, upwards.
_ROUND_UP = 1 + 2**-50


@dataclasses.dataclass(frozen=True)
class TrieHHParameters:
    """The parameters of a TrieHH run that its guarantee depends on.

    Attributes:
        population_size: Users n that cohorts are drawn from; at least 2.
        cohort_size: Users m of a round, drawn without replacement; 1 to n.
        threshold: Votes theta that a prefix needs to stay; at least 1.
        max_length: Symbols L of the longest sequence, its end symbol included, which
            is also the most rounds that a run can have; at least 1.

    Raises:
        ValueError: A value is no integer or outside its range.
    """

    population_size: int
    cohort_size: int
    threshold: int
    max_length: int

    def __post_init__(self):
        def check(name: str, minimum: int, maximum: int | None = None, why: str = ""):
            value = checks.integer(
                least=minimum, most=maximum, why=why, **{name: getattr(self, name)}
            )
            object.__setattr__(self, name, value)

        check("population_size", 2)
        check("cohort_size", 1, self.population_size, "population_size")
        check("threshold", 1)
        check("max_length", 1)

    @property
    def gamma(self) -> float:
        """The cohort size in units of sqrt(population_size), as in Zhu et al."""
        return self.cohort_size / math.sqrt(self.population_size)

    def voting_rounds(self, num_runs: int = 1) -> triehh_curve.VotingRounds:
        """Returns all rounds of some runs on the same clients, for their guarantee.

        Args:
            num_runs: Runs with these parameters, at least 1.

        Raises:
            ValueError: A value is outside the range of `VotingRounds`.
        """
        return triehh_curve.VotingRounds(
            self.population_size,
            self.cohort_size,
            self.threshold,
            num_runs * self.max_length,
        )


def last_true(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Returns the last integer of [low, high] for which a falling condition holds.

    It has to hold for `low`, and for no integer after one for which it does not.
    """
    if holds(high):
        return high
    step = 1
    while low + step < high and holds(low + step):
        low, step = low + step, 2 * step
    high = min(high, low + step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def worst_case_discovery_rate(
    occurrences: int | np.ndarray, parameters: TrieHHParameters
) -> float | np.ndarray:
    """Computes the discovery rate of a sequence that shares no prefix with another.

    Args:
        occurrences: int or integer array of any shape: users W who hold the
            sequence, 0 to population_size.
        parameters: The run's parameters.

    Returns:
        The probability that all of L rounds give at least threshold votes, float or
        float64 array of the shape of `occurrences` (Proposition 1 of Zhu et al.,
        computed in log space).

    Raises:
        ValueError: `occurrences` is no integer or outside its range.
    """
    from scipy import stats

    holders = np.asarray(occurrences)
    if holders.dtype.kind not in "iu":
        raise ValueError(f"occurrences is {occurrences!r}; it has to hold integers")
    n = parameters.population_size
    if holders.size and not (holders.min() >= 0 and holders.max() <= n):
        raise ValueError(
            f"occurrences is from {holders.min()} to {holders.max()}; it has to be "
            f"from 0 to population_size = {n}"
        )
    # A tail costs up to a millisecond, and populations have few distinct counts.
    distinct, back = np.unique(holders, return_inverse=True)
    possible = distinct >= parameters.threshold
    rates = np.zeros(distinct.shape)
    log_tail = stats.hypergeom.logsf(
        parameters.threshold - 1, n, distinct[possible], parameters.cohort_size
    )
    rates[possible] = np.exp(parameters.max_length * np.minimum(log_tail, 0.0))
    rates = rates[back].reshape(holders.shape)
    return float(rates) if holders.ndim == 0 else rates


def theorem1_violation(parameters: TrieHHParameters) -> str | None:
    """Says why Theorem 1 does not apply.

    Args:
        parameters: The parameters of a run.

    Returns:
        The first condition of Theorem 1 that is not met, in words with its numbers;
        None where the theorem applies.
    """
    n, m = parameters.population_size, parameters.cohort_size
    theta = parameters.threshold
    root = math.sqrt(n)
    if theta < SMALLEST_PROVED_THRESHOLD or theta * theta > n:
        return (
            "4 <= threshold <= sqrt(population_size) is needed, got threshold = "
            f"{theta} with sqrt(population_size) = {root:.6g}"
        )
    if m * m < n:
        return (
            "gamma = cohort_size / sqrt(population_size) >= 1 is needed, got "
            f"gamma = {parameters.gamma:.6g} (cohort_size = {m}; at least "
            f"{math.isqrt(n - 1) + 1} is needed)"
        )
    if m * (theta + 1) > n:
        return (
            "gamma <= sqrt(population_size) / (threshold + 1) is needed, got "
            f"gamma = {parameters.gamma:.6g} above {root / (theta + 1):.6g} "
            f"(cohort_size = {m}; at most {n // (theta + 1)} is allowed)"
        )
    return None


def theorem1(parameters: TrieHHParameters) -> tuple[float, float]:
    """Computes Theorem 1's (epsilon, delta) of one run.

    The paper states the same for users who draw a word again in every round (Algorithm
    3, Corollary 2), and proves it for those who draw once (Theorem 2);
    docs/triehh_privacy.md proves it for all.

    Args:
        parameters: The parameters of the run.

    Returns:
        (epsilon, delta), both rounded upwards.

    Raises:
        ValueError: Theorem 1 does not apply; the message names the condition.
    """
    violated = theorem1_violation(parameters)
    if violated is not None:
        raise ValueError(f"Theorem 1 of Zhu et al. 2020 does not apply: {violated}")
    epsilon = theorem1_epsilon(
        parameters.population_size,
        parameters.cohort_size,
        parameters.threshold,
        parameters.max_length,
    )
    return epsilon, _round_up(theorem1_delta(parameters.threshold))


def theorem1_epsilon(n: int, cohort: int, theta: int, length: int) -> float:
    """Theorem 1's epsilon, rounded upwards; infinite where m theta >= n.

    `1 + 1 / (sqrt(n) / (gamma theta) - 1)` is `1 + m theta / (n - m theta)`, whose
    terms are exact integers: nothing cancels.
    """
    if cohort * theta >= n:
        return math.inf
    return length * math.log1p(cohort * theta / (n - cohort * theta)) * _ROUND_UP


def theorem1_delta(theta: int) -> Fraction:
    """Theorem 1's delta, exactly."""
    return Fraction(theta - 2, (theta - 3) * math.factorial(theta))


def _round_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
