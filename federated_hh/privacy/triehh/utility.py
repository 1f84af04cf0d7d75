"""The population that TrieHH needs to find a frequency at a given guarantee."""

import math
from fractions import Fraction

from federated_hh.options import checks
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import theorem1 as triehh_theorem1

# Beyond this no population is sought.
LARGEST_POPULATION = 10**11

# Rarer sequences are not searched user by user.
_SMALLEST_EXACT_FREQUENCY = 1e-3


def minimum_population(
    *,
    frequency: float,
    epsilon: float,
    max_length: int = 10,
    discovery_rate: float = 0.9,
) -> int:
    """Finds the smallest population in which a sequence is found (Figure 2).

    Zhu et al. 2020, Figure 2, has delta = 1/n^2, a worst-case discovery rate of 0.9
    and sequences of at most 10 symbols. More users do not always help: the rate falls
    where 1/n^2 needs a larger threshold, and by a little at whole numbers of users.

    Args:
        frequency: Share of the users who hold the sequence, in (0, 1].
        epsilon: Wanted epsilon of the run, above 0.
        max_length: Symbols L of the longest sequence, end symbol included.
        discovery_rate: Wanted worst-case discovery rate, in (0, 1).

    Returns:
        The smallest n for which floor(frequency n) holders among n users are found
        with at least the wanted probability (Proposition 1), at the parameters of
        Corollary 1 for (epsilon, 1/n^2). For frequencies below 0.001 up to about
        2 / frequency users more than the smallest.

    Raises:
        ValueError: An argument is outside its range, or no population up to 1e11 is
            enough.
    """
    frequency = checks.fraction(frequency=frequency)
    epsilon = checks.positive(epsilon=epsilon)
    length = checks.integer(max_length=max_length, least=1)
    checks.probability(discovery_rate=discovery_rate)
    share = -math.expm1(-epsilon / length)

    def enough(n: int) -> bool:
        rate = _rate(n, frequency, epsilon, length)
        return rate >= discovery_rate

    low, theta = 2, 10
    while low <= LARGEST_POPULATION:
        # All n from low to high have the same threshold.
        inverse_delta = Fraction((theta - 3) * math.factorial(theta), theta - 2)
        high = min(math.isqrt(math.floor(inverse_delta)), LARGEST_POPULATION)
        found = _smallest_in(low, high, enough, frequency, theta / share)
        if found is not None:
            return found
        low, theta = high + 1, theta + 1
    raise ValueError(
        f"no population up to {LARGEST_POPULATION:.0e} finds a sequence of frequency = "
        f"{frequency:g} with probability {discovery_rate:g} at epsilon = {epsilon:g}, "
        f"max_length = {length}; use a larger epsilon or frequency"
    )


def _rate(n: int, frequency: float, epsilon: float, length: int) -> float:
    """The worst-case discovery rate; 0 where Corollary 1 has no parameters."""
    try:
        parameters = triehh_theorem1.solve_parameters(
            population_size=n, max_length=length, epsilon=epsilon, delta=1 / n**2
        )
    except ValueError:
        return 0.0
    holders = math.floor(frequency * n * (1 + 1e-12))
    return float(triehh.worst_case_discovery_rate(holders, parameters))


def _smallest_in(
    low: int, high: int, enough, frequency: float, users_per_vote: float
) -> int | None:
    """Finds the smallest n in a range of one threshold.

    The rate grows with n but for what rounding to whole users does, so bisection
    comes close. Between two n at which the cohort or the holders gain a user, the rate
    falls: only those n can be the smallest, and those shortly before are all tried.
    """
    steps = (1 / frequency, users_per_vote)
    window = math.ceil(2 * sum(steps)) + 2

    def candidates(start: int, stop: int) -> list[int]:
        near = {start, stop}
        for step in steps:
            for count in range(math.floor(start / step), math.ceil(stop / step) + 1):
                # The multiples of a float step, and a user more for its rounding.
                at = math.ceil(count * step)
                near.update(n for n in (at - 1, at, at + 1) if start <= n <= stop)
        return sorted(near)

    if not enough(high):
        if frequency < _SMALLEST_EXACT_FREQUENCY:
            return None
        start = max(low, high - window)
        return next((n for n in candidates(start, high) if enough(n)), None)
    below, above = low - 1, high
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if enough(middle) else (middle, above)
    if frequency < _SMALLEST_EXACT_FREQUENCY:
        return above
    start = max(low, above - window)
    return next(n for n in candidates(start, above) if enough(n))
