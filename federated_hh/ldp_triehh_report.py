"""What an LDP TrieHH run leaves: tables, plots, and the page that holds them."""

import dataclasses

import numpy as np
import pandas as pd

from federated_hh import ldp_triehh
from federated_hh.ldp_triehh_results import Results
from privacy import statement as statement_lib
from simulation import plots, report, run_directory

_NUM_SHOWN = 30  # words in the report
_NUM_ERROR_BARS = 150
_LIMIT = 1.96  # standard errors of a 95% interval
# Columns of the words found that the simulator adds.
_TRUTH = ["expected_holders", "true_count", "real"]


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """What the report says beside the results.

    Attributes:
        algorithm: What was run.
        statement: The privacy statement.
        anonymity: A row for each way to evaluate approximate k-anonymity; without
            rows where there is none.
        anonymity_text: What to know about it, Markdown.
    """

    algorithm: ldp_triehh.LdpTrieHH
    statement: statement_lib.PrivacyStatement
    anonymity: pd.DataFrame
    anonymity_text: str


def write(
    directory: run_directory.RunDirectory, results: Results, summary: RunSummary
) -> None:
    """Writes the tables, plots, privacy statement and report of a run."""
    directory.released.write_table(
        "heavy_hitters.csv", results.words.drop(columns=_TRUTH)
    )
    directory.released.write_table("anonymity.csv", summary.anonymity)
    directory.write_statement(summary.statement)
    directory.simulator.write_table("heavy_hitters.csv", results.words)
    directory.simulator.write_table("levels.csv", results.levels)
    directory.simulator.write_table("coverage.csv", results.repeats)
    figures = {
        "coverage.png": plot_coverage(results),
        "levels.png": plot_levels(results.levels, directory.metrics()),
        "estimates.png": plot_estimates(results.words),
    }
    for name, png in figures.items():
        directory.simulator.write_bytes(name, png)
    directory.write_report(_page(directory, results, summary, list(figures.values())))


def _page(
    directory: run_directory.RunDirectory,
    results: Results,
    summary: RunSummary,
    figures: list[bytes],
) -> str:
    privacy = summary.statement.to_markdown().partition("\n")[2]
    sections = [
        report.Section(
            "The run",
            _summary_text(directory.metrics(), results, summary.algorithm),
            covered=False,
        ),
        _coverage_section(results, figures[0]),
        report.Section(
            "Level by level",
            "Ties with the last of the kept prefixes are kept, so there can be more of "
            "them than the maximum. Where the weakest one's estimate is within the "
            "noise, most of the kept prefixes are noise; noise that happens to end "
            "counts as a word found that is not real.",
            figures=[report.Figure("Words, prefixes and noise by level", figures[1])],
            covered=False,
        ),
        _words_section(results, figures[2]),
        report.Section("Privacy", privacy.replace("\n## ", "\n### "), covered=True),
        report.Section(
            "Approximate k-anonymity",
            summary.anonymity_text,
            [report.Table("", summary.anonymity)] if len(summary.anonymity) else [],
            covered=True,
        ),
        report.Section(
            "How it was made", run_directory.how_it_was_made(directory), covered=True
        ),
    ]
    return report.render("LDP TrieHH", f"Run of {directory.run['started']}", sections)


def _summary_text(
    metrics: pd.DataFrame, results: Results, algorithm: ldp_triehh.LdpTrieHH
) -> str:
    parameters, population = algorithm.parameters, algorithm.population
    last = results.coverage.iloc[-1]
    repeats = results.repeats["repeat"].nunique()
    seconds = metrics["seconds"].sum()
    return (
        f"{population.num_clients:,} clients with {population.num_words:,} distinct "
        f"words in {population.num_entries:,} entries; {parameters.num_passes} "
        f"pass(es) of {parameters.max_depth} levels, "
        f"{parameters.clients_per_level:,} clients each, "
        f"{parameters.clients_needed:,} in all and none of them twice; "
        f"{parameters.contribution_bound} reports a client of "
        f"{algorithm.plan.contribution.name or 'Subset Selection'} with epsilon "
        f"{parameters.epsilon:g}, `{parameters.sampler.value}` sampler, at most "
        f"{parameters.max_prefixes:,} prefixes a level (and ties); reports sampled "
        f"`{algorithm.report_sampling.value}`, aggregation "
        f"`{algorithm.aggregation.value}`; {repeats} repeat(s). "
        f"{last['words_found']:,.0f} words were found a repeat, "
        f"{last['words_real']:,.0f} of them real, which make up "
        f"{last['coverage']:.1%} of what the clients typed. Levels took {seconds:.1f} "
        "s in all."
    )


def _coverage_section(results: Results, figure: bytes) -> report.Section:
    text = (
        "Coverage: what clients typed of the words found, over all that they typed. "
        "`coverage` is the truth in the whole population. `low`, `high`: 95% intervals "
        "over the repeats. "
    )
    if results.counting_clients:
        text += (
            "`estimated coverage` is the paper's counting task: "
            f"{results.counting_clients:,} clients who took part in no level count "
            "what they typed. `standard error` says how far a single such estimate is "
            "off, as its clients are a sample. Their counts carry no local privacy."
        )
    else:
        text += (
            "There is no estimate by the counting task: no client was left for it "
            "beside the cohorts, or --counting_clients is 0."
        )
    return report.Section(
        "Coverage",
        text,
        [report.Table("Means over the repeats, by pass", results.coverage)],
        [report.Figure("Coverage, level by level", figure)],
        covered=False,
    )


def _words_section(results: Results, figure: bytes) -> report.Section:
    text = (
        "The words of the first repeat with the largest estimates. `estimate` is "
        "debiased: of how many clients of the level's cohort the word was an item that "
        "they reported on. `expected holders` is how many clients of such a cohort "
        "have the word; the estimate is of fewer where clients have more words than "
        "they may report on. Of words near the threshold those are found whose noise "
        "was positive, so weak estimates are too large. `true count` and `real` are "
        "the simulator's ground truth, which no guarantee covers."
    )
    first = results.words[results.words["repeat"] == 0].drop(columns="repeat")
    real = first[first["real"]].head(_NUM_SHOWN)
    false = first[~first["real"]].head(5)
    return report.Section(
        "Words found",
        text,
        [
            report.Table("Real words", real),
            report.Table(
                f"Not real: {(~first['real']).sum():,} in all, the first of them", false
            ),
        ],
        [report.Figure("Estimated and true counts", figure)],
        covered=False,
    )


def plot_coverage(results: Results) -> bytes:
    """Plots true coverage by level and its estimates by pass; returns a PNG."""
    figure, axes = plots.single(
        "Coverage of what clients typed", "level, all passes", "coverage"
    )
    depth = results.levels["level"].max()
    levels = results.levels.assign(
        step=lambda t: (t["pass_number"] - 1) * depth + t["level"]
    )
    by_step = levels.groupby("step")["coverage"]
    axes.plot(by_step.mean(), color=plots.BLUE, label="true")
    axes.fill_between(
        by_step.mean().index,
        by_step.min(),
        by_step.max(),
        color=plots.BLUE,
        alpha=0.2,
        lw=0,
    )
    estimates = results.repeats.dropna(subset="estimated_coverage")
    if len(estimates):
        axes.errorbar(
            estimates["pass_number"] * depth,
            estimates["estimated_coverage"],
            yerr=_LIMIT * estimates["standard_error"],
            fmt="o",
            markersize=4,
            color=plots.ORANGE,
            capsize=3,
            label="estimated by the counting task",
        )
    for number in range(1, results.levels["pass_number"].max()):
        axes.axvline(number * depth + 0.5, color=plots.MUTED, linestyle=":", lw=1)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, labelcolor=plots.INK)
    return plots.png(figure)


def plot_levels(levels: pd.DataFrame, metrics: pd.DataFrame) -> bytes:
    """Plots words, prefixes and noise by level, means of the repeats; returns a PNG."""
    figure, panels = plots.stacked(
        [
            "Words found",
            "Prefixes kept",
            "Weakest prefix kept, and the noise",
        ],
        "level, all passes",
    )
    depth = levels["level"].max()
    words = levels.assign(step=(levels["pass_number"] - 1) * depth + levels["level"])
    words = words.groupby("step")[["words_found", "words_real"]].mean()
    false = words["words_found"] - words["words_real"]
    panels[0].bar(words.index, words["words_real"], color=plots.BLUE, label="real")
    panels[0].bar(
        words.index, false, bottom=words["words_real"], color=plots.ORANGE, label="not"
    )
    panels[0].legend(frameon=False, labelcolor=plots.INK)
    steps = metrics.assign(step=(metrics["pass_number"] - 1) * depth + metrics["level"])
    steps = steps.groupby("step").mean()
    panels[1].bar(steps.index, steps["prefixes_kept"], color=plots.BLUE)
    for column, label, color in (
        ("least_estimate_kept", "estimated clients", plots.BLUE),
        ("noise_standard_deviation", "standard deviation of noise", plots.ORANGE),
    ):
        panels[2].plot(steps[column], color=color, marker="o", ms=3, label=label)
    panels[2].legend(frameon=False, labelcolor=plots.INK)
    return plots.png(figure)


def plot_estimates(words: pd.DataFrame) -> bytes:
    """Plots estimated over expected counts, with error bars; returns a PNG."""
    figure, axes = plots.single(
        "Estimated and true counts of the words found",
        "clients of a cohort that hold the word (expected)",
        "estimated clients",
    )
    real = words[words["real"]].sort_values("expected_holders", kind="stable")
    if len(real):
        places = np.linspace(0, len(real) - 1, min(len(real), _NUM_ERROR_BARS))
        shown = real.iloc[np.unique(places.astype(int))]
        axes.errorbar(
            shown["expected_holders"],
            shown["estimate"],
            yerr=_LIMIT * shown["standard_error"],
            fmt="o",
            markersize=3,
            elinewidth=0.7,
            color=plots.BLUE,
            label=f"{len(shown):,} of {len(real):,} real words, 95% intervals",
        )
        holders = shown["expected_holders"]
        equal = np.geomspace(holders.min(), holders.max(), 200)
        axes.plot(equal, equal, color=plots.ORANGE, linestyle="--", label="equal")
        axes.set_xscale("log")
        # Estimates can be negative, and their error bars reach below zero.
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(bottom=min(0.0, shown["estimate"].min()))
        axes.legend(frameon=False, labelcolor=plots.INK)
    return plots.png(figure)
