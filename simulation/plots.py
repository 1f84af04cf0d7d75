"""The look that the plots of all programs share."""

import io

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib

INK, MUTED, GRID = "#1f2933", "#52606d", "#e4e7eb"
BLUE, ORANGE, GREEN = "#2364aa", "#d1603d", "#3a7d44"


def style(axes: axes_lib.Axes, title: str) -> None:
    """Gives axes a title, and takes away what draws the eye from the data."""
    axes.set_title(title, loc="left", color=INK)
    axes.tick_params(colors=MUTED)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def single(
    title: str, x_label: str, y_label: str
) -> tuple[figure_lib.Figure, axes_lib.Axes]:
    """Returns a figure of one plot."""
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    style(axes, title)
    axes.set_xlabel(x_label, color=MUTED)
    axes.set_ylabel(y_label, color=MUTED)
    return figure, axes


def stacked(
    titles: list[str], x_label: str
) -> tuple[figure_lib.Figure, list[axes_lib.Axes]]:
    """Returns a figure of several plots, one below the other, over one x axis."""
    figure, panels = plt.subplots(
        len(titles),
        figsize=(7.5, 0.6 + 2.0 * len(titles)),
        layout="constrained",
        sharex=True,
        squeeze=False,
    )
    column = list(panels[:, 0])
    for axes, title in zip(column, titles, strict=True):
        style(axes, title)
    column[-1].set_xlabel(x_label, color=MUTED)
    return figure, column


def png(figure: figure_lib.Figure) -> bytes:
    """Returns a figure as PNG, and closes it; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()
