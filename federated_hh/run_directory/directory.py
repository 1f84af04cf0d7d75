"""The directory that a run leaves: flags, progress, results.

    run.json, flags.txt   what the run is
    seal.json             digests of all files, when the run is complete
    metrics.csv, tables   what the run's guarantee covers
    privacy.json, .md     the guarantee
    report.html           all of it on one page, ground truth included
    simulator/            what only the simulator knows: exact counts, ground truth,
                          scores, checkpoints, the data's fingerprint
    secret/               the key of the run's noise

A result file goes to `released` or to `simulator`; there is no third way to write one.
Every file gets its name only when it is complete, and `run.json` says "complete" only
when all files are there. One process at a time works in a run directory, and no run
writes into another's.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import pandas as pd
from absl import logging

from federated_hh.files import json_files, seal, software
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import metrics as run_metrics
from federated_hh.run_directory import record as run_record
from federated_hh.run_directory.files import RunDirectoryError, RunFiles
from federated_hh.run_directory.metrics import RoundMetrics

_CHECKPOINT_FILE = "checkpoint.jsonl"
REPORT_FILE = seal.REPORT_FILE
# The files that may differ between a resumed run and an uninterrupted one, as patterns:
# they have times in them, or the path of the directory, or digests of such files.
DIFFERING_FILES = (
    run_record.RUN_FILE,
    REPORT_FILE,
    *seal.FILES,
    f"simulator/{run_metrics.SECONDS_FILE}",
    "simulator/tensorboard/*",
    "simulator/population.flagfile",
)
_SIMULATOR_DIR = "simulator"
_SECRET_DIR = "secret"
CHECKPOINT_FILE = f"{_SIMULATOR_DIR}/{_CHECKPOINT_FILE}"
_HEAD = json_files.object_of({"run": json_files.TEXT, "sha256": json_files.SHA256})
_CHECKPOINT = json_files.object_of({"state": {}, "metrics": {}})
_README = (
    "The simulator's knowledge: exact counts, ground truth, scores, checkpoints, the "
    "data's fingerprint. No guarantee covers it: if the data are real, do not share "
    "it.\n"
)


class Statement(Protocol):
    """The interface of a privacy statement; `privacy.statement` has the class."""

    def to_json(self) -> str:
        """Returns it for programs."""

    def to_markdown(self) -> str:
        """Returns it for people."""

    def headline(self) -> str:
        """Returns the guarantee as one line."""

    def in_words(self) -> str:
        """Returns the main guarantee's meaning in a sentence."""

    def guarantee_rows(self) -> list[dict[str, str]]:
        """Returns a row for each guarantee."""


def default_path(program: str) -> str:
    """Returns a fresh path `runs/<program>/<date>-<time>-<process>`, not made yet."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    return os.path.join("runs", program, name)


def begin_or_resume(
    path: str | os.PathLike[str],
    *,
    resume: bool,
    program: str,
    flags: Sequence[str],
    facts: Mapping[str, Any],
    noise_key: noise_keys.NoiseKey | None,
) -> "RunDirectory":
    """Begins or resumes a run; see `RunDirectory.create` and `resume`.

    Args:
        path: The directory.
        resume: Whether to continue the run there.
        program: The program's name.
        flags: All flags that decide a result; a resumed run has its own.
        facts: Further facts that a resumed run shares with its start.
        noise_key: The noise key of the run; None for a new secret one, or the run's
            own.
    """
    if resume:
        key = noise_key or run_record.noise_key_of(path)
        run = RunDirectory.resume(path, program=program, facts=facts, noise_key=key)
    else:
        key = noise_key or noise_keys.NoiseKey.fresh()
        run = RunDirectory.create(
            path, program=program, flags=flags, facts=facts, noise_key=key
        )
    if key.is_secret:
        logging.info("The noise key: SHA-256 %s.", key.commitment)
    return run


class RunDirectory:
    """A run directory that this process works in.

    Use `create` or `resume`, and `close` (or a `with` block) when done.

    Attributes:
        path: Its path.
        released: Files of results that the run's guarantee covers.
        simulator: Files of the simulator's knowledge.
        noise_key: The noise key of the run.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        lock: int,
        run: run_record.Run,
        noise_key: noise_keys.NoiseKey,
    ):
        self.path = pathlib.Path(path)
        self.released = RunFiles(self.path)
        self.simulator = RunFiles(self.path / _SIMULATOR_DIR)
        self.noise_key = noise_key
        self._lock = lock
        self._run = run
        self._metrics = run_metrics.Metrics(self.released, self.simulator)

    @staticmethod
    def check_free(path: str | os.PathLike[str]) -> None:
        """Raises `RunDirectoryError` if there is something at `path` already."""
        path = pathlib.Path(path)
        if (path / run_record.RUN_FILE).exists():
            run = run_record.read(path)
            hint = (
                "it is complete, so choose"
                if run["status"] == "complete"
                else "continue it with --resume, or choose"
            )
            raise RunDirectoryError(
                f"--output_dir={path} holds a run of {run['program']} of "
                f"{run['started']}; {hint} another directory"
            )
        # Files of a run that was killed before its record was complete.
        left = (f".{run_record.RUN_FILE}.", _SIMULATOR_DIR, _SECRET_DIR)
        if path.exists() and (
            not path.is_dir()
            or any(not file.name.startswith(left) for file in path.iterdir())
        ):
            raise RunDirectoryError(
                f"--output_dir={path} exists and is not an empty directory; choose "
                "another"
            )

    @classmethod
    def reserve(cls, path: str | os.PathLike[str]) -> list[pathlib.Path]:
        """Makes the directory of a run that will begin later.

        Returns:
            The folders that it made, innermost first; see `give_back`.

        Raises:
            RunDirectoryError: If there is something at `path`, or nothing can be
                written there.
        """
        cls.check_free(path)
        path = pathlib.Path(path)
        made = [each for each in (path, *path.parents) if not each.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            cls.give_back(made)
            raise RunDirectoryError(
                f"--output_dir={path} cannot be created: {error.strerror}"
            ) from error
        return made

    @staticmethod
    def give_back(made: Sequence[pathlib.Path]) -> None:
        """Removes folders that `reserve` made and in which no run began."""
        with contextlib.suppress(OSError):  # there is something in it
            for folder in made:
                folder.rmdir()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        program: str,
        flags: Sequence[str],
        facts: Mapping[str, Any],
        noise_key: noise_keys.NoiseKey,
    ) -> Self:
        """Begins a run.

        Args:
            path: The directory; new or empty.
            program: The program's name.
            flags: All flags that decide a result, as `--name=value`.
            facts: Further facts that a result depends on, such as the population's
                fingerprint; a resumed run must have the same.
            noise_key: The noise key of the run.

        Raises:
            RunDirectoryError: If there is something at `path`, or it cannot be made.
        """
        cls.reserve(path)
        path = pathlib.Path(path)
        lock = _lock(path)
        try:
            cls.check_free(path)  # again, under the lock
            run = run_record.new(program, flags, facts, noise_key)
            directory = cls(path, lock, run, noise_key)
            directory._write_beginning(facts)
        except BaseException:  # a kill in a notebook, too
            os.close(lock)
            raise
        return directory

    def _write_beginning(self, facts: Mapping[str, Any]) -> None:
        """Writes the initial files; with `run.json` the run has begun."""
        try:
            self.noise_key.write(self.path / run_record.KEY_FILE)
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path / run_record.KEY_FILE} cannot be written: {error.strerror}"
            ) from error
        self.simulator.make()
        self.simulator.write_text("README.txt", _README)
        self.released.write_json(run_record.FACTS_FILE, dict(facts))
        self.released.write_json(run_record.RUN_FILE, self._run)
        self.released.write_text(
            run_record.FLAGS_FILE, run_record.flagfile(self._run["flags"])
        )

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        *,
        program: str,
        facts: Mapping[str, Any],
        noise_key: noise_keys.NoiseKey,
    ) -> Self:
        """Continues an interrupted run.

        Args:
            path: Its path.
            program: The program's name.
            facts: Facts as in `create`, compared with those of the start.
            noise_key: The noise key of the run; see `run_record.noise_key_of`.

        Raises:
            RunDirectoryError: If there is no run of this program, it is complete,
                another process works on it, its flags were edited, or `facts` or the
                key differ.
        """
        path = pathlib.Path(path)
        run_record.read(path)
        lock = _lock(path)
        try:
            run = run_record.read(path)
            run_record.flags_of(path)
            run_record.check_same(path, run, program, facts, noise_key)
            # Of a run that was killed before its record was complete.
            for name in seal.FILES:
                (path / name).unlink(missing_ok=True)
            # No checkpoint notices damage to it.
            directory = cls(path, lock, run, noise_key)
            directory.simulator.write_text("README.txt", _README)
        except (RunDirectoryError, OSError):
            os.close(lock)
            raise
        _warn_of_other_versions(run)
        return directory

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Lets others work in the directory."""
        self._metrics.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def part(self, name: str) -> Self:
        """Returns a subdirectory, for a run that consists of several.

        It has its own checkpoint and metrics. `close` it before this one.

        Args:
            name: Name of the subdirectory, created if it is missing.

        Raises:
            RunDirectoryError: If it cannot be created.
        """
        record = {**self._run, "part": name}
        part = type(self)(self.path / name, -1, record, self.noise_key)
        part.simulator.make()
        return part

    def save_checkpoint(self, state: Any) -> None:
        """Replaces the checkpoint by a value that JSON can hold, and adds metrics.

        Rows are on disk before the checkpoint counts them: of a killed run, those that
        it does not count are cut off.
        """
        saved = self._metrics.save_rows()
        body = json.dumps({"state": state, "metrics": saved})
        digest = hashlib.sha256(body.encode()).hexdigest()
        head = json.dumps({"run": self._identity(), "sha256": digest})
        self.simulator.write_text(_CHECKPOINT_FILE, f"{head}\n{body}\n")
        self._metrics.save_tables()

    def _identity(self, *, with_start: bool = False) -> str:
        identity = run_record.identity(self._run, with_start=with_start)
        return identity + self._run.get("part", "")

    def load_checkpoint(self) -> Any | None:
        """Returns the last checkpoint's state, or None; takes its metrics over.

        Raises:
            RunDirectoryError: If the checkpoint is damaged, or of another run.
        """
        self._metrics.forget_events()
        file = self.path / CHECKPOINT_FILE
        if not file.exists():
            return None
        run, checkpoint = read_checkpoint(file)
        if run not in (self._identity(), self._identity(with_start=True)):
            raise RunDirectoryError(
                f"{file} belongs to a run with other flags, data or noise key than "
                f"{run_record.RUN_FILE}; restore the original file, or begin a new run"
            )
        self._metrics.load(file, checkpoint["metrics"])
        return checkpoint["state"]

    def add_metrics(self, step: int, metrics: RoundMetrics) -> None:
        """Adds a row to the metrics: to TensorBoard now, to the CSV files when saved.

        Args:
            step: The round, TensorBoard's step.
            metrics: The metrics of the round; the same names in every round. If
                `repeat` is among the released ones, each repeat has its own curve.

        Raises:
            RunDirectoryError: If TensorBoard's file cannot be written.
        """
        self._metrics.add(step, metrics)

    def metrics(self) -> pd.DataFrame:
        """Returns all metrics so far, a row a step: the simulator's view."""
        return pd.DataFrame([m.combined() for m in self._metrics.all()])

    def released_metrics(self) -> pd.DataFrame:
        """Returns the metrics so far that the guarantee covers, a row a step."""
        return pd.DataFrame([dict(m.released) for m in self._metrics.all()])

    def write_statement(self, statement: Statement, stem: str = "privacy") -> None:
        """Writes a privacy statement as `<stem>.json` and `<stem>.md`."""
        self.released.write_text(f"{stem}.json", statement.to_json())
        self.released.write_text(f"{stem}.md", statement.to_markdown())

    def write_report(self, page: str) -> pathlib.Path:
        """Writes `report.html`, which shows released results and ground truth.

        Every privacy statement names it under *Not counted*.

        Returns:
            Where it is.
        """
        self.released.write_text(REPORT_FILE, page)
        return self.path / REPORT_FILE

    def complete(self) -> None:
        """Seals the run and marks it as complete; the last thing a run does."""
        self._metrics.write_whole()
        statement = self.path / run_record.STATEMENT_FILE
        if statement.exists():
            digest = hashlib.sha256(run_files.read_bytes(statement)).hexdigest()
            self._run["privacy_sha256"] = digest
        self._run["status"] = "complete"
        self._run["finished"] = time.strftime("%Y-%m-%d %H:%M:%S %z")
        contents = run_files.json_bytes(self._run)
        key, ahead = self.noise_key.to_bytes(), {run_record.RUN_FILE: contents}
        for name, text in seal.of(self.path, key, ahead).items():
            self.released.write_bytes(name, text)
        self.released.write_bytes(run_record.RUN_FILE, contents)

    @property
    def run(self) -> run_record.Run:
        """The contents of `run.json`."""
        return dict(self._run)


def read_checkpoint(file: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    """Reads the file of a checkpoint.

    Args:
        file: `<run>/simulator/checkpoint.jsonl`.

    Returns:
        The identity of the run that it is of; and its state and metrics, by name.

    Raises:
        RunDirectoryError: If it is damaged, or cannot be read.
    """
    head, _, body = run_files.read_bytes(file).partition(b"\n")
    body = body.removesuffix(b"\n")
    envelope = run_files.parse_json(file, head, _HEAD)
    if envelope["sha256"] != hashlib.sha256(body).hexdigest():
        raise RunDirectoryError(
            f"{file} is damaged: its SHA-256 is not the recorded one. Restore it, or "
            "begin a new run"
        )
    return envelope["run"], run_files.parse_json(file, body, _CHECKPOINT)


def _warn_of_other_versions(run: run_record.Run) -> None:
    """Warns where another version of something continues a run than began it."""
    for change in software.changed_versions(run):
        logging.warning(
            "The run began with %s: the result may differ from that of an "
            "uninterrupted run.",
            change,
        )


def _lock(path: pathlib.Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RunDirectoryError(
            f"--output_dir={path}: another process is working on this run"
        ) from None
    return descriptor
