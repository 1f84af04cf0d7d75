"""Tests that both runtimes give the same counts, and nearly the same trained sums."""

import os
import pathlib
import subprocess
import sys

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).parents[2]


class CompareRuntimesTest(absltest.TestCase):
    def test_the_runtimes_agree(self):
        # It fails where a difference is larger than it may be.
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "scripts.compare_runtimes"),
                *("--num_clients=10000", "--num_rounds=2", "--training_clients=3"),
                "--num_units=4",
            ],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = {
            line.rpartition("  ")[0].strip()[:14]: line.split()[-2:]
            for line in done.stdout.splitlines()[1:]
        }
        self.assertEqual(rows["TrieHH's votes"], ["0", "0"])
        for name in ("training, exac", "evaluation"):
            difference, bound = map(float, rows[next(r for r in rows if r in name)])
            self.assertLessEqual(difference, bound)


if __name__ == "__main__":
    absltest.main()
