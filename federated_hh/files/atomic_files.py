"""Files and directories that are either complete or absent.

A writer works on a `.<name>.partial` sibling of its target and renames it at the end; a
lock file `.<name>.lock` keeps writers of one target apart. The kernel drops a lock when
its holder dies, so a partial file without a lock was left by a killed process.
"""

import contextlib
import fcntl
import io
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO

from absl import logging

_PARTIAL_SUFFIX = ".partial"
_LOCK_SUFFIX = ".lock"


def _sibling(target: pathlib.Path, suffix: str) -> pathlib.Path:
    return target.with_name(f".{target.name}{suffix}")


def _try_lock(path: pathlib.Path, wait: bool) -> int | None:
    """Returns the descriptor of the locked file, or None if it is another's."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        # The last holder removes the file: a lock on a removed file locks nothing.
        try:
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


@contextlib.contextmanager
def locked(target: str | os.PathLike[str], purpose: str) -> Iterator[None]:
    """Holds the lock of a path; waits, and says so, while another process has it.

    Args:
        target: The path to write; it need not exist, its parent directory must.
        purpose: Purpose of the lock, such as "preparing the population".

    Yields:
        Nothing; the lock is held inside the `with` block.
    """
    path = _sibling(pathlib.Path(target), _LOCK_SUFFIX)
    descriptor = _try_lock(path, wait=False)
    if descriptor is None:
        logging.info("Waiting for another process that is %s (%s).", purpose, target)
        descriptor = _try_lock(path, wait=True)
    assert descriptor is not None, "what waits for a lock gets it"
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Gives an error of the system that names no file the name of one.

    The system names a file that cannot be opened, but not one that cannot be written.

    Args:
        path: File that the `with` block writes.
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


def sync(path: str | os.PathLike[str]) -> None:
    """Forces a file's contents, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def new_directory(
    target: str | os.PathLike[str], last: str | None = None
) -> Iterator[pathlib.Path]:
    """Makes a directory that appears under its name only when it is whole.

    Args:
        target: The directory to make. Missing parents are made too.
        last: Name of the file that its writer writes last.

    Yields:
        A temporary sibling to write into. It is renamed to `target` when the block
        ends normally and removed when it raises.

    Raises:
        FileExistsError: If `target` exists, possibly made by another process while
            this one waited for its lock.
        ValueError: If the block ended without the last file.
    """
    target = pathlib.Path(target).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target, "writing the same directory"):
        if target.exists():
            raise FileExistsError(f"{target} exists already and is not overwritten.")
        partial = _sibling(target, _PARTIAL_SUFFIX)
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        try:
            yield partial
            if last is not None and not (partial / last).exists():
                raise ValueError(f"{target} is incomplete: it lacks {last}.")
            for path in partial.rglob("*"):
                sync(path)
            sync(partial)
            os.rename(partial, target)
            sync(target.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def new_file(target: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Makes a file that appears under its name only when it is whole.

    Writers of one target must hold its lock (`locked`).

    Args:
        target: The file to make; replaced if it exists.

    Yields:
        A file to write into. It appears as `target` when the block ends normally, and
        is removed when it raises.

    Raises:
        OSError: If it cannot be written, as on a full disk; it names `target`.
    """
    target = pathlib.Path(target)
    partial = _sibling(target, _PARTIAL_SUFFIX)
    try:
        with naming(target):
            with open(partial, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.rename(partial, target)
            sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_file(target: str | os.PathLike[str], contents: bytes | memoryview) -> None:
    """Writes a file at once; see `new_file`.

    Args:
        target: The file to write; replaced if it exists.
        contents: Its bytes.
    """
    with new_file(target) as file:
        file.write(contents)


def remove_abandoned(parent: str | os.PathLike[str]) -> list[pathlib.Path]:
    """Removes the remains of killed writers from a directory.

    Args:
        parent: Directory with children that `new_directory` made.

    Returns:
        The abandoned temporary directories that were removed.
    """
    removed = []
    for partial in sorted(pathlib.Path(parent).glob(f".*{_PARTIAL_SUFFIX}")):
        lock = partial.with_name(partial.name.removesuffix(_PARTIAL_SUFFIX) + ".lock")
        descriptor = _try_lock(lock, wait=False)
        if descriptor is None:
            continue
        try:
            if partial.is_dir():
                shutil.rmtree(partial)
                removed.append(partial)
        finally:
            lock.unlink(missing_ok=True)
            os.close(descriptor)
    return removed


class Sink(io.RawIOBase):
    """A file that is written sequentially, and no more once a write has failed.

    A zip file that is not whole writes its end when it is collected, after the error
    that ended it has been told, and its file been closed.
    """

    def __init__(self, file: BinaryIO):
        super().__init__()
        self._file = file
        self._is_whole = True

    def writable(self) -> bool:
        """Returns True: it can be written."""
        return True

    def flush(self) -> None:
        """Does nothing, also once it is closed: the file's owner flushes it."""

    def write(self, contents: Any) -> int:
        """Writes contents, all of them, and returns how many bytes these are.

        Raises:
            OSError: If they cannot be written, the first time.
        """
        if self._is_whole and not self._file.closed:
            self._is_whole = False
            self._file.write(contents)
            self._is_whole = True
        return memoryview(contents).nbytes
