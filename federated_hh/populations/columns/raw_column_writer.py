"""Writes columns of numbers and tables of strings; see `raw_columns`."""

import hashlib
import io
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from federated_hh.files import atomic_files, verified_files
from federated_hh.populations.columns import arrow_text, raw_columns

_VALUES_AT_ONCE = 1 << 22


class RawColumnWriter:
    """Writes the files of one directory.

    Attributes:
        directory: Directory to write to.
    """

    def __init__(self, directory: pathlib.Path, columns: Mapping[str, np.dtype]):
        """Starts with empty columns.

        Args:
            directory: An existing directory.
            columns: The columns' names and their little-endian dtypes.
        """
        self.directory = directory
        self._dtypes: dict[str, np.dtype] = {}
        self._hashes: dict[str, Any] = {}
        self._files: dict[str, io.FileIO] = {}
        for name, dtype in columns.items():
            self.add(name, dtype)

    def add(self, name: str, dtype: np.dtype) -> None:
        """Adds a column, empty.

        Args:
            name: The column's.
            dtype: Its little-endian dtype.
        """
        self._dtypes[name] = dtype
        self._hashes[name] = hashlib.sha256()
        self._files[name] = (self.directory / f"{name}.bin").open("wb", buffering=0)

    def convert(
        self,
        name: str,
        dtype: np.dtype,
        of: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        """Converts the written part of a column to another dtype.

        Args:
            name: The column's.
            dtype: Its new dtype.
            of: Returns new values of old ones.
        """
        self._files[name].close()
        path = self.directory / f"{name}.bin"
        old = path.with_suffix(".old")
        with atomic_files.naming(path):
            path.rename(old)
            before = raw_columns.map_column(str(old), self._dtypes[name])
            self.add(name, dtype)
        for first in range(0, len(before), _VALUES_AT_ONCE):
            self.append(name, of(before[first : first + _VALUES_AT_ONCE]))
        old.unlink()

    def append(self, name: str, array: np.ndarray) -> None:
        """Appends values to a column."""
        data = np.ascontiguousarray(array, self._dtypes[name]).view(np.uint8).data
        written = 0
        with atomic_files.naming(self.directory / f"{name}.bin"):
            while written < len(data):  # a raw write may take a part only
                written += self._files[name].write(data[written:])
        self._hashes[name].update(data)

    def write_strings(self, name: str, values: Sequence[str] | pa.Array) -> None:
        """Writes `<name>s.arrow`, a table with the one column `name`."""
        table = pa.Table.from_arrays([arrow_text.column(values)], names=[name])
        path = str(self.directory / f"{name}s.arrow")
        with (
            atomic_files.naming(path),
            pa.OSFile(path, "wb") as sink,
            pa.ipc.new_file(sink, table.schema) as out,
        ):
            out.write_table(table.combine_chunks())

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Writes the metadata, with size and digest of each file."""
        self.close()
        files = {}
        for path in sorted(self.directory.iterdir()):
            if path.suffix == ".bin":
                digest = self._hashes[path.stem].hexdigest()
            else:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.name] = verified_files.WrittenFile(path.stat().st_size, digest)
        raw_columns.write_metadata(self.directory, metadata, files)

    def close(self) -> None:
        """Closes the column files; also done by `finish`."""
        for file in self._files.values():
            file.close()
