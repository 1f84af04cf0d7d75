"""Checks of the arguments that all privacy accounting takes.

Every function returns the checked value as a plain `int` or `float`, or raises a
`ValueError` that names the argument, the value and the allowed range.
"""

import math
import operator
from typing import Any


def integer(
    name: str, value: Any, minimum: int, maximum: int | None = None, why: str = ""
) -> int:
    """Checks a count.

    Args:
        name: The argument's name, for the message.
        value: Any integer (NumPy's too); booleans and floats are refused.
        minimum: Smallest allowed value.
        maximum: Largest allowed value; None for no limit.
        why: What the limits come from, added to the message.

    Returns:
        The value as an `int`.

    Raises:
        ValueError: The value is no integer or outside its range.
    """
    limits = f"an integer of at least {minimum}"
    if maximum is not None:
        limits += f" and at most {maximum}"
    if why:
        limits += f" ({why})"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}; it has to be {limits}") from None
    if number < minimum or (maximum is not None and number > maximum):
        raise ValueError(f"{name} is {number}; it has to be {limits}")
    return number


def positive(name: str, value: Any, maximum: float = math.inf, why: str = "") -> float:
    """Checks a finite number above 0, such as an epsilon or a noise multiplier.

    Args:
        name: The argument's name, for the message.
        value: Any real number.
        maximum: Largest allowed value.
        why: What the limits come from, added to the message.

    Returns:
        The value as a `float`.

    Raises:
        ValueError: The value is no number, nan, infinite, or outside (0, maximum].
    """
    number = _real(name, value)
    if not (0 < number <= maximum and math.isfinite(number)):
        limits = "a finite number above 0"
        if maximum < math.inf:
            limits += f" and at most {maximum:g}"
        if why:
            limits += f" ({why})"
        raise ValueError(f"{name} is {number!r}; it has to be {limits}")
    return number


def not_negative(name: str, value: Any) -> float:
    """Checks a finite number of at least 0.

    Args:
        name: The argument's name, for the message.
        value: Any real number.

    Returns:
        The value as a `float`.

    Raises:
        ValueError: The value is no number, nan, infinite or negative.
    """
    number = _real(name, value)
    if not (0 <= number < math.inf):
        raise ValueError(
            f"{name} is {number!r}; it has to be a finite number of at least 0"
        )
    return number


def probability(name: str, value: Any) -> float:
    """Checks a number strictly between 0 and 1, such as a delta.

    Args:
        name: The argument's name, for the message.
        value: Any real number.

    Returns:
        The value as a `float`.

    Raises:
        ValueError: The value is no number, nan, or outside (0, 1).
    """
    number = _real(name, value)
    if not 0 < number < 1:
        raise ValueError(
            f"{name} is {number!r}; it has to be strictly between 0 and 1 "
            "(a value at either end gives no guarantee or needs no mechanism)"
        )
    return number


def fraction(name: str, value: Any) -> float:
    """Checks a share: a number above 0 and at most 1.

    Args:
        name: The argument's name, for the message.
        value: Any real number.

    Returns:
        The value as a `float`.

    Raises:
        ValueError: The value is no number, nan, or outside (0, 1].
    """
    return positive(name, value, maximum=1.0)


def participations(clients: Any, rounds: Any, num_rounds: int) -> None:
    """Checks columns that say who took part when.

    Args:
        clients: NumPy's array: which client.
        rounds: NumPy's array: in which round, from 0.
        num_rounds: Rounds done.

    Raises:
        ValueError: They are no integers of one length, or a round is outside the run.
    """
    if clients.shape != rounds.shape or clients.ndim != 1:
        raise ValueError(
            f"clients and rounds are of the shapes {clients.shape} and "
            f"{rounds.shape}; they have to be columns of one length"
        )
    for name, column in (("clients", clients), ("rounds", rounds)):
        if len(column) and column.dtype.kind not in "iu":
            raise ValueError(f"{name} is of {column.dtype}; it has to be of integers")
    if len(rounds) and not (rounds.min() >= 0 and rounds.max() < num_rounds):
        raise ValueError(
            f"rounds is from {rounds.min()} to {rounds.max()}; it has to be from 0 to "
            f"{num_rounds - 1}"
        )


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool | str | bytes):
        raise ValueError(f"{name} is {value!r}; it has to be a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is {value!r}; it has to be a number") from None
    except OverflowError:
        raise ValueError(f"{name} is {value!r}; it has to be at most 1.8e308") from None


def delta_of(text: str, num_clients: int) -> float | None:
    """Returns a delta that may depend on the number of clients.

    Args:
        text: A number, `1/n^2` or `1/(300n)`, as Zhu et al. 2020 have it.
        num_clients: n, at least 1.

    Returns:
        The delta; None where the text says none.
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
