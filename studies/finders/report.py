"""The page of the comparison: the best finders, then a table a trust model."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from federated_hh.reports import plots
from studies import pages, study

_PLOT = "coverage.png"


def files(title: str, found: pd.DataFrame) -> dict[str, bytes]:
    """Returns the page and its plot by name.

    Args:
        title: Title of the page.
        found: The study's rows; see `FinderStudy.run_part`.
    """
    first = found["population"].iloc[0]
    parts: list[str | list[str]] = [
        "The finder with the largest coverage for each party that clients trust:",
        _best(found),
        f"#### All finders on the population `{first}`",
        "*True*: words that some client has. *Holders*: clients that have to hold a "
        "word, for 9 of 10 such words to be found. *Down, up*: bytes of a client in "
        "its largest round.",
    ]
    for trust, rows in _groups(found[found["population"] == first]):
        parts += [f"Trusted: {trust}. {_guarantee(rows)}", _table(rows)]
    parts += [f"![Coverage over epsilon, a panel a trust model.]({_PLOT})"]
    notes = sorted({*found["note"]} - {""})
    if notes:
        parts.append(pages.notes(*notes))
    return {study.PAGE: pages.page(title, *parts), _PLOT: _plot(found, str(first))}


def _groups(found: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    for trust, rows in found.groupby("trust", sort=False):
        yield str(trust), rows


def _best(found: pd.DataFrame) -> list[str]:
    """Returns a table: for each trust model and epsilon the best on each population."""
    populations = list(found["population"].unique())
    lines = []
    for trust, rows in _groups(found):
        for epsilon, at in rows.groupby("epsilon"):
            cells = []
            for population in populations:
                of = at[at["population"] == population]
                best = of.loc[of["coverage"].idxmax()]
                cells.append(
                    f"{best['finder']}: {best['words_real']:,.0f}, "
                    f"{best['coverage']:.1%}"
                    if best["words_real"]
                    else "none"
                )
            lines.append([trust, f"{epsilon:g}", *cells])
    header = ["clients trust", "epsilon", *populations]
    return pages.table_of(header, lines, "lr" + "l" * len(populations))


def _guarantee(rows: pd.DataFrame) -> str:
    """Returns a sentence on the guarantee that all rows of a group have."""
    stated = rows[rows["note"] == ""]
    if stated.empty:
        return "No finder of this group can find a word."
    parts = {
        name: " or ".join(map(str, stated[name].unique()))
        for name in ("unit", "adjacency", "direction")
    }
    delta = " or ".join(f"{value:g}" for value in stated["stated_delta"].unique())
    plural = "s" if parts["direction"] == "both" else ""
    return (
        f"Guarantee: unit {parts['unit']}, adjacency `{parts['adjacency']}`, "
        f"{parts['direction']} direction{plural}, delta {delta}."
    )


def _table(rows: pd.DataFrame) -> list[str]:
    return pages.table(
        {
            "finder": "{finder}",
            "epsilon": "{epsilon:g}",
            "words": "{words:,.0f}",
            "true": "{words_real:,.0f}",
            "coverage": "{coverage:.1%}",
            "holders": lambda row: _number(row["holders"]),
            "rounds": lambda row: _number(row["rounds"]),
            "down": lambda row: _number(row["download_bytes"]),
            "up": lambda row: _number(row["upload_bytes"]),
        },
        rows.to_dict("records"),
    )


def _number(value: Any) -> str:
    return "" if pd.isna(value) else f"{value:,.0f}"


def _plot(found: pd.DataFrame, population: str) -> bytes:
    groups = list(_groups(found[found["population"] == population]))
    figure, panels = plots.stacked(
        [f"Trusted: {trust}" for trust, _ in groups], "epsilon of the group's guarantee"
    )
    least = found["epsilon"].min()
    for axes, (_, rows) in zip(panels, groups, strict=True):
        of_first = rows["epsilon"].min() == least
        for number, (finder, of) in enumerate(rows.groupby("finder", sort=False)):
            axes.plot(
                of["epsilon"],
                of["coverage"],
                **plots.look(number),
                marker="o",
                label=str(finder),
            )
        axes.set_ylim(0, 1)
        plots.in_percent(axes.yaxis)
        # Where no group has a point.
        place = "lower right" if of_first else "upper left"
        plots.legend(axes, place=place)
    panels[-1].set_xticks(sorted(found["epsilon"].unique()))
    return plots.png(figure)
