"""The report of a training run: plots, statements, one page."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import statement as statement_lib
from federated_hh.reports import client_bytes, page, plots
from federated_hh.rounds import masked_sums
from federated_hh.run_directory import directory as run_directory
from training.baselines import baselines as baselines_lib
from training.federated import model_average, sizing
from training.models import evaluation, metric_names

if TYPE_CHECKING:  # imported with the first figure
    from matplotlib import figure as figure_lib

MAY_KNOW_HELD_OUT = (
    "The initial model may have been trained on text of this run's clients. It, "
    "n-grams of its text, and this model may therefore have seen the held-out clients "
    "and look better here than they are."
)

_SECOND_RELEASE = (
    "The same run again where sums are rounded differently: on another kind of "
    "processor, or with another --onednn, --precision, --runtime, --device or --xla. "
    "The same noise key then draws other noise for the same data: a second release, "
    "with the same cost again."
)


def with_public_data(
    statement: statement_lib.PrivacyStatement,
    public_data: str,
    not_counted: tuple[str, ...] = (),
) -> statement_lib.PrivacyStatement:
    """Returns a statement that names the public data of a run.

    Args:
        statement: The plan's.
        public_data: The vocabulary and the first weights.
        not_counted: Limits of the guarantee on them, a sentence each.
    """
    return dataclasses.replace(
        statement,
        protected=f"{statement.protected} Here: {public_data}",
        not_counted=(*not_counted, *statement.not_counted, _SECOND_RELEASE),
    )


def write(
    directory: run_directory.RunDirectory,
    realised: statement_lib.PrivacyStatement,
    planned: statement_lib.PrivacyStatement,
    baselines: Sequence[baselines_lib.Baseline],
    *,
    sampler: plan_lib.Sampler[Any],
    average: model_average.ModelAverage | None = None,
    noise: sizing.NoiseCheck | None = None,
    may_know_held_out: bool = False,
    custom_model: str | None = None,
    about: str = "",
    begins: str = "",
) -> page.Summary:
    """Writes the statements, the plots, and `report.html`.

    Args:
        directory: Run directory with metrics. Receives `privacy.md` and `.json`, as
            realised; `privacy_planned.md` and `.json`; plots; and in `simulator`
            `baselines.csv`.
        realised: Statement of the realised guarantee.
        planned: The statement of the worst case that was planned.
        baselines: The model's baselines.
        sampler: The plan's sampler.
        average: The average of models that it is; None for the last one.
        noise: The run's noise; None without any.
        may_know_held_out: Whether the model that training began with may have learned
            from any of the run's clients.
        custom_model: The model's function as `module:function`; None for the default.
        about: Meaning of the guarantee for people, where clients are simulated.
        begins: See `next_command`.

    Returns:
        The run's summary.
    """
    metrics = directory.metrics()
    report = page.Page(directory, "Training")
    report.summary(
        how_good(metrics.iloc[-1], baselines),
        advice=f"{about} {advice(metrics.iloc[-1], baselines, noise)}".strip(),
        next_command=next_command(begins, custom_model),
    )
    model = report.section("Scores on held-out clients", covered=False)
    if average is not None:
        model.text(
            "The released model is the exponential moving average of all rounds' "
            f"models, with decay {average.decay:g}; clients trained from the last one."
        )
    if may_know_held_out:
        model.text(MAY_KNOW_HELD_OUT)
    add_held_out(model, metrics, baselines)
    released = report.section("Released model", covered=True)
    released.text(f"The model after {len(metrics):,} rounds, and the clip norms.")
    told, drawn = plots.told_and_drawn(metrics, ["clip_norm", "tracked_norm"])
    if told:
        released.text(told)
    if drawn:
        released.plot("clip_norm.png", plot_clip_norm(metrics))
    participation = report.section("Participation", covered=False)
    columns = ["round", "simulated_hours", "failed_attempts", "max_participation"]
    participation.show(metrics[columns].tail(1), "After the last round")
    masked_sums.show(report, metrics)
    client_bytes.add(report, metrics, sampler)
    privacy = report.statement(realised, "Privacy")
    privacy.plot("zcdp.png", plot_zcdp(metrics))
    report.statement(
        planned,
        "Planned privacy: the worst case that the limits allow",
        "privacy_planned",
    )
    report.how_it_was_made()
    return report.write()


def next_command(begins: str, custom_model: str | None) -> str:
    """Returns the command that asks a run's model for a next word.

    Args:
        begins: Public words that a text may begin with, from `first_words`.
        custom_model: The model's function as `module:function`; None for the default.
    """
    consent = f" --custom_models={custom_model}" if custom_model else ""
    return f"training.predict_next_word --model={{run}}{consent} {begins}".rstrip()


def first_words(vocabulary: vocabulary_lib.Vocabulary) -> str:
    """Returns words of a vocabulary that a text may begin with, for a shell."""
    if {"how", "are"} <= set(vocabulary.words):
        return '"how are"'
    return shlex.quote(vocabulary.words[0])


def advice(
    last: pd.Series,
    baselines: Sequence[baselines_lib.Baseline],
    noise: sizing.NoiseCheck | None = None,
) -> str:
    """Returns advice for a model that n-grams beat, or nothing.

    Args:
        last: The metrics of the last round.
        baselines: The model's baselines.
        noise: The run's noise; None without any.
    """
    better = [
        baseline.name
        for baseline in baselines
        if baseline.name.startswith(metric_names.NGRAMS)
        and baseline.metrics["one_suggestion"] > last["held_out_one_suggestion"]
    ]
    if not better:
        return ""
    change = (
        "More rounds, more clients a round, or pretraining on public text "
        "(scripts/run pretrain) would help."
    )
    if noise is not None:
        has_public_text = noise.options.initial_model is not None
        change = noise.advice(has_public_text=has_public_text)
    return f"Baselines that are better: {', '.join(better)}. {change}"


def how_good(last: pd.Series, baselines: Sequence[baselines_lib.Baseline]) -> str:
    """Returns a model's scores in a line, with those of the best baseline.

    Args:
        last: The metrics of the last round.
        baselines: The model's baselines.
    """
    label = metric_names.LABELS["one_suggestion"]
    told = f"{label} {last['held_out_one_suggestion']:.1%}"
    told += f", loss {last['held_out_loss']:.3f}"
    counted = [b for b in baselines if b.name != metric_names.BEST_POSSIBLE]
    if not counted:
        return f"On held-out clients: {told}."
    best = max(counted, key=lambda b: b.metrics["one_suggestion"])
    return (
        f"On held-out clients: {told}; best baseline ({best.name}): "
        f"{best.metrics['one_suggestion']:.1%} and {best.metrics['loss']:.3f}."
    )


def add_held_out(
    section: page.Section,
    metrics: pd.DataFrame,
    baselines: Sequence[baselines_lib.Baseline],
) -> None:
    """Adds a model's scores on held-out clients, with its baselines'.

    Args:
        section: An uncovered section, for `baselines.csv` and the plots.
        metrics: The metrics of the run.
        baselines: The model's baselines.
    """
    section.file(baselines_lib.FILE, baselines_lib.table(baselines))
    references = {b.name: b.metrics for b in baselines}
    section.plot("loss.png", plot_loss(metrics, references))
    section.plot("accuracy.png", plot_accuracy(metrics, references))
    table = held_out(metrics.iloc[-1], references)
    section.show(table, "Means over the tokens of their text")
    if metric_names.REGRET in table:
        [best] = [b for b in baselines if b.name == metric_names.BEST_POSSIBLE]
        regret = f"Regret: loss minus that of {best.name}"
        if best.is_expected:
            regret += (
                ", which is an expectation over the language. The held-out text is a "
                "sample, whose own error is some hundredths of a nat"
            )
        section.text(f"{regret}.")
    made_of = "\n".join(f"* {b.name}: {b.made_of}" for b in baselines)
    section.text(f"Baselines, which this run's guarantee does not cover:\n\n{made_of}")


def held_out(
    last: pd.Series, references: Mapping[str, Mapping[str, float]]
) -> pd.DataFrame:
    """Returns a row for the model and each reference, with their mean scores.

    If the law of the text is known, rows have the regret: the loss above the law's, in
    nats per position.
    """
    model = {name: last[f"held_out_{name}"] for name in evaluation.METRICS}
    rows = {"this model": model, **references}
    table = pd.DataFrame.from_dict(rows, "index", columns=evaluation.METRICS)
    best = references.get(metric_names.BEST_POSSIBLE)
    if best is not None:
        table[metric_names.REGRET] = table["loss"] - best["loss"]
    table = table.rename(columns=metric_names.LABELS)
    return table.rename_axis("held-out clients").reset_index()


def plot_accuracy(
    metrics: pd.DataFrame, references: Mapping[str, Mapping[str, float]]
) -> "figure_lib.Figure":
    """Plots held-out accuracies over rounds, with those of references.

    Args:
        metrics: The metrics of the run.
        references: Metrics that do not depend on the round, by name.
    """
    title = "Accuracy on held-out clients (baselines: one suggestion)"
    figure, axes = plots.single(title, _round(metrics), "accuracy")
    curves = {
        f"held_out_{name}": (metric_names.LABELS[name], color)
        for name, color in (
            ("top1_in_vocabulary", plots.BLUE),
            ("one_suggestion", plots.GREEN),
            ("three_suggestions", plots.ORANGE),
        )
    }
    suggestion = {
        label: values["one_suggestion"] for label, values in references.items()
    }
    _draw_held_out(axes, metrics, curves, suggestion)
    axes.set_ylim(bottom=0)
    plots.in_percent(axes.yaxis)
    return figure


def _round(metrics: pd.DataFrame) -> str:
    """Returns the label of a row of metrics: a round, with its steps if central."""
    if "steps" not in metrics:
        return "round"
    return f"round of {metrics['steps'].iloc[0]:,} steps"


def plot_loss(
    metrics: pd.DataFrame, references: Mapping[str, Mapping[str, float]]
) -> "figure_lib.Figure":
    """Plots the held-out loss over rounds, with those of references."""
    title = "Loss on held-out clients"
    figure, axes = plots.single(title, _round(metrics), "mean loss, nats")
    losses = {label: values["loss"] for label, values in references.items()}
    curves = {"held_out_loss": ("this model", plots.BLUE)}
    _draw_held_out(axes, metrics, curves, losses)
    plots.label_metric(axes.yaxis, "loss")
    return figure


def _draw_held_out(axes, metrics, curves, references: Mapping[str, float]) -> None:
    shown = metrics[metrics["held_out_loss"].notna()].set_index("round")
    plots.curves(axes, shown, curves, marker="o", ms=3)
    plots.straight_lines(axes, references)
    plots.legend(axes, below=True)


def plot_clip_norm(metrics: pd.DataFrame) -> "figure_lib.Figure":
    """Plots the current and the tracked clip norm over rounds."""
    figure, axes = plots.single("Clip norm", "round", "L2 norm")
    curves = {"clip_norm": ("in force", plots.BLUE)}
    if (metrics["tracked_norm"] != metrics["clip_norm"]).any():
        curves = {"tracked_norm": ("tracked", plots.ORANGE), **curves}
    by_round = metrics.set_index("round")
    plots.curves(axes, by_round, curves, drawstyle="steps-post")
    axes.set_ylim(bottom=0)
    return figure


def plot_zcdp(metrics: pd.DataFrame) -> "figure_lib.Figure":
    """Plots the realised zCDP over rounds."""
    figure, axes = plots.single("Realised zCDP", "round", "rho")
    axes.step(metrics["round"], metrics["rho"], where="post", color=plots.BLUE)
    axes.set_ylim(bottom=0)
    return figure
