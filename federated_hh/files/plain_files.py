"""Regular files; a pipe, a device or an endless file is refused without waiting."""

import errno
import io
import os
import stat

# No recipe, policy, layout or key is as large.
_MOST_BYTES = 1 << 26


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Opens a file for reading.

    Raises:
        OSError: If it cannot be opened, or is no regular file; its `strerror` says
            which.
    """
    # A pipe without a writer would make `open` wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        what = "a directory" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise OSError(code, f"it is {what}; it has to be a regular file", str(path))
    return open(descriptor, "rb")


def read(path: str | os.PathLike[str]) -> bytes:
    """Returns the contents of a small file that a user names.

    Raises:
        OSError: See `open_regular`; or if it has more than 64 MiB.
    """
    with open_regular(path) as file:
        contents = file.read(_MOST_BYTES + 1)
    if len(contents) > _MOST_BYTES:
        raise OSError(errno.EFBIG, "it has more than 64 MiB", str(path))
    return contents


def read_text(path: str | os.PathLike[str], encoding: str = "utf-8-sig") -> str:
    """Returns the text of a small file that a user names.

    Raises:
        OSError: See `read`.
        UnicodeDecodeError: If it is not in the encoding.
    """
    return read(path).decode(encoding)
