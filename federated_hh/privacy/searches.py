"""Search for the first integer at which a condition holds."""

from collections.abc import Callable


def first_true(holds: Callable[[int], bool], least: int, most: int) -> int | None:
    """Returns the first integer of [least, most] for which a condition holds.

    Tries `least` and its doubles before it bisects: a condition may take long to
    compute for large integers.

    Args:
        holds: The condition; true for all integers above one for which it is true.
        least: Smallest integer to try, at least 1.
        most: Largest integer to try.

    Returns:
        The integer; None if the condition fails at `most`.
    """
    low, high = least - 1, least
    while not holds(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
