"""Columns of numbers on disk that NumPy and TensorFlow map without copying.

A directory holds raw little-endian arrays (`<name>.bin`), tables of strings
(`<name>.arrow`), and `population.json`: size and SHA-256 of each file, a fingerprint of
the contents, and where they came from. The last is written last, so a directory that
has it is whole. Besides its writer's notes on the data it holds

    schema_version  version of the columns
    files           size and SHA-256 of each file, by name
    fingerprint     SHA-256 of the files' names and contents
    digest          SHA-256 of all the rest of the metadata
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from federated_hh.files import atomic_files, json_files, verified_files
from federated_hh.options import checks

METADATA_FILE = "population.json"
REMEDY = "remove its directory and prepare it again"
_FILE_NAME = re.compile(r"[A-Za-z0-9_]+\.(bin|arrow)")
_MAX_BYTES = 64 << 20  # far above any written size; a larger file is something else


def write_metadata(
    directory: pathlib.Path,
    metadata: Mapping[str, Any],
    files: Mapping[str, verified_files.WrittenFile],
) -> None:
    """Writes the metadata of a directory.

    Args:
        directory: Directory of the files.
        metadata: JSON values.
        files: Written files by name.
    """
    contents = dict(
        metadata,
        files={name: files[name].to_json() for name in sorted(files)},
        fingerprint=fingerprint(files),
    )
    # As they are read, so that the digest is the same.
    contents = json.loads(json.dumps(contents))
    contents["digest"] = _digest(contents)
    text = json.dumps(contents, indent=2, ensure_ascii=False) + "\n"
    with atomic_files.naming(directory / METADATA_FILE):
        (directory / METADATA_FILE).write_text(text, encoding="utf-8")


def read_metadata(
    directory: str, schema_version: int, contents: str | None = None
) -> tuple[dict[str, Any], dict[str, verified_files.WrittenFile]]:
    """Returns the metadata of a directory, and its files' sizes and digests.

    Args:
        directory: Absolute path.
        schema_version: The one that the caller reads.
        contents: Required contents, other than words.

    Raises:
        FileNotFoundError: If there is none.
        DamagedFileError: If it cannot be read, or differs from the one written.
        ValueError: If it has another schema version, or holds words.
    """
    path = os.path.join(directory, METADATA_FILE)
    metadata = _load(path, directory)
    if contents is not None and "num_entries" in metadata:  # which words have
        raise ValueError(f"{path}: it holds clients' words, not {contents}.")
    version = metadata.get("schema_version")
    if version != schema_version:
        raise ValueError(
            f"{path}: schema_version is {json_files.shown(version)}, this "
            f"program reads {schema_version}; {REMEDY}."
        )
    try:
        files = _check(metadata)
    except ValueError as error:
        raise damaged(directory, str(error)) from None
    return metadata, files


def sizes_of(
    directory: str, metadata: Mapping[str, Any], names: Sequence[str]
) -> list[int]:
    """Returns values of the metadata that are sizes.

    Raises:
        DamagedFileError: If one is not a whole number, at least 0.
    """
    for name in names:
        if not verified_files.is_whole(metadata.get(name)):
            found = json_files.shown(metadata.get(name))
            raise damaged(
                directory, f"{name} is {found}; it has to be a whole number, at least 0"
            )
    return [metadata[name] for name in names]


def fingerprint(files: Mapping[str, verified_files.WrittenFile]) -> str:
    """Returns the SHA-256 of the files' names and contents, in hexadecimal."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + bytes.fromhex(files[name].sha256))
    return digest.hexdigest()


def _load(path: str, directory: str) -> dict[str, Any]:
    try:
        size = os.path.getsize(path)
        if size > _MAX_BYTES:
            raise damaged(directory, f"it has {size} bytes")
        with open(path, "rb") as file:
            return json_files.parse(file.read(), json_files.OBJECT)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{directory} is not a population directory: it has no {METADATA_FILE}."
        ) from None
    except verified_files.DamagedFileError:
        raise
    except OSError as error:
        raise damaged(directory, error.strerror) from None
    except ValueError as error:
        raise damaged(directory, str(error)) from None


def _check(metadata: Mapping[str, Any]) -> dict[str, verified_files.WrittenFile]:
    """Returns the files, or raises `ValueError` if the metadata cannot be."""
    if metadata.get("digest") != _digest(metadata):
        raise ValueError("its contents do not match its own digest")
    if not isinstance(metadata.get("files"), dict):
        raise ValueError("it names no files")
    files = {}
    for name, written in metadata["files"].items():
        if not _FILE_NAME.fullmatch(name):
            raise ValueError(
                f"{json_files.shown(name)} is not the name of a column's file"
            )
        try:
            files[name] = verified_files.WrittenFile.from_json(written)
        except ValueError as error:
            raise ValueError(f"files[{name!r}]: {error}") from None
    if metadata.get("fingerprint") != fingerprint(files):
        raise ValueError("its fingerprint does not match the files")
    return files


def _digest(metadata: Mapping[str, Any]) -> str:
    contents = {name: metadata[name] for name in metadata if name != "digest"}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def damaged(directory: str, what: str) -> verified_files.DamagedFileError:
    """Returns the error that the metadata of a directory cannot be believed."""
    return verified_files.DamagedFileError(
        f"{os.path.join(directory, METADATA_FILE)} is damaged: {what}; {REMEDY}."
    )


@dataclasses.dataclass(frozen=True)
class Values:
    """Checks that all values of a column lie in a range.

    Attributes:
        low: Least allowed value.
        high: Largest allowed value.
    """

    low: int
    high: int

    def __call__(self, array: np.ndarray) -> None:
        """Checks the next values; raises `ValueError` if one lies outside."""
        if array.min() < self.low or array.max() > self.high:
            raise ValueError(
                f"values lie in {array.min()}..{array.max()}; they have to be in "
                f"{self.low}..{self.high}"
            )


@dataclasses.dataclass
class Splits:
    """Checks a column that says where rows start, and last where they end.

    Attributes:
        rows: Number of rows.
        end: End of the last row; the first starts at 0.
        least: Least length of a row.
    """

    rows: int
    end: int
    least: int

    def __post_init__(self):
        self._seen = 0
        self._before: int | None = None

    def __call__(self, array: np.ndarray) -> None:
        """Checks the next values; raises `ValueError` if they make no rows."""
        # Before differences are taken, which could overflow.
        if array.min() < 0 or array.max() > self.end:
            raise ValueError(
                f"rows start in {array.min()}..{array.max()}; they have to be in "
                f"0..{self.end}"
            )
        if self._before is None:
            if array[0] != 0:
                raise ValueError(f"the first row starts at {array[0]}; it has to be 0")
            self._before = -self.least
        shortest = np.diff(array, prepend=array.dtype.type(self._before)).min()
        if shortest < self.least:
            raise ValueError(
                f"a row has length {shortest}; it has to be at least {self.least}"
            )
        self._before = int(array[-1])
        self._seen += len(array)
        if self._seen == self.rows + 1 and self._before != self.end:
            raise ValueError(
                f"the rows end at {self._before}; they have to be {self.end}"
            )


@dataclasses.dataclass(frozen=True)
class Column:
    """The required type and length of a raw column.

    Attributes:
        dtype: The dtype of its values.
        length: Number of values.
        check: Check of one reading, such as `Values`; it gets the values in pieces.
    """

    dtype: np.dtype
    length: int
    check: Callable[[np.ndarray], None]

    def check_chunk(self, chunk: memoryview) -> None:
        """Checks the next bytes of the file; raises `ValueError` if they are wrong."""
        self.check(np.frombuffer(chunk, self.dtype))


def verify(
    directory: str,
    files: Mapping[str, verified_files.WrittenFile],
    columns: Mapping[str, Column],
    strings: Mapping[str, int],
    optional: Sequence[str] = (),
) -> None:
    """Checks that the files of a directory are as written, and fit each other.

    Files are read once; see `verified_files`.

    Args:
        directory: Absolute path.
        files: Written files, from the metadata.
        columns: The raw columns, by name.
        strings: Number of strings of each table, by name.
        optional: Names of `strings` that may be absent.

    Raises:
        DamagedFileError: If one is not.
    """
    names = {f"{name}.bin" for name in columns}
    names |= {f"{name}s.arrow" for name in strings}
    may_miss = {f"{name}s.arrow" for name in optional}
    if files.keys() - names or names - may_miss - files.keys():
        raise damaged(directory, f"its files are {sorted(files)}")
    for name, column in columns.items():
        size = column.length * column.dtype.itemsize
        if files[f"{name}.bin"].size != size:
            raise damaged(
                directory,
                f"{name}.bin of {files[f'{name}.bin'].size} bytes for "
                f"{column.length} values of {column.dtype.itemsize} bytes",
            )

    def check_strings() -> None:
        for name, length in strings.items():
            if f"{name}s.arrow" in files:
                path = os.path.join(directory, f"{name}s.arrow")
                _check_strings(path, length)

    of_files = {f"{name}.bin": column.check_chunk for name, column in columns.items()}
    verified_files.verify(directory, files, of_files, REMEDY, check_strings)


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
            f"{path} is damaged: {error}; {REMEDY}."
        ) from error


class ColumnStore:
    """Columns of many clients, read-only and memory-mapped.

    Attributes:
        directory: Absolute path of the directory.
        metadata: The contents of `population.json`: sizes, origin, number of rows
            left out, fingerprint.
    """

    def __init__(self, directory: str, metadata: Mapping[str, Any]):
        self.directory = directory
        self.metadata = dict(metadata)

    @property
    def num_clients(self) -> int:
        """Number of clients, with or without data."""
        return self.metadata["num_clients"]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the columns' contents, in hexadecimal."""
        return self.metadata["fingerprint"]

    @property
    def dtypes(self) -> Mapping[str, np.dtype]:
        """Dtypes of the raw columns, by name."""
        raise NotImplementedError

    def column_path(self, name: str) -> str:
        """Returns the absolute path of a raw column file.

        Args:
            name: Column, one of `dtypes`.
        """
        checks.one_of(sorted(self.dtypes), name=name)
        return os.path.join(self.directory, f"{name}.bin")

    def map(self, name: str) -> np.ndarray:
        """Returns a raw column as a read-only, memory-mapped array."""
        return map_column(self.column_path(name), self.dtypes[name])

    def strings(self, name: str) -> pa.LargeStringArray:
        """Returns the table of strings `<name>s.arrow`, memory-mapped."""
        return read_strings(os.path.join(self.directory, f"{name}s.arrow"))

    def check_index(self, index: int) -> None:
        """Raises `ValueError` if there is no client at an index."""
        allowed = f"in 0..{self.num_clients - 1}"
        checks.holds(0 <= index < self.num_clients, allowed, index=index)


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


def ranges(firsts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the integers of ranges, one range after the other.

    Args:
        firsts: Integers [n]: first integer of each.
        lengths: Integers [n], at least 0: number of integers of each.

    Returns:
        int64 [sum of lengths].
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    shifts = np.repeat(firsts - (ends - lengths), lengths)
    shifts += np.arange(len(shifts))
    return shifts
