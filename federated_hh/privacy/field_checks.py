"""Checks of the fields of the dataclasses that a privacy statement consists of.

Each takes the object and the field's name, writes the checked value back, and raises
a `ValueError` that names the field.
"""

import math
import numbers
from collections.abc import Mapping
from typing import Any


def number(owner: Any, name: str, minimum: float, maximum: float):
    """Makes a field a float; raises `ValueError` if it is none in the range."""
    value = getattr(owner, name)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} is {value!r}; it has to be a number")
    if not minimum <= value <= maximum:
        raise ValueError(
            f"{name} is {value!r}; it has to be in [{minimum:g}, {maximum:g}]"
        )
    object.__setattr__(owner, name, float(value))


def text(owner: Any, name: str, where: str = ""):
    """Raises `ValueError` unless a field is a text that is not empty."""
    value = getattr(owner, name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(
            f"{name} is {value!r}; it has to be a text that is not empty{where}"
        )


def kind(owner: Any, name: str, wanted: type):
    """Raises `ValueError` unless a field is of a type."""
    value = getattr(owner, name)
    if not isinstance(value, wanted):
        raise ValueError(f"{name} is {value!r}; it has to be of type {wanted.__name__}")


def texts(owner: Any, name: str, may_be_empty: bool = False):
    """Makes a field a tuple of texts that are not empty, or raises `ValueError`."""
    values = getattr(owner, name)
    if isinstance(values, str) or not isinstance(values, list | tuple):
        raise ValueError(f"{name} is {values!r}; it has to be a list of texts")
    if not (values or may_be_empty):
        raise ValueError(f"{name} must not be empty: name at least one")
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(
                f"{name} has {value!r}; it has to hold texts that are not empty"
            )
    object.__setattr__(owner, name, tuple(values))


def mapping(owner: Any, name: str, kinds: tuple[type, ...]):
    """Makes a field a dict of names to values of some types, or raises `ValueError`."""
    mapping = getattr(owner, name)
    if not isinstance(mapping, Mapping) or not mapping:
        raise ValueError(
            f"{name} is {mapping!r}; it has to be a dict that is not empty"
        )
    plain = {}
    for key, value in mapping.items():
        if not isinstance(key, str) or not key.strip():
            raise ValueError(
                f"{name} has the name {key!r}; it has to have texts as names"
            )
        if not isinstance(value, kinds) or value in ("", "inf"):
            raise ValueError(f"{name}[{key!r}] must not be {value!r}")
        # NumPy's numbers are told apart here, so that JSON takes them.
        if isinstance(value, numbers.Integral):
            value = bool(value) if isinstance(value, bool) else int(value)
        elif isinstance(value, numbers.Real):
            value = float(value)
            if math.isnan(value) or value == -math.inf:
                raise ValueError(f"{name}[{key!r}] is {value!r}; it has to be a number")
        plain[key] = value
    object.__setattr__(owner, name, plain)
