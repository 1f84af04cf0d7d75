"""Help of programs: their flags by topic, the ten first ones on top."""

import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from federated_hh.options import fields as fields_lib

# The last lines of a shortened page.
_LAST = (
    "A synthetic population",
    "Evaluation",
    "The secure sum",
    "Runtime",
    "The run",
)

_FIRST = "Main flags"
_MOST_COLUMNS = 100
_INDENT = 30
# Two screens; if all flags need more, the last ones are only named.
_MOST_LINES = 80


def text(
    topics: Mapping[str, Sequence[fields_lib.OptionField]],
    first: Sequence[str],
    whole: bool,
    program: Any = None,
) -> str:
    """Returns the running program's help.

    Args:
        topics: The program's options by topic, in the order of their definition.
        first: Names of the flags that come first.
        whole: True for each flag's whole help and range; False for first sentences, and
            only names beyond two screens.
        program: The program's module; `__main__` by default.
    """
    program = program or sys.modules["__main__"]
    width = min(shutil.get_terminal_size().columns, _MOST_COLUMNS)
    known = flags.FLAGS.get_key_flags_for_module(program)
    names = {flag.name: flag for flag in known}
    lines = [(program.__doc__ or "").strip()]
    groups = {
        title: [field for field in topics[title] if field.flag in names]
        for title in sorted(topics, key=_place)
    }
    by_name = {field.flag: field for group in groups.values() for field in group}

    def told(flag: str) -> list[str]:
        if flag not in by_name:
            return _of_other(names[flag], width)
        default = names[flag].default_as_str
        return _of_flag(by_name[flag], default, whole, width)

    sections = {_FIRST: [flag for flag in first if flag in names]}
    for title, group in groups.items():
        sections[title] = [f.flag for f in group if f.flag not in first]
    sections["Others"] = sorted(set(names) - set(by_name) - set(first))
    sections = {title: flags_ for title, flags_ in sections.items() if flags_}
    brief = {
        t: _named([names[f] for f in given], width) for t, given in sections.items()
    }
    left = _MOST_LINES - len(lines[0].splitlines()) - 2
    left -= sum(2 + len(shown) for shown in brief.values())
    for title, given in sections.items():
        described = [line for flag in given for line in told(flag)]
        more = len(described) - len(brief[title])
        if whole or more <= left or title == _FIRST:
            left -= more
        else:
            described = brief[title]
        lines += [f"\n{title}", *described]
    lines.append("\n--flagfile=FILE takes flags from a file, a line each.")
    if not whole:
        lines[-1] += " --helpfull explains every flag."
    return "\n".join(line.rstrip() for line in lines)


def _place(title: str) -> int:
    return _LAST.index(title) if title in _LAST else -1


def _named(given: Sequence[flags.Flag], width: int) -> list[str]:
    """Returns the lines that name flags."""
    spelled = (f"--[no]{f.name}" if f.boolean else f"--{f.name}" for f in given)
    return textwrap.wrap(
        "  ".join(spelled),
        width,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
    )


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
    if fields_lib.CHOSEN.keys() <= field.marks.keys():
        told += " [chosen for the population]"
    elif default not in (None, "", "''"):
        told += f" [{str(default).strip(chr(39))}]"
    return _described(name, told, width)


def _of_other(flag: flags.Flag, width: int) -> list[str]:
    """Returns the lines of a flag that is not an option."""
    choices = getattr(flag.parser, "enum_values", ["TEXT"])
    spelled = f"--{flag.name}={'|'.join(choices)}"
    if flag.boolean:
        spelled = f"--[no]{flag.name}"
    # absl puts choices in front of the program's help.
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
