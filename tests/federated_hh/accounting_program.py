"""Runs the program of the accounting as a user does."""

import os
import subprocess
import sys

from tests import ROOT, forked_programs


def python(*arguments: str) -> subprocess.CompletedProcess:
    """Runs Python with this code, and returns how it ended."""
    path = os.pathsep.join([str(ROOT), *(part for part in sys.path if part)])
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )


def run(*arguments: str) -> subprocess.CompletedProcess:
    """Runs `federated_hh.run_accounting`, and returns how it ended."""
    program = forked_programs.Program(
        "federated_hh.run_accounting",
        *arguments,
        directory=ROOT,
        imports=forked_programs.ACCOUNTING,
    )
    return program.wait()
