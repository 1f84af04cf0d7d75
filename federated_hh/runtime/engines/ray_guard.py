"""Clears up after a program that uses Ray, however the program ends.

    python -I -S ray_guard.py FOLDER LINE

Ray ends a program without a word when its raylet or its head is lost, and a killed
program cannot end its cluster. The program's end closes the pipe that is this one's
standard input. A program that ends in order writes to it before; of any other the user
learns LINE. Either way no process is left that has a file in FOLDER open, nor FOLDER;
an empty FOLDER stands for another's cluster.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import sys
import time

_SECONDS_BETWEEN_LOOKS = 0.05
_MOST_SECONDS = 60.0


def main() -> None:
    """Runs as the module describes."""
    folder, line = sys.argv[1:]
    program = os.getppid()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    if not sys.stdin.buffer.read():
        with contextlib.suppress(OSError):  # a closed terminal
            os.write(2, f"{line}\n".encode(errors="surrogateescape"))
    deadline = time.monotonic() + _MOST_SECONDS
    while folder and time.monotonic() < deadline:
        users = _users(folder) - {program}
        if not users and not os.path.lexists(folder):
            return
        for process in users:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _users(folder: str) -> set[int]:
    """Returns the processes that have a file in a folder open."""
    found = set()
    for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # another user's, or ended
            if os.readlink(link).startswith(f"{folder}/"):
                found.add(int(link.parts[2]))
    return found


if __name__ == "__main__":
    main()
