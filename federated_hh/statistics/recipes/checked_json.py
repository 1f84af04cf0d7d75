"""Fields of JSON with checks, for files that people write: recipes and policies."""

import decimal
from collections.abc import Mapping, Sequence
from typing import Any

from federated_hh.files import json_files
from federated_hh.files.json_files import shown
from federated_hh.privacy.local.device_policy import UNITS

_MOST_EPSILON = 100


class FieldError(ValueError):
    """A text is no such file; the message names the field."""


def loads(name: str, given: str) -> Any:
    """Returns the value of JSON; numbers with a point are decimals.

    Args:
        name: Name of the file's contents, for messages.
        given: The text.

    Raises:
        FieldError: If it is no JSON.
    """
    try:
        return json_files.parse(given, parse_float=decimal.Decimal)
    except json_files.JsonError as error:
        raise FieldError(f"{name} is no JSON: {error}") from None


def fields_of(
    name: str, value: Any, required: Sequence[str], others: Sequence[str] = ()
) -> Mapping[str, Any]:
    """Returns an object that has some fields and no unknown one."""
    fields = mapping(name, value)
    prefix = "" if name.startswith("the ") else f"{name}."
    known = [*required, *others]
    for unknown in value.keys() - set(known):
        raise FieldError(
            f"{prefix}{unknown} is no field of {name}; those are {', '.join(known)}"
        )
    for missing in [field for field in required if field not in value]:
        raise FieldError(f"{prefix}{missing} is missing")
    return fields


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Returns an object."""
    if not isinstance(value, dict):
        raise FieldError(f"{name} is {shown(value)}; it has to be an object")
    return value


def text(name: str, value: Any) -> str:
    """Returns a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise FieldError(
            f"{name} is {shown(value)}; it has to be a text that is not empty"
        )
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """Returns a list of different texts."""
    if not isinstance(value, list):
        raise FieldError(f"{name} is {shown(value)}; it has to be a list")
    if len({text(name, each) for each in value}) < len(value):
        raise FieldError(f"{name} names something twice")
    return tuple(value)


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """Returns one of some texts."""
    if value not in choices:
        raise FieldError(
            f"{name} is {shown(value)}; it has to be one of {', '.join(choices)}"
        )
    return value


def integer(name: str, value: Any, least: int) -> int:
    """Returns a whole number of at least `least`."""
    if type(value) is not int or not least <= value < 2**53:
        raise FieldError(
            f"{name} is {shown(value)}; it has to be a whole number of at least {least}"
        )
    return value


def number(name: str, value: Any) -> decimal.Decimal:
    """Returns a number, as it is written."""
    if type(value) not in (int, decimal.Decimal):
        raise FieldError(f"{name} is {shown(value)}; it has to be a number")
    return decimal.Decimal(value) if type(value) is int else value


def millionths(name: str, value: Any) -> int:
    """Returns an epsilon in millionths."""
    value = number(name, value)
    # Compared first: a number of a billion digits is none to multiply.
    if 0 < value <= _MOST_EPSILON:
        exact = value * UNITS
        if exact == exact.to_integral_value():
            return int(exact)
    raise FieldError(
        f"{name} is {shown(value)}; it has to be above 0, at most {_MOST_EPSILON}, and "
        "a whole number of millionths"
    )
