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

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import hypergeometric
from federated_hh.privacy import voting_rounds as triehh_curve

# Relative slack that covers the few roundings of a rate, upwards.
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


def holders_needed(parameters: TrieHHParameters, discovery_rate: float) -> int | None:
    """Finds how many users have to hold a sequence for it to be found.

    Args:
        parameters: The run's parameters.
        discovery_rate: Wanted probability that all L rounds keep it, in (0, 1), for a
            sequence that shares no prefix with another (Proposition 1).

    Returns:
        The smallest number of holders; None if not even a sequence that all users
        hold is found.
    """
    rate = rate_of_a_round(discovery_rate, parameters.max_length)
    n, m, theta = (
        parameters.population_size,
        parameters.cohort_size,
        parameters.threshold,
    )
    if theta > m:
        return None
    return 1 + last_true(
        lambda holders: hypergeometric.upper_tail(n, holders, m, theta).low < rate,
        0,
        n,
    )


def rate_of_a_round(discovery_rate: float, max_length: int) -> float:
    """Returns the rate of each of L rounds for a discovery rate, rounded upwards."""
    discovery_rate = checks.probability(discovery_rate=discovery_rate)
    return min(1.0, discovery_rate ** (1 / max_length) * _ROUND_UP)
