"""Tests of progress: log lines without a terminal, a bar on one."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios

from absl.testing import absltest

from federated_hh.files import progress
from tests import ROOT

_PROGRAM = """
from absl import logging
from federated_hh.files import progress
logging.set_verbosity(logging.INFO)
progress._SECONDS_BETWEEN_LINES = 0.0
with progress.Progress("Counting sheep", 40, "sheep") as bar:
    for done in (10, 40):
        bar.set(done)
"""


class ProgressTest(absltest.TestCase):
    def _run(self, stderr):
        return subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env=dict(os.environ, PYTHONPATH=str(ROOT), TERM="dumb"),
            stderr=stderr,
            text=True,
            check=True,
        )

    def test_log_lines(self):
        errors = self._run(subprocess.PIPE).stderr
        self.assertIn("Counting sheep: 10 of 40 sheep (25%).", errors)
        self.assertIn("Counting sheep: 40 of 40 sheep (100%).", errors)
        self.assertNotIn("\r", errors)

    def test_a_bar_on_a_terminal(self):
        leader, follower = pty.openpty()
        rows_and_columns = struct.pack("HHHH", 24, 80, 0, 0)
        fcntl.ioctl(follower, termios.TIOCSWINSZ, rows_and_columns)
        try:
            self._run(follower)
            readable, _, _ = select.select([leader], [], [], 0)
            self.assertNotEmpty(readable)
            shown = os.read(leader, 1 << 16).decode()
        finally:
            os.close(leader)
            os.close(follower)
        self.assertIn("Counting sheep", shown)
        self.assertIn("\r", shown)
        self.assertNotIn("INFO", shown)

    def test_no_work(self):
        with progress.Progress("Nothing", 0, "B") as bar:
            bar.set(0)


if __name__ == "__main__":
    absltest.main()
