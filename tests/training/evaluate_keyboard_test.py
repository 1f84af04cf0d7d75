"""Tests of the flags of the keyboard's evaluation; `run_training_test` runs it."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest, parameterized

import training

_ROOT = pathlib.Path(training.__file__).parent.parent


class EvaluateKeyboardTest(parameterized.TestCase):
    @parameterized.parameters(
        ((), 2, "error: give --model: directories of runs"),
        (
            ("--model=.", "--judges=all"),
            2,
            "error: --judges=all needs --population",
        ),
        (
            ("--model=a", "--compose_threshold=0.1"),
            2,
            "error: --compose_threshold=0.1: has to be at least --lowest_threshold=0.3",
        ),
        (("--touch_stddev=0",), 2, "error: --touch_stddev=0: has to be a number in"),
        (
            ("--model=.", "--layout=nowhere.json"),
            2,
            "error: layout is .*cannot be read",
        ),
        (("--model=no",), 2, "error: --model=.*no: there is no such directory"),
        (("--model=.",), 2, "error: --model=.*: none is of a run.*--judges"),
        (("--unkeyed_words=guess",), 2, "error: .*unkeyed_words"),
    )
    def test_flags_that_it_cannot_use(self, flags, code, message):
        output = pathlib.Path(self.create_tempdir().full_path) / "out"
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "training.evaluate_keyboard"),
                *(*flags, f"--output_dir={output}"),
            ],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        self.assertEqual(done.returncode, code)
        self.assertRegex(done.stderr.splitlines()[-1], message)
        self.assertFalse(output.exists())


if __name__ == "__main__":
    absltest.main()
