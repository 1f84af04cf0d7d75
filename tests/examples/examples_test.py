"""Tests of the examples, as a user runs them: by flags, in a program of their own."""

import json
import os

import numpy as np
import pandas as pd
from absl.testing import absltest

from examples import decaying_noise
from federated_hh.privacy import plan as plan_lib
from tests import ROOT, forked_programs

_ROOT = str(ROOT)


class ExamplesTest(absltest.TestCase):
    def run_algorithm(self, name, *flags, resume=None):
        path = resume or os.path.join(self.create_tempdir().full_path, "run")
        more = ("--resume",) if resume else (f"--algorithm=examples.{name}", *flags)
        flags = (*more, f"--output_dir={path}")
        return forked_programs.run("federated_hh.run_algorithm", *flags), path

    def check(self, name, *flags):
        done, path = self.run_algorithm(name, *flags)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        with open(os.path.join(path, "privacy.json")) as file:
            statement = json.load(file)
        self.assertEqual(statement["basis"], "realised")
        self.assertTrue(os.path.exists(os.path.join(path, "report.html")))
        return path, statement

    def test_histogram(self):
        path, statement = self.check(
            "histogram:Histogram",
            "--words=nonsenseword,of,the",
            "--num_clients=5000",
            "--cohort_size=4000",
            "--epsilon=3",
        )
        found = pd.read_csv(os.path.join(path, "words.csv")).set_index("word")
        # A report is right with probability e^3 / (e^3 + 3) = 0.87; the standard
        # deviation of an estimate of nobody is below 30, of "the" below 60.
        self.assertGreater(found.loc["the", "estimate"], 300)
        self.assertNotIn("nonsenseword", found.index)
        # The list's first word is not the result's: the largest estimate is.
        self.assertEqual(found.index[0], "the")
        self.assertTrue(found["estimate"].is_monotonic_decreasing)
        local = [each for each in statement["guarantees"] if not each["delta"]]
        self.assertEqual({each["epsilon"] for each in local}, {3.0})
        # The first one is of the sum, for a client.
        self.assertLess(statement["guarantees"][0]["epsilon"], 1.0)
        self.assertIn("Histogram", statement["mechanism"])

    def test_median_length(self):
        flags = ("--num_clients=9000", "--cohort_size=1500", "--epsilon=4")
        path, _ = self.check("median_length:MedianLength", *flags)
        metrics = pd.read_csv(os.path.join(path, "metrics.csv"))
        self.assertLen(metrics, 5)  # of 31 characters
        median = pd.read_csv(os.path.join(path, "median.csv"))["characters"][0]
        self.assertBetween(median, 2, 5)  # English
        # A seventh round would need more clients than there are.
        done, _ = self.run_algorithm(
            "median_length:MedianLength", "--num_clients=3000", "--cohort_size=1500"
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("the population has", done.stderr)

    def test_prefix_tree(self):
        flags = ("--num_clients=40000", "--cohort_size=6000", "--epsilon=8")
        path, _ = self.check("prefix_tree:PrefixTree", *flags)
        found = pd.read_csv(os.path.join(path, "heavy_hitters.csv"))
        self.assertContainsSubset(["the", "of", "and", "to"], found["word"])
        metrics = pd.read_csv(os.path.join(path, "metrics.csv"))
        # 28^2 candidates at first, and at most 20,000 later.
        self.assertEqual(metrics["characters"][0], 2)
        # Scores need no line of the algorithm's own: noise finds next to nothing.
        simulator = os.path.join(path, "simulator")
        (scored,) = pd.read_csv(os.path.join(simulator, "coverage.csv")).to_dict(
            "records"
        )
        self.assertEqual(scored["words_found"], len(found))
        self.assertGreaterEqual(scored["words_real"], 0.9 * len(found))
        self.assertTrue(os.path.exists(os.path.join(simulator, "scores.csv")))

    def test_decaying_noise(self):
        flags = ("--num_clients=60", "--num_rounds=3", "--cohort_size=5")
        path, statement = self.check(
            "decaying_noise:Training", *flags, "--vocabulary_size=150"
        )
        metrics = pd.read_csv(os.path.join(path, "metrics.csv"))
        np.testing.assert_allclose(metrics["noise_stddev"], [1.0, 0.9, 0.81])
        self.assertGreater(statement["guarantees"][0]["rho"], 0.5)

    def test_decaying_noise_costs_what_the_law_says(self):
        # A client in all three rounds: the sum of 1 / (2 z_r^2); in one, the last.
        noise = decaying_noise.DecayingNoise(
            num_rounds=3, clip_norm=1.0, noise_multiplier=2.0, decay=0.5
        )
        for most, expected in ((3, 1 / 8 + 1 / 2 + 2), (1, 2.0), (2, 2.5)):
            limits = plan_lib.Limits(most, 0)
            self.assertAlmostEqual(noise.zcdp(limits, 3), expected)

    def test_a_wrong_name(self):
        for name in ("histogram", "histogram:Missing", "missing:X", "histogram:State"):
            done, path = self.run_algorithm(name)
            self.assertEqual(done.returncode, 2, name)
            self.assertIn("--algorithm", done.stderr)
            self.assertNotIn("Traceback", done.stderr)
            self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    absltest.main()
