"""The files of run directories, for tests of equal bytes."""

import fnmatch
import os
import pathlib

from federated_hh.run_directory import directory as run_directory


def untimed_files(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """Returns a run's files but those that documents list, by name."""
    found = {}
    for file in pathlib.Path(path).rglob("*"):
        name = file.relative_to(path).as_posix()
        if file.is_file() and not any(
            fnmatch.fnmatch(name, pattern) for pattern in run_directory.DIFFERING_FILES
        ):
            found[name] = file.read_bytes()
    return found


def differing(path: str | os.PathLike[str], other: str | os.PathLike[str]) -> list[str]:
    """Returns the names of untimed files that are not the same in two runs."""
    one, two = untimed_files(path), untimed_files(other)
    return sorted(n for n in one | two if one.get(n) != two.get(n))
