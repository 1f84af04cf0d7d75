"""The Markdown of studies' pages."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# A format of a row's values such as `{loss:.3f}`, or a function of the row.
Cell = str | Callable[[Mapping[str, Any]], str]


def page(title: str, *parts: str | Sequence[str]) -> bytes:
    """Returns a page: a title, and parts with blank lines between them.

    Args:
        title: The page's title.
        *parts: Texts, or lines such as those of `table` and `notes`.
    """
    texts = [part if isinstance(part, str) else "\n".join(part) for part in parts]
    return ("\n\n".join([f"### {title}", *texts]) + "\n").encode()


def notes(*texts: str) -> list[str]:
    """Returns a list's lines."""
    return [f"* {text}" for text in texts]


def table(
    columns: Mapping[str, Cell], rows: Iterable[Mapping[str, Any]], align: str = "l"
) -> list[str]:
    """Returns a table's lines.

    Args:
        columns: Cells by header.
        rows: Rows.
        align: A letter a column, l or r; r for the others.
    """
    lines = [
        [
            cell.format(**row) if isinstance(cell, str) else cell(row)
            for cell in columns.values()
        ]
        for row in rows
    ]
    return table_of([*columns], lines, align)


def table_of(
    header: Sequence[str], lines: Iterable[Sequence[str]], align: str = "l"
) -> list[str]:
    """Returns a table's lines of the texts of its cells; see `table`."""
    rule = "".join(
        "---|" if a == "l" else "--:|" for a in align.ljust(len(header), "r")
    )
    first, *others = (f"| {' | '.join(line)} |" for line in (header, *lines))
    return [first.replace("|  |", "| |"), f"|{rule}", *others]


def upper_bound(value: float) -> str:
    """Returns a bound with three digits, rounded upwards; empty where it is nan."""
    if math.isnan(value):
        return ""
    digits = 2 - math.floor(math.log10(value))
    bound = math.ceil(round(value * 10**digits, 6)) / 10**digits
    return f"{bound:.{max(digits, 0)}f}"
