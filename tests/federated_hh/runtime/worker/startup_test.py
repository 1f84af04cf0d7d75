"""Tests of what a program does before it imports TensorFlow."""

import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from federated_hh.runtime.worker import startup
from tests import ROOT


class SilenceTest(absltest.TestCase):
    def test_the_library_alone_is_silent_too(self):
        script = (
            "import os, sys; {before}from {package} import {module}; "
            "print(os.environ['TF_CPP_MIN_LOG_LEVEL'], 'tensorflow' in sys.modules)"
        )
        shown = "os.environ['TF_CPP_MIN_LOG_LEVEL'] = '0'; "
        for package, module, before, level in (
            ("federated_hh.randomizers", "k_ary", "", "3"),
            ("training.models", "cifg", "", "3"),
            ("federated_hh.randomizers", "k_ary", shown, "0"),
        ):
            code = script.format(package=package, module=module, before=before)
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={k: v for k, v in os.environ.items() if not k.startswith("TF_")},
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertEqual(done.stdout, f"{level} True\n")
            self.assertEqual("cpu_feature_guard" in done.stderr, level == "0")

    def test_messages_that_are_asked_for_come_back(self):
        for before, after in (("3", "0"), ("1", "1")):
            with mock.patch.dict(os.environ, TF_CPP_MIN_LOG_LEVEL=before):
                startup.show_tensorflow()
                self.assertEqual(os.environ["TF_CPP_MIN_LOG_LEVEL"], after)


class OneDnnTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.dict(os.environ))
        os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)

    def test_what_is_wanted(self):
        self.assertTrue(startup.onednn_is_used())  # as by pip's TensorFlow
        startup.use_onednn(False)
        self.assertFalse(startup.onednn_is_used())
        startup.use_onednn(True)
        startup.use_onednn(None)
        startup.silence_tensorflow()
        self.assertTrue(startup.onednn_is_used())
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "False"  # as TensorFlow reads it
        self.assertFalse(startup.onednn_is_used())

    def test_the_default_follows_the_processor(self):
        processors = pathlib.Path(self.create_tempfile().full_path)
        self.addCleanup(startup.processor.cache_clear)
        for features, expected in (
            ("avx512f avx512_bf16 amx_tile", True),
            ("avx512f avx512_vnni", False),
        ):
            processors.write_text(f"model name\t: X\nflags\t\t: {features}\n\nflags: ")
            os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)
            startup.processor.cache_clear()
            with mock.patch.object(startup, "_PROCESSORS", processors):
                startup.silence_tensorflow()
            self.assertEqual(startup.onednn_is_used(), expected)


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


_GENERATED = """
import os, tempfile, traceback
from federated_hh.runtime import runtime
import tensorflow as tf

tempfile.NamedTemporaryFile = None  # a kill may come before a file is removed

@tf.function
def fails(x):
    for i in tf.range(3):
        x = x + i
    raise KeyError(x.dtype.name)

try:
    fails(tf.constant(1))
except KeyError:
    print(traceback.format_exc())
print(os.listdir(tempfile.gettempdir()), flush=True)
os._exit(0)
"""


class GeneratedFilesTest(absltest.TestCase):
    def test_none_is_left_of_a_program_that_is_killed(self):
        scratch = self.create_tempdir()
        program = scratch.create_file("program.py", _GENERATED).full_path
        folder = scratch.mkdir("tmp").full_path
        environment = {"TMPDIR": folder, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, program],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        self.assertEqual(os.listdir(folder), [], done.stderr)
        self.assertEndsWith(done.stdout, "[]\n")
        self.assertIn("raise KeyError", done.stdout)


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
