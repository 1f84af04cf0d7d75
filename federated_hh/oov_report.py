"""What a study leaves beside its runs: a summary, a plot, a table for the README."""

import math

import matplotlib.ticker
import numpy as np
import pandas as pd

from federated_hh import alphabet as alphabet_lib
from federated_hh import evaluation, ldp_triehh, ldp_triehh_privacy, oov_studies
from federated_hh.ldp_triehh_parameters import LdpTrieHHParameters
from privacy import statement as statement_lib
from simulation import plots, tables

# Sun et al. 2024, Section 4.1.
_DELTA = 1e-10
_ALPHA = 0.95
_MOST_LEVEL_LABELS = 4  # of the x axis, side by side


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """Averages the runs of each setting over its repeats.

    Args:
        runs: Of `oov_studies.StudyResults`.

    Returns:
        A row a setting, in the order of `runs`, of the state after the last pass: the
        parameters, repeats, and words_found, words_real, coverage, estimated_coverage
        and standard_error, each with a 95% Student t interval (`_low`, `_high`).
    """
    last = runs[runs["pass_number"] == runs["num_passes"]]
    rows = []
    for name, group in last.groupby("setting", sort=False):
        columns = ["words_found", "words_real", "coverage", "estimated_coverage"]
        of_repeats = [
            pd.DataFrame({"setting": [name], **{c: [row[c]] for c in columns}})
            for row in group.to_dict("records")
        ]
        row = evaluation.mean_and_interval(of_repeats, "setting")
        row.insert(1, "repeats", len(group))
        for column in ("epsilon", "sampler", "num_passes", "clients_per_level"):
            row[column] = group[column].iloc[0]
        row["paper_coverage"] = group["paper_coverage"].astype(float).iloc[0]
        row["seconds"] = group["seconds"].mean()
        rows.append(row)
    return pd.concat(rows, ignore_index=True)


def files_of(
    title: str,
    results: oov_studies.StudyResults,
    summary: pd.DataFrame,
    notes: list[str],
) -> dict[str, bytes]:
    """Returns the files that every study leaves, by name.

    Args:
        title: Of the study.
        results: Of its runs.
        summary: From `summarize`.
        notes: See `to_markdown`.
    """
    is_curve = summary["epsilon"].nunique() == len(summary) > 1
    plot = plot_epsilons if is_curve else plot_settings
    return {
        "runs.csv": tables.write(results.runs).encode(),
        "levels.csv": tables.write(results.levels).encode(),
        "summary.csv": tables.write(summary).encode(),
        "table.md": to_markdown(title, summary, notes).encode(),
        "coverage.png": plot(title, summary),
    }


def to_markdown(title: str, summary: pd.DataFrame, notes: list[str]) -> str:
    """Returns the table of a study as Markdown.

    Args:
        title: Its heading.
        summary: From `summarize`.
        notes: What to know about it: the population, the command, the code.
    """
    lines = [
        f"### {title}",
        "",
        "| setting | clients a level | repeats | words found | real | "
        "true coverage (95%) | estimated | paper |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in summary.itertuples():
        paper = "" if math.isnan(row.paper_coverage) else f"{row.paper_coverage:.1%}"
        interval = ""
        if not math.isnan(row.coverage_low):
            half = (row.coverage_high - row.coverage_low) / 2
            interval = f" ± {half:.2%}"
        lines.append(
            f"| {row.setting} | {row.clients_per_level:,} | {row.repeats} | "
            f"{row.words_found:,.0f} | "
            f"{row.words_real:,.0f} | {row.coverage:.2%}{interval} | "
            f"{row.estimated_coverage:.2%} | {paper} |"
        )
    lines += ["", *[f"* {note}" for note in notes]]
    return "\n".join(lines) + "\n"


def privacy_files(
    parameters: LdpTrieHHParameters,
    alphabet: alphabet_lib.Alphabet,
    levels: pd.DataFrame,
) -> dict[str, bytes]:
    """Returns what the production setting guaranteed, beside what the paper states.

    Args:
        parameters: Of the production setting.
        alphabet: Of its words.
        levels: A row a level of each repeat; see `oov_studies.run_part`.

    Returns:
        Files by name: a table, and a page with it and the statement.
    """
    # How many more clients there are makes no difference to what is guaranteed.
    plan = ldp_triehh.plan_of(parameters, parameters.clients_needed)
    statement = plan.statement(oov_studies.record_of(levels), _DELTA)
    anonymity, text = ldp_triehh_privacy.anonymity_of(
        parameters, alphabet, levels, _ALPHA
    )
    rows = [_guarantee_row(found, parameters) for found in statement.guarantees]
    rows += [
        {
            "guarantee": f"approximate k-anonymity, alpha {_ALPHA:g}: {found.name}",
            "here": "none" if math.isnan(found.k) else f"k = {int(found.k)}",
            "paper": "k = 45 by Lemma 1",
        }
        for found in anonymity.itertuples()
    ]
    table = pd.DataFrame(rows)
    lines = [
        "### What the production setting guaranteed",
        "",
        "| guarantee | here | paper |",
        "|---|---|---|",
        *[
            f"| {row.guarantee} | {row.here} | {row.paper} |"
            for row in table.itertuples()
        ],
        "",
        text,
        "",
        *statement.to_markdown().splitlines()[4:],
    ]
    return {
        "guarantees.csv": tables.write(table.replace("", None)).encode(),
        "privacy.md": ("\n".join(lines) + "\n").encode(),
    }


def _guarantee_row(
    found: statement_lib.Guarantee, parameters: LdpTrieHHParameters
) -> dict[str, str]:
    paper = ""
    if found.unit == "item":
        if found.delta == 0 and found.epsilon == parameters.epsilon:
            paper = "epsilon 10"
        if found.bound.startswith("clones"):
            paper = "epsilon 0.315 (same bound, from a coarser computation)"
    epsilon, estimate = f"{found.epsilon:.4g}", " (no proved upper bound)"
    if found.is_upper_bound:  # rounded upwards, it stays one
        epsilon, estimate = f"{math.ceil(found.epsilon * 1e4) / 1e4:g}", ""
    alone = "Of one repeat alone." in found.assumptions
    return {
        "guarantee": f"{found.unit} level: {found.bound}"
        + ("; of one repeat" if alone else ""),
        "here": f"epsilon {epsilon}, delta {found.delta:.3g}{estimate}",
        "paper": paper,
    }


def plot_settings(title: str, summary: pd.DataFrame) -> bytes:
    """Plots the coverage of each setting beside the paper's; returns a PNG."""
    figure, axes = plots.single(title, "", "coverage")
    places = np.arange(len(summary))
    _points(axes, places, summary)
    if summary["paper_coverage"].notna().any():
        axes.plot(
            places,
            summary["paper_coverage"],
            linestyle="none",
            marker="D",
            color=plots.ORANGE,
            label="Sun et al. 2024",
        )
    crowded = len(summary) > _MOST_LEVEL_LABELS
    axes.set_xticks(places, summary["setting"], rotation=20 if crowded else 0)
    axes.set_xlim(-0.5, len(summary) - 0.5)
    _finish(axes)
    return plots.png(figure)


def plot_epsilons(title: str, summary: pd.DataFrame) -> bytes:
    """Plots coverage over the local epsilon; returns a PNG."""
    figure, axes = plots.single(title, "local epsilon", "coverage")
    epsilons = summary["epsilon"].astype(float)
    finite = np.isfinite(epsilons)
    axes.plot(epsilons[finite], summary["coverage"][finite], color=plots.BLUE, lw=1)
    _points(axes, epsilons[finite], summary[finite])
    for value in summary["coverage"][~finite]:
        axes.axhline(
            value, color=plots.BLUE, linestyle=":", label="here, no local privacy"
        )
    axes.plot(
        epsilons[finite],
        summary["paper_coverage"][finite],
        linestyle="none",
        marker="D",
        color=plots.ORANGE,
        label="Sun et al. 2024 (Table 1)",
    )
    _finish(axes)
    return plots.png(figure)


def _points(axes, places, summary: pd.DataFrame) -> None:
    half = (summary["coverage_high"] - summary["coverage_low"]) / 2
    axes.plot(
        places,
        summary["coverage"],
        linestyle="none",
        marker="o",
        color=plots.BLUE,
        label="here" if half.isna().all() else "here, 95% interval",
    )
    # A single repeat has no interval.
    known = half.notna().to_numpy()
    axes.errorbar(
        np.asarray(places)[known],
        summary["coverage"][known],
        yerr=half[known],
        fmt="none",
        color=plots.BLUE,
        capsize=4,
    )


def _finish(axes) -> None:
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1, decimals=0))
    axes.legend(frameon=False, labelcolor=plots.INK)
