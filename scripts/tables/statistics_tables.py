"""Tables of the document on interactive statistics, from their results."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from scripts.tables.table_text import of_rows, rows, table
from studies.mcmillan_2022 import privacy as mcmillan_2022_privacy
from studies.mcmillan_2022 import trust_models as mcmillan_2022_trust_models


def _is_power_of_ten(row: Mapping[str, Any]) -> bool:
    return math.log10(row["cohort"]) % 1 == 0


def _epsilon(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: mcmillan_2022_privacy.shown_epsilon(row[name])


def figure1() -> list[str]:
    """Epsilon of a cohort's sum, by all that is proved."""
    return of_rows(
        [
            row
            for row in rows("mcmillan_figure1/figure1")
            if _is_power_of_ten(row) and row["cohort"] >= 1000
        ],
        {
            "local ε": "{local_epsilon:g}",
            "reports": "{cohort:,.0f}",
            "equation (1)": _epsilon("equation1"),
            "clones 2021": _epsilon("clones_2021"),
            "clones 2022 (the paper's)": _epsilon("clones_2022"),
            "asymmetric, Rényi": _epsilon("asymmetric"),
            "symmetric, Rényi": _epsilon("symmetric"),
        },
    )


def minimum_cohorts() -> list[str]:
    """How many reports have epsilon 1."""
    found: dict[str, list[str]] = {}
    for row in rows("mcmillan_figure1/minimum_cohorts"):
        name = row["bound"].split(",")[0] + f", {row['randomizer'].replace('_', ' ')}"
        found.setdefault(name, []).append(f"{row['minimum_cohort']:,}")
    return table(
        ["reports for (1, 1e-6)", "local ε 3", "local ε 6"],
        [[name, *counts] for name, counts in found.items()],
    )


def composition() -> list[str]:
    """How many queries a budget admits."""
    return of_rows(
        [
            row
            for row in rows("mcmillan_composition/queries")
            if _is_power_of_ten(row) and row["cohort"] <= 10**6
        ],
        {
            "encoding": "{encoding}",
            "local ε": "{local_epsilon:g}",
            "reports a query": "{cohort:,}",
            "basic": "{basic:,}",
            "advanced": "{advanced:,}",
            "Rényi": "{renyi:,}",
        },
    )


def trust_models() -> list[str]:
    """The error of one histogram under every trust model."""
    found: dict[str, list[str]] = {}
    sizes = []
    for row in rows("mcmillan_trust_models/errors"):
        low, high = row["error_low"], row["error_high"]
        shown = f"{row['error']:.3g} ({low:.3g}–{high:.3g})"
        found.setdefault(row["model"], []).append(shown)
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
            for name, errors in found.items()
        ],
    )


def cost() -> list[str]:
    """What a query costs, a step at a time."""
    firsts = ("donate events", "take the events")
    return of_rows(
        rows("benchmark_statistics/cost"),
        {
            "devices": lambda row: (
                "{devices}, {number:,}, {cells:,} cells".format(**row)
                if row["step"] in firsts
                else ""
            ),
            "step": "{step}",
            "processor time": "{cpu_seconds:.2f} s",
            "a device": "{microseconds_a_device:.3g} µs",
            "peak memory": lambda row: (
                f"{row['peak_gib']:.2f} GiB" if row["step"] == "all" else ""
            ),
        },
    )


_WAYS = ("interactive", "interactive, one report a device", "static")
_NAMES = {
    "ngrams": "of the top 100 3-grams",
    "joint": "of the top 100 pairs of age and 3-gram",
    "distribution": "largest error of the share below a value",
}


def gains() -> list[str]:
    """What each way finds, or its error, at the same total privacy."""
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows("mcmillan_analyses/summary"):
        key = row["analysis"], f"{row['data'].partition(',')[0]}, {row['clients']:,}"
        way = row["approach"]
        if way.startswith("static,"):  # of the grids the best
            way = "static"
            best = found[key].get(way)
            if best and best["largest_error"] <= row["largest_error"]:
                continue
        found.setdefault(key, {})[way] = row
    return table(
        ["found, devices", *_WAYS],
        [
            [f"{_NAMES[analysis]}: {data}", *(_shown(ways[way]) for way in _WAYS)]
            for (analysis, data), ways in found.items()
        ],
    )


def _shown(row: Mapping[str, Any]) -> str:
    if row["analysis"] == "distribution":
        half = (row["largest_error_high"] - row["largest_error_low"]) / 2
        return f"{row['largest_error']:.2%} ± {half:.2%}"
    half = (row["popular_found_high"] - row["popular_found_low"]) / 2
    return f"{row['popular_found']:.1f} ± {half:.1f}"


TABLES = {
    "mcmillan_analyses": gains,
    "mcmillan_figure1": figure1,
    "mcmillan_minimum_cohorts": minimum_cohorts,
    "mcmillan_composition": composition,
    "mcmillan_trust_models": trust_models,
    "benchmark_statistics": cost,
}
