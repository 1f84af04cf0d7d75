"""Closed forms of amplification by shuffling: quick, loose, and valid in ranges.

Adjacency is replacement of one report's input, as in `clones`.
"""

import math

from federated_hh.options import checks
from federated_hh.privacy.shuffle import clones

# Balle et al. 2019, Theorem 5.3 and the lemmas it rests on: a Chernoff bound of the
# number of blanket reports has this constant.
_CHERNOFF = 1 - math.exp(-2)
# Of a grid of epsilons.
_STEPS = 1000


def largest_valid_local_epsilon(num_reports: int, delta: float) -> float:
    """Computes up to where equation (1) of McMillan et al. 2022 is a statement.

    Args:
        num_reports: Reports n, at least 2.
        delta: In (0, 1).

    Returns:
        ln(n / (8 ln(2 / delta)) - 1); -inf where n is too small for any.

    Raises:
        ValueError: An argument is outside its range.
    """
    n = checks.integer(num_reports=num_reports, least=2)
    delta = checks.probability(delta=delta)
    ratio = n / (8 * (math.log(2) - math.log(delta))) - 1
    return math.log(ratio) if ratio > 0 else -math.inf


def amplified_epsilon(local_epsilon: float, num_reports: int, delta: float) -> float:
    """Computes equation (1) of McMillan et al. 2022 (Theorem 3.1).

    Theorem 2 of Sun et al. 2024 is the same. Both cite Feldman, McMillan, Talwar
    2022 (Theorem 3.2), whose erratum takes it back for some randomizers. As a
    formula it is looser than the numeric 2021 bound (which is proved for every
    randomizer) wherever it is valid and compared in the tests.

    Args:
        local_epsilon: Local epsilon for replacement, above 0.
        num_reports: Reports n, at least 2.
        delta: In (0, 1).

    Returns:
        ln(1 + (e^epsilon_0 - 1) (4 sqrt(2 ln(4/delta)) / sqrt((e^epsilon_0 + 1) n)
        + 4 / n)).

    Raises:
        ValueError: An argument is outside its range, or local_epsilon is above the
            range in which the equation is a statement: what it gives there is not a
            bound.
    """
    local_epsilon = checks.positive(local_epsilon=local_epsilon)
    largest = largest_valid_local_epsilon(num_reports, delta)
    if local_epsilon > largest:
        raise ValueError(
            f"local_epsilon = {local_epsilon:g} is outside the validity range of "
            "equation (1): local_epsilon <= ln(num_reports / (8 ln(2 / delta)) - 1) = "
            f"{largest:.6g} for num_reports = {num_reports}, delta = {delta:g}. Use "
            "the numeric bound (shuffling.amplify), or more reports"
        )
    spread = math.expm1(local_epsilon)
    log_term = math.log(4) - math.log(delta)
    return math.log1p(
        spread
        * (4 * math.sqrt(2 * log_term / ((spread + 2) * num_reports)) + 4 / num_reports)
    )


def hoeffding_blanket_log_delta(
    epsilon: float, local_epsilon: float, num_reports: int
) -> float:
    """Computes ln delta by Balle et al. 2019, Theorem 5.3, for any randomizer.

    Args:
        epsilon: Central epsilon, above 0.
        local_epsilon: Local epsilon for replacement, above 0.
        num_reports: Reports n, at least 2.

    Returns:
        The natural logarithm of the bound, which is with w = e^epsilon_0 -
        e^-epsilon_0 and g = e^epsilon - 1: (g + 2)^2 w^2 / (4 n g) exp(-(1 - e^-2) n
        min(e^-epsilon_0, (g / ((g + 2) w))^2)). May be above 0.

    Raises:
        ValueError: An argument is outside its range.
    """
    epsilon = checks.positive(epsilon=epsilon, most=100.0)
    local_epsilon = checks.positive(
        local_epsilon=local_epsilon, most=clones.LARGEST_LOCAL_EPSILON
    )
    n = checks.integer(num_reports=num_reports, least=2)
    gain = math.expm1(epsilon)
    width = 2 * math.sinh(local_epsilon)
    exponent = min(math.exp(-local_epsilon), (gain / ((gain + 2) * width)) ** 2)
    return (
        2 * math.log((gain + 2) * width)
        - math.log(4 * n * gain)
        - _CHERNOFF * n * exponent
    )


def hoeffding_blanket_local_epsilon(
    epsilon: float, delta: float, num_reports: int
) -> float:
    """Finds the local epsilon that Balle et al. 2019, Theorem 5.3, allows.

    This is how Zhu et al. 2020 give Sequence Fragment Puzzle its local budget from
    TrieHH's central one.

    Args:
        epsilon: Wanted central epsilon, in (0, 100].
        delta: Wanted central delta, in (0, 1).
        num_reports: Reports n, at least 2.

    Returns:
        The largest local epsilon whose bound is at most (epsilon, delta), within
        1e-12 (relative), rounded downwards; at least epsilon itself, as shuffling
        never hurts.

    Raises:
        ValueError: An argument is outside its range.
    """
    from scipy import optimize

    epsilon = checks.positive(epsilon=epsilon, most=100.0)
    delta = checks.probability(delta=delta)

    def excess(local: float) -> float:
        bound = hoeffding_blanket_log_delta(epsilon, local, num_reports)
        return bound - math.log(delta)

    if excess(epsilon) > 0:
        return epsilon
    high = epsilon
    while excess(high) <= 0 and high < clones.LARGEST_LOCAL_EPSILON:
        high = min(2 * high, clones.LARGEST_LOCAL_EPSILON)
    if excess(high) <= 0:
        return high
    local = optimize.brentq(excess, epsilon, high, xtol=1e-14, rtol=1e-14)
    while excess(local) > 0:
        local *= 1 - 1e-13
    return local


def hoeffding_blanket_epsilon(
    local_epsilon: float, delta: float, num_reports: int
) -> float:
    """Finds the central epsilon that Balle et al. 2019, Theorem 5.3, gives.

    The bound falls with epsilon at first, and rises again where its first factor
    does; the first crossing is sought on a grid, and made fine by bisection.

    Args:
        local_epsilon: Local epsilon for replacement, in (0, 100].
        delta: Wanted central delta, in (0, 1).
        num_reports: Reports n, at least 2.

    Returns:
        An epsilon whose bound is at most delta, within 1e-9; the local epsilon itself
        where the theorem gives none below it.

    Raises:
        ValueError: An argument is outside its range.
    """
    delta = checks.probability(delta=delta)

    def enough(epsilon: float) -> bool:
        bound = hoeffding_blanket_log_delta(epsilon, local_epsilon, num_reports)
        return bound <= math.log(delta)

    low = 0.0
    for step in range(1, _STEPS + 1):
        high = local_epsilon * step / _STEPS
        if enough(high):
            break
        low = high
    else:
        return local_epsilon
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
