"""What TrieHH guarantees, and which parameters give a wanted guarantee.

Source: Zhu, Kairouz, McMahan, Sun, Li, "Federated Heavy Hitters Discovery with
Differential Privacy" (AISTATS 2020), "Zhu et al." below. TrieHH adds no noise: the
sampling of a cohort and the vote threshold are the mechanism.

Adjacency. Zhu et al. prove `P(M(D) in S) <= e^epsilon P(M(D') in S) + delta` where D'
is D with one user's data emptied (the user stays in the population, and votes for
nothing). The opposite inequality is not proved, and does not hold for all parameters
that Theorem 1 allows: 54 users of whom all but one hold one of two first symbols, 27
and 26 of them, a cohort of 9 and a threshold of 5. When the last user also holds
one of the two, some symbol always gets 5 of 9 votes; when that user is emptied,
nothing is found with probability above 0.04, whereas delta is 0.0125.

All conditions are checked in integers: with n users, a cohort of m and a threshold
theta, gamma = m / sqrt(n), so that `theta <= sqrt(n)`, `gamma >= 1` and
`gamma <= sqrt(n) / (theta + 1)` are `theta^2 <= n`, `m^2 >= n`, `m (theta + 1) <= n`.
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np

from privacy import argument_checks

# Theorem 1 of Zhu et al. holds from here on.
_SMALLEST_PROVED_THRESHOLD = 4

# Relative slack that covers the few roundings of an epsilon, upwards.
_ROUND_UP = 1 + 2**-50


@dataclasses.dataclass(frozen=True)
class TrieHHParameters:
    """The parameters of a TrieHH run that its guarantee depends on.

    Making one checks types and ranges only: a run without a guarantee is allowed,
    and `guarantee` then says which condition is not met.

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

    def violated_condition(self) -> str | None:
        """Says why Theorem 1 does not apply.

        Returns:
            The first condition of Theorem 1 that is not met, in words with its
            numbers; None where the theorem applies.
        """
        n, m, theta = self.population_size, self.cohort_size, self.threshold
        root = math.sqrt(n)
        if theta < _SMALLEST_PROVED_THRESHOLD or theta * theta > n:
            return (
                "4 <= threshold <= sqrt(population_size) is needed, got threshold = "
                f"{theta} with sqrt(population_size) = {root:.6g}"
            )
        if m * m < n:
            return (
                "gamma = cohort_size / sqrt(population_size) >= 1 is needed, got "
                f"gamma = {self.gamma:.6g} (cohort_size = {m}; at least "
                f"{math.isqrt(n - 1) + 1} is needed)"
            )
        if m * (theta + 1) > n:
            return (
                "gamma <= sqrt(population_size) / (threshold + 1) is needed, got "
                f"gamma = {self.gamma:.6g} above {root / (theta + 1):.6g} "
                f"(cohort_size = {m}; at most {n // (theta + 1)} is allowed)"
            )
        return None

    def guarantee(self, *, redraws_each_round: bool = False) -> tuple[float, float]:
        """Computes the (epsilon, delta) of one run.

        Where every user holds one sequence, or draws one once and keeps it for the
        run, this is Theorem 1 (and Theorem 2) of Zhu et al.

        Algorithm 3 of Zhu et al. draws a new word per user in every round, and the
        paper states the same delta for it (Corollary 2). Its proof, Theorem 2, is of
        users who draw once: the single delta comes from following the prefixes of
        one sequence, of which the first rare one stops all later ones. With a new
        draw each round, another rare prefix can slip through in each. What is proved
        is that each round is (epsilon / L, delta)-DP whatever word the user draws,
        so that the L rounds are (epsilon, L delta)-DP by basic composition, which is
        returned for `redraws_each_round=True`.

        Args:
            redraws_each_round: Whether users who hold several words draw anew in
                every round.

        Returns:
            (epsilon, delta), both rounded upwards; for the adjacency and the
            direction that this module's docstring names.

        Raises:
            ValueError: Theorem 1 does not apply; the message names the condition.
        """
        violated = self.violated_condition()
        if violated is not None:
            raise ValueError(f"Theorem 1 of Zhu et al. 2020 does not apply: {violated}")
        return (
            _epsilon(
                self.population_size, self.cohort_size, self.threshold, self.max_length
            ),
            _round_up(
                _delta(self.threshold) * (self.max_length if redraws_each_round else 1)
            ),
        )


def smallest_threshold(delta: float, minimum: int = 10) -> int:
    """Finds the smallest vote threshold with Theorem 1's delta at most a given one.

    Args:
        delta: Wanted delta, in (0, 1).
        minimum: Smallest threshold to return, at least 4; Corollary 1 has 10.

    Returns:
        The threshold theta, by exact search: (theta - 2) / ((theta - 3) theta!) is
        compared with delta in exact arithmetic. Corollary 1's formula with Lambert's
        W is a bound that is one too large for some deltas.

    Raises:
        ValueError: An argument is outside its range.
    """
    delta = argument_checks.probability("delta", delta)
    argument_checks.integer(
        "minimum", minimum, _SMALLEST_PROVED_THRESHOLD, why="Theorem 1"
    )
    return _smallest_threshold(Fraction(delta), minimum)


def largest_gamma(
    *, population_size: int, threshold: int, max_length: int, epsilon: float
) -> float:
    """Computes Corollary 1's gamma, before the cohort is rounded to whole users.

    Args:
        population_size: Users n, at least 2.
        threshold: Vote threshold theta, at least 4.
        max_length: Symbols L of the longest sequence, end symbol included.
        epsilon: Wanted epsilon of the run, above 0.

    Returns:
        (e^(epsilon/L) - 1) sqrt(n) / (theta e^(epsilon/L)), dimensionless.

    Raises:
        ValueError: An argument is outside its range.
    """
    n = argument_checks.integer("population_size", population_size, 2)
    theta = argument_checks.integer("threshold", threshold, _SMALLEST_PROVED_THRESHOLD)
    length = argument_checks.integer("max_length", max_length, 1)
    epsilon = argument_checks.positive("epsilon", epsilon)
    return -math.expm1(-epsilon / length) * math.sqrt(n) / theta


def solve_parameters(
    *,
    population_size: int,
    max_length: int,
    epsilon: float,
    delta: float,
    redraws_each_round: bool = False,
) -> TrieHHParameters:
    """Chooses threshold and cohort size for a wanted guarantee (Corollary 1).

    Args:
        population_size: Users n, at least 2.
        max_length: Symbols L of the longest sequence, end symbol included.
        epsilon: Wanted epsilon of the run, above 0.
        delta: Wanted delta of the run, in (0, 1).
        redraws_each_round: Whether users draw a new word each round, so that the
            run's delta is L times Theorem 1's (see `TrieHHParameters.guarantee`).

    Returns:
        The parameters with the smallest threshold and then the largest cohort whose
        `guarantee` is at most (epsilon, delta).

    Raises:
        ValueError: An argument is outside its range, or Theorem 1 allows no such
            parameters; the message says what could be changed.
    """
    n = argument_checks.integer("population_size", population_size, 2)
    length = argument_checks.integer("max_length", max_length, 1)
    epsilon = argument_checks.positive("epsilon", epsilon)
    delta = argument_checks.probability("delta", delta)
    request = f"epsilon = {epsilon:g}, delta = {delta:g}, max_length = {length}"

    # Corollary 1's last term, theta >= e^(epsilon/L) - 1, is what keeps gamma below
    # sqrt(n) / (theta + 1); beyond theta = sqrt(n) Theorem 1 has nothing to give.
    largest_useful = length * math.log(math.isqrt(n) + 1)
    if epsilon > largest_useful:
        raise ValueError(
            f"epsilon = {epsilon:g} is more than Theorem 1 of Zhu et al. 2020 can "
            f"use for population_size = {n} and max_length = {length}: ask for at "
            f"most {largest_useful:.6g}"
        )
    theta = max(
        _smallest_threshold(
            Fraction(delta) / (length if redraws_each_round else 1), minimum=10
        ),
        math.ceil(math.expm1(epsilon / length)),
    )
    if theta * theta > n:
        raise ValueError(
            f"no parameters for {request} in a population_size of {n}: the threshold "
            f"{theta} has to be at most sqrt(population_size) = {math.sqrt(n):.6g}. "
            f"Use a population of at least {theta * theta}, or a larger delta"
        )
    cohort = min(
        math.floor(-math.expm1(-epsilon / length) * n / theta), n // (theta + 1)
    )
    # The formula's rounding is settled by the very function that the caller will
    # read the guarantee from.
    while cohort > 0 and _epsilon(n, cohort, theta, length) > epsilon:
        cohort -= 1
    while (cohort + 1) * (theta + 1) <= n and (
        _epsilon(n, cohort + 1, theta, length) <= epsilon
    ):
        cohort += 1
    if cohort * cohort < n:
        share = -math.expm1(-epsilon / length)
        raise ValueError(
            f"no parameters for {request} in a population_size of {n}: the largest "
            f"cohort is {cohort}, and gamma = cohort_size / sqrt(population_size) >= 1 "
            f"needs {math.isqrt(n - 1) + 1}. Use a larger population (about "
            f"{math.ceil((theta / share) ** 2)} at this delta), a larger epsilon, a "
            "smaller max_length or a larger delta"
        )
    return TrieHHParameters(n, cohort, theta, length)


def worst_case_discovery_rate(
    occurrences: int | np.ndarray, parameters: TrieHHParameters
) -> float | np.ndarray:
    """Computes how likely a sequence is found that shares no prefix with another.

    Args:
        occurrences: int or integer array of any shape: users W who hold the
            sequence, 0 to population_size.
        parameters: The run's parameters; Theorem 1 need not apply.

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
        raise ValueError(
            f"occurrences must be integers, got {occurrences!r} of {holders.dtype}"
        )
    n = parameters.population_size
    if holders.size and not (holders.min() >= 0 and holders.max() <= n):
        raise ValueError(
            f"occurrences must be between 0 and population_size = {n}, got values "
            f"from {holders.min()} to {holders.max()}"
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


def _epsilon(n: int, cohort: int, theta: int, length: int) -> float:
    """Theorem 1's epsilon, rounded upwards; infinite where m theta >= n.

    `1 + 1 / (sqrt(n) / (gamma theta) - 1)` is `1 + m theta / (n - m theta)`, whose
    terms are exact integers: nothing cancels.
    """
    if cohort * theta >= n:
        return math.inf
    return length * math.log1p(cohort * theta / (n - cohort * theta)) * _ROUND_UP


def _delta(theta: int) -> Fraction:
    """Theorem 1's delta, exactly."""
    return Fraction(theta - 2, (theta - 3) * math.factorial(theta))


def _smallest_threshold(delta: Fraction, minimum: int) -> int:
    theta = minimum
    while _delta(theta) > delta:
        theta += 1
    return theta


def _round_up(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
