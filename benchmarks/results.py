"""What a benchmark leaves: tables of costs, and how they were made."""

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


class Results:
    """A folder of tables and plots, each written once it is measured.

    Attributes:
        about: How they are made, for `finish`.
    """

    def __init__(self, directory: str | None, program: str, **about: Any):
        """Notes the state of the code, before results change the tree.

        Args:
            directory: Made if it is not there; None: tables are only printed.
            program: That was called, as a module.
            **about: What else there is to say, as JSON values.
        """
        import numpy as np
        import tensorflow as tf

        self._directory = directory
        versions = {"numpy": np.__version__, "tensorflow": tf.__version__}
        self.about = {
            **_made_by(program),
            "load_average": os.getloadavg(),
            "versions": {"python": platform.python_version(), **versions},
            **about,
        }
        if directory is not None:
            os.makedirs(directory, exist_ok=True)

    def write(self, name: str, contents: bytes) -> None:
        """Writes a file, such as a plot."""
        from federated_hh.files import atomic_files

        if self._directory is not None:
            atomic_files.write_file(os.path.join(self._directory, name), contents)

    def show(self, name: str, table: "pd.DataFrame") -> None:
        """Prints a table, the last 60 rows of a long one, and writes it."""
        from federated_hh.files import tables

        print(f"\n{name}\n{table.tail(60).to_string(index=False)}", flush=True)
        self.write(f"{name}.csv", tables.write(table, significant_digits=6).encode())

    def finish(self, name: str = "about.json", **about: Any) -> str:
        """Writes how the results were made, and returns it."""
        text = json.dumps(self.about | about, indent=2) + "\n"
        self.write(name, text.encode())
        return text


def _made_by(program: str) -> dict[str, Any]:
    from federated_hh.files import software

    command = " ".join([f"scripts/run {program}", *sys.argv[1:]])
    return {
        # Where something is kept decides nothing.
        "command": re.sub(r" --?(cache|results)_dir[= ]\S+", "", command),
        "commit": software.version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
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
    from federated_hh.files import atomic_files, tables

    # Before results change the tree.
    how = {**_made_by(program), "data": data, **about}
    os.makedirs(directory, exist_ok=True)
    files = {"about.json": json.dumps(how, indent=2) + "\n"}
    for name, data_frame in {"cost": table, **(more or {})}.items():
        text = tables.write(data_frame, significant_digits=significant_digits)
        files[f"{name}.csv"] = text
    for file, text in files.items():
        atomic_files.write_file(os.path.join(directory, file), text.encode())
