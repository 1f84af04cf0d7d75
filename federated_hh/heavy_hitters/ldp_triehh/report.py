"""The report of an LDP TrieHH run: its tables, plots and page."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.heavy_hitters import coverage as coverage_lib
from federated_hh.heavy_hitters import evaluation, found_words
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import results as ldp_triehh_results
from federated_hh.heavy_hitters.ldp_triehh.results import Results
from federated_hh.privacy import statement as statement_lib
from federated_hh.privacy.triehh import wanted_detection as detection
from federated_hh.reports import client_bytes, page, plots
from federated_hh.run_directory import directory as run_directory

_NUM_SHOWN = 1000  # words in the report
_NUM_ERROR_BARS = 150
# False words expected among those released, from which on the summary begins with them.
_MANY_FALSE = 0.2
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
        remark: A further line of the summary.
    """

    algorithm: ldp_triehh.LdpTrieHH
    statement: statement_lib.PrivacyStatement
    anonymity: pd.DataFrame
    anonymity_text: str
    findable: Sequence[dict[str, Any]]
    at_length: Callable[[int], detection.Alternative]
    remark: str = ""


def write(
    directory: run_directory.RunDirectory, results: Results, summary: RunSummary
) -> page.Summary:
    """Writes the tables, plots, privacy statement and report of a run.

    Returns:
        The run's summary.
    """
    metrics = directory.metrics()
    report = page.Page(directory, "LDP TrieHH")
    report.summary(
        _found(results),
        advice=evaluation.alphabet_advice(summary.algorithm.population)
        or detection.advice(
            summary.findable,
            is_all=_is_all(results, summary.algorithm),
            held=_held(results, summary),
        ),
        next_command="federated_hh.compare {run} ANOTHER_RUN",
    )
    report.add_to_summary(summary.remark)
    first = _add_words(report, results.words)
    coverage = report.section("Coverage", covered=False)
    coverage.plot("coverage.png", plot_coverage(results))
    lost = evaluation.truth_text(summary.algorithm.population)
    coverage.text(_coverage_text(results.counting_clients) + lost)
    means = results.coverage.set_index("pass_number")
    means = means.rename(
        columns={
            "released_estimate": "released estimated coverage",
            "released_standard_error": "released standard error of coverage",
            "standard_error": "standard error of coverage",
        }
    )
    of_released = means.columns.str.contains("released|expected")
    caption = "Released words: means over the repeats, by pass"
    coverage.show(means.loc[:, of_released].reset_index(), caption)
    caption = "All words found by Algorithm 2, including noise"
    coverage.show(means.loc[:, ~of_released].reset_index(), caption)
    coverage.file("coverage.csv", results.repeats)
    levels = report.section("Levels", covered=False)
    levels.plot("levels.png", plot_levels(results.levels, metrics))
    levels.text(
        "`prefixes kept` can exceed the maximum by ties. `prefixes in noise`: kept "
        "prefixes with an estimate below 3 standard errors. `expected false words`: "
        "upper bound on the mean number of released words that nobody in the level's "
        "cohort reports on; their votes have a known distribution."
    )
    means = metrics.groupby(["pass_number", "level"])[_LEVEL_COLUMNS].mean()
    levels.show(means.reset_index(), "Means over the repeats")
    levels.file("levels.csv", results.levels)
    _add_truth(report, results.words, first)
    before = report.section("Detection limits", covered=False)
    before.text(_findable_text(summary))
    before.table("detectable.csv", pd.DataFrame(summary.findable))
    client_bytes.add(report, metrics, summary.algorithm.plan.sampler)
    report.statement(summary.statement)
    anonymity = report.section("Approximate k-anonymity", covered=True)
    anonymity.text(summary.anonymity_text).file("anonymity.csv", summary.anonymity)
    if len(summary.anonymity):
        anonymity.show(summary.anonymity)
    report.section("Parameters", covered=False).text(
        _summary_text(metrics, results, summary.algorithm)
    )
    report.how_it_was_made()
    return report.write()


def _held(results: Results, summary: RunSummary) -> detection.HeldWords:
    """Returns the clients' words, and those that the first repeat found."""
    population = summary.algorithm.population
    holders = coverage_lib.WordTotals.of(population).holders
    order = np.argsort(-holders, kind="stable")[: np.count_nonzero(holders >= 1)]
    words = [population.word(i) for i in order]
    allows = results.deny.allows(words)
    order, words = order[allows], list(itertools.compress(words, allows))
    return detection.HeldWords(
        words,
        holders[order] / population.num_clients,
        np.array([word in results.first for word in words], bool),
        summary.algorithm.parameters.max_depth,
        summary.at_length,
        summary.algorithm.alphabet.spelled,
    )


def _is_all(results: Results, algorithm: ldp_triehh.LdpTrieHH) -> bool:
    """Returns whether the first repeat found all words that can be completed."""
    lengths = range(
        ldp_triehh_results.LEAST_CHARACTERS, algorithm.parameters.max_depth + 1
    )
    held = algorithm.population.words.to_pylist()
    spelled = algorithm.alphabet.spelled
    possible = (word for word in held if len(spelled(word)) in lengths)
    return results.first.issuperset(possible)


def _found(results: Results) -> str:
    """Returns a sentence or two on the released words and their coverage."""
    last = results.coverage.iloc[-1]
    words = results.words
    best = words["real"] & words["released"] & (words["repeat"] == 0)
    best &= words["level"] >= ldp_triehh_results.LEAST_CHARACTERS
    real = words[best]["word"].head(10)
    names = f", the largest estimates first: {', '.join(real)}" if len(real) else ""
    estimate = last["released_estimate"]
    estimated = ""
    if not math.isnan(estimate):
        estimated = f" (estimate of the counting task: {estimate:.1%})"
    left_out = round(last["words_found"] - last["words_released"])
    more = (
        f" Left out as possible noise: {found_words.counted(left_out)}."
        if left_out
        else ""
    )
    warning, expected = "", last["expected_false"]
    if expected >= 1 and expected >= _MANY_FALSE * last["words_released"]:
        warning = (
            f"Many of these words may be noise; --min_standard_errors="
            f"{results.least_standard_errors:g} would leave fewer than one false word. "
        )
    return (
        f"{warning}{found_words.counted(round(last['words_released']))} found{names}. "
        f"{last['released_real']:,.0f} of them are real "
        f"({found_words.false_words(last['expected_false'])} were expected to be "
        f"false) and make up {last['released_coverage']:.1%} of the typed words that "
        f"could be found{estimated}.{more}"
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
        "of the typed words that could be found."
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
        f"{last['released_coverage']:.1%} of the typed words that could be found; "
        f"{expected} are expected to be noise. Leaving words out is post-processing: "
        "it costs no privacy."
    )


def _findable_text(summary: RunSummary) -> str:
    return (
        f"Computed before the run. {detection.sentences(summary.findable)} This holds "
        "for a word that shares no prefix with another and competes with noise only. "
        "Words with shared prefixes need fewer holders; if clients share more prefixes "
        "than a level keeps, words need more. A holder is assumed to report on it with "
        "the probability of an average word of an average client."
    )


def _coverage_text(counting_clients: int) -> str:
    text = (
        "Coverage: the share of the typed words in the population that the found "
        "words make up. "
        "`coverage` is the truth in the whole population. `low`, `high`: 95% intervals "
        "over the repeats. `expected false`: upper bound on the mean number of "
        "released words that nobody in a cohort reported on. Words of one character "
        "are not counted, because the first level starts from all characters. "
    )
    if not counting_clients:
        return text + (
            "The counting task gives no estimate: all clients are in cohorts, or "
            "--counting_clients is 0."
        )
    return text + (
        f"`estimated coverage` is from the paper's counting task: {counting_clients:,} "
        "clients outside all cohorts count their typed words, without local privacy. "
        "`standard error` is the sampling error of one such estimate."
    )


def _add_words(report: page.Page, words: pd.DataFrame) -> pd.DataFrame:
    """Adds the released words, and returns those of the first repeat."""
    section = report.section("Words released", covered=True)
    section.text(
        "Words released in the first repeat, largest estimates first. `estimate`: the "
        "debiased number of clients in the level's cohort that reported on the word."
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
    truth = report.section("True counts of the released words", covered=False)
    truth.plot("estimates.png", plot_estimates(words))
    truth.text(
        "`expected holders`: mean number of clients in a level's cohort with the word. "
        "Estimates are lower if clients have more words than the contribution bound, "
        "and too large near the threshold, where only words with positive noise are "
        "found. `simulator/heavy_hitters.csv` also has the words that are not "
        "`released`."
    )
    truth.file("heavy_hitters.csv", words)
    shown = ["word", "level", "estimate", *_TRUTH[:-1]]
    real, false = first[first["real"]], first[~first["real"]]
    truth.show(real[shown].head(_NUM_SHOWN), "Real words")
    truth.show(
        false[shown].head(5), f"False words: {len(false):,} in all, the first five"
    )


def plot_coverage(results: Results) -> figure_lib.Figure:
    """Plots true coverage by level and its estimates by pass."""
    figure, axes = plots.single(
        "Coverage of the typed words", "level, all passes", "coverage"
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
        ["Words found", "Prefixes kept", "Weakest kept prefix and noise"],
        "level, all passes",
        ["words", "prefixes", "clients"],
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
        "least_estimate_kept": ("estimate of the weakest kept prefix", plots.BLUE),
        "noise_standard_deviation": ("standard deviation of the noise", plots.ORANGE),
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
