"""The report of pairs of an age and an n-gram."""

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.reports import page, plots
from federated_hh.statistics.analyses import joint, ngrams_report
from federated_hh.statistics.devices import ground_truth
from federated_hh.statistics.recipes import contents, events

_NUM_SHOWN = 1000  # rows of a table
_NUM_PLOTTED = 15


def show(report: page.Page, algorithm: joint.Joint, state: joint.State) -> None:
    """Adds the released pairs; see `ngrams_report.show`."""
    pairs = algorithm.results(state)["pairs"]
    section = report.section("Pairs of age and n-gram", covered=True)
    section.text(
        "Estimated reports of the last query for each age and n-gram, for n-grams with "
        "at least one pair clear of the noise (`found`). The age (other) is below the "
        "first boundary."
    )
    if len(pairs):
        section.plot("pairs.png", plot_pairs(pairs))
    section.table("pairs.csv", pairs, shown=pairs.head(_NUM_SHOWN))
    if algorithm.is_interactive and algorithm.length > 1:
        ngrams_report.show(report, algorithm, state)


def show_truth(
    report: page.Page,
    algorithm: joint.Joint,
    state: joint.State,
    stored: events.NGramEvents,
    max_k: int,
) -> None:
    """Adds the comparison with the truth; see `ngrams_report.show_truth`."""
    against, scores = evaluate(algorithm, state, stored, max_k)
    section = report.section("True counts of the pairs", covered=False)
    section.text(
        f"`true holders`: devices of the age that hold the n-gram. Top K: the "
        f"{max_k} pairs with the most holders."
    )
    section.table("pair_scores.csv", scores)
    section.table("pairs.csv", against, shown=against.head(_NUM_SHOWN))
    if algorithm.lengths:
        ngrams_report.show_truth(report, algorithm, state, stored, max_k)


def headline(algorithm: joint.Joint, state: joint.State) -> str:
    """Returns the program's last line."""
    pairs = algorithm.results(state)["pairs"]
    found = pairs[pairs["found"]].drop(columns="found")
    found = found.sort_values("estimate", ascending=False)
    if not len(found):
        return "No pair of age and n-gram was found."
    best = found.head(10)[["age", "ngram", "share"]].to_numpy().tolist()
    named = ", ".join(f"{age}: {ngram} ({share:.1%})" for age, ngram, share in best)
    return (
        f"{len(found)} pairs of age and n-gram found, the most frequent first: {named}."
    )


def evaluate(
    algorithm: joint.Joint,
    state: joint.State,
    stored: events.NGramEvents,
    max_k: int,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compares the pairs found with the truth.

    Args:
        algorithm: The analysis.
        state: Final state.
        stored: Contents of the devices.
        max_k: K: of the true pairs, the most frequent that count as popular.

    Returns:
        The pairs found, with `true_holders` and `true_rank` (0 for a pair that nobody
        is); and a row with found, found_of_top_k, true_n_grams, precision, recall.
    """
    pairs = algorithm.results(state)["pairs"]
    pairs = pairs[pairs["found"]].drop(columns="found").reset_index(drop=True)
    truth = ground_truth.Holders.of(stored, algorithm.length, *joint.ages_of(stored))
    ranks = truth.ranks
    keys = list(zip(pairs["ngram"], pairs["age"], strict=True))
    pairs["true_holders"] = np.array([truth.counts.get(k, 0) for k in keys], np.int64)
    pairs["true_rank"] = np.array([ranks.get(k, 0) for k in keys], np.int64)
    scores = ngrams_report.score(pairs["true_rank"], len(ranks), max_k)
    return pairs, pd.DataFrame([scores])


def plot_pairs(pairs: pd.DataFrame) -> figure_lib.Figure:
    """Plots the ages' shares in the reports of each n-gram."""
    estimates = pairs.pivot(index="ngram", columns="age", values="estimate")
    shown = list(dict.fromkeys(pairs["ngram"]))[:_NUM_PLOTTED]
    ages = list(dict.fromkeys(pairs["age"]))
    values = estimates.loc[shown, ages].clip(lower=0)
    shares = values.div(values.sum(axis=1), axis=0)
    figure, axes = plots.single(
        "Share of each age in the reports of an n-gram", "age", "n-gram"
    )
    image = axes.imshow(shares, aspect="auto", cmap="Blues", vmin=0)
    axes.set_xticks(
        range(len(ages)), [a.replace(contents.OTHER, "below 20") for a in ages]
    )
    axes.set_yticks(range(len(shown)), shown)
    axes.grid(False)
    plots.in_percent(figure.colorbar(image, ax=axes, label="share").ax.yaxis)
    return figure
