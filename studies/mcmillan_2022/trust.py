"""One histogram under every trust model, at the same central epsilon and delta.

Who adds the noise, and who is trusted with what, decides how much noise there is. All
rows ask the same question of the same devices; all have the same guarantee against an
analyst, who sees no more than what is released, for an exchange of one device's cell.
"""

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy import stats

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from federated_hh.randomness import streams
from federated_hh.reports import plots
from federated_hh.run_directory import directory as run_directory
from studies import study
from studies.mcmillan_2022.trust_models import CELLS, MODELS, Model

_TITLE = "One histogram under every trust model"
_CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Options:
    """How the study is made; each field is a flag."""

    is_synthetic: ClassVar[bool] = True

    runs: int = option(
        100, "How often each histogram is asked for.", least=2, most=100_000
    )

    def __post_init__(self):
        options_lib.check(self)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A number of devices.

    Attributes:
        devices: All of which answer.
    """

    devices: int

    @property
    def name(self) -> str:
        """In tables, and of its part of the run directory."""
        return f"{self.devices} devices"


def true_histogram(devices: int) -> np.ndarray:
    """Returns how many devices have each cell: int64 [CELLS], by Zipf's law."""
    weights = 1 / np.arange(1, CELLS + 1)
    ends = np.round(devices * np.cumsum(weights) / weights.sum()).astype(np.int64)
    return np.diff(ends, prepend=0)


@dataclasses.dataclass(frozen=True)
class TrustStudy:
    """The error of each trust model, a setting a number of devices; a `study.Study`.

    Attributes:
        runs: How often each histogram is asked for.
        seed: Decides all that is random.
    """

    runs: int
    seed: int
    title: str = _TITLE
    settings: tuple[Setting, ...] = (
        Setting(10_000),
        Setting(100_000),
        Setting(1_000_000),
    )
    num_repeats: int = 1
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> dict[str, list[dict[str, Any]]]:
        """Asks the devices under each model; see `study.Study`."""
        del repeat, part
        histogram = true_histogram(setting.devices)
        return {
            "errors": [
                {
                    "devices": setting.devices,
                    "model": model.name,
                    **self._errors(model, histogram),
                }
                for model in MODELS
            ]
        }

    def _errors(self, model: Model, histogram: np.ndarray) -> dict[str, Any]:
        noise = model.noise(int(histogram.sum()))
        devices = int(histogram.sum())
        stream = streams.Stream(self.seed, ("trust models", model.name, devices))
        squares = [
            float(np.mean((noise.draw(histogram, stream.at(run)) - histogram) ** 2))
            for run in range(self.runs)
        ]
        half = stats.t.ppf((1 + _CONFIDENCE) / 2, self.runs - 1)
        half *= np.std(squares, ddof=1) / math.sqrt(self.runs)
        mean = float(np.mean(squares))
        return {
            "local_epsilon": math.nan
            if noise.local_epsilon is None
            else noise.local_epsilon,
            "stderr_theory": math.sqrt(noise.variance(histogram)),
            "error": math.sqrt(mean),
            "error_low": math.sqrt(max(0.0, mean - half)),
            "error_high": math.sqrt(mean + half),
        }

    def files(self, tables_: study.Tables, directory: Any) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        errors = tables_["errors"].drop(columns=["setting", "repeat"])
        return {
            "errors.csv": tables.write(errors, significant_digits=6).encode(),
            "errors.png": plot(errors),
            study.PAGE: _to_markdown(errors).encode(),
        }


def plot(errors: pd.DataFrame) -> bytes:
    """Plots the error of each model over the number of devices; returns a PNG."""
    figure, axes = plots.single(
        "Error of a cell's count at epsilon 1, delta 1e-6",
        "devices",
        "root mean squared error, devices",
    )
    figure.set_size_inches(7.5, 6)
    for model in MODELS:
        table = errors[errors["model"] == model.name].set_index("devices")
        color, style = model.look
        axes.plot(
            table["error"],
            color=color,
            ls=style,
            marker="o",
            label=model.name,
            # Lines of the same noise lie upon each other.
            ms=9 if style == ":" else 4,
            mfc="none" if style == ":" else color,
        )
        plots.band(axes, table["error_low"], table["error_high"], color)
    axes.set_xscale("log")
    axes.set_yscale("log")
    plots.legend(axes, below=True)
    return plots.png(figure)


def _to_markdown(errors: pd.DataFrame) -> str:
    sizes = sorted(errors["devices"].unique())
    lines = [
        f"### {_TITLE}",
        "",
        f"Root mean squared error of a cell's count, in devices, of {CELLS} cells; "
        f"against the analyst all have epsilon 1 at delta 1e-6 or less.",
        "",
        "| trust model | " + " | ".join(f"{size:,} devices" for size in sizes) + " | "
        "by the formula | local epsilon | who is trusted | left without that |",
        "|---|" + "--:|" * (len(sizes) + 2) + "---|---|",
    ]
    for model in MODELS:
        rows = errors[errors["model"] == model.name].set_index("devices")
        shown = [
            f"{row.error:.4g} ({row.error_low:.4g}–{row.error_high:.4g})"
            for row in (rows.loc[size] for size in sizes)
        ]
        theory = ", ".join(f"{rows.loc[size].stderr_theory:.4g}" for size in sizes)
        epsilons = dict.fromkeys(rows["local_epsilon"].dropna())
        local = ", ".join(f"{value:.3g}" for value in epsilons) or "none"
        lines.append(
            f"| {model.name} | {' | '.join(shown)} | {theory} | {local} | "
            f"{model.trusted} | {model.left} |"
        )
    lines += [
        "",
        "* Intervals are of 95%, over the runs. Adjacency is the exchange of one "
        "device's cell. The local epsilon is that of a report, for replacement: the "
        "largest whose sum or shuffle has the guarantee, by "
        "federated_hh.privacy.shuffle.amplification "
        "(shuffled: the clones of 2021, for any randomizer; asymmetric sums: those of "
        "2022; symmetric ones: the Rényi route).",
        "* The sums of reports, and of shares of noise, are drawn from their exact "
        "laws. What a secure sum and two servers release is the same sum.",
        "* The error is over all cells. Symmetric reports have the same variance in "
        "each; asymmetric ones have less in rare cells, and in a cell of many devices "
        "as much more as there are of them.",
        "* Laplace noise has delta 0. It is the better one here, as a device changes "
        "two cells only. The Gaussian noise is on integers, which adds 5 to the "
        "variance (docs/integer_noise.md).",
    ]
    return "\n".join(lines) + "\n"


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> TrustStudy:
    """Returns the study.

    Args:
        name: There is one study only.
        options: How it is made.
        seed: The seed of all noise.
        cache: Is not needed.
    """
    del name, cache
    return TrustStudy(options.runs, seed)
