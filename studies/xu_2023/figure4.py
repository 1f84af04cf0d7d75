"""Figure 4 of Xu et al. 2023: zCDP by population, rounds, report goal and MinS.

Nothing is run: the curves follow from the accounting of DP-FTRL. The noise multiplier
grows with the report goal, 7 at 6,500, so that a client's part of the noise stays the
same (section 2.2).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pandas as pd

from federated_hh.options.fields import option
from federated_hh.privacy import conversions
from federated_hh.privacy.accounting import paper_tables
from federated_hh.privacy.dp_ftrl import tree_aggregation
from federated_hh.reports import plots
from studies import computed, pages, study, study_options

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
class Options(study_options.ComputedOptions):
    """Delta of the epsilons."""

    delta: float = option(
        1e-10, "Delta of the epsilons in the tables.", above=0, below=1
    )


@dataclasses.dataclass(frozen=True)
class Panel:
    """A panel of the figure.

    Attributes:
        name: Name of its files.
        title: Its title.
        x: Column of its x axis.
        line: Column in which its lines differ.
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

    A client that takes part is away for MinS rounds more, in each of which others have
    to take part: (MinS + 1) * report_goal clients at least.

    Args:
        population: Number of clients.
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
    """Returns the privacy of a run of DP-FTRL, as a row.

    Args:
        rounds: Number of rounds (T).
        report_goal: Clients of a round (m); the noise multiplier is 7 m / 6,500.
        population: Number of clients, whose largest MinS is taken without another.
        min_separation: Rounds strictly between two of a client (MinS).
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


def curves(options: Options, seed: int, panel: Panel) -> computed.Rows:
    """Returns the points of a panel's lines."""
    del seed
    if panel.line == "population":
        runs = [
            {"rounds": 2000, "report_goal": m, "population": round(n * 10**6)}
            for n in _POPULATIONS
            for m in _GOALS
        ]
    elif panel.x == "report_goal":
        runs = [
            {"rounds": t, "report_goal": m, "population": 3 * 10**6}
            for t in _ROUNDS
            for m in _GOALS
        ]
    else:
        runs = [
            {"rounds": t, "report_goal": GOAL, "min_separation": s}
            for t in _ROUNDS
            for s in _MIN_SEPARATIONS
            if s < t
        ]
    return {"curves": [point(**run, delta=options.delta) for run in runs]}


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


def show(options: Options, tables: Mapping[str, pd.DataFrame]) -> dict[str, bytes]:
    """Returns the files of results by name."""
    delta = options.delta
    found = tables["curves"].rename(columns={"setting": "panel"})
    of_table_1 = pd.DataFrame(models(delta))
    by_population = found[found["panel"] == "figure_4a"]
    rows = []
    for goal in _SHOWN_GOALS:
        of_goal = by_population[by_population["report_goal"] == goal]
        cells = [f"{row.rho:.3g} ({row.epsilon:.3g})" for row in of_goal.itertuples()]
        noise = of_goal["noise_multiplier"].iloc[0]
        rows.append([f"{goal:,}", f"{noise:.3g}", *cells])
    header = ["report goal", "z", *(f"{n:g} million" for n in _POPULATIONS)]
    of_models: dict[str, pages.Cell] = {
        "model": "{model}",
        "population": lambda row: f"{row['population'] / 1e6:.2f} million",
        "rounds": "{rounds:,}",
        "MinS": "{min_separation}",
        "zCDP printed": "{printed}",
        "zCDP computed": "{rho:.2f}",
        "largest MinS": "{largest_min_separation:,}",
        "zCDP there": "{rho_at_largest:.2f}",
    }
    small = point(rounds=3000, report_goal=GOAL, population=10**6, delta=delta)
    without = point(rounds=2000, report_goal=GOAL, population=10**6, delta=delta)
    page = pages.page(
        _TITLE,
        f"zCDP (epsilon at delta {delta:g}) of 2,000 rounds at the largest MinS, the "
        "noise multiplier growing with the report goal:",
        pages.table_of(header, rows, "r"),
        "The models of Table 1 (report goal 6,500, z = 7):",
        pages.table(of_models, of_table_1.to_dict("records")),
        pages.notes(
            "MinS counts the rounds strictly between two participations of a client. "
            "For a million clients and a report goal of 6,500 the paper says that it "
            f"is smaller than 153; it is here at most {small['min_separation']}. "
            f"3,000 rounds then have zCDP {small['rho']:.3g}. A thousand rounds less, "
            f"which pretraining saves, have {without['rho']:.3g}.",
            "The paper prints no numbers for the figure, and does not name its "
            "populations and rounds. Those here are our choice, so points cannot be "
            "compared with its curves.",
            "A line has a step where MaxP, rounds over MinS + 1 rounded up, changes.",
            "en-US* and es-ES* were trained with secure aggregation. It inflates the "
            "clip norm, which the computed zCDP leaves out.",
        ),
    )
    return {
        "curves.csv": computed.csv(found),
        "models.csv": computed.csv(of_table_1),
        **{f"{panel.name}.png": plot(panel, found) for panel in PANELS},
        study.PAGE: page,
    }


prepare = computed.prepares(
    _TITLE,
    [computed.Setting(panel.name, (panel,)) for panel in PANELS],
    curves,
    show,
)
