"""Range checks of arguments, one line each.

    checks.positive(noise_multiplier=z)
    rounds = checks.integer(num_rounds=rounds, least=1)

Each check takes one or more values by their arguments' names and returns the last one
as a plain `int` or `float`. It raises a `ValueError` that names the argument, the value
and the allowed range.
"""

import math
import operator
from typing import Any


def integer(least: int, most: int | None = None, why: str = "", **values: Any) -> int:
    """Checks a count.

    Args:
        least: Smallest allowed value.
        most: Largest allowed value; None for no limit.
        why: Reason for the limits, added to the message.
        **values: Integers by name (NumPy's too); booleans and floats are refused.

    Returns:
        The last value as an `int`.

    Raises:
        ValueError: A value is not an integer or outside the range.
    """
    limits = f"an integer of at least {least}"
    if most is not None:
        limits += f" and at most {most}"
    if why:
        limits += f" ({why})"
    number = least
    for name, value in values.items():
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            raise ValueError(f"{name} is {value!r}; it has to be {limits}") from None
        _check(
            least <= number and (most is None or number <= most), limits, name, number
        )
    return number


def positive(most: float = math.inf, why: str = "", **values: Any) -> float:
    """Checks a finite number above 0, such as an epsilon or a noise multiplier.

    Args:
        most: Largest allowed value.
        why: Reason for the limits, added to the message.
        **values: Real numbers by name.

    Returns:
        The last value as a `float`.

    Raises:
        ValueError: A value is not a number, nan, infinite, or outside (0, most].
    """
    limits = "a finite number above 0"
    if most < math.inf:
        limits += f" and at most {most:g}"
    if why:
        limits += f" ({why})"
    for name, value in values.items():
        number = _real(name, value)
        _check(0 < number <= most and math.isfinite(number), limits, name, number)
    return number


def not_negative(**values: Any) -> float:
    """Checks a finite number of at least 0.

    Args:
        **values: Real numbers by name.

    Returns:
        The last value as a `float`.

    Raises:
        ValueError: A value is not a number, nan, infinite or negative.
    """
    for name, value in values.items():
        number = _real(name, value)
        limits = "a finite number of at least 0"
        _check(0 <= number < math.inf, limits, name, number)
    return number


def probability(**values: Any) -> float:
    """Checks a number strictly between 0 and 1, such as a delta.

    Args:
        **values: Real numbers by name.

    Returns:
        The last value as a `float`.

    Raises:
        ValueError: A value is not a number, nan, or outside (0, 1).
    """
    limits = (
        "strictly between 0 and 1 (a value at either end gives no guarantee or needs "
        "no mechanism)"
    )
    for name, value in values.items():
        number = _real(name, value)
        _check(0 < number < 1, limits, name, number)
    return number


def fraction(**values: Any) -> float:
    """Checks a share above 0 and at most 1, as `positive` does."""
    return positive(most=1.0, **values)


def one_of(allowed: Any, **values: Any) -> Any:
    """Checks a value that is one of a few.

    Args:
        allowed: Iterable of the allowed values.
        **values: Values by name.

    Returns:
        The last value.

    Raises:
        ValueError: A value is none of them.
    """
    allowed = tuple(allowed)
    for name, value in values.items():
        limits = f"one of {', '.join(map(str, allowed))}"
        _check(value in allowed, limits, name, value)
    return value


def holds(condition: Any, limits: str, **values: Any) -> None:
    """Checks a condition that has no function here.

    Args:
        condition: Whether the values are allowed.
        limits: The allowed values, completing "it has to be".
        **values: Values by name.

    Raises:
        ValueError: The condition is false.
    """
    for name, value in values.items():
        _check(condition, limits, name, value)


def _check(condition: Any, limits: str, name: str, value: Any) -> None:
    if not condition:
        raise ValueError(f"{name} is {value!r}; it has to be {limits}")


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool | str | bytes):
        raise ValueError(f"{name} is {value!r}; it has to be a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; it has to be a number") from None
    except OverflowError:
        raise ValueError(f"{name} is {value!r}; it has to be at most 1.8e308") from None
