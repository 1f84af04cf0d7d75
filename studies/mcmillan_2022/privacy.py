"""Figure 1 of McMillan et al. 2022: what a cohort's sum adds to local privacy."""

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import clones, closed_forms, renyi_aggregation
from federated_hh.reports import plots
from federated_hh.run_directory import directory as run_directory
from studies import study

DELTA = 1e-6
_SMALLEST, _DECADES = 100, 5
# "At most (1, 1e-6)-DP in the aggregate model once n > 1,000" (section 3.1.2).
CLAIM_EPSILON = 1.0
_TITLE = "Figure 1 of McMillan et al. 2022: epsilon of a cohort's sum"

# By column: its name, its color, its line.
_LINES = {
    "equation1": ("equation (1)", plots.MUTED, ":"),
    "clones_2021": ("clones 2021, any randomizer", plots.ORANGE, "--"),
    "clones_2022": ("clones 2022, as in the paper", plots.ORANGE, "-"),
    "asymmetric": ("asymmetric encoding, Rényi", plots.BLUE, "-"),
    "symmetric": ("symmetric encoding, Rényi (C.3)", plots.GREEN, "-"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """How the study is made; each field is a flag."""

    is_synthetic: ClassVar[bool] = True

    cohorts_per_decade: int = option(
        4,
        "How many cohort sizes of Figure 1 there are from each power of ten to the "
        "next; each takes ten seconds.",
        least=1,
        most=100,
    )

    def __post_init__(self):
        options_lib.check(self)

    @property
    def cohorts(self) -> tuple[int, ...]:
        """The x axis of Figure 1."""
        sizes = np.geomspace(
            _SMALLEST,
            _SMALLEST * 10**_DECADES,
            _DECADES * self.cohorts_per_decade + 1,
        )
        return tuple(sizes.round().astype(int).tolist())


@dataclasses.dataclass(frozen=True)
class Setting:
    """A local epsilon.

    Attributes:
        local_epsilon: The local epsilon of a report, for replacement.
    """

    local_epsilon: float

    @property
    def name(self) -> str:
        """In tables, and of its part of the run directory."""
        return f"local epsilon {self.local_epsilon:g}"


def equation1(local_epsilon: float, cohort: int, delta: float) -> float:
    """Computes equation (1), or NaN outside its validity range."""
    try:
        return closed_forms.amplified_epsilon(local_epsilon, cohort, delta)
    except ValueError:
        return math.nan


def epsilons(local_epsilon: float, cohort: int, delta: float = DELTA) -> dict:
    """Computes epsilon of the sum of a cohort's reports, by all that is proved.

    Args:
        local_epsilon: The local epsilon of a report, for replacement.
        cohort: Reports, at least 2.
        delta: The delta of the sum.

    Returns:
        By bound: equation1 (NaN outside its validity range), clones_2021 for every
        randomizer, clones_2022 for the asymmetric encoding, and the Renyi route for
        the asymmetric and the symmetric one, whose local epsilon for deletion is half
        of that for replacement; symmetric_deletion is where that epsilon is
        `local_epsilon`. None is above the local epsilon for replacement.
    """
    found = {"equation1": equation1(local_epsilon, cohort, delta)}
    for year in (2021, 2022):
        pair = clones.ClonePair(local_epsilon, cohort, stronger=year == 2022)
        found[f"clones_{year}"] = pair.epsilon(delta)
    renyi = {
        "asymmetric": renyi_aggregation.asymmetric_one_hot_epsilon(
            local_epsilon, cohort, delta
        )[0],
        "symmetric": renyi_aggregation.symmetric_one_hot_epsilon(
            local_epsilon / 2, cohort, delta
        )[0],
        "symmetric_deletion": renyi_aggregation.symmetric_one_hot_epsilon(
            local_epsilon, cohort, delta
        )[0],
    }
    for name, value in renyi.items():
        twice = 2 if name == "symmetric_deletion" else 1
        found[name] = min(value, twice * local_epsilon)
    return found


def minimum_cohorts(local_epsilon: float) -> list[dict[str, Any]]:
    """Returns how many reports have the epsilon of the paper's claim, by bound."""
    rows = []
    for kind, method in (
        (shuffling.Randomizer.ASYMMETRIC_ONE_HOT, shuffling.Method.EQUATION_1),
        (shuffling.Randomizer.ARBITRARY, shuffling.Method.CLONES_2021),
        (shuffling.Randomizer.ASYMMETRIC_ONE_HOT, shuffling.Method.CLONES_2022),
        (shuffling.Randomizer.SYMMETRIC_ONE_HOT, shuffling.Method.RENYI),
    ):
        half = kind is shuffling.Randomizer.SYMMETRIC_ONE_HOT
        reports = shuffling.Reports(
            randomizer=kind, local_epsilon=local_epsilon / (2 if half else 1)
        )
        least = shuffling.minimum_reports(
            reports, epsilon=CLAIM_EPSILON, delta=DELTA, method=method
        )
        rows.append(
            {
                "local_epsilon": local_epsilon,
                "randomizer": kind.value,
                "bound": method.value,
                "minimum_cohort": least,
            }
        )
    return rows


@dataclasses.dataclass(frozen=True)
class PrivacyStudy:
    """Figure 1, a setting a local epsilon; a `study.Study`.

    Attributes:
        cohorts: The cohorts of the x axis.
    """

    cohorts: tuple[int, ...]
    title: str = _TITLE
    settings: tuple[Setting, ...] = (Setting(3.0), Setting(6.0))
    num_repeats: int = 1
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> dict[str, list[dict[str, Any]]]:
        """Computes the curves of a local epsilon; see `study.Study`."""
        del repeat, part
        local = setting.local_epsilon
        rows = [
            {"local_epsilon": local, "cohort": cohort, **epsilons(local, cohort)}
            for cohort in self.cohorts
        ]
        return {"figure1": rows, "minimum_cohorts": minimum_cohorts(local)}

    def files(self, tables_: study.Tables, directory: Any) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        figure1, least = (
            tables_[name].drop(columns=["setting", "repeat"])
            for name in ("figure1", "minimum_cohorts")
        )
        return {
            "figure1.csv": tables.write(figure1, significant_digits=8).encode(),
            "minimum_cohorts.csv": tables.write(least).encode(),
            "figure1.png": plot(figure1),
            study.PAGE: _to_markdown(figure1, least).encode(),
        }


def plot(figure1: pd.DataFrame) -> bytes:
    """Plots epsilon of the sum over the size of the cohort; returns a PNG."""
    groups = list(figure1.groupby("local_epsilon"))
    figure, panels = plots.stacked(
        [
            f"Epsilon of a cohort's sum at delta 1e-6, local epsilon {local:g}"
            for local, _ in groups
        ],
        "reports in the cohort",
    )
    figure.set_size_inches(7.5, 8)
    for axes, (_, group) in zip(panels, groups, strict=True):
        table = group.set_index("cohort")
        for column, (label, color, style) in _LINES.items():
            axes.plot(table[column], ls=style, color=color, label=label)
        axes.axhline(CLAIM_EPSILON, color=plots.GRID, lw=2, zorder=0)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylabel("epsilon", color=plots.MUTED)
    plots.legend(panels[0])
    return plots.png(figure)


def _to_markdown(figure1: pd.DataFrame, least: pd.DataFrame) -> str:
    header = [label for label, _, _ in _LINES.values()]
    lines = [
        f"### {_TITLE}",
        "",
        f"| local epsilon | reports | {' | '.join(header)} |",
        "|--:" * (len(header) + 2) + "|",
    ]
    for row in figure1.to_dict("records"):
        if math.log10(row["cohort"]) % 1 == 0:
            shown = [shown_epsilon(row[name]) for name in _LINES]
            lines.append(
                f"| {row['local_epsilon']:g} | {row['cohort']:,} | "
                f"{' | '.join(shown)} |"
            )
    lines += [
        "",
        "| local epsilon | randomizer | bound | reports for epsilon 1 |",
        "|--:|---|---|--:|",
    ]
    for row in least.itertuples():
        lines.append(
            f"| {row.local_epsilon:g} | {row.randomizer} | {row.bound} | "
            f"{row.minimum_cohort:,} |"
        )
    lines += [
        "",
        "* Delta is 1e-6; local epsilons are for replacement. Equation (1) is shown "
        "where it is valid. The symmetric encoding's own local epsilon, for deletion, "
        "is half of that shown.",
        "* The paper's curves have no numbers; its text has one, 'at most (1, 1e-6) "
        "once n > 1,000' at local epsilon 3. It holds by the clones of 2022, which the "
        "paper names, and by the Rényi route; by the published program, which has the "
        "clones of 2021, it would need 1,405 reports.",
    ]
    return "\n".join(lines) + "\n"


def shown_epsilon(epsilon: float) -> str:
    """Returns an epsilon with three digits, rounded upwards; empty where there is none.

    An upper bound stays one.
    """
    if math.isnan(epsilon):
        return ""
    digits = 2 - math.floor(math.log10(epsilon))
    return (
        f"{math.ceil(round(epsilon * 10**digits, 6)) / 10**digits:.{max(digits, 0)}f}"
    )


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> PrivacyStudy:
    """Returns the study; nothing of it is random.

    Args:
        name: There is one study only.
        options: How it is made.
        seed: Decides nothing.
        cache: Is not needed.
    """
    del name, seed, cache
    return PrivacyStudy(options.cohorts)
