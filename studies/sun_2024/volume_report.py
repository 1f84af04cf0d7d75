"""The page of the study of what clients type: tables and plots."""

from collections.abc import Mapping

import pandas as pd

from federated_hh.reports import plots
from studies import computed, pages, study
from studies.sun_2024 import volume

_ROWS = ("greedy, one pass", "random, one pass", "random, two passes")
_COLORS = {"independent": plots.BLUE, "some": plots.ORANGE, "bloggers'": plots.GREEN}


def files(
    title: str, options: volume.Options, tables: study.Tables
) -> dict[str, bytes]:
    """Returns the files of results by name; see `study.Study`."""
    found = tables["coverage"].drop(columns="repeat")
    depths = tables["depths"].drop(columns="repeat")
    by_topic = dict(iter(found.groupby("topic")))
    parts: list[str | list[str]] = [_about(options)]
    results = {
        "coverage.csv": computed.csv(found, 6),
        "depths.csv": computed.csv(depths, 6),
    }
    if "grid" in by_topic:
        parts += [*_table_1(found), *_grid(found), *_gaps(found)]
        results["gap.png"] = _gap_plot(found)
        results["depths.png"] = _depth_plot(depths)
    for topic in ("epsilon", "production"):
        if topic in by_topic:
            parts += _others(found, topic)
    return results | {study.PAGE: pages.page(title, *parts)}


def _about(options: volume.Options) -> str:
    return (
        "Share of the typed target words that is found, with the paper's parameters at "
        f"scale {options.scale:g}. *Predicted*: by the mean-field law of Algorithm 2. "
        "*Simulated*: one run of clients generated from a seed. Clients draw from the "
        "rarest 5% of the mass of the "
        f"{options.vocabulary_size:,} most frequent English words, whose frequencies "
        "are raised to a power."
    )


def _of(found: pd.DataFrame, clients: volume.Clients, topic: str) -> pd.Series:
    """Returns coverage by row of one topic's clients."""
    rows = found[
        (found["topic"] == topic)
        & (found["power"] == clients.power)
        & (found["words"] == clients.words)
        & (found["habits"] == clients.habits)
    ]
    return rows.set_index("row")["coverage"]


def _table_1(found: pd.DataFrame) -> list[str | list[str]]:
    nearest = volume.nearest(found)
    predicted = _of(found, nearest, "grid")
    simulated = _of(found, volume.CHOSEN, "simulated")
    paper = found[found["topic"] == "grid"].groupby("row")["paper"].first()
    lines = [
        [
            row,
            f"{paper[row]:.1%}",
            f"{predicted[row]:.1%}",
            f"{simulated[row]:.1%}" if row in simulated else "",
        ]
        for row in _ROWS
    ]
    how = (
        f"The clients: {nearest.words:,} target words a client on average, no habits, "
        f"frequencies to the power {nearest.power:g}. Of the grid below they come "
        "nearest to the paper's three rows, by the worst of them. So this table shows "
        "that Algorithm 2 can have the paper's numbers, and is no evidence that "
        "Gboard's users type so."
    )
    if nearest != volume.CHOSEN:
        how += f" Other tables: {volume.CHOSEN.name}."
    header = ["coverage at local epsilon 10", "paper", "predicted", "simulated"]
    return ["#### Table 1", pages.table_of(header, lines), how]


def _grid(found: pd.DataFrame) -> list[str | list[str]]:
    grid = found[found["topic"] == "grid"].assign(
        error=lambda rows: (rows["coverage"] - rows["paper"]).abs()
    )
    worst = grid.pivot_table(
        index="power", columns="words", values="error", aggfunc="max"
    )
    lines = [
        [f"{power:g}", *(f"{100 * error:.1f}" for error in row)]
        for power, row in zip(worst.index, worst.to_numpy(), strict=True)
    ]
    header = ["power", *(f"{words:,} words" for words in worst.columns)]
    return [
        "#### The grid: the worst row's distance from the paper, in points",
        pages.table_of(header, lines),
    ]


def _gap(found: pd.DataFrame, habits: str, words: int) -> tuple[float, float] | None:
    topic = "grid" if habits == "independent" else "habits"
    rows = _of(found, volume.Clients(volume.CHOSEN.power, words, habits), topic)
    if rows.empty:
        return None
    return rows[_ROWS[0]], rows[_ROWS[1]]


def _gaps(found: pd.DataFrame) -> list[str | list[str]]:
    lines = []
    for words in volume.VOLUMES:
        cells = []
        for habits in volume.HABITS:
            gap = _gap(found, habits, words)
            cells += [f"{gap[0]:.1%} / {gap[1]:.1%}" if gap else ""]
        lines.append([f"{words:,}", *cells])
    header = ["target words a client", *(f"{name} habits" for name in volume.HABITS)]
    header[1] = "no habits"
    return [
        "#### What decides the random sampler's gain: predicted, greedy / random",
        pages.table_of(header, lines),
        "![Coverage gained by the random sampler over the words that a client types, "
        "a line a strength of habit.](gap.png)",
        "Habits are Pitman-Yor processes: "
        + "; ".join(
            f"{name} {values[0]:g}, {values[1]:g}"
            for name, values in volume.HABITS.items()
            if values
        )
        + " (discount, concentration).",
        "#### By length",
        "![Coverage by words of so many letters at most, of the three rows of Table "
        "1: it is flat before the last level.](depths.png)",
    ]


def _others(found: pd.DataFrame, topic: str) -> list[str | list[str]]:
    rows = found[found["topic"] == topic]
    lines = [
        [row, f"{coverage:.1%}"]
        for row, coverage in zip(rows["row"], rows["coverage"], strict=True)
    ]
    header = [f"{topic}, predicted", "coverage"]
    return [f"#### {topic.capitalize()}", pages.table_of(header, lines)]


def _gap_plot(found: pd.DataFrame) -> bytes:
    figure, axes = plots.single(
        "Gain of the random sampler, predicted",
        "target words a client types",
        "points of coverage",
    )
    for habits, color in _COLORS.items():
        gaps = {words: _gap(found, habits, words) for words in volume.VOLUMES}
        known = {words: 100 * (g[1] - g[0]) for words, g in gaps.items() if g}
        if known:
            name = "no habits" if habits == "independent" else f"{habits} habits"
            axes.plot([*known], [*known.values()], color=color, marker="o", label=name)
    axes.axhline(6.0, color=plots.MUTED, ls="--", label="paper")
    axes.set(xscale="log", xticks=volume.VOLUMES)
    axes.set_xticklabels([f"{words:,}" for words in volume.VOLUMES])
    axes.minorticks_off()
    plots.legend(axes)
    return plots.png(figure)


def _depth_plot(depths: pd.DataFrame) -> bytes:
    figure, axes = plots.single(
        "Coverage of words up to a length", "letters (levels)", "coverage"
    )
    chosen: Mapping[str, object] = {
        "topic": "grid",
        "power": volume.CHOSEN.power,
        "words": volume.CHOSEN.words,
    }
    rows = depths[(depths[list(chosen)] == pd.Series(chosen)).all(axis=1)]
    for number, name in enumerate(_ROWS):
        curve = rows[rows["row"] == name].set_index("depth")["coverage"]
        axes.plot(curve.index, curve, **plots.look(number), label=name)
    plots.in_percent(axes.yaxis)
    plots.legend(axes)
    return plots.png(figure)
