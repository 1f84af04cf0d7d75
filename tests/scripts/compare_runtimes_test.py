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
        lines = done.stdout.splitlines()[1:]
        found = {
            name: [line.split()[-2:] for line in lines if line.strip().startswith(name)]
            for name in ("TrieHH's votes", "LDP TrieHH's", "training", "evaluation")
        }
        for counts in ("TrieHH's votes", "LDP TrieHH's"):
            self.assertEqual(found[counts], [["0", "0"]])
        for trained in ("training", "evaluation"):
            [(difference, bound)] = found[trained]
            self.assertLessEqual(float(difference), float(bound))


if __name__ == "__main__":
    absltest.main()
