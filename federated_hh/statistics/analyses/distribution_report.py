"""The report of a distribution."""

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.reports import page, plots
from federated_hh.statistics.analyses import distribution, nested_histograms
from federated_hh.statistics.devices import ground_truth
from federated_hh.statistics.recipes import events

_NUM_SHOWN = 1000  # rows of a table
# Where the curves are drawn, and compared with the truth.
_NUM_POINTS = 2000


def show(
    report: page.Page, algorithm: distribution.Distribution, state: distribution.State
) -> None:
    """Adds the released estimates; see `ngrams_report.show`."""
    results = algorithm.results(state)
    section = report.section("Seconds between words", covered=True)
    section.text(
        "Share of words with fewer seconds since the previous word, for a random word "
        "of a random device. All queries are combined by generalized least squares; "
        "standard errors cover the reports' noise and the sampling."
    )
    if state.histograms:
        found = nested_histograms.combine(state.histograms)
        section.plot("distribution.png", plot_distribution(found))
    section.table("quantiles.csv", results["quantiles"], "Quantiles")
    buckets = results["buckets"]
    section.table("buckets.csv", buckets, "Buckets", shown=buckets.head(_NUM_SHOWN))


def show_truth(
    report: page.Page,
    algorithm: distribution.Distribution,
    state: distribution.State,
    stored: events.NGramEvents,
    max_k: int,
) -> None:
    """Adds the comparison with the truth; see `ngrams_report.show_truth`."""
    del max_k
    if not state.histograms:
        return
    found = nested_histograms.combine(state.histograms)
    truth = ground_truth.Seconds.of(stored)
    section = report.section("Comparison with the true distribution", covered=False)
    section.table(
        "errors.csv",
        pd.DataFrame([errors(found, truth, algorithm.buckets.largest)]),
        "Largest error of the share below a value; Wasserstein distance up to the last "
        "boundary, in seconds; mean relative error of the quantiles",
    )
    quantiles = algorithm.results(state)["quantiles"]
    quantiles["true_seconds"] = truth.quantiles(distribution.QUANTILES)
    section.plot("distribution.png", plot_distribution(found, truth))
    section.table("quantiles.csv", quantiles)


def headline(algorithm: distribution.Distribution, state: distribution.State) -> str:
    """Returns the program's last line."""
    rows = algorithm.results(state)["quantiles"].itertuples()
    named = ", ".join(f"{row.seconds:.3g} s at {row.share:.0%}" for row in rows)
    return f"Quantiles of the seconds between words: {named or 'none'}."


def errors(
    found: nested_histograms.Distribution, truth: ground_truth.Seconds, largest: float
) -> dict[str, float]:
    """Returns an estimate's distances from the truth.

    Args:
        found: The estimate.
        truth: The truth.
        largest: Start of the last bucket.

    Returns:
        largest_error: of the share below any of many true quantiles; wasserstein: the
        area between the curves from 0 to `largest`, in seconds; quantile_error: the
        mean relative error of the quantiles.
    """
    points = truth.quantiles((np.arange(_NUM_POINTS) + 0.5) / _NUM_POINTS)
    points = points[points <= largest]
    grid = np.unique(np.concatenate([points, np.linspace(0, largest, _NUM_POINTS)]))
    between = np.abs(found.at(grid) - truth.at(grid))
    quantiles, _ = found.quantiles(distribution.QUANTILES)
    true_quantiles = truth.quantiles(distribution.QUANTILES)
    return {
        "largest_error": float(np.abs(found.at(points) - truth.at(points)).max()),
        "wasserstein": float(np.trapz(between, grid)),
        "quantile_error": float(np.abs(quantiles / true_quantiles - 1).mean()),
    }


def plot_distribution(
    found: nested_histograms.Distribution, truth: ground_truth.Seconds | None = None
) -> figure_lib.Figure:
    """Plots the share below each value, with two standard errors."""
    figure, axes = plots.single(
        "Seconds between words", "seconds", "share with fewer seconds"
    )
    edges, below = found.boundaries[1:], found.monotone()[1:]
    if truth is not None:
        axes.plot(edges, truth.at(edges), color=plots.INK, label="truth")
    axes.errorbar(
        edges,
        below,
        yerr=2 * found.stderrs[1:],
        fmt="o",
        markersize=3,
        linewidth=1,
        color=plots.BLUE,
        label="estimate, two standard errors",
    )
    axes.set_xscale("log")
    plots.in_percent(axes.yaxis)
    plots.legend(axes)
    return figure
