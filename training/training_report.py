"""What a training run leaves for people to read: plots, statements, one page."""

import dataclasses
from collections.abc import Mapping

import pandas as pd

from privacy import statement as statement_lib
from simulation import plots, report, run_directory
from training import evaluation

_FIGURES = ("accuracy.png", "loss.png", "clip_norm.png", "zcdp.png")
_REFERENCE_STYLES = ("--", ":")


def with_public_data(
    statement: statement_lib.PrivacyStatement, public_data: str
) -> statement_lib.PrivacyStatement:
    """Returns a statement that names what a run took from elsewhere.

    Args:
        statement: The plan's.
        public_data: The vocabulary and the first weights.
    """
    return dataclasses.replace(
        statement, protected=f"{statement.protected} Here: {public_data}"
    )


def write(
    directory: run_directory.RunDirectory,
    statements: Mapping[str, statement_lib.PrivacyStatement],
    baseline: dict[str, float],
    best_possible: Mapping[str, float] | None = None,
) -> None:
    """Writes the statements, the plots, and `report.html`.

    Args:
        directory: Has the run's metrics. Takes `privacy.md` and `.json`, of what was
            realised; `privacy_planned.md` and `.json`; and in `simulator`
            `unigram_baseline.json`, `best_possible.json` if it is known, and PNGs.
        statements: By the stems of their files: `privacy`, `privacy_planned`.
        baseline: See `held_out.unigram_baseline`.
        best_possible: See `best_possible.BestPossible.metrics`; None where the law of
            the text is not known.
    """
    for stem, statement in statements.items():
        directory.write_statement(statement, stem)
    directory.simulator.write_json("unigram_baseline.json", dict(baseline))
    references = {"words by frequency alone": baseline}
    if best_possible is not None:
        directory.simulator.write_json("best_possible.json", dict(best_possible))
        references["the best possible"] = best_possible
    metrics = directory.metrics()
    figures = [
        plot_accuracy(metrics, references),
        plot_loss(metrics, references),
        plot_clip_norm(metrics),
        plot_zcdp(metrics),
    ]
    for name, png in zip(_FIGURES, figures, strict=True):
        directory.simulator.write_bytes(name, png)
    directory.write_report(_page(directory, metrics, statements, references, figures))


def _page(
    directory: run_directory.RunDirectory,
    metrics: pd.DataFrame,
    statements: Mapping[str, statement_lib.PrivacyStatement],
    references: Mapping[str, Mapping[str, float]],
    figures: list[bytes],
) -> str:
    last = metrics.iloc[-1]
    table = pd.DataFrame(
        {
            "held-out clients": ["this model", *references],
            **{
                n: [last[f"held_out_{n}"], *(r[n] for r in references.values())]
                for n in evaluation.METRICS
            },
        }
    )
    participation = metrics[
        ["round", "simulated_hours", "failed_attempts", "max_participation"]
    ].tail(1)
    sections = [
        report.Section(
            "The model",
            f"After {len(metrics)} rounds.",
            [report.Table("Mean over the places of the text", table)],
            [
                report.Figure("Accuracy on held-out clients", figures[0]),
                report.Figure("Loss on held-out clients", figures[1]),
            ],
            covered=False,
        ),
        report.Section(
            "Clip norm",
            "",
            figures=[report.Figure("Clip norm", figures[2])],
            covered=True,
        ),
        report.Section(
            "Participation",
            "",
            [report.Table("At the end", participation)],
            covered=False,
        ),
        report.Section(
            "Privacy, as realised",
            _below_a_heading(statements["privacy"].to_markdown()),
            figures=[report.Figure("zCDP over rounds", figures[3])],
            covered=True,
        ),
        report.Section(
            "Privacy, as planned",
            _below_a_heading(statements["privacy_planned"].to_markdown()),
            covered=True,
        ),
        report.Section(
            "How it was made", run_directory.how_it_was_made(directory), covered=True
        ),
    ]
    return report.render("Training", f"Run of {directory.run['started']}", sections)


def _below_a_heading(text: str) -> str:
    """Returns a Markdown page without its title, its headings a level lower."""
    return text.partition("\n")[2].replace("\n## ", "\n### ")


def plot_accuracy(
    metrics: pd.DataFrame, references: Mapping[str, Mapping[str, float]]
) -> bytes:
    """Plots held-out accuracies over rounds, beside those of references; a PNG.

    Args:
        metrics: Of the run.
        references: By name: metrics that do not depend on the round.
    """
    figure, axes = plots.single("Held-out clients", "round", "accuracy")
    shown = metrics[metrics["held_out_loss"].notna()]
    for name, label, color in (
        ("accuracy", "top-1 in-vocabulary", plots.BLUE),
        ("accuracy_of_suggestion", "one suggestion", plots.GREEN),
        ("accuracy_of_3_suggestions", "three suggestions", plots.ORANGE),
    ):
        values = shown[f"held_out_{name}"]
        axes.plot(shown["round"], values, marker="o", ms=3, color=color, label=label)
    _draw_references(axes, references, "accuracy_of_suggestion", "one suggestion, ")
    axes.set_ylim(bottom=0)
    _legend_below(axes)
    return plots.png(figure)


def plot_loss(
    metrics: pd.DataFrame, references: Mapping[str, Mapping[str, float]]
) -> bytes:
    """Plots the held-out loss over rounds, beside those of references; a PNG."""
    figure, axes = plots.single("Held-out clients", "round", "mean loss, nats")
    shown = metrics[metrics["held_out_loss"].notna()]
    axes.plot(
        shown["round"],
        shown["held_out_loss"],
        marker="o",
        ms=3,
        color=plots.BLUE,
        label="this model",
    )
    _draw_references(axes, references, "loss", "")
    _legend_below(axes)
    return plots.png(figure)


def _draw_references(axes, references, name: str, prefix: str) -> None:
    # At most two: frequencies, and the best possible.
    for style, (label, values) in zip(
        _REFERENCE_STYLES, references.items(), strict=False
    ):
        axes.axhline(
            values[name], color=plots.MUTED, linestyle=style, label=prefix + label
        )


def _legend_below(axes) -> None:
    axes.legend(
        frameon=False,
        labelcolor=plots.INK,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.15),
        ncols=2,
    )


def plot_clip_norm(metrics: pd.DataFrame) -> bytes:
    """Plots the clip norm in force and the tracked one over rounds; a PNG."""
    figure, axes = plots.single("Clip norm", "round", "L2 norm")
    curves = [("clip_norm", "in force", plots.BLUE)]
    if (metrics["tracked_norm"] != metrics["clip_norm"]).any():
        curves.insert(0, ("tracked_norm", "tracked", plots.ORANGE))
    for name, label, color in curves:
        axes.step(
            metrics["round"], metrics[name], where="post", color=color, label=label
        )
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, labelcolor=plots.INK)
    return plots.png(figure)


def plot_zcdp(metrics: pd.DataFrame) -> bytes:
    """Plots the realised zCDP over rounds; a PNG."""
    figure, axes = plots.single("zCDP, as realised so far", "round", "rho")
    axes.step(metrics["round"], metrics["rho"], where="post", color=plots.BLUE)
    axes.set_ylim(bottom=0)
    return plots.png(figure)
