"""Values of a run as files: the last state, and those of finished repeats."""

import hashlib
import io
import json
import os
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from federated_hh.rounds import codec
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files

_TREE = "tree"


def write(folder: run_files.RunFiles, name: str, value: Any) -> dict[str, str]:
    """Writes a value: its arrays, and the rest of it as JSON, as a file of NumPy's.

    Arrays go to the file a part at a time: memory holds no other copy of them.

    Returns:
        What `read` needs: the file's name and the SHA-256 of its contents.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = json.dumps(codec.encode(value, arrays))
    with folder.new_file(name) as file:
        hashed = _HashedFile(file)
        arrays[_TREE] = np.frombuffer(tree.encode(), np.uint8)
        np.savez(hashed, **arrays)
    return {"file": name, "sha256": hashed.sha256.hexdigest()}


class _HashedFile(io.RawIOBase):
    """A file that is written from front to back, and hashed on its way.

    Attributes:
        sha256: The hash of what was written.
    """

    def __init__(self, file: BinaryIO):
        super().__init__()
        self.sha256 = hashlib.sha256()
        self._file = file

    def writable(self) -> bool:
        """Returns True: it can be written."""
        return True

    def write(self, contents) -> int:
        """Writes contents, all of them."""
        self.sha256.update(contents)
        return self._file.write(contents)


def read(
    folder: str | os.PathLike[str],
    saved: Mapping[str, str],
    keep: Callable[[str, np.ndarray], np.ndarray] = lambda path, array: array,
) -> tuple[Any, dict[str, np.ndarray]]:
    """Reads the contents of `write`, for `codec.decode`: a tree, and arrays.

    Memory holds the arrays alone, without the file's bytes.

    Args:
        folder: Folder of the file.
        saved: Record, from `write`.
        keep: Is given each array with its path in the value, before the next one is
            read, and returns the array that is to be kept for it.

    Raises:
        RunDirectoryError: If it is missing or damaged.
    """
    path = pathlib.Path(folder) / saved["file"]
    try:
        with run_files.reading(path) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != saved["sha256"]:
                raise ValueError("its contents have another SHA-256 than was recorded")
            file.seek(0)
            with np.load(file, allow_pickle=False) as entries:
                tree = json.loads(entries[_TREE].tobytes())
                paths = [path for path in entries if path != _TREE]
                return tree, {path: keep(path, entries[path]) for path in paths}
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise run_files.RunDirectoryError(
            f"{path} is damaged: {error}. Restore it, or begin a new run"
        ) from error


def last_arrays(run: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Returns the arrays of a run's last checkpoint, by their paths in the state.

    Raises:
        RunDirectoryError: If the run has no checkpoint, or it is damaged.
    """
    folder = pathlib.Path(run) / run_directory.CHECKPOINT_FILE
    _, checkpoint = run_directory.read_checkpoint(folder)
    state = checkpoint["state"]
    saved = state["state"] or state["finished"][-1]
    return read(folder.parent, saved)[1]


def keep_last(
    folder: run_files.RunFiles, pattern: str, keep: int, last: str | None
) -> None:
    """Deletes all but the last files of a pattern, in the order of their names.

    Args:
        folder: Folder of the files.
        pattern: The pattern of their names.
        keep: Number of files that stay, at least 1.
        last: The name of the one that was just written; what a killed run wrote after
            it goes, too. None where none was.
    """
    paths = sorted(folder.path.glob(pattern))
    ahead = [path for path in paths if last and path.name > last]
    rest = [path for path in paths if path not in ahead]
    for path in (*ahead, *rest[:-keep]):
        path.unlink()
