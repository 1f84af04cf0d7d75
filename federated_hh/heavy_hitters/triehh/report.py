"""The report of a TrieHH run: its tables, plots and page."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.heavy_hitters import deny_list, evaluation, selection
from federated_hh.heavy_hitters import trie as trie_lib
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.privacy import statement as statement_lib
from federated_hh.privacy.triehh import detection as triehh_detection
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.privacy.triehh import wanted_detection as detection
from federated_hh.reports import client_bytes, page, plots
from federated_hh.run_directory import directory as run_directory

_NUM_LISTED = 1000  # words in discovery_rate.csv
_NUM_SHOWN = 1000  # words in the report
_KS_SHOWN = (1, 10, 20, 50, 100, 200, 300)
_SCORES_SHOWN = ["k", "precision", "recall", "f1", "f1_low", "f1_high"]
_SCORES_SHOWN += ["precision_at_k", "recall_at_k", "f1_at_k"]
# Of the words found, what the guarantee covers: not their votes.
_RELEASED = ["repeat", "round", "word"]


@dataclasses.dataclass(frozen=True)
class Results:
    """The results of a run's repeats, with the ground truth.

    Attributes:
        heavy_hitters: A row a found word: repeat, word, round (that completed it),
            votes, true_count, true_rank.
        scores: See `evaluation.scores_at_k` and `mean_and_interval`.
        discovery: A row for each of the most frequent words: word, true_count,
            true_rank, discovery_rate, fits (whether it can be completed within the
            maximum length), predicted_rate (the probability that it is found, from
            the true counts of all its prefixes: exact in the single-word setting, and
            else as if every vote were drawn from what all clients type), and, in the
            single-word setting, worst_case_rate (Proposition 1).
        found: The words of each repeat, denied ones included.
        deny: Words that are not released, nor scored.
    """

    heavy_hitters: pd.DataFrame
    scores: pd.DataFrame
    discovery: pd.DataFrame
    found: Sequence[frozenset[str]]
    deny: deny_list.DenyList


def evaluate(
    algorithm: triehh.TrieHH,
    repeats: Sequence[Sequence[trie_lib.Word]],
    max_k: int,
    deny: deny_list.DenyList = deny_list.NOTHING,
) -> Results:
    """Scores the words that each repeat found, for K from 1 to max_k.

    Args:
        algorithm: Algorithm that was run.
        repeats: The words of each repeat.
        max_k: The most words that are scored.
        deny: Words that are not released, nor scored.
    """
    population = algorithm.population
    truth = evaluation.GroundTruth.of(population, algorithm.word_selection)
    place = {word: i for i, word in enumerate(population.words.to_pylist())}
    ranks = np.append(truth.ranks(), 0)
    counts = np.append(truth.counts, 0.0)
    found, tables = [], []
    for repeat, every in enumerate(repeats):
        words = sorted(deny.allowed(every), key=lambda word: (-word.votes, word.text))
        ids = np.array([place.get(word.text, -1) for word in words], np.int64)
        columns = {
            "repeat": np.full(len(words), repeat, np.int64),
            "word": np.array([word.text for word in words], object),
            "round": np.array([word.level for word in words], np.int64),
            "votes": np.array([word.votes for word in words], np.int64),
            "true_count": counts[ids],
            "true_rank": ranks[ids],
        }
        found.append(ids)
        tables.append(pd.DataFrame(columns))
    ks = range(1, max_k + 1)
    scores = [evaluation.scores_at_k(ids, truth, ks) for ids in found]
    return Results(
        pd.concat(tables, ignore_index=True),
        evaluation.mean_and_interval(scores, "k"),
        _discovery(algorithm, found, truth),
        [frozenset(word.text for word in words) for words in repeats],
        deny,
    )


def _discovery(
    algorithm: triehh.TrieHH,
    found: Sequence[np.ndarray],
    truth: evaluation.GroundTruth,
) -> pd.DataFrame:
    table = evaluation.discovery_rates(found, truth, _NUM_LISTED)
    words = [algorithm.population.word(i) for i in table.pop("word_id")]
    table.insert(0, "word", words)
    spelled = list(map(algorithm.alphabet.spelled, words))
    table["fits"] = [len(word) < algorithm.parameters.max_length for word in spelled]
    table["predicted_rate"] = _predicted_rates(algorithm, spelled, truth)
    if algorithm.word_selection is selection.WordSelection.MOST_FREQUENT:
        table["worst_case_rate"] = triehh_privacy.worst_case_discovery_rate(
            table["true_count"].to_numpy(np.int64), algorithm.parameters
        )
    return table


def _predicted_rates(
    algorithm: triehh.TrieHH, words: Sequence[str], truth: evaluation.GroundTruth
) -> list[float]:
    """Returns each word's discovery rate, given the holders of its prefixes."""
    law = triehh_detection.TrieHHDetection(
        algorithm.parameters,
        algorithm.word_selection is selection.WordSelection.BY_FREQUENCY,
    )
    asked = [list(_prefixes(word, algorithm.parameters.max_length)) for word in words]
    holders: dict[str, float] = dict.fromkeys(itertools.chain(*asked), 0.0)
    for word, count in zip(
        algorithm.population.words.to_pylist(), truth.counts.tolist(), strict=True
    ):
        word = algorithm.alphabet.spelled(word)
        for prefix in _prefixes(word, algorithm.parameters.max_length):
            if prefix not in holders:
                break  # nor is a longer one
            holders[prefix] += count
    return [
        law.word_rate([holders[prefix] for prefix in prefixes])
        if len(word) < algorithm.parameters.max_length
        else 0.0
        for word, prefixes in zip(words, asked, strict=True)
    ]


def _prefixes(word: str, max_length: int) -> Iterator[str]:
    """Yields a word's prefixes of 1 symbol to max_length, its end written as NUL."""
    ended = f"{word}\0"
    for size in range(1, min(len(ended), max_length) + 1):
        yield ended[:size]


def write(
    directory: run_directory.RunDirectory,
    algorithm: triehh.TrieHH,
    results: Results,
    statement: statement_lib.PrivacyStatement,
    findable: Sequence[dict[str, Any]],
    at_length: Callable[[int], detection.Alternative],
    remark: str = "",
) -> page.Summary:
    """Writes the tables, plots, privacy statement and report of a run.

    Args:
        directory: The directory of the run.
        algorithm: Algorithm that was run.
        results: Results of the run.
        statement: The statement of the run.
        findable: Words that can be found, known before the run: `detection.rows`.
        at_length: Returns the setting that completes words of so many characters.
        remark: A further line of the summary.

    Returns:
        The run's summary.
    """
    metrics, words = directory.metrics(), results.heavy_hitters
    report = page.Page(directory, "TrieHH")
    first = words[words["repeat"] == 0]
    report.summary(
        _found(results, metrics["repeat"].nunique()),
        advice=evaluation.alphabet_advice(algorithm.population)
        or detection.advice(
            findable,
            is_all=_is_all(results),
            held=_held(algorithm, results, at_length),
            holding=triehh_detection.HOLDING,
        ),
        next_command="federated_hh.compare {run} ANOTHER_RUN",
    )
    report.add_to_summary(remark)
    released = words[_RELEASED].sort_values(_RELEASED)
    found = report.section("Words found", covered=True)
    found.text(
        "Words of the first repeat, in the order of completion. Vote counts are not "
        "released: no guarantee covers them."
    )
    shown = released[released["repeat"] == 0].drop(columns="repeat")
    found.table("heavy_hitters.csv", released, shown=shown.head(_NUM_SHOWN))
    found.tree(first["word"].tolist())
    which = report.section("Discovery rates", covered=False)
    which.file("discovery_rate.csv", results.discovery)
    discovery = plot_discovery(results.discovery, algorithm.population.num_clients)
    which.plot("discovery_rate.png", discovery)
    scores = report.section("Scores against the true top K", covered=False)
    scores.plot("f1_over_k.png", plot_scores(results.scores))
    too_long = int((~results.discovery["fits"].head(100)).sum())
    scores.text(
        "Precision, recall and F1 as in Zhu et al. 2020; `at k`: of the K found words "
        "with the most votes. Bands and `low`, `high`: 95% intervals over the repeats. "
        f"Of the true top 100 words, {too_long} are longer than the maximum."
        + evaluation.truth_text(algorithm.population)
    )
    shown = results.scores[results.scores["k"].isin(_KS_SHOWN)][_SCORES_SHOWN]
    scores.table("scores.csv", results.scores, "Means over the repeats", shown=shown)
    rounds = report.section("Rounds", covered=False)
    names = ["prefixes_kept", "votes_received"]
    told, drawn = plots.told_and_drawn(metrics, names)
    if told:
        rounds.text(told)
    if drawn:
        rounds.plot("levels.png", plots.over_rounds(metrics, drawn))
    if "mask_neighbours" in metrics:
        from federated_hh.rounds import masked_sums

        masked_sums.show(report, metrics)
    before = report.section("Detection limits", covered=False)
    before.text(
        f"Computed before the run. "
        f"{detection.sentences(findable, triehh_detection.HOLDING)} The probability is "
        "exact for a word that shares no prefix with another. Words with shared "
        "prefixes are found more often: see `predicted rate` in `discovery_rate.csv`."
    )
    before.table("detectable.csv", pd.DataFrame(findable))
    client_bytes.add(report, metrics, algorithm.plan.sampler)
    report.statement(statement)
    votes = report.section("Votes and true counts", covered=False)
    votes.text(
        "Words of the first repeat, most votes first. `true count` and `true rank` are "
        "ground truth."
    )
    shown = first.drop(columns="repeat").head(_NUM_SHOWN)
    votes.table("heavy_hitters.csv", words, shown=shown)
    report.section("Parameters", covered=False).text(
        _summary(algorithm, metrics, words)
    )
    report.how_it_was_made()
    return report.write()


def _held(
    algorithm: triehh.TrieHH,
    results: Results,
    at_length: Callable[[int], detection.Alternative],
) -> detection.HeldWords:
    """Returns the most frequent words, and those that the first repeat found."""
    table = results.discovery
    table = table[results.deny.allows(table["word"])]
    return detection.HeldWords(
        table["word"].tolist(),
        table["true_count"].to_numpy() / algorithm.population.num_clients,
        table["word"].isin(results.found[0]).to_numpy(),
        algorithm.parameters.max_length - 1,
        at_length,
        algorithm.alphabet.spelled,
    )


def _is_all(results: Results) -> bool:
    """Returns whether the first repeat found all words that can be completed."""
    held = results.discovery[results.discovery["true_count"] > 0]
    possible = held[held["fits"]]["word"]
    # The table of very many words has no more rows than that.
    return len(held) < _NUM_LISTED and bool(possible.isin(results.found[0]).all())


def _found(results: Results, repeats: int) -> str:
    """Returns the first repeat's words and the scores of all repeats, in a line."""
    words = results.heavy_hitters
    if not len(words):
        return deny_list.nothing(any(results.found))
    counts = words.groupby("repeat").size().reindex(range(repeats), fill_value=0)
    least, most = counts.min(), counts.max()
    number = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    each = f" by each of {repeats} repeats" if repeats > 1 else ""
    best = ", ".join(words[words["repeat"] == 0]["word"].head(10))
    named = f", the most votes first: {best}" if best else ""
    k, f1 = _f1(results.scores)
    return f"{number} words found{each}{named}. Against the true top {k}: F1 {f1:.2f}."


def _f1(scores: pd.DataFrame) -> tuple[int, float]:
    """Returns the K that the summary is about, at most 100, and the F1 at it."""
    k = min(100, int(scores["k"].max()))
    return k, float(scores.loc[scores["k"] == k, "f1"].iloc[0])


def _summary(
    algorithm: triehh.TrieHH, metrics: pd.DataFrame, words: pd.DataFrame
) -> str:
    parameters, population = algorithm.parameters, algorithm.population
    repeats = metrics["repeat"].nunique()
    return (
        f"{population.num_clients:,} clients with {population.num_words:,} distinct "
        f"words; cohorts of {parameters.cohort_size:,}, threshold "
        f"{parameters.threshold}, maximum length {parameters.max_length} (end symbol "
        f"included), word selection `{algorithm.word_selection.value}`, "
        f"{repeats} repeat(s). {len(words) / repeats:,.1f} words were found a "
        f"repeat, in {metrics['seconds'].sum():.1f} s of rounds."
    )


def plot_scores(scores: pd.DataFrame) -> figure_lib.Figure:
    """Plots F1, recall and precision over K, with their intervals."""
    figure, axes = plots.single("Scores of the top K words", "K", "score")
    scores = scores.set_index("k")
    curves = {
        "f1": ("F1 (Zhu et al.)", plots.BLUE),
        "recall": ("recall of the true top K", plots.ORANGE),
        "precision_at_k": ("precision of the first K found", plots.GREEN),
    }
    plots.curves(axes, scores, curves)
    for column, (_, color) in curves.items():
        low, high = (scores[f"{column}_{end}"].clip(0, 1) for end in ("low", "high"))
        plots.band(axes, low, high, color)
    axes.set_ylim(0, 1.03)
    axes.set_xlim(1, scores.index.max())
    return figure


def plot_discovery(discovery: pd.DataFrame, num_clients: int) -> figure_lib.Figure:
    """Plots discovery rates over frequency, and Proposition 1's bound."""
    figure, axes = plots.single(
        "Discovery rate of the most frequent words",
        "share of clients that hold the word",
        "share of repeats that find it",
    )
    table = discovery.assign(share=discovery["true_count"] / num_clients)
    fits, too_long = table[table["fits"]], table[~table["fits"]]
    axes.scatter(
        fits["share"],
        fits["discovery_rate"],
        s=10,
        color=plots.BLUE,
        alpha=0.25,
        lw=0,
        label="a word",
    )
    ends = table["share"].min() * 0.999, table["share"].max() * 1.001
    bins = pd.cut(fits["share"], np.geomspace(*ends, 25))
    means = fits.groupby(bins, observed=True)[["share", "discovery_rate"]].mean()
    label = "mean of words of similar frequency"
    axes.plot(*means.to_numpy().T, "o-", color=plots.BLUE, markersize=4, label=label)
    if len(too_long):
        axes.scatter(
            too_long["share"],
            too_long["discovery_rate"],
            s=14,
            marker="x",
            color=plots.MUTED,
            label="a word above the maximum length",
        )
    if "worst_case_rate" in table:
        rates = table["share"], table["worst_case_rate"]
        label = "worst case (Proposition 1)"
        axes.plot(*rates, color=plots.ORANGE, linestyle="--", label=label)
    axes.set_xscale("log")
    plots.in_percent(axes.xaxis, axes.yaxis)
    axes.set_ylim(-0.03, 1.03)
    plots.legend(axes)
    return figure
