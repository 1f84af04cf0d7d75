"""Tests of the meter of time and memory, in processor seconds and bytes alone."""

import contextlib
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest

from benchmarks import resource_usage

_MEGABYTE = 2**20
# Does what it is told, a line at a time, and says when it has.
_CHILD = """
import mmap, sys, tempfile, time

def burn(seconds):
    end = time.process_time() + float(seconds)
    while time.process_time() < end:
        pass

def map_file(megabytes):
    file = tempfile.TemporaryFile()
    file.truncate(int(megabytes) << 20)
    kept.append(mmap.mmap(file.fileno(), 0))
    for place in range(0, len(kept[-1]), mmap.PAGESIZE):
        kept[-1][place] = 1

kept = []
told = {
    "burn": burn,
    "hold": lambda megabytes: kept.append(b"x" * (int(megabytes) << 20)),
    "map": map_file,
    "free": lambda _: kept.clear(),
}
for line in sys.stdin:
    what, number = line.split()
    told[what](number)
    print("done", flush=True)
"""


class _Child:
    """A process that waits for orders."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tell("free", 0)  # it has begun

    def tell(self, what, number):
        self._process.stdin.write(f"{what} {number}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _wait(is_reached):
    """Waits, without working, until something is so, or a minute has passed."""
    end = time.monotonic() + 60
    while not is_reached() and time.monotonic() < end:
        time.sleep(0.01)


def _seconds_between_looks(seconds):
    return mock.patch.object(resource_usage, "_SECONDS_BETWEEN_LOOKS", seconds)


class ResourceUsageTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(_seconds_between_looks(0.001))

    def child(self):
        return self.enter_context(contextlib.closing(_Child()))

    def test_watching_is_not_counted(self):
        start = time.process_time()
        with _seconds_between_looks(0), resource_usage.Usage() as usage:
            # All the while the meter looks, and nobody else does anything.
            _wait(lambda: time.process_time() - start > 0.5)
        of_meter = time.process_time() - start
        self.assertGreater(of_meter, 0.5)
        self.assertLess(usage.cpu_seconds, 0.3 * of_meter)

    def test_work_of_this_process(self):
        start = time.process_time()
        with resource_usage.Usage() as usage:
            while time.process_time() - start < 0.5:
                sum(range(1000))
        self.assertGreater(usage.cpu_seconds, 0.25)
        self.assertLess(usage.cpu_seconds, time.process_time() - start + 0.05)

    def test_work_of_a_child_within_the_block(self):
        child = self.child()
        child.tell("burn", 1)
        start = time.process_time()
        with resource_usage.Usage() as usage:
            child.tell("burn", 0.5)
        own = time.process_time() - start
        self.assertGreater(usage.cpu_seconds, 0.4)
        self.assertLess(usage.cpu_seconds, 0.75 + own)

    def test_work_of_a_child_that_has_ended(self):
        with resource_usage.Usage() as usage:
            child = _Child()
            child.tell("burn", 0.5)
            time.sleep(0.5)  # in which it is seen
            child.close()
        self.assertGreater(usage.cpu_seconds, 0.4)

    def test_memory_of_a_child(self):
        child = self.child()
        with resource_usage.Usage() as before:
            pass
        with resource_usage.Usage() as usage:
            child.tell("hold", 200)
            _wait(
                lambda: usage.peak_own_bytes > before.peak_own_bytes + 190 * _MEGABYTE
            )
            child.tell("free", 0)
        for name in ("peak_bytes", "peak_own_bytes"):
            more = getattr(usage, name) - getattr(before, name)
            self.assertBetween(more, 190 * _MEGABYTE, 260 * _MEGABYTE, name)

    def test_mapped_files_are_not_a_childs_own(self):
        child = self.child()
        with resource_usage.Usage() as before:
            pass
        with resource_usage.Usage() as usage:
            child.tell("map", 200)
            _wait(lambda: usage.peak_bytes > before.peak_bytes + 190 * _MEGABYTE)
        self.assertGreater(usage.peak_bytes - before.peak_bytes, 190 * _MEGABYTE)
        self.assertLess(usage.peak_own_bytes - before.peak_own_bytes, 60 * _MEGABYTE)


if __name__ == "__main__":
    absltest.main()
