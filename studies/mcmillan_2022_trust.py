"""One histogram under every trust model, at the same central epsilon and delta.

Who adds the noise, and who is trusted with what, decides how much noise there is. All
rows ask the same question of the same devices; all have the same guarantee against an
analyst, who sees no more than what is released, for an exchange of one device's cell.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy import optimize, stats

from options import fields as options_lib
from options.fields import option
from privacy import conversions, renyi_aggregation, shuffling
from randomness import discrete_gaussian, streams
from simulation import plots, run_directory, tables
from studies import study

EPSILON, DELTA = 1.0, 1e-6
# As in Figure 4 of McMillan et al. 2022: (1 + 7) (1 + 3 (1 + 1 + 9)).
CELLS = 272
# A replacement takes one from a cell and adds one to another.
_L1, _L2 = 2.0, math.sqrt(2)
_TITLE = "One histogram under every trust model"
_CONFIDENCE = 0.95
# That integer noise has beyond the Gaussian's whose guarantee it has, by
# docs/integer_noise.md.
_ROUNDING_VARIANCE = 5


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


@dataclasses.dataclass(frozen=True)
class Noise:
    """What a trust model adds to a histogram.

    Attributes:
        local_epsilon: Of what leaves a device, for replacement; None where that is the
            cell itself, or says nothing without the others'.
        variance: Of an estimate, averaged over the cells, by the formulas.
        draw: Takes a true histogram and a stream; returns estimates: float64 [cells].
    """

    local_epsilon: float | None
    variance: Callable[[np.ndarray], float]
    draw: Callable[[np.ndarray, streams.Stream], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Model:
    """Who is trusted with what.

    Attributes:
        name: In tables and plots.
        trusted: With what whom; for the page.
        seen: Guarantee against who adds the reports up.
        noise: By number of devices.
        look: Color and line in the plot.
    """

    name: str
    trusted: str
    seen: str
    noise: Callable[[int], Noise]
    look: tuple[str, str]


def reports(
    kind: shuffling.Randomizer, bound: shuffling.Randomizer | None, devices: int
) -> Noise:
    """Returns what reports of an encoding add.

    Args:
        kind: One of the one-hot encodings.
        bound: What their sum is bounded as; None where a report alone has EPSILON.
        devices: How many reports there are.
    """
    from federated_hh.randomizers import one_hot  # here: TensorFlow takes seconds

    is_symmetric = kind is shuffling.Randomizer.SYMMETRIC_ONE_HOT
    own = EPSILON / (2 if is_symmetric else 1)
    if bound is _SYMMETRIC:
        own = symmetric_epsilon(devices)
    elif bound is not None:
        own = shuffling.largest_local_epsilon(
            bound, epsilon=EPSILON, delta=DELTA, num_reports=devices
        )
    encoding = (
        one_hot.SymmetricOneHotEncoding
        if is_symmetric
        else one_hot.AsymmetricOneHotEncoding
    )
    randomizer = encoding(own, CELLS)

    def draw(histogram: np.ndarray, stream: streams.Stream) -> np.ndarray:
        sums = randomizer.sum_of_reports(histogram, stream.seed_sequence("reports"))
        return randomizer.estimate(sums, devices)

    return Noise(
        own * (2 if is_symmetric else 1),
        lambda histogram: float(np.mean(randomizer.variance(histogram, devices))),
        draw,
    )


@functools.lru_cache(maxsize=16)
def symmetric_epsilon(devices: int) -> float:
    """Returns the largest epsilon of symmetric reports whose sum has the guarantee.

    To a thousandth, downwards: `shuffling.largest_local_epsilon` is closer, and slow.

    Args:
        devices: How many reports there are, at least 1000.
    """

    def excess(own: float) -> float:
        found = renyi_aggregation.symmetric_one_hot_epsilon(own, devices, DELTA)
        return math.log(found[0] / EPSILON)

    own = float(optimize.brentq(excess, EPSILON / 2, 20.0, rtol=1e-4, xtol=1e-4))
    while excess(own) > 0:
        own *= 0.9995
    return own


def discrete_laplace(devices: int) -> Noise:
    """Returns discrete Laplace noise with epsilon EPSILON and delta 0.

    The sum of n differences of negative binomial variables with 1/n successes has this
    law, so that n devices can add it together.
    """
    del devices
    ratio = math.exp(-EPSILON / _L1)

    def draw(histogram: np.ndarray, stream: streams.Stream) -> np.ndarray:
        generator = stream.generator("discrete Laplace")
        first, second = generator.geometric(1 - ratio, (2, CELLS))
        return histogram + (first - second).astype(float)

    return Noise(None, lambda histogram: 2 * ratio / (1 - ratio) ** 2, draw)


def gaussian(devices: int) -> Noise:
    """Returns the house's discrete Gaussian noise with (EPSILON, DELTA)."""
    del devices
    sampler = _sampler()

    def draw(histogram: np.ndarray, stream: streams.Stream) -> np.ndarray:
        return histogram + sampler.sample(stream.bits("Gaussian"), CELLS).astype(float)

    variance = sampler.stddev**2 + _ROUNDING_VARIANCE
    return Noise(None, lambda histogram: variance, draw)


@functools.cache
def _sampler() -> discrete_gaussian.DiscreteGaussian:
    return discrete_gaussian.DiscreteGaussian(gaussian_stddev())


def gaussian_stddev() -> float:
    """Returns the least standard deviation of Gaussian noise for the guarantee."""
    low, high = 1.0, 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        rho = _L2**2 / (2 * middle**2)
        if conversions.zcdp_to_epsilon(rho, DELTA) <= EPSILON:
            high = middle
        else:
            low = middle
    return high


_ASYMMETRIC = shuffling.Randomizer.ASYMMETRIC_ONE_HOT
_SYMMETRIC = shuffling.Randomizer.SYMMETRIC_ONE_HOT
_NO_MORE = "what each report has: its local epsilon"
MODELS = (
    Model(
        "local",
        "nobody with anything",
        "the same epsilon, delta 0",
        lambda n: reports(_ASYMMETRIC, None, n),
        (plots.MUTED, "-"),
    ),
    Model(
        "shuffled",
        "a shuffler not to tell the server whose a report is",
        _NO_MORE,
        lambda n: reports(_ASYMMETRIC, shuffling.Randomizer.ARBITRARY, n),
        (plots.ORANGE, "--"),
    ),
    Model(
        "secure sum, asymmetric reports",
        "the protocol to show the server only the sum of enough reports",
        _NO_MORE + " if the protocol fails",
        lambda n: reports(_ASYMMETRIC, _ASYMMETRIC, n),
        (plots.ORANGE, "-"),
    ),
    Model(
        "secure sum, symmetric reports",
        "the same",
        _NO_MORE + " if the protocol fails",
        lambda n: reports(_SYMMETRIC, _SYMMETRIC, n),
        (plots.BLUE, "-"),
    ),
    Model(
        "two servers, symmetric reports",
        "one of two servers not to collude with the other",
        "perfect against one server; against both " + _NO_MORE,
        lambda n: reports(_SYMMETRIC, _SYMMETRIC, n),
        (plots.BLUE, ":"),
    ),
    Model(
        "secure sum, devices share the noise",
        "the protocol as above, and all devices to add their shares of the noise",
        "none if the protocol fails",
        discrete_laplace,
        (plots.GREEN, "-"),
    ),
    Model(
        "trusted server, Gaussian noise",
        "the server with every device's cell",
        "none",
        gaussian,
        (plots.PURPLE, "-"),
    ),
    Model(
        "trusted server, Laplace noise",
        "the server with every device's cell",
        "none",
        discrete_laplace,
        (plots.PURPLE, ":"),
    ),
)


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
        f"Error of a cell's count at epsilon {EPSILON:g}, delta {DELTA:g}",
        "devices",
        "root mean squared error, devices",
    )
    figure.set_size_inches(7.5, 6)
    for model in MODELS:
        table = errors[errors["model"] == model.name].set_index("devices")
        color, style = model.look
        axes.plot(
            table["error"], color=color, ls=style, marker="o", ms=4, label=model.name
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
        f"against the analyst all have epsilon {EPSILON:g} at delta {DELTA:g} or less.",
        "",
        "| trust model | " + " | ".join(f"{size:,} devices" for size in sizes) + " | "
        "by the formula | local epsilon | who is trusted | against who adds up |",
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
            f"{model.trusted} | {model.seen} |"
        )
    lines += [
        "",
        "* Intervals are of 95%, over the runs. Adjacency is the exchange of one "
        "device's cell. The local epsilon is that of a report, for replacement: the "
        "largest whose sum or shuffle has the guarantee, by privacy.shuffling "
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
        seed: Of all noise.
        cache: Is not needed.
    """
    del name, cache
    return TrustStudy(options.runs, seed)
