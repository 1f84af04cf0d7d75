"""A plot of what can be found over the number of users."""

from collections.abc import Sequence
from typing import Any

_COLORS = ("#2563ab", "#d05f3b", "#39803f", "#7a4fa3")
_STYLES = ("-", "--", ":")


def write(
    path: str, points: Sequence[dict[str, Any]], population: int, title: str
) -> None:
    """Writes the plot as PNG, PDF or SVG, as the file's name ends.

    Args:
        path: The path of the file.
        points: See `detection.rows`, of several populations; where nothing is found
            there is no point.
        population: The one that was asked for, marked.
        title: The title of the plot.

    Raises:
        ValueError: The file cannot be written.
    """
    from matplotlib import figure as figure_lib
    from matplotlib import ticker

    figure = figure_lib.Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.add_subplot()
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
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(f"{title}: how frequent a word has to be", loc="left")
    axes.set_xlabel("users n")
    axes.set_ylabel("share of the users who hold it")
    axes.yaxis.set_major_formatter(
        ticker.FuncFormatter(lambda value, _: f"{100 * value:g}%")
    )
    axes.grid(color="#e3e6e8", lw=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    if curves:
        axes.legend(frameon=False, fontsize=9)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ValueError(f"--plot={path}: {error}") from error
