"""Files that a run writes: each under its name only when it is whole."""

import dataclasses
import json
import os
import pathlib
from typing import Any

import pandas as pd

from simulation import atomic_files, tables


class RunDirectoryError(RuntimeError):
    """The output directory cannot be used for this run."""


@dataclasses.dataclass(frozen=True)
class RunFiles:
    """A folder that a run writes into.

    Attributes:
        path: Where it is.
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
                f"{self.path} cannot be made: {error.strerror}. Mend that and continue "
                "with --resume"
            ) from error

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

    def write_text(self, name: str, text: str) -> None:
        """Writes a text file in UTF-8; see `write_bytes`."""
        self.write_bytes(name, text.encode())

    def write_json(self, name: str, value: Any) -> None:
        """Writes a value as JSON."""
        self.write_text(name, json.dumps(value, indent=1) + "\n")

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Writes a table as CSV; see `simulation.tables`."""
        self.write_text(name, tables.write(table))


def read_json(path: str | os.PathLike[str]) -> Any:
    """Returns what a JSON file holds.

    Raises:
        RunDirectoryError: If it is not JSON.
    """
    try:
        return json.loads(pathlib.Path(path).read_text())
    except ValueError as error:
        raise RunDirectoryError(f"{path} is not readable as JSON: {error}") from error
