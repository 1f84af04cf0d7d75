"""What the study of quality shows: tables of judges, and curves over rounds."""

import math
import pathlib
from collections.abc import Sequence

import matplotlib.ticker
import pandas as pd

from simulation import plots, tables
from studies import intervals, study, training_runs
from training import metric_names


def read_judged(path: pathlib.Path) -> pd.DataFrame:
    """Returns what `training.evaluate_keyboard` found: a row a model.

    Args:
        path: Its run directory.

    Returns:
        `model`: the setting, or the name of n-grams; and a column a metric.
    """
    scores = tables.read(next(path.rglob("scores.csv")))
    order = scores["model"].drop_duplicates()
    wide = scores.pivot(index="model", columns="metric", values="value").loc[order]
    wide.index = wide.index.str.replace(r"_repeat_\d+$", "", regex=True)
    return wide.reset_index()


def files_of(
    title: str,
    settings: Sequence[training_runs.Setting],
    runs: pd.DataFrame,
    judged: Sequence[pd.DataFrame],
    best_loss: float | None = None,
) -> dict[str, bytes]:
    """Returns the files of results by name.

    Args:
        title: Of the page.
        settings: In the order of tables.
        runs: A row a round of each run, with its setting and repeat.
        judged: Of each repeat, from `read_judged`; empty before any is judged.
        best_loss: What no model can beat, where it is known.
    """
    files = {
        "runs.csv": tables.write(runs).encode(),
        "learning.png": plot(runs, settings),
    }
    lines = [f"### {title}", ""]
    if judged:
        table = pd.concat(judged, ignore_index=True)
        if best_loss is not None:
            table.insert(2, metric_names.REGRET, table["loss"] - best_loss)
        files["judged.csv"] = tables.write(table).encode()
        lines += _judged_rows(table, settings)
    else:
        lines += _last_rows(runs, settings)
    files[study.PAGE] = ("\n".join(lines) + "\n").encode()
    return files


def _judged_rows(
    table: pd.DataFrame, settings: Sequence[training_runs.Setting]
) -> list[str]:
    """Returns the page's table of what judges found."""
    labels = {setting.name: setting.label for setting in settings}
    columns = {metric_names.REGRET: metric_names.REGRET, **metric_names.KEYBOARD_LABELS}
    labels_of = {name: label for name, label in columns.items() if name in table}
    shown = ["repeats", *labels_of.values()]
    lines = [
        "On held-out bloggers, as a keyboard uses the models; means of the repeats, "
        "with 95% intervals by Student's t:",
        "",
        f"| | {' | '.join(shown)} |",
        f"|---|{'--:|' * len(shown)}",
    ]
    for model, rows in table.groupby("model", sort=False):
        cells = [str(len(rows))]
        for name in labels_of:
            in_nats = name in ("loss", metric_names.REGRET)
            cells.append(_with_interval(rows[name], in_nats))
        lines.append(f"| {labels.get(str(model), model)} | {' | '.join(cells)} |")
    return lines


def _last_rows(
    runs: pd.DataFrame, settings: Sequence[training_runs.Setting]
) -> list[str]:
    """Returns the page's table of the last rounds, where no judge was asked."""
    columns = {f"held_out_{name}": label for name, label in metric_names.LABELS.items()}
    lines = [
        "After the last round, on held-out bloggers; means of the repeats, with 95% "
        "intervals by Student's t:",
        "",
        f"| | repeats | {' | '.join(columns.values())} |",
        f"|---|{'--:|' * (len(columns) + 1)}",
    ]
    for setting in settings:
        rows = runs[runs["setting"] == setting.name]
        if rows.empty:
            continue
        last = rows.groupby("repeat").last()
        cells = [_with_interval(last[c], c == "held_out_loss") for c in columns]
        lines.append(f"| {setting.label} | {len(last)} | {' | '.join(cells)} |")
    return lines


def _with_interval(values: pd.Series, in_nats: bool) -> str:
    if values.isna().any():  # of a model that is never sure enough to speak
        return "none"
    form = ".3f" if in_nats else ".2%"
    half = intervals.half_of_mean(values.to_numpy())
    shown = format(values.mean(), form)
    return shown if math.isnan(half) else f"{shown} ± {format(half, form)}"


def plot(runs: pd.DataFrame, settings: Sequence[training_runs.Setting]) -> bytes:
    """Plots loss and one suggestion over rounds, mean and range; returns a PNG."""
    panels = {
        "held_out_loss": "Held-out bloggers: loss (nats a token)",
        "held_out_one_suggestion": "Accuracy of one suggestion",
    }
    figure, axes_of = plots.stacked(list(panels.values()), "round")
    for axes, column in zip(axes_of, panels, strict=True):
        for setting in settings:
            of_setting = runs[runs["setting"] == setting.name].dropna(subset=column)
            if of_setting.empty:
                continue
            values = of_setting.groupby("round")[column]
            axes.plot(
                values.mean(),
                color=setting.color,
                linestyle=setting.line,
                label=setting.label,
            )
            plots.band(axes, values.min(), values.max(), setting.color)
    axes_of[1].yaxis.set_major_formatter(matplotlib.ticker.PercentFormatter(1))
    plots.legend(axes_of[1], below=True)
    return plots.png(figure)
