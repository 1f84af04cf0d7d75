"""Options of a study as a dataclass: name, default, range and help in one place.

A field made by `option` is a flag where a program asks for it, and an argument in a
notebook; importing this registers nothing.
"""

import dataclasses
import math
import os
from typing import Any, TypeVar

from absl import flags

Options = TypeVar("Options")


def option(
    default: Any,
    help_text: str,
    low: float | None = None,
    high: float | None = None,
    *,
    without_low: bool = False,
    without_high: bool = False,
) -> Any:
    """Returns a field of options, for the body of a dataclass.

    Args:
        default: Its value where nothing is given; None for a text or number that need
            not be there.
        help_text: What it means and its unit, as a sentence.
        low: The least value of a number.
        high: The largest value of a number.
        without_low: Whether `low` itself is out of the range.
        without_high: Whether `high` itself is out of the range.
    """
    metadata = {
        "help": help_text,
        "range": (low, high),
        "without": (without_low, without_high),
    }
    return dataclasses.field(default=default, metadata=metadata)


def check_ranges(options: Any) -> None:
    """Raises `ValueError` if a number of the options is out of its range."""
    for field in dataclasses.fields(options):
        value, (low, high) = getattr(options, field.name), field.metadata["range"]
        if value is None or low is None:
            continue
        without_low, without_high = field.metadata["without"]
        above = low < value if without_low else low <= value
        below = value < high if without_high else value <= high
        if math.isnan(value) or not (above and below):
            text = f"{'(' if without_low else '['}{low:,}, {high:,}"
            raise ValueError(
                f"{field.name} is {value}; it has to be in "
                f"{text}{')' if without_high else ']'}"
            )


def define_flags(options: type) -> list[str]:
    """Defines a flag for each field of a dataclass; returns their names.

    Args:
        options: The dataclass; fields are of type int, float or str, or one of these
            and None.
    """
    for field in dataclasses.fields(options):
        low, high = field.metadata["range"]
        names = str(field.type)
        arguments = (field.name, field.default, field.metadata["help"])
        if "str" in names:
            flags.DEFINE_string(*arguments)
        elif "float" in names:
            flags.DEFINE_float(*arguments, lower_bound=low, upper_bound=high)
        else:
            flags.DEFINE_integer(*arguments, lower_bound=low, upper_bound=high)
    return [field.name for field in dataclasses.fields(options)]


def of_flags(options: type[Options]) -> Options:
    """Returns the options that the flags say.

    Args:
        options: Their dataclass, whose flags are defined and parsed.

    Raises:
        ValueError: If one of them is out of its range.
    """
    names = [field.name for field in dataclasses.fields(options)]
    return options(**{name: flags.FLAGS[name].value for name in names})


def check_directory(name: str, path: str | None) -> None:
    """Raises `ValueError` unless there is a directory at a path that an option gives.

    Args:
        name: Of the option.
        path: Its value; None where it was not given.
    """
    if not os.path.isdir(path or ""):
        raise ValueError(
            f"{name} is {path}; the directory of the real data sets is needed"
        )
