"""The page and the plots of the study of quality."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from federated_hh.files import tables
from federated_hh.privacy import rounding
from federated_hh.reports import plots
from studies import intervals, pages, study, training_runs
from studies.xu_2023 import quality_steps as steps_lib
from training.models import metric_names

_GUARANTEE = ("z", "epsilon, one run")
# Differences in one repeat, so on the same held-out clients.
ABOVE_TRIGRAM = "loss, less the trigram's"
ABOVE_KNESER_NEY = "loss, less Kneser-Ney's"
_ABOVE: Mapping[str, str] = {
    ABOVE_TRIGRAM: metric_names.TRIGRAM,
    ABOVE_KNESER_NEY: metric_names.KNESER_NEY,
}
_LOSS = "held_out_loss"
_SUGGESTION = "held_out_one_suggestion"
NOTES = (
    "100 clients a round with z = 0.108 have the noise a client of 6,500 with z = 7, "
    "the paper's setting. So a model is about as good as it would be there. To so few "
    "clients the noise guarantees next to nothing; see the last column.",
    "The guarantee is for one run, zero-out adjacency of a client, as realised. "
    "Several runs on the same clients add up.",
)
# Where models are judged, which are averages then.
OF_JUDGED = (
    "N-grams and central training guarantee nothing.",
    "A federated model is the exponential moving average over some 20 rounds, which "
    "costs no privacy. A central model is that over some 500 steps; central training "
    "reads each sentence twice.",
)


def read_judged(path: pathlib.Path) -> pd.DataFrame:
    """Returns the scores of `training.evaluate_keyboard`: a row a model.

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


def with_differences(judged: pd.DataFrame) -> pd.DataFrame:
    """Adds differences to a repeat's scores.

    Args:
        judged: Evaluations, from `read_judged` or `judged.csv`.

    Returns:
        The scores, with a column for the loss less each trigram's, NaN where that has
        no score; and, where the law of the text is known, the regret after the names:
        the loss less that of the best possible, on the same tokens.
    """
    losses = judged.set_index("model")["loss"]
    less = {c: judged["loss"] - losses.get(m, math.nan) for c, m in _ABOVE.items()}
    found = judged.assign(**less)
    if metric_names.BEST_POSSIBLE in losses:
        regret = judged["loss"] - losses[metric_names.BEST_POSSIBLE]
        found = found.drop(columns=metric_names.REGRET, errors="ignore")
        found.insert(1, metric_names.REGRET, regret)
    return found


@dataclasses.dataclass(frozen=True)
class Runs:
    """The results of a study's runs.

    Attributes:
        settings: Settings in the order of tables.
        rounds: A row a round of each federated run, with its setting and repeat.
        judged: Scores of each repeat, from the first on, by `read_judged`.
        baselines: Baselines, from `training_runs.read_baselines`.
        privacy: The privacy of each setting of federated training: the statement of a
            run, as realised.
    """

    settings: Sequence[training_runs.Setting]
    rounds: pd.DataFrame
    judged: Sequence[pd.DataFrame]
    baselines: pd.DataFrame
    privacy: Mapping[str, Mapping]

    @property
    def settings_with_rounds(self) -> list[training_runs.Setting]:
        """Settings of federated training, begun or done."""
        names = set(self.rounds["setting"])
        return [setting for setting in self.settings if setting.name in names]


def files_of(title: str, found: Runs, notes: Sequence[str]) -> dict[str, bytes]:
    """Returns the files of results by name.

    Args:
        title: Title of the page.
        found: The runs' results.
        notes: Notes on them, a sentence or more each.
    """
    files = {"runs.csv": tables.write(found.rounds).encode()}
    usual = [s for s in found.settings_with_rounds if s.name != steps_lib.PLATEAU]
    if usual:
        files["learning.png"] = plot(found, usual)
    if longer := _longer(found):
        files["plateau.png"] = plot(found, longer)
    if adaptive := _adaptive(found):
        files["clip.png"] = plot_clip(found, adaptive)
    if found.judged:
        sizes = [len(judged) for judged in found.judged]
        table = pd.concat(map(with_differences, found.judged), ignore_index=True)
        csv = table.drop(columns=[*_ABOVE])
        csv.insert(1, "repeat", np.repeat(range(len(found.judged)), sizes))
        files["judged.csv"] = tables.write(csv).encode()
        parts = _judged_rows(table, found.settings, found.privacy)
    else:
        parts = _last_rows(found)
    saved = rounds_saved(found.rounds)
    if not saved.empty:
        files["rounds_saved.csv"] = tables.write(saved).encode()
        parts += _saved_rows(saved, found.settings)
    files[study.PAGE] = pages.page(title, *parts, pages.notes(*notes))
    return files


def rounds_saved(rounds: pd.DataFrame) -> pd.DataFrame:
    """Returns the rounds after which pretrained runs match those from scratch.

    Args:
        rounds: A row a round of each run, with its setting and repeat.

    Returns:
        A row a way of training and repeat that has both: `setting` from scratch,
        `repeat`, its last `loss`, its `rounds` and `rho`; and the first evaluated round
        after which the pretrained one has no more: `pretrained_rounds` and
        `pretrained_rho` then, NaN where it never has.
    """
    rows = []
    for (name, repeat), scratch in rounds.groupby(["setting", "repeat"], sort=False):
        is_twin = rounds["setting"].eq(f"{name}{steps_lib.PRETRAINED}")
        twin = rounds[is_twin & rounds["repeat"].eq(repeat)]
        if twin.empty:
            continue
        last = scratch.dropna(subset=_LOSS).iloc[-1]
        reached = twin[twin[_LOSS] <= last[_LOSS]]
        first = reached.iloc[0] if len(reached) else {}
        rows.append(
            {
                "setting": name,
                "repeat": repeat,
                "loss": last[_LOSS],
                "rounds": last["round"],
                "rho": last["rho"],
                "pretrained_rounds": first.get("round", math.nan),
                "pretrained_rho": first.get("rho", math.nan),
            }
        )
    return pd.DataFrame(rows)


def _saved_rows(
    saved: pd.DataFrame, settings: Sequence[training_runs.Setting]
) -> list[str | list[str]]:
    """Returns the page's table of the rounds that pretraining saves."""
    labels = {setting.name: setting.label for setting in settings}
    columns = ["repeat", "loss", "rounds from scratch", "rho", "rounds pretrained"]
    return [
        "Rounds and zCDP until the pretrained run has the final loss of the run from "
        "scratch, on the same held-out clients:",
        pages.table_of(
            ["", *columns, "rho"],
            [
                [labels[row["setting"]], str(row["repeat"] + 1), *saved_cells(row)]
                for row in saved.to_dict("records")
            ],
        ),
    ]


def saved_cells(row: Mapping[str, float]) -> list[str]:
    """Returns the cells of a row of `rounds_saved`, from its loss on."""
    by_then = ["never", ""]
    if not math.isnan(row["pretrained_rounds"]):
        by_then = [f"{row['pretrained_rounds']:.0f}", _rho(row["pretrained_rho"])]
    return [f"{row['loss']:.3f}", f"{row['rounds']:.0f}", _rho(row["rho"]), *by_then]


def _rho(rho: float) -> str:
    return f"{rho:,.4g}" if math.isfinite(rho) else "none"


def _judged_rows(
    table: pd.DataFrame,
    settings: Sequence[training_runs.Setting],
    privacy: Mapping[str, Mapping],
) -> list[str | list[str]]:
    """Returns the page's table of the models' metrics as a keyboard."""
    labels = {setting.name: setting.label for setting in settings}
    in_nats = (metric_names.REGRET, "loss", *_ABOVE)
    columns = {**{n: n for n in in_nats}, **metric_names.KEYBOARD_LABELS}
    labels_of = {name: label for name, label in columns.items() if name in table}
    lines = []
    for model, rows in table.groupby("model", sort=False):
        cells = [_with_interval(rows[name], name in in_nats) for name in labels_of]
        label = labels.get(str(model), str(model))
        guarantee = _guarantee(privacy.get(str(model)))
        lines.append([label, str(len(rows)), *cells, *guarantee])
    return [
        "On held-out clients, as a keyboard uses the models; means of the repeats with "
        "95% intervals by Student's t:",
        pages.table_of(["", "repeats", *labels_of.values(), *_GUARANTEE], lines),
    ]


def _last_rows(found: Runs) -> list[str | list[str]]:
    """Returns the page's table of the last rounds, where nothing was evaluated."""
    columns = {f"held_out_{name}": label for name, label in metric_names.LABELS.items()}
    lines = []
    for setting in found.settings:
        rows = found.rounds[found.rounds["setting"] == setting.name]
        if rows.empty:
            continue
        last = rows.groupby("repeat").last()
        cells = [_with_interval(last[c], c == _LOSS) for c in columns]
        guarantee = _guarantee(found.privacy.get(setting.name))
        lines.append([setting.label, str(len(last)), *cells, *guarantee])
    table = pages.table_of(["", "repeats", *columns.values(), *_GUARANTEE], lines)
    # Runs of one repeat have the same held-out clients, and so the same n-grams.
    for name, rows in found.baselines.groupby("baseline", sort=False):
        values = {c: rows[c.removeprefix("held_out_")].unique() for c in columns}
        cells = [_with_interval(pd.Series(v), c == _LOSS) for c, v in values.items()]
        table.append(f"| {name} | | {' | '.join(cells)} | none | none |")
    return [
        "After the last round, on held-out clients; means of the repeats, with 95% "
        "intervals by Student's t:",
        table,
    ]


def _guarantee(statement: Mapping | None) -> list[str]:
    """Returns a run's guarantee, as realised: z and epsilon."""
    if statement is None or not statement["guarantees"]:
        return ["none", "none"]
    guarantee, *_ = statement["guarantees"]
    epsilon = rounding.rounded_up_to(guarantee["epsilon"], 1)
    noise = statement["parameters"]["noise multiplier z"]
    kind = "" if guarantee["is_upper_bound"] else ", an estimate"
    return [f"{noise:.3g}", f"{epsilon} (delta {guarantee['delta']:g}{kind})"]


def _with_interval(values: pd.Series, in_nats: bool) -> str:
    if values.isna().any():  # of a model that is never sure enough to speak
        return "none"
    form = ".3f" if in_nats else ".2%"
    half = intervals.half_of_mean(values.to_numpy())
    return intervals.shown(values.mean(), half, form)


def _longer(found: Runs) -> list[training_runs.Setting]:
    """Returns FedAvg and FedAvg of more rounds, where the latter was run."""
    of_fedavg = (steps_lib.FEDAVG, steps_lib.PLATEAU)
    settings = [s for s in found.settings_with_rounds if s.name in of_fedavg]
    return settings if any(s.name == steps_lib.PLATEAU for s in settings) else []


def plot(found: Runs, settings: Sequence[training_runs.Setting]) -> bytes:
    """Plots loss and one suggestion over rounds, mean and range; returns a PNG.

    Args:
        found: The runs' results.
        settings: Settings that are drawn.
    """
    panels = {
        _LOSS: metric_names.title("loss"),
        _SUGGESTION: metric_names.title("one_suggestion"),
    }
    return training_runs.plot(
        found.rounds, settings, panels, found.baselines, is_cut=True
    )


def _adaptive(found: Runs) -> list[training_runs.Setting]:
    """Returns the settings whose clip norm changed in some run."""
    if "clip_norm" not in found.rounds:  # before any federated run is finished
        return []
    norms = found.rounds.groupby("setting")["clip_norm"].nunique()
    return [s for s in found.settings if norms.get(s.name, 1) > 1]


def _noisy(found: Runs) -> list[training_runs.Setting]:
    """Returns the settings that the paper's Figure 3 compares: with a tree's noise."""
    return [s for s in found.settings if "--mechanism=dp_ftrl" in s.flags]


def plot_clip(found: Runs, adaptive: Sequence[training_runs.Setting]) -> bytes:
    """Plots Figure 3 of the paper: a fixed and an adaptive clip norm.

    Accuracy over rounds of runs with a tree's noise, and the clip norm of those whose
    norm adapts, with the estimate that it follows; means of the repeats. Returns a PNG.

    Args:
        found: The runs' results.
        adaptive: Settings with an adaptive clip norm; the others' is a line.
    """
    of_tree = _noisy(found)
    figure, (above, below) = plots.stacked(
        ["Held-out clients: accuracy of one suggestion", "Clip norm"], "round"
    )
    for setting in of_tree:
        of_setting = found.rounds[found.rounds["setting"] == setting.name]
        rounds = of_setting.groupby("round")
        look: dict[str, Any] = {"color": setting.color, "linestyle": setting.line}
        above.plot(rounds[_SUGGESTION].mean().dropna(), label=setting.label, **look)
        if setting in adaptive:
            below.step(
                *zip(*rounds["clip_norm"].mean().items(), strict=True),
                where="post",
                label=setting.label,
                **look,
            )
            below.plot(
                rounds["tracked_norm"].mean(),
                alpha=0.5,
                linewidth=1,
                label=f"{setting.label}: estimated median",
                **look,
            )
    plots.label_metric(above.yaxis, "one_suggestion")
    plots.label_metric(below.yaxis, "clip_norm")
    names = {setting.name for setting in of_tree} - {s.name for s in adaptive}
    fixed = found.rounds.loc[found.rounds["setting"].isin(names), "clip_norm"].unique()
    plots.straight_lines(below, {f"fixed, {norm:g}": norm for norm in sorted(fixed)})
    below.set_ylim(bottom=0)
    plots.legend(above)
    plots.legend(below, below=True)
    return plots.png(figure)
