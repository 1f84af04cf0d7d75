"""Tests of the study of interaction: equal privacy, and what its tables say."""

import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from studies import study
from studies.mcmillan_2022 import analyses, report


def _runs(**measures):
    """Returns rows of runs, by analysis and way: a measure of each repeat."""
    rows = []
    for name, values in measures.items():
        analysis, _, approach = name.partition("__")
        measure, _ = report.MEASURES[analysis]
        rows += [
            {
                "setting": name,
                "repeat": repeat,
                "analysis": analysis,
                "data": f"{analyses.SYNTHETIC}, 500 devices",
                "approach": approach.replace("_", " "),
                "clients": 500,
                "queries": 1,
                "cells": 10,
                "aggregate_epsilon": 1.0,
                "delta": 1e-6,
                "local_epsilon": 6.0,
                "seconds": 0.5,
                measure: value,
            }
            for repeat, value in enumerate(values)
        ]
    return pd.DataFrame(rows)


class McMillanAnalysesTest(parameterized.TestCase):
    def test_all_ways_have_the_same_privacy_in_total(self):
        options = analyses.Options(
            client_numbers=("3000",), num_tokens=20, num_repeats=1, epsilon=2.0
        )
        folder = self.create_tempdir().full_path
        found = analyses.prepare("", options, seed=1, cache=f"{folder}/cache")
        self.assertLen(found.settings, 3 + 3 + 6)
        self.assertLen({study.part_name(s.name, 0) for s in found.settings}, 12)
        with run_directory.begin_or_resume(
            f"{folder}/run",
            resume=False,
            program="test",
            flags=(),
            facts={},
            noise_key=noise_keys.NoiseKey.of_seed(1),
        ) as directory:
            (tables,) = study.run(found, directory)
        runs = tables["runs"]
        self.assertLen(runs, 12)
        self.assertEqual(set(runs["aggregate_epsilon"].round(4)), {2.0})
        self.assertTrue((runs["delta"] <= 1e-6 * (1 + 1e-12)).all())
        one = runs[runs["approach"] != "interactive"]
        self.assertLessEqual(one["local_epsilon"].max(), 6.0)
        self.assertEqual(runs["popular_found"].notna().sum(), 6)
        self.assertEqual(runs["largest_error"].notna().sum(), 6)
        files = found.files(tables, directory.path)
        expected = {"ngrams.png", "joint.png", "distribution.png", "runs.csv"}
        self.assertEqual(files.keys(), expected | {"summary.csv", study.PAGE})

    def test_gains_are_over_the_best_static_way(self):
        summary = report.summarize(
            _runs(
                ngrams__interactive=[8, 12],
                ngrams__static=[4, 4],
                distribution__interactive=[0.01, 0.03],
                distribution__static_grid=[0.3, 0.5],
                distribution__static_fine_grid=[0.1, 0.1],
                joint__interactive=[3, 3],
                joint__static=[0, 0],
            )
        )
        gains = {name: report.gains(summary, name) for name in report.MEASURES}
        self.assertAlmostEqual(gains["ngrams"]["gain"][0], 2.5)
        self.assertAlmostEqual(gains["distribution"]["gain"][0], 5)
        self.assertTrue(gains["joint"]["gain"].isna()[0])
        page = report.page("Title", summary)
        # Student's t of one degree of freedom: 12.706 standard errors of 2.
        self.assertIn("| 10 ± 25 |", page)
        self.assertIn("0.02 against 0.1, 5.00 times", page)

    @parameterized.parameters("x", "99", "1e6", "100000000")
    def test_client_numbers(self, number):
        with self.assertRaisesRegex(ValueError, "client_numbers"):
            analyses.Options(client_numbers=(number,))


if __name__ == "__main__":
    absltest.main()
