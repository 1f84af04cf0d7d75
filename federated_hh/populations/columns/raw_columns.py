"""Columns of numbers on disk that NumPy and TensorFlow map without copying.

A directory holds raw little-endian arrays (`<name>.bin`), tables of strings
(`<name>.arrow`), and `population.json`: size and SHA-256 of each file, a fingerprint of
the contents, and where they came from. The last is written last, so a directory that
has it is whole.
"""

import dataclasses
import hashlib
import io
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from federated_hh.files import atomic_files, verified_files
from federated_hh.populations.columns import arrow_text, column_metadata

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
        """Turns a column into one of another dtype: what is written, piece by piece.

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
            before = map_column(str(old), self._dtypes[name])
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
        """Writes the metadata, with what was written into each file."""
        self.close()
        files = {}
        for path in sorted(self.directory.iterdir()):
            if path.suffix == ".bin":
                digest = self._hashes[path.stem].hexdigest()
            else:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            files[path.name] = verified_files.WrittenFile(path.stat().st_size, digest)
        column_metadata.write(self.directory, metadata, files)

    def close(self) -> None:
        """Closes the column files; also done by `finish`."""
        for file in self._files.values():
            file.close()


@dataclasses.dataclass(frozen=True)
class Column:
    """The required type and length of a raw column.

    Attributes:
        dtype: The dtype of its values.
        length: Number of values.
        check: The check of the values; see `column_checks`. For one reading.
    """

    dtype: np.dtype
    length: int
    check: verified_files.ContentCheck


def verify(
    directory: str,
    files: Mapping[str, verified_files.WrittenFile],
    columns: Mapping[str, Column],
    strings: Mapping[str, int],
    optional: Sequence[str] = (),
) -> None:
    """Checks that the files of a directory are what was written, and fit each other.

    What was read once is not read again; see `verified_files`.

    Args:
        directory: Absolute path.
        files: Written files, from the metadata.
        columns: The raw columns, by name.
        strings: The tables of strings, by name: how many each has.
        optional: Names of `strings` that may be absent.

    Raises:
        DamagedFileError: If one is not.
    """
    names = {f"{name}.bin" for name in columns}
    names |= {f"{name}s.arrow" for name in strings}
    may_miss = {f"{name}s.arrow" for name in optional}
    if files.keys() - names or names - may_miss - files.keys():
        raise column_metadata.damaged(directory, f"its files are {sorted(files)}")
    for name, column in columns.items():
        size = column.length * column.dtype.itemsize
        if files[f"{name}.bin"].size != size:
            raise column_metadata.damaged(
                directory,
                f"{name}.bin of {files[f'{name}.bin'].size} bytes for "
                f"{column.length} values of {column.dtype.itemsize} bytes",
            )

    def check_strings() -> None:
        for name, length in strings.items():
            if f"{name}s.arrow" in files:
                path = os.path.join(directory, f"{name}s.arrow")
                _check_strings(path, length)

    checks = {f"{name}.bin": column.check for name, column in columns.items()}
    verified_files.verify(
        directory, files, checks, column_metadata.REMEDY, check_strings
    )


def _check_strings(path: str, length: int) -> None:
    try:
        found = read_strings(path)
        found.validate(full=True)
        if found.type != pa.large_string() or found.null_count or len(found) != length:
            raise ValueError(
                f"it has {len(found)} values of type {found.type}, {found.null_count} "
                f"of them missing; there have to be {length} texts"
            )
    except (ValueError, OSError) as error:  # Arrow's errors are among them
        raise verified_files.DamagedFileError(
            f"{path} is damaged: {error}; {column_metadata.REMEDY}."
        ) from error


def map_column(path: str, dtype: np.dtype) -> np.ndarray:
    """Returns a raw file as a read-only, memory-mapped array."""
    if os.path.getsize(path) == 0:  # which cannot be mapped
        return np.zeros(0, dtype)
    return np.memmap(path, dtype, mode="r")


def read_strings(path: str) -> pa.LargeStringArray:
    """Returns a table of strings, memory-mapped."""
    with pa.memory_map(path) as source:
        column = pa.ipc.open_file(source).read_all().column(0)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays([*column.chunks, pa.array([], pa.large_string())])
