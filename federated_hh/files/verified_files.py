"""Files whose contents are checked before use: size, SHA-256 and allowed values.

Reading a large file costs seconds, so intact files are listed next to them, in
`.verified.json`, with device, inode, size and times of change. A file's entry is valid
only while all of these are the same.
"""

import dataclasses
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

from absl import logging

from federated_hh.files import json_files

NOTE_FILE = ".verified.json"
_CHUNK_BYTES = 8 << 20
_MAX_THREADS = 4  # more than that read no faster from a disk
_LARGE_BYTES = 1 << 30
# A file system's clock is coarse: a file that was changed within this time may change
# once more without another time of change.
_SETTLED_NS = 2_000_000_000
_WRITTEN = json_files.object_of({"size": json_files.SIZE, "sha256": json_files.SHA256})


class PopulationError(OSError, ValueError):
    """The data cannot be made into a population; the message has a remedy."""


class DamagedFileError(PopulationError):
    """A file differs from the one written; the message names it and the remedy."""


@dataclasses.dataclass(frozen=True)
class WrittenFile:
    """Size and digest of a file, from when it was written.

    Attributes:
        size: In bytes.
        sha256: The sha256 of its contents, in hexadecimal.
    """

    size: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Returns it as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "WrittenFile":
        """Reads the result of `to_json`.

        Raises:
            ValueError: If it gave no such thing.
        """
        json_files.check(value, _WRITTEN)
        return cls(**value)


def is_whole(value: Any) -> bool:
    """Returns whether a value is a whole number, at least 0 and below 2**63."""
    return type(value) is int and 0 <= value < 2**63


# Files found intact by this process, by directory.
_found_whole: dict[str, dict[str, WrittenFile]] = {}


def columns_in_use() -> dict[str, dict[str, dict[str, Any]]]:
    """Returns the raw columns that this process found intact, for others to verify.

    Returns:
        Results of `WrittenFile.to_json` by directory and name, without removed
        directories.
    """
    return {
        directory: {
            name: file.to_json()
            for name, file in files.items()
            if name.endswith(".bin")
        }
        for directory, files in _found_whole.items()
        if os.path.isdir(directory)
    }


# Takes a file's contents, chunk by chunk; raises ValueError where they cannot be.
ContentCheck = Callable[[memoryview], None]


def verify(
    directory: str,
    files: Mapping[str, WrittenFile],
    checks: Mapping[str, ContentCheck],
    remedy: str,
    inspect: Callable[[], None] = lambda: None,
) -> None:
    """Checks that files are as written; reads those not yet known to be intact.

    Args:
        directory: Absolute path of their directory.
        files: Written files by name.
        checks: Checks of files' contents by name, called with chunks of a multiple of 8
            bytes, except for the last chunk.
        remedy: Advice for a damaged file, as a clause.
        inspect: A check of all files together, called if one had to be read.

    Raises:
        DamagedFileError: If one is missing, shorter, longer or changed, or has invalid
            contents.
    """
    _verify(directory, files, checks, remedy, inspect)
    _found_whole.setdefault(directory, {}).update(files)


def _verify(
    directory: str,
    files: Mapping[str, WrittenFile],
    checks: Mapping[str, ContentCheck],
    remedy: str,
    inspect: Callable[[], None],
) -> None:
    states = {}
    for name, written in files.items():
        states[name] = _state(os.path.join(directory, name), written, remedy)
    notes = _read_notes(directory)
    known = {
        name: [*states[name], files[name].sha256]
        for name in files
        if notes.get(name) == [*states[name], files[name].sha256]
    }
    unread = [name for name in files if name not in known]
    if not unread:
        return
    total = sum(files[name].size for name in unread)
    if total >= _LARGE_BYTES:
        logging.info("Verifying %.1f GB in %s.", directory, total / 1e9)
    begun = time.time_ns()
    with futures.ThreadPoolExecutor(min(_MAX_THREADS, len(unread))) as pool:
        readings = [
            pool.submit(
                _read_whole,
                os.path.join(directory, name),
                files[name],
                checks.get(name),
                remedy,
            )
            for name in unread
        ]
        for reading in readings:
            reading.result()
    inspect()
    for name in unread:
        state = _state(os.path.join(directory, name), files[name], remedy)
        if state != states[name]:
            raise DamagedFileError(
                f"{os.path.join(directory, name)} changed while it was being verified; "
                "another program writes into it."
            )
        if max(state[-2:]) < begun - _SETTLED_NS:
            known[name] = [*state, files[name].sha256]
    _write_notes(directory, notes | known)


def _state(path: str, written: WrittenFile, remedy: str) -> list[int]:
    """Returns the marks that change with a file, after checking its size."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise DamagedFileError(
            f"{path} is missing or cannot be read ({error.strerror}), {written.size} "
            f"bytes were written; {remedy}."
        ) from None
    if found.st_size != written.size:
        raise DamagedFileError(
            f"{path} has {found.st_size} bytes, {written.size} bytes were written; "
            f"{remedy}."
        )
    return [
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    ]


def _read_whole(
    path: str, written: WrittenFile, check: ContentCheck | None, remedy: str
) -> None:
    """Reads a file and raises `DamagedFileError` if it differs from the one written."""
    digest = hashlib.sha256()
    wrong = None
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    try:
        with open(path, "rb") as file:  # readinto fills the buffer but at the end
            while size := file.readinto(buffer):
                digest.update(buffer[:size])
                if check is not None and wrong is None:
                    wrong = _error_of(check, buffer[:size])
    except OSError as error:
        raise DamagedFileError(
            f"{path} cannot be read: {error.strerror}; {remedy}."
        ) from error
    if digest.hexdigest() != written.sha256:
        raise DamagedFileError(
            f"{path} is damaged: its SHA-256 is {digest.hexdigest()[:16]}..., not "
            f"{written.sha256[:16]}... as written; {remedy}."
        )
    if wrong is not None:
        raise DamagedFileError(f"{path} is damaged: {wrong}; {remedy}.")


def _error_of(check: ContentCheck, chunk: memoryview) -> str | None:
    try:
        check(chunk)
    except ValueError as error:
        return str(error)
    return None


def _read_notes(directory: str) -> dict[str, Any]:
    """Returns the notes on files found whole; none if they cannot be read."""
    try:
        with open(os.path.join(directory, NOTE_FILE), "rb") as file:
            return json_files.parse(file.read(), json_files.OBJECT)
    except (OSError, ValueError):
        return {}


def _write_notes(directory: str, notes: Mapping[str, Any]) -> None:
    """Replaces the notes; without a right to write, files are read again next time."""
    temporary = None
    try:
        # Each of several processes has its own file, and the last one's is kept.
        with tempfile.NamedTemporaryFile(
            "w", dir=directory, prefix=NOTE_FILE, delete=False, encoding="utf-8"
        ) as file:
            temporary = file.name
            json.dump(notes, file)
        os.replace(temporary, os.path.join(directory, NOTE_FILE))
    except OSError as error:
        logging.info("%s is not written: %s.", NOTE_FILE, error)
        if temporary is not None and os.path.exists(temporary):
            os.remove(temporary)
