"""What the tables of the documents are written with."""

import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from federated_hh.files import tables

RESULTS = pathlib.Path(__file__).parents[2] / "results"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a Markdown table, its columns but the first set to the right."""
    lines = [f"| {' | '.join(header)} |", f"|---|{'--:|' * (len(header) - 1)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def rows(file: str) -> list[dict[str, Any]]:
    """Returns the rows of a CSV file in `RESULTS`, named without its ending."""
    return tables.read(RESULTS / f"{file}.csv").to_dict("records")


def of_rows(
    found: Iterable[Mapping[str, Any]],
    columns: Mapping[str, str | Callable[[Mapping[str, Any]], str]],
) -> list[str]:
    """Returns a table with a line for each row.

    Args:
        found: The values of each row, by name.
        columns: By header, a format of a row's values such as `{loss:.3f}`, or a
            function of them.
    """

    def line(row: Mapping[str, Any]) -> list[str]:
        forms = columns.values()
        return [
            form.format(**row) if isinstance(form, str) else form(row) for form in forms
        ]

    return table([*columns], [line(row) for row in found])


def mean(row: Mapping[str, Any], name: str = "coverage") -> str:
    """Returns a mean with its interval, both to a hundredth of a percent."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if math.isnan(low):
        return f"{row[name]:.2%}"
    return f"{row[name]:.2%} ± {(high - low) / 2:.2%}"
