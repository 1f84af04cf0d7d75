"""One histogram under every trust model, at the same central epsilon and delta.

Who adds the noise, and who is trusted with what, decides the amount of noise. All rows
ask the same question of the same devices; all have the same guarantee against an
analyst, who sees no more than what is released, for an exchange of one device's cell.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from federated_hh.options.fields import option
from federated_hh.randomness import streams
from federated_hh.reports import plots
from studies import computed, pages, study, study_options
from studies.mcmillan_2022.trust_models import CELLS, MODELS, Model

_TITLE = "One histogram under every trust model"
_CONFIDENCE = 0.95
_DEVICES = (10_000, 100_000, 1_000_000)


@dataclasses.dataclass(frozen=True)
class Options(study_options.ComputedOptions):
    """Number of runs."""

    runs: int = option(100, "Number of runs of each histogram.", least=2, most=100_000)


def true_histogram(devices: int) -> np.ndarray:
    """Returns the number of devices with each cell: int64 [CELLS], by Zipf's law."""
    weights = 1 / np.arange(1, CELLS + 1)
    ends = np.round(devices * np.cumsum(weights) / weights.sum()).astype(np.int64)
    return np.diff(ends, prepend=0)


def errors_of(model: Model, devices: int, runs: int, seed: int) -> dict[str, Any]:
    """Returns the error of a trust model's histograms.

    Args:
        model: The trust model.
        devices: Devices that answer.
        runs: Number of histograms.
        seed: Seed of all noise.
    """
    histogram = true_histogram(devices)
    noise = model.noise(devices)
    stream = streams.Stream(seed, ("trust models", model.name, devices))
    squares = [
        float(np.mean((noise.draw(histogram, stream.at(run)) - histogram) ** 2))
        for run in range(runs)
    ]
    half = stats.t.ppf((1 + _CONFIDENCE) / 2, runs - 1)
    half *= np.std(squares, ddof=1) / math.sqrt(runs)
    mean, local = float(np.mean(squares)), noise.local_epsilon
    return {
        "devices": devices,
        "model": model.name,
        "local_epsilon": math.nan if local is None else local,
        "stderr_theory": math.sqrt(noise.variance(histogram)),
        "error": math.sqrt(mean),
        "error_low": math.sqrt(max(0.0, mean - half)),
        "error_high": math.sqrt(mean + half),
    }


def errors(options: Options, seed: int, devices: int) -> computed.Rows:
    """Returns the errors of all trust models, for a number of devices."""
    found = [errors_of(model, devices, options.runs, seed) for model in MODELS]
    return {"errors": found}


def plot(found: pd.DataFrame) -> bytes:
    """Plots the error of each model over the number of devices; returns a PNG."""
    figure, axes = plots.single(
        "Error of a cell's count at epsilon 1, delta 1e-6",
        "devices",
        "root mean squared error, devices",
    )
    figure.set_size_inches(7.5, 6)
    for model in MODELS:
        table = found[found["model"] == model.name].set_index("devices")
        color, style = model.look
        # Lines of the same noise lie upon each other.
        is_dotted = style == ":"
        look: dict[str, Any] = {"ms": 9, "mfc": "none"} if is_dotted else {"ms": 4}
        axes.plot(
            table["error"], color=color, ls=style, marker="o", label=model.name, **look
        )
        plots.band(axes, table["error_low"], table["error_high"], color)
    axes.set(xscale="log", yscale="log")
    plots.legend(axes, below=True)
    return plots.png(figure)


def show(options: Options, found: Mapping[str, pd.DataFrame]) -> dict[str, bytes]:
    """Returns the files of results by name."""
    del options
    table = found["errors"]
    sizes = sorted(table["devices"].unique())
    rows = []
    for model in MODELS:
        of_model = table[table["model"] == model.name].set_index("devices")
        of_sizes = [of_model.loc[size] for size in sizes]
        epsilons = dict.fromkeys(of_model["local_epsilon"].dropna())
        local = ", ".join(f"{value:.3g}" for value in epsilons) or "none"
        shown = [
            f"{row.error:.4g} ({row.error_low:.4g}–{row.error_high:.4g})"
            for row in of_sizes
        ]
        theory = ", ".join(f"{row.stderr_theory:.4g}" for row in of_sizes)
        rows.append([model.name, *shown, theory, local, model.trusted, model.left])
    header = [
        "trust model",
        *(f"{size:,} devices" for size in sizes),
        *("by the formula", "local epsilon", "who is trusted", "left without that"),
    ]
    align = f"l{'r' * (len(sizes) + 2)}ll"
    return {
        "errors.csv": computed.csv(table, 6),
        "errors.png": plot(table),
        study.PAGE: pages.page(
            _TITLE,
            f"Root mean squared error of a cell's count, in devices, of {CELLS} cells; "
            f"against the analyst all have epsilon 1 at delta 1e-6 or less.",
            pages.table_of(header, rows, align),
            _NOTES,
        ),
    }


_NOTES = pages.notes(
    "95% intervals are over runs. Adjacency is the exchange of one device's cell.",
    "The local epsilon of a report, for replacement, is the largest whose sum or "
    "shuffle has the guarantee. Bounds: the clones of 2021 for shuffling, those of "
    "2022 for asymmetric sums, and the Rényi route for symmetric sums "
    "(federated_hh.privacy.shuffle.amplification).",
    "The sums of reports, and of shares of noise, are drawn from their exact laws. A "
    "secure sum and two servers release the same sum.",
    "The error is over all cells. Symmetric reports have the same variance in each. "
    "Asymmetric reports have less in rare cells; elsewhere it grows with the count.",
    "Laplace noise has delta 0. It is better here, because a device changes only two "
    "cells. The Gaussian noise is on integers, which adds 5 to the variance "
    "(docs/integer_noise.md).",
)


prepare = computed.prepares(
    _TITLE,
    [computed.Setting(f"{number} devices", (number,)) for number in _DEVICES],
    errors,
    show,
)
