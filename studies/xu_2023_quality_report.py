"""What the study of quality shows: tables of judges, and curves over rounds."""

import math
import pathlib
from collections.abc import Mapping, Sequence

import pandas as pd

from simulation import plots, tables
from studies import intervals, study, training_runs
from training import metric_names

_GUARANTEE = ("z", "epsilon, one run")
# Of one repeat, so of the same judges: what they differ in is not in its interval.
ABOVE_TRIGRAM = "loss, less the trigram's"
_NOTES = (
    "100 clients a round with z = 0.108 have the noise a client of 6,500 with z = 7, "
    "the paper's setting; so a model is about as good as it would be there. What is "
    "guaranteed here, to so few clients, is another matter: the last column, next to "
    "nothing but for the run with z = 2.",
    "The guarantee is of one run, of clients' zero-out adjacency, as realised; that of "
    "several runs on the same clients adds up. The chat is taken for public. N-grams "
    "and central training guarantee nothing.",
    "The judges are clients that no run trained on. The rates of clients and server "
    "come from the study `xu_quality_choice`, on bloggers of two other shards; the "
    "clip norm from the study of 2,000 words, chosen by looking at other runs on "
    "bloggers, some of these judges among them.",
)

# Where settings average.
_OF_AVERAGES = (
    "A model of federated training is the exponential moving average of those of some "
    "20 rounds, which costs no privacy. Of central training it is the last one, which "
    "has read each sentence twice."
)


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


def beside_trigram(judged: pd.DataFrame) -> pd.DataFrame:
    """Returns what is judged of a repeat, with its losses less that of the trigram.

    Args:
        judged: From `read_judged`.
    """
    losses = judged.set_index("model")["loss"]
    less = judged["loss"] - losses.get(metric_names.TRIGRAM, math.nan)
    return judged.assign(**{ABOVE_TRIGRAM: less})


def files_of(
    title: str,
    settings: Sequence[training_runs.Setting],
    runs: pd.DataFrame,
    judged: Sequence[pd.DataFrame],
    privacy: Mapping[str, Mapping],
    best_loss: float | None = None,
) -> dict[str, bytes]:
    """Returns the files of results by name.

    Args:
        title: The title of the page.
        settings: In the order of tables.
        runs: A row a round of each run, with its setting and repeat.
        judged: What is judged of each repeat, from `read_judged`; empty before any is
            judged.
        privacy: The privacy of each setting of federated training: the statement of a
            run, as realised.
        best_loss: What no model can beat, where it is known.
    """
    files = {
        "runs.csv": tables.write(runs).encode(),
        "learning.png": plot(runs, settings),
    }
    adaptive = _adaptive(runs, settings)
    if adaptive:
        files["clip.png"] = plot_clip(runs, adaptive)
    lines = [f"### {title}", ""]
    if judged:
        table = pd.concat(map(beside_trigram, judged), ignore_index=True)
        if best_loss is not None:
            table.insert(2, metric_names.REGRET, table["loss"] - best_loss)
        csv = table.drop(columns=ABOVE_TRIGRAM)
        files["judged.csv"] = tables.write(csv).encode()
        lines += _judged_rows(table, settings, privacy)
    else:
        lines += _last_rows(runs, settings, privacy)
    notes = list(_NOTES)
    flags = [flag for setting in settings for flag in setting.flags]
    if any(flag.startswith("--model_average=") for flag in flags):
        notes.append(_OF_AVERAGES)
    lines += ["", *[f"* {note}" for note in notes]]
    files[study.PAGE] = ("\n".join(lines) + "\n").encode()
    return files


def _judged_rows(
    table: pd.DataFrame,
    settings: Sequence[training_runs.Setting],
    privacy: Mapping[str, Mapping],
) -> list[str]:
    """Returns the page's table of what judges found."""
    labels = {setting.name: setting.label for setting in settings}
    in_nats = (metric_names.REGRET, "loss", ABOVE_TRIGRAM)
    columns = {**{n: n for n in in_nats}, **metric_names.KEYBOARD_LABELS}
    labels_of = {name: label for name, label in columns.items() if name in table}
    shown = ["repeats", *labels_of.values(), *_GUARANTEE]
    lines = [
        "On held-out clients, as a keyboard uses the models; means of the repeats, "
        "with 95% intervals by Student's t:",
        "",
        f"| | {' | '.join(shown)} |",
        f"|---|{'--:|' * len(shown)}",
    ]
    for model, rows in table.groupby("model", sort=False):
        cells = [str(len(rows))]
        for name in labels_of:
            cells.append(_with_interval(rows[name], name in in_nats))
        cells += _guarantee(privacy.get(str(model)))
        lines.append(f"| {labels.get(str(model), model)} | {' | '.join(cells)} |")
    return lines


def _last_rows(
    runs: pd.DataFrame,
    settings: Sequence[training_runs.Setting],
    privacy: Mapping[str, Mapping],
) -> list[str]:
    """Returns the page's table of the last rounds, where no judge was asked."""
    columns = {f"held_out_{name}": label for name, label in metric_names.LABELS.items()}
    lines = [
        "After the last round, on held-out clients; means of the repeats, with 95% "
        "intervals by Student's t:",
        "",
        f"| | {' | '.join(['repeats', *columns.values(), *_GUARANTEE])} |",
        f"|---|{'--:|' * (1 + len(columns) + len(_GUARANTEE))}",
    ]
    for setting in settings:
        rows = runs[runs["setting"] == setting.name]
        if rows.empty:
            continue
        last = rows.groupby("repeat").last()
        cells = [_with_interval(last[c], c == "held_out_loss") for c in columns]
        cells += _guarantee(privacy.get(setting.name))
        lines.append(f"| {setting.label} | {len(last)} | {' | '.join(cells)} |")
    return lines


def _guarantee(statement: Mapping | None) -> list[str]:
    """Returns what a run guaranteed, as realised: z and epsilon."""
    if statement is None or not statement["guarantees"]:
        return ["none", "none"]
    (guarantee,) = statement["guarantees"]
    # Rounded upwards: an upper bound stays one.
    epsilon = guarantee["epsilon"]
    if math.isfinite(epsilon):
        epsilon = math.ceil(epsilon * 10) / 10
    noise = statement["parameters"]["noise multiplier z"]
    return [f"{noise:.3g}", f"{epsilon:,g} (delta {guarantee['delta']:g})"]


def _with_interval(values: pd.Series, in_nats: bool) -> str:
    if values.isna().any():  # of a model that is never sure enough to speak
        return "none"
    form = ".3f" if in_nats else ".2%"
    half = intervals.half_of_mean(values.to_numpy())
    return intervals.shown(values.mean(), half, form)


def plot(runs: pd.DataFrame, settings: Sequence[training_runs.Setting]) -> bytes:
    """Plots loss and one suggestion over rounds, mean and range; returns a PNG."""
    panels = {
        "held_out_loss": "Held-out clients: loss (nats a token)",
        "held_out_one_suggestion": "Accuracy of one suggestion",
    }
    return training_runs.plot(runs, settings, panels)


def _adaptive(
    runs: pd.DataFrame, settings: Sequence[training_runs.Setting]
) -> list[training_runs.Setting]:
    """Returns the settings whose clip norm changed in some run."""
    if "clip_norm" not in runs:  # before any federated run is finished
        return []
    norms = runs.groupby("setting")["clip_norm"].nunique()
    return [s for s in settings if norms.get(s.name, 1) > 1]


def plot_clip(runs: pd.DataFrame, settings: Sequence[training_runs.Setting]) -> bytes:
    """Plots the adaptive clip norm over rounds; returns a PNG.

    Args:
        runs: A row a round of each run, with its setting and repeat.
        settings: Those whose clip norm is adaptive; the others' is a line.
    """
    figure, axes = plots.single(
        "Clip norm over rounds, mean of the repeats", "round", "norm of an update"
    )
    for setting in settings:
        of_setting = runs[runs["setting"] == setting.name].groupby("round")
        color, line = setting.color, setting.line
        clip = of_setting["clip_norm"].mean()
        axes.step(
            clip.index,
            clip,
            where="post",
            label=setting.label,
            color=color,
            linestyle=line,
        )
        axes.plot(
            of_setting["tracked_norm"].mean(),
            alpha=0.5,
            linewidth=1,
            label=f"{setting.label}: estimated median",
            color=color,
            linestyle=line,
        )
    named = {setting.name for setting in settings}
    fixed = runs.loc[~runs["setting"].isin(named), "clip_norm"].unique()
    plots.straight_lines(axes, {f"fixed, {norm:g}": norm for norm in sorted(fixed)})
    axes.set_ylim(bottom=0)
    plots.legend(axes, below=True)
    return plots.png(figure)
