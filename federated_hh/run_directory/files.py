"""Files that a run writes: each under its name only when it is whole."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import pandas as pd

from federated_hh.files import atomic_files, json_files, plain_files, seal, tables


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
