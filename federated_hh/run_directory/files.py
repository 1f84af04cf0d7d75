"""Files that a run writes: each under its name only when it is whole."""

import collections
import contextlib
import dataclasses
import io
import json
import os
import pathlib
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pandas as pd

from federated_hh.files import atomic_files, json_files, plain_files, seal, tables

_POINT = ("repeat", "round")  # coordinates of a point, which have no curves


class RunDirectoryError(RuntimeError):
    """The output directory cannot be used for this run."""


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """A folder that a run writes into.

    Attributes:
        path: Its path.
    """

    path: pathlib.Path

    def make(self) -> None:
        """Makes the folder, if it is not there.

        Raises:
            RunDirectoryError: If it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path} cannot be created: {error.strerror}. {self._advice()}"
            ) from error

    def write_bytes(self, name: str, contents: bytes | memoryview) -> None:
        """Writes a file, whole or not at all.

        Raises:
            RunDirectoryError: If it cannot be written, as on a full disk.
        """
        with self.new_file(name) as file:
            file.write(contents)

    @contextlib.contextmanager
    def new_file(self, name: str) -> Iterator[BinaryIO]:
        """Makes a file that appears under its name only when it is whole.

        Yields:
            A file to write into; see `atomic_files.new_file`.

        Raises:
            RunDirectoryError: If it cannot be written, as on a full disk.
        """
        try:
            with atomic_files.new_file(self.path / name) as file:
                yield file
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path / name} cannot be written: {error.strerror}; the old "
                f"file is kept. {self._advice()}"
            ) from error

    @contextlib.contextmanager
    def nameless_file(self) -> Iterator[BinaryIO]:
        """Makes a file without a name, which ends with its last use.

        Yields:
            A file to write into and to map.

        Raises:
            RunDirectoryError: If it cannot be written, as on a full disk.
        """
        try:
            with tempfile.TemporaryFile(dir=self.path) as file:
                yield file
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path} cannot hold the state between rounds: {error.strerror}. "
                f"{self._advice()}"
            ) from error

    def append(self, name: str, size: int, contents: bytes) -> int:
        """Writes behind the first bytes of a file, and cuts off what followed them.

        Args:
            name: Name of the file, made if it is missing.
            size: Number of bytes that stay.
            contents: Bytes to write there.

        Returns:
            The size of the file, which is on disk.

        Raises:
            RunDirectoryError: If it cannot be written, as on a full disk.
        """
        path = self.path / name
        try:
            is_new = not path.exists()
            with atomic_files.naming(path), open(path, "ab") as file:
                file.truncate(size)
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                atomic_files.sync(self.path)
        except OSError as error:
            raise RunDirectoryError(
                f"{path} cannot be written: {error.strerror}. {self._advice()}"
            ) from error
        return size + len(contents)

    def _advice(self) -> str:
        """Returns what to do after a failed write, by whether the run has begun."""
        # The folder is the run's, or a part's in it, or the simulator's of either.
        if any(
            (at / seal.RUN_FILE).exists() for at in (self.path, *self.path.parents[:2])
        ):
            return "Fix this and continue with --resume"
        return "Fix this and begin the run again"

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file in UTF-8; see `write_bytes`."""
        self.write_bytes(name, text.encode())

    def write_json(self, name: str, value: Any) -> None:
        """Writes a value as JSON."""
        self.write_bytes(name, json_bytes(value))

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Writes a table as CSV; see `federated_hh.files.tables`."""
        self.write_text(name, tables.write(table))


def json_bytes(value: Any) -> bytes:
    """Returns a value as the contents of a JSON file."""
    return f"{json.dumps(value, indent=1)}\n".encode()


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Returns the contents of a file of a run.

    Raises:
        RunDirectoryError: If it cannot be read.
    """
    with reading(path) as file:
        return file.read()


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """Opens a file of a run.

    Raises:
        RunDirectoryError: If it cannot be read.
    """
    try:
        with plain_files.open_regular(path) as file:
            yield file
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be read: {error.strerror}. Restore it, or begin a new run"
        ) from error


def read_json(
    path: str | os.PathLike[str], schema: json_files.Schema = json_files.OBJECT
) -> Any:
    """Returns the contents of a run's JSON file.

    Args:
        path: The file.
        schema: Its schema; metrics may be no finite numbers.

    Raises:
        RunDirectoryError: If it cannot be read, or is not of the schema.
    """
    return parse_json(path, read_bytes(path), schema)


def parse_json(
    path: str | os.PathLike[str], contents: bytes, schema: json_files.Schema
) -> Any:
    """Returns the value of JSON text that was read from a file; see `read_json`."""
    try:
        return json_files.parse(contents, schema, is_finite=False)
    except json_files.JsonError as error:
        raise RunDirectoryError(
            f"{path} is damaged: {error}. Restore it, or begin a new run"
        ) from error


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
        folder: RunFiles,
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
            raise RunDirectoryError(
                f"{folder} cannot be written: {error.message}. Fix this and continue "
                "with --resume"
            ) from error

    def close(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
