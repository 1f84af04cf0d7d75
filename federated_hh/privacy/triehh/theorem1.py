"""TrieHH by the paper: Corollary 1's parameters.

Source: Zhu, Kairouz, McMahan, Sun, Li, "Federated Heavy Hitters Discovery with
Differential Privacy" (AISTATS 2020), "Zhu et al." below. The exact curve of the rounds
(`federated_hh.privacy.voting_rounds`) is several times smaller where Theorem 1 applies;
this module is for the paper's numbers.

Adjacency and direction are those of `federated_hh.privacy.triehh.guarantees`.

All conditions are checked in integers: with n users, a cohort of m and a threshold
theta, gamma = m / sqrt(n), so that `theta <= sqrt(n)`, `gamma >= 1` and
`gamma <= sqrt(n) / (theta + 1)` are `theta^2 <= n`, `m^2 >= n`, `m (theta + 1) <= n`.
"""

import math
from fractions import Fraction

from federated_hh.options import checks
from federated_hh.privacy.triehh import guarantees
from federated_hh.privacy.triehh.guarantees import TrieHHParameters


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
    delta = checks.probability(delta=delta)
    checks.integer(
        minimum=minimum, least=guarantees.SMALLEST_PROVED_THRESHOLD, why="Theorem 1"
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
    n = checks.integer(population_size=population_size, least=2)
    theta = checks.integer(
        threshold=threshold, least=guarantees.SMALLEST_PROVED_THRESHOLD
    )
    length = checks.integer(max_length=max_length, least=1)
    epsilon = checks.positive(epsilon=epsilon)
    return -math.expm1(-epsilon / length) * math.sqrt(n) / theta


def solve_parameters(
    *,
    population_size: int,
    max_length: int,
    epsilon: float,
    delta: float,
) -> TrieHHParameters:
    """Chooses threshold and cohort size for a wanted guarantee (Corollary 1).

    Args:
        population_size: Users n, at least 2.
        max_length: Symbols L of the longest sequence, end symbol included.
        epsilon: Wanted epsilon of the run, above 0.
        delta: Wanted delta of the run, in (0, 1).

    Returns:
        The parameters with the smallest threshold and then the largest cohort whose
        `guarantees.theorem1` is at most (epsilon, delta).

    Raises:
        ValueError: An argument is outside its range, or Theorem 1 allows no such
            parameters; the message says what could be changed.
    """
    n = checks.integer(population_size=population_size, least=2)
    length = checks.integer(max_length=max_length, least=1)
    epsilon = checks.positive(epsilon=epsilon)
    delta = checks.probability(delta=delta)
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
        _smallest_threshold(Fraction(delta), minimum=10),
        math.ceil(math.expm1(epsilon / length)),
    )
    if theta * theta > n:
        raise ValueError(
            f"no parameters by Corollary 1 for {request} in a population_size of "
            f"{n}: the threshold {theta} has to be at most sqrt(population_size) = "
            f"{math.sqrt(n):.6g}. "
            f"Use a population of at least {theta * theta}, or a larger delta"
        )
    cohort = min(
        math.floor(-math.expm1(-epsilon / length) * n / theta), n // (theta + 1)
    )
    # The formula's rounding is settled by the very function that the caller will
    # read the guarantee from.
    while (
        cohort > 0 and guarantees.theorem1_epsilon(n, cohort, theta, length) > epsilon
    ):
        cohort -= 1
    while (cohort + 1) * (theta + 1) <= n and (
        guarantees.theorem1_epsilon(n, cohort + 1, theta, length) <= epsilon
    ):
        cohort += 1
    if cohort * cohort < n:
        share = -math.expm1(-epsilon / length)
        raise ValueError(
            f"no parameters by Corollary 1 for {request} in a population_size of "
            f"{n}: the largest cohort is {cohort}, and gamma = cohort_size / "
            f"sqrt(population_size) >= 1 needs {math.isqrt(n - 1) + 1}. Use a larger "
            f"population (about {math.ceil((theta / share) ** 2)} at this "
            "delta), a larger epsilon, a smaller max_length or a larger delta"
        )
    return TrieHHParameters(n, cohort, theta, length)


def _smallest_threshold(delta: Fraction, minimum: int) -> int:
    theta = minimum
    while guarantees.theorem1_delta(theta) > delta:
        theta += 1
    return theta
