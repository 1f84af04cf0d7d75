"""Large arrays that nobody needs before the next round, moved from memory to disk.

A noise tree has two vectors a node, each as large as the model: over hundreds of rounds
more than all else in memory. Their file has no name, and ends with the last array that
is of it; a killed run leaves nothing of it.
"""

import mmap
from typing import Any, TypeVar

import numpy as np

from federated_hh.rounds import codec
from federated_hh.run_directory import files as run_files

T = TypeVar("T")
_LEAST_BYTES = 1 << 20
_ALIGNMENT = 64


def parked(value: T, folder: run_files.RunFiles) -> T:
    """Returns a value as it is, but for its large arrays, which are mapped from a file.

    Those that are mapped from one already stay where they are.

    Args:
        value: A dataclass, as `codec` takes it.
        folder: Has the space.

    Raises:
        RunDirectoryError: If the file cannot be written, as on a full disk.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = codec.encode(value, arrays)
    large = {
        name: np.ascontiguousarray(array)
        for name, array in arrays.items()
        if array.nbytes >= _LEAST_BYTES and not is_parked(array)
    }
    if not large:
        return value
    places = {}
    with folder.nameless_file() as file:
        for name, array in large.items():
            places[name] = file.seek(-file.tell() % _ALIGNMENT, 1)
            file.write(array.data.cast("B"))
        file.flush()
        # Private: some file systems of users' own take no shared mapping.
        mapped = mmap.mmap(
            file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ
        )
    for name, array in large.items():
        flat = np.frombuffer(mapped, array.dtype, array.size, places[name])
        arrays[name] = flat.reshape(array.shape)
    return codec.decode(type(value), tree, arrays)


def is_parked(array: Any) -> bool:
    """Returns whether an array, or what it is a view of, is mapped from a file."""
    return file_of(array) is not None


def file_of(array: Any) -> mmap.mmap | None:
    """Returns the mapped file that an array is of; None where there is none."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, mmap.mmap) else None
