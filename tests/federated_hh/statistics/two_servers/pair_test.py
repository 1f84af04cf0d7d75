"""Tests of the servers as processes: the same steps, and no process left behind."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import psutil
from absl.testing import absltest

from federated_hh.statistics.two_servers import pair
from tests import ROOT
from tests.federated_hh.statistics.two_servers import cases

_STARTS = """
import time
from federated_hh.statistics.two_servers import pair
from federated_hh.statistics.two_servers import server
with pair.ProcessPair() as both:
    both.step("open", *[server.Terms(0, 6, 3, key) for key in (1, 2)])
    print(*[process.pid for process in both.processes], flush=True)
    time.sleep(600)
"""


def _wait_for_end(pids):
    """Waits until processes have ended; returns those that have not."""
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=20
    )
    return alive


class ProcessPairTest(absltest.TestCase):
    def test_processes_do_what_servers_do_here(self):
        # More than pipes hold at once, in both directions.
        reports = cases.reports_of(3000, 100)
        with pair.ProcessPair() as both:
            found = []
            for servers in (both, cases.LocalPair()):
                batches = cases.Batches(100, minimum=3, servers=servers)
                for _ in range(2):
                    batches.open()
                    answers = batches.send(
                        batches.clients(reports), lambda a, b: (a[1:], [b"?", *b[:-1]])
                    )
                    found.append([a.refused for part in answers for a in part])
                    counts, accepted = batches.close()
                    expected = reports[1:-1].sum(axis=0)
                    np.testing.assert_array_equal(counts, expected)
                    self.assertEqual(accepted, 2998)
            self.assertEqual(found[:2], found[2:])
            pids = [process.pid for process in both.processes]
            self.assertLen({*pids, os.getpid()}, 3)
        self.assertEmpty(_wait_for_end(pids))

    def test_servers_need_no_tensorflow(self):
        with pair.ProcessPair() as both:
            # Until they have started, and answered.
            both.step("close")
            for process in both.processes:
                maps = pathlib.Path(f"/proc/{process.pid}/maps").read_text()
                self.assertIn("numpy", maps)
                self.assertNotIn("tensorflow", maps)

    def test_servers_end_with_the_program_that_is_killed(self):
        program = subprocess.Popen(
            [sys.executable, "-P", "-c", textwrap.dedent(_STARTS)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        pids = [int(pid) for pid in program.stdout.readline().split()]
        self.assertLen(pids, 2)
        # Ctrl-C at a terminal reaches them too; the program decides.
        for pid in pids:
            os.kill(pid, signal.SIGINT)
        time.sleep(0.2)
        self.assertTrue(all(psutil.pid_exists(pid) for pid in pids))
        os.kill(program.pid, signal.SIGKILL)
        self.assertEmpty(_wait_for_end(pids))
        _, errors = program.communicate()
        self.assertNotIn("Traceback", errors)

    def test_a_server_that_ends_is_an_error(self):
        with pair.ProcessPair() as both:
            batches = cases.Batches(servers=both)
            batches.open()
            both.processes[1].kill()
            both.processes[1].wait()
            with self.assertRaisesRegex(pair.ServerError, "has ended"):
                batches.send(batches.clients(cases.reports_of(9, 6)))
            pids = [process.pid for process in both.processes]
        self.assertEmpty(_wait_for_end(pids))

    def test_servers_that_do_not_run_are_an_error(self):
        with self.assertRaisesRegex(pair.ServerError, "no servers are running"):
            pair.ProcessPair().step("close")

    def test_other_steps_end_a_server(self):
        with pair.ProcessPair() as both, self.assertRaises(pair.ServerError):
            both.step("__init__", 0, 1)


if __name__ == "__main__":
    absltest.main()
