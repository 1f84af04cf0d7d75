"""Keeps the documents' tables equal to the CSV files that they come from.

scripts/run scripts.document_tables --write

A table with numbers stands below a line `<!-- table NAME -->`, and is then made from
the files in results/, or computed where that takes no run; or it stands below
`<!-- table not measured: WHY -->`. The files of `quality_files` are kept, too. Without
--write the program says which tables and files differ, and ends with exit code 1.
"""

import pathlib
import re
import sys
from collections.abc import Iterator, Sequence

from absl import app, flags

from federated_hh.options import option_flags
from federated_hh.runtime.worker import startup
from scripts.tables import made_rows, quality_files, render
from scripts.tables.render import RESULTS, Table

_WRITE = flags.DEFINE_bool(
    "write", False, "Write the tables and files that differ again."
)

_ROOT = pathlib.Path(__file__).parent.parent
_MARK = re.compile(r"<!-- table (?P<name>.+?) -->")
_NOT_MEASURED = "not measured: "
_NUMBER = re.compile(r"\d")

TABLES: dict[str, Table] = render.declared(made_rows.MAKERS)


def documents() -> list[pathlib.Path]:
    """Returns the Markdown files whose tables are checked."""
    pages = sorted((_ROOT / "docs").glob("**/*.md"))
    return [_ROOT / "README.md", *pages, RESULTS / "README.md"]


def marked_tables(text: str) -> Iterator[tuple[str | None, int, list[str]]]:
    """Yields the tables of a Markdown text.

    Args:
        text: Markdown.

    Yields:
        The name of a table's mark, or None; the number of its first line, from 0; and
        its lines: none below a mark that no table follows yet.
    """
    lines, in_code, i = text.splitlines(), False, 0
    while i < len(lines):
        if lines[i].startswith("```"):
            in_code = not in_code
        if in_code or not lines[i].startswith("|"):
            lone = None if in_code else _MARK.fullmatch(lines[i])
            i += 1
            below = next((line for line in lines[i:] if line), "")
            if lone and not below.startswith("|"):
                yield lone["name"], i, []
            continue
        first = i
        while i < len(lines) and lines[i].startswith("|"):
            i += 1
        above = next((line for line in reversed(lines[:first]) if line), "")
        mark = _MARK.fullmatch(above)
        yield mark and mark["name"], first, lines[first:i]


def without_mark(text: str) -> list[int]:
    """Returns the line numbers, from 1, of tables with numbers and no mark."""
    return [
        first + 1
        for name, first, lines in marked_tables(text)
        if name is None and any(_NUMBER.search(line) for line in lines)
    ]


def renewed(text: str) -> str:
    """Returns a Markdown text with its marked tables made from the results.

    Raises:
        ValueError: If a mark has a name that there is no table for.
    """
    lines = text.splitlines()
    for name, first, old in reversed(list(marked_tables(text))):
        if name is None or name.startswith(_NOT_MEASURED):
            continue
        if name not in TABLES:
            raise ValueError(
                f"line {first}: no table is called {name!r}; there are "
                f"{', '.join(sorted(TABLES))}"
            )
        table = TABLES[name]()
        lines[first : first + len(old)] = table if old else ["", *table]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> None:
    """Compares the documents with the results, or writes their tables and files."""
    del argv
    startup.silence_tensorflow()
    failures = []
    for folder in quality_files.FOLDERS:
        for path, content in quality_files.differing(folder).items():
            if _WRITE.value:
                path.write_bytes(content)
                print(f"{path}: written")
            else:
                failures.append(f"{path}: differs from the runs that it shows")
    for document in documents():
        text = document.read_text()
        failures += [
            f"{document}:{line}: a table with numbers and no mark"
            for line in without_mark(text)
        ]
        new = renewed(text)
        if new != text and _WRITE.value:
            document.write_text(new)
            print(f"{document}: written")
        elif new != text:
            failures.append(f"{document}: a table differs from its file of results")
    if failures:
        print(*failures, sep="\n", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    app.run(main, flags_parser=option_flags.parse)
