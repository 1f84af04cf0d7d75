"""The report of popular n-grams."""

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.reports import page, plots
from federated_hh.statistics.analyses import ngrams
from federated_hh.statistics.devices import ground_truth
from federated_hh.statistics.recipes import events

_NUM_SHOWN = 1000  # rows of a table


def show(report: page.Page, algorithm: ngrams.NGrams, state: ngrams.State) -> None:
    """Adds the released n-grams.

    Args:
        report: Receives the sections.
        algorithm: The analysis.
        state: Final state.
    """
    found = algorithm.results(state)["ngrams"]
    section = report.section("N-grams found", covered=True)
    section.text(
        "Estimated reports of each n-gram, with standard errors. A device reports on "
        "one of its n-grams, drawn from those that extend the previous query's "
        "results."
    )
    if len(found):
        section.plot("ngrams.png", plot_estimates(found))
    section.table("ngrams.csv", found, shown=found.head(_NUM_SHOWN))


def show_truth(
    report: page.Page,
    algorithm: ngrams.NGrams,
    state: ngrams.State,
    stored: events.NGramEvents,
    max_k: int,
) -> None:
    """Adds the comparison with the truth.

    Args:
        report: Receives the sections.
        algorithm: The analysis.
        state: Final state.
        stored: Contents of the devices.
        max_k: See `evaluate`.
    """
    against, scores = evaluate(algorithm, state, stored, max_k)
    section = report.section("True counts of the n-grams", covered=False)
    section.text(
        f"`true holders` is the number of devices that hold an n-gram, and the top K "
        f"those of most holders, K = {max_k}."
    )
    section.table("scores.csv", scores)
    longest = against.sort_values(["words", "estimate"], ascending=False)
    section.table("ngrams.csv", against, shown=longest.head(_NUM_SHOWN))


def headline(algorithm: ngrams.NGrams, state: ngrams.State) -> str:
    """Returns the program's last line."""
    found = algorithm.results(state)["ngrams"]
    found = found.sort_values(["words", "estimate"], ascending=False)
    if not len(found):
        return "No n-gram was found."
    best = found.head(10)[["ngram", "share"]].to_numpy().tolist()
    named = ", ".join(f"{ngram} ({share:.1%})" for ngram, share in best)
    return f"{len(found)} n-grams found, the longest and most frequent first: {named}."


def evaluate(
    algorithm: ngrams.NGrams,
    state: ngrams.State,
    stored: events.NGramEvents,
    max_k: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compares the n-grams found with the truth.

    Args:
        algorithm: The analysis.
        state: Final state.
        stored: Contents of the devices.
        max_k: K: of the true n-grams of a length, the most frequent that count as
            popular.

    Returns:
        The n-grams found, with `true_holders` (devices that hold it) and `true_rank`
        (0 for an n-gram that nobody holds); and a row a length that was asked about:
        words, found, found_of_top_k, true_n_grams, precision, recall.
    """
    found = algorithm.results(state)["ngrams"]
    parts, scores = [], []
    for words in algorithm.lengths:
        part = found[found["words"] == words].copy()
        truth = ground_truth.Holders.of(stored, words)
        ranks = truth.ranks
        part["true_holders"] = [truth.counts.get(gram, 0) for gram in part["ngram"]]
        part["true_rank"] = [ranks.get(gram, 0) for gram in part["ngram"]]
        parts.append(part)
        scores.append({"words": words, **score(part["true_rank"], len(ranks), max_k)})
    return pd.concat(parts, ignore_index=True), pd.DataFrame(scores)


def score(ranks: pd.Series, num_true: int, max_k: int) -> dict[str, float | int]:
    """Returns the precision and recall of the popular n-grams.

    Args:
        ranks: True ranks of the n-grams found, from 1; 0 if nobody holds it.
        num_true: Number of true ones.
        max_k: Ranks up to this are popular.
    """
    top = min(max_k, num_true)
    hits = int(ranks.between(1, top).sum())
    return {
        "found": len(ranks),
        "found_of_top_k": hits,
        "true_n_grams": num_true,
        "precision": hits / len(ranks) if len(ranks) else np.nan,
        "recall": hits / top if top else np.nan,
    }


def plot_estimates(found: pd.DataFrame) -> figure_lib.Figure:
    """Plots the share of the reports of each n-gram, with two standard errors."""
    figure, axes = plots.single(
        "N-grams found",
        "n-gram, the most frequent of its length first",
        "share of reports",
    )
    colors = [plots.BLUE, plots.ORANGE, plots.GREEN]
    is_cut = False
    for words, part in found.groupby("words"):
        errors = 2 * part["stderr"] * part["share"] / part["estimate"]
        is_cut |= bool((errors >= part["share"]).any())
        axes.errorbar(
            np.arange(1, len(part) + 1),
            part["share"],
            yerr=errors,
            fmt="o",
            markersize=3,
            color=colors[(int(words) - 1) % len(colors)],
            label=f"{words} word{'s' if words > 1 else ''}",
        )
    axes.set_yscale("log")
    if is_cut:
        plots.say_cut(axes, "some intervals go below 0%")
    plots.in_percent(axes.yaxis)
    plots.legend(axes)
    return figure
