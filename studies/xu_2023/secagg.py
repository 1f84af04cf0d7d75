"""The cost of secure aggregation's few bits (Xu et al. 2023, section 2.4).

Runs that differ in the scale s of Algorithm 2 alone: the more of it, the more bits a
parameter takes, and the less rounding adds to the loss and to the zCDP. Beside them
stands a run whose sums are exact, in integers of 64 bits. Another table has the bits
and the cost that the paper's model and report goal would have; it takes no run.
"""

import dataclasses
import math
import os
import pathlib

import pandas as pd

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from federated_hh.privacy.dp_ftrl import model_updates, rotated_updates
from federated_hh.reports import plots
from studies import pages, study, study_options, training_runs
from training.models import metric_names

_TITLE = "Bits of secure aggregation, loss and zCDP (Xu et al. 2023, section 2.4)"
_FLAGFILE = "configs/training_demo.flagfile"
_EXACT = "exact"
_LOSS, _SUGGESTION = "held_out_loss", "held_out_one_suggestion"
_SPARE_CLIENTS = 1000
# Of the paper: clients of a round, and parameters of a model of 10,000 words.
_REPORT_GOAL, _NUM_VALUES = 6500, 2_400_000
_RATIOS = (1, 2, 3.5, 5, 10, 50)
# Any: at one ratio nothing but the scale depends on it.
_CLIP_NORM = 0.3


@dataclasses.dataclass(frozen=True)
class Options(study_options.ComputedOptions):
    """Options of the study; each field is a flag."""

    scales: tuple[str, ...] = option(
        ("100", "300", "1000", "3000", "10000"),
        "Scales s, a run each: increasing numbers above 0.",
    )
    num_rounds: int = option(
        40,
        "Rounds of each run; a client is in one at most.",
        least=1,
        most=100_000,
    )
    cohort_size: int = option(
        200, "Clients of a round.", least=1, most=100_000, why="they are drawn again"
    )

    def __post_init__(self):
        super().__post_init__()
        try:
            found = list(map(float, self.scales))
        except ValueError:
            found = []
        is_positive = all(0 < scale < math.inf for scale in found)
        if not found or not is_positive or sorted({*found}) != found:
            raise options_lib.OptionError(
                self, "{scales=}: has to be increasing numbers above 0"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecAggStudy(training_runs.TrainingStudy):
    """Runs of several scales; a `study.Study`."""

    def files(self, found: study.Tables, directory: pathlib.Path) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del found
        rows = [
            _row(setting, path) for (setting, _), path in self.paths(directory).items()
        ]
        table, paper = pd.DataFrame(rows), of_the_paper()
        return {
            "summary.csv": tables.write(table).encode(),
            "bits.csv": tables.write(paper).encode(),
            "tradeoff.png": plot(table),
            study.PAGE: self._page(table, paper),
        }

    def _page(self, table: pd.DataFrame, paper: pd.DataFrame) -> bytes:
        of_runs: dict[str, pages.Cell] = {
            "": lambda row: (
                "exact sums" if row["setting"] == _EXACT else f"s = {row['scale']:g}"
            ),
            "bits a parameter": "{bits}",
            "kB a client": lambda row: f"{row['upload_bytes'] / 1e3:,.0f}",
            "C_inflated / C": "{norm_factor:.4f}",
            "zCDP rho": "{rho:.4f}",
            "loss": "{loss:.3f}",
            "one suggestion": "{one_suggestion:.1%}",
        }
        of_paper: dict[str, pages.Cell] = {
            "q": "{ratio:g}",
            "C_inflated / C": "{norm_factor:.5f}",
            "factor of rho": "{rho_factor:.4f}",
            "C_inf": "{largest_coordinate}",
            "log2 of the paper's M": "{log2_modulus:.1f}",
            "bits": "{bits}",
            "MB a client": lambda row: f"{row['upload_bytes'] / 1e6:.1f}",
        }
        return pages.page(
            self.title,
            "After the last round, on held-out clients; all runs have the same cohorts "
            "and first weights, and noise of z C:",
            pages.table(of_runs, table.to_dict("records")),
            f"The bits of {_NUM_VALUES / 1e6:g} million parameters and "
            f"{_REPORT_GOAL:,} clients, by q = s C / sqrt(padded dimension):",
            pages.table(of_paper, paper.to_dict("records"), "r"),
        )


def _row(setting: training_runs.Setting, path: pathlib.Path) -> dict[str, object]:
    last = training_runs.read_metrics(path).iloc[-1]
    stated = training_runs.read_privacy(path)
    guarantee, *_ = stated["guarantees"]
    parameters = stated["parameters"]
    row = {
        "setting": setting.name,
        "scale": parameters.get("scale s of secure aggregation", math.nan),
        "norm_factor": parameters.get("C_inflated / C", 1.0),
        "rho": guarantee["rho"],
        "epsilon": guarantee["epsilon"],
        "loss": last[_LOSS],
        "one_suggestion": last[_SUGGESTION],
    }
    if setting.name == _EXACT:
        # A client's integers are 0 to 2^33, and a sum's the report goal times that.
        largest = (
            parameters["report goal m"] * 2 * model_updates.ClippedUpdate.sensitivity
        )
        bits = largest.bit_length()
        size = training_runs.read_num_parameters(path)
        return row | {"bits": bits, "upload_bytes": -(-size * bits // 8)}
    return row | {
        "bits": int(last["bits_per_parameter"]),
        "upload_bytes": parameters["bytes that a client sends in a round"],
    }


def of_the_paper() -> pd.DataFrame:
    """Returns the sizes of the paper's model and report goal, a row for each ratio."""
    rows = []
    for ratio in _RATIOS:
        default = rotated_updates.RotatedUpdate.of(
            clip_norm=_CLIP_NORM, num_values=_NUM_VALUES, num_clients=_REPORT_GOAL
        )
        found = dataclasses.replace(
            default, scale=default.scale * ratio / rotated_updates.DEFAULT_RATIO
        )
        sums = 2 * found.largest_coordinate * _REPORT_GOAL + 1
        rows.append(
            {
                "ratio": float(ratio),
                "scale": found.scale,
                "norm_factor": float(found.norm_factor),
                "rho_factor": float(found.rho_factor),
                "largest_coordinate": found.largest_coordinate,
                "log2_modulus": math.log2(sums),
                "bits": found.bits,
                "upload_bytes": found.num_bytes,
            }
        )
    return pd.DataFrame(rows)


def plot(table: pd.DataFrame) -> bytes:
    """Plots loss, suggestions and zCDP against bits; returns a PNG."""
    panels = {
        "loss": metric_names.title("loss"),
        "one_suggestion": metric_names.title("one_suggestion"),
        "rho": "zCDP rho",
    }
    figure, axes_of = plots.stacked(list(panels.values()), "bits a parameter")
    rotated = table[table["setting"] != _EXACT].sort_values("bits")
    exact = table[table["setting"] == _EXACT]
    for axes, column in zip(axes_of, panels, strict=True):
        axes.plot(
            rotated["bits"],
            rotated[column],
            marker="o",
            color=plots.BLUE,
            label="rounded sums, at scale s",
        )
        for bits, value, scale in rotated[["bits", column, "scale"]].to_numpy():
            axes.annotate(
                f"s = {scale:g}",
                (bits, value),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                color=plots.MUTED,
                fontsize=8,
            )
        for value in exact[column]:
            plots.straight_lines(axes, {"exact sums": value})
        axes.margins(x=0.08, y=0.4)
        axes.locator_params(axis="y", nbins=4)
        plots.label_metric(axes.yaxis, column)
        if column == "rho":
            axes.set_ylim(bottom=0)
    plots.legend(axes_of[0], below=True)
    return plots.png(figure)


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> SecAggStudy:
    """Returns the study; see `studies`."""
    del name
    clients = options.cohort_size * options.num_rounds + _SPARE_CLIENTS
    settings = [training_runs.Setting(_EXACT, "exact sums", (), plots.INK)]
    settings += [
        training_runs.Setting(
            f"scale_{scale}",
            f"s = {scale}",
            ("--update_encoding=rotated", f"--rounding_scale={scale}"),
            plots.BLUE,
        )
        for scale in options.scales
    ]
    return SecAggStudy(
        title=_TITLE,
        settings=settings,
        flags=(
            f"--flagfile={training_runs.ROOT / _FLAGFILE}",
            f"--num_clients={clients}",
            f"--cohort_size={options.cohort_size}",
            f"--num_rounds={options.num_rounds}",
            f"--min_separation={options.num_rounds - 1}",
        ),
        cache=cache,
        seed=seed,
    )
