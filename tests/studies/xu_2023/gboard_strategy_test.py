"""Tests of section 2.5's steps: what experiments decide, and the run that follows."""

import dataclasses
import json
import pathlib
import re
import subprocess
from unittest import mock

import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.command_line import experiment_flags
from federated_hh.files import installation, tables
from federated_hh.options import option_flags
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from studies import study, training_runs
from studies.xu_2023 import gboard_flags, gboard_privacy
from studies.xu_2023 import gboard_strategy as strategy
from tests import forked_programs
from tests.studies import forked_training
from training.federated.options import TrainingOptions

_KEY = noise_keys.NoiseKey.of_seed(1)
_BASE = """# A tiny population.
--population=synthetic
--num_clients=330
--mean_words_per_client=20
--context_words=50
--vocabulary_size=100
--allow_unknown_words
--initial_bias=public
--num_units=4
--embedding_size=4
--max_words=3
--max_sentences=4
--num_held_out_clients=10
--num_blocks=1
--round_minutes=30
--nodiurnal
--cohort_size=9
--noise_multiplier=3
--max_participation=1
"""
# By learning rate, and by noise a client.
_LOSSES = {"rate": {0.5: 3.0, 1.0: 2.5, 2.0: 2.6}, "noise": {0.05: 2.0, 0.1: 2.03}}
_LOSSES["noise"][0.2] = 2.5

# What is more at a quantile.
_OF_QUANTILES = {"0_3": -0.2, "0_8": 0.1}

_STEPS = ("(1)", "(2)", "(3)", "(4)", "(5, 6)", "(7)")


class StrategyTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.base = self.scratch / "base.flagfile"
        self.base.write_text(_BASE)
        self.asked, self.diverging, self.changed = {}, set(), {}
        self.seeds = []

    def prepare(self, **options):
        values = dict(
            training_flagfile=str(self.base),
            largest_report_goal=60,
            target_rho=2.0,
            num_rounds=16,
            small_report_goal=6,
            server_learning_rates=("0.5", "1", "2"),
            noises_per_client=("0.05", "0.1", "0.2"),
        )
        options = strategy.Options(**values | options)
        return strategy.prepare("gboard_strategy", options, seed=3, cache="")

    def write_run(self, path, flags, cache, label):
        """Leaves what a finished run leaves."""
        del cache, label
        kind, _, number = path.name.removesuffix("_repeat_1").partition("_")
        number, _, quantile = number.partition("_quantile_")
        options = option_flags.read_lines(TrainingOptions, flags)
        self.asked[path.name] = options
        self.seeds += [int(f[7:]) for f in flags if f.startswith("--seed=")]
        loss = _LOSSES[kind][float(number.replace("_", "."))]
        loss += _OF_QUANTILES.get(quantile, 0)
        status = "complete" if path.name not in self.diverging else "running"
        (path / "simulator").mkdir(parents=True, exist_ok=True)
        record = run_record.new("t", flags, {}, _KEY) | {"status": status}
        if status == "complete":
            record["finished"] = "2026-01-01 00:00:00 +0000"
        record["schema_version"] = 4  # without a seal
        (path / "run.json").write_text(json.dumps(record))
        plan = {"num_clients": 320}
        plan |= {"population": "a1", "vocabulary": "b2", "begins_with": path.name}
        plan |= self.changed.get(path.name, {})
        (path / run_record.FACTS_FILE).write_text(json.dumps(plan))
        if path.name in self.diverging:
            raise training_runs.NotFiniteError("it would no longer be finite")
        metrics = {
            "round": range(1, 9),
            "held_out_loss": [9.0] * 7 + [loss],
            "clip_norm": options.clip_norm,
            # The last quarter has a median of 0.41237.
            "tracked_norm": [9.0] * 6 + [0.4, 0.42474],
        }
        (path / "simulator/metrics.csv").write_text(tables.write(pd.DataFrame(metrics)))

    def walk(self, made):
        directory = run_directory.RunDirectory.create(
            self.scratch / "study", program="t", flags=(), facts={}, noise_key=_KEY
        )
        with (
            directory,
            mock.patch.object(training_runs, "train", self.write_run),
            mock.patch.object(training_runs, "num_clients", return_value=320),
        ):
            (found,) = study.run(made, directory)
            return made.files(found, directory.path)

    def test_each_step(self):
        choose = mock.Mock(wraps=gboard_privacy.choose)
        made = self.prepare()
        with mock.patch.object(gboard_privacy, "choose", choose):
            files = self.walk(made)
        adapting, fixed = (
            self.asked["rate_2_quantile_0_5_repeat_1"],
            self.asked["noise_0_1_repeat_1"],
        )
        self.assertTrue(adapting.adaptive_clip)
        self.assertEqual((adapting.cohort_size, adapting.num_rounds), (6, 16))
        self.assertAlmostEqual(adapting.noise_multiplier, 0.05 * 6)
        # The least loss is at 1, and its run's norm is kept, to few digits.
        self.assertFalse(fixed.adaptive_clip)
        self.assertEqual((fixed.server_learning_rate, fixed.clip_norm), (1.0, 0.4124))
        self.assertAlmostEqual(fixed.noise_multiplier, 0.1 * 6)
        # 2.03 is within 2% of 2, and 2.5 is not.
        lines = files[strategy.FLAGFILE].decode().splitlines()
        final = option_flags.read_lines(
            TrainingOptions, [line for line in lines if line.startswith("--")]
        )
        self.assertAlmostEqual(final.noise_multiplier / final.cohort_size, 0.1)
        self.assertEqual((final.server_learning_rate, final.clip_norm), (1.0, 0.4124))
        self.assertFalse(final.diurnal)
        # What was simulated is what the final run has.
        simulated = made.decide(self.scratch / "study").choice.participation
        for name in ("timer_hours", "min_separation", "max_participation"):
            self.assertEqual(getattr(final, name), getattr(simulated, name))
        self.assertEqual(final.num_rounds, 16)
        # Who was held out in experiments judges nothing more.
        self.assertEqual({*self.seeds}, {3})
        self.assertIn("--seed=4", lines)
        # Whose clients come and go as was looked at.
        self.assertEqual(choose.call_args.kwargs["seed"], 4)
        # A flag once: what is decided is not there twice.
        names = [line.partition("=")[0] for line in lines]
        self.assertLen(set(names), len(names))
        page = files[study.PAGE].decode()
        for step in _STEPS:
            self.assertIn(f"**{step} ", page)
        self.assertIn("z = 0.1 m: the largest whose held-out loss is at most 2", page)
        told = " at quantile 0.5: "
        told = f"(0.5{told}3.0000; 1{told}2.5000; 2{told}2.6000). The clip"
        self.assertIn(told, page)
        self.assertIn(f"Report goal {final.cohort_size}, z = ", page)
        self.assertIn("Its seed is 4, which no experiment had", page)
        self.assertTrue(files["experiments.png"].startswith(b"\x89PNG"))

    def test_rate_and_quantile_are_tuned_together(self):
        quantiles = ("0.3", "0.5", "0.8")
        made = self.prepare(target_quantiles=quantiles)
        files = self.walk(made)
        asked = [o for name, o in self.asked.items() if name.startswith("rate")]
        self.assertEqual(
            [(o.target_quantile, o.server_learning_rate) for o in asked],
            [(q, rate) for q in (0.3, 0.5, 0.8) for rate in (0.5, 1.0, 2.0)],
        )
        found = made.decide(self.scratch / "study")
        self.assertEqual((found.server_learning_rate, found.target_quantile), (1, 0.3))
        page = files[study.PAGE].decode()
        self.assertIn("1 at quantile 0.3: 2.3000; ", page)
        self.assertIn("The clip norm is the 0.3 quantile of updates'", page)
        self.assertIn("The quantile is the least that was tried", page)
        lines = {(s.color, s.line) for s in made.settings}
        self.assertLen(lines, len(made.settings))

    def test_a_real_walk_and_its_final_run(self):
        # `reproduce_test` has the program of studies.
        results, cache = self.scratch / "results", str(self.scratch / "cache")
        options = strategy.Options(
            training_flagfile=str(self.base),
            largest_report_goal=12,
            target_rho=9,
            num_rounds=4,
            small_report_goal=4,
            server_learning_rates=("1",),
            noises_per_client=("0.1",),
        )
        arguments = experiment_flags.Arguments(
            output_dir=str(self.scratch / "walk"),
            resume=False,
            seed=5,
            noise_key=_KEY,
            flags=(),
        )
        made = strategy.prepare("gboard_strategy", options, seed=5, cache=cache)
        with forked_training.patched():
            study.perform(made, arguments, "t", results)
        page = (results / study.PAGE).read_text()
        for step in _STEPS:
            self.assertIn(f"**{step} ", page)
        # What was decided is what the experiments have measured.
        table = tables.read(results / "experiments.csv")
        self.assertEqual(
            table["setting"].tolist(), ["rate_1_quantile_0.5"] * 4 + ["noise_0.1"] * 4
        )
        adapting, fixed = table["clip_norm"][:4], table["clip_norm"][4:]
        self.assertEqual([*fixed], [strategy.clip_norm(table["tracked_norm"][:4])] * 4)
        self.assertNotIn(fixed.iloc[0], [*adapting])

        # The run that it describes: its guarantee is what the page says.
        run = self.scratch / "run"
        done = forked_programs.run(
            "training.run_training",
            f"--flagfile={results / strategy.FLAGFILE}",
            f"--output_dir={run}",
            f"--population_cache={cache}",
            "--allow_useless_noise",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads((run / "privacy_planned.json").read_text())
        guarantee, *_ = said["guarantees"]
        self.assertLessEqual(guarantee["rho"], 9)
        shown = float(re.search(r"zCDP ([\d.]+), epsilon", page)[1])
        self.assertBetween(shown - guarantee["rho"], 0, 1.1e-4)
        self.assertEqual("(an estimate;" in page, not guarantee["is_upper_bound"])
        realised = training_runs.read_privacy(run)
        self.assertLessEqual(realised["guarantees"][0]["rho"], guarantee["rho"])
        self.assertEqual(training_runs.read_num_clients(run), 320)
        self.assertIn("--seed=6", run_record.read(run)["flags"])

    @parameterized.parameters(
        ("-adaptive_clip\n-epsilon=1",),
        ("--flagfile={nested}",),
        ("-flagfile={nested}",),
    )
    def test_what_is_decided_does_not_survive_in_any_form(self, lines):
        nested = self.scratch / "nested.flagfile"
        nested.write_text("# More.\n--adaptive_clip=true\n-clip_norm=9\n--epsilon=1\n")
        self.base.write_text(_BASE + lines.format(nested=nested) + "\n")
        made = self.prepare()
        self.assertNotRegex(" ".join(made.lines), "adaptive|clip_norm|epsilon|nested")
        files = self.walk(made)
        self.assertFalse(self.asked["noise_0_1_repeat_1"].adaptive_clip)
        (self.scratch / "final").write_bytes(files[strategy.FLAGFILE])
        final = option_flags.read_lines(
            TrainingOptions, [f"--flagfile={self.scratch / 'final'}"]
        )
        self.assertFalse(final.adaptive_clip)
        self.assertEqual(final.clip_norm, 0.4124)

    def test_a_final_run_that_is_guaranteed_less_is_refused(self):
        made = self.prepare()
        files = self.walk(made)
        self.assertIn(b"\n--noadaptive_clip\n", files[strategy.FLAGFILE])
        found = made.decide(self.scratch / "study")
        less = dataclasses.replace(found.choice, rho=found.choice.rho * 0.999)
        with self.assertRaisesRegex(ValueError, "has a zCDP of .* decided on"):
            made.flagfile(dataclasses.replace(found, choice=less))

    def test_a_run_that_diverges_has_no_loss_and_ends_nothing(self):
        self.diverging = {"rate_1_quantile_0_5_repeat_1", "noise_0_1_repeat_1"}
        files = self.walk(self.prepare())
        # 1 had the least loss.
        self.assertEqual(self.asked["noise_0_2_repeat_1"].server_learning_rate, 2)
        page = files[study.PAGE].decode()
        told = (
            "; 1 at quantile 0.5: not finite; 2 at quantile 0.5: 2.6000), and is the "
        )
        self.assertIn(told, page)
        self.assertIn("z = 0.05 m: the largest whose", page)
        self.assertIn("| noise_0.1 | not finite |", page)
        table = tables.parse(files["experiments.csv"].decode())
        of_run = table[table["setting"] == "rate_1_quantile_0.5"]
        self.assertEqual(of_run["held_out_loss"].tolist(), [float("inf")])

    @parameterized.parameters("population", "vocabulary", "initial_model")
    def test_data_that_change_on_the_way(self, name):
        self.changed = {"rate_2_quantile_0_5_repeat_1": {name: "c3"}}
        # One that diverges counts, too.
        self.diverging = {"rate_2_quantile_0_5_repeat_1"}
        of = "quantile_0_5_repeat_1"
        regex = f"rate_2_{of} and .*rate_0_5_{of} differ in their {name}: "
        with self.assertRaisesRegex(ValueError, regex):
            self.walk(self.prepare())
        self.assertLen(self.asked, 3)

    def test_the_least_noise_diverges(self):
        self.diverging = {"noise_0_05_repeat_1"}
        with self.assertRaisesRegex(ValueError, "0.05 a client.*smaller --noises_per"):
            self.walk(self.prepare())

    def test_a_program_whose_model_is_not_finite(self):
        flags = [line for line in _BASE.splitlines() if line.startswith("--")]
        flags += ["--clip_norm=1", "--client_learning_rate=1e6", "--client_epochs=50"]
        path = self.scratch / "diverges"
        with (
            forked_training.patched(),
            self.assertRaisesRegex(training_runs.NotFiniteError, "run of it in"),
        ):
            training_runs.train(
                path, [*flags, "--num_rounds=3"], self.scratch / "cache", "it"
            )
        # The clients are counted in a run that did not end, too.
        self.assertEqual(training_runs.read_num_clients(path), 320)
        other = subprocess.CompletedProcess([], installation.FAILED)
        with (
            mock.patch.object(subprocess, "run", return_value=other),
            self.assertRaisesRegex(RuntimeError, "exit code 1; mend") as caught,
        ):
            training_runs.train(path, flags, "", "it")
        self.assertNotIsInstance(caught.exception, training_runs.NotFiniteError)

    @parameterized.parameters("--num_units\n4", "--", " --flagfile=a")
    def test_lines_that_are_no_flags(self, lines):
        self.base.write_text(_BASE + lines + "\n")
        with self.assertRaisesRegex(
            ValueError, "base.flagfile: a line is '.*has to be"
        ):
            self.prepare()

    def test_a_target_out_of_reach(self):
        files = self.walk(self.prepare(target_rho=0.01, initial_model="/some/model"))
        page = files[study.PAGE].decode()
        self.assertIn("is unachievable with noise in proportion", page)
        self.assertIn("Report goal 60, z = ", page)
        self.assertIn("All runs begin with /some/model", page)
        flagfile = files[strategy.FLAGFILE].decode()
        self.assertIn("--initial_model=/some/model\n", flagfile)
        self.assertNotIn("--initial_bias", flagfile)

    @parameterized.parameters(
        # A quarter of the rounds, and at least one of them.
        ([9, 9, 9, 9, 9, 9, 1, 3], 2.0),
        ([9, 9, 9, 1, 5, 3], 4.0),
        ([9, 0.123456], 0.1235),
        ([9, 9, 9, 9, 9, 9, 9, 9, 9, 2, 1, 100], 2.0),
    )
    def test_one_rounds_noise_is_no_clip_norm(self, tracked, expected):
        self.assertEqual(strategy.clip_norm(pd.Series(tracked)), expected)

    def test_noise_that_a_model_bears(self):
        losses = pd.Series({0.1: 2.0, 0.2: 2.1, 0.4: 1.9})
        # Luck with more noise is no reason.
        self.assertEqual(strategy.largest_noise(losses, 0.01), 0.1)
        self.assertEqual(strategy.largest_noise(losses, 0.05), 0.4)
        with self.assertRaisesRegex(ValueError, "no experiment has a finite"):
            strategy.best_adapting(pd.Series({(1.0, 0.5): float("nan")}))
        for loss in (float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "least, have a held-out loss"):
                strategy.largest_noise(pd.Series({0.1: loss, 0.2: 2.0}), 0.01)

    @parameterized.parameters(
        (
            dict(server_learning_rates=("2", "1")),
            "server_learning_rates=2,1: has to",
        ),
        (dict(noises_per_client=("0",)), "noises_per_client=0: has to be one to 5"),
        (
            dict(noises_per_client=("0.1", "1e9")),
            "times small_report_goal=6: a noise multiplier of 6e",
        ),
        (
            dict(noises_per_client=("0.0001", "0.1")),
            r"noises_per_client=0.0001,0.1 times small_report_goal=6: a noise "
            r"multiplier of 0.0006; it has to be a number in \[0.001, ",
        ),
        (
            dict(target_quantiles=("1",)),
            r"target_quantiles=1: has to be one to 3 .*1\)",
        ),
        (dict(target_quantiles=("0.5", "0.5")), "target_quantiles=0.5,0.5: has to"),
        (dict(small_report_goal=61), "small_report_goal=61: has to be at most"),
        (
            dict(training_flagfile="nowhere"),
            "training_flagfile=nowhere: cannot be",
        ),
    )
    def test_bad_options(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            self.prepare(**options)

    def test_a_flagfile_of_rotated_updates(self):
        self.base.write_text("--population=x\n--update_encoding=rotated\n")
        with self.assertRaisesRegex(ValueError, "adaptive clipping; leave it out here"):
            self.prepare()

    def test_a_flagfile_without_a_population(self):
        self.base.write_text("--num_units=4\n")
        with self.assertRaisesRegex(ValueError, "has no --population; give"):
            self.prepare()
        made = self.prepare(population="synthetic")
        self.assertIn("--population=synthetic", made.lines)

    def test_paths_mean_the_same_in_another_directory(self):
        self.base.write_text(
            "--population=here.csv\n--vocabulary=../words.txt\n--compare_with=a,b\n"
        )
        options = strategy.Options(
            training_flagfile=str(self.base),
            largest_report_goal=100,
            target_rho=1,
            num_rounds=9,
        )
        here = pathlib.Path.cwd()
        self.assertEqual(
            gboard_flags.given_lines(options),
            [
                f"--population={here / 'here.csv'}",
                f"--vocabulary={here.parent / 'words.txt'}",
                f"--compare_with={here / 'a'},{here / 'b'}",
            ],
        )

    def test_more_clients_than_there_are(self):
        made = self.prepare(largest_report_goal=400, target_rho=0.001)
        regex = "^--largest_report_goal=400: .* the population has 320"
        with self.assertRaisesRegex(ValueError, regex):
            self.walk(made)
        # It ends before the first run.
        self.assertEmpty(self.asked)

    def test_a_final_run_that_cannot_be(self):
        """Ends before the first run, too, though the population is large enough."""
        # At night few charge, so that a round of many never has them all.
        self.base.write_text(_BASE.replace("--nodiurnal\n", ""))
        regex = "^--largest_report_goal=300: .*300.* Begin a new study"
        with self.assertRaisesRegex(ValueError, regex):
            self.walk(self.prepare(largest_report_goal=300, target_rho=1e-5))
        self.assertEmpty(self.asked)

    def test_noise_beyond_what_a_run_can_have(self):
        regex = "noise_multiplier=.*Begin a new study .*--target_rho .now 1e-280"
        with self.assertRaisesRegex(ValueError, regex):
            self.walk(self.prepare(target_rho=1e-280))
        self.assertEmpty(self.asked)


if __name__ == "__main__":
    absltest.main()
