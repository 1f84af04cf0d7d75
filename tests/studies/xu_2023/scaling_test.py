"""Tests of the study of noise and report goals; what stands for its runs is written."""

import json
import lzma
import math
import pathlib
from unittest import mock

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.files import tables
from federated_hh.options.fields import fields_of
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from studies import study, training_runs
from studies.xu_2023 import scaling
from training.federated import plans
from training.federated.options import TrainingOptions

_KEY = noise_keys.NoiseKey.of_seed(1)
_LOSS, _SUGGESTION = scaling._LOSS, scaling._SUGGESTION


def options_of(flags):
    """Returns the options of training that flags give, those of a flagfile too."""
    given = {}
    for flag in flags:
        name, _, value = flag.removeprefix("--").partition("=")
        if name == "flagfile":
            lines = pathlib.Path(value).read_text().splitlines()
            given |= vars_of(line for line in lines if line.startswith("--"))
        else:
            given |= vars_of([flag])
    fields = fields_of(TrainingOptions)
    return TrainingOptions(**{n: v for n, v in given.items() if n in fields})


def vars_of(flags):
    found = {}
    for flag in flags:
        name, equals, value = flag.removeprefix("--").partition("=")
        if not equals:
            name, value = name.removeprefix("no"), name[:2] != "no"
        field = fields_of(TrainingOptions).get(name)
        found[name] = field.kind(value) if field and equals else value
    return found


class ScalingTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.num_clients = 10_000

    def test_settings_differ_in_the_size_of_rounds_alone(self):
        made = scaling.prepare("xu_scaling", scaling.Options(), seed=5, cache="")
        found = [options_of((*made.flags, *s.flags)) for s in made.settings]
        self.assertEqual([o.cohort_size for o in found], [50, 50, 200, 200, 650, 650])
        for private, plain in zip(found[::2], found[1::2], strict=True):
            self.assertAlmostEqual(
                private.noise_multiplier / private.cohort_size, 7 / 6500
            )
            self.assertEqual(
                (private.mechanism, plain.mechanism), ("dp_ftrl", "fedavg")
            )
            self.assertEqual(private.clip_norm, plain.clip_norm)
            self.assertEqual((private.num_rounds, private.min_separation), (80, 79))
        # All of them have clients enough for every round of the largest.
        (clients,) = (f for f in made.flags if f.startswith("--num_clients="))
        needed = 80 * 650 + found[0].num_held_out_clients
        self.assertGreater(int(clients.partition("=")[2]), needed)

    @parameterized.parameters("", "a", "200,50", "50,50", "0,5", "1,2,3,4,5")
    def test_report_goals(self, goals):
        with self.assertRaisesRegex(ValueError, "report_goals=.*increasing integers"):
            scaling.Options(report_goals=tuple(goals.split(",")))

    def test_noise_that_no_run_can_have(self):
        regex = (
            "noise_per_client=1e-06 times a report goal: a noise multiplier of 2e-05"
        )
        with self.assertRaisesRegex(ValueError, regex):
            scaling.Options(report_goals=("20", "2000"), noise_per_client=1e-6)

    def write_run(self, path, flags, cache, label):
        """Leaves what a finished run leaves; its loss is its seed over its goal.

        Without noise, 1, 2 and 3 more.
        """
        del cache, label
        options = options_of(flags)
        (seed,) = (int(f[7:]) for f in flags if f.startswith("--seed="))
        (path / "simulator").mkdir(parents=True, exist_ok=True)
        record = run_record.new("t", flags, {}, _KEY) | {
            "status": "complete",
            "finished": "2026-01-01 00:00:00 +0000",
        }
        record["schema_version"] = 4  # without a seal
        (path / "run.json").write_text(json.dumps(record))
        plan = {"num_clients": self.num_clients}
        (path / run_record.FACTS_FILE).write_text(json.dumps(plan))
        loss = seed / options.cohort_size
        loss += (options.mechanism == "fedavg") * (seed - 9)
        metrics = pd.DataFrame(
            {"round": [1, 2], _LOSS: [9.0, loss], _SUGGESTION: [0.1, loss / 10]}
        )
        (path / "simulator" / "metrics.csv").write_text(tables.write(metrics))
        baseline = {"baseline": "a bigram", "loss": seed / 2}
        baseline[_SUGGESTION.removeprefix("held_out_")] = 0.05
        (path / "simulator" / training_runs.BASELINES).write_text(
            tables.write(pd.DataFrame([baseline]))
        )
        private = options.mechanism == "dp_ftrl"
        guarantee = {"rho": 2.5 if seed == 11 else 1.5, "epsilon": 9.0}
        statement = {"guarantees": [guarantee] if private else []}
        (path / "privacy.json").write_text(json.dumps(statement))

    def prepare_on_blogs(self, **options):
        folder = self.scratch / "blog-authorship"
        folder.mkdir()
        post = json.dumps({"user": "a", "text": "hello there"}) + "\n"
        (folder / "posts-00-of-01.jsonl.xz").write_bytes(lzma.compress(post.encode()))
        return scaling.prepare(
            "xu_scaling",
            scaling.Options(data_dir=str(self.scratch), **options),
            seed=1,
            cache=str(self.scratch / "cache"),
        )

    def test_bloggers_are_enough_for_the_defaults(self):
        made = self.prepare_on_blogs()
        found = [options_of((*made.flags, *s.flags)) for s in made.settings]
        self.assertEqual([o.cohort_size for o in found[::2]], [20, 75, 225])
        for options in found:
            # docs/results/xu_2023.md: 14,393 train.
            rule = plans.sampler(options, 14_393)
            self.assertEqual((rule.num_rounds, rule.max_participation), (63, 1))

    def test_too_few_clients_are_found_out_before_the_first_run(self):
        made = self.prepare_on_blogs(report_goals=("50", "200", "650"), num_rounds=80)
        directory = run_directory.RunDirectory.create(
            self.scratch / "study", program="t", flags=(), facts={}, noise_key=_KEY
        )
        # One blogger, of whose text nothing stands for.
        with directory, mock.patch.object(training_runs, "train") as trained:
            regex = "0 clients train, is not enough for '50 clients, .* Begin a new"
            with self.assertRaisesRegex(ValueError, regex):
                list(study.run(made, directory))
        trained.assert_not_called()

    def test_more_clients_than_there_is_room_for(self):
        options = scaling.Options(report_goals=("50", "20000000"), num_rounds=100)
        made = scaling.prepare("xu_scaling", options, seed=1, cache=self.scratch)
        regex = "^--report_goals and --num_rounds: .* 2,000,001,000 clients .* takes"
        with self.assertRaisesRegex(ValueError, regex):
            made.check_clients()

    def test_a_population_that_is_enough_for_some(self):
        made = self.prepare_on_blogs(report_goals=("50", "200", "650"), num_rounds=80)
        regex = "14,393 clients train, is not enough for '200 clients, "
        with self.assertRaisesRegex(ValueError, regex):
            training_runs.check_participation(14_393, made.flags, made.settings)
        training_runs.check_participation(80 * 650, made.flags, made.settings)

    def test_what_it_leaves(self):
        made = scaling.prepare(
            "xu_scaling",
            scaling.Options(report_goals=("2", "4"), num_repeats=3),
            seed=10,
            cache="",
        )
        directory = run_directory.RunDirectory.create(
            self.scratch / "study", program="t", flags=(), facts={}, noise_key=_KEY
        )
        self.enter_context(
            mock.patch.object(training_runs, "num_clients", return_value=100_000)
        )
        with directory, mock.patch.object(training_runs, "train", self.write_run):
            # After each repeat, what is known so far.
            for repeat, found in enumerate(study.run(made, directory)):
                files = made.files(found, directory.path)
                summary = tables.parse(files["summary.csv"].decode())
                self.assertEqual(set(summary["repeats"]), {repeat + 1})
        names = ["dp_ftrl_2", "fedavg_2", "dp_ftrl_4", "fedavg_4"]
        self.assertEqual(summary["setting"].tolist(), names)
        np.testing.assert_allclose(summary["loss"], [5.5, 7.5, 2.75, 4.75])
        low, high = stats.t.interval(0.95, 2, 5.5, stats.sem([5, 5.5, 6]))
        self.assertAlmostEqual(2 * summary["loss_half"][0], high - low)
        # Repeat by repeat: of -1, -2 and -3; nothing of those without noise.
        np.testing.assert_allclose(summary["noise_costs"], [-2, np.nan] * 2)
        half = stats.t.ppf(0.975, 2) / math.sqrt(3)
        np.testing.assert_allclose(summary["noise_costs_half"], [half, np.nan] * 2)
        self.assertEqual(summary["rho"].tolist(), [2.5, math.inf, 2.5, math.inf])
        page = files[study.PAGE].decode()
        loss = r"5\.500 ± 1\.242 \| -2\.0000 ± 2\.4841"
        self.assertRegex(page, rf"\| 2 clients, z = 0\.00215 \| 3 \| {loss} \|")
        self.assertIn("| 4 clients, no noise | 3 | 4.750 ± ", page)
        self.assertIn("| a bigram | | 5.500 | | 5.00% | |", page)
        self.assertTrue(files["scaling.png"].startswith(b"\x89PNG"))
        self.assertLen(tables.parse(files["runs.csv"].decode()), 4 * 3 * 2)


if __name__ == "__main__":
    absltest.main()
