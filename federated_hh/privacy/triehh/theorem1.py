"""TrieHH by the paper: Theorem 1's guarantee and Corollary 1's parameters.

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
from federated_hh.privacy.triehh.guarantees import TrieHHParameters

# Theorem 1 of Zhu et al. holds from here on.
_SMALLEST_PROVED_THRESHOLD = 4

# Relative slack that covers the few roundings of an epsilon, upwards.
_ROUND_UP = 1 + 2**-50


def violated_condition(parameters: TrieHHParameters) -> str | None:
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
    if theta < _SMALLEST_PROVED_THRESHOLD or theta * theta > n:
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


def guarantee(parameters: TrieHHParameters) -> tuple[float, float]:
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
    violated = violated_condition(parameters)
    if violated is not None:
        raise ValueError(f"Theorem 1 of Zhu et al. 2020 does not apply: {violated}")
    epsilon = _epsilon(
        parameters.population_size,
        parameters.cohort_size,
        parameters.threshold,
        parameters.max_length,
    )
    return epsilon, _round_up(_delta(parameters.threshold))


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
    checks.integer(minimum=minimum, least=_SMALLEST_PROVED_THRESHOLD, why="Theorem 1")
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
    theta = checks.integer(threshold=threshold, least=_SMALLEST_PROVED_THRESHOLD)
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
        `guarantee` is at most (epsilon, delta).

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
    while cohort > 0 and _epsilon(n, cohort, theta, length) > epsilon:
        cohort -= 1
    while (cohort + 1) * (theta + 1) <= n and (
        _epsilon(n, cohort + 1, theta, length) <= epsilon
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
