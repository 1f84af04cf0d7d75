"""Tests of the files of the study of quality, of all seeds that are kept."""

import io
import pathlib
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from scripts.tables import quality_files, quality_results
from studies import training_runs
from training.models import metric_names

_SCORES = "loss,one_suggestion"
_NGRAMS = metric_names.NGRAMS
_SUGGESTION = "held_out_one_suggestion"
_HELD_OUT = "held_out_loss,held_out_one_suggestion"


class KeptFilesTest(parameterized.TestCase):
    @parameterized.parameters(*quality_files.FOLDERS)
    def test_they_show_the_runs_that_are_kept(self, folder):
        self.assertEqual(quality_files.differing(folder), {})

    @parameterized.parameters(*quality_files.FOLDERS)
    def test_runs_end_where_judges_found_them(self, folder):
        """Or the lines of n-grams were of other clients."""
        judged = quality_results.judged_by_seed(folder)
        compared = 0
        for seed, rounds in quality_results.rounds_by_seed(folder).items():
            last = rounds.groupby("setting").last()
            both = last.join(judged[seed], rsuffix="_of_round")
            # A model that has diverged has another loss with each rounding.
            both = both[both["loss"] < training_runs.DIVERGED]
            for setting, row in both.iterrows():
                with self.subTest(seed=seed, setting=setting):
                    loss, suggestion = row["held_out_loss"], row[_SUGGESTION]
                    np.testing.assert_allclose(loss, row["loss"], rtol=1e-6)
                    # Of some 70,000 places a few have two words of one score.
                    np.testing.assert_allclose(
                        suggestion, row["one_suggestion"], atol=1e-4
                    )
                compared += 1
        self.assertGreater(compared, 10)


class LevelTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        results = pathlib.Path(self.create_tempdir().full_path)
        patches = [
            mock.patch.object(module, "RESULTS", results)
            for module in (quality_files, quality_results)
        ]
        for patch in patches:
            self.enterContext(patch)
        self.folder = results / "xu_quality"
        # The judges of seed 2 are a nat harder than those of seed 1, and by 10 points.
        self._write("seed_1", 0.0, 0.0, [("fedavg", 5.5), ("dp_ftrl", 5.6)])
        self._write("seed_2", 1.0, -0.1, [("fedavg", 5.3)])
        # Another run of the same seed has the same n-grams.
        self._write(
            "seed_2_more",
            1.0,
            -0.1,
            [("fedavg", 9.0), ("dp_ftrl", 5.2), ("dp_fedavg", 99.0)],
        )

    def _write(self, name, harder, points, runs):
        folder = self.folder / name
        folder.mkdir(parents=True)
        rows = [f"{n},{6 - i + harder},{0.5 + points}" for i, n in enumerate(_NGRAMS)]
        rows += [f"central,{5 + harder},0.5", f"fedavg,{5.5 + harder},0.25"]
        text = "\n".join([f"model,{_SCORES}", *rows, ""])
        (folder / "judged.csv").write_text(text)
        rounds = [
            f"{setting},{number},{loss - number / 10 + harder},{0.25 + points}"
            for setting, loss in runs
            for number in (2, 4)
        ]
        # A round without an evaluation.
        text = "\n".join([f"setting,round,{_HELD_OUT}", *rounds, "fedavg,5,,", ""])
        (folder / "runs.csv").write_text(text)

    def test_judges_of_seeds_are_put_on_one_level(self):
        runs, beside = quality_files.on_level("xu_quality")
        found = {
            (row.setting, row.seed, row.round): (row.held_out_loss, row[-1])
            for row in runs.itertuples(index=False)
        }
        # The mean level: half a nat and 5 points from both.
        expected = {
            ("fedavg", 1, 2): (5.8, 0.2),
            ("fedavg", 1, 4): (5.6, 0.2),
            ("dp_ftrl", 1, 2): (5.9, 0.2),
            ("dp_ftrl", 1, 4): (5.7, 0.2),
            ("fedavg", 2, 2): (5.6, 0.2),
            ("fedavg", 2, 4): (5.4, 0.2),
            ("dp_ftrl", 2, 2): (5.5, 0.2),
            ("dp_ftrl", 2, 4): (5.3, 0.2),
        }
        self.assertEqual(found.keys(), expected.keys())
        for key, values in expected.items():
            np.testing.assert_allclose(found[key], values, err_msg=str(key))
        of_trigram = beside[beside["baseline"] == metric_names.KNESER_NEY]
        np.testing.assert_allclose(of_trigram["loss"], [3.5, 3.5])
        np.testing.assert_allclose(of_trigram["one_suggestion"], [0.45, 0.45])

    def test_files_have_the_means_over_seeds(self):
        made = quality_files.differing("xu_quality")
        table = pd.read_csv(io.BytesIO(made[self.folder / "learning.csv"]))
        self.assertEqual(
            [tuple(row) for row in table.itertuples(index=False)],
            [
                ("dp_ftrl", 2, 2, 5.7, 0.2),
                ("dp_ftrl", 4, 2, 5.5, 0.2),
                ("fedavg", 2, 2, 5.7, 0.2),
                ("fedavg", 4, 2, 5.5, 0.2),
            ],
        )
        models = pd.read_csv(io.BytesIO(made[self.folder / "models.csv"]))
        of_trigram = models.set_index("model").loc[metric_names.KNESER_NEY]
        self.assertEqual((of_trigram["seeds"], of_trigram["loss"]), (2, 3.5))
        self.assertEqual(of_trigram["loss_to_kneser_ney"], 0)
        pairs = pd.read_csv(io.BytesIO(made[self.folder / "differences.csv"]))
        row = pairs.iloc[0][["label", "loss", "one_suggestion"]]
        self.assertEqual([*row], ["trained centrally less FedAvg", -0.5, 0.25])
        picture = plt.imread(io.BytesIO(made[self.folder / "learning.png"]))
        self.assertGreater(picture.std(), 0.01)

    def test_what_is_kept_is_compared(self):
        made = quality_files.differing("xu_quality")
        self.assertLen(made, 4)
        for path, content in made.items():
            path.write_bytes(content)
        self.assertEqual(quality_files.differing("xu_quality"), {})
        runs = self.folder / "seed_1" / "runs.csv"
        runs.write_text(runs.read_text().replace("dp_ftrl,2,5.", "dp_ftrl,2,4."))
        self.assertLen(quality_files.differing("xu_quality"), 2)
        for path, content in quality_files.differing("xu_quality").items():
            path.write_bytes(content)
        (self.folder / "learning.png").unlink()
        self.assertLen(quality_files.differing("xu_quality"), 1)


if __name__ == "__main__":
    absltest.main()
