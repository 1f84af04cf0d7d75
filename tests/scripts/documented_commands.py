"""The commands that the documents show, as a reader would type them."""

import dataclasses
import os
import pathlib
import re
import shlex
from collections.abc import Iterator

from federated_hh.command_line import programs
from federated_hh.files import installation as registry
from scripts import document_tables
from tests import ROOT

_BLOCK = re.compile(r"^ *```(.*?)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:\./)?scripts/run [a-z][^`]*)`")
_RUN = re.compile(r"(?:\$ )?(?:\./)?scripts/run (?P<program>[a-z][\w.]*)(?P<rest>.*)")
_INSTALLED = re.compile(r"env/bin/(?P<script>[a-z-]+)(?P<rest> .*)")
_SAVED = re.compile(
    r"save (?:it|this) as\s+`(\w+\.py)`[^`]*```python\n(.*?)^```",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
# What is no program of ours, with what it takes after its name.
_TOOLS = re.compile(
    r"\./scripts/test\b|bazel |(?:env/bin/|uv )pip install "
    r"|python3(?:\.11)? -m venv |git "
    r"|\.venv/bin/(?:ruff|mypy|python -c|python -m (?:sphinx|mypy|pip|build))\b"
    r"|scripts/lock_requirements\b|\.ci/run$"
)


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line of a program.

    Attributes:
        where: The document.
        program: The module.
        arguments: Arguments after it.
    """

    where: str
    program: str
    arguments: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all that it names is there before it is run."""
        files = [a.partition("=")[2] for a in self.arguments if "flagfile=" in a]
        return "--resume" not in self.arguments and all(
            (ROOT / file).exists() for file in files
        )

    def known(self) -> list[str]:
        """Returns the arguments without flagfiles that earlier commands make."""
        return [
            argument
            for argument in self.arguments
            if not argument.startswith("--flagfile=")
            or (ROOT / argument.partition("=")[2]).exists()
        ]


def save_files(folder: str) -> list[str]:
    """Saves the files of their own that pages have readers save.

    Args:
        folder: Where readers run the commands.

    Returns:
        Their names.
    """
    files = [file for path in documents() for file in _SAVED.findall(path.read_text())]
    for name, text in files:
        (pathlib.Path(folder) / name).write_text(text)
    return [name for name, _ in files]


def documents() -> list[pathlib.Path]:
    """Returns all pages that people read."""
    return [*document_tables.documents(), ROOT / "CONTRIBUTING.md"]


def _lines(path: pathlib.Path) -> Iterator[str]:
    text = path.read_text()
    for language, block in _BLOCK.findall(text):
        if language not in ("", "sh", "bash"):
            continue
        is_output = "$ " in block
        for line in block.replace("\\\n", " ").splitlines():
            # Where a prompt is shown, what has none is output.
            if line.strip() and (not is_output or line.startswith("$ ")):
                yield line.strip()
    for line in _INLINE.findall(_BLOCK.sub("", text)):
        yield " ".join(line.split())


def unfenced() -> list[str]:
    """Returns commands that only their indentation marks, which are not read."""
    found = []
    for path in documents():
        text = _BLOCK.sub("", path.read_text())
        found += re.findall(r"^ {4}(?:\./)?scripts/run .*", text, re.MULTILINE)
    return found


def _is_command(line: str) -> bool:
    return bool(re.match(r"(\$ |\./|scripts/|env/|\.venv/|bazel |python|\.ci/)", line))


def commands() -> tuple[list[Command], list[str]]:
    """Returns the commands of our programs, and lines that nothing is known of."""
    found, unknown = [], []
    for path in documents():
        where = os.path.relpath(path, ROOT)
        for line in _lines(path):
            if ran := _RUN.fullmatch(line):
                program = programs.modules().get(ran["program"], ran["program"])
            elif (ran := _INSTALLED.fullmatch(line)) and (
                ran["script"] in registry.console_scripts()
            ):
                program = registry.console_scripts()[ran["script"]]
            else:
                if _is_command(line) and not _TOOLS.match(line):
                    unknown.append(f"{where}: {line}")
                continue
            found.append(Command(where, program, tuple(shlex.split(ran["rest"]))))
    return list(dict.fromkeys(found)), unknown
