"""Plots of answers: what can be found by population, and tables over flags."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from federated_hh.privacy.accounting.arguments import Rows

if TYPE_CHECKING:  # imported with the first plot
    from matplotlib import axes as axes_lib
    from matplotlib import axis as axis_lib
    from matplotlib import figure as figure_lib

_COLORS = ("#2563ab", "#d05f3b", "#39803f", "#7a4fa3", "#8a6d1d")
_STYLES = ("-", "--", ":")
_MARKERS = "os^Dv"


def detection(
    path: str, points: Sequence[dict[str, Any]], population: int, title: str
) -> None:
    """Writes a plot of the words that are found, by population.

    Args:
        path: The path of a PNG, PDF or SVG file.
        points: See `detection.rows`, of several populations; where nothing is found
            there is no point.
        population: The one that was asked for, marked.
        title: The title of the plot.

    Raises:
        ValueError: The file cannot be written.
    """
    from matplotlib import ticker

    figure, axes = _logarithmic()
    curves: dict[int, dict[float, list[tuple[int, float]]]] = {}
    for row in points:
        if row["share"]:
            of_length = curves.setdefault(row["characters"], {})
            curve = of_length.setdefault(row["probability"], [])
            curve.append((row["population"], row["share"]))
    for color, (length, of_length) in zip(_COLORS, curves.items(), strict=False):
        for style, (probability, curve) in zip(
            _STYLES, of_length.items(), strict=False
        ):
            label = f"{length} characters, found with probability {probability:g}"
            axes.plot(
                *zip(*curve, strict=True),
                style,
                marker="o",
                ms=3,
                color=color,
                label=label,
            )
    axes.axvline(population, color="#9aa3ad", lw=1, ls=":", label=f"n = {population:,}")
    axes.set_title(f"{title}: how frequent a word has to be", loc="left")
    axes.set_xlabel("users n")
    axes.set_ylabel("share of the users who hold it")
    axes.yaxis.set_major_formatter(
        ticker.FuncFormatter(lambda value, _: f"{100 * value:g}%")
    )
    _save(figure, path, bool(curves))


def table(path: str, rows: Rows, title: str = "") -> None:
    """Writes a plot of a table over flags: points, as an answer may have steps.

    Args:
        path: The path of a PNG, PDF or SVG file.
        rows: Rows of `varied.table`; cells without a number are no points.
        title: The mechanism and the fixed numbers.

    Raises:
        ValueError: The file cannot be written, or the first flag is no number.
    """
    figure, axes = _logarithmic()
    _, first, *columns = rows[0]
    if isinstance(rows[0][first], str):
        raise ValueError(f"--plot={path}: give --vary a number first, then {first}")
    axes.set_title("\n".join(textwrap.wrap(title, 90)), loc="left", fontsize=9)
    for number, column in enumerate(columns):
        points = [
            (row[first], row[column])
            for row in rows
            if isinstance(row[column], int | float)
        ]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                ":",
                lw=0.8,
                color=_COLORS[number % len(_COLORS)],
                marker=_MARKERS[number % len(_MARKERS)],
                label=column,
            )
    for axis in (axes.xaxis, axes.yaxis):
        _number(axis)
    axes.set_xlabel(first.replace("_", " "))
    axes.set_ylabel(rows[0]["quantity"])
    _save(figure, path, len(columns) > 1)


def _number(axis: "axis_lib.Axis") -> None:
    """Labels a logarithmic axis with plain numbers, more of them if it is short."""
    from matplotlib import ticker

    low, high = axis.get_view_interval()
    digits = (
        range(1, 10) if high < 10 * low else (1, 2, 5) if high < 1e3 * low else (1,)
    )
    axis.set_major_locator(ticker.LogLocator(subs=[*map(float, digits)]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.9g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def _logarithmic() -> "tuple[figure_lib.Figure, axes_lib.Axes]":
    """Returns a figure and its axes, both logarithmic."""
    from matplotlib import figure as figure_lib

    figure = figure_lib.Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.grid(color="#e3e6e8", lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: "figure_lib.Figure", path: str, has_legend: bool) -> None:
    """Writes a figure; raises `ValueError` if the file cannot be written."""
    if has_legend:
        figure.axes[0].legend(frameon=False, fontsize=9)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ValueError(f"--plot={path}: {error}") from error
