"""Large arrays spilled to disk until the next round needs them.

A noise tree has two vectors a node, each as large as the model: over hundreds of rounds
more than everything else in memory. Their file has no name and is deleted with the last
array that uses it, so a killed run leaves nothing behind.
"""

import mmap
from typing import Any, TypeVar

import numpy as np

from federated_hh.rounds import codec
from federated_hh.run_directory import files as run_files

T = TypeVar("T")
_LEAST_BYTES = 1 << 20
_ALIGNMENT = 64


def spilled(value: T, folder: run_files.RunFiles) -> T:
    """Returns a value whose large arrays are mapped from a file.

    Arrays that are already mapped stay in their file.

    Args:
        value: A dataclass, as for `codec`.
        folder: Folder of the file.

    Raises:
        RunDirectoryError: If the file cannot be written, as on a full disk.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = codec.encode(value, arrays)
    large = {
        name: np.ascontiguousarray(array)
        for name, array in arrays.items()
        if array.nbytes >= _LEAST_BYTES and not is_spilled(array)
    }
    if not large:
        return value
    offsets = {}
    with folder.nameless_file() as file:
        for name, array in large.items():
            offsets[name] = file.seek(-file.tell() % _ALIGNMENT, 1)
            file.write(array.data.cast("B"))
        file.flush()
        # Private: some file systems of users' own take no shared mapping.
        mapped = mmap.mmap(
            file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ
        )
    for name, array in large.items():
        flat = np.frombuffer(mapped, array.dtype, array.size, offsets[name])
        arrays[name] = flat.reshape(array.shape)
    return codec.decode(type(value), tree, arrays)


def is_spilled(array: Any) -> bool:
    """Returns whether an array, or the base of a view, is mapped from a file."""
    return file_of(array) is not None


def file_of(array: Any) -> mmap.mmap | None:
    """Returns the mapped file of an array; None of an array in memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, mmap.mmap) else None
