"""Range checks of arguments, one line each.

    checks.positive(noise_multiplier=z)
    rounds = checks.integer(num_rounds=rounds, least=1)

Each check takes one or more values by their arguments' names and returns the last one
as a plain `int` or `float`. It raises a `ValueError` that names the argument, the value
and the allowed range.

The checks of a dataclass's fields at the end (`number_field` and others) take the
object and the field's name, and write the checked value back.
"""

import math
import numbers
import operator
from collections.abc import Mapping
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
    """Checks that values are among the allowed ones.

    Args:
        allowed: Iterable of the allowed values.
        **values: Values by name.

    Returns:
        The last value.

    Raises:
        ValueError: A value is not among them.
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


def number_field(owner: Any, name: str, minimum: float, maximum: float):
    """Makes a field a float; raises `ValueError` if it is none in the range."""
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} is {value!r}; it has to be a number")
    if not minimum <= value <= maximum:
        raise ValueError(
            f"{name} is {value!r}; it has to be in [{minimum:g}, {maximum:g}]"
        )
    object.__setattr__(owner, name, float(value))


def text_field(owner: Any, name: str, where: str = ""):
    """Raises `ValueError` unless a field is a non-empty string."""
    value = getattr(owner, name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} is {value!r}; it has to be a non-empty string{where}")


def kind_field(owner: Any, name: str, wanted: type):
    """Raises `ValueError` unless a field is of a type."""
    value = getattr(owner, name)
    if not isinstance(value, wanted):
        raise ValueError(f"{name} is {value!r}; it has to be of type {wanted.__name__}")


def texts_field(owner: Any, name: str, may_be_empty: bool = False):
    """Makes a field a tuple of texts that are not empty, or raises `ValueError`."""
    values = getattr(owner, name)
    if isinstance(values, str) or not isinstance(values, list | tuple):
        raise ValueError(f"{name} is {values!r}; it has to be a list of strings")
    if not (values or may_be_empty):
        raise ValueError(f"{name} must not be empty: name at least one")
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{name} has {value!r}; it has to hold non-empty strings")
    object.__setattr__(owner, name, tuple(values))


def mapping_field(owner: Any, name: str, kinds: tuple[type, ...]):
    """Makes a field a dict of names to values of some types, or raises `ValueError`."""
    mapping = getattr(owner, name)
    if not isinstance(mapping, Mapping) or not mapping:
        raise ValueError(f"{name} is {mapping!r}; it has to be a non-empty dict")
    plain = {}
    for key, value in mapping.items():
        if not isinstance(key, str) or not key.strip():
            raise ValueError(f"{name} has the key {key!r}; its keys have to be strings")
        if not isinstance(value, kinds) or value in ("", "inf"):
            raise ValueError(f"{name}[{key!r}] must not be {value!r}")
        # NumPy's numbers are excluded here, so that JSON accepts the values.
        if isinstance(value, numbers.Integral):
            value = bool(value) if isinstance(value, bool) else int(value)
        elif isinstance(value, numbers.Real):
            value = float(value)
            if math.isnan(value) or value == -math.inf:
                raise ValueError(f"{name}[{key!r}] is {value!r}; it has to be a number")
        plain[key] = value
    object.__setattr__(owner, name, plain)
