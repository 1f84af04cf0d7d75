"""Rounding to the safe side: a bound in float64 is never below the exact one."""

import fractions
import math

# Half the distance of 1 from the next float64: what an operation may be off by.
UNIT = 2.0**-53


def upwards(exact: fractions.Fraction) -> float:
    """Rounds an exact number upwards.

    Args:
        exact: Any rational number.

    Returns:
        The smallest float64 that is not below it; infinite above 1.8e308.
    """
    try:
        nearest = exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.nextafter(math.inf, 0)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def sum_upwards(total: float, terms: int) -> float:
    """Returns a bound on an exact sum of numbers of which no one is negative.

    Args:
        total: The sum in float64, in any order, of the numbers rounded to nearest.
        terms: Number of terms, below 2^40.

    Returns:
        No less than the sum of the numbers as they were before they were rounded.
    """
    # Each rounding is off by 2^-53 of a partial sum at most.
    return upwards(fractions.Fraction(total) * (1 + fractions.Fraction(terms, 2**52)))
