"""What TrieHH guarantees, and what it finds in the worst case.

TrieHH (Zhu, Kairouz, McMahan, Sun, Li, "Federated Heavy Hitters Discovery with
Differential Privacy", AISTATS 2020) adds no noise: the sampling of a cohort and the
vote threshold are the mechanism.

The guarantee is `P(M(D) in S) <= e^epsilon P(M(D') in S) + delta`, for all S, where D'
is D with one user's data emptied (the user stays in the population, and votes for
nothing), and M(D) is the trie after every round. Proved in docs/triehh_privacy.md: for
n users, cohorts of m, a threshold theta, L rounds and any integer K > theta,

    epsilon = L ln(K / (K - theta)),    delta = P(Hypergeometric(n, K - 1, m) >= theta)

where a user holds one word, or draws one once; for users who draw a word anew in every
round, it is delta / (1 - delta); where a vote need not extend what the last round kept,
L delta. Theorem 1 of Zhu et al. (`privacy.triehh_theorem1`) is
the case K = n / m with a larger delta.

One-sided: the opposite inequality is not claimed, and does not hold for all
populations. 54 users of whom all but one hold one of two first symbols, 27 and 26 of
them, a cohort of 9 and a threshold of 5. When the last user also holds one of the two,
some symbol always gets 5 of 9 votes; when that user is emptied, nothing is found with
probability above 0.04, whereas K = 6 has delta 3.98e-5.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from privacy import argument_checks, hypergeometric

# Relative slack that covers the few roundings of an epsilon or a delta, upwards.
_ROUND_UP = 1 + 2**-50


class TrieHHGuarantee(NamedTuple):
    """The guarantee of a run, one-sided; see this module's docstring.

    Attributes:
        epsilon: The epsilon of the run, at least 0, rounded upwards.
        delta: The delta of the run, in [0, 1], rounded upwards.
        holders: K: prefixes with at least K holders cost epsilon, those with fewer are
            kept with probability delta at most. None where the guarantee is trivial:
            nothing can be kept, or delta is 1.
    """

    epsilon: float
    delta: float
    holders: int | None


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
            value = argument_checks.integer(
                name, getattr(self, name), minimum, maximum, why
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

    def guarantee(
        self,
        *,
        delta: float | None = None,
        epsilon: float | None = None,
        redraws_each_round: bool = False,
        extends_prefixes: bool = True,
    ) -> TrieHHGuarantee:
        """Computes the best epsilon at a delta, or the best delta at an epsilon.

        Args:
            delta: Wanted delta of the run, in (0, 1); or
            epsilon: wanted epsilon of the run, above 0; one of the two.
            redraws_each_round: Whether users who hold several words draw anew in
                every round.
            extends_prefixes: Whether users vote for prefixes of their words that are
                longer by a symbol than those that the last round kept, as TrieHH has
                it; else for anything, in every round.

        Returns:
            The guarantee of the best K: epsilon and delta are at most what was asked
            for; at a given epsilon, delta may be as large as 1.

        Raises:
            ValueError: Not one of the two is given, it is outside its range, or no K
                has so small a delta; the message says which is the smallest.
        """
        if (delta is None) == (epsilon is None):
            raise ValueError("guarantee needs either delta or epsilon")
        if epsilon is None:
            wanted = argument_checks.probability("delta", delta)
        else:
            epsilon = argument_checks.positive("epsilon", epsilon)
        if self.threshold > self.cohort_size:
            return TrieHHGuarantee(0.0, 0.0, None)
        # A prefix that all users hold is kept: K = n + 1 has a delta of 1.
        most = self.population_size

        def delta_of(holders: int) -> float:
            return self.delta_of(holders, redraws_each_round, extends_prefixes)

        if epsilon is not None:
            holders = holders_for_epsilon(
                epsilon, self.threshold, self.max_length, most
            )
            if holders is None:
                return TrieHHGuarantee(epsilon, 1.0, None)
        elif delta_of(self.threshold + 1) > wanted:
            smallest = delta_of(self.threshold + 1)
            raise ValueError(
                f"no guarantee at delta = {wanted:g} for threshold = {self.threshold} "
                f"and cohort_size = {self.cohort_size} in a population_size of "
                f"{self.population_size}: the smallest delta is {smallest:.4g}, from "
                f"prefixes that {self.threshold} users hold. Use a larger threshold, a "
                "smaller cohort or a larger delta"
            )
        else:
            holders = last_true(
                lambda k: delta_of(k) <= wanted, self.threshold + 1, most
            )
        return TrieHHGuarantee(
            epsilon_of(holders, self.threshold, self.max_length),
            delta_of(holders),
            holders,
        )

    def delta_of(
        self, holders: int, redraws_each_round: bool, extends_prefixes: bool = True
    ) -> float:
        """Computes the delta of one K.

        Args:
            holders: K, in (threshold, population_size + 1].
            redraws_each_round: As in `guarantee`.
            extends_prefixes: As in `guarantee`.

        Returns:
            P(Hypergeometric(n, K - 1, m) >= theta) = delta_K; where users redraw,
            min(L delta_K, delta_K / (1 - delta_K)); where votes extend nothing, L
            delta_K. Rounded upwards, at most 1.
        """
        tail = hypergeometric.upper_tail(
            self.population_size, holders - 1, self.cohort_size, self.threshold
        ).high
        if not extends_prefixes:
            tail *= self.max_length * _ROUND_UP
        elif redraws_each_round and tail < 1:
            tail *= min(self.max_length, 1 / (1 - tail)) * _ROUND_UP
        return min(1.0, tail)


def epsilon_of(holders: int, threshold: int, max_length: int) -> float:
    """Computes the epsilon of one K: L ln(K / (K - theta)), rounded upwards."""
    return max_length * math.log1p(threshold / (holders - threshold)) * _ROUND_UP


def holders_for_epsilon(
    epsilon: float, threshold: int, max_length: int, most: int
) -> int | None:
    """Finds the smallest K that a wanted epsilon allows.

    Args:
        epsilon: The epsilon of the run, above 0.
        threshold: theta.
        max_length: L.
        most: The largest K of interest.

    Returns:
        The smallest K, above the threshold and at most `most`, whose `epsilon_of` is
        at most `epsilon`; None if there is none.
    """
    if most <= threshold or epsilon_of(most, threshold, max_length) > epsilon:
        return None
    too_small = last_true(
        lambda k: k == threshold or epsilon_of(k, threshold, max_length) > epsilon,
        threshold,
        most,
    )
    return too_small + 1


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
    """Computes how likely a sequence is found that shares no prefix with another.

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
    """Returns what each of L rounds needs for a discovery rate, rounded upwards."""
    discovery_rate = argument_checks.probability("discovery_rate", discovery_rate)
    return min(1.0, discovery_rate ** (1 / max_length) * _ROUND_UP)
