"""The report of a set union: its tables, plots and page."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.heavy_hitters import coverage, deny_list, evaluation, found_words
from federated_hh.heavy_hitters.deny_list import DenyList
from federated_hh.heavy_hitters.set_union import algorithm as set_union
from federated_hh.heavy_hitters.set_union import options as set_union_options
from federated_hh.heavy_hitters.triehh import report as triehh_report
from federated_hh.privacy import statement as statement_lib
from federated_hh.privacy.sets import plan as sets_plan
from federated_hh.reports import client_bytes, page, plots
from federated_hh.run_directory import directory as run_directory

_LEAST_LISTED = 1000  # words in discovery_rate.csv
_LEAST_K = 300
_NUM_SHOWN = 1000  # words in the report
# Of the last pass's weight. Twice the passes cost a factor of about 1.2 in noise, and
# a client that leaves out half of its weight has 1.4 times as much for other words.
_WORTH_A_PASS = 0.5
_KS_SHOWN = (1, 10, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
_SCORES_SHOWN = ["k", "precision", "recall", "f1", "f1_low", "f1_high"]
_SCORES_SHOWN += ["precision_at_k", "recall_at_k", "f1_at_k"]


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of a run's repeats, with the ground truth.

    Attributes:
        heavy_hitters: A row a released word: repeat, word, pass, weight (noisy),
            true_count (its holders), true_rank.
        scores: See `evaluation.scores_at_k` and `mean_and_interval`.
        discovery: A row for each of the most frequent words: word, true_count,
            true_rank, discovery_rate.
        coverage: Found share of all typed words, a number for each repeat.
        found_all: Whether each repeat found every listed word, denied ones included.
        found_any: Whether some repeat found a word, denied ones included.
    """

    heavy_hitters: pd.DataFrame
    scores: pd.DataFrame
    discovery: pd.DataFrame
    coverage: tuple[float, ...]
    found_all: bool
    found_any: bool


def evaluate(
    algorithm: set_union.SetUnion,
    states: Sequence[set_union.SetUnionState],
    max_k: int,
    deny: DenyList,
) -> Results:
    """Scores the words that each repeat released.

    Args:
        algorithm: Algorithm that was run.
        states: Final state of each repeat.
        max_k: The most values of K; at most twice the words found, or 300.
        deny: Words that are not released, nor scored.
    """
    population = algorithm.population
    totals = coverage.WordTotals.of(population)
    truth = evaluation.GroundTruth.of_counts(totals.holders.astype(np.float64))
    ranks = truth.ranks()
    every_found = [state.words for state in states]
    states = [
        state.only(deny.allows(algorithm.results(state)["heavy_hitters"]["word"]))
        for state in states
    ]
    found = [state.words for state in states]
    tables = []
    for repeat, state in enumerate(states):
        table = algorithm.results(state)["heavy_hitters"]
        table.insert(0, "repeat", repeat)
        table["true_count"] = totals.holders[state.words]
        table["true_rank"] = ranks[state.words]
        tables.append(table)
    twice = 2 * max(map(len, every_found))
    ks = range(1, min(max_k, max(_LEAST_K, twice)) + 1)
    scores = [evaluation.scores_at_k(ids, truth, ks) for ids in found]
    listed = max(_LEAST_LISTED, twice)
    discovery = evaluation.discovery_rates(found, truth, listed)
    rates = evaluation.discovery_rates(every_found, truth, listed)["discovery_rate"]
    words = [population.word(i) for i in discovery.pop("word_id")]
    discovery.insert(0, "word", words)
    every = max(1, int(totals.contributions.sum()))
    return Results(
        pd.concat(tables, ignore_index=True),
        evaluation.mean_and_interval(scores, "k"),
        discovery,
        tuple(int(totals.contributions[ids].sum()) / every for ids in found),
        bool((rates == 1).all()),
        any(map(len, every_found)),
    )


def write(
    directory: run_directory.RunDirectory,
    algorithm: set_union.SetUnion,
    results: Results,
    statement: statement_lib.PrivacyStatement,
    findable: Sequence[dict[str, Any]],
    remark: str = "",
) -> page.Summary:
    """Writes the tables, plots, privacy statement and report of a run.

    Args:
        directory: The directory of the run.
        algorithm: Algorithm that was run.
        results: Results of the run.
        statement: The statement of the run.
        findable: Words that can be found: `SetUnionOptions.what_is_found`.
        remark: A further line of the summary.

    Returns:
        The run's summary.
    """
    metrics, words = directory.metrics(), results.heavy_hitters
    first = words[words["repeat"] == 0]
    report = page.Page(directory, "Set union")
    better_passes = None
    if metrics["released_share"].iloc[-1] >= _WORTH_A_PASS:
        better_passes = len(algorithm.plan.mechanism.thresholds) + 1
    report.summary(
        _found(words, results),
        advice=evaluation.alphabet_advice(algorithm.population)
        or set_union_options.advice(findable, better_passes, is_all=results.found_all),
        next_command="federated_hh.compare {run} ANOTHER_RUN",
    )
    report.add_to_summary(remark)
    released = words[["repeat", "pass", "word", "weight"]]
    found = report.section("Words found", covered=True)
    found.text(
        "Words of the first repeat, by pass, the largest noisy weight first. A client "
        "adds 1/sqrt(t) to the weight of each of the t words that it sends. Adaptive "
        "weights differ from that, and are means over passes here."
    )
    shown = released[released["repeat"] == 0].drop(columns="repeat")
    found.table("heavy_hitters.csv", released, shown=shown.head(_NUM_SHOWN))
    which = report.section("Discovery rates", covered=False)
    which.file("discovery_rate.csv", results.discovery)
    table = results.discovery.assign(fits=True)
    clients = algorithm.population.num_clients
    which.plot("discovery_rate.png", triehh_report.plot_discovery(table, clients))
    scores = report.section("Scores against the true top K", covered=False)
    scores.plot("f1_over_k.png", triehh_report.plot_scores(results.scores))
    scores.text(
        "The truth is the number of clients that hold a word. Precision, recall and F1 "
        "as in Zhu et al. 2020; `at k`: of the first K found words, by pass and noisy "
        "weight. Bands and `low`, `high`: 95% intervals over the repeats."
        + evaluation.truth_text(algorithm.population)
    )
    shown = results.scores[results.scores["k"].isin(_KS_SHOWN)][_SCORES_SHOWN]
    scores.table("scores.csv", results.scores, "Means over the repeats", shown=shown)
    rounds = report.section("Passes", covered=False)
    rounds.text(
        "`words sent`: words that some client sends. `released share`: the released "
        "words' part of all weights."
    )
    told, drawn = plots.told_and_drawn(metrics, ["words_released", "words_sent"])
    if told:
        rounds.text(told)
    if drawn:
        rounds.plot("passes.png", plots.over_rounds(metrics, drawn))
    before = report.section("Detection limits", covered=False)
    before.text(
        "Computed before the run, for equal weights in all passes. "
        + set_union_options.sentences(findable)
    )
    before.table("detectable.csv", pd.DataFrame(findable))
    client_bytes.add(report, metrics, algorithm.plan.sampler, is_mean=True)
    report.statement(statement)
    truth = report.section("Weights and true counts", covered=False)
    truth.text("Words of the first repeat. `true count`: clients that hold the word.")
    shown = first.drop(columns="repeat").head(_NUM_SHOWN)
    truth.table("heavy_hitters.csv", words, shown=shown)
    report.section("Parameters", covered=False).text(_parameters(algorithm, metrics))
    report.how_it_was_made()
    return report.write()


def _found(words: pd.DataFrame, results: Results) -> str:
    """Returns the words of the first repeat, and their coverage, in a line."""
    repeats = len(results.coverage)
    counts = words.groupby("repeat").size().reindex(range(repeats), fill_value=0)
    least, most = counts.min(), counts.max()
    if not most:
        return deny_list.nothing(results.found_any)
    number = found_words.counted(most) if least == most else f"{least:,} to {most:,}"
    number += "" if least == most else " words"
    each = f" by each of {repeats} repeats" if repeats > 1 else ""
    best = ", ".join(words[words["repeat"] == 0]["word"].head(10))
    named = f", the largest weights first: {best}" if best else ""
    return (
        f"{number} found{each}{named}. Every one is some client's; together they make "
        f"up {min(results.coverage):.1%} of all typed words."
    )


def _parameters(algorithm: set_union.SetUnion, metrics: pd.DataFrame) -> str:
    population, plan = algorithm.population, algorithm.plan
    found = sets_plan.passes_of(plan)
    passes = ", ".join(
        f"noise multiplier {found.noise_multipliers[number]:.4g} with threshold "
        f"{threshold / found.unit(number):.5g}"
        for number, threshold in enumerate(found.thresholds)
    )
    return (
        f"{population.num_clients:,} clients with {population.num_words:,} distinct "
        f"words in {population.num_entries:,} entries; at most "
        f"{plan.contribution.contribution_bound:,} words of a client in a pass; "
        f"passes: {passes}; {metrics['repeat'].nunique()} repeat(s), in "
        f"{metrics['seconds'].sum():.1f} s of rounds."
    )
