"""Whether private training learns (Xu et al. 2023): mechanisms side by side on blogs.

Bloggers take the place of Gboard's users: far fewer clients, so a
smaller model, a smaller report goal and fewer rounds. Each setting is a run of
`training.run_training` with the flags of one file; they differ in the noise alone.
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pandas as pd

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options.fields import REQUIRED, option
from federated_hh.populations.columns import prepared_data
from federated_hh.privacy import printed_numbers
from federated_hh.reports import plots
from federated_hh.run_directory import record as run_record
from studies import study, training_runs
from studies.training_runs import Setting
from training.models import metric_names

_FILES = "blog-authorship/posts-*.jsonl.xz"
_FLAGFILE = "configs/training_blogs.flagfile"
_TYPED = ("i want to", "thank you for", "i don't", "it was a", "i'm going to the")


# With one participation a client, DP-FedAvg spends 1 / (2 z^2), and DP-FTRL over 63
# rounds, a tree of six levels, 6 / (2 z^2). So DP-FTRL with z = 6 has a stronger
# guarantee than DP-FedAvg with z = 2. BLT with z = 1.2587 spends as much as DP-FTRL
# with z = 2 and has half its noise on the worst prefix sum; with z = 2.516 it has its
# noise and spends a quarter (federated_hh.run_accounting --mechanism=tree_against_blt).
SETTINGS = (
    Setting("dp_ftrl", "DP-FTRL", ("--mechanism=dp_ftrl",), plots.BLUE),
    Setting(
        "dp_ftrl_more_noise",
        "DP-FTRL, more noise",
        ("--mechanism=dp_ftrl", "--noise_multiplier=6"),
        plots.BLUE,
        ":",
    ),
    Setting(
        "blt",
        "BLT, the epsilon of DP-FTRL",
        ("--mechanism=blt", "--noise_multiplier=1.2587"),
        plots.PURPLE,
    ),
    Setting(
        "blt_less_epsilon",
        "BLT, the noise of DP-FTRL",
        ("--mechanism=blt", "--noise_multiplier=2.516"),
        plots.PURPLE,
        ":",
    ),
    Setting("dp_fedavg", "DP-FedAvg", ("--mechanism=dp_fedavg",), plots.ORANGE),
    Setting("fedavg", "FedAvg, not private", ("--mechanism=fedavg",), plots.GREEN),
)
# Flags in which the settings differ.
_DIFFERENT = ("--population=", "--mechanism=", "--noise_multiplier=")


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run of training.

    Attributes:
        setting: What was run.
        metrics: A row a round, as in its `metrics.csv`.
        baselines: What it stands beside, with metrics; see
            `training.baselines.baselines`.
        privacy: What its `privacy.json` says, as realised.
        suggestions: What the trained model suggests, by the text that was typed.
    """

    setting: Setting
    metrics: pd.DataFrame
    baselines: pd.DataFrame
    privacy: Mapping
    suggestions: Mapping[str, Sequence[str]]


def posts_file(
    data_dir: str | os.PathLike[str], cache: str | os.PathLike[str]
) -> pathlib.Path:
    """Returns one file of all bloggers' posts, made on first use.

    Args:
        data_dir: Where the data sets are: has blog-authorship/posts-*.jsonl.xz.
        cache: Where the file is kept.

    Raises:
        PopulationError: If there are no posts.
    """
    files = prepared_data.parts_of(data_dir, _FILES)
    return prepared_data.join_parts(files, cache, "blogs.jsonl.xz")


@dataclasses.dataclass(frozen=True)
class Options:
    """How the study is run; each field is a flag. Its settings are in a flagfile."""

    is_synthetic: ClassVar[bool] = False

    data_dir: str = option(
        REQUIRED, "The directory that holds the data set blog-authorship."
    )
    settings: tuple[str, ...] = option(
        tuple(setting.name for setting in SETTINGS),
        "Which mechanisms are run, of " + ", ".join(s.name for s in SETTINGS) + ".",
    )

    def __post_init__(self):
        options_lib.check(self)
        known = {setting.name for setting in SETTINGS}
        if not self.settings or not known.issuperset(self.settings):
            raise options_lib.OptionError(
                self,
                "{settings=}: has to name some of {known}",
                known=", ".join(sorted(known)),
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningStudy(training_runs.TrainingStudy):
    """Training with each mechanism, one run of one seed each; a `study.Study`."""

    title: str = "Learning from bloggers' sentences"
    settings: Sequence[Setting] = SETTINGS

    def files(self, found: study.Tables, directory: pathlib.Path) -> dict[str, bytes]:
        """Returns the files of results by name; see `study.Study`."""
        del found
        paths = {s: directory / study.part_name(s.name, 0) for s in self.settings}
        runs = [read_run(setting, path) for setting, path in paths.items()]
        return files_of(self.title, runs, describe(paths))


def prepare(
    name: str,
    options: Options,
    *,
    seed: int,
    cache: str | os.PathLike[str],
) -> LearningStudy:
    """Returns the study.

    Args:
        name: There is one study only.
        options: How it is run.
        seed: The seed of all runs, at least 0.
        cache: Directory where populations are kept.

    Raises:
        PopulationError: If there are no posts.
    """
    del name
    posts = posts_file(options.data_dir, cache)
    return LearningStudy(
        flags=(f"--flagfile={training_runs.ROOT / _FLAGFILE}", f"--population={posts}"),
        data={"posts": prepared_data.fingerprint(posts)},
        cache=cache,
        settings=[s for s in SETTINGS if s.name in options.settings],
        seed=seed,
    )


def read_run(setting: Setting, path: str | os.PathLike[str]) -> Run:
    """Returns what a finished run left.

    Args:
        setting: What was run.
        path: Its directory.
    """
    # TensorFlow comes with it: it takes seconds to import.
    from training.keyboard import model as keyboard_model

    path = pathlib.Path(path)
    model = keyboard_model.read(path)
    return Run(
        setting,
        training_runs.read_metrics(path),
        training_runs.read_baselines(path),
        training_runs.read_privacy(path),
        {text: [word for word, _ in model.suggest(text)] for text in _TYPED},
    )


def describe(paths: Mapping[Setting, pathlib.Path]) -> list[str]:
    """Returns what to know about finished runs: data and flags.

    Args:
        paths: The directory of each setting's run.

    Raises:
        ValueError: If they have different flags or data.
    """
    facts = []
    for path in paths.values():
        run = run_record.read(path)
        flags = [flag for flag in run["flags"] if not flag.startswith(_DIFFERENT)]
        data = json.loads((path / run_record.FACTS_FILE).read_text())
        facts.append((data["population"], " ".join(flags)))
    if len(set(facts)) > 1:
        raise ValueError(
            f"{path.parent} has runs of different flags or data; begin a new study"
        )
    fingerprint, _ = facts[0]
    return [
        "Clients: bloggers of the Blog Authorship Corpus (fingerprint of the prepared "
        f"text {fingerprint[:16]}). Each setting is one run of one seed.",
        f"Flags: `{_FLAGFILE}`, and those by which the settings differ: "
        + "; ".join(f"{s.label}: `{' '.join(s.flags)}`" for s in paths)
        + ". FedAvg clips too.",
        "MinS, MaxP, rho and epsilon are realised: from the table of all clients' "
        "participations. Zero-out adjacency of one client. Settings were chosen by "
        "looking at other runs on the same data; no guarantee counts that.",
    ]


def files_of(title: str, runs: Sequence[Run], notes: Sequence[str]) -> dict[str, bytes]:
    """Returns the files that the study leaves, by name.

    Args:
        title: The title of the page.
        runs: The runs of all settings.
        notes: What to know about them, a sentence or more each.
    """
    parts = [run.metrics.assign(setting=run.setting.name) for run in runs]
    table = pd.concat(parts, ignore_index=True)
    table.insert(0, "setting", table.pop("setting"))
    return {
        "runs.csv": tables.write(table).encode(),
        training_runs.BASELINES: tables.write(runs[0].baselines).encode(),
        "learning.png": plot(runs),
        study.PAGE: to_markdown(title, runs, notes).encode(),
    }


def to_markdown(title: str, runs: Sequence[Run], notes: Sequence[str]) -> str:
    """Returns the study's table, notes and suggestions as Markdown."""
    metrics = list(metric_names.LABELS.values())
    lines = [
        f"### {title}",
        "",
        "After the last round, on held-out clients:",
        "",
        f"| | {' | '.join(metrics)} | z | MinS | MaxP | zCDP rho | epsilon |",
        f"|---|{'--:|' * (len(metrics) + 5)}",
    ]
    for run in runs:
        last = run.metrics.iloc[-1]
        values = [last[f"held_out_{name}"] for name in metric_names.LABELS]
        # As realised: see `federated_hh.privacy.dp_ftrl.plan`.
        parameters = run.privacy["parameters"]
        privacy = [
            f"{parameters['noise multiplier z']:g}",
            parameters["MinS (rounds strictly between)"],
            parameters["MaxP"],
            *_guarantee(run),
        ]
        lines.append(_row(run.setting.label, values, privacy))
    for baseline in runs[0].baselines.to_dict("records"):
        values = [baseline[name] for name in metric_names.LABELS]
        lines.append(_row(baseline["baseline"], values, [""] * 5))
    lines += ["", *[f"* {note}" for note in notes], ""]
    typed = " | ".join(f"{text} ..." for text in _TYPED)
    lines += [f"| suggestions for | {typed} |", f"|---|{'---|' * len(_TYPED)}"]
    for run in runs:
        offered = " | ".join(", ".join(run.suggestions[text]) for text in _TYPED)
        lines.append(f"| {run.setting.label} | {offered} |")
    return "\n".join(lines) + "\n"


def _guarantee(run: Run) -> tuple[str, str]:
    if not run.privacy["guarantees"]:
        return "none", "none"
    guarantee, *_ = run.privacy["guarantees"]
    rho = printed_numbers.rounded_up_to(guarantee["rho"], 4)
    epsilon = printed_numbers.rounded_up_to(guarantee["epsilon"], 2)
    return rho, f"{epsilon} (delta {guarantee['delta']:g})"


def _row(name: str, values: Sequence[float], privacy: Sequence) -> str:
    loss, *accuracies = values
    cells = [name, f"{loss:.3f}", *[f"{value:.2%}" for value in accuracies], *privacy]
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def plot(runs: Sequence[Run]) -> bytes:
    """Plots loss and accuracies on held-out clients over rounds; returns a PNG."""
    names = ("loss", "top1_in_vocabulary", "one_suggestion")
    titles = {name: metric_names.title(name) for name in names}
    figure, panels = plots.stacked(list(titles.values()), "round")
    for axes, name in zip(panels, titles, strict=True):
        for run in runs:
            shown = run.metrics[run.metrics[f"held_out_{name}"].notna()]
            axes.plot(
                shown["round"],
                shown[f"held_out_{name}"],
                marker="o",
                ms=3,
                color=run.setting.color,
                linestyle=run.setting.line,
                label=run.setting.label,
            )
        plots.straight_lines(axes, runs[0].baselines.set_index("baseline")[name])
        if name != "loss":
            axes.set_ylim(bottom=0)
            plots.in_percent(axes.yaxis)
    plots.legend(panels[-1], below=True)
    return plots.png(figure)
