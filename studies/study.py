"""The base of all studies: settings times repeats, resumed after an interruption.

Each repeat of a setting runs in a part of the study's run directory, and is resumed in
its middle. After each repeat of all settings the results so far are written: tables as
CSV, plots, a page, and the record of how they were made.
"""

import pathlib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import pandas as pd
from absl import logging

from federated_hh.files import software
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files
from studies import study_parts

if TYPE_CHECKING:  # registers flags
    from federated_hh.command_line import experiment_flags

PAGE = "table.md"
_HOW_IT_WAS_MADE = "README.md"

Tables = Mapping[str, pd.DataFrame]


class NamedSetting(Protocol):
    """A row of a table, or a point of a plot."""

    @property
    def name(self) -> str:
        """Name in tables, and of its parts of the run directory."""


Setting = TypeVar("Setting", bound=NamedSetting)


class Study(Protocol[Setting]):
    """Runs, and the results made of them.

    Attributes:
        title: Title of its tables and plots.
        settings: Settings in the order of the table.
        num_repeats: Runs of each setting, at least 1.
        data: Fingerprints of the clients' data, by name.
    """

    title: str
    settings: Sequence[Setting]
    num_repeats: int
    data: Mapping[str, str]

    def run_part(
        self, setting: Setting, repeat: int, part: run_directory.RunDirectory
    ) -> Mapping[str, list[dict[str, Any]]]:
        """Runs a repeat of a setting, or resumes it.

        Args:
            setting: One of the study's.
            repeat: Number of the repeat, from 0.
            part: Directory of its checkpoints and files.

        Returns:
            Rows for tables of the study, by the tables' names.
        """

    def files(self, tables: Tables, directory: pathlib.Path) -> Mapping[str, bytes]:
        """Returns the files of results by name, `PAGE` among them.

        Args:
            tables: All rows so far, with their setting and repeat.
            directory: The study's directory, with a part for each run (`part_name`).
        """


@runtime_checkable
class StudyOfPopulation(Protocol):
    """A study that knows whether its population is enough before anything is run."""

    def check_clients(self) -> None:
        """Raises `ValueError` if there are too few clients for a setting."""


def part_name(setting: str, repeat: int) -> str:
    """Returns the folder of a repeat, numbered from 0, of a setting."""
    name = re.sub(r"\W+", "_", setting)
    return f"{name}_repeat_{repeat + 1}"


def runs_of(study: Study) -> list[study_parts.StudyRun]:
    """Returns the repeats of settings in the order in which they run.

    Raises:
        ValueError: If two of them have the same folder.
    """
    names = [part_name(setting.name, 0) for setting in study.settings]
    if len(set(names)) < len(names):
        raise ValueError(f"settings have the same folder: {', '.join(names)}")
    return [
        (setting.name, repeat)
        for repeat in range(study.num_repeats)
        for setting in study.settings
    ]


def run(
    study: Study,
    directory: run_directory.RunDirectory,
    share: Sequence[study_parts.StudyRun] | None = None,
) -> Iterator[Tables]:
    """Runs the rest of a study.

    Args:
        study: The study.
        directory: Directory of a checkpoint after each run of a setting.
        share: The part of `runs_of` that is run here; None for all.

    Yields:
        After each repeat of all settings, the tables so far.
    """
    runs = runs_of(study)
    share = runs if share is None else share
    saved = directory.load_checkpoint() or {"done": [], "tables": {}}
    for repeat in range(study.num_repeats):
        for setting in study.settings:
            one = [setting.name, repeat]
            if one in saved["done"] or tuple(one) not in share:
                continue
            logging.info(
                "%s, repeat %d of %d (%d of %d parts done):",
                setting.name,
                repeat + 1,
                study.num_repeats,
                len(saved["done"]),
                len(runs),
            )
            with directory.part(part_name(setting.name, repeat)) as part:
                found = study.run_part(setting, repeat, part)
            for name, rows in found.items():
                saved["tables"].setdefault(name, []).extend(
                    {"setting": setting.name, "repeat": repeat} | row for row in rows
                )
            saved["done"].append(one)
            directory.save_checkpoint(saved)
        yield {name: pd.DataFrame(rows) for name, rows in saved["tables"].items()}


def perform(
    study: Study,
    arguments: "experiment_flags.Arguments",
    program: str,
    results: pathlib.Path,
    *,
    part: study_parts.StudyPart | None = None,
    parts: Sequence[str] = (),
    make_parts: Callable[[run_directory.RunDirectory, int], Sequence[str]]
    | None = None,
) -> None:
    """Runs a study from a command line, and writes its results to a folder.

    Args:
        study: The study.
        arguments: Flags of all experiments.
        program: Module of the program.
        results: Folder of the results, made if it does not exist; the run directory
            has the same files.
        part: Part of the study that is run, without results; None for the whole.
        parts: Run directories of parts, which are gathered; none is run.
        make_parts: Given the run directory and a number, runs so many parts elsewhere,
            and returns their run directories, which are gathered. None to run here.

    Raises:
        RunDirectoryError: If the run directory or the folder cannot be used, or the
            parts are not those of this study.
        ValueError: If the population is not enough; a new run leaves nothing behind.
    """
    runs = runs_of(study)
    # A resumed run has its directory, and parts may be gathered without a population.
    is_new = not arguments.resume and not parts
    if is_new and isinstance(study, StudyOfPopulation):
        study.check_clients()
    with arguments.open_run(program, dict(study.data)) as directory:
        if part is not None:
            for _ in run(study, directory, part.of(runs)):
                pass
            directory.complete()
            print(f"Part {part.number} of {part.count}: {directory.path}")
            return
        if make_parts is not None:
            parts = make_parts(directory, len(runs))
        if parts:
            folders = [part_name(*one) for one in runs]
            directory.save_checkpoint(
                study_parts.gather(directory, runs, folders, parts)
            )
        folder = run_files.RunFiles(results)
        folder.make()
        for tables in run(study, directory):
            files = dict(study.files(tables, directory.path))
            files[_HOW_IT_WAS_MADE] = how_it_was_made(study, directory).encode()
            for name, contents in files.items():
                directory.simulator.write_bytes(name, contents)
                folder.write_bytes(name, contents)
            logging.info("Results: %s", results)
            print(files[PAGE].decode())
        directory.complete()
        print(f"Report: {results / PAGE}\nRuns: {directory.path}")


def how_it_was_made(study: Study, directory: run_directory.RunDirectory) -> str:
    """Returns the command, the commit and the data of results, as Markdown.

    Args:
        study: The study.
        directory: Its run directory.
    """
    record = directory.run
    # Directories change no result.
    given = [
        shlex.quote(re.sub("^--data_dir=.*", "--data_dir=...", flag))
        for flag in record["flags"]
        if not flag.startswith(("--results_dir=", "--gather="))
    ]
    packages = ", ".join(f"{name} {v}" for name, v in record["packages"].items())
    return "\n".join(
        [
            f"# {study.title}",
            "",
            f"`{PAGE}` has the numbers. All files here were made by",
            "",
            f"    scripts/run {record['program']} {' '.join(given)}",
            "",
            f"* Commit: {record['version']} (hash of the sources {record['sources']}); "
            f"begun {record['started']}.",
            *(
                f"* Continued with other {v}."
                for v in software.changed_versions(record)
            ),
            *(f"* Data: {name}, fingerprint {v}." for name, v in study.data.items()),
            f"* Python {record['python']}; {packages}.",
            "",
        ]
    )
