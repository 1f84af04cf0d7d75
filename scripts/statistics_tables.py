"""Tables of the document on interactive statistics, from their results."""

import math

from scripts.table_text import RESULTS, table
from simulation import tables
from studies import mcmillan_2022_privacy, mcmillan_2022_trust_models


def _rows(study: str, name: str) -> list[dict]:
    return tables.read(RESULTS / study / f"{name}.csv").to_dict("records")


def figure1() -> list[str]:
    """Epsilon of a cohort's sum, by all that is proved."""
    rows = []
    for row in _rows("mcmillan_figure1", "figure1"):
        if math.log10(row["cohort"]) % 1 == 0 and row["cohort"] >= 1000:
            shown = [
                mcmillan_2022_privacy.shown_epsilon(row[name])
                for name in (
                    "equation1",
                    "clones_2021",
                    "clones_2022",
                    "asymmetric",
                    "symmetric",
                )
            ]
            rows.append([f"{row['local_epsilon']:g}", f"{row['cohort']:,.0f}", *shown])
    return table(
        [
            "local ε",
            "reports",
            "equation (1)",
            "clones 2021",
            "clones 2022 (the paper's)",
            "asymmetric, Rényi",
            "symmetric, Rényi",
        ],
        rows,
    )


def minimum_cohorts() -> list[str]:
    """How many reports have epsilon 1."""
    found: dict[str, list[str]] = {}
    for row in _rows("mcmillan_figure1", "minimum_cohorts"):
        name = row["bound"].split(",")[0] + f", {row['randomizer'].replace('_', ' ')}"
        found.setdefault(name, []).append(f"{row['minimum_cohort']:,}")
    return table(
        ["reports for (1, 1e-6)", "local ε 3", "local ε 6"],
        [[name, *counts] for name, counts in found.items()],
    )


def composition() -> list[str]:
    """How many queries a budget admits."""
    rows = []
    for row in _rows("mcmillan_composition", "queries"):
        if math.log10(row["cohort"]) % 1 == 0 and row["cohort"] <= 10**6:
            rows.append(
                [
                    row["encoding"],
                    f"{row['local_epsilon']:g}",
                    f"{row['cohort']:,}",
                    *(f"{row[name]:,}" for name in ("basic", "advanced", "renyi")),
                ]
            )
    return table(
        ["encoding", "local ε", "reports a query", "basic", "advanced", "Rényi"], rows
    )


def trust_models() -> list[str]:
    """The error of one histogram under every trust model."""
    rows: dict[str, list[str]] = {}
    sizes = []
    for row in _rows("mcmillan_trust_models", "errors"):
        low, high = row["error_low"], row["error_high"]
        shown = f"{row['error']:.3g} ({low:.3g}–{high:.3g})"
        rows.setdefault(row["model"], []).append(shown)
        if row["devices"] not in sizes:
            sizes.append(row["devices"])
    models = {model.name: model for model in mcmillan_2022_trust_models.MODELS}
    return table(
        [
            "trust model",
            *[f"{size:,} devices" for size in sizes],
            "who is trusted",
            "left without that",
        ],
        [
            [name, *errors, models[name].trusted, models[name].left]
            for name, errors in rows.items()
        ],
    )


def cost() -> list[str]:
    """What a query costs, a step at a time."""
    rows = []
    for row in _rows("benchmark_statistics", "cost"):
        first = row["step"] in ("donate events", "take the events")
        rows.append(
            [
                f"{row['devices']}, {row['number']:,}, {row['cells']:,} cells"
                if first
                else "",
                row["step"],
                f"{row['cpu_seconds']:.2f} s",
                f"{row['microseconds_a_device']:.3g} µs",
                f"{row['peak_gib']:.2f} GiB" if row["step"] == "all" else "",
            ]
        )
    return table(["devices", "step", "processor time", "a device", "peak memory"], rows)


TABLES = {
    "mcmillan_figure1": figure1,
    "mcmillan_minimum_cohorts": minimum_cohorts,
    "mcmillan_composition": composition,
    "mcmillan_trust_models": trust_models,
    "benchmark_statistics": cost,
}
