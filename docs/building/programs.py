"""Programs and their flags as Markdown, made from the dataclasses of options."""

import ast
import functools
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import studies as studies_lib
from federated_hh.command_line import experiment_flags
from federated_hh.command_line import programs as program_list
from federated_hh.files import installation as registry
from federated_hh.options import fields
from federated_hh.populations.options import population_options

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
_SHARED = {
    "Every run": experiment_flags.RunOptions,
    "Populations": population_options.PopulationOptions,
}
# What a program's own flags are: absl's, as its module has made them.
_LIST_FLAGS = """
import importlib, json, re, sys
from absl import flags
name = sys.argv[1]
importlib.import_module(name)
print(json.dumps([
    {
        "flag": flag.name,
        "default": (flag.default_as_str or "").strip("'"),
        # Of an enumeration absl writes the choices in front.
        "help": re.sub("^<[^>]*>: ", "", flag.help),
        "range": getattr(flag.parser, "syntactic_help", ""),
        "choices": list(getattr(flag.parser, "enum_values", None) or ()),
    }
    for flag in flags.FLAGS.get_key_flags_for_module(name)
]))
"""


def programs() -> str:
    """Returns a section a program: what it is for, and the flags of its own."""
    shared = _shared_defaults()
    parts = []
    for name, module in registry.PROGRAMS.items():
        script = module.rpartition(".")[2].replace("_", "-")
        about, details = _docstring(module)
        parts.append(
            f"## {name}\n\n{about} Its module is `{module}`; installed, it is called "
            f"`{script}`."
        )
        if details:
            parts.append(details)
        flags = _flags(module)
        own = [f for f in flags if shared.get(f["flag"]) != f["default"]]
        if len(own) < len(flags):
            parts.append(
                "It has the flags of [every run](#every-run) and, where it has a "
                "population, those of [populations](#populations) as well."
            )
        parts.append(_table(own))
    return "\n\n".join(parts)


def studies() -> str:
    """Returns a section a paper's module: its studies and their flags."""
    parts = []
    for module in dict.fromkeys(studies_lib.MODULES.values()):
        names = [name for name, of in studies_lib.MODULES.items() if of == module]
        about, _ = _docstring(module)
        options = importlib.import_module(module).Options
        parts.append(f"### {', '.join(names)}\n\n{about}\n\n{_of_class(options)}")
    return "\n\n".join(parts)


def shared_options() -> str:
    """Returns the flags that programs have in common, a section a dataclass."""
    return "\n\n".join(
        f"## {title}\n\n{_of_class(options)}" for title, options in _SHARED.items()
    )


def other_programs() -> str:
    """Returns a table of the programs that are not installed."""
    rows = ["| program | |", "|---|---|"]
    for name, module in program_list.modules().items():
        if name not in registry.PROGRAMS:
            rows.append(f"| `{name}` | {_escaped(_docstring(module)[0])} |")
    return "\n".join(rows)


def console_scripts() -> str:
    """Returns a table of the installed programs' names."""
    rows = ["| installed | by `scripts/run` |", "|---|---|"]
    names = {module: name for name, module in registry.PROGRAMS.items()}
    for script, module in registry.console_scripts().items():
        rows.append(f"| `{script}` | `{names[module]}` |")
    return "\n".join(rows)


def _docstring(module: str) -> tuple[str, str]:
    """Returns the first line of a module's docstring, and its commands in a block."""
    file = _ROOT / (module.replace(".", "/") + ".py")
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    about, _, rest = text.partition("\n\n")
    commands = [
        block
        for block in rest.split("\n\n")
        if block.strip().startswith("scripts/run") and "=" in block
    ]
    shown = "\n".join(commands)
    return " ".join(about.split()), f"```sh\n{shown}\n```" if commands else ""


@functools.cache
def _flags(module: str) -> tuple[Mapping[str, Any], ...]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LIST_FLAGS, module],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def _of_class(options: type) -> str:
    return _table(
        {
            "flag": field.flag,
            "default": _default(field),
            "help": field.help,
            "range": field.range if field.kind in (int, float) else "",
            "choices": field.choices,
        }
        for field in fields.fields_of(options).values()
    )


def _default(field: fields.OptionField) -> str:
    value = field.default
    if value is fields.REQUIRED or value is None:
        return ""
    if field.kind is bool:
        return str(value).lower()
    if field.kind is tuple:
        return ",".join(value)
    return str(getattr(value, "value", value))


def _shared_defaults() -> dict[str, str]:
    return {
        field.flag: _default(field)
        for options in _SHARED.values()
        for field in fields.fields_of(options).values()
    }


def _table(rows: Iterable[Mapping[str, Any]]) -> str:
    lines = ["| flag | default | |", "|---|---|---|"]
    for row in rows:
        default = str(row["default"])
        # A directory of the machine that builds says nothing.
        default = default.removeprefix(f"{_ROOT}/")
        about = _escaped(row["help"])
        if row["range"]:
            about += f" ({_escaped(row['range'])})"
        if row["choices"]:
            about += f" One of {', '.join(f'`{choice}`' for choice in row['choices'])}."
        shown = f"`{default}`" if default else ""
        lines.append(f"| `--{row['flag']}` | {shown} | {about} |")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Returns a text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_<>|\[\]$])", r"\\\1", " ".join(text.split()))
