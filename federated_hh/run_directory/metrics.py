"""The metrics of a run's rounds: rows of a checkpoint, tables, TensorBoard's files."""

import collections
import dataclasses
import hashlib
import json
import math
import pathlib
import shutil
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from absl import logging

from federated_hh.files import json_files, tables
from federated_hh.run_directory import files as run_files

_METRICS_FILE = "metrics.csv"
# The checkpoint's rows, a line each.
_ROWS_FILE = "checkpoint_metrics.jsonl"
# Measured times are in files of their own, so that all others have the same bytes.
_SECONDS, SECONDS_FILE = "seconds", "seconds.csv"
_TENSORBOARD_DIR = "tensorboard"
_POINT = ("repeat", "round")  # coordinates of a point, which have no curves
_ROW = {"type": "array", "minItems": 3, "maxItems": 3}
_SAVED = json_files.object_of({"size": json_files.SIZE, "sha256": json_files.SHA256})


@dataclasses.dataclass(frozen=True)
class RoundMetrics:
    """The metrics of a round, in two parts that are kept apart.

    Attributes:
        released: Metrics that the run's guarantee covers, or that are public anyway,
            by name; read-only.
        simulator: The simulator's knowledge, such as exact sums before noise or
            thresholds, and measured times, by name; read-only. No guarantee covers it.

    Raises:
        ValueError: A name is in both parts.
    """

    released: Mapping[str, int | float]
    simulator: Mapping[str, int | float]

    def __post_init__(self):
        for name in self.released:
            if name in self.simulator:
                raise ValueError(
                    f"metric {name!r} is in both the released and the simulator's "
                    "part; rename one"
                )
        for part in ("released", "simulator"):
            copy = types.MappingProxyType(dict(getattr(self, part)))
            object.__setattr__(self, part, copy)

    def combined(self) -> collections.OrderedDict[str, int | float]:
        """Returns all metrics by name, the released ones first."""
        return collections.OrderedDict(**self.released, **self.simulator)


class GrowingTable:
    """A CSV file of rounds' metrics that grows by a row a round.

    If a column has whole numbers and others, or none, a whole number may be written
    without a decimal point until `write_whole`.
    """

    def __init__(
        self,
        folder: run_files.RunFiles,
        name: str,
        row_of: Callable[[RoundMetrics], Mapping[str, int | float]],
    ):
        """Stores the file's place, and the row of a round's metrics."""
        self._folder = folder
        self._name = name
        self._row_of = row_of
        self._columns: list[str] = []
        self._count = self._size = 0

    def save(self, metrics: Sequence[RoundMetrics]) -> None:
        """Appends the rows that are not on file; the first time writes all.

        Args:
            metrics: The metrics of all rounds so far.

        Raises:
            RunDirectoryError: If the file cannot be written.
        """
        if self._count == len(metrics):
            return
        table = self._table(metrics[self._count :])
        if not self._columns or set(table) - set(self._columns):
            self.write_whole(metrics)
            return
        table = table.reindex(columns=self._columns)
        lines = tables.write(table).partition("\n")[2].encode()
        self._size = self._folder.append(self._name, self._size, lines)
        self._count = len(metrics)

    def write_whole(self, metrics: Sequence[RoundMetrics]) -> None:
        """Writes all rows, if there is something in them; see `save`."""
        table = self._table(metrics)
        self._columns, self._count = list(table), len(metrics)
        if self._columns:
            text = tables.write(table).encode()
            self._folder.write_bytes(self._name, text)
            self._size = len(text)

    def _table(self, metrics: Sequence[RoundMetrics]) -> pd.DataFrame:
        return pd.DataFrame([dict(self._row_of(each)) for each in metrics])


class EventFiles:
    """Writes the files that TensorBoard reads; `close` it when done.

    Each repeat has its own folder, and so its own curve. All have the same tags,
    `released/<name>` and `simulator/<name>`; TensorBoard draws a tag's points of all
    folders in one chart. A point's step is its round.

    Args:
        path: The folder to give to TensorBoard, created with the first point.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._repeat = -1  # that the writer is of
        self._writer: Any = None

    def add(self, step: int, metrics: RoundMetrics) -> None:
        """Writes a round's metrics, each as a point of its repeat's curve.

        Args:
            step: The round.
            metrics: The metrics of the round; `repeat` among the released ones says
                which curves are meant, those of repeat 0 where it is missing.

        Raises:
            RunDirectoryError: If the file cannot be written.
        """
        import tensorflow as tf  # here: readers of runs need none

        repeat = int(metrics.released.get("repeat", 0))
        folder = self._path / f"repeat_{repeat}"
        parts = {"released": metrics.released, "simulator": metrics.simulator}
        try:
            if self._writer is None or repeat != self._repeat:
                self.close()
                self._writer = tf.summary.create_file_writer(str(folder))
                self._repeat = repeat
            with self._writer.as_default(step=step):
                for part, values in parts.items():
                    for name, value in values.items():
                        if name not in _POINT:
                            tf.summary.scalar(f"{part}/{name}", value)
            self._writer.flush()
        except tf.errors.OpError as error:
            raise run_files.RunDirectoryError(
                f"{folder} cannot be written: {error.message}. Fix this and continue "
                "with --resume"
            ) from error

    def close(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Metrics:
    """All rows of a run, or of a part of one, and the files that have them.

    Args:
        released: Folder of results that the guarantee covers.
        simulator: Folder of the simulator's knowledge.
    """

    def __init__(self, released: run_files.RunFiles, simulator: run_files.RunFiles):
        self._simulator = simulator
        self._rows: list[tuple[int, RoundMetrics]] = []
        # Of the rows that are on disk for a checkpoint.
        self._num_saved = self._size = 0
        self._sha256 = hashlib.sha256()
        self._seconds = GrowingTable(simulator, SECONDS_FILE, _seconds_of)
        self._tables = (
            GrowingTable(released, _METRICS_FILE, lambda metrics: metrics.released),
            GrowingTable(
                simulator,
                _METRICS_FILE,
                lambda metrics: _without_seconds(metrics.combined()),
            ),
        )
        self._events: EventFiles | None = None  # made with the first row

    def add(self, step: int, metrics: RoundMetrics) -> None:
        """Adds a row: to TensorBoard now, to the other files when they are saved.

        Args:
            step: The round, TensorBoard's step.
            metrics: The metrics of the round; the same names in every round.

        Raises:
            RunDirectoryError: If TensorBoard's file cannot be written.
        """
        if self._events is None:
            self._events = EventFiles(self._simulator.path / _TENSORBOARD_DIR)
        self._events.add(step, metrics)
        self._rows.append((step, metrics))

    def save_rows(self) -> dict[str, int | str]:
        """Appends the new rows to the checkpoint's, after their measured seconds.

        Returns:
            The size of the rows and their SHA-256, for the checkpoint.
        """
        self._seconds.save(self.all())
        rows = [
            json.dumps([step, dict(m.released), _untimed(m.simulator)])
            for step, m in self._rows[self._num_saved :]
        ]
        if rows:
            lines = "".join(f"{row}\n" for row in rows).encode()
            self._size = self._simulator.append(_ROWS_FILE, self._size, lines)
            self._sha256.update(lines)
            self._num_saved = len(self._rows)
        return {"size": self._size, "sha256": self._sha256.hexdigest()}

    def save_tables(self) -> None:
        """Appends the new rows to the tables for people."""
        for table in self._tables:
            table.save(self.all())

    def write_whole(self) -> None:
        """Writes all tables whole, as a kill may have come before they were saved."""
        for table in (self._seconds, *self._tables):
            table.write_whole(self.all())

    def load(self, file: pathlib.Path, saved: Any) -> None:
        """Takes over a checkpoint's rows, and cuts off what came after them.

        Args:
            file: The checkpoint's file.
            saved: The size and digest that `save_rows` returned for it.

        Raises:
            RunDirectoryError: If the rows are damaged, or of another version.
        """
        rows = self._saved_rows(file, saved)
        is_timed = any(row[2].get(_SECONDS, 0) is None for row in rows)
        seconds = self._measured_seconds() if is_timed else {}
        for number, (step, released, simulator) in enumerate(rows):
            if simulator.get(_SECONDS, 0) is None:
                simulator[_SECONDS] = seconds.get(number, math.nan)
            self.add(step, RoundMetrics(released, simulator))
        self._num_saved = len(rows)

    def forget_events(self) -> None:
        """Removes TensorBoard's files.

        They may know of a round that the checkpoint does not, or not of its last one.
        """
        shutil.rmtree(self._simulator.path / _TENSORBOARD_DIR, ignore_errors=True)

    def all(self) -> list[RoundMetrics]:
        """Returns the metrics of all rows."""
        return [metrics for _, metrics in self._rows]

    def close(self) -> None:
        """Closes TensorBoard's files."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def _saved_rows(self, file: pathlib.Path, saved: Any) -> list[Any]:
        try:
            json_files.check(saved, _SAVED)
        except json_files.JsonError as error:
            raise run_files.RunDirectoryError(
                f"{file} is of another version: {error}. Begin a new run"
            ) from error
        if not saved["size"]:
            return []
        path = self._simulator.path / _ROWS_FILE
        contents = run_files.read_bytes(path)[: saved["size"]]
        self._sha256 = hashlib.sha256(contents)
        if self._sha256.hexdigest() != saved["sha256"]:
            raise run_files.RunDirectoryError(
                f"{path} is damaged: its SHA-256 is not the recorded one. Restore it, "
                "or begin a new run"
            )
        self._size = self._simulator.append(_ROWS_FILE, len(contents), b"")
        return [
            run_files.parse_json(path, line, _ROW) for line in contents.splitlines()
        ]

    def _measured_seconds(self) -> dict[int, float]:
        """Returns the measured seconds of rows, by the row's number."""
        file = self._simulator.path / SECONDS_FILE
        try:
            return dict(enumerate(map(float, tables.read(file)[_SECONDS])))
        except (KeyError, OSError, TypeError, ValueError) as error:
            logging.warning(
                "%s cannot be read (%s): the seconds of earlier rounds are unknown.",
                file,
                error,
            )
            return {}


def _untimed(metrics: Mapping[str, int | float]) -> dict[str, int | float | None]:
    """Returns metrics without the measured seconds, which keep their place."""
    return {n: None if n == _SECONDS else value for n, value in metrics.items()}


def _without_seconds(metrics: Mapping[str, int | float]) -> dict[str, int | float]:
    return {name: value for name, value in metrics.items() if name != _SECONDS}


def _seconds_of(metrics: RoundMetrics) -> dict[str, int | float]:
    """Returns a row of measured times; empty without one."""
    found = metrics.combined()
    if _SECONDS not in found:
        return {}
    return {n: found[n] for n in ("repeat", "round", _SECONDS) if n in found}
