"""Answers of `scripts/run` itself: programs, misspelled names, versions, completions.

scripts/run                      lists the programs, with --all benchmarks, too
scripts/run trieh                suggests one
scripts/run --version
eval "$(scripts/run --completion)"   completes programs, flags, values in bash
"""

import ast
import difflib
import importlib.util
import itertools
import os
import pathlib
import runpy
import sys
from collections.abc import Sequence

from federated_hh.command_line import completion
from federated_hh.files import installation

_ROOT = installation.HOME
_OTHERS = ("benchmarks/*.py", "scripts/document_tables.py", "scripts/submit_parts.py")
# As shells have it for SIGPIPE.
_READER_GONE = 141


def modules() -> dict[str, str]:
    """Returns the modules of all programs, by their names for `scripts/run`.

    For installed packages, only registered programs count; a folder of the same name
    next to them is not ours.
    """
    if installation.is_installed():
        return installation.PROGRAMS
    found = {**installation.PROGRAMS, **installation.IN_A_CHECKOUT}
    for path in itertools.chain(*map(_ROOT.glob, _OTHERS)):
        if "app.run(" in path.read_text():
            module = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
            found[module] = module
    return found


def names(*, of_all: bool = True) -> dict[str, str]:
    """Returns the first line of each program's help, by its name.

    Args:
        of_all: Whether benchmarks and programs of upkeep are wanted.
    """
    users = {**installation.PROGRAMS, **installation.IN_A_CHECKOUT}
    return {
        name: _about(module)
        for name, module in modules().items()
        if of_all or name in users
    }


def _about(module: str) -> str:
    path = _ROOT / f"{module.replace('.', '/')}.py"
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.split("\n")[0].rstrip(".")


def listed(*, of_all: bool) -> str:
    """Returns the list of programs.

    Args:
        of_all: Whether benchmarks and programs of upkeep are wanted.
    """
    found = names(of_all=of_all)
    more = [] if of_all else ["", "scripts/run --all lists benchmarks and upkeep, too."]
    width = max(map(len, found))
    lines = [f"  {module:<{width}}  {about}" for module, about in found.items()]
    return "\n".join(
        [
            "usage: scripts/run PROGRAM [flags], or PROGRAM --help for its flags",
            "",
            *lines,
            *more,
            "",
            "A first one:",
            "  scripts/run triehh --flagfile=configs/triehh_demo.flagfile",
        ]
    )


def suggestion(name: str) -> str:
    """Returns the answer to an unknown program's name."""
    known = modules()
    # By the last part of its names: run_triehh is triehh. The first of a name counts.
    last: dict[str, str] = {}
    for short, module in known.items():
        for part in (short, module):
            last.setdefault(part.rpartition(".")[2].removeprefix("run_"), short)
    wanted = name.removesuffix(".py").replace("/", ".").replace("-", "_")
    wanted = wanted.rpartition(".")[2].removeprefix("run_")
    near = [last[word] for word in difflib.get_close_matches(wanted, [*last], n=3)]
    near = [*dict.fromkeys(near)]
    mend = f"did you mean {' or '.join(near)}?" if near else "there are:\n"
    told = f"error: there is no program {name!r}; {mend}"
    return told if near else told + "\n".join(f"  {short}" for short in known)


def main(arguments: Sequence[str]) -> int:
    """Answers, or runs a program or another module; returns an exit code."""
    from federated_hh.files import software

    first = arguments[0] if arguments else ""
    if first in ("", "help", "-h", "--help", "--all"):
        print(listed(of_all=first == "--all"))
        return 0 if first else 2
    if first == "--version" or "--version" in arguments[1:2]:
        print(software.version())
    elif first == "--completion":
        print(completion.for_bash())
    elif first == "--complete":
        print("\n".join(completion.completed(" ".join(arguments[1:]), modules())))
    elif module := _module_of(first):
        sys.argv = [*arguments]
        try:
            try:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # the reader, such as head, has read enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _READER_GONE
    else:
        print(suggestion(first), file=sys.stderr)
        return 2
    return 0


def _module_of(name: str) -> str | None:
    """Returns a program's module; None if there is no such program."""
    if name.startswith("-") or "/" in name:
        return None
    # The registered names first: the others take reading all benchmarks.
    module = installation.PROGRAMS.get(name) or modules().get(name)
    return module or (name if _is_there(name) else None)


def _is_there(name: str) -> bool:
    """Returns whether another module exists, such as pytest or a custom one."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    if found is None:
        return False
    # A library of ours would run and say nothing.
    is_ours = (_ROOT / f"{name.replace('.', '/')}.py").exists()
    return not is_ours or "__main__" in pathlib.Path(found.origin or "").read_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
