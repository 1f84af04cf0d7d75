"""A client's bytes in a report: of a round, and of a run."""

from typing import Any

import pandas as pd

from federated_hh.privacy import plan
from federated_hh.reports import page

COLUMNS = ["download_bytes", "upload_bytes"]


def add(
    report: page.Page,
    metrics: pd.DataFrame,
    sampler: plan.Sampler[Any],
    *,
    is_mean: bool = False,
) -> None:
    """Adds a section and a line of the summary, if the metrics have the bytes.

    Args:
        report: The run's report.
        metrics: The simulator's, a row a round.
        sampler: The plan's, which limits the rounds of a client.
        is_mean: Whether the bytes are means over clients, some of which send more.
    """
    if not set(COLUMNS) <= {*metrics}:
        return
    sizes, rounds = metrics[COLUMNS], int(metrics["round"].max())
    most = min(rounds, sampler.limits(rounds).max_participation)
    of_repeats = sizes.groupby(metrics["repeat"])
    run = of_repeats.agg(lambda column: column.nlargest(most).sum()).max()
    which = {rounds: f"all {rounds:,} rounds", 1: "its one round"}
    in_run = which.get(most, f"its at most {most:,} rounds")
    (down, up), (all_down, all_up) = (map(shown, row) for row in (sizes.max(), run))
    most_of = "on average" if is_mean else "at most"
    line = f"A client downloads {most_of} {down} and uploads {most_of} {up} "
    more = f"a round, and {all_down} and {all_up} " if most > 1 else ""
    report.add_to_summary(f"{line}{more}in {in_run}.")
    means = pd.DataFrame([sizes.mean(), sizes.max(), run]).map(shown)
    means.insert(0, "of", ["a round, mean", "a round, most", f"{in_run}, most"])
    section = report.section("Bytes of a client", covered=False)
    section.show(means)
    section.text(
        "Contents of messages, without transport, encryption and compression; "
        "docs/guide/reading_a_report.md has what each program counts."
    )


def shown(num_bytes: float) -> str:
    """Returns a number of bytes with its unit, in powers of 1,000."""
    for factor, unit in ((1e6, "MB"), (1e3, "kB")):
        if num_bytes >= factor:
            return f"{num_bytes / factor:,.1f} {unit}"
    return f"{num_bytes:,.0f} bytes"
