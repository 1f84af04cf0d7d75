"""Results of a study of coverage: a summary of its runs, a plot, a page."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.files import tables as tables_lib
from federated_hh.heavy_hitters import evaluation
from federated_hh.reports import plots
from studies import pages, study

_MOST_LEVEL_LABELS = 4  # of the x axis, side by side
# Of a setting: see `federated_hh.heavy_hitters.ldp_triehh.results.Results`.
_MEANS = (
    "words_found",
    "words_real",
    "coverage",
    "estimated_coverage",
    "words_released",
    "released_real",
    "released_coverage",
    "expected_false",
)


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """Averages the runs of each setting over its repeats.

    Args:
        runs: See `coverage_study.CoverageStudy.run_part`.

    Returns:
        A row a setting, in the order of `runs`, of the state after the last pass: the
        parameters, repeats, and the `_MEANS` of its repeats, each with a 95% Student t
        interval (`_low`, `_high`).
    """
    last = runs[runs["pass_number"] == runs["num_passes"]]
    rows = []
    for name, group in last.groupby("setting", sort=False):
        of_repeats = [
            pd.DataFrame({"setting": [name], **{c: [row[c]] for c in _MEANS}})
            for row in group.to_dict("records")
        ]
        row = evaluation.mean_and_interval(of_repeats, "setting")
        row.insert(1, "repeats", len(group))
        for column in ("epsilon", "sampler", "num_passes", "cohort_size"):
            row[column] = group[column].iloc[0]
        row["paper_coverage"] = group["paper_coverage"].astype(float).iloc[0]
        if "held_out_coverage" in group:
            row["held_out_coverage"] = group["held_out_coverage"].astype(float).mean()
        row["seconds"] = group["seconds"].mean()
        rows.append(row)
    return pd.concat(rows, ignore_index=True)


def files(title: str, tables: study.Tables, notes: Sequence[str]) -> dict[str, bytes]:
    """Returns the files of a study of coverage by name.

    Args:
        title: The title of the study.
        tables: The tables of its runs: see `coverage_study.CoverageStudy.run_part`.
        notes: See `to_markdown`.
    """
    summary = summarize(tables["runs"])
    return {
        "runs.csv": tables_lib.write(tables["runs"]).encode(),
        "levels.csv": tables_lib.write(tables["levels"]).encode(),
        "summary.csv": tables_lib.write(summary).encode(),
        study.PAGE: to_markdown(title, summary, notes).encode(),
        "coverage.png": plot(title, summary),
    }


def to_markdown(title: str, summary: pd.DataFrame, notes: Sequence[str]) -> str:
    """Returns the table of a study as Markdown.

    Args:
        title: Its heading.
        summary: Summary, from `summarize`.
        notes: Notes on it, a sentence or more each.
    """
    columns: dict[str, pages.Cell] = {
        "setting": "{setting}",
        "clients a level": "{cohort_size:,}",
        "repeats": "{repeats}",
        "words found (real)": "{words_found:,.0f} ({words_real:,.0f})",
        "true coverage (95%)": _coverage,
        "estimated": "{estimated_coverage:.2%}",
        "words above the cut (real)": "{words_released:,.0f} ({released_real:,.0f})",
        "their coverage": "{released_coverage:.2%}",
        "paper": lambda row: _percent(row["paper_coverage"], 1),
    }
    if "held_out_coverage" in summary:
        columns["words found, of other clients"] = lambda row: _percent(
            row["held_out_coverage"], 2
        )
    table = pages.table(columns, summary.to_dict("records"))
    return pages.page(title, table, pages.notes(*notes)).decode()


def _coverage(row: Mapping[str, Any]) -> str:
    half = _percent((row["coverage_high"] - row["coverage_low"]) / 2, 2)
    return f"{row['coverage']:.2%}" + (half and f" ± {half}")


def _percent(share: float, digits: int) -> str:
    return "" if math.isnan(share) else f"{share:.{digits}%}"


def plot(title: str, summary: pd.DataFrame) -> bytes:
    """Plots the coverage of each setting beside the paper's; returns a PNG.

    Args:
        title: The title of the plot.
        summary: From `summarize`. If settings differ in epsilon, it is the x axis.
    """
    epsilons = summary["epsilon"].to_numpy(float)
    is_curve = len(set(epsilons)) == len(epsilons) > 1
    label = "local epsilon" if is_curve else ""
    figure, axes = plots.single(title, label, "coverage")
    if is_curve:
        is_point = np.isfinite(epsilons)
        places, points = epsilons[is_point], summary[is_point]
        axes.plot(places, points["coverage"], color=plots.BLUE, lw=1)
        for value in summary["coverage"][~is_point]:
            axes.axhline(
                value, color=plots.BLUE, linestyle=":", label="here, no local privacy"
            )
    else:
        places, points = np.arange(len(summary)), summary
        slanted = len(summary) > _MOST_LEVEL_LABELS
        axes.set_xticks(
            places,
            summary["setting"],
            rotation=20 if slanted else 0,
            horizontalalignment="right" if slanted else "center",
            rotation_mode="anchor" if slanted else "default",
        )
        axes.set_xlim(-0.5, len(summary) - 0.5)
    _points(axes, places, points)
    axes.set_ylim(0, 1)
    plots.in_percent(axes.yaxis, decimals=0)
    axes.legend(frameon=False, labelcolor=plots.INK)
    return plots.png(figure)


def _points(axes, places: np.ndarray, points: pd.DataFrame) -> None:
    """Draws the coverage here, with intervals where there are any, and the paper's."""
    half = ((points["coverage_high"] - points["coverage_low"]) / 2).to_numpy()
    known = ~np.isnan(half)
    axes.errorbar(
        places,
        points["coverage"],
        yerr=np.where(known, half, 0.0) if known.any() else None,
        fmt="o",
        color=plots.BLUE,
        capsize=4,
        label="here, 95% interval" if known.any() else "here",
    )
    if points["paper_coverage"].notna().any():
        axes.plot(
            places,
            points["paper_coverage"],
            linestyle="none",
            marker="D",
            color=plots.ORANGE,
            label="Sun et al. 2024",
        )
