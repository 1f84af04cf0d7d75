"""Tests of what a program does before it imports TensorFlow."""

import os
import subprocess
import sys

from absl.testing import absltest

from federated_hh.runtime.worker import startup


class SilenceTest(absltest.TestCase):
    def test_keeps_what_the_user_set(self):
        before = dict(os.environ)
        try:
            os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
            startup.silence_tensorflow()
            self.assertEqual(os.environ["TF_CPP_MIN_LOG_LEVEL"], "0")
        finally:
            os.environ.clear()
            os.environ.update(before)


class OneDnnTest(absltest.TestCase):
    def test_it_is_off_unless_it_is_wanted(self):
        before = dict(os.environ)
        try:
            os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)
            self.assertTrue(startup.onednn_is_used())
            startup.silence_tensorflow()
            self.assertFalse(startup.onednn_is_used())
            startup.use_onednn()
            self.assertTrue(startup.onednn_is_used())
            os.environ["TF_ENABLE_ONEDNN_OPTS"] = "False"  # as TensorFlow reads it
            self.assertFalse(startup.onednn_is_used())
        finally:
            os.environ.clear()
            os.environ.update(before)


# Interrupts itself in a callback of the garbage collector, twice. The first interrupt
# comes again so late that on a slow machine, too, there has been a second one.
_INTERRUPTED = """
import gc, os, signal, time
from federated_hh.runtime.worker import startup
signal.signal(signal.SIGINT, signal.default_int_handler)
startup._SECONDS_TO_NEXT_INTERRUPT = 2.0
startup.keep_interrupts()
interrupts = 2

def callback(*_):
    global interrupts
    if interrupts:
        interrupts -= 1
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

gc.callbacks.append(callback)
try:
    gc.collect()
    time.sleep(20)
except KeyboardInterrupt:
    print("interrupted", interrupts)
"""


def _run(program: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )


class KeepInterruptsTest(absltest.TestCase):
    def test_an_interrupt_in_a_callback_is_not_lost(self):
        done = _run(_INTERRUPTED)
        self.assertEqual(done.stdout, "interrupted 0\n", done.stderr)

    def test_another_lost_exception_is_reported(self):
        done = _run(
            "from federated_hh.runtime.worker import startup\n"
            "startup.keep_interrupts()\n"
            "class Broken:\n"
            "    def __del__(self): raise ValueError('no more')\n"
            "Broken()\n"
        )
        self.assertIn("ValueError: no more", done.stderr)


if __name__ == "__main__":
    absltest.main()
