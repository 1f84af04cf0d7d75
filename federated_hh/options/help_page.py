"""Help of programs: their flags by topic, the ten first ones on top."""

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from federated_hh.options import fields as fields_lib

# What stands at the end, where there is so much else.
_LAST = (
    "A synthetic population",
    "What is measured and kept",
    "The secure sum",
    "Where it computes",
    "The run",
)

_MOST_COLUMNS = 100
_INDENT = 30


def text(
    topics: Mapping[str, Sequence[fields_lib.OptionField]],
    first: Sequence[str],
    whole: bool,
    program: Any = None,
) -> str:
    """Returns the help of the program that runs.

    Args:
        topics: The program's options by topic, in the order of their definition.
        first: Names of the flags that come first.
        whole: All of each flag's help and range, or its first sentence.
        program: The program's module; `__main__` by default.
    """
    program = program or sys.modules["__main__"]
    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    known = flags.FLAGS.get_key_flags_for_module(program)
    names = {flag.name: flag for flag in known}
    lines = [(program.__doc__ or "").strip()]
    shown = set()

    def tell(title: str, fields: Sequence[fields_lib.OptionField]) -> None:
        lines.append(f"\n{title}")
        for field in fields:
            shown.add(field.flag)
            default = names[field.flag].default_as_str
            lines.extend(_of_flag(field, default, whole, width))

    groups = {
        title: [field for field in topics[title] if field.flag in names]
        for title in sorted(topics, key=_place)
    }
    by_name = {field.flag: field for group in groups.values() for field in group}
    if first:
        lines.append("\nThe first to decide")
    for name in first:
        shown.add(name)
        if name in by_name:
            default = names[name].default_as_str
            lines.extend(_of_flag(by_name[name], default, whole, width))
        else:
            lines.extend(_of_other(names[name], width))
    for title, group in groups.items():
        left = [field for field in group if field.flag not in shown]
        if left:
            tell(title, left)
    others = sorted(set(names) - shown)
    if others:
        lines.append("\nOthers")
    for name in others:
        lines.extend(_of_other(names[name], width))
    lines.append(
        "\n--flagfile=FILE takes flags from a file, a line each. "
        + ("" if whole else "--helpfull tells all of each flag.")
    )
    return "\n".join(line.rstrip() for line in lines)


def _place(title: str) -> int:
    return _LAST.index(title) if title in _LAST else -1


def _of_flag(
    field: fields_lib.OptionField, default: str | None, whole: bool, width: int
) -> list[str]:
    kinds: dict[Any, str] = {
        int: "=INTEGER",
        float: "=NUMBER",
        tuple: "=A,B,...",
        bool: "",
    }
    name = f"--[no]{field.flag}" if field.kind is bool else f"--{field.flag}"
    name += kinds.get(field.kind, "=TEXT")
    told = field.help if whole else _first_sentence(field.help)
    if field.choices:
        name = f"--{field.flag}={'|'.join(field.choices)}"
    elif whole and field.kind in (int, float):
        told += f" It has to be {field.range}."
    if default not in (None, "", "''"):
        told += f" [{str(default).strip(chr(39))}]"
    return _described(name, told, width)


def _of_other(flag: flags.Flag, width: int) -> list[str]:
    """Returns the lines of a flag that is no option."""
    choices = getattr(flag.parser, "enum_values", ["TEXT"])
    spelled = f"--{flag.name}={'|'.join(choices)}"
    if flag.boolean:
        spelled = f"--[no]{flag.name}"
    # absl puts choices in front of what the program says.
    told = (flag.help or "").removeprefix(f"<{'|'.join(choices)}>: ")
    return _described(spelled, told, width)


def _described(name: str, told: str, width: int) -> list[str]:
    """Returns a flag's name with its help, next to it or below."""
    wrapped = textwrap.wrap(" ".join(told.split()), max(width - _INDENT, 30)) or [""]
    name = f"  {name}"
    if len(name) < _INDENT:
        wrapped[0] = f"{name:<{_INDENT}}{wrapped[0]}"
        return [wrapped[0], *(" " * _INDENT + line for line in wrapped[1:])]
    # Of many choices, each line but the last ends in |.
    spelled = textwrap.wrap(
        name.replace("|", "| "),
        width,
        subsequent_indent=" " * 6,
        break_long_words=False,
        break_on_hyphens=False,
    )
    names = [line.replace("| ", "|") for line in spelled]
    return [*names, *(" " * _INDENT + line for line in wrapped)]


def _first_sentence(told: str) -> str:
    """Returns a text up to its first full stop, colon or semicolon that ends words."""
    for place, character in enumerate(told):
        ends = character == "." and told[place + 1 : place + 2] in ("", " ")
        if ends and told.count("(", 0, place) == told.count(")", 0, place):
            return told[: place + 1]
    return told
