"""Table 1 and Figure 2 of Zhu et al. 2020: numbers that follow from the theorems."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
from absl import logging

from federated_hh.options.fields import option
from federated_hh.privacy.accounting import paper_tables
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.privacy.triehh import utility as triehh_utility
from federated_hh.reports import plots
from studies import computed, pages, study, study_options

_LENGTH = 10
_RATE = 0.9
# Ratio to which the smallest population is found, for the tighter guarantee.
_ACCURACY = 1.01
_COLORS = {1.0: plots.BLUE, 2.0: plots.GREEN, 4.0: plots.ORANGE}
_TITLE = "Table 1 and Figure 2 of Zhu et al. 2020: parameters and populations"


@dataclasses.dataclass(frozen=True)
class Options(study_options.ComputedOptions):
    """Points of the curves."""

    num_frequencies: int = option(
        5,
        "Frequencies of Figure 2, from 0.0001 to 0.01; each takes a minute.",
        least=2,
        most=100,
    )

    @property
    def frequencies(self) -> np.ndarray:
        """The x axis of Figure 2: float64 [num_frequencies]."""
        return np.geomspace(1e-4, 1e-2, self.num_frequencies)


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


def line(options: Options, seed: int, epsilon: float) -> computed.Rows:
    """Returns the points of an epsilon's lines of Figure 2."""
    del seed
    rows = []
    for frequency in options.frequencies.tolist():
        paper = triehh_utility.minimum_population(
            frequency=frequency, epsilon=epsilon, discovery_rate=_RATE
        )
        tight = smallest_tight_population(frequency, epsilon, paper)
        logging.info(
            "epsilon %g, frequency %.3g: %s clients by Corollary 1, %s by the exact "
            "curve.",
            *(epsilon, frequency, f"{paper:,}", f"{tight:,}"),
        )
        rows.append(
            {
                "epsilon": epsilon,
                "frequency": frequency,
                "clients_corollary1": paper,
                "clients_tight": tight,
            }
        )
    return {"figure2": rows}


def plot(figure2: pd.DataFrame) -> bytes:
    """Plots the smallest populations over frequency; returns a PNG."""
    figure, axes = plots.single(
        "Clients needed to find a word with probability 0.9, at delta 1/n^2",
        "share of clients who hold the word",
        "clients",
    )
    for epsilon, group in figure2.groupby("epsilon"):
        color, table = _COLORS[float(epsilon)], group.set_index("frequency")
        for column, form, name in (
            ("clients_corollary1", "o-", "paper"),
            ("clients_tight", "o:", "tighter guarantee"),
        ):
            label = f"epsilon {epsilon:g}, {name}"
            axes.plot(table[column], form, ms=3, color=color, label=label)
    axes.set(xscale="log", yscale="log")
    plots.legend(axes)
    return plots.png(figure)


def show(options: Options, found: Mapping[str, pd.DataFrame]) -> dict[str, bytes]:
    """Returns the files of results by name."""
    del options
    figure2 = found["figure2"]
    table1 = pd.DataFrame(map(dataclasses.asdict, paper_tables.all_rows("Zhu")))
    of_table1 = {
        "number": "{item}",
        "paper": "{printed}",
        "here": "{computed}",
        "equal": "{equal}",
        "": "{reason}",
    }
    of_figure2 = {
        "epsilon": "{epsilon:g}",
        "frequency": "{frequency:.2g}",
        "clients needed, Corollary 1": "{clients_corollary1:,}",
        "tighter guarantee": "{clients_tight:,}",
    }
    return {
        "table1.csv": computed.csv(table1.drop(columns="paper")),
        "figure2.csv": computed.csv(figure2),
        "figure2.png": plot(figure2),
        study.PAGE: pages.page(
            _TITLE,
            pages.table(of_table1, table1.to_dict("records"), "lrrrl"),
            pages.table(of_figure2, figure2.to_dict("records"), "r"),
            pages.notes(
                "The paper prints no numbers for Figure 2. A population is the "
                "smallest that finds a word with no common prefix (Proposition 1) with "
                "probability 0.9, for words of up to 10 symbols and delta 1/n^2. By "
                "the tighter guarantee (docs/triehh_privacy.md) it is known to 1%."
            ),
        ),
    }


prepare = computed.prepares(
    _TITLE,
    [computed.Setting(f"epsilon {epsilon:g}", (epsilon,)) for epsilon in _COLORS],
    line,
    show,
)
