"""What `scripts/run` says by itself: its programs, a misspelled one, versions, shells.

scripts/run                      lists the programs
scripts/run run_trieh            suggests one
scripts/run --version
eval "$(scripts/run --completion)"   completes programs, flags, values in bash
"""

import ast
import difflib
import importlib.util
import pathlib
import runpy
import sys
from collections.abc import Sequence

from scripts import completion, console

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_OTHERS = (
    "benchmark_*.py",
    "compare_runtimes.py",
    "document_tables.py",
    "fault_trials.py",
    "submit_parts.py",
)


def names() -> dict[str, str]:
    """Returns all programs by module, with the first line of what they say."""
    modules = list(console.PROGRAMS.values())
    for pattern in _OTHERS:
        paths = sorted((_ROOT / "scripts").glob(pattern))
        modules += [
            f"scripts.{path.stem}" for path in paths if "app.run(" in path.read_text()
        ]
    return {module: _about(module) for module in modules}


def _about(module: str) -> str:
    path = _ROOT / f"{module.replace('.', '/')}.py"
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.split("\n")[0].rstrip(".")


def listed() -> str:
    """Returns the list of programs."""
    found = names()
    width = max(map(len, found))
    lines = [f"  {module:<{width}}  {about}" for module, about in found.items()]
    return "\n".join(
        [
            "usage: scripts/run PROGRAM [flags], or PROGRAM --help for its flags",
            "",
            *lines,
            "",
            "A first one:",
            "  scripts/run federated_hh.run_triehh "
            "--flagfile=configs/triehh_demo.flagfile",
        ]
    )


def suggestion(name: str) -> str:
    """Returns what to say of a program that there is not."""
    known = [*names()]
    last = {module.rpartition(".")[2]: module for module in known}
    wanted = name.removesuffix(".py").replace("/", ".").replace("-", "_")
    near = difflib.get_close_matches(wanted, known, n=3)
    words = difflib.get_close_matches(wanted.rpartition(".")[2], [*last], n=3)
    near += [last[word] for word in words if last[word] not in near]
    mend = f"did you mean {' or '.join(near[:3])}?" if near else "there are:\n"
    told = f"error: there is no program {name!r}; {mend}"
    return told if near else told + "\n".join(f"  {module}" for module in known)


def main(arguments: Sequence[str]) -> int:
    """Answers, or runs a module that is no program of ours; returns an exit code."""
    from simulation import software

    first = arguments[0] if arguments else ""
    if first in ("", "help", "-h", "--help"):
        print(listed())
        return 0 if first else 2
    if first == "--version" or "--version" in arguments[1:2]:
        print(software.version())
    elif first == "--completion":
        print(completion.for_bash())
    elif first == "--complete":
        print("\n".join(completion.completed(" ".join(arguments[1:]), names())))
    elif not first.startswith("-") and "/" not in first and _is_there(first):
        sys.argv = [*arguments]
        runpy.run_module(first, run_name="__main__", alter_sys=True)
    else:
        print(suggestion(first), file=sys.stderr)
        return 2
    return 0


def _is_there(name: str) -> bool:
    """Returns whether there is a module of others, such as pytest or a user's own."""
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
