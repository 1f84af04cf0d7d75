"""The topics of a program's flags, and its most important flags; see `help_page`."""

import dataclasses
from collections.abc import Iterable

from federated_hh.options import fields as fields_lib

RUN = "The run"
# What stands at the end, where there is so much else.
LAST = (
    "A synthetic population",
    "What is measured and kept",
    "The secure sum",
    "Where it computes",
    RUN,
)


@dataclasses.dataclass
class Group:
    """Flags of one topic.

    Attributes:
        title: The topic.
        fields: The options of the flags.
    """

    title: str
    fields: list[fields_lib.OptionField]


GROUPS: list[Group] = []
FIRST: list[str] = []


def add(title: str, fields: Iterable[fields_lib.OptionField]) -> None:
    """Adds flags to the help.

    Args:
        title: Topic of the flags without a topic of their own.
        fields: The flags.
    """
    for field in fields:
        name = field.group or title
        group = next((g for g in GROUPS if g.title == name), None)
        if group is None:
            group = Group(name, [])
            GROUPS.append(group)
        group.fields.append(field)


def first(*names: str) -> None:
    """Says which flags of the program matter most: they come first in its help."""
    FIRST[:] = names


def title_of(options_class: type) -> str:
    """Returns what a class of options is about: the first words of its docstring."""
    return (options_class.__doc__ or "").split("\n")[0].split(";")[0].rstrip(".")
