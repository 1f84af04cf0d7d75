"""How many queries a device answers, by each way to compose (McMillan et al. 2022).

The paper checks budgets by basic composition (section 4.3), and says that advanced
composition or other accounting will do as well.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from federated_hh.privacy import conversions
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import clones, renyi_aggregation
from federated_hh.reports import plots
from federated_hh.run_directory import directory as run_directory
from studies import study

# Of all queries together.
EPSILON, DELTA = 1.0, 1e-6
_MOST_QUERIES = 10**6
_TITLE = "How many queries a budget of (1, 1e-6) admits"
_LINES = {
    "basic": ("basic", plots.MUTED),
    "advanced": ("advanced", plots.ORANGE),
    "renyi": ("Rényi", plots.BLUE),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """How the study is made; each field is a flag."""

    is_synthetic: ClassVar[bool] = True

    cohorts_per_decade: int = option(
        2,
        "How many cohort sizes there are from each power of ten to the next.",
        least=1,
        most=100,
    )

    def __post_init__(self):
        options_lib.check(self)

    @property
    def cohorts(self) -> tuple[int, ...]:
        """From 1,000 to 10 million."""
        sizes = np.geomspace(10**3, 10**7, 4 * self.cohorts_per_decade + 1)
        return tuple(sizes.round().astype(int).tolist())


@dataclasses.dataclass(frozen=True)
class Setting:
    """An encoding and a local epsilon.

    Attributes:
        encoding: asymmetric or symmetric.
        local_epsilon: The local epsilon of a report, for replacement.
    """

    encoding: str
    local_epsilon: float

    @property
    def name(self) -> str:
        """In tables, and of its part of the run directory."""
        return f"{self.encoding}, local epsilon {self.local_epsilon:g}"

    def epsilon(self, cohort: int, delta: float) -> float:
        """Returns epsilon of the sum of one query's reports."""
        if self.encoding == "asymmetric":
            pair = clones.ClonePair(self.local_epsilon, cohort, stronger=True)
            return pair.epsilon(delta)
        return renyi_aggregation.symmetric_one_hot_epsilon(
            self.local_epsilon / 2, cohort, delta
        )[0]

    def divergence(self, cohort: int, order: int) -> float:
        """Returns the Renyi divergence of the sum of one query's reports."""
        if self.encoding == "asymmetric":
            return renyi_aggregation.asymmetric_one_hot_rho(
                order, self.local_epsilon, cohort
            )
        return renyi_aggregation.symmetric_one_hot_rho(
            order, self.local_epsilon / 2, cohort
        )


def queries(setting: Setting, cohort: int) -> dict[str, int]:
    """Returns how many queries have (EPSILON, DELTA) altogether, by composition.

    Args:
        setting: How the reports are made.
        cohort: How many there are of a query.
    """
    order = device_policy.renyi_order(EPSILON, DELTA)
    rho = setting.divergence(cohort, order)

    def basic(count: int) -> bool:
        return count * setting.epsilon(cohort, DELTA / count) <= EPSILON

    def advanced(count: int) -> bool:
        # Half of delta for the composition, the other half for the queries.
        squares = count * setting.epsilon(cohort, DELTA / 2 / count) ** 2
        spread = math.sqrt(-2 * math.log(DELTA / 2) * squares)
        return spread + squares / 2 <= EPSILON

    def renyi(count: int) -> bool:
        return conversions.renyi_to_epsilon(count * rho, order, DELTA) <= EPSILON

    return {"basic": _most(basic), "advanced": _most(advanced), "renyi": _most(renyi)}


def _most(is_within: Callable[[int], bool]) -> int:
    """Returns the most queries, 0 to _MOST_QUERIES, that are within a budget."""
    low, high = 0, 1
    while is_within(high):
        low, high = high, 4 * high
        if low >= _MOST_QUERIES:
            return _MOST_QUERIES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_within(middle) else (low, middle)
    return low


@dataclasses.dataclass(frozen=True)
class CompositionStudy:
    """Queries admitted over the cohort's size; a `study.Study`.

    Attributes:
        cohorts: The cohorts of the x axis.
    """

    cohorts: tuple[int, ...]
    title: str = _TITLE
    settings: tuple[Setting, ...] = tuple(
        Setting(encoding, local)
        for encoding in ("asymmetric", "symmetric")
        for local in (3.0, 6.0)
    )
    num_repeats: int = 1
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> dict[str, list[dict[str, Any]]]:
        """Computes the curves of a setting; see `study.Study`."""
        del repeat, part
        rows = [
            {
                "encoding": setting.encoding,
                "local_epsilon": setting.local_epsilon,
                "cohort": cohort,
                **queries(setting, cohort),
            }
            for cohort in self.cohorts
        ]
        return {"queries": rows}

    def files(self, tables_: study.Tables, directory: Any) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        admitted = tables_["queries"].drop(columns=["repeat"])
        return {
            "queries.csv": tables.write(admitted.drop(columns="setting")).encode(),
            "queries.png": plot(admitted),
            study.PAGE: _to_markdown(admitted).encode(),
        }


def plot(admitted: pd.DataFrame) -> bytes:
    """Plots how many queries are admitted over the cohort's size; returns a PNG."""
    groups = list(admitted.groupby("setting", sort=False))
    figure, panels = plots.stacked(
        [f"Queries within (1, 1e-6): {name}" for name, _ in groups],
        "reports of a query",
    )
    for axes, (_, group) in zip(panels, groups, strict=True):
        table = group.set_index("cohort")
        for column, (label, color) in _LINES.items():
            # None is admitted: nothing to show on a logarithmic axis.
            values = table[column].where(table[column] > 0)
            axes.plot(values, "o-", ms=3, color=color, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
    plots.legend(panels[0])
    return plots.png(figure)


def _to_markdown(admitted: pd.DataFrame) -> str:
    lines = [
        f"### {_TITLE}",
        "",
        "| encoding | local epsilon | reports | basic | advanced | Rényi |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in admitted.itertuples():
        lines.append(
            f"| {row.encoding} | {row.local_epsilon:g} | {row.cohort:,} | "
            f"{row.basic:,} | {row.advanced:,} | {row.renyi:,} |"
        )
    order = device_policy.renyi_order(EPSILON, DELTA)
    lines += [
        "",
        "* All queries together have epsilon 1 at delta 1e-6. Basic composition spends "
        "delta in equal parts on the queries; advanced spends half of it on the "
        f"composition; Rényi spends it once, at order {order}.",
        "* A device's policy allows 900 reports at most, whatever its composition.",
    ]
    return "\n".join(lines) + "\n"


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> CompositionStudy:
    """Returns the study; nothing of it is random.

    Args:
        name: There is one study only.
        options: How it is made.
        seed: Decides nothing.
        cache: Is not needed.
    """
    del name, seed, cache
    return CompositionStudy(options.cohorts)
