"""The report of an evaluation on simulated typing: tables, a plot, one page."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib import figure as figure_lib

from federated_hh.reports import page, plots
from federated_hh.run_directory import directory as run_directory
from training.keyboard import evaluation as keyboard_evaluation
from training.models import metric_names

_MEANINGS = """\
* *loss*, *top-1 in-vocabulary*, *one suggestion*, *three suggestions*: as in the report
  of training; the last is the paper's Accuracy (candidates matching the committed
  words), here of the words of the vocabulary.
* *picked rate*: of all words typed, those that the simulated user picks from three
  suggestions; the paper's Picked Rate of next-word prediction.
* *keystrokes saved*: by these picks, of the taps that words of the vocabulary take. The
  paper's Words Per Minute has no counterpart.
* *Smart Compose*: its trigger rate, the share of words typed at whose place a
  continuation is offered; and of all offers, those that are right (accuracy) and those
  that are picked. An offer after the last word of a sentence is wrong, and at no word's
  place. A threshold chosen by the picked rate is tuned on these clients: the values are
  then a point of the model's curve, with intervals at that threshold.
* *word-modified ratio*: of the words typed with inexact touches, those for which the
  decoder's first word is another one: by the prior alone (before), and after the model
  re-ranks the candidates, which all have as many characters as the word. Only words of
  the vocabulary that the layout has keys for are typed. *Of all*: of all words, where
  each of the others counts as modified. The paper's Word Modified Ratio, which is of
  all words; less is better.
"""


def scores_table(
    evaluations: Mapping[str, keyboard_evaluation.Evaluation],
    intervals: Mapping[str, Mapping[str, tuple[float, float]]],
) -> pd.DataFrame:
    """Returns all metrics of all models: a row each, with its 95% interval.

    Args:
        evaluations: Evaluations by model.
        intervals: Intervals by model and metric; see `Scores.intervals`.

    Returns:
        `model`, `metric`, `value`, `low`, `high`.
    """
    return pd.DataFrame(
        [
            {
                "model": model,
                "metric": metric,
                "value": value,
                "low": intervals[model][metric][0],
                "high": intervals[model][metric][1],
            }
            for model, evaluation in evaluations.items()
            for metric, value in evaluation.scores.metrics().items()
        ]
    )


def curves_table(
    evaluations: Mapping[str, keyboard_evaluation.Evaluation],
) -> pd.DataFrame:
    """Returns the thresholds of Smart Compose of all models, a row each."""
    parts = [e.curve.assign(model=model) for model, e in evaluations.items()]
    table = pd.concat(parts, ignore_index=True)
    table.insert(0, "model", table.pop("model"))
    return table


def shown(scores: pd.DataFrame, thresholds: Mapping[str, float | None]) -> pd.DataFrame:
    """Returns the scores for people: a row a metric, a column a model.

    Args:
        scores: Scores, from `scores_table`.
        thresholds: The thresholds of Smart Compose, by model.
    """
    columns: dict[str, list[str]] = {"metric": [*metric_names.KEYBOARD_LABELS.values()]}
    columns["metric"].append("Smart Compose: threshold")
    for model, rows in scores.groupby("model", sort=False):
        cells = [_cell(*row) for row in rows.drop(columns="model").to_numpy().tolist()]
        threshold = thresholds[str(model)]
        columns[str(model)] = [
            *cells,
            "none" if threshold is None else f"{threshold:g}",
        ]
    return pd.DataFrame(columns)


def to_markdown(table: pd.DataFrame) -> str:
    """Returns a table of texts as Markdown."""
    lines = [list(table.columns), ["---", *["--:"] * (table.shape[1] - 1)]]
    lines += table.to_numpy().tolist()
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write(
    directory: run_directory.RunDirectory,
    evaluations: Mapping[str, keyboard_evaluation.Evaluation],
    scores: pd.DataFrame,
    counts: Mapping[str, int],
    notes: Sequence[str],
) -> page.Summary:
    """Writes `scores.csv`, `smart_compose.csv`, a plot, and `report.html`.

    Args:
        directory: Their directory. No guarantee covers scores on the clients' text.
        evaluations: Evaluations by model.
        scores: Scores, from `scores_table`.
        counts: The size of the evaluation.
        notes: Notes for the reader, a sentence or more each.

    Returns:
        The run's summary, with the best model.
    """
    report = page.Page(directory, "Models on a keyboard")
    report.summary(
        _best(scores),
        privacy="Privacy: none: the comparison uses held-out clients' own text",
        next_command="federated_hh.compare {run} ANOTHER_RUN",
    )
    section = report.section("Models", covered=False)
    section.file("scores.csv", scores)
    thresholds = {model: e.threshold for model, e in evaluations.items()}
    section.show(
        shown(scores, thresholds), "With 95% intervals by bootstrap over clients"
    )
    section.text(_MEANINGS)
    table = curves_table(evaluations)
    compose = report.section("Smart Compose over its threshold", covered=False)
    compose.plot("smart_compose.png", plot_curves(table))
    compose.table("smart_compose.csv", table)
    evaluated = report.section("Evaluation", covered=False)
    evaluated.show(pd.DataFrame({"quantity": [*counts], "number": [*counts.values()]}))
    evaluated.text("".join(f"* {note}\n" for note in notes))
    report.how_it_was_made()
    return report.write()


def _best(scores: pd.DataFrame) -> str:
    """Returns the models by a simulated user's picks, in a line."""
    picked = scores[scores["metric"] == "picked_rate"].set_index("model")["value"]
    ranked = picked.dropna().sort_values(ascending=False, kind="stable")
    told = ", ".join(f"{model} {value:.1%}" for model, value in ranked.items())
    return f"{metric_names.KEYBOARD_LABELS['picked_rate'].capitalize()}: {told}."


def plot_curves(table: pd.DataFrame) -> figure_lib.Figure:
    """Plots the accuracy and the picked rate of Smart Compose over its trigger rate."""
    labels = metric_names.KEYBOARD_LABELS
    names = ("compose_accuracy", "compose_picked_rate")
    figure, panels = plots.stacked(
        [labels[name] for name in names],
        f"{labels['trigger_rate']} (share of words typed)",
        ["share of offers"] * len(names),
    )
    # A model that is never confident enough has no accuracy.
    offered = table[table["compose_accuracy"].notna()]
    for number, (model, rows) in enumerate(offered.groupby("model", sort=False)):
        for axes, name in zip(panels, names, strict=True):
            axes.plot(
                rows["trigger_rate"],
                rows[name],
                label=str(model),
                **plots.look(number),
                marker="o",
                ms=3,
            )
    panels[0].set_ylim(0, 1)
    panels[1].set_ylim(bottom=0)
    plots.in_percent(panels[-1].xaxis, *(axes.yaxis for axes in panels))
    plots.legend(panels[-1], below=True)
    return figure


def _cell(metric: str, value: float, low: float, high: float) -> str:
    """Returns a value and its interval as text."""
    if value != value:  # nan: there is no text
        return "–"
    form = ".3f" if metric == "loss" else ".1%"
    if low != low:  # of one client
        return f"{value:{form}}"
    return f"{value:{form}} ({low:{form}} to {high:{form}})"
