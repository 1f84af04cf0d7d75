"""What a benchmark leaves: a table of costs, and how it was made."""

import json
import os
import platform
import re
import statistics
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd


def spread(name: str, values: "Sequence[float]") -> dict[str, float]:
    """Returns the columns of a number that was measured some times.

    Args:
        name: The column of the median; those of the least and the most follow it.
        values: At least one.
    """
    return {
        name: statistics.median(values),
        f"{name}_least": min(values),
        f"{name}_most": max(values),
    }


def write(
    directory: str,
    program: str,
    table: "pd.DataFrame",
    data: str,
    *,
    significant_digits: int = 6,
    more: "Mapping[str, pd.DataFrame] | None" = None,
    **about: Any,
) -> None:
    """Writes cost.csv, other tables, and about.json.

    Args:
        directory: Made if it is not there.
        program: That was called, as a module.
        table: The costs.
        data: What was measured on.
        significant_digits: The significant digits of the tables.
        more: Other tables, by their names without ".csv".
        **about: What else there is to say, as JSON values.
    """
    from simulation import atomic_files, software, tables

    command = " ".join([f"scripts/run {program}", *sys.argv[1:]])
    how = {
        # Where something is kept decides nothing.
        "command": re.sub(r" --?(cache|results)_dir[= ]\S+", "", command),
        "commit": software.version(),  # before results change the tree
        "data": data,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **about,
    }
    os.makedirs(directory, exist_ok=True)
    files = {"about.json": json.dumps(how, indent=2) + "\n"}
    for name, data_frame in {"cost": table, **(more or {})}.items():
        text = tables.write(data_frame, significant_digits=significant_digits)
        files[f"{name}.csv"] = text
    for file, text in files.items():
        atomic_files.write_file(os.path.join(directory, file), text.encode())
