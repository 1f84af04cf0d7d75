"""Files of arrays that belong to an exported model: whole or absent, and checked."""

import contextlib
import os
import pathlib
import zipfile
from collections.abc import Iterator, Mapping

import numpy as np

from federated_hh.files import atomic_files

# Errors of NumPy, JSON and zipfile for an empty, cut, edited or foreign file.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    NotImplementedError,
    zipfile.BadZipFile,
)


def write(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name as one file, whole or not at all.

    Args:
        path: The file; replaced if it exists.
        arrays: Arrays by name.

    Raises:
        OSError: If it cannot be written; it names the file.
    """
    with atomic_files.new_file(path) as file:
        np.savez(atomic_files.Sink(file), **arrays)


def find(model: str | os.PathLike[str], name: str) -> pathlib.Path | None:
    """Returns an exported model's file; None if there is none.

    Args:
        model: The exported model, or the directory of its run.
        name: The name of the file.
    """
    for folder in (pathlib.Path(model), pathlib.Path(model) / "model"):
        if (folder / name).exists():
            return folder / name
    return None


@contextlib.contextmanager
def reading(path: pathlib.Path, what: str, mend: str) -> Iterator[np.lib.npyio.NpzFile]:
    """Opens a file of arrays.

    Args:
        path: The file.
        what: Noun for the contents, such as "the n-grams of a model's text".
        mend: Remedy for a damaged file, a sentence.

    Yields:
        The arrays by name, inside the `with` block.

    Raises:
        ValueError: If the file is damaged, or the block raises `ValueError`.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except _UNREADABLE as error:
        raise ValueError(f"{path}, {what}, cannot be read: {error}. {mend}") from error
