"""The page of the study of useful and private models: its table and plot."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from federated_hh.privacy import rounding
from federated_hh.reports import plots
from studies import intervals, pages
from studies.xu_2023 import guarantee_settings as settings_lib
from studies.xu_2023 import quality_steps as steps_lib
from training.models import metric_names

_LABELS = {
    settings_lib.SYNTHETIC: "synthetic language",
    settings_lib.BLOGS: "bloggers' text",
}
# The part of the rounds that plots leave out of sight, so that last ones differ.
_CUT = 0.1
_COLUMNS = ("loss", "one_suggestion", "picked_rate")


def page(title: str, table: pd.DataFrame) -> bytes:
    """Returns the page.

    Args:
        title: Its title.
        table: Models, by `summarize`.
    """
    parts: list[str | list[str]] = []
    for text, rows in table.groupby("text", sort=False):
        parts += [
            f"{_LABELS[str(text)].capitalize()}, on held-out clients:",
            pages.table_of(
                [
                    *("", "repeats", "clients a round", "z", "loss"),
                    *("one suggestion", "picked rate", "zCDP"),
                    "epsilon (delta 1e-10)",
                ],
                map(_cells, rows.to_dict("records")),
            ),
        ]
    notes = [
        "zCDP and epsilon are for one run and one simulated client, zeroed out, as "
        "realised; of several repeats the largest. N-grams, the law of the "
        "language and FedAvg guarantee nothing.",
        "N-grams are counted on all text of those who train, without noise.",
        "A model is the exponential moving average over some 20 rounds, which "
        "costs no privacy.",
    ]
    if settings_lib.BLOGS in {*table["text"]}:
        notes.append(
            "A blogger stands for many simulated clients, each with a random part "
            "of the blogger's sentences: no guarantee here says anything about a "
            "blogger. Bloggers who evaluate are none who train. The chat counts as "
            "public."
        )
    return pages.page(title, *parts, pages.notes(*notes))


def summarize(
    judged: pd.DataFrame,
    settings: Sequence[settings_lib.TextRun],
    stated: Mapping[str, Sequence[Mapping]],
) -> pd.DataFrame:
    """Returns a row a model and text: means over repeats, and the guarantee.

    Args:
        judged: Scores by `quality_report.read_judged`, with text and repeat.
        settings: The study's runs.
        stated: Statements of runs by setting, as realised.

    Returns:
        `text`, `model`, `label`, `repeats`; each metric and half of its 95% interval;
        `cohort_size`, `z`, `rho` and `epsilon`, NaN without a guarantee, else the
        largest of a repeat.
    """
    by_name = {setting.name: setting for setting in settings}
    rows = []
    for (text, model), of in judged.groupby(["text", "model"], sort=False):
        setting = by_name.get(str(model))
        row = {"text": text, "model": model, "repeats": len(of)}
        row["label"] = _label(str(model)) if setting is None else setting.label
        for name in _COLUMNS:
            values = of[name].to_numpy()
            row[name] = values.mean()
            row[f"{name}_half"] = intervals.half_of_mean(values)
        statements = stated.get(str(model), ())
        guarantees = [one for s in statements for one in s["guarantees"][:1]]
        for name in ("rho", "epsilon"):
            row[name] = max((one[name] for one in guarantees), default=math.nan)
        of_run = statements[0]["parameters"] if statements else {}
        row["cohort_size"] = of_run.get("report goal m", math.nan)
        row["z"] = of_run.get("noise multiplier z", math.nan)
        rows.append(row)
    return pd.DataFrame(rows)


def _label(baseline: str) -> str:
    """Returns the label of n-grams, by their name.

    Models of public chat differ by length, and its n-grams do not.
    """
    name, told, _ = baseline.partition(metric_names.of_text(steps_lib.CHAT))
    return f"{name}{metric_names.of_text('public chat')}" if told else name


def _cells(row: Mapping[str, Any]) -> list[str]:
    """Returns the cells of a model in the page's table."""
    scores = [
        "none"
        if math.isnan(row[name])
        else intervals.shown(
            row[name], row[f"{name}_half"], ".3f" if name == "loss" else ".2%"
        )
        for name in _COLUMNS
    ]
    loss, *others = scores
    has_none = math.isnan(row["rho"])
    return [
        row["label"],
        str(row["repeats"]),
        "" if math.isnan(row["cohort_size"]) else f"{row['cohort_size']:,.0f}",
        "" if has_none else f"{row['z']:.3g}",
        loss,
        *others,
        "none" if has_none else f"{row['rho']:.3g}",
        "none" if has_none else str(rounding.rounded_up_to(row["epsilon"], 2)),
    ]


def plot(
    runs: pd.DataFrame, table: pd.DataFrame, settings: Sequence[settings_lib.TextRun]
) -> bytes:
    """Plots the loss over the epsilon spent, means of the repeats; returns a PNG.

    Args:
        runs: A row a round of each federated run.
        table: Models, by `summarize`: those without a guarantee are lines.
        settings: The runs of one text.
    """
    from matplotlib import ticker

    text = settings[0].text
    figure, axes = plots.single(
        f"Held-out loss over the epsilon spent: {_LABELS[text]}",
        "epsilon at delta 1e-10 of the rounds so far",
        "mean loss, nats",
    )
    for setting in settings:
        of = runs[runs["setting"] == setting.name].dropna(subset="held_out_loss")
        means = of.groupby("round")[["epsilon", "held_out_loss"]].mean()
        if means.empty or math.isinf(means["epsilon"].iloc[-1]):
            continue
        axes.plot(
            means["epsilon"],
            means["held_out_loss"],
            color=setting.color,
            linestyle=setting.line,
            label=setting.label,
            marker="o",
            ms=3,
        )
    names = [s.name for s in settings if s.program == steps_lib.TRAIN]
    names += [metric_names.KNESER_NEY, metric_names.BEST_POSSIBLE]
    lines = table[table["rho"].isna() & (table["text"] == text)]
    lines = lines[lines["model"].isin(names)]
    plots.straight_lines(axes, dict(zip(lines["label"], lines["loss"], strict=True)))
    of_text = runs[runs["setting"].isin(names)]
    later = of_text[of_text["round"] >= _CUT * of_text["round"].max()]
    least, top = axes.get_ylim()[0], later["held_out_loss"].max()
    if top < of_text["held_out_loss"].max():
        axes.set_ylim(top=top + (top - least) / 20)
        plots.say_cut(axes, "the first rounds are out of sight")
    plots.label_metric(axes.yaxis, "loss")
    axes.set_xscale("log")
    for which in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        which(ticker.LogFormatter(minor_thresholds=(2, 0.6), labelOnlyBase=False))
    axes.tick_params(which="both", colors=plots.MUTED)
    plots.legend(axes, below=True)
    return plots.png(figure)
