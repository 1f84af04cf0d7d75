"""The report of interactive statistics: its tables, plots and page."""

import types
from typing import Any

import pandas as pd

from federated_hh.privacy import statement as statement_lib
from federated_hh.reports import client_bytes, page
from federated_hh.run_directory import directory as run_directory
from federated_hh.statistics import preparation
from federated_hh.statistics.analyses import (
    custom_recipes,
    distribution,
    distribution_report,
    joint,
    joint_report,
    ngrams,
    ngrams_report,
)
from federated_hh.statistics.analyses import custom_recipes_report as recipes_report
from federated_hh.statistics.devices import fleet

# What shows an analysis: a module with `show`, `show_truth` and `headline`.
_PARTS: dict[type, types.ModuleType] = {
    distribution.Distribution: distribution_report,
    joint.Joint: joint_report,
    ngrams.NGrams: ngrams_report,
    custom_recipes.CustomRecipes: recipes_report,
}


def write(
    directory: run_directory.RunDirectory,
    prepared: preparation.Prepared,
    state: Any,
    statement: statement_lib.PrivacyStatement,
    *,
    max_k: int,
    device: int | None,
) -> page.Summary:
    """Writes the tables, plots, privacy statement and report of a run.

    Args:
        directory: The directory of the run.
        prepared: Run that was made.
        state: Final state.
        statement: Privacy statement.
        max_k: Largest K of the comparison with the true top K.
        device: Device whose log to show; None for no log.

    Returns:
        The run's summary.
    """
    report = page.Page(directory, "Interactive federated statistics")
    algorithm = prepared.algorithm
    part = _PARTS[type(algorithm)]
    found = part.headline(algorithm, state)
    report.summary(
        found,
        advice="" if prepared.complaints(state) else prepared.setting.best_change(),
        next_command="federated_hh.compare {run} ANOTHER_RUN",
    )
    part.show(report, algorithm, state)
    queries = report.section("Queries", covered=True)
    aggregate, local = statement.guarantees[:2]
    queries.text(
        "All queries of a device together: cohort aggregate epsilon at most "
        f"{aggregate.epsilon:.4g} (delta {aggregate.delta:g}), local epsilon at most "
        f"{local.epsilon:.4g}. Each query:"
    )
    queries.show(directory.released_metrics())
    part.show_truth(report, algorithm, state, prepared.stored, max_k)
    if device is not None:
        log = report.section(f"Log of device {device}", covered=False)
        log.text("All queries that the device received, and the bits that it sent.")
        table = prepared.device_log(device)
        log.table("device_log.csv", table, shown=_shortened(table))
    kind = "real" if isinstance(algorithm.devices, fleet.DeviceFleet) else "vectorised"
    report.section("Simulation", covered=False).text(
        f"{prepared.stored.num_devices:,} {kind} devices with "
        f"{prepared.stored.num_events:,} events; "
        f"{directory.metrics()['seconds'].sum():.1f} s of queries."
    )
    client_bytes.add(report, directory.metrics(), algorithm.plan.sampler)
    report.statement(statement)
    report.how_it_was_made()
    return report.write()


def _shortened(log: pd.DataFrame) -> pd.DataFrame:
    reports = log["report"].fillna("")
    return log.assign(
        report=[bits if len(bits) <= 32 else f"{bits[:29]}..." for bits in reports]
    )
