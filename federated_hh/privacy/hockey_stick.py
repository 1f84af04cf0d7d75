"""From delta as a function of epsilon to epsilon as a function of delta."""

import math
from collections.abc import Callable

# The result is at most this much (relative) above the smallest epsilon.
_TOLERANCE = 1e-8

# Stands for the logarithm of a delta of 0.
_LOG_ZERO = -1e4


def smallest_epsilon(
    delta_at: Callable[[float], float],
    delta: float,
    largest: float,
    guess: float | None = None,
) -> float:
    """Finds the smallest epsilon whose delta is small enough.

    Args:
        delta_at: Non-increasing function of epsilon in [0, largest]; an upper bound
            of the hockey-stick divergence.
        delta: Wanted delta, in (0, 1).
        largest: An epsilon that is known to be enough (with delta 0), such as the
            local one.
        guess: Guess of the epsilon; only the running time depends on it.

    Returns:
        An epsilon with `delta_at(epsilon) <= delta`, at most 1e-8 (relative) above
        the smallest one; `largest` where `delta_at` needs more than that.
    """
    from scipy import optimize

    # Logarithms guide the search; they are rounded, and so decide nothing.
    def excess(epsilon: float) -> float:
        value = delta_at(epsilon)
        return (math.log(value) if value > 0 else _LOG_ZERO) - math.log(delta)

    if delta_at(0.0) <= delta:
        return 0.0
    # A bracket of one factor 2 first: log delta is smooth there, and Brent's method
    # then needs few evaluations of what may be a long sum.
    high = largest if guess is None else min(max(guess, 1e-9 * largest), largest)
    while delta_at(high) > delta:
        if high == largest:
            return largest
        high = min(2 * high, largest)
    low = high / 2
    while delta_at(low) <= delta:
        low, high = low / 2, low
        if low < 1e-9 * largest:
            return high
    epsilon = optimize.brentq(excess, low, high, rtol=_TOLERANCE / 4, xtol=1e-300)
    # Brent's root may lie on either side.
    step = _TOLERANCE / 4
    while delta_at(epsilon) > delta and epsilon < high:
        epsilon = min(epsilon * (1 + step), high)
        step *= 2
    return epsilon
