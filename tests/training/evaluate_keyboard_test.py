"""Tests of the flags of the keyboard's evaluation; `run_training_test` runs it."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest, parameterized

from federated_hh.populations import vocabulary
from federated_hh.populations.languages import words
from tests import ROOT, forked_programs
from training.models import exported_model, model


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
        (("--unkeyed_words=guess",), 2, "error: .*unkeyed_words"),
    )
    def test_flags_that_it_cannot_use(self, flags, code, message):
        self._refused(flags, code, message)

    def test_a_model_of_no_run_has_held_nobody_out(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "model"
        known = vocabulary.Vocabulary(["a", "b"])
        network = model.cifg_language_model(6, num_units=2, projection_size=2)
        exported_model.export(network, network.initial_weights(1), known, 3, path)
        message = f"error: --model={path}: none belongs to a run, .*--judges=all"
        said = self._refused((f"--model={path}",), 2, message)
        # Which takes long, of many clients.
        self.assertNotIn("Preparing", said)

    def test_words_are_cut_as_the_exported_model_was_trained(self):
        scratch = pathlib.Path(self.create_tempdir().full_path)
        known = vocabulary.Vocabulary(["e", "mail", "no"])
        network = model.cifg_language_model(7, num_units=2, projection_size=2)
        options = words.WordOptions(hyphens="part")
        of_run = network, network.initial_weights(1), known, 4, scratch / "model"
        exported_model.export(*of_run, options)
        (scratch / "rows.csv").write_text("user,text\na,e-mail no\nb,no e-mail\n")
        done = forked_programs.run(
            "evaluate_keyboard",
            *(f"--model={scratch / 'model'}", "--judges=all"),
            *(f"--population={scratch / 'rows.csv'}", f"--population_cache={scratch}"),
            f"--output_dir={scratch / 'run'}",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        flags = (scratch / "run/flags.txt").read_text().split()
        self.assertIn("--hyphens=part", flags)

    def _refused(self, flags, code, message):
        """Runs the program, and returns what it says."""
        output = pathlib.Path(self.create_tempdir().full_path) / "out"
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "training.evaluate_keyboard"),
                *(*flags, f"--output_dir={output}"),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        self.assertEqual(done.returncode, code)
        self.assertRegex(done.stderr.splitlines()[-1], message)
        self.assertFalse(output.exists())
        return done.stderr


if __name__ == "__main__":
    absltest.main()
