"""Directories for unix sockets, which only their user can enter.

A program that is killed cannot remove its directory. Each is locked by its program as
long as that lives, so that the next one removes those that nobody holds any more.
"""

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile

_PREFIX = "tff-worker-"
_LOCK = "lock"
_MAX_PARENT = 70  # characters; the kernel takes 107 bytes of a socket's path


class SocketDirectory:
    """A directory of this process.

    Attributes:
        path: Path of the directory.
    """

    def __init__(self):
        """Makes it, and removes what killed programs of this user left.

        Raises:
            OSError: If there is no place for it.
        """
        parent = _parent()
        _remove_abandoned(parent)
        # It has its name only when it is locked.
        made = pathlib.Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        self._lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.with_name(made.name.removeprefix("."))
        made.rename(self.path)

    def close(self) -> None:
        """Removes it; does nothing the second time."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _parent() -> pathlib.Path:
    candidates = (tempfile.gettempdir(), "/tmp", "/dev/shm")
    for parent in candidates:
        if len(os.fsencode(parent)) <= _MAX_PARENT and os.access(parent, os.W_OK):
            return pathlib.Path(parent)
    raise OSError(
        "there is no writable directory with a short name for a socket: tried "
        f"{', '.join(candidates)}; set TMPDIR"
    )


def _remove_abandoned(parent: pathlib.Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            if directory.stat().st_uid != os.geteuid():
                continue
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)
