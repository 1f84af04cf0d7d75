"""Tests of the study of secure aggregation's bits; what its runs leave is written."""

import json
import pathlib
from unittest import mock

import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.files import tables
from federated_hh.options import option_flags
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from studies import study, training_runs
from studies.xu_2023 import secagg
from training.federated import plans
from training.federated.options import TrainingOptions

_KEY = noise_keys.NoiseKey.of_seed(1)
_NUM_VALUES = 100


class SecAggTest(parameterized.TestCase):
    @parameterized.parameters("", "a", "2,1", "1,1", "0,5", "1,inf")
    def test_scales(self, scales):
        with self.assertRaisesRegex(ValueError, "scales=.*increasing numbers"):
            secagg.Options(scales=tuple(scales.split(",")))

    def test_the_papers_bits(self):
        found = secagg.of_the_paper().set_index("ratio")
        self.assertEqual(found["bits"].tolist(), [19, 20, 21, 21, 22, 25])
        self.assertAlmostEqual(found.loc[2.0, "norm_factor"], 1.0310, places=4)
        self.assertAlmostEqual(found.loc[3.5, "scale"], 18_889, delta=1)
        self.assertAlmostEqual(found.loc[50, "log2_modulus"], 24.20, places=2)

    def write_run(self, path, flags, cache, label):
        """Leaves what a finished run leaves, with the statement of its flags."""
        del cache, label
        options = option_flags.read_lines(
            TrainingOptions, [f for f in flags if "--seed" not in f]
        )
        plan = plans.plan(options, 500, _NUM_VALUES)
        (path / "simulator").mkdir(parents=True, exist_ok=True)
        record = run_record.new("t", flags, {}, _KEY) | {
            "status": "complete",
            "finished": "2026-01-01 00:00:00 +0000",
        }
        record["schema_version"] = 4  # without a seal
        (path / "run.json").write_text(json.dumps(record))
        facts = {"weights": {"a": [7, 10], "b": [30]}}
        (path / run_record.FACTS_FILE).write_text(json.dumps(facts))
        loss = 5 - 1e-4 * (options.rounding_scale or 1e4)
        row = {secagg._LOSS: loss, secagg._SUGGESTION: 0.1}
        metrics = pd.DataFrame([{"round": 1} | row | plan.contribution.metrics()])
        (path / "simulator" / "metrics.csv").write_text(tables.write(metrics))
        statement = plan.statement(None, options.delta)
        (path / "privacy.json").write_text(statement.to_json())

    def test_what_it_leaves(self):
        scratch = pathlib.Path(self.create_tempdir().full_path)
        made = secagg.prepare(
            "xu_secagg",
            secagg.Options(scales=("30", "1000"), num_rounds=3, cohort_size=20),
            seed=1,
            cache="",
        )
        directory = run_directory.RunDirectory.create(
            scratch / "study", program="t", flags=(), facts={}, noise_key=_KEY
        )
        self.enter_context(
            mock.patch.object(training_runs, "num_clients", return_value=100_000)
        )
        with directory, mock.patch.object(training_runs, "train", self.write_run):
            (found,) = study.run(made, directory)
            files = made.files(found, directory.path)
        summary = tables.parse(files["summary.csv"].decode()).set_index("setting")
        self.assertEqual([*summary.index], ["exact", "scale_30", "scale_1000"])
        # z = 1, in two nodes of a tree of three rounds. C = 0.5, D = 112: s C is 15,
        # and the square 225 + 28 + 15 + 5.3; 500, and 250,000 + 28 + 500 + 5.3.
        self.assertAlmostEqual(summary.loc["exact", "rho"], 1.0)
        self.assertAlmostEqual(summary.loc["scale_30", "rho"], 273 / 225, places=5)
        self.assertAlmostEqual(summary.loc["scale_1000", "rho"], 1.00213, places=5)
        # Of sums to 20 * 2^33; C_inf is ceil(13.4), and 20 * 2 * 14 is 560.
        self.assertEqual(summary.loc["exact", "bits"], 38)
        self.assertEqual(summary.loc["exact", "upload_bytes"], 475)
        self.assertEqual(summary.loc["scale_30", "bits"], 10)
        self.assertEqual(summary.loc["scale_30", "upload_bytes"], 140)
        page = files[study.PAGE].decode()
        self.assertIn("| s = 30 | 10 | 0 | 1.1015 | 1.2133 | 4.997 | 10.0% |", page)
        self.assertIn("| 10 | 1.00128 | 1.0026 | 296 | 21.9 | 22 | 7.2 |", page)
        self.assertTrue(files["tradeoff.png"].startswith(b"\x89PNG"))


if __name__ == "__main__":
    absltest.main()
