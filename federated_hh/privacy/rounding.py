"""Rounding to the safe side: bounds in float64, and bounds as people read them.

A bound in float64 is never below the exact one. Printed numbers have four digits;
bounds are rounded upwards.
"""

import decimal
import fractions
import math
import numbers
from typing import Any

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
    """Returns a bound on an exact sum of non-negative numbers.

    Args:
        total: The sum in float64, in any order, of the numbers rounded to nearest.
        terms: Number of terms, below 2^40.

    Returns:
        No less than the sum of the numbers as they were before they were rounded.
    """
    # Each rounding is off by 2^-53 of a partial sum at most.
    return upwards(fractions.Fraction(total) * (1 + fractions.Fraction(terms, 2**52)))


# A few roundings miss a round number by less than this.
_FLOAT_ACCURACY = decimal.Decimal("1e-12")


def rounded_up(value: float) -> str:
    """Formats an upper bound, with 4 significant digits.

    Args:
        value: Nonnegative, or infinity.

    Returns:
        The digits, not below the value by more than a relative 1e-12.
    """
    return readable(value, decimal.ROUND_CEILING)


def rounded_up_to(value: float, places: int) -> str:
    """Formats an upper bound, with at most so many digits after the point.

    Args:
        value: Nonnegative, or infinity.
        places: Nonnegative.

    Returns:
        All digits before the point, in groups of three; not below the value by more
        than a relative 1e-12.
    """
    if not math.isfinite(value):
        return "inf"
    digits = decimal.Decimal(repr(float(value)))
    step = decimal.Decimal(1).scaleb(-places)
    # A float has at most 309 digits before the point.
    context = decimal.Context(prec=400)
    shown = digits.quantize(step, context=context)
    if shown < digits * (1 - _FLOAT_ACCURACY):
        shown = digits.quantize(step, decimal.ROUND_CEILING, context)
    whole, _, rest = f"{shown:,f}".partition(".")
    return ".".join(part for part in (whole, rest.rstrip("0")) if part)


def readable(value: Any, rounding: str = decimal.ROUND_HALF_EVEN) -> str:
    """Formats a number with 4 significant digits; integers and texts in full."""
    if isinstance(value, str | numbers.Integral):
        return str(value)
    if not math.isfinite(value):
        return "inf"
    # From the digits that Python prints, so that 1e-10 does not become 1.001e-10.
    digits = decimal.Decimal(repr(float(value)))
    if rounding == decimal.ROUND_CEILING:
        # Nor does a bound of 2 become 2.001 for the last digits of its computation.
        digits -= abs(digits) * _FLOAT_ACCURACY
    context = decimal.Context(prec=4, rounding=rounding)
    return f"{float(context.create_decimal(digits)):.4g}"


def delta_of(text: str, num_clients: int) -> float | None:
    """Returns the delta of a text, which may depend on the number of clients.

    Args:
        text: A number, or Zhu et al.'s (2020) `1/n^2` or `1/(300n)`.
        num_clients: n, at least 1.

    Returns:
        The delta in (0, 1), or None if the text is not one.
    """
    compact = text.replace(" ", "").lower()
    if compact == "1/n^2":
        return 1.0 / num_clients**2
    if compact == "1/(300n)":
        return 1.0 / (300 * num_clients)
    try:
        delta = float(compact)
    except ValueError:
        return None
    return delta if 0 < delta < 1 else None
