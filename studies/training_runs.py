"""Studies whose settings are runs of `training.run_training`: each a few flags.

A run is a process of its own in its part of the study's directory. A complete one is
read again, and an interrupted one is resumed.
"""

import dataclasses
import functools
import math
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from federated_hh.files import installation, seal, tables
from federated_hh.options import option_flags
from federated_hh.populations import client_sentences
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.reports import plots
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from studies import study
from training.federated import held_out, plans
from training.federated.options import TrainingOptions
from training.models import metric_names

# Each run's file of the models to which its own is compared.
BASELINES = "baselines.csv"
# Those of them that models have to beat: lines in plots over rounds.
ON_PLOTS = (
    metric_names.BIGRAM,
    metric_names.TRIGRAM,
    metric_names.KNESER_NEY,
    metric_names.BEST_POSSIBLE,
)
# The share that a cut plot leaves out of sight.
_CUT = 0.1
# Far above the loss of words by frequency alone: training that ends there diverges.
DIVERGED = 7.0
# Facts of a run about its data.
_OF_DATA = ("population", "vocabulary", "initial_model")
ROOT = pathlib.Path(__file__).resolve().parent.parent


class NotFiniteError(RuntimeError):
    """A run has ended as its model would no longer be finite; it would again."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A run of a study.

    Attributes:
        name: Name of its part of the run directory, and in tables.
        label: Label in the page and plots.
        flags: Flags of `training.run_training`, added to those of all settings.
        color: Color in plots.
        line: Line style in plots.
    """

    name: str
    label: str
    flags: tuple[str, ...]
    color: str
    line: str = "-"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStudy:
    """The base of studies of training runs: a `study.Study` but for its files.

    Attributes:
        title: Title of the page.
        settings: Settings of the runs.
        flags: Flags of all runs; those of a setting come after them.
        cache: Directory of prepared populations.
        seed: Seed of the first repeat; each further one has the next.
        data: Fingerprints of the clients' data, by name.
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
            No tables: a run's results are read from `part`.

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
    """Runs a program of training in a directory, or resumes it.

    Args:
        path: Run directory.
        flags: Flags; a resumed run has its own.
        cache: Directory of prepared populations.
        label: Label of the run, for the error.
        program: The module.

    Raises:
        NotFiniteError: If the run's model would no longer be finite.
        RuntimeError: If the run fails.
    """
    if is_complete(path):
        return
    given = [f"--output_dir={path}", f"--population_cache={cache}"]
    begun = (path / run_record.RUN_FILE).exists()
    if program == "training.run_training":
        # A study shows what noise does, however much it is.
        flags = [*flags, "--allow_useless_noise"]
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", program),
            *given,
            *(["--resume"] if begun else flags),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    # The program of a study that was killed may have finished in the meantime.
    if done.returncode and is_complete(path):
        return
    if done.returncode == installation.NOT_FINITE:
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


def num_clients(
    flags: Sequence[str], cache: str | os.PathLike[str], seeds: Sequence[int] = (0,)
) -> int:
    """Returns the number of clients that train, and prepares their text.

    The runs find it in the cache.

    Args:
        flags: Flags of the runs.
        cache: Directory of prepared populations.
        seeds: Seeds of the runs, whose held-out people may stand for more or fewer
            clients: the least number is returned.

    Raises:
        ValueError: If the text cannot be prepared.
    """
    options = option_flags.read_lines(TrainingOptions, flags)
    population = option_flags.read_lines(
        population_options.PopulationOptions, ("--empty_clients=keep", *flags)
    )
    vocabulary, _ = options.read_vocabulary(population)
    text = client_sentences.prepare(
        population,
        vocabulary,
        sentence_tokenizers.get_sentence_tokenizer("keyboard"),
        cache,
        option_flags.read_lines(population_options.LanguageOptions, flags),
        option_flags.read_lines(population_options.ResamplingOptions, flags),
    )
    num_held_out = options.num_held_out_clients
    if text.people.num_clients <= num_held_out:
        return 0
    return min(
        len(held_out.Clients.of(text, num_held_out, seed).training) for seed in seeds
    )


def check_participation(
    clients: int, flags: Sequence[str], settings: Sequence[Setting]
) -> None:
    """Checks that a population is enough for all settings.

    Args:
        clients: Number of clients that train.
        flags: Flags of all runs.
        settings: Settings of the runs.

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
    """Checks that runs have the same text, words and first model.

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
    return run_files.read_json(path / run_record.FACTS_FILE)


def is_complete(path: pathlib.Path) -> bool:
    """Returns whether a directory has a run that is finished."""
    if not (path / run_record.RUN_FILE).exists():
        return False
    run = run_record.read(path)
    seal.check(path, run)
    return run["status"] == "complete"


def read_metrics(path: pathlib.Path) -> pd.DataFrame:
    """Returns a row a round of a finished run: the simulator's view."""
    return tables.read(path / "simulator" / "metrics.csv")


def read_baselines(path: pathlib.Path) -> pd.DataFrame:
    """Returns a finished run's baselines, a row each."""
    return tables.read(path / "simulator" / BASELINES)


def read_privacy(path: pathlib.Path) -> dict[str, Any]:
    """Returns the privacy statement of a finished run, as realised."""
    return run_files.read_json(path / run_record.STATEMENT_FILE)


def read_shared_text(path: pathlib.Path) -> dict[str, Any] | None:
    """Returns the overlap of a finished run's clients with its first model's text.

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
    """Returns the number of a run's model parameters."""
    return sum(math.prod(shape) for shape in _facts(path)["weights"].values())


def plot(
    table: pd.DataFrame,
    settings: Sequence[Setting],
    panels: Mapping[str, str],
    baselines: pd.DataFrame | None = None,
    *,
    is_cut: bool = False,
    names: Sequence[str] = ON_PLOTS,
    **line: Any,
) -> bytes:
    """Plots columns over rounds, mean and range; returns a PNG.

    Args:
        table: A row a round of each run, with its setting.
        settings: Settings that are drawn, if the table has them.
        panels: Titles by column.
        baselines: Baselines, from `read_baselines`: straight lines, the mean of several
            rows of one.
        is_cut: Whether first rounds of the two columns, a loss and an accuracy, are
            out of sight, so that last ones can be told apart: a tenth of the losses,
            the largest, and of the accuracies, the smallest, but no setting's last
            ones, nor baselines with less loss, or more accuracy, than all runs. A
            setting that ends with `DIVERGED` or more is not drawn, but where all do,
            as after few rounds.
        names: Names of the baselines that are drawn.
        **line: Options of lines, beside a setting's color and style.
    """
    figure, axes_of = plots.stacked(list(panels.values()), "round")
    table = table[table["setting"].isin([setting.name for setting in settings])]
    if is_cut:
        at_end = _at_end(table, panels)
        ends_well = at_end[next(iter(panels))] < DIVERGED
        if ends_well.any():
            at_end = at_end[ends_well]
        table = table[table["setting"].isin(at_end.index)]
    straight = {column: _on_plots(baselines, column, names) for column in panels}
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
    for axes, column in zip(axes_of, panels, strict=True):
        plots.label_metric(axes.yaxis, column.removeprefix("held_out_"))
        if column == "tracked_norm":
            axes.set_yscale("log")
    if is_cut and len(table):
        loss, accuracy = panels
        top = max(table[loss].quantile(1 - _CUT), at_end[loss].max())
        least = min([table[loss].min(), *straight[loss].values()])
        axes_of[0].set_ylim(least - (top - least) / 10, top + (top - least) / 50)
        bottom = min(table[accuracy].quantile(_CUT), at_end[accuracy].min())
        axes_of[1].set_ylim(bottom=bottom - (axes_of[1].get_ylim()[1] - bottom) / 50)
        for axes in axes_of:
            plots.say_cut(axes, "the first rounds are out of sight")
    plots.legend(axes_of[-1], below=True)
    return plots.png(figure)


def _at_end(table: pd.DataFrame, panels: Mapping[str, str]) -> pd.DataFrame:
    """Returns the means of the last round of each setting that has them."""
    known = table.dropna(subset=[*panels])
    means = known.groupby(["setting", "round"])[[*panels]].mean()
    return means.groupby("setting").last()


def _on_plots(
    baselines: pd.DataFrame | None, column: str, names: Sequence[str]
) -> dict[str, float]:
    """Returns the values of baselines that are known, by name."""
    if baselines is None:
        return {}
    means = baselines.groupby("baseline")[column.removeprefix("held_out_")].mean()
    return {name: means[name] for name in names if name in means}
