"""The report of an analyst's custom recipes."""

import numpy as np
import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.reports import page, plots
from federated_hh.statistics.analyses import custom_recipes
from federated_hh.statistics.recipes import events

_NUM_SHOWN, _NUM_PLOTTED, _NUM_NAMED = 1000, 40, 10
# Cells that nobody has and the summary counts, on average at most.
_FALSE_POSITIVES = 0.1
# Of a table of cells, what is not a field.
_ESTIMATES = ("cell", "estimate", "stderr", "share")


def show(
    report: page.Page,
    algorithm: custom_recipes.CustomRecipes,
    state: custom_recipes.State,
) -> None:
    """Adds the released answers; see `ngrams_report.show`."""
    results = dict(algorithm.results(state))
    section = report.section("Recipes", covered=True)
    section.table("recipes.csv", results.pop("recipes"))
    for name, table in results.items():
        number = name.removeprefix("histogram_")
        histogram = report.section(f"Answer to recipe {number}", covered=True)
        largest = table.sort_values("estimate", ascending=False)
        histogram.text(
            "Largest estimates first. Some of many empty cells are among them by "
            "chance."
        )
        histogram.plot(f"{name}.png", plot_histogram(table))
        histogram.table(f"{name}.csv", table, shown=largest.head(_NUM_SHOWN))


def show_truth(
    report: page.Page,
    algorithm: custom_recipes.CustomRecipes,
    state: custom_recipes.State,
    stored: events.NGramEvents,
    max_k: int,
) -> None:
    """Adds nothing: the true answer of any query is not known."""
    del report, algorithm, state, stored, max_k


def headline(
    algorithm: custom_recipes.CustomRecipes, state: custom_recipes.State
) -> str:
    """Returns the program's last line."""
    lines = []
    results = algorithm.results(state)
    for row in results["recipes"].itertuples():
        told = f"Recipe {row.recipe}, {row.cells:,} cells: {row.outcome}"
        if f"histogram_{row.number}" in results:
            table = results[f"histogram_{row.number}"]
            recipe = algorithm.recipes[row.number - 1]
            least = algorithm.least_estimate(
                recipe, row.reports, _FALSE_POSITIVES / row.cells
            )
            found = table[table["estimate"] > least].sort_values(
                "estimate", ascending=False
            )
            largest = found.head(_NUM_NAMED)
            fields = largest.columns.difference(_ESTIMATES, sort=False)
            shares = zip(_names(largest[fields]), largest["share"], strict=True)
            named = ", ".join(f"{cell} ({share:.1%})" for cell, share in shares)
            told += f"; {len(found):,} cells are clear of the noise"
            told += f", largest first: {named}" if named else ""
        lines.append(f"{told}.")
    return " ".join(lines)


def _names(fields: pd.DataFrame) -> list[str]:
    """Returns the names of cells, all fields of each."""
    rows = fields.astype(str).to_numpy().tolist()
    return [" / ".join(row) for row in rows]


def plot_histogram(table: pd.DataFrame) -> figure_lib.Figure:
    """Plots the cells with the largest estimates, with two standard errors."""
    fields = [name for name in table.columns if name not in _ESTIMATES]
    largest = table.sort_values("estimate", ascending=False).head(_NUM_PLOTTED)[::-1]
    names = _names(largest[fields])
    figure, axes = plots.single("Largest cells", "reports (estimated)", "cell")
    figure.set_figheight(1.5 + 0.18 * len(largest))
    axes.barh(np.arange(len(largest)), largest["estimate"], color=plots.BLUE)
    axes.errorbar(
        largest["estimate"],
        np.arange(len(largest)),
        xerr=2 * largest["stderr"],
        fmt="none",
        color=plots.INK,
        linewidth=1,
    )
    axes.set_yticks(
        np.arange(len(largest)),
        names,
        fontsize=7,
        parse_math=False,  # a dollar in a device's text is one
    )
    return figure
