"""Checkpoints of runs whose state is large: arrays beside the JSON checkpoint.

The arrays of a step go into a file of their own, written whole before the JSON
checkpoint that names it; so the two always fit, at whatever moment a run is killed.
"""

import hashlib
import io
import os
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from simulation import run_directory

_PATTERN = "checkpoint-*.npz"


def save(
    directory: run_directory.RunDirectory,
    step: int,
    state: Any,
    arrays: Mapping[str, np.ndarray],
    keep: int,
) -> None:
    """Saves a checkpoint and the metrics so far.

    Args:
        directory: The run's.
        step: From 0, in [0, 10**9): above that of every earlier checkpoint.
        state: A value that JSON can hold.
        arrays: Arrays by name, of numbers.
        keep: How many files of arrays stay, at least 1: this one and those before it.

    Raises:
        ValueError: If `keep` is below 1.
        RunDirectoryError: If they cannot be written; the last checkpoint stays good.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}, must be at least 1.")
    name = f"checkpoint-{step:09d}.npz"
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    contents = buffer.getbuffer()
    directory.simulator.write_bytes(name, contents)
    directory.save_checkpoint(
        {"arrays": name, "sha256": _sha256(contents), "state": state}
    )
    for path in sorted(directory.simulator.path.glob(_PATTERN))[:-keep]:
        path.unlink()


def load(
    directory: run_directory.RunDirectory,
) -> tuple[Any, dict[str, np.ndarray]] | None:
    """Returns the last checkpoint's state and arrays, or None; takes its metrics over.

    Raises:
        RunDirectoryError: If it is damaged.
    """
    checkpoint = directory.load_checkpoint()
    if checkpoint is None:
        return None
    return checkpoint["state"], read_arrays(directory.path, checkpoint)


def read_arrays(
    run: str | os.PathLike[str], checkpoint: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Returns the arrays of a checkpoint.

    Args:
        run: A run directory.
        checkpoint: The state of its checkpoint; see `run_directory.read_checkpoint`.

    Raises:
        RunDirectoryError: If they are damaged.
    """
    folder = (pathlib.Path(run) / run_directory.CHECKPOINT_FILE).parent
    path = folder / checkpoint["arrays"]
    try:
        contents = path.read_bytes()
        if _sha256(contents) != checkpoint["sha256"]:
            raise ValueError("its contents have another SHA-256 than was recorded")
        with np.load(io.BytesIO(contents), allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise run_directory.RunDirectoryError(
            f"{path} cannot be read: {error}. Restore it, or begin a new run"
        ) from error


def _sha256(contents: bytes | memoryview) -> str:
    return hashlib.sha256(contents).hexdigest()
