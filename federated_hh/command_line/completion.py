"""Completions of an unfinished command line: programs, flags, values.

eval "$(scripts/run --completion)"     in a checkout
eval "$(run-triehh --completion)"      where the packages are installed
"""

import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from federated_hh.files import installation as registry

# Bash ends words at an equals sign, so the offered text is the part after it.
_BASH = """_federated_hh() {{
  local IFS=$'\\n'
  COMPREPLY=($("$1" --complete "${{COMP_LINE:0:COMP_POINT}}"))
  [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
}}
complete -o default -F _federated_hh scripts/run ./scripts/run {names}"""
# Many choices take several lines.
_FLAG = re.compile(
    r"^  --(?P<no>\[no\])?(?P<name>\w+)(?P<values>=\S*(?:(?<=\|)\s+\S+)*)?",
    re.MULTILINE,
)


def for_bash() -> str:
    """Returns the script for bash to evaluate."""
    return _BASH.format(names=" ".join(registry.console_scripts()))


def completed(line: str, programs: Mapping[str, str]) -> list[str]:
    """Returns the possible ends of a command line.

    Args:
        line: A command and more, up to where the cursor is.
        programs: The modules by what `scripts/run` may be followed by.

    Returns:
        Whole words, or a flag's values; nothing if files may follow.
    """
    command, *words = line.split(" ")
    if not words:
        return []
    *before, last = [*filter(None, words[:-1]), words[-1]]
    program = registry.console_scripts().get(pathlib.Path(command).name)
    if program is None:
        if not before:
            return [name for name in programs if name.startswith(last)]
        first = before.pop(0)
        program = programs.get(first, first)
    if not last.startswith("-"):
        return []
    name, equals, value = last.partition("=")
    offered: list[str] = []
    for flag in _FLAG.finditer(_help(program, before)):
        values = flag["values"] or ""
        if equals and name == f"--{flag['name']}" and "|" in values:
            offered += "".join(values[1:].split()).split("|")
        elif not equals:
            offered.append(f"--{flag['name']}{'=' if values else ''}")
            offered += [f"--no{flag['name']}"] if flag["no"] else []
    return [word for word in offered if word.startswith(value if equals else last)]


def _help(program: str, before: Sequence[str]) -> str:
    """Returns a program's help: flags like --study=NAME say which others there are."""
    command = [sys.executable, "-P", "-m", program]
    for given in ([word for word in before if word.startswith("-")], []):
        done = subprocess.run(
            [*command, *given, "--helpfull"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            break
    return done.stdout
