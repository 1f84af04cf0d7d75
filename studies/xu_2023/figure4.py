"""Figure 4 of Xu et al. 2023: what zCDP follows from population, rounds, goal and MinS.

Nothing is run: the curves follow from the accounting of DP-FTRL. The noise multiplier
grows with the report goal, 7 at 6,500, so that a client's part of the noise stays the
same (section 2.2).
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar

import pandas as pd

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options.fields import option
from federated_hh.privacy import conversions
from federated_hh.privacy.accounting import paper_tables
from federated_hh.privacy.dp_ftrl import tree_aggregation
from federated_hh.reports import plots
from federated_hh.run_directory import directory as run_directory
from studies import study

_TITLE = "Figure 4 of Xu et al. 2023: zCDP by population, rounds, report goal and MinS"
# The paper's setting, from which all others are scaled.
GOAL, NOISE = 6500, paper_tables.XU_NOISE_MULTIPLIER
_GOALS = tuple(range(500, 20_001, 250))
_MIN_SEPARATIONS = tuple(range(10, 1001, 10))
_ROUNDS = (500, 1000, 2000, 3000)
# In millions, of section 2.2 (1) and Table 1.
_POPULATIONS = (1.0, 3.0, 10.0, 16.6)
_SHOWN_GOALS = (500, 1000, 2000, 4000, 6500, 10_000, 20_000)
_COLORS = (plots.ORANGE, plots.BLUE, plots.GREEN, plots.PURPLE)
# Table 1: estimated populations, in millions.
_ESTIMATED = {
    "de-DE": 3.24,
    "en-GB": 2.38,
    "fr-FR": 2.79,
    "it-IT": 3.32,
    "pt-PT": 0.83,
    "es-ES": 4.21,
    "en-US": 13.0,
    "pt-BR": 16.6,
    "en-IN": 7.72,
    "es-MX": 9.96,
    "es-AR": 4.09,
}


@dataclasses.dataclass(frozen=True)
class Options:
    """How the study is made; each field is a flag."""

    is_synthetic: ClassVar[bool] = True

    delta: float = option(
        1e-10, "Delta of the epsilons in the tables.", above=0, below=1
    )

    def __post_init__(self):
        options_lib.check(self)


@dataclasses.dataclass(frozen=True)
class Panel:
    """A panel of the figure.

    Attributes:
        name: The name of its files.
        title: Above it.
        x: The column of its x axis.
        line: The column that tells its lines apart.
    """

    name: str
    title: str
    x: str
    line: str


PANELS = (
    Panel(
        "figure_4a",
        "zCDP over the report goal, 2,000 rounds, by population",
        "report_goal",
        "population",
    ),
    Panel(
        "figure_4b",
        "zCDP over the report goal, 3 million clients, by rounds",
        "report_goal",
        "rounds",
    ),
    Panel(
        "figure_4c",
        "zCDP over MinS, report goal 6,500 and z = 7, by rounds",
        "min_separation",
        "rounds",
    ),
)


def largest_min_separation(population: int, report_goal: int) -> int:
    """Returns the largest MinS (rounds strictly between) that a population allows.

    Whoever takes part is away for MinS rounds more, in each of which others have to
    be there: (MinS + 1) * report_goal clients at least.

    Args:
        population: How many clients there are.
        report_goal: Clients of a round, at most the population.
    """
    return population // report_goal - 1


def point(
    *,
    rounds: int,
    report_goal: int,
    population: int | None = None,
    min_separation: int | None = None,
    delta: float,
) -> dict[str, Any]:
    """Returns what a run of DP-FTRL costs, as a row.

    Args:
        rounds: T.
        report_goal: m; the noise multiplier is 7 m / 6,500.
        population: Whose largest MinS is taken, where none is given.
        min_separation: Rounds strictly between two of a client.
        delta: The delta of epsilon.
    """
    if min_separation is None:
        assert population is not None
        min_separation = largest_min_separation(population, report_goal)
    run = tree_aggregation.TreeAggregation(
        noise_multiplier=NOISE * report_goal / GOAL,
        num_rounds=rounds,
        min_separation=min(min_separation, rounds - 1),
    )
    return {
        "population": population,
        "rounds": rounds,
        "report_goal": report_goal,
        "noise_multiplier": run.noise_multiplier,
        "min_separation": min_separation,
        "max_participation": run.max_participation,
        "rho": run.rho,
        "epsilon": conversions.zcdp_to_epsilon(run.rho, delta),
    }


def curves(panel: Panel, delta: float) -> list[dict[str, Any]]:
    """Returns the points of a panel's lines."""
    if panel.line == "population":
        return [
            point(rounds=2000, report_goal=m, population=round(n * 10**6), delta=delta)
            for n in _POPULATIONS
            for m in _GOALS
        ]
    if panel.x == "report_goal":
        return [
            point(rounds=t, report_goal=m, population=3 * 10**6, delta=delta)
            for t in _ROUNDS
            for m in _GOALS
        ]
    return [
        point(rounds=t, report_goal=GOAL, min_separation=s, delta=delta)
        for t in _ROUNDS
        for s in _MIN_SEPARATIONS
        if s < t
    ]


def models(delta: float) -> list[dict[str, Any]]:
    """Returns the models of Table 1: as they were, and at the largest MinS."""
    rows = []
    for name, rounds, separation, participation, printed in paper_tables.xu_models():
        table, _, model = name.partition(" 1 ")
        task = model.removeprefix("earlier ").rstrip("*")
        if table != "Table":
            continue
        was = tree_aggregation.TreeAggregation(
            noise_multiplier=NOISE,
            num_rounds=rounds,
            min_separation=separation,
            max_participation=participation,
        )
        population = round(_ESTIMATED[task] * 10**6)
        could = point(
            rounds=rounds, report_goal=GOAL, population=population, delta=delta
        )
        rows.append(
            {
                "model": model,
                "population": population,
                "rounds": rounds,
                "min_separation": separation,
                "printed": printed,
                "rho": was.rho,
                "largest_min_separation": could["min_separation"],
                "rho_at_largest": could["rho"],
            }
        )
    return rows


@dataclasses.dataclass(frozen=True)
class Figure4Study:
    """The three panels; a `study.Study`.

    Attributes:
        delta: The delta of epsilon.
    """

    delta: float
    title: str = _TITLE
    settings: tuple[Panel, ...] = PANELS
    num_repeats: int = 1
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run_part(
        self, setting: Panel, repeat: int, part: run_directory.RunDirectory
    ) -> dict[str, list[dict[str, Any]]]:
        """Computes a panel; see `study.Study`."""
        del repeat, part
        return {"curves": curves(setting, self.delta)}

    def files(self, tables_: study.Tables, directory: Any) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del directory
        found = tables_["curves"].drop(columns="repeat")
        found = found.rename(columns={"setting": "panel"})
        of_table_1 = pd.DataFrame(models(self.delta))
        return {
            "curves.csv": tables.write(found).encode(),
            "models.csv": tables.write(of_table_1).encode(),
            **{f"{p.name}.png": plot(p, found) for p in self.settings},
            study.PAGE: _to_markdown(found, of_table_1, self.delta).encode(),
        }


def plot(panel: Panel, found: pd.DataFrame) -> bytes:
    """Plots a panel; returns a PNG."""
    labels = {"report_goal": "report goal (z = 7 at 6,500)", "min_separation": "MinS"}
    figure, axes = plots.single(panel.title, labels[panel.x], "zCDP (rho)")
    of_panel = found[found["panel"] == panel.name]
    groups = of_panel.groupby(panel.line)
    for (value, group), color in zip(groups, _COLORS, strict=True):
        million = panel.line == "population"
        name = f"{value / 1e6:g} million" if million else f"{value:,} rounds"
        axes.plot(group[panel.x], group["rho"], color=color, label=name)
    axes.set_yscale("log")
    plots.legend(axes)
    return plots.png(figure)


def _to_markdown(found: pd.DataFrame, of_table_1: pd.DataFrame, delta: float) -> str:
    lines = [
        f"### {_TITLE}",
        "",
        f"zCDP (epsilon at delta {delta:g}) of 2,000 rounds at the largest MinS, the "
        "noise multiplier growing with the report goal:",
        "",
        f"| report goal | z | {' | '.join(f'{n:g} million' for n in _POPULATIONS)} |",
        f"|--:|--:|{'--:|' * len(_POPULATIONS)}",
    ]
    by_population = found[found["panel"] == "figure_4a"]
    for goal in _SHOWN_GOALS:
        rows = by_population[by_population["report_goal"] == goal]
        cells = [f"{row.rho:.3g} ({row.epsilon:.3g})" for row in rows.itertuples()]
        noise = rows["noise_multiplier"].iloc[0]
        lines.append(f"| {goal:,} | {noise:.3g} | {' | '.join(cells)} |")
    lines += [
        "",
        "The models of Table 1 (report goal 6,500, z = 7):",
        "",
        "| model | population | rounds | MinS | zCDP printed | zCDP computed | largest "
        "MinS | zCDP there |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in of_table_1.itertuples():
        lines.append(
            f"| {row.model} | {row.population / 1e6:.2f} million | {row.rounds:,} | "
            f"{row.min_separation} | {row.printed} | {row.rho:.2f} | "
            f"{row.largest_min_separation:,} | {row.rho_at_largest:.2f} |"
        )
    small = point(rounds=3000, report_goal=GOAL, population=10**6, delta=delta)
    without = point(rounds=2000, report_goal=GOAL, population=10**6, delta=delta)
    lines += [
        "",
        "* MinS counts the rounds strictly between two of a client. The paper's text "
        "has it smaller than 153 for a million clients and a report goal of 6,500: "
        f"here at most {small['min_separation']}; 3,000 rounds have zCDP "
        f"{small['rho']:.3g} then (strong privacy is difficult, it says). A thousand "
        f"rounds less, as pretraining saves, have {without['rho']:.3g}.",
        "* The paper's figure has no numbers in its text, which also does not say "
        "what its axes and lines are: that 4a and 4b scale the report goal and the "
        "noise at the largest MinS, and 4c varies MinS, is all it says. Populations "
        "and rounds are chosen here; points cannot be compared with its curves.",
        "* The lines have steps where MaxP, rounds over MinS + 1 rounded up, changes "
        "by one.",
        "* en-US* and es-ES* were trained with secure aggregation, whose inflated clip "
        "norm the computed zCDP does not have.",
    ]
    return "\n".join(lines) + "\n"


def prepare(
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> Figure4Study:
    """Returns the study; nothing of it is random.

    Args:
        name: There is one study only.
        options: How it is made.
        seed: Decides nothing.
        cache: Is not needed.
    """
    del name, seed, cache
    return Figure4Study(options.delta)
