"""What a TrieHH run leaves: tables, plots, and the page that holds them."""

import dataclasses
import io
from collections.abc import Sequence

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from federated_hh import evaluation, selection, triehh
from federated_hh import trie as trie_lib
from privacy import statement as statement_lib
from privacy import triehh as triehh_privacy
from simulation import report, run_directory

_INK, _MUTED, _GRID = "#1f2933", "#52606d", "#e4e7eb"
_BLUE, _ORANGE, _GREEN = "#2364aa", "#d1603d", "#3a7d44"
_NUM_LISTED = 1000  # words in discovery_rate.csv
_NUM_SHOWN = 30  # words in the report
# Of the words found, what the guarantee covers: not their votes.
_RELEASED = ["repeat", "round_completed", "word"]


@dataclasses.dataclass(frozen=True)
class Results:
    """What the repeats of a run gave, beside the ground truth.

    Attributes:
        heavy_hitters: A row a found word: repeat, word, round_completed, votes,
            true_count, true_rank.
        scores: See `evaluation.scores_at_k` and `mean_and_interval`.
        discovery: A row for each of the most frequent words: word, true_count,
            true_rank, discovery_rate, fits (whether it can be completed within the
            maximum length), and, in the single-word setting, worst_case_rate
            (Proposition 1).
    """

    heavy_hitters: pd.DataFrame
    scores: pd.DataFrame
    discovery: pd.DataFrame


def evaluate(
    process: triehh.TrieHH,
    repeats: Sequence[Sequence[trie_lib.Word]],
    max_k: int,
) -> Results:
    """Scores the words that each repeat found, for K from 1 to max_k."""
    population = process.population
    truth = evaluation.GroundTruth.of(population, process.word_selection)
    place = {word: i for i, word in enumerate(population.words.to_pylist())}
    ranks = np.append(truth.ranks(), 0)
    counts = np.append(truth.counts, 0.0)
    found, tables = [], []
    for repeat, words in enumerate(repeats):
        words = sorted(words, key=lambda word: (-word.votes, word.text))
        ids = [place.get(word.text, -1) for word in words]
        found.append(ids)
        tables.append(
            pd.DataFrame(
                {
                    "repeat": np.full(len(words), repeat, np.int64),
                    "word": [word.text for word in words],
                    "round_completed": np.array([w.level for w in words], np.int64),
                    "votes": np.array([word.votes for word in words], np.int64),
                    "true_count": counts[ids] if ids else np.zeros(0),
                    "true_rank": ranks[ids] if ids else np.zeros(0, np.int64),
                }
            )
        )
    ks = range(1, max_k + 1)
    scores = [evaluation.scores_at_k(ids, truth, ks) for ids in found]
    return Results(
        pd.concat(tables, ignore_index=True),
        evaluation.mean_and_interval(scores, "k"),
        _discovery(process, found, truth),
    )


def _discovery(
    process: triehh.TrieHH,
    found: Sequence[Sequence[int]],
    truth: evaluation.GroundTruth,
) -> pd.DataFrame:
    table = evaluation.discovery_rates(found, truth, _NUM_LISTED)
    words = [process.population.word(i) for i in table.pop("word_id")]
    table.insert(0, "word", words)
    table["fits"] = [len(word) < process.parameters.max_length for word in words]
    if process.word_selection is selection.WordSelection.MOST_FREQUENT:
        table["worst_case_rate"] = triehh_privacy.worst_case_discovery_rate(
            table["true_count"].to_numpy(np.int64), process.parameters
        )
    return table


def write(
    directory: run_directory.RunDirectory,
    process: triehh.TrieHH,
    results: Results,
    statement: statement_lib.PrivacyStatement,
) -> None:
    """Writes the tables, plots, privacy statement and report of a run."""
    # In an order of its own: that of the votes would tell of them.
    released = results.heavy_hitters[_RELEASED].sort_values(_RELEASED)
    directory.released.write_table("heavy_hitters.csv", released)
    directory.write_statement(statement)
    directory.simulator.write_table("heavy_hitters.csv", results.heavy_hitters)
    directory.simulator.write_table("scores.csv", results.scores)
    directory.simulator.write_table("discovery_rate.csv", results.discovery)
    figures = {
        "f1_over_k.png": plot_scores(results.scores),
        "discovery_rate.png": plot_discovery(
            results.discovery, process.population.num_clients
        ),
        "trie_growth.png": plot_growth(directory.metrics()),
    }
    for name, png in figures.items():
        directory.simulator.write_bytes(name, png)
    directory.write_report(
        _page(directory, process, results, statement, list(figures.values()))
    )


def _page(directory, process, results, statement, figures) -> str:
    parameters, population = process.parameters, process.population
    metrics = directory.metrics()
    num_repeats = metrics["repeat"].nunique()
    words = results.heavy_hitters
    best = words[words["repeat"] == 0].drop(columns="repeat").head(_NUM_SHOWN)
    too_long = int((~results.discovery["fits"].head(100)).sum())
    summary = (
        f"{population.num_clients:,} clients with {population.num_words:,} distinct "
        f"words; cohorts of {parameters.cohort_size:,}, threshold "
        f"{parameters.threshold}, maximum length {parameters.max_length} (end symbol "
        f"included), word selection `{process.word_selection.value}`, "
        f"{num_repeats} repeat(s). {len(words) / num_repeats:,.1f} words were found a "
        f"repeat, in {metrics['seconds'].sum():.1f} s of rounds."
    )
    found = (
        "The words of the first repeat with the most votes. `true count` and `true "
        "rank` are the simulator's ground truth; neither they nor the votes are "
        "covered by the privacy guarantee."
    )
    against = (
        "Precision, recall and F1 as in Zhu et al. 2020, and of the first K found "
        "words by votes (`at k`). Bands and `low`, `high`: 95% intervals over the "
        f"repeats. Of the true top 100 words, {too_long} are too long to be completed."
    )
    shown = results.scores[results.scores["k"].isin([1, 10, 20, 50, 100, 200, 300])]
    columns = ["k", "precision", "recall", "f1", "f1_low", "f1_high"]
    columns += ["precision_at_k", "recall_at_k", "f1_at_k"]
    sections = [
        report.Section("The run", summary, covered=False),
        report.Section("Heavy hitters", found, [report.Table("", best)], covered=False),
        report.Section(
            "Against the true top K",
            against,
            [report.Table("Means over the repeats", shown[columns])],
            [report.Figure("Scores of the top K words", figures[0])],
            covered=False,
        ),
        report.Section(
            "Which words are found",
            "",
            figures=[
                report.Figure("Discovery rate by frequency", figures[1]),
                report.Figure("The trie, level by level", figures[2]),
            ],
            covered=False,
        ),
        report.Section(
            "Privacy", _below_a_heading(statement.to_markdown()), covered=True
        ),
        report.Section(
            "How it was made",
            run_directory.how_it_was_made(directory),
            covered=True,
        ),
    ]
    return report.render("TrieHH", f"Run of {directory.run['started']}", sections)


def _below_a_heading(text: str) -> str:
    """Returns a Markdown page without its title, its headings a level lower."""
    return text.partition("\n")[2].replace("\n## ", "\n### ")


def _style(axes, title: str) -> None:
    axes.set_title(title, loc="left", color=_INK)
    axes.tick_params(colors=_MUTED)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _figure(title: str, x_label: str, y_label: str):
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    _style(axes, title)
    axes.set_xlabel(x_label, color=_MUTED)
    axes.set_ylabel(y_label, color=_MUTED)
    return figure, axes


def _png(figure) -> bytes:
    buffer = io.BytesIO()
    # Without metadata two runs of the same flags give the same file.
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()


def plot_scores(scores: pd.DataFrame) -> bytes:
    """Plots F1, recall and precision over K, with their intervals; returns a PNG."""
    figure, axes = _figure("Scores of the top K words", "K", "score")
    for column, label, color in (
        ("f1", "F1 (Zhu et al.)", _BLUE),
        ("recall", "recall of the true top K", _ORANGE),
        ("precision_at_k", "precision of the first K found", _GREEN),
    ):
        axes.plot(scores["k"], scores[column], color=color, label=label)
        low, high = scores[f"{column}_low"], scores[f"{column}_high"]
        axes.fill_between(
            scores["k"], low.clip(0, 1), high.clip(0, 1), color=color, alpha=0.2, lw=0
        )
    axes.set_ylim(0, 1.03)
    axes.set_xlim(1, scores["k"].max())
    axes.legend(frameon=False, labelcolor=_INK)
    return _png(figure)


def plot_discovery(discovery: pd.DataFrame, num_clients: int) -> bytes:
    """Plots discovery rates over frequency beside Proposition 1; returns a PNG."""
    figure, axes = _figure(
        "Discovery rate of the most frequent words",
        "share of clients that hold the word",
        "share of repeats that find it",
    )
    frequency = discovery["true_count"] / num_clients
    fits = discovery["fits"]
    axes.scatter(
        frequency[fits],
        discovery["discovery_rate"][fits],
        s=10,
        color=_BLUE,
        alpha=0.25,
        lw=0,
        label="a word",
    )
    edges = np.geomspace(frequency.min() * 0.999, frequency.max() * 1.001, 25)
    means = discovery[fits].groupby(pd.cut(frequency[fits], edges), observed=True)
    axes.plot(
        means["true_count"].mean() / num_clients,
        means["discovery_rate"].mean(),
        color=_BLUE,
        marker="o",
        markersize=4,
        label="mean of words of like frequency",
    )
    if (~fits).any():
        axes.scatter(
            frequency[~fits],
            discovery["discovery_rate"][~fits],
            s=14,
            marker="x",
            color=_MUTED,
            label="a word too long to be completed",
        )
    if "worst_case_rate" in discovery:
        axes.plot(
            frequency,
            discovery["worst_case_rate"],
            color=_ORANGE,
            linestyle="--",
            label="worst case (Proposition 1)",
        )
    axes.set_xscale("log")
    axes.set_ylim(-0.03, 1.03)
    axes.legend(frameon=False, labelcolor=_INK)
    return _png(figure)


def plot_growth(metrics: pd.DataFrame) -> bytes:
    """Plots prefixes kept and votes by level, means of the repeats; returns a PNG."""
    figure, panels = plt.subplots(
        2, figsize=(7.5, 4.6), layout="constrained", sharex=True
    )
    means = metrics.groupby("round").sum() / metrics["repeat"].nunique()
    for axes, column, title, color in (
        (panels[0], "prefixes_kept", "Prefixes kept by level", _BLUE),
        (panels[1], "votes_received", "Votes received by level", _ORANGE),
    ):
        _style(axes, title)
        axes.bar(means.index, means[column], color=color, width=0.6)
        axes.grid(visible=False, axis="x")
    panels[1].set_xticks(means.index)
    panels[1].set_xlabel("level", color=_MUTED)
    return _png(figure)
