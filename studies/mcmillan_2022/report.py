"""Results of the study of interaction: a summary of its runs, plots, a page."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib
from matplotlib import ticker

from federated_hh.files import tables as tables_lib
from federated_hh.heavy_hitters import evaluation
from federated_hh.reports import plots
from studies import pages, study
from studies.mcmillan_2022 import analyses_options as options_lib

# By analysis: the measure that is compared, and the title of its axis.
MEASURES = {
    "ngrams": ("popular_found", f"of the top {options_lib.TOP} 3-grams found"),
    "joint": (
        "popular_found",
        f"of the top {options_lib.TOP} pairs of age and 3-gram found",
    ),
    "distribution": ("largest_error", "largest error of the share below a value"),
}
_KEYS = ["analysis", "data", "approach"]
_SAME = ["clients", "aggregate_epsilon", "delta", "local_epsilon"]
_MEANS = [
    "queries",
    "cells",
    "found",
    "popular_found",
    "false_found",
    "largest_error",
    "wasserstein",
    "quantile_error",
    "seconds",
]
_NOTE = (
    "All rows of an analysis have the same total cohort aggregate epsilon and delta. "
    "`interactive` asks every device every query, so its local epsilon is larger. With "
    "one report a device, and in `static`, it is that of one report. Intervals (95%, "
    "Student's t) are over repeats with separate noise and samples, on one population. "
    f"Popular are the {options_lib.TOP} 3-grams, or pairs of age and 3-gram, that most "
    "devices hold."
)


def files(title: str, runs: pd.DataFrame) -> dict[str, bytes]:
    """Returns the files of results by name.

    Args:
        title: The title of the page.
        runs: See `AnalysesStudy.run_part`.
    """
    summary = summarize(runs)
    found = {
        "runs.csv": tables_lib.write(runs).encode(),
        "summary.csv": tables_lib.write(summary).encode(),
        study.PAGE: page(title, summary).encode(),
    }
    for analysis in MEASURES:
        found[f"{analysis}.png"] = plots.png(plot(summary, analysis))
    return found


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """Averages the runs of each setting.

    Returns:
        A row a setting: the setting, clients, the privacy in total, repeats, and the
        means of its repeats, each with a 95% Student t interval (`_low`, `_high`).
    """
    runs = runs.reindex(columns=[*dict.fromkeys([*runs.columns, *_MEANS])])
    rows = []
    for _, group in runs.groupby(_KEYS, sort=False):
        repeats = [group.iloc[[i]][["setting", *_MEANS]] for i in range(len(group))]
        row = evaluation.mean_and_interval(
            [table.reset_index(drop=True) for table in repeats], "setting"
        )
        for column in reversed([*_KEYS, *_SAME]):
            row.insert(1, column, group[column].max())
        row.insert(1 + len(_KEYS), "repeats", len(group))
        rows.append(row)
    return pd.concat(rows, ignore_index=True)


def gains(summary: pd.DataFrame, analysis: str) -> pd.DataFrame:
    """Returns the gain of `interactive` over the best static way.

    Args:
        summary: Summary, from `summarize`.
        analysis: One of `MEASURES`.

    Returns:
        A row of data: interactive, static (the best of them), gain: the ratio of what
        is found, or of the errors; empty where static finds nothing.
    """
    measure, _ = MEASURES[analysis]
    rows = []
    for name, group in summary[summary["analysis"] == analysis].groupby(
        "data", sort=False
    ):
        values = group.set_index("approach")[measure]
        static = values[values.index.str.startswith("static")]
        mine = values["interactive"]
        is_error = analysis == "distribution"
        best = static.min() if is_error else static.max()
        ratio = best / mine if is_error else mine / best if best else np.nan
        rows.append({"data": name, "interactive": mine, "static": best, "gain": ratio})
    return pd.DataFrame(rows)


def page(title: str, summary: pd.DataFrame) -> str:
    """Returns the tables as Markdown."""
    parts: list[str | list[str]] = [_NOTE]
    for analysis, (measure, label) in MEASURES.items():
        part = summary[summary["analysis"] == analysis]
        if part.empty:
            continue
        columns: dict[str, pages.Cell] = {
            "devices": lambda row: f"{row['data']}{_devices(row)}",
            "asked": "{approach}",
            "repeats": "{repeats}",
            "queries": "{queries:.3g}",
            "cells": "{cells:,.0f}",
            "local epsilon": "{local_epsilon:.3g}",
            label: functools.partial(_with_interval, measure),
        }
        if analysis == "distribution":
            columns["area between the curves (s)"] = "{wasserstein:.3g}"
            columns["mean relative error of quantiles"] = "{quantile_error:.3g}"
        else:
            columns["found"] = "{found:.3g}"
            columns["held by nobody"] = "{false_found:.3g}"
        gained = []
        for row in gains(summary, analysis).to_dict("records"):
            ratio = "" if np.isnan(row["gain"]) else f", {row['gain']:.2f} times"
            gained.append(
                f"{row['data']}: {row['interactive']:.3g} against "
                f"{row['static']:.3g}{ratio}."
            )
        parts += [
            f"**{analysis}**",
            pages.table(columns, part.to_dict("records"), "ll"),
            "Interactive against the best static way:",
            pages.notes(*gained),
        ]
    epsilon, delta = summary["aggregate_epsilon"].max(), summary["delta"].max()
    parts.append(f"In total: cohort aggregate epsilon {epsilon:g}, delta {delta:.3g}.")
    return pages.page(title, *parts).decode()


def _devices(row: Mapping[str, Any]) -> str:
    is_real = not row["data"].startswith(options_lib.SYNTHETIC)
    return f", {row['clients']:,} devices" if is_real else ""


def _with_interval(column: str, row: Mapping[str, Any]) -> str:
    half = (row[f"{column}_high"] - row[f"{column}_low"]) / 2
    return f"{row[column]:.3g}" + ("" if np.isnan(half) else f" ± {half:.2g}")


def plot(summary: pd.DataFrame, analysis: str) -> figure_lib.Figure:
    """Plots each way's findings, or its error, against the number of devices."""
    measure, label = MEASURES[analysis]
    part = summary[summary["analysis"] == analysis]
    figure, axes = plots.single(
        "The same privacy in total, with and without interaction", "devices", label
    )
    is_synthetic = part["data"].str.startswith(options_lib.SYNTHETIC)
    names = list(dict.fromkeys(part["approach"]))
    for name, color in zip(names, plots.COLORS, strict=False):
        of_way = part[is_synthetic & (part["approach"] == name)].set_index("clients")
        axes.plot(of_way[measure], "o-", color=color, markersize=4, label=name)
        plots.band(axes, of_way[f"{measure}_low"], of_way[f"{measure}_high"], color)
        real = part[~is_synthetic & (part["approach"] == name)]
        axes.plot(real["clients"], real[measure], "s", color=color, fillstyle="none")
    for name, group in part[~is_synthetic].groupby("data", sort=False):
        axes.annotate(
            str(name),
            (group["clients"].iloc[0], group[measure].max()),
            textcoords="offset points",
            xytext=(0, 6),
            ha="center",
            color=plots.MUTED,
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xticks(sorted(set(part[is_synthetic]["clients"])))
    if analysis == "distribution":
        axes.set_yscale("log")
    plots.legend(axes, below=len(names) > 3)
    return figure
