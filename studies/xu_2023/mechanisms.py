"""Mechanisms of private training side by side on blogs (Xu et al. 2023).

Bloggers take the place of Gboard's users: far fewer clients, so a smaller model, a
smaller report goal and fewer rounds. Each setting is a run of
`training.run_training` with the flags of one file; they differ in the noise alone.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence

import pandas as pd

from federated_hh.files import tables
from federated_hh.options import fields as options_lib
from federated_hh.options.fields import REQUIRED, option
from federated_hh.privacy import rounding
from federated_hh.reports import plots
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from studies import data_parts, pages, study, study_options, training_runs
from studies.training_runs import Setting
from training.models import metric_names

_FILES = "blog-authorship/posts-*.jsonl.xz"
_FLAGFILE = "configs/training_blogs.flagfile"
_ON_PLOT = ("loss", "top1_in_vocabulary", "one_suggestion")
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
        setting: Its setting.
        metrics: A row a round, as in its `metrics.csv`.
        baselines: Baselines with metrics; see `training.baselines.baselines`.
        privacy: Contents of its `privacy.json`, as realised.
        suggestions: The trained model's suggestions by typed text.
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
        data_dir: Directory with blog-authorship/posts-*.jsonl.xz.
        cache: Directory of the file.

    Raises:
        PopulationError: If there are no posts.
    """
    files = data_parts.parts_of(data_dir, _FILES)
    return data_parts.join_parts(files, cache, "blogs.jsonl.xz")


@dataclasses.dataclass(frozen=True)
class Options(study_options.StudyOptions):
    """Options of the study; each field is a flag. Its settings are in a flagfile."""

    data_dir: str = option(
        REQUIRED, "The directory that holds the data set blog-authorship."
    )
    settings: tuple[str, ...] = option(
        tuple(setting.name for setting in SETTINGS),
        "Mechanisms that are run, of " + ", ".join(s.name for s in SETTINGS) + ".",
    )

    def __post_init__(self):
        super().__post_init__()
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
    name: str, options: Options, *, seed: int, cache: str | os.PathLike[str]
) -> LearningStudy:
    """Returns the study; see `studies`.

    Raises:
        PopulationError: If there are no posts.
    """
    del name
    posts = posts_file(options.data_dir, cache)
    return LearningStudy(
        flags=(f"--flagfile={training_runs.ROOT / _FLAGFILE}", f"--population={posts}"),
        data={"posts": data_parts.fingerprint(posts)},
        cache=cache,
        settings=[s for s in SETTINGS if s.name in options.settings],
        seed=seed,
    )


def read_run(setting: Setting, path: str | os.PathLike[str]) -> Run:
    """Returns the results of a finished run.

    Args:
        setting: Its setting.
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
    """Returns notes on finished runs: data and flags.

    Args:
        paths: The directory of each setting's run.

    Raises:
        ValueError: If they have different flags or data.
    """
    facts = []
    for path in paths.values():
        run = run_record.read(path)
        flags = [flag for flag in run["flags"] if not flag.startswith(_DIFFERENT)]
        data = run_files.read_json(path / run_record.FACTS_FILE)
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
        "MinS, MaxP, rho and epsilon are realised, from the record of participations; "
        "adjacency is zero-out of one client. Settings were chosen by other runs on "
        "the same data, which no guarantee counts.",
    ]


def files_of(title: str, runs: Sequence[Run], notes: Sequence[str]) -> dict[str, bytes]:
    """Returns the files of results by name.

    Args:
        title: The title of the page.
        runs: The runs of all settings.
        notes: Notes on them, a sentence or more each.
    """
    parts = [run.metrics.assign(setting=run.setting.name) for run in runs]
    table = pd.concat(parts, ignore_index=True)
    table.insert(0, "setting", table.pop("setting"))
    panels = {f"held_out_{name}": metric_names.title(name) for name in _ON_PLOT}
    baselines = runs[0].baselines
    return {
        "runs.csv": tables.write(table).encode(),
        training_runs.BASELINES: tables.write(baselines).encode(),
        "learning.png": training_runs.plot(
            table,
            [run.setting for run in runs],
            panels,
            baselines,
            names=baselines["baseline"],
            marker="o",
            ms=3,
        ),
        study.PAGE: to_markdown(title, runs, notes),
    }


def to_markdown(title: str, runs: Sequence[Run], notes: Sequence[str]) -> bytes:
    """Returns the study's table, notes and suggestions as Markdown."""
    lines = []
    for run in runs:
        last = run.metrics.iloc[-1]
        values = [last[f"held_out_{name}"] for name in metric_names.LABELS]
        # As realised: see `federated_hh.privacy.dp_ftrl.plan`.
        parameters = run.privacy["parameters"]
        noise = f"{parameters['noise multiplier z']:g}"
        counts = [
            str(parameters[name]) for name in ("MinS (rounds strictly between)", "MaxP")
        ]
        privacy = [noise, *counts, *_guarantee(run)]
        lines.append([run.setting.label, *_scores(values), *privacy])
    for baseline in runs[0].baselines.to_dict("records"):
        values = [baseline[name] for name in metric_names.LABELS]
        lines.append([baseline["baseline"], *_scores(values), *[""] * 5])
    labels = metric_names.LABELS.values()
    header = ["", *labels, "z", "MinS", "MaxP", "zCDP rho", "epsilon"]
    suggested = [
        [run.setting.label, *(", ".join(run.suggestions[text]) for text in _TYPED)]
        for run in runs
    ]
    typed = ["suggestions for", *(f"{text} ..." for text in _TYPED)]
    return pages.page(
        title,
        "After the last round, on held-out clients:",
        pages.table_of(header, lines),
        pages.notes(*notes),
        pages.table_of(typed, suggested, "l" * len(typed)),
    )


def _guarantee(run: Run) -> tuple[str, str]:
    if not run.privacy["guarantees"]:
        return "none", "none"
    guarantee, *_ = run.privacy["guarantees"]
    rho = rounding.rounded_up_to(guarantee["rho"], 4)
    epsilon = rounding.rounded_up_to(guarantee["epsilon"], 2)
    return rho, f"{epsilon} (delta {guarantee['delta']:g})"


def _scores(values: Sequence[float]) -> list[str]:
    loss, *accuracies = values
    return [f"{loss:.3f}", *[f"{value:.2%}" for value in accuracies]]
