"""Table 1 and Figure 2 of Zhu et al. 2020: what follows from the theorems alone."""

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
from federated_hh.privacy.accounting import paper_tables
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.privacy.triehh import utility as triehh_utility
from federated_hh.reports import plots
from federated_hh.run_directory import directory as run_directory
from studies import study

_LENGTH = 10
_RATE = 0.9
# How close the smallest population is found, for the tighter guarantee.
_ACCURACY = 1.01
_COLORS = {1.0: plots.BLUE, 2.0: plots.GREEN, 4.0: plots.ORANGE}
_TITLE = "Table 1 and Figure 2 of Zhu et al. 2020: parameters and populations"


@dataclasses.dataclass(frozen=True)
class Options:
    """How the study is made; each field is a flag."""

    is_synthetic: ClassVar[bool] = True

    num_frequencies: int = option(
        5,
        "How many frequencies of Figure 2, from 0.0001 to 0.01; each takes a minute.",
        least=2,
        most=100,
    )

    def __post_init__(self):
        options_lib.check(self)

    @property
    def frequencies(self) -> np.ndarray:
        """The x axis of Figure 2: float64 [num_frequencies]."""
        return np.geomspace(1e-4, 1e-2, self.num_frequencies)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A line of Figure 2.

    Attributes:
        epsilon: The epsilon of a run.
    """

    epsilon: float

    @property
    def name(self) -> str:
        """In tables, and of its part of the run directory."""
        return f"epsilon {self.epsilon:g}"


def smallest_tight_population(frequency: float, epsilon: float, most: int) -> int:
    """Finds the smallest population for a word, at the tighter guarantee.

    Args:
        frequency: Share of the users who hold it.
        epsilon: The epsilon of a run; delta is 1/n^2.
        most: A population that is enough.

    Returns:
        An n at most 1% above one that is too small, and enough itself: its floor of
        frequency n holders are found with probability 0.9 (Proposition 1).
    """

    def enough(n: int) -> bool:
        try:
            parameters = triehh_solver.solve_parameters(
                population_size=n, max_length=_LENGTH, epsilon=epsilon, delta=n**-2
            )
        except ValueError:
            return False
        holders = math.floor(frequency * n * (1 + 1e-12))
        return float(triehh.worst_case_discovery_rate(holders, parameters)) >= _RATE

    low, high = max(1, most // 4), most
    while low > 1 and enough(low):
        low, high = low // 4, low
    while high > low * _ACCURACY and high - low > 1:
        middle = math.isqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclasses.dataclass(frozen=True)
class TheoryStudy:
    """Figure 2, a setting a line; a `study.Study`.

    Attributes:
        frequencies: The frequencies of the x axis.
    """

    frequencies: tuple[float, ...]
    title: str = _TITLE
    settings: tuple[Setting, ...] = tuple(map(Setting, _COLORS))
    num_repeats: int = 1
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> dict[str, list[dict[str, Any]]]:
        """Computes a line; see `study.Study`."""
        del repeat, part
        rows = []
        for frequency in self.frequencies:
            paper = triehh_utility.minimum_population(
                frequency=frequency, epsilon=setting.epsilon, discovery_rate=_RATE
            )
            tight = smallest_tight_population(frequency, setting.epsilon, paper)
            rows.append(
                {
                    "epsilon": setting.epsilon,
                    "frequency": frequency,
                    "clients_corollary1": paper,
                    "clients_tight": tight,
                }
            )
        return {"figure2": rows}

    def files(self, tables_: study.Tables, directory: Any) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        figure2 = tables_["figure2"].drop(columns=["setting", "repeat"])
        table1 = pd.DataFrame(map(dataclasses.asdict, paper_tables.all_rows("Zhu")))
        return {
            "table1.csv": tables.write(table1.drop(columns="paper")).encode(),
            "figure2.csv": tables.write(figure2).encode(),
            "figure2.png": plot(figure2),
            study.PAGE: _to_markdown(table1, figure2).encode(),
        }


def plot(figure2: pd.DataFrame) -> bytes:
    """Plots the smallest populations over frequency; returns a PNG."""
    figure, axes = plots.single(
        "Clients needed to find a word with probability 0.9, at delta 1/n^2",
        "share of clients who hold the word",
        "clients",
    )
    for epsilon, group in figure2.groupby("epsilon"):
        color, table = _COLORS[float(epsilon)], group.set_index("frequency")
        label = f"epsilon {epsilon:g}"
        axes.plot(
            table["clients_corollary1"],
            "o-",
            ms=3,
            color=color,
            label=f"{label}, paper",
        )
        axes.plot(
            table["clients_tight"],
            "o:",
            ms=3,
            color=color,
            label=f"{label}, tighter guarantee",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    plots.legend(axes)
    return plots.png(figure)


def _to_markdown(table1: pd.DataFrame, figure2: pd.DataFrame) -> str:
    lines = [
        f"### {_TITLE}",
        "",
        "| number | paper | here | equal | |",
        "|---|--:|--:|--:|---|",
    ]
    for row in table1.itertuples():
        lines.append(
            f"| {row.item} | {row.printed} | {row.computed} | {row.equal} | "
            f"{row.reason} |"
        )
    lines += [
        "",
        "| epsilon | frequency | clients needed, Corollary 1 | tighter guarantee |",
        "|--:|--:|--:|--:|",
    ]
    for row in figure2.itertuples():
        lines.append(
            f"| {row.epsilon:g} | {row.frequency:.2g} | {row.clients_corollary1:,} | "
            f"{row.clients_tight:,} |"
        )
    lines += [
        "",
        "* Figure 2's lines have no numbers in the paper. Populations are those that "
        "find a word that shares no prefix with another (Proposition 1) with "
        "probability 0.9, for words of up to 10 symbols and delta 1/n^2; by the "
        "tighter guarantee of docs/triehh_privacy.md to 1%.",
    ]
    return "\n".join(lines) + "\n"


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> TheoryStudy:
    """Returns the study; nothing of it is random.

    Args:
        name: There is one study only.
        options: How it is made.
        seed: Decides nothing.
        cache: Is not needed.
    """
    del name, seed, cache
    return TheoryStudy(tuple(options.frequencies.tolist()))
