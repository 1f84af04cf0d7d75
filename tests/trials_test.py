"""A sample of the trials; `python -m tests.trials` tries the whole."""

import pathlib
import shutil
import subprocess
import tempfile

from absl.testing import absltest, parameterized

from tests import trials


class TrialsTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A new one: finished runs of older code are no reference.
        folder = pathlib.Path(tempfile.mkdtemp(prefix="trials_"))
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        cls.house = trials.House(folder, ("algorithm",))

    @parameterized.parameters(
        ("kills", 1),
        ("signals", 1),
        ("full_disk", 1),
        ("damaged_resumes", 1),
        ("damaged_runs", 30),
        ("damaged_populations", 4),
        ("custom_code", 1),
    )
    def test_trials_are_clean(self, kind, count):
        for number, result in trials.tried(self.house, kind, count):
            with self.subTest(f"{kind} {number}: {result.case}"):
                self.assertEqual(result.problem, "")

    def test_what_is_not_clean(self):
        def ended(code, errors):
            done = subprocess.CompletedProcess([], code, "", errors)
            return trials.fault(done, (0, 2))

        self.assertEqual(ended(2, "12:00 a line\nerror: --x is 3"), "")
        self.assertIn("traceback", ended(0, "Traceback (most recent call last):\nE"))
        self.assertIn("exit code 1", ended(1, "error: --x is 3"))
        self.assertIn("without a line", ended(2, ""))


if __name__ == "__main__":
    absltest.main()
