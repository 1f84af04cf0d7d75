"""Runs a program that is killed once it has written a file of its run.

    python -m tests.killed_program FILE MODULE FLAGS...

So it is killed at the same point however fast it is, and a small run will do. FILE is
a name without folders, such as checkpoint.jsonl.
"""

import os
import runpy
import signal
import sys

from federated_hh.run_directory import files


def main() -> None:
    """Runs the program that the second argument names."""
    _, last, module, *flags = sys.argv
    write = files.RunFiles.write_bytes

    def write_and_die(folder: files.RunFiles, name: str, contents: bytes) -> None:
        write(folder, name, contents)
        if name.rpartition("/")[2] == last:
            os.kill(os.getpid(), signal.SIGKILL)

    files.RunFiles.write_bytes = write_and_die
    sys.argv = [module, *flags]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
