"""Studies whose settings are runs of `training.run_training`: each a few flags.

A run is a process of its own in its part of the study's directory. It is found again
where it is complete, and goes on where it was stopped.
"""

import dataclasses
import functools
import json
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from federated_hh.command_line import exit_codes
from federated_hh.files import tables
from federated_hh.options import option_flags
from federated_hh.options.fields import OptionError, fields_of
from federated_hh.populations import client_sentences
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.reports import plots
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from studies import study
from training.federated import plans
from training.federated.options import TrainingOptions
from training.models import metric_names

# What each run leaves of the models beside its own.
BASELINES = "baselines.csv"
# Those of them that models have to beat: lines in plots over rounds.
ON_PLOTS = (
    metric_names.BIGRAM,
    metric_names.TRIGRAM,
    metric_names.KNESER_NEY,
    metric_names.BEST_POSSIBLE,
)
# What a plot that is cut leaves out of sight.
_CUT = 0.1
# Far above the loss of words by frequency alone: training that ends there diverges.
DIVERGED = 7.0
# Facts of a run that say what it has read.
_OF_DATA = ("population", "vocabulary", "initial_model")
ROOT = pathlib.Path(__file__).resolve().parent.parent


class NotFiniteError(RuntimeError):
    """A run has ended as its model would no longer be finite; it would again."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A run of a study.

    Attributes:
        name: The name of its part of the run directory, and in tables.
        label: In the page and plots.
        flags: The flags of `training.run_training`, beside those of all settings.
        color: In plots.
        line: Style of its line in plots.
    """

    name: str
    label: str
    flags: tuple[str, ...]
    color: str
    line: str = "-"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStudy:
    """What studies of training runs share; a `study.Study` but for its files.

    Attributes:
        title: The title of its page.
        settings: What is run.
        flags: The flags of all runs; those of a setting come after them.
        cache: Where prepared populations are kept.
        seed: The seed of the first repeat; each further one has the next.
        data: The fingerprints of the clients' data, by name.
        num_repeats: Runs of each setting.
    """

    title: str
    settings: Sequence[Setting]
    flags: Sequence[str]
    cache: str | os.PathLike[str]
    seed: int = 1
    data: Mapping[str, str] = dataclasses.field(default_factory=dict)
    num_repeats: int = 1

    @property
    def federated(self) -> Sequence[Setting]:
        """The settings that are runs of `training.run_training`."""
        return self.settings

    @functools.cached_property
    def _num_clients(self) -> int:
        # Of one setting: flags of all may be no whole run's.
        return num_clients((*self.flags, *self.federated[0].flags), self.cache)

    def check_clients(self) -> None:
        """Checks before the first run that there are clients enough for all of them.

        Raises:
            ValueError: If a setting needs more clients, or more of each; or their text
                cannot be prepared.
        """
        if self.federated:
            check_participation(self._num_clients, self.flags, self.federated)

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> dict[str, list[dict[str, Any]]]:
        """Trains, or goes on where training was stopped; see `study.Study`.

        Returns:
            No tables: what a run leaves is read where it stands, in `part`.

        Raises:
            RuntimeError: If the run fails.
            ValueError: If the population is not enough for all settings.
        """
        self.check_clients()
        flags = (*self.flags, *setting.flags, f"--seed={self.seed + repeat}")
        train(part.path, flags, self.cache, setting.label)
        return {}

    def paths(self, directory: pathlib.Path) -> dict[tuple[Setting, int], pathlib.Path]:
        """Returns the directories of the runs so far, by setting and repeat."""
        found = {}
        for repeat in range(self.num_repeats):
            for setting in self.settings:
                path = directory / study.part_name(setting.name, repeat)
                if is_complete(path):
                    found[setting, repeat] = path
        return found


def train(
    path: pathlib.Path,
    flags: Sequence[str],
    cache: str | os.PathLike[str],
    label: str,
    program: str = "training.run_training",
) -> None:
    """Runs a program of training in a directory, or what is left of it.

    Args:
        path: The run's directory.
        flags: Its flags; a run that was begun has its own.
        cache: Where prepared populations are kept.
        label: What is run, for the error.
        program: The module.

    Raises:
        NotFiniteError: If the run's model would no longer be finite.
        RuntimeError: If the run fails.
    """
    if is_complete(path):
        return
    given = [f"--output_dir={path}", f"--population_cache={cache}"]
    begun = (path / run_record.RUN_FILE).exists()
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", program),
            *given,
            *(["--resume"] if begun else flags),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    if done.returncode == exit_codes.NOT_FINITE:
        raise NotFiniteError(
            f"the run of {label} in {path} cannot go on, its model would no longer be "
            "finite; begin a new study with what it says"
        )
    if done.returncode:
        raise RuntimeError(
            f"the run of {label} in {path} ended with exit code {done.returncode}; "
            "mend what it says and continue with --resume, or begin a new study where "
            "that is another flag or flagfile"
        )


def num_clients(flags: Sequence[str], cache: str | os.PathLike[str]) -> int:
    """Returns how many clients would train in runs, once their text is prepared.

    The runs find it in the cache.

    Args:
        flags: The flags of the runs.
        cache: Where prepared populations are kept.

    Raises:
        ValueError: If the text cannot be prepared.
    """
    options = option_flags.read_lines(TrainingOptions, flags)
    vocabulary, _ = options.read_vocabulary()
    text = client_sentences.prepare(
        option_flags.read_lines(
            population_options.PopulationOptions, ("--empty_clients=keep", *flags)
        ),
        vocabulary,
        sentence_tokenizers.get_sentence_tokenizer("keyboard"),
        cache,
        option_flags.read_lines(population_options.LanguageOptions, flags),
    )
    return max(0, text.num_clients - options.num_held_out_clients)


def check_noise(options: Any, product: str, multipliers: Sequence[float]) -> None:
    """Checks the noise multipliers that a study's options come to.

    Args:
        options: The study's.
        product: What they are products of: a template of `OptionError`.
        multipliers: Of the runs.

    Raises:
        OptionError: If a run could not have one.
    """
    field = fields_of(TrainingOptions)["noise_multiplier"]
    for multiplier in multipliers:
        try:
            field.accept(multiplier)
        except ValueError as error:
            raise OptionError(
                options,
                f"{product}: a noise multiplier of {multiplier:g}; it has to be "
                f"{field.range}",
            ) from error


def check_participation(
    clients: int, flags: Sequence[str], settings: Sequence[Setting]
) -> None:
    """Checks that a population is enough for all settings.

    Args:
        clients: Those who would train.
        flags: The flags of all runs.
        settings: Those that are to be run.

    Raises:
        ValueError: If a setting needs more clients, or more of each.
    """
    for setting in settings:
        given = option_flags.read_lines(TrainingOptions, (*flags, *setting.flags))
        try:
            plans.sampler(given, clients)
        except ValueError as error:
            raise ValueError(
                f"the population, of which {clients:,} clients train, is not enough "
                f"for {setting.label!r}: {error} Begin a new study with fewer clients "
                "of a round, or fewer rounds"
            ) from error


def check_same_data(paths: Sequence[pathlib.Path]) -> None:
    """Checks that runs have the same text, words and beginning.

    Args:
        paths: Directories of runs.

    Raises:
        ValueError: If two differ.
    """
    first, *others = [(path, _facts(path)) for path in paths]
    for path, facts in others:
        for name in _OF_DATA:
            if facts.get(name) != first[1].get(name):
                raise ValueError(
                    f"{path} and {first[0]} differ in their {name}: the files that the "
                    "flags name have changed since the study began; begin a new study"
                )


def _facts(path: pathlib.Path) -> dict[str, Any]:
    return json.loads((path / run_record.FACTS_FILE).read_text())


def is_complete(path: pathlib.Path) -> bool:
    """Returns whether a directory has a run that is finished."""
    if not (path / run_record.RUN_FILE).exists():
        return False
    return run_record.read(path)["status"] == "complete"


def read_metrics(path: pathlib.Path) -> pd.DataFrame:
    """Returns a row a round of a finished run: the simulator's view."""
    return tables.read(path / "simulator" / "metrics.csv")


def read_baselines(path: pathlib.Path) -> pd.DataFrame:
    """Returns what stands beside a finished run's model, a row each."""
    return tables.read(path / "simulator" / BASELINES)


def read_privacy(path: pathlib.Path) -> dict[str, Any]:
    """Returns the privacy statement of a finished run, as realised."""
    return json.loads((path / "privacy.json").read_text())


def read_shared_text(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns what a finished run's clients share with the text of its first model.

    Returns:
        The fields of `training.text.text_record.Shared`; None where it began with no
        model, or with one that has no record.
    """
    return (_facts(path).get("initial_text") or {}).get("shared")


def read_num_clients(path: pathlib.Path) -> int:
    """Returns the number of clients that a run trains on, without held-out clients.

    Raises:
        ValueError: If the run is not a run of training.
    """
    found = _facts(path).get("num_clients")
    if found is None:
        raise ValueError(f"{path} is not a run of training: its facts lack num_clients")
    return found


def read_num_parameters(path: pathlib.Path) -> int:
    """Returns how many numbers the model of a run has."""
    return sum(math.prod(shape) for shape in _facts(path)["weights"].values())


def plot(
    table: pd.DataFrame,
    settings: Sequence[Setting],
    panels: Mapping[str, str],
    beside: pd.DataFrame | None = None,
    *,
    is_cut: bool = False,
    **line: Any,
) -> bytes:
    """Plots a loss and an accuracy over rounds, mean and range; returns a PNG.

    Args:
        table: A row a round of each run, with its setting and repeat.
        settings: Those that the table has are drawn, and nothing else counts.
        panels: The titles of two columns, the loss and the accuracy.
        beside: What runs stand beside, from `read_baselines`: those of `ON_PLOTS` are
            straight lines, the mean of several rows of one.
        is_cut: Whether first rounds are out of sight, so that last ones can be told
            apart: a tenth of the losses, the largest, and of the accuracies, the
            smallest, but no setting's last ones, nor what stands beside with less
            loss, or more accuracy, than all runs. A setting that ends with
            `DIVERGED` or more is not drawn, but where all do, as after few rounds.
        **line: How lines look, beside a setting's color and style.
    """
    figure, axes_of = plots.stacked(list(panels.values()), "round")
    table = table[table["setting"].isin([setting.name for setting in settings])]
    at_end = _at_end(table, panels)
    if is_cut:
        ends_well = at_end[next(iter(panels))] < DIVERGED
        if ends_well.any():
            at_end = at_end[ends_well]
        table = table[table["setting"].isin(at_end.index)]
    straight = {column: _on_plots(beside, column) for column in panels}
    for axes, column in zip(axes_of, panels, strict=True):
        for setting in settings:
            of_setting = table[table["setting"] == setting.name]
            if of_setting.empty:
                continue
            values = of_setting.dropna(subset=column).groupby("round")[column]
            axes.plot(
                values.mean(),
                color=setting.color,
                linestyle=setting.line,
                label=setting.label,
                **line,
            )
            plots.band(axes, values.min(), values.max(), setting.color)
        plots.straight_lines(axes, straight[column])
    if is_cut and len(table):
        loss, accuracy = panels
        top = max(table[loss].quantile(1 - _CUT), at_end[loss].max())
        least = min([table[loss].min(), *straight[loss].values()])
        axes_of[0].set_ylim(least - (top - least) / 10, top + (top - least) / 50)
        bottom = min(table[accuracy].quantile(_CUT), at_end[accuracy].min())
        axes_of[1].set_ylim(bottom=bottom - (axes_of[1].get_ylim()[1] - bottom) / 50)
    plots.in_percent(axes_of[1].yaxis)
    plots.legend(axes_of[1], below=True)
    return plots.png(figure)


def _at_end(table: pd.DataFrame, panels: Mapping[str, str]) -> pd.DataFrame:
    """Returns the means of the last round of each setting that has them."""
    known = table.dropna(subset=[*panels])
    means = known.groupby(["setting", "round"])[[*panels]].mean()
    return means.groupby("setting").last()


def _on_plots(beside: pd.DataFrame | None, column: str) -> dict[str, float]:
    """Returns where those of `ON_PLOTS` stand that are known."""
    if beside is None:
        return {}
    means = beside.groupby("baseline")[column.removeprefix("held_out_")].mean()
    return {name: means[name] for name in ON_PLOTS if name in means}
