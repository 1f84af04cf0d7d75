"""Training runs of models, from their records. No TensorFlow."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Self

from federated_hh.files import seal
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record

# Facts that only a run of training has.
_OF_TRAINING = ("num_held_out_clients", "max_words", "max_sentences", "seed")
# Facts of a run that begins with a model: which, and whether it is known that text of
# the run's clients is not in that one. Older runs do not have the second.
_FACTS = {"type": "object", "properties": {"population": {"type": "string"}}}
_BEGAN_WITH, OF_OTHERS = "initial_model", "initial_text_is_of_others"


@dataclasses.dataclass(frozen=True)
class TrainingRun:
    """The record of a run of training.

    Attributes:
        path: The path of its directory.
        flags: Flags by name.
        population: The fingerprint of its clients' text.
        program: The module that trained.
        may_have_read_held_out: True if its initial model may have learned from
            clients that the run held out.
    """

    path: pathlib.Path
    flags: Mapping[str, str]
    population: str
    program: str
    may_have_read_held_out: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Reads the record of a run.

        Args:
            path: The path of its directory.

        Raises:
            RunDirectoryError: If there is no run, or its record is damaged.
            ValueError: If it is a run of another program, or a file changed after it
                was finished.
        """
        path = pathlib.Path(path)
        check_seal(path)
        flags = _flags_of(path)
        facts = run_files.read_json(path / run_record.FACTS_FILE, _FACTS)
        program = run_record.read(path)["program"]
        if not flags.keys() >= set(_OF_TRAINING) or "population" not in facts:
            raise ValueError(
                f"{path} holds a run of {program}; it has to be a run of training."
            )
        may_have = _BEGAN_WITH in facts and not facts.get(OF_OTHERS, False)
        return cls(path, flags, facts["population"], program, may_have)

    @classmethod
    def of_model(cls, path: str | os.PathLike[str]) -> Self | None:
        """Returns a model's run; None if there is none.

        Args:
            path: A run's directory, or a model that was exported in it.

        Raises:
            RunDirectoryError: See `read`.
            ValueError: See `read`.
        """
        directory = _run_of(path)
        return None if directory is None else cls.read(directory)

    @property
    def is_pretraining(self) -> bool:
        """Whether the model was trained centrally."""
        return self.program == "training.pretrain"

    @property
    def split(self) -> tuple[str, str, str]:
        """The settings of the split: the population, the seed and the number."""
        return self.population, self.flags["seed"], self.flags["num_held_out_clients"]


def who_holds_out(runs: Iterable[TrainingRun | None]) -> TrainingRun | None:
    """Returns the run with the evaluation population: the first federated one.

    Args:
        runs: The models' runs; None for a model without one.

    Returns:
        The first run if none is federated; None if there are none.
    """
    known = [run for run in runs if run is not None]
    federated = [run for run in known if not run.is_pretraining]
    return next(iter((*federated, *known)), None)


def check_seal(path: str | os.PathLike[str]) -> None:
    """Checks that a model's run is as it was finished; see `seal.check`.

    Args:
        path: A run's directory, or a model that was exported in it.

    Raises:
        RunDirectoryError: If the record of the run is damaged.
        SealError: If a file changed after the run was finished.
    """
    if (directory := _run_of(path)) is not None:
        seal.check(directory, run_record.read(directory))


def population_of(path: str | os.PathLike[str]) -> str | None:
    """Returns the fingerprint of the clients' text of a model's run.

    Args:
        path: The directory of a run of whatever program, or a model that was exported
            in it.

    Returns:
        None if there is no run, or its fingerprint was not kept.

    Raises:
        RunDirectoryError: If the record of the run is damaged.
        SealError: If a file changed after the run was finished.
    """
    check_seal(path)
    directory = _run_of(path)
    # A shared run lacks the simulator's part.
    if directory is None or not (directory / run_record.FACTS_FILE).exists():
        return None
    return run_files.read_json(directory / run_record.FACTS_FILE, _FACTS).get(
        "population"
    )


def flags_of_model(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Returns the flags of a model's run by name; empty if there is no run.

    Args:
        path: A run's directory, or a model that was exported in it.

    Raises:
        RunDirectoryError: If the record of the run is damaged.
    """
    directory = _run_of(path)
    return {} if directory is None else _flags_of(directory)


def _flags_of(path: pathlib.Path) -> dict[str, str]:
    flags = (flag.removeprefix("--") for flag in run_record.flags_of(path))
    parts = (flag.partition("=") for flag in flags)
    return {name: value for name, _, value in parts}


def _run_of(path: str | os.PathLike[str]) -> pathlib.Path | None:
    path = pathlib.Path(path).expanduser().absolute()
    for directory in (path, path.parent):
        if (directory / run_record.RUN_FILE).exists():
            return directory
    return None
