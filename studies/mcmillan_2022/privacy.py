"""Figure 1 of McMillan et al. 2022: epsilon of a cohort's sum."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from federated_hh.options.fields import option
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import clones, closed_forms, renyi_aggregation
from federated_hh.reports import plots
from studies import computed, pages, study, study_options

DELTA = 1e-6
# "At most (1, 1e-6)-DP in the aggregate model once n > 1,000" (section 3.1.2).
CLAIM_EPSILON = 1.0
_TITLE = "Figure 1 of McMillan et al. 2022: epsilon of a cohort's sum"

# By column: its name, its color, its line.
_LINES = {
    "equation1": ("equation (1)", plots.MUTED, ":"),
    "clones_2021": ("clones 2021, any randomizer", plots.PURPLE, "--"),
    "clones_2022": ("clones 2022, as in the paper", plots.ORANGE, "-"),
    "asymmetric": ("asymmetric encoding, Rényi", plots.BLUE, "-"),
    "symmetric": ("symmetric encoding, Rényi (C.3)", plots.GREEN, "-"),
}
# Bounds whose smallest cohorts are told.
_METHODS = (
    (shuffling.Randomizer.ASYMMETRIC_ONE_HOT, shuffling.Method.EQUATION_1),
    (shuffling.Randomizer.ARBITRARY, shuffling.Method.CLONES_2021),
    (shuffling.Randomizer.ASYMMETRIC_ONE_HOT, shuffling.Method.CLONES_2022),
    (shuffling.Randomizer.SYMMETRIC_ONE_HOT, shuffling.Method.RENYI),
)


@dataclasses.dataclass(frozen=True)
class Options(study_options.ComputedOptions):
    """Points of the curves."""

    cohorts_per_decade: int = option(
        4,
        "Cohort sizes of Figure 1 from each power of ten to the next; each takes ten "
        "seconds.",
        least=1,
        most=100,
    )

    @property
    def cohorts(self) -> tuple[int, ...]:
        """The x axis of Figure 1, from 100 to 10 million."""
        return computed.powers_of_ten(100, 5, self.cohorts_per_decade)


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
    asymmetric = renyi_aggregation.asymmetric_one_hot_epsilon
    symmetric = renyi_aggregation.symmetric_one_hot_epsilon
    for name, bound, own, replacement in (
        ("asymmetric", asymmetric, local_epsilon, local_epsilon),
        ("symmetric", symmetric, local_epsilon / 2, local_epsilon),
        ("symmetric_deletion", symmetric, local_epsilon, 2 * local_epsilon),
    ):
        found[name] = min(bound(own, cohort, delta)[0], replacement)
    return found


def minimum_cohorts(local_epsilon: float) -> list[dict[str, Any]]:
    """Returns the smallest cohorts with the epsilon of the paper's claim, by bound."""
    rows = []
    for kind, method in _METHODS:
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


def curves(options: Options, seed: int, local_epsilon: float) -> computed.Rows:
    """Returns the points of a local epsilon's curves, and the smallest cohorts."""
    del seed
    rows = [
        {
            "local_epsilon": local_epsilon,
            "cohort": cohort,
            **epsilons(local_epsilon, cohort),
        }
        for cohort in options.cohorts
    ]
    return {"figure1": rows, "minimum_cohorts": minimum_cohorts(local_epsilon)}


def plot(figure1: pd.DataFrame) -> bytes:
    """Plots epsilon of the sum over the size of the cohort; returns a PNG."""
    groups = list(figure1.groupby("local_epsilon"))
    title = "Epsilon of a cohort's sum at delta 1e-6, local epsilon"
    figure, panels = plots.stacked(
        [f"{title} {local:g}" for local, _ in groups], "reports in the cohort"
    )
    figure.set_size_inches(7.5, 8)
    for axes, (_, group) in zip(panels, groups, strict=True):
        table = group.set_index("cohort")
        for column, (label, color, style) in _LINES.items():
            axes.plot(table[column], ls=style, color=color, label=label)
        axes.axhline(CLAIM_EPSILON, color=plots.GRID, lw=2, zorder=0)
        axes.set(xscale="log", yscale="log")
        axes.set_ylabel("epsilon", color=plots.MUTED)
    plots.legend(panels[0])
    return plots.png(figure)


def _bound(name: str, row: Mapping[str, Any]) -> str:
    return pages.upper_bound(row[name])


def show(options: Options, found: Mapping[str, pd.DataFrame]) -> dict[str, bytes]:
    """Returns the files of results by name."""
    del options
    figure1, least = found["figure1"], found["minimum_cohorts"]
    columns: dict[str, pages.Cell] = {
        "local epsilon": "{local_epsilon:g}",
        "reports": "{cohort:,}",
    }
    for name, (label, _, _) in _LINES.items():
        columns[label] = functools.partial(_bound, name)
    of_least = {
        "local epsilon": "{local_epsilon:g}",
        "randomizer": "{randomizer}",
        "bound": "{bound}",
        "reports for epsilon 1": "{minimum_cohort:,}",
    }
    is_shown = figure1["cohort"].map(lambda cohort: math.log10(cohort) % 1 == 0)
    return {
        "figure1.csv": computed.csv(figure1, 8),
        "minimum_cohorts.csv": computed.csv(least),
        "figure1.png": plot(figure1),
        study.PAGE: pages.page(
            _TITLE,
            pages.table(columns, figure1[is_shown].to_dict("records"), "r"),
            pages.table(of_least, least.to_dict("records"), "rllr"),
            pages.notes(
                "Delta is 1e-6; local epsilons are for replacement. Equation (1) is "
                "shown where it is valid. For deletion, the symmetric encoding's local "
                "epsilon is half of that shown.",
                "The paper prints one number, 'at most (1, 1e-6) once n > 1,000' at "
                "local epsilon 3. It holds by the clones of 2022, which the paper "
                "cites, and by the Rényi route. The published program has the clones "
                "of 2021, which need 1,405 reports.",
            ),
        ),
    }


prepare = computed.prepares(
    _TITLE,
    [computed.Setting(f"local epsilon {local:g}", (local,)) for local in (3.0, 6.0)],
    curves,
    show,
)
