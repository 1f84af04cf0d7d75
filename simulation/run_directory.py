"""The directory that a run leaves: flags, progress, results.

Every file appears under its name only when it is whole, and `run.json` says
"complete" only when all of them are there. One process at a time works in a run
directory, and no run writes into another's.
"""

import fcntl
import json
import os
import pathlib
import platform
import shutil
import time
from collections.abc import Mapping
from typing import Any, Self

import pandas as pd
from absl import logging

from simulation import atomic_files, experiment_flags, software

_RUN_FILE = "run.json"
_FLAGS_FILE = "flags.txt"
_CHECKPOINT_FILE = "checkpoint.json"
_METRICS_FILE = "metrics.csv"
_TENSORBOARD_DIR = "tensorboard"
_SCHEMA_VERSION = 2


class RunDirectoryError(RuntimeError):
    """The output directory cannot be used for this run."""


def default_path(program: str) -> str:
    """Returns a fresh path `runs/<program>/<date>-<time>-<process>`, not made yet."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    return os.path.join("runs", program, name)


def flags_file(path: str | os.PathLike[str]) -> str:
    """Returns the path of a run's flags, a flagfile.

    Raises:
        RunDirectoryError: If there is no run at `path`.
    """
    file = pathlib.Path(path) / _FLAGS_FILE
    if not file.exists():  # the run was killed in its first moment
        atomic_files.write_file(file, RunDirectory.read_run(path)["flags"].encode())
    return str(file)


def open_for(
    arguments: experiment_flags.Arguments, *, program: str, facts: Mapping[str, Any]
) -> "RunDirectory":
    """Begins or resumes the run that the flags ask for; see `RunDirectory`."""
    if arguments.resume:
        return RunDirectory.resume(arguments.output_dir, program=program, facts=facts)
    return RunDirectory.create(
        arguments.output_dir,
        program=program,
        flags_text=arguments.flags_text,
        facts=facts,
    )


class RunDirectory:
    """A run directory that this process works in.

    Use `create` or `resume`, and `close` (or a `with` block) when done.

    Attributes:
        path: Where it is.
    """

    def __init__(self, path: str | os.PathLike[str], lock: int, run: dict[str, Any]):
        self.path = pathlib.Path(path)
        self._lock = lock
        self._run = run
        self._rows: list[tuple[int, dict[str, Any]]] = []
        self._writer = None

    @staticmethod
    def check_free(path: str | os.PathLike[str]) -> None:
        """Raises `RunDirectoryError` if there is something at `path` already."""
        path = pathlib.Path(path)
        if (path / _RUN_FILE).exists():
            run = RunDirectory.read_run(path)
            hint = (
                "it is complete"
                if run["status"] == "complete"
                else "continue it with --resume"
            )
            raise RunDirectoryError(
                f"--output_dir={path} holds a run of {run['program']} of "
                f"{run['started']}; {hint}, or choose another directory"
            )
        # A run killed before its first file was whole leaves that file's beginning.
        left = f".{_RUN_FILE}."
        if path.exists() and (
            not path.is_dir()
            or any(not file.name.startswith(left) for file in path.iterdir())
        ):
            raise RunDirectoryError(
                f"--output_dir={path} exists and is not an empty directory; choose "
                "another"
            )

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        program: str,
        flags_text: str,
        facts: Mapping[str, Any],
    ) -> Self:
        """Begins a run.

        Args:
            path: Where; must not exist, or be an empty directory.
            program: The program's name.
            flags_text: Its flags, as a flagfile.
            facts: What else a result depends on, such as the population's
                fingerprint; a resumed run must have the same.

        Raises:
            RunDirectoryError: If there is something at `path`, or it cannot be made.
        """
        cls.check_free(path)
        path = pathlib.Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(
                f"--output_dir={path} cannot be made: {error.strerror}"
            ) from error
        lock = _lock(path)
        try:
            cls.check_free(path)  # again, now that nobody else can begin one here
        except RunDirectoryError:
            os.close(lock)
            raise
        run = {
            "schema_version": _SCHEMA_VERSION,
            "program": program,
            "status": "running",
            "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "version": software.version(),
            "sources": software.sources_digest(),
            "python": platform.python_version(),
            "packages": software.package_versions(),
            "facts": dict(facts),
            "flags": flags_text,
        }
        directory = cls(path, lock, run)
        directory.write_json(_RUN_FILE, run)
        directory.write_text(_FLAGS_FILE, flags_text)
        return directory

    @classmethod
    def resume(
        cls, path: str | os.PathLike[str], *, program: str, facts: Mapping[str, Any]
    ) -> Self:
        """Continues an interrupted run.

        Args:
            path: Where it is.
            program: The program's name.
            facts: As in `create`; compared with what the run began with.

        Raises:
            RunDirectoryError: If there is no run of this program, it is complete,
                another process works on it, or `facts` differ.
        """
        path = pathlib.Path(path)
        cls.read_run(path)
        lock = _lock(path)
        try:
            run = cls.read_run(path)
            cls._check_same(path, run, program, facts)
        except RunDirectoryError:
            os.close(lock)
            raise
        _warn_of_other_versions(run)
        return cls(path, lock, run)

    @staticmethod
    def _check_same(
        path: pathlib.Path, run: dict[str, Any], program: str, facts: Mapping[str, Any]
    ) -> None:
        """Raises `RunDirectoryError` unless the run can be continued."""
        if run["program"] != program:
            raise RunDirectoryError(
                f"--output_dir={path} holds a run of {run['program']}, not {program}"
            )
        if run["status"] == "complete":
            raise RunDirectoryError(f"the run in --output_dir={path} is complete")
        for name, value in facts.items():
            if run["facts"].get(name) != value:
                raise RunDirectoryError(
                    f"--output_dir={path}: the run began with {name} = "
                    f"{run['facts'].get(name)!r}, now it is {value!r}; restore what "
                    "it began with, or begin a new run"
                )

    @staticmethod
    def read_run(path: str | os.PathLike[str]) -> dict[str, Any]:
        """Returns what `run.json` says, or raises `RunDirectoryError`."""
        file = pathlib.Path(path) / _RUN_FILE
        if not file.exists():
            raise RunDirectoryError(f"--output_dir={path} holds no run: no {_RUN_FILE}")
        run = _read_json(file)
        version_found = run.get("schema_version") if isinstance(run, dict) else None
        if version_found != _SCHEMA_VERSION:
            raise RunDirectoryError(
                f"{file}: schema_version is {version_found!r}, this program reads "
                f"{_SCHEMA_VERSION}; is it the file of another program?"
            )
        missing = {
            "program",
            "status",
            "started",
            "facts",
            "flags",
            "packages",
            "version",
            "sources",
        } - run.keys()
        if missing:
            raise RunDirectoryError(f"{file} is damaged: it has no {sorted(missing)}")
        return run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def close(self) -> None:
        """Lets others work in the directory."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def part(self, name: str) -> Self:
        """Returns a directory within this one, for a run that consists of several.

        It has a checkpoint and metrics of its own. `close` it before this one.

        Args:
            name: Of the directory, made if it is not there.

        Raises:
            RunDirectoryError: If it cannot be made.
        """
        path = self.path / name
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(
                f"{path} cannot be made: {error.strerror}. Mend that and continue with "
                "--resume"
            ) from error
        return type(self)(path, -1, self._run)

    def save_checkpoint(self, state: Any) -> None:
        """Replaces the checkpoint by a value that JSON can hold, and the metrics."""
        self.write_json(_CHECKPOINT_FILE, {"state": state, "metrics": self._rows})
        self._write_metrics()

    def _write_metrics(self) -> None:
        if self._rows:
            self.write_table(_METRICS_FILE, self.metrics())

    def load_checkpoint(self) -> Any | None:
        """Returns the last checkpoint's state, or None; takes its metrics over.

        Raises:
            RunDirectoryError: If the checkpoint is damaged.
        """
        shutil.rmtree(self.path / _TENSORBOARD_DIR, ignore_errors=True)
        file = self.path / _CHECKPOINT_FILE
        if not file.exists():
            return None
        checkpoint = _read_json(file)
        if not isinstance(checkpoint, dict) or checkpoint.keys() != {
            "state",
            "metrics",
        }:
            raise RunDirectoryError(f"{file} is damaged: no state and metrics in it")
        # TensorBoard may know of a round that the checkpoint does not, or not of its
        # last one.
        for step, row in checkpoint["metrics"]:
            self.add_metrics(step, row)
        return checkpoint["state"]

    def add_metrics(self, step: int, row: Mapping[str, Any]) -> None:
        """Adds a row to the metrics: to TensorBoard now, to the CSV when saved.

        Args:
            step: TensorBoard's step.
            row: Metrics by name; the same names in every row.

        Raises:
            RunDirectoryError: If TensorBoard's file cannot be written.
        """
        import tensorflow as tf  # here: a reader of run directories needs none

        path = self.path / _TENSORBOARD_DIR
        self._rows.append((step, dict(row)))
        try:
            if self._writer is None:
                self._writer = tf.summary.create_file_writer(str(path))
            with self._writer.as_default(step=step):
                for name, value in row.items():
                    tf.summary.scalar(name, value)
            self._writer.flush()
        except tf.errors.OpError as error:
            raise RunDirectoryError(
                f"{path} cannot be written: {error.message}. Mend that and continue "
                "with --resume"
            ) from error

    def metrics(self) -> pd.DataFrame:
        """Returns the metrics so far, a row a step."""
        return pd.DataFrame([row for _, row in self._rows])

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file in UTF-8; see `write_bytes`."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, contents: bytes | memoryview) -> None:
        """Writes a file, whole or not at all.

        Raises:
            RunDirectoryError: If it cannot be written, as on a full disk.
        """
        try:
            atomic_files.write_file(self.path / name, contents)
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path / name} cannot be written: {error.strerror}; what was "
                "there stays. Mend that and continue with --resume"
            ) from error

    def write_json(self, name: str, value: Any) -> None:
        """Writes a value as JSON."""
        self.write_text(name, json.dumps(value, indent=1) + "\n")

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Writes a table as CSV."""
        self.write_text(name, table.to_csv(index=False))

    def complete(self) -> None:
        """Marks the run as complete; the last thing a run does."""
        self._write_metrics()  # a kill may have come between checkpoint and metrics
        self._run["status"] = "complete"
        self._run["finished"] = time.strftime("%Y-%m-%d %H:%M:%S %z")
        self.write_json(_RUN_FILE, self._run)

    @property
    def run(self) -> dict[str, Any]:
        """What `run.json` says."""
        return dict(self._run)


def _warn_of_other_versions(run: dict[str, Any]) -> None:
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


def _read_json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise RunDirectoryError(f"{path} is not readable as JSON: {error}") from error
