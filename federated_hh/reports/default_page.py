"""The page of an algorithm that has none of its own."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from federated_hh.privacy import plan
from federated_hh.reports import client_bytes, page
from federated_hh.run_directory import directory as run_directory

_NUM_SHOWN = 1000  # rows of a table
_NUM_NAMED = 10  # of them in the summary


def write(
    directory: run_directory.RunDirectory,
    title: str,
    *,
    released: Mapping[str, pd.DataFrame],
    simulator: Mapping[str, pd.DataFrame],
    released_metrics: pd.DataFrame,
    simulator_metrics: pd.DataFrame,
    statement: run_directory.Statement,
    sampler: plan.Sampler[Any],
    remark: str = "",
) -> page.Summary:
    """Writes the report of an algorithm for which nobody wrote one.

    Args:
        directory: The directory of the run.
        title: The page's heading.
        released: Tables of results that the guarantee covers, by name: `words` is
            written as `words.csv`. The page shows the first rows.
        simulator: Tables that it does not cover, likewise.
        released_metrics: A row a round, with columns `repeat` and `round`, of what
            the guarantee covers. The page shows curves of the numeric columns.
        simulator_metrics: Likewise, of what it does not cover. Columns that
            `released_metrics` has too are left out.
        statement: A `federated_hh.privacy.statement.PrivacyStatement`.
        sampler: The plan's.
        remark: A further line of the summary.

    Returns:
        The run's summary.

    Raises:
        ValueError: If metrics have no column `round`, or a name is taken.
        RunDirectoryError: If a file cannot be written.
    """
    report = page.Page(directory, title)
    report.summary(
        " ".join(_found(name, table) for name, table in released.items()),
        next_command="federated_hh.compare {run} ANOTHER_RUN",
    )
    report.add_to_summary(remark)
    _add_part(report, "Released", released, released_metrics, covered=True)
    repeated = [
        name
        for name in released_metrics
        if name in simulator_metrics and name not in page.KEYS
    ]
    others = simulator_metrics.drop(columns=repeated)
    _add_part(report, "Simulator's", simulator, others, covered=False)
    client_bytes.add(report, simulator_metrics, sampler)
    report.statement(statement)
    report.how_it_was_made()
    return report.write()


def by_estimate(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a table with its largest estimates first, if it has a column of them.

    Args:
        table: Results of a repeat; the column's name is `estimate`.
    """
    if "estimate" not in table:
        return table
    return table.sort_values("estimate", ascending=False, kind="stable")


def _found(name: str, table: pd.DataFrame) -> str:
    """Returns a sentence on a table: its size, and its first rows by name."""
    if "repeat" in table:
        table = table[table["repeat"] == 0].drop(columns="repeat")
    name = name.replace("_", " ")
    if len(table) == 1:
        row = table.iloc[0]
        return (
            f"{name}: {', '.join(f'{key} {row[key]}' for key in table)}.".capitalize()
        )
    texts = table.select_dtypes(["object", "string"])
    if not len(table) or not texts.shape[1]:
        return f"{len(table):,} {name} found."
    first = ", ".join(map(str, texts.iloc[:, 0].head(_NUM_NAMED)))
    return f"{len(table):,} {name} found, the first ones: {first}."


def _add_part(
    report, whose: str, results, metrics: pd.DataFrame, covered: bool
) -> None:
    """Adds the sections of the released part, or of the simulator's."""
    if results:
        section = report.section(f"{whose} results", covered=covered)
        for name, table in results.items():
            caption = name.replace("_", " ")
            if len(table) > _NUM_SHOWN:
                caption += f": the first {_NUM_SHOWN} of {len(table):,} rows"
            shown = table.head(_NUM_SHOWN)
            section.table(f"{name}.csv", table, caption, shown=shown)
    if set(metrics.select_dtypes("number")) - {*page.NOT_DRAWN}:
        section = report.section(f"{whose} metrics by round", covered=covered)
        section.metrics(metrics)
