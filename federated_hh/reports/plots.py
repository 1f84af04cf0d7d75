"""The look that the plots of all programs share.

Figures are values: none of them is pyplot's, so that making one changes nothing for a
notebook that draws plots of its own. Matplotlib is imported with the first of them: it
takes 20 MB, which a run has no use for before its report.
"""

import io
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.reports import fonts, metric_labels

if TYPE_CHECKING:
    from matplotlib import axes as axes_lib
    from matplotlib import axis as axis_lib
    from matplotlib import figure as figure_lib

INK, MUTED, GRID = "#1f2933", "#52606d", "#e4e7eb"
BLUE, ORANGE, GREEN, PURPLE = "#2364aa", "#d1603d", "#3a7d44", "#6f4aa8"
TEAL, PINK = "#1098a8", "#c2378f"
# Of lines in one plot, most different first: each has its own up to twelve lines.
_FURTHER = ("#8a5a00", INK, "#e0a100", "#7b8794", "#7cb342", "#8c1c13")
COLORS = (BLUE, ORANGE, GREEN, PURPLE, TEAL, PINK, *_FURTHER)

_DASHES = ("-", "--", "-.", ":")
_STRAIGHT_DASHES = ("--", "-.", (0, (5, 1, 1, 1, 1, 1)), ":")
_WIDTH = 7.5  # inches


def single(
    title: str, x_label: str, y_label: str
) -> "tuple[figure_lib.Figure, axes_lib.Axes]":
    """Returns a figure of one plot."""
    figure, (axes,) = _figure([title], x_label, height=4.2)
    axes.set_ylabel(y_label, color=MUTED)
    return figure, axes


def stacked(
    titles: Sequence[str], x_label: str, y_labels: Sequence[str] = ()
) -> "tuple[figure_lib.Figure, list[axes_lib.Axes]]":
    """Returns a figure of several plots, one below the other, over one x axis.

    Args:
        titles: Titles from top to bottom.
        x_label: Label of the x axis, below the last plot.
        y_labels: Label of each y axis, with its unit; none by default.
    """
    figure, panels = _figure(titles, x_label, height=0.6 + 2.0 * len(titles))
    for axes, label in zip(panels, y_labels, strict=False):
        axes.set_ylabel(label, color=MUTED)
    return figure, panels


def look(number: int) -> dict[str, Any]:
    """Returns the color and dashes of a line, as for `Axes.plot`.

    Args:
        number: Number of the line in its plot, from 0.
    """
    dashes = _DASHES[number // len(COLORS) % len(_DASHES)]
    return {"color": COLORS[number % len(COLORS)], "linestyle": dashes}


def _figure(titles, x_label, height):
    from matplotlib import figure as figure_lib
    from matplotlib import ticker

    figure = figure_lib.Figure(figsize=(_WIDTH, height), layout="constrained")
    panels = list(figure.subplots(len(titles), sharex=True, squeeze=False)[:, 0])
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, loc="left", color=INK)
        axes.tick_params(colors=MUTED)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    if x_label.startswith(("round", "level")):
        whole = ticker.MaxNLocator(integer=True, steps=[1, 2, 5, 10])
        panels[-1].xaxis.set_major_locator(whole)
    panels[-1].set_xlabel(x_label, color=MUTED)
    return figure, panels


def legend(axes: "axes_lib.Axes", *, below: bool = False, place: str = "best") -> None:
    """Draws a legend.

    Args:
        axes: The axes to draw on.
        below: Whether the names stand below the figure, in two columns where it is
            wide enough: for many long ones, or where the data leave no corner free.
            The figure grows by their height.
        place: Place inside, as for `Axes.legend`, unless below.
    """
    from matplotlib import figure as figure_lib

    if not below:
        axes.legend(frameon=False, labelcolor=INK, loc=place)
        return
    inside = axes.get_legend()
    if inside is not None:
        inside.remove()
    named = axes.get_legend_handles_labels()
    look: Any = {
        "loc": "outside lower center",
        "frameon": False,
        "labelcolor": INK,
    }
    figure = axes.figure
    assert isinstance(figure, figure_lib.Figure)
    names = figure.legend(*named, ncols=2, **look)
    with warnings.catch_warnings():
        # Of letters without a font, which `png` numbers.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        if names.get_window_extent().width > figure.bbox.width:
            names.remove()
            names = figure.legend(*named, **look)
        height = names.get_window_extent().height / figure.dpi
    figure.set_figheight(figure.get_figheight() + height)


def band(
    axes: "axes_lib.Axes", low: pd.Series, high: pd.Series, color: str = BLUE
) -> None:
    """Shades the area between two curves, over their index."""
    axes.fill_between(low.index, low, high, color=color, alpha=0.2, lw=0)


def curves(
    axes: "axes_lib.Axes",
    table: pd.DataFrame,
    names: Mapping[str, tuple[str, str]],
    **line: Any,
) -> None:
    """Draws columns of a table over its index, and names them.

    Args:
        axes: The axes to draw on.
        table: A table with the columns.
        names: Label and color, by column.
        **line: Their look, as for `Axes.plot`.
    """
    for column, (label, color) in names.items():
        axes.plot(table[column], label=label, color=color, **line)
    legend(axes)


def straight_lines(axes: "axes_lib.Axes", values: Mapping[str, float]) -> None:
    """Draws values that hold over the whole plot, the first twelve; names them.

    Args:
        axes: The axes to draw on; colors of its curves are not used again.
        values: Values by name.
    """
    used = {line.get_color() for line in axes.lines}
    free = itertools.cycle([color for color in COLORS if color not in used])
    looks = zip(free, itertools.cycle(_STRAIGHT_DASHES), strict=False)
    shown = itertools.islice(values.items(), len(COLORS))
    for (label, value), (color, dashes) in zip(shown, looks, strict=False):
        axes.axhline(value, color=color, linestyle=dashes, linewidth=1.2, label=label)


def say_cut(axes: "axes_lib.Axes", sentence: str) -> None:
    """Says in a plot's title that its axis leaves something out.

    Args:
        axes: The plot.
        sentence: Sentence on what is left out, such as "intervals go down to -3".
    """
    title = f"{axes.get_title(loc='left')}\n(axis cut: {sentence})"
    axes.set_title(title, loc="left", color=INK)


def in_percent(*axes: "axis_lib.Axis", decimals: int | None = None) -> None:
    """Writes the numbers of axes of shares in percent.

    Args:
        *axes: Such as `Axes.yaxis`.
        decimals: Digits after the point; by default as many as each number needs.
    """
    from matplotlib import ticker

    form = ".6g" if decimals is None else f".{decimals}f"

    class Percent(ticker.LogFormatter):
        """Labels those ticks between powers of ten that there is room for."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{100 * x:{form}}%" if super().__call__(x, pos) else ""

    for axis in axes:
        axis.set_major_formatter(
            ticker.FuncFormatter(lambda value, _: f"{100 * value:{form}}%")
        )
        if axis.get_scale() == "log":
            axis.set_minor_formatter(Percent())


def titles(figure: "figure_lib.Figure") -> list[str]:
    """Returns the titles of a figure's plots."""
    return [axes.get_title(loc="left") for axes in figure.axes]


def says_something(figure: "figure_lib.Figure") -> bool:
    """Returns whether a figure shows more than a sentence would.

    A curve of one point, a flat one, a lone mark or bar and nothing at all show no
    more; straight lines over the whole plot do not count, nor do values that are not
    finite.
    """
    return any(_says_something(axes) for axes in figure.axes)


def _says_something(axes: "axes_lib.Axes") -> bool:
    from matplotlib import collections, patches

    for line in axes.lines:
        points = np.array(line.get_xydata(), np.float64)
        points = points[np.isfinite(points).all(axis=1)]
        # Else it is a line over the whole plot, whatever the data.
        of_data = line.get_transform().contains_branch(axes.transData)
        if of_data and len(points) and (np.ptp(points, axis=0) > 0).all():
            return True
    if any(min(image.get_size()) > 1 for image in axes.images):
        return True
    marks = [c for c in axes.collections if isinstance(c, collections.PathCollection)]
    offsets = [np.ma.filled(each.get_offsets(), np.nan) for each in marks]
    finite = [np.isfinite(each).all(axis=1).sum() for each in offsets]
    rectangles = [p for p in axes.patches if isinstance(p, patches.Rectangle)]
    sizes = [(bar.get_width(), bar.get_height()) for bar in rectangles]
    bars = [size for size in sizes if np.isfinite(size).all() and 0 not in size]
    return sum(finite) > 1 or len(bars) > 1


def in_words(figure: "figure_lib.Figure") -> str:
    """Returns the last value of each curve of a figure too poor to be drawn.

    Args:
        figure: A figure of curves; one that `says_something` is better shown.

    Returns:
        A sentence for each plot with a finite value, Markdown; "" without any.
    """
    told = []
    for axes in figure.axes:
        values = []
        for line in axes.lines:
            points = np.array(line.get_xydata(), np.float64)
            points = points[np.isfinite(points).all(axis=1)]
            if len(points) and line.get_transform().contains_branch(axes.transData):
                label = str(line.get_label())
                # Matplotlib names lines without a label so.
                name = "" if label.startswith("_") else f"{label} "
                values.append(f"{name}{tables.shown(float(points[-1, 1]))}")
        if values:
            title = axes.get_title(loc="left")
            told.append(f"{title}: {', '.join(values)}.")
    return " ".join(told)


def label_metric(axis: "axis_lib.Axis", metric: str) -> None:
    """Labels an axis with a metric's unit: shares in percent, losses to 0.01.

    Args:
        axis: Such as `Axes.yaxis`.
        metric: The metric's name.
    """
    axis.set_label_text(metric_labels.unit(metric), color=MUTED)
    if metric_labels.is_share(metric):
        in_percent(axis)
    elif metric_labels.is_loss(metric):
        axis.set_major_formatter("{x:.2f}")


def told_and_drawn(
    metrics: pd.DataFrame, names: Sequence[str]
) -> tuple[str, list[str]]:
    """Divides metrics into those that a sentence tells and those that need a plot.

    Args:
        metrics: Metrics as for `over_rounds`.
        names: The columns to show.

    Returns:
        Sentences, Markdown, on the metrics that are the same in every round or known
        of one round only, where the mean over the repeats stands for them, "" if
        there is none; and the names of the others. What has no finite value is in
        neither.
    """
    told: dict[str, list[str]] = {}
    drawn = []
    for name in names:
        known = metrics[np.isfinite(metrics[name].astype(float))]
        rounds = known["round"].unique()
        if len(rounds) > 1 and known[name].nunique() > 1:
            drawn.append(name)
        elif len(rounds):
            place = "The same in every round"
            if len(rounds) == 1:
                place = f"Only in round {rounds[0]}"
            value = known[name].iloc[0]
            if known[name].nunique() > 1:
                value = float(known[name].mean())
            words = f"{metric_labels.label(name)} {metric_labels.shown(name, value)}"
            told.setdefault(place, []).append(words)
    return " ".join(f"{k}: {', '.join(v)}." for k, v in told.items()), drawn


def over_rounds(metrics: pd.DataFrame, names: Sequence[str]) -> "figure_lib.Figure":
    """Returns the curves of metrics over rounds, a panel each.

    Args:
        metrics: A table with a column `round` and a row a round and repeat; missing
            values are left out.
        names: The columns to show; a line is the mean over the repeats, and a band is
            from the least to the largest.
    """
    titles = [metric_labels.label(name) for name in names]
    figure, panels = stacked(titles, "round")
    for axes, name in zip(panels, names, strict=True):
        label_metric(axes.yaxis, name)
        values = metrics.dropna(subset=name).groupby("round")[name]
        axes.plot(values.mean(), color=BLUE, marker="o", markersize=3)
        band(axes, values.min(), values.max())
    return figure


def png(figure: "figure_lib.Figure") -> bytes:
    """Returns a figure as PNG; the same figure gives the same bytes.

    Words that no installed font can draw are numbered; see `fonts.make_readable`.
    """
    fonts.make_readable(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()
