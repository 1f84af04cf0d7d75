"""Columns of numbers on disk that NumPy and TensorFlow map without copying.

A directory holds raw little-endian arrays (`<name>.bin`), tables of strings
(`<name>.arrow`), and `population.json`: what each file's size is, a fingerprint of the
contents, and where they came from. The last is written last, so a directory that has it
is whole.
"""

import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

METADATA_FILE = "population.json"


class RawColumnWriter:
    """Writes the files of one directory.

    Attributes:
        directory: Where they are written.
    """

    def __init__(self, directory: pathlib.Path, columns: Mapping[str, np.dtype]):
        """Starts with empty columns.

        Args:
            directory: An existing directory.
            columns: The columns' names and their little-endian dtypes.
        """
        self.directory = directory
        self._dtypes = dict(columns)
        self._hashes = {name: hashlib.sha256() for name in columns}
        self._files = {
            name: (directory / f"{name}.bin").open("wb", buffering=0)
            for name in columns
        }

    def append(self, name: str, array: np.ndarray) -> None:
        """Appends values to a column."""
        data = np.ascontiguousarray(array, self._dtypes[name]).view(np.uint8).data
        written = 0
        while written < len(data):  # a raw write may take a part only
            written += self._files[name].write(data[written:])
        self._hashes[name].update(data)

    def write_strings(self, name: str, values: Sequence[str] | pa.Array) -> None:
        """Writes `<name>s.arrow`, a table with the one column `name`."""
        table = pa.table({name: pa.array(values, pa.large_string())})
        path = str(self.directory / f"{name}s.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
            out.write_table(table.combine_chunks())

    def finish(self, metadata: Mapping[str, Any]) -> None:
        """Writes the metadata, with the files' sizes and their fingerprint."""
        self.close()
        files = {path.name: path.stat().st_size for path in self.directory.iterdir()}
        fingerprint = hashlib.sha256()
        for name in sorted(files):
            if name.endswith(".bin"):
                digest = self._hashes[name.removesuffix(".bin")].digest()
            else:
                with open(self.directory / name, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").digest()
            fingerprint.update(name.encode() + digest)
        contents = dict(
            metadata,
            files=dict(sorted(files.items())),
            fingerprint=fingerprint.hexdigest(),
        )
        text = json.dumps(contents, indent=2, ensure_ascii=False) + "\n"
        (self.directory / METADATA_FILE).write_text(text, encoding="utf-8")

    def close(self) -> None:
        """Closes the column files; also done by `finish`."""
        for file in self._files.values():
            file.close()


def read_metadata(directory: str, schema_version: int) -> dict[str, Any]:
    """Returns a directory's metadata, after checking that the directory is whole.

    Args:
        directory: Absolute path.
        schema_version: The one that the caller reads.

    Raises:
        FileNotFoundError: If there is no population at `directory`.
        ValueError: If it has another schema version, or a file of another size than
            was written.
    """
    path = os.path.join(directory, METADATA_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            metadata = json.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{directory} is not a population directory: it has no {METADATA_FILE}."
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is not readable as JSON: {error}") from None
    version = metadata.get("schema_version")
    if version != schema_version:
        raise ValueError(
            f"{path}: schema_version is {version!r}, this program reads "
            f"{schema_version}; prepare the population again."
        )
    for name, size in metadata["files"].items():
        file_path = os.path.join(directory, name)
        found = os.path.getsize(file_path) if os.path.exists(file_path) else None
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes"
            raise ValueError(
                f"{file_path} {state}, {size} bytes were written; the population "
                "is damaged: remove its directory and prepare it again."
            )
    return metadata


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
