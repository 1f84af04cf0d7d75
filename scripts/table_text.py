"""What the tables of the documents are written with."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from simulation import tables

RESULTS = pathlib.Path(__file__).parent.parent / "results"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a Markdown table, its columns but the first set to the right."""
    lines = [f"| {' | '.join(header)} |", f"|---|{'--:|' * (len(header) - 1)}"]
    return lines + [f"| {' | '.join(row)} |" for row in rows]


def summary(study: str) -> list[dict[str, Any]]:
    """Returns the rows of a study's summary.

    Args:
        study: The folder in `RESULTS`.
    """
    return tables.read(RESULTS / study / "summary.csv").to_dict("records")


def mean(row: Mapping[str, Any], name: str = "coverage") -> str:
    """Returns a mean with its interval, both to a hundredth of a percent."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if math.isnan(low):
        return f"{row[name]:.2%}"
    return f"{row[name]:.2%} ± {(high - low) / 2:.2%}"
