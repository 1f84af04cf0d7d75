"""States of a run as files: the last state, and those of finished repeats.

A value becomes a tree that JSON can hold, and arrays by name (`encode`). It may hold
dataclasses, tuples, lists and mappings with words as keys, of None, bool, int, float,
str, bytes, enumerations and arrays of numbers. It is read with the types that the
dataclasses declare (`decode`).
"""

import collections
import collections.abc
import dataclasses
import enum
import hashlib
import json
import os
import pathlib
import types
import typing
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from federated_hh.files import atomic_files, json_files
from federated_hh.randomness import identities
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files

_PLAIN = (bool, int, float, str, type(None))
_MAPPINGS = (dict, collections.OrderedDict, collections.abc.Mapping)


def encode(value: Any, arrays: dict[str, np.ndarray], path: str = "") -> Any:
    """Returns a value's tree, and adds its arrays to `arrays` under their paths.

    Raises:
        TypeError: If there is something in it that cannot be saved.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {n: encode(getattr(value, n), arrays, _join(path, n)) for n in names}
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError(
                f"{path} is an array of objects; a state can hold only arrays of "
                "numbers"
            )
        if path in arrays:
            raise TypeError(f"{path} is a duplicate; names in a state have to differ")
        arrays[path] = value
        return path
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, np.generic):
        raise TypeError(f"{path} is a NumPy scalar; use int(...) or float(...)")
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            raise TypeError(f"{path} has keys that are not strings; use strings")
        return {n: encode(v, arrays, _join(path, n)) for n, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v, arrays, _join(path, i)) for i, v in enumerate(value)]
    raise TypeError(
        f"{path} is a {type(value).__name__}, which cannot be saved; use plain "
        "values, arrays and dataclasses"
    )


def decode(kind: Any, tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns the value whose `encode` gave a tree and arrays.

    Args:
        kind: Its type, as an annotation has it.
        tree: Tree, from `encode`.
        arrays: Arrays, from `encode`.

    Raises:
        ValueError: If they are of a value of another type.
    """
    try:
        return _decode(kind, tree, arrays)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the saved value is not a {kind}: {error!r}") from error


def _decode(kind: Any, tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if tree is None:
            return None
        (kind,) = (arg for arg in args if arg is not type(None))
        return _decode(kind, tree, arrays)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        if tree.keys() != set(names):
            raise ValueError(
                f"{kind.__name__} has {sorted(names)}; the saved value has "
                f"{sorted(tree)}"
            )
        return kind(**{n: _decode(hints[n], tree[n], arrays) for n in names})
    if kind is np.ndarray or origin is np.ndarray:
        return arrays[tree]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind[tree]
    if kind is bytes:
        return bytes.fromhex(tree)
    if origin is tuple:
        of = [args[0]] * len(tree) if args[-1] is Ellipsis else args
        return tuple(_decode(k, v, arrays) for k, v in zip(of, tree, strict=True))
    if origin is list:
        return [_decode(args[0], v, arrays) for v in tree]
    if origin in _MAPPINGS:
        make = collections.OrderedDict if origin is collections.OrderedDict else dict
        return make((n, _decode(args[1], v, arrays)) for n, v in tree.items())
    if kind in _PLAIN:
        allowed = (int, float) if kind is float else kind
        if not isinstance(tree, allowed):
            raise TypeError(f"{tree!r} is not a {kind.__name__}")
        return tree
    raise TypeError(f"{kind} cannot be read")


def freeze(value: Any) -> None:
    """Makes all arrays in a value read-only."""
    arrays: dict[str, np.ndarray] = {}
    encode(value, arrays)
    for array in arrays.values():
        array.flags.writeable = False


def digest(value: Any) -> bytes:
    """Returns SHA-256 of a value: 32 bytes."""
    arrays: dict[str, np.ndarray] = {}
    total = hashlib.sha256(identities.canonical(encode(value, arrays)).encode())
    for name, array in arrays.items():
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).data)
    return total.digest()


def _join(path: str, name: str | int) -> str:
    return f"{path}/{name}" if path else str(name)


_TREE = "tree"


def write(folder: run_files.RunFiles, name: str, value: Any) -> dict[str, str]:
    """Writes a value as a NumPy file: its arrays, and the rest as JSON.

    Arrays are written in parts, so memory holds no second copy.

    Returns:
        What `read` needs: the file's name and the SHA-256 of its contents.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = json.dumps(encode(value, arrays))
    with folder.new_file(name) as file:
        hashed = _HashedFile(file)
        arrays[_TREE] = np.frombuffer(tree.encode(), np.uint8)
        np.savez(hashed, **arrays)
    return {"file": name, "sha256": hashed.sha256.hexdigest()}


class _HashedFile(atomic_files.Sink):
    """A file that is written sequentially and hashed on the way.

    Attributes:
        sha256: Hash of the written bytes.
    """

    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.sha256 = hashlib.sha256()

    def write(self, contents) -> int:
        """Writes contents, all of them; see base class."""
        self.sha256.update(contents)
        return super().write(contents)


def read(
    folder: str | os.PathLike[str],
    saved: Mapping[str, str],
    keep: Callable[[str, np.ndarray], np.ndarray] = lambda path, array: array,
) -> tuple[Any, dict[str, np.ndarray]]:
    """Reads the contents of `write`, for `codec.decode`: a tree, and arrays.

    Memory holds only the arrays, not the file's bytes.

    Args:
        folder: Folder of the file.
        saved: Record, from `write`.
        keep: Function that gets each array with its path in the value, before the next
            one is read, and returns the array to keep instead.

    Raises:
        RunDirectoryError: If it is missing or damaged.
    """
    path = pathlib.Path(folder) / saved["file"]
    try:
        with run_files.reading(path) as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != saved["sha256"]:
                raise ValueError("its SHA-256 is not the recorded one")
            file.seek(0)
            with np.load(file, allow_pickle=False) as entries:
                text = entries[_TREE].tobytes()
                tree = json_files.parse(text, is_finite=False)
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
    folder: run_files.RunFiles,
    pattern: str,
    keep: int,
    last: str | None,
    is_due: Callable[[str], bool],
) -> None:
    """Deletes all but the last files of a pattern, in the order of their names.

    Args:
        folder: Folder of the files.
        pattern: The pattern of their names.
        keep: Number of files that stay, at least 1.
        last: Name of the file that was just written; later files of a killed run are
            deleted, too. None if there is none.
        is_due: Returns whether a name is of a file that an uninterrupted run writes,
            too. Another one stays only while it is the last, and takes no place.
    """
    paths = sorted(folder.path.glob(pattern))
    ahead = [path for path in paths if last and path.name > last]
    due = [path for path in paths if path not in ahead and is_due(path.name)]
    others = [p for p in paths if p not in ahead and p not in due and p.name != last]
    for path in (*ahead, *others, *due[:-keep]):
        path.unlink()
