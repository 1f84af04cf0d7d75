"""Tests of Figure 4: what the paper's text says, and runs counted by hand."""

import numpy as np
import pandas as pd
from absl.testing import absltest

from studies.xu_2023 import figure4


def _is_possible(population, goal, separation):
    """Returns whether rounds can go on for long, asking who waited longest."""
    last = np.full(population, -separation - 1)
    for number in range(5 * population):
        longest = np.argsort(last, kind="stable")[:goal]
        if (number - last[longest] - 1 < separation).any():
            return False
        last[longest] = number
    return True


class Figure4Test(absltest.TestCase):
    def test_a_client_of_one_round(self):
        # A leaf, and its nodes of 2, 4, ..., 1,024 of 2,000 rounds.
        found = figure4.point(
            rounds=2000, report_goal=500, population=10**7, delta=1e-10
        )
        self.assertEqual(found["max_participation"], 1)
        noise = 7 * 500 / 6500  # 0.54, says section 2.2
        self.assertAlmostEqual(found["noise_multiplier"], noise)
        self.assertAlmostEqual(found["rho"], 11 / (2 * noise**2))

    def test_the_largest_separation_needs_no_more_clients_than_there_are(self):
        # Section 2.2: below 153 for a million.
        self.assertEqual(figure4.largest_min_separation(10**6, 6500), 152)
        for population, goal in ((100, 10), (109, 10), (110, 10), (19, 10), (50, 7)):
            largest = figure4.largest_min_separation(population, goal)
            self.assertTrue(_is_possible(population, goal, largest))
            self.assertFalse(_is_possible(population, goal, largest + 1))

    def test_the_printed_numbers_of_table_1(self):
        models = pd.DataFrame(figure4.models(1e-10)).set_index("model")
        self.assertLen(models, 14)
        for row in models.drop(["en-US*"]).itertuples():
            self.assertEqual(f"{row.rho:.2f}", row.printed)
        # SecAgg's inflated clip norm is in what was printed.
        self.assertEqual(models.loc["en-US*", "printed"], "0.25")
        # The paper: 4.21M/6500, about 647 rounds from one to the next.
        self.assertEqual(models.loc["es-ES", "largest_min_separation"], 646)
        self.assertTrue((models["rho_at_largest"] <= models["rho"] + 1e-9).all())

    def test_files(self):
        study = figure4.prepare("xu_figure4", figure4.Options(), seed=1, cache="")
        rows = [
            row | {"setting": panel.name, "repeat": 0}
            for panel in study.settings
            for row in study.run_part(panel, 0, None)["curves"]
        ]
        files = study.files({"curves": pd.DataFrame(rows)}, None)
        for panel in study.settings:
            self.assertTrue(files[f"{panel.name}.png"].startswith(b"\x89PNG"))
        page = files["table.md"].decode()
        self.assertIn("| 6,500 | 7 |", page)
        self.assertIn("here at most 152", page)
        # More separation never costs more.
        curves = pd.DataFrame(rows)
        for _, line in curves[curves["setting"] == "figure_4c"].groupby("rounds"):
            self.assertTrue(line["rho"].is_monotonic_decreasing)


if __name__ == "__main__":
    absltest.main()
