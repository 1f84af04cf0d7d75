"""The report of an LDP TrieHH run: its tables, plots and page."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.heavy_hitters import coverage as coverage_lib
from federated_hh.heavy_hitters import found_words
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import results as ldp_triehh_results
from federated_hh.heavy_hitters.ldp_triehh.results import Results
from federated_hh.privacy import statement as statement_lib
from federated_hh.privacy.triehh import wanted_detection as detection
from federated_hh.reports import page, plots
from federated_hh.run_directory import directory as run_directory

_NUM_SHOWN = 1000  # words in the report
_NUM_ERROR_BARS = 150
_LIMIT = 1.96  # standard errors of a 95% interval
# Columns of the words found that the simulator adds.
_TRUTH = ["expected_holders", "true_count", "real"]
# What the report shows of each level.
_LEVEL_COLUMNS = [
    "candidates",
    "prefixes_kept",
    "prefixes_in_noise",
    "words_found",
    "words_released",
    "expected_false_words",
]


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """The report's contents besides the results.

    Attributes:
        algorithm: Algorithm that was run.
        statement: The privacy statement.
        anonymity: A row for each way to evaluate approximate k-anonymity; without
            rows where there is none.
        anonymity_text: Explanation, Markdown.
        findable: Words that can be found, known before the run: `detection.rows`.
        at_length: Returns the setting that finds words of so many characters.
    """

    algorithm: ldp_triehh.LdpTrieHH
    statement: statement_lib.PrivacyStatement
    anonymity: pd.DataFrame
    anonymity_text: str
    findable: Sequence[dict[str, Any]]
    at_length: Callable[[int], detection.Alternative]


def write(
    directory: run_directory.RunDirectory, results: Results, summary: RunSummary
) -> page.Summary:
    """Writes the tables, plots, privacy statement and report of a run.

    Returns:
        What the run comes to.
    """
    metrics = directory.metrics()
    report = page.Page(directory, "LDP TrieHH")
    report.summary(
        _found(results),
        advice=detection.advice(
            summary.findable,
            is_all=_is_all(results, summary.algorithm),
            held=_held(results, summary),
        ),
        next_command="federated_hh.compare {run} ANOTHER_RUN",
    )
    first = _add_words(report, results.words)
    coverage = report.section("Coverage", covered=False)
    coverage.plot("coverage.png", plot_coverage(results))
    coverage.text(_coverage_text(results.counting_clients))
    means = results.coverage.set_index("pass_number")
    means = means.rename(columns={"released_estimate": "released estimated coverage"})
    of_released = means.columns.str.contains("released|expected")
    caption = "Of the words released: means over the repeats, by pass"
    coverage.show(means.loc[:, of_released].reset_index(), caption)
    caption = "Of all words that Algorithm 2 finds, noise among them"
    coverage.show(means.loc[:, ~of_released].reset_index(), caption)
    coverage.file("coverage.csv", results.repeats)
    levels = report.section("Level by level", covered=False)
    levels.plot("levels.png", plot_levels(results.levels, metrics))
    levels.text(
        "Ties with the last of the kept prefixes are kept, so there can be more of "
        "them than the maximum. Where the weakest one's estimate is within the "
        "noise, most of the kept prefixes are noise: `prefixes in noise` are those "
        "with an estimate below 3 standard errors. They stay, as the algorithm has "
        "it; noise that happens to end counts as a word found that is not real. "
        "`expected false words`: how many candidates for a word that nobody of the "
        "level's cohort reports on are released on average, at most. Each report "
        "speaks for such a candidate with the same probability, so that the law of "
        "its votes is known."
    )
    means = metrics.groupby(["pass_number", "level"])[_LEVEL_COLUMNS].mean()
    levels.show(means.reset_index(), "Means over the repeats")
    levels.file("levels.csv", results.levels)
    _add_truth(report, results.words, first)
    before = report.section("What can be found", covered=False)
    before.text(_findable_text(summary))
    before.table("detectable.csv", pd.DataFrame(summary.findable))
    report.statement(summary.statement)
    anonymity = report.section("Approximate k-anonymity", covered=True)
    anonymity.text(summary.anonymity_text).file("anonymity.csv", summary.anonymity)
    if len(summary.anonymity):
        anonymity.show(summary.anonymity)
    report.section("The run", covered=False).text(
        _summary_text(metrics, results, summary.algorithm)
    )
    report.how_it_was_made()
    return report.write()


def _released(results: Results) -> set[str]:
    """Returns the words that the first repeat released."""
    words = results.words
    return set(words[words["released"] & (words["repeat"] == 0)]["word"])


def _held(results: Results, summary: RunSummary) -> detection.HeldWords:
    """Returns the clients' words, and those that the first repeat released."""
    population, released = summary.algorithm.population, _released(results)
    holders = coverage_lib.WordTotals.of(population).holders
    order = np.argsort(-holders, kind="stable")[: np.count_nonzero(holders)]
    words = [population.word(i) for i in order]
    return detection.HeldWords(
        words,
        holders[order] / population.num_clients,
        np.array([word in released for word in words], bool),
        summary.algorithm.parameters.max_depth,
        summary.at_length,
    )


def _is_all(results: Results, algorithm: ldp_triehh.LdpTrieHH) -> bool:
    """Returns whether the first repeat released all words that can be completed."""
    released = _released(results)
    lengths = range(
        ldp_triehh_results.LEAST_CHARACTERS, algorithm.parameters.max_depth + 1
    )
    held = algorithm.population.words.to_pylist()
    return released.issuperset(word for word in held if len(word) in lengths)


def _found(results: Results) -> str:
    """Returns a sentence or two on the released words and their coverage."""
    last = results.coverage.iloc[-1]
    words = results.words
    best = words["real"] & words["released"] & (words["repeat"] == 0)
    best &= words["level"] >= ldp_triehh_results.LEAST_CHARACTERS
    real = words[best]["word"].head(10)
    names = f", first of all {', '.join(real)}" if len(real) else ""
    estimate = last["released_estimate"]
    estimated = "" if math.isnan(estimate) else f" (estimated: {estimate:.1%})"
    left_out = round(last["words_found"] - last["words_released"])
    more = (
        f" Left out, as they may be noise: {found_words.counted(left_out)}."
        if left_out
        else ""
    )
    return (
        f"{found_words.counted(round(last['words_released']))} found{names}. "
        f"Clients hold {last['released_real']:,.0f} of them "
        f"({found_words.false_words(last['expected_false'])} were expected to be "
        f"false), which are {last['released_coverage']:.1%} of what clients "
        f"typed{estimated}.{more}"
    )


def _summary_text(
    metrics: pd.DataFrame, results: Results, algorithm: ldp_triehh.LdpTrieHH
) -> str:
    parameters, population = algorithm.parameters, algorithm.population
    repeats = results.repeats["repeat"].nunique()
    seconds = metrics["seconds"].sum()
    return (
        f"{population.num_clients:,} clients with {population.num_words:,} distinct "
        f"words in {population.num_entries:,} entries; {parameters.num_passes} "
        f"pass(es) of {parameters.max_depth} levels, "
        f"{parameters.cohort_size:,} clients each, "
        f"{parameters.clients_needed:,} in all and none of them twice; "
        f"{parameters.contribution_bound} reports a client of "
        f"{algorithm.plan.contribution.name or 'Subset Selection'} with epsilon "
        f"{parameters.epsilon:g}, `{parameters.sampler.value}` sampler, at most "
        f"{parameters.max_prefixes:,} prefixes a level (and ties); reports sampled "
        f"`{algorithm.report_sampling.value}`, aggregation "
        f"`{algorithm.aggregation.value}`; {repeats} repeat(s). "
        f"{_words_text(results.coverage.iloc[-1], parameters.min_standard_errors)} "
        f"Levels took {seconds:.1f} s in all."
    )


def _words_text(last: pd.Series, cut: float) -> str:
    """Returns the state after the last pass, in a sentence or two."""
    found = (
        f"{last['words_found']:,.0f} words were found a repeat, "
        f"{last['words_real']:,.0f} of them real, which make up {last['coverage']:.1%} "
        "of what the clients typed."
    )
    expected = found_words.false_words(last["expected_false"])
    if not cut:
        return (
            f"{found} None is left out for its noise (--min_standard_errors=0): "
            f"{expected} are expected to be noise."
        )
    released, real = last["words_released"], last["released_real"]
    precision = f" ({real / released:.1%})" if released else ""
    return (
        f"{found} Released are those whose estimate is at least {cut:g} of its "
        f"standard errors: {released:,.0f}, {real:,.0f} of them real{precision}, with "
        f"{last['released_coverage']:.1%} of what the clients typed; {expected} are "
        "expected to be noise. Leaving words out is post-processing: it costs no "
        "privacy."
    )


def _findable_text(summary: RunSummary) -> str:
    return (
        f"Known before the run. {detection.sentences(summary.findable)} That is for a "
        "word that shares no prefix with another, as if all that competes with it for "
        "the places of a level were noise: a word whose prefixes others share needs "
        "fewer holders, and where people share more prefixes than a level keeps, words "
        "need more. A holder reports on it with the chance of an average word of an "
        "average client."
    )


def _coverage_text(counting_clients: int) -> str:
    text = (
        "Coverage: what clients typed of the words, over all that they typed. "
        "`coverage` is the truth in the whole population. `low`, `high`: 95% intervals "
        "over the repeats. `expected false` is the most that the words released are "
        "expected to have of words that nobody of a cohort reported on. Words of one "
        "character are left out of all counts, and of what clients typed: the first "
        "level starts from all characters, and may keep every one that ends. "
    )
    if not counting_clients:
        return text + (
            "There is no estimate by the counting task: no client was left for it "
            "beside the cohorts, or --counting_clients is 0."
        )
    return text + (
        "`estimated coverage` is the paper's counting task: "
        f"{counting_clients:,} clients who took part in no level count "
        "what they typed. `standard error` says how far a single such estimate is "
        "off, as its clients are a sample. Their counts carry no local privacy."
    )


def _add_words(report: page.Page, words: pd.DataFrame) -> pd.DataFrame:
    """Adds the released words, and returns those of the first repeat."""
    section = report.section("Words released", covered=True)
    section.text(
        "The words released in the first repeat with the largest estimates. "
        "`estimate` is "
        "debiased: of how many clients of the level's cohort the word was an item that "
        "they reported on."
    )
    released = words[words["released"]].drop(columns="released")
    first = released[released["repeat"] == 0].drop(columns="repeat")
    section.table(
        "heavy_hitters.csv",
        released.drop(columns=_TRUTH),
        shown=first.drop(columns=_TRUTH).head(_NUM_SHOWN),
    )
    section.tree(first["word"].tolist())
    return first


def _add_truth(report: page.Page, words: pd.DataFrame, first: pd.DataFrame) -> None:
    """Adds the released words' true counts.

    Args:
        report: Receives the section.
        words: All words of all repeats.
        first: Released words of the first repeat.
    """
    truth = report.section("Words against the truth", covered=False)
    truth.plot("estimates.png", plot_estimates(words))
    truth.text(
        "`expected holders` is how many clients of a level's cohort "
        "have the word; the estimate is of fewer where clients have more words than "
        "they may report on. Of words near the threshold those are found whose noise "
        "was positive, so weak estimates are too large. "
        "`simulator/heavy_hitters.csv` has the words left out too, as not `released`."
    )
    truth.file("heavy_hitters.csv", words)
    shown = ["word", "level", "estimate", *_TRUTH[:-1]]
    real, false = first[first["real"]], first[~first["real"]]
    truth.show(real[shown].head(_NUM_SHOWN), "Real words")
    truth.show(
        false[shown].head(5), f"Not real: {len(false):,} in all, the first of them"
    )


def plot_coverage(results: Results) -> figure_lib.Figure:
    """Plots true coverage by level and its estimates by pass."""
    figure, axes = plots.single(
        "Coverage of what clients typed", "level, all passes", "coverage"
    )
    by_round = results.levels.groupby("round")
    for column, label, color in (
        ("coverage", "all words found", plots.GREEN),
        ("released_coverage", "words released", plots.BLUE),
    ):
        axes.plot(by_round[column].mean(), color=color, label=label)
        plots.band(axes, by_round[column].min(), by_round[column].max(), color)
    depth = results.levels["level"].max()
    estimates = results.repeats.dropna(subset="released_estimate")
    if len(estimates):
        axes.errorbar(
            estimates["pass_number"] * depth,
            estimates["released_estimate"],
            yerr=_LIMIT * estimates["released_standard_error"],
            fmt="o",
            markersize=4,
            color=plots.ORANGE,
            capsize=3,
            label="estimated by the counting task",
        )
    for number in range(1, results.levels["pass_number"].max()):
        axes.axvline(number * depth + 0.5, color=plots.MUTED, linestyle=":", lw=1)
    axes.set_ylim(bottom=0)
    plots.in_percent(axes.yaxis)
    plots.legend(axes)
    return figure


def plot_levels(levels: pd.DataFrame, metrics: pd.DataFrame) -> figure_lib.Figure:
    """Plots words, prefixes and noise by level, means of the repeats."""
    figure, panels = plots.stacked(
        ["Words found", "Prefixes kept", "Weakest prefix kept, and the noise"],
        "level, all passes",
        ["words", "prefixes", "estimated clients"],
    )
    columns = ["words_found", "words_released", "released_real"]
    words = levels.groupby("round")[columns].mean()
    found, released, real = (words[column] for column in columns)
    parts = {
        "released, real": (real, plots.BLUE),
        "released, not real": (released - real, plots.ORANGE),
        "left out": (found - released, plots.MUTED),
    }
    below = 0 * real
    for label, (part, color) in parts.items():
        panels[0].bar(words.index, part, bottom=below, color=color, label=label)
        below = below + part
    plots.legend(panels[0])
    depth = levels["level"].max()
    rounds = (metrics["pass_number"] - 1) * depth + metrics["level"]
    means = metrics.groupby(rounds).mean()
    kept, in_noise = means["prefixes_kept"], means["prefixes_in_noise"]
    panels[1].bar(means.index, kept, color=plots.BLUE, label="outside the noise")
    panels[1].bar(means.index, in_noise, color=plots.MUTED, label="inside")
    panels[1].set_ylim(top=1.5 * max(kept.max(), 1))  # room for the legend
    plots.legend(panels[1])
    curves = {
        "least_estimate_kept": ("estimated clients", plots.BLUE),
        "noise_standard_deviation": ("standard deviation of noise", plots.ORANGE),
    }
    plots.curves(panels[2], means, curves, marker="o", ms=3)
    return figure


def plot_estimates(words: pd.DataFrame) -> figure_lib.Figure:
    """Plots estimated over expected counts, with error bars."""
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
        lowest = (shown["estimate"] - _LIMIT * shown["standard_error"]).min()
        if lowest < axes.get_ylim()[0]:
            plots.say_cut(axes, f"intervals go down to {lowest:,.0f}")
        plots.legend(axes)
    return figure
