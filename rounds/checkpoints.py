"""Values of a run as files: the last state, and those of finished repeats."""

import hashlib
import io
import json
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from rounds import codec
from simulation import run_directory, run_files

_TREE = "tree"


def to_bytes(value: Any) -> bytes:
    """Returns a value as a file of NumPy's: its arrays, and the rest of it as JSON."""
    arrays: dict[str, np.ndarray] = {}
    tree = json.dumps(codec.encode(value, arrays))
    buffer = io.BytesIO()
    np.savez(buffer, **{_TREE: np.frombuffer(tree.encode(), np.uint8)}, **arrays)
    return buffer.getvalue()


def write(folder: run_files.RunFiles, name: str, value: Any) -> dict[str, str]:
    """Writes a value.

    Returns:
        What `read` needs: the file's name and the SHA-256 of its contents.
    """
    contents = to_bytes(value)
    folder.write_bytes(name, contents)
    return {"file": name, "sha256": hashlib.sha256(contents).hexdigest()}


def read(
    folder: str | os.PathLike[str], saved: Mapping[str, str]
) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns what `write` wrote, as `codec.decode` takes it: a tree, and arrays.

    Raises:
        RunDirectoryError: If it is missing or damaged.
    """
    path = pathlib.Path(folder) / saved["file"]
    contents = run_files.read_bytes(path)
    try:
        if hashlib.sha256(contents).hexdigest() != saved["sha256"]:
            raise ValueError("its contents have another SHA-256 than was recorded")
        with np.load(io.BytesIO(contents), allow_pickle=False) as file:
            arrays = dict(file)
        return json.loads(arrays.pop(_TREE).tobytes()), arrays
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
        folder: Has them.
        pattern: The pattern of their names.
        keep: How many stay, at least 1.
        last: The name of the one that was just written; what a killed run wrote after
            it goes, too. None where none was.
    """
    paths = sorted(folder.path.glob(pattern))
    ahead = [path for path in paths if last and path.name > last]
    rest = [path for path in paths if path not in ahead]
    for path in (*ahead, *rest[:-keep]):
        path.unlink()
