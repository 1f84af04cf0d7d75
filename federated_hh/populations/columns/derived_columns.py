"""Arrays computed from a population, kept in its folder `derived`.

Each array `<name>.bin` has its size, its SHA-256 and the population's fingerprint in
`<name>.json`, written after it: without that file it is computed again.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

import numpy as np

from federated_hh.files import atomic_files, json_files, verified_files

_FOLDER = "derived"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def find_or_build(
    directory: str,
    fingerprint: str,
    names: Sequence[str],
    build: Callable[[], Iterable[Sequence[np.ndarray]]],
) -> list[str]:
    """Returns the paths of a population's derived columns, computed if not there.

    Args:
        directory: Absolute path of the population.
        fingerprint: The fingerprint of the population.
        names: Names, as in `ClientWords.derived_columns`; `build` likewise.
        build: Gives, in their order, the pieces of all arrays.

    Raises:
        ValueError: If a name has another character than letters, digits, "_", "-", ".".
        DamagedFileError: If one is there, but damaged.
        PopulationError: If one cannot be written.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"name is {name!r}; it has to be letters, digits, '_', '-' and '.'."
            )
    folder = os.path.join(directory, _FOLDER)
    paths = [os.path.join(folder, f"{name}.bin") for name in names]
    try:
        if not all(map(_is_there, paths)):
            os.makedirs(folder, exist_ok=True)
            with atomic_files.locked(paths[0], f"computing {', '.join(names)}"):
                if not all(map(_is_there, paths)):
                    _write(paths, fingerprint, build())
    except verified_files.PopulationError:
        raise
    except OSError as error:
        raise verified_files.PopulationError(
            f"{error.filename or folder}: {error.strerror or error}, while deriving "
            "columns from the population. None of them were kept; free some space, "
            "or choose another directory with --population_cache."
        ) from error
    _verify(folder, fingerprint, names)
    return paths


def _record(path: str) -> str:
    return f"{path.removesuffix('.bin')}.json"


def _is_there(path: str) -> bool:
    return os.path.exists(path) and os.path.exists(_record(path))


def _verify(folder: str, fingerprint: str, names: Sequence[str]) -> None:
    """Raises `DamagedFileError` unless the columns are as written."""
    files = {}
    for name in names:
        record = os.path.join(folder, f"{name}.json")
        try:
            with open(record, "rb") as file:
                found = json_files.parse(file.read(), json_files.OBJECT)
            if found.pop("population", 0) != fingerprint:
                raise ValueError("it belongs to another population")
            files[f"{name}.bin"] = verified_files.WrittenFile.from_json(found)
        except (OSError, ValueError) as error:
            raise verified_files.DamagedFileError(
                f"{record} is damaged: {error}; remove it, and the column will be "
                "computed again."
            ) from None
    remedy = f"remove the folder {folder}, and it is computed again"
    verified_files.verify(folder, files, {}, remedy)


class _HashedFile:
    """A file being written, and its digest."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, piece: np.ndarray) -> None:
        piece = np.ascontiguousarray(piece, piece.dtype.newbyteorder("<"))
        data = piece.reshape(-1).view(np.uint8).data
        self._file.write(data)
        self._digest.update(data)
        self._size += len(data)

    def written(self) -> verified_files.WrittenFile:
        return verified_files.WrittenFile(self._size, self._digest.hexdigest())


def _write(
    paths: Sequence[str],
    fingerprint: str,
    pieces_of_all: Iterable[Sequence[np.ndarray]],
) -> None:
    with contextlib.ExitStack() as stack:
        files = [
            _HashedFile(stack.enter_context(atomic_files.new_file(path)))
            for path in paths
        ]
        for pieces in pieces_of_all:
            for file, piece in zip(files, pieces, strict=True):
                file.write(piece)
    for path, file in zip(paths, files, strict=True):
        record = file.written().to_json() | {"population": fingerprint}
        atomic_files.write_file(_record(path), json.dumps(record).encode())
