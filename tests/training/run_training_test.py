"""Tests of the training program as a user runs it; two run at a time."""

import concurrent.futures
import json
import pathlib

import numpy as np
import pandas as pd
from absl.testing import absltest

from tests import ROOT, forked_programs, run_directories
from training.federated import held_out

# Only for what hangs: a program takes 20 seconds where it has a core of its own.
_TIMEOUT_SECONDS = 600
_SMALL = (
    f"--flagfile={ROOT / 'configs' / 'training_demo.flagfile'}",
    "--num_clients=40",
    "--context_words=50",
    "--vocabulary_size=300",
    "--num_units=6",
    "--embedding_size=4",
    "--max_words=5",
    "--num_held_out_clients=8",
    "--cohort_size=5",
    "--num_rounds=7",
    "--noise_multiplier=0.5",
    "--allow_useless_noise",
    "--clip_norm=0.5",
    "--adaptive_clip",
    "--clipped_count_stddev=2",
    "--first_restart=2",
    "--evaluate_every=3",
    "--checkpoint_every=2",
    "--over_selection=1.5",
    "--drop_out=0.1",
    "--min_separation=1",
    "--max_participation=4",
    "--model_average=0.7",
    "--num_blocks=2",
)


def _run(module, *flags):
    done = forked_programs.run(module, *flags, timeout=_TIMEOUT_SECONDS)
    return done.returncode, done.stdout, done.stderr


def _run_all(*commands):
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        return list(executor.map(lambda command: _run(*command), commands))


_LAST = "simulator/repeat-000000.npz"


class RunTrainingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.flags = (*_SMALL, f"--population_cache={self.scratch / 'cache'}")

    def test_killed_and_resumed_to_the_same_result(self):
        whole, killed = self.scratch / "whole", self.scratch / "killed"
        command = ("training.run_training", *self.flags)
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            first = executor.submit(_run, *command, f"--output_dir={whole}")
            self.kill_after_a_checkpoint(
                forked_programs.Program(*command, f"--output_dir={killed}"), killed
            )
            code, output, errors = first.result()
        self.assertEqual(code, 0, errors)
        self.assertIn("Report: ", output)
        self.check_results(whole)
        (code, _, errors), prediction, evaluation = _run_all(
            (
                "training.run_training",
                "--resume",
                f"--output_dir={killed}",
                f"--population_cache={self.scratch / 'cache'}",
            ),
            (
                "training.predict_next_word",
                f"--model={whole}",
                "--num_words=2",
                "see you",
            ),
            (
                "training.evaluate_keyboard",
                f"--model={whole}",
                f"--output_dir={self.scratch / 'keyboard'}",
                "--num_resamples=100",
                f"--population_cache={self.scratch / 'cache'}",
            ),
        )
        self.check_evaluation(*evaluation, whole)
        self.assertEqual(prediction[0], 0, prediction[2])
        self.assertRegex(
            prediction[1], r"^see you \[\S+\] [\d.]+%\nsee you \[\S+\] [\d.]+%\n$"
        )
        self.assertEqual(code, 0, errors)
        self.assertRegex(errors, "Resuming repeat 1 after round [246]")
        self.assertIn("model/saved_model.pb", run_directories.untimed_files(whole))
        self.assertEqual(run_directories.differing(whole, killed), [])
        last = np.load(whole / _LAST)
        averages = [n for n in last.files if n.startswith("state/average/")]
        self.assertNotEmpty(averages)
        for name in averages:
            weights = last[name.replace("average", "weights")]
            self.assertGreater(np.abs(last[name] - weights).max(), 0)

    def check_evaluation(self, code, output, errors, path):
        self.assertEqual(code, 0, errors)
        self.assertIn("| one suggestion | ", output)
        scores = pd.read_csv(self.scratch / "keyboard" / "simulator" / "scores.csv")
        last = pd.read_csv(path / "simulator" / "metrics.csv").iloc[-1]
        ours = scores[scores["model"] == "whole"].set_index("metric")["value"]
        for name in ("loss", "one_suggestion", "three_suggestions"):
            self.assertAlmostEqual(ours[name], last[f"held_out_{name}"], places=5)
        beside = pd.read_csv(path / "simulator" / "baselines.csv")
        expected = beside[beside["baseline"] == "the best possible"].iloc[0]
        best = scores[scores["model"] == "the best possible"]
        best = best.set_index("metric")["value"]
        for name in ("loss", "one_suggestion", "top1_in_vocabulary"):
            self.assertAlmostEqual(best[name], expected[name])
        self.assertLess(best["loss"], ours["loss"])

    def kill_after_a_checkpoint(self, process, path):
        process.kill_once(
            (path / "simulator/checkpoint.jsonl").exists, _TIMEOUT_SECONDS
        )
        self.assertFalse((path / "privacy.json").exists())

    def check_results(self, path):
        self.assertEqual(
            json.loads((path / "run.json").read_text())["status"], "complete"
        )
        metrics = pd.read_csv(path / "simulator" / "metrics.csv")
        self.assertEqual(metrics["round"].tolist(), list(range(1, 8)))
        self.assertTrue(metrics["rho"].is_monotonic_increasing)
        evaluated = metrics["held_out_top1_in_vocabulary"].notna()
        self.assertEqual(metrics["round"][evaluated].tolist(), [3, 6, 7])
        # The clip norm that adapts changes after round 2 (from 0), the third.
        self.assertEqual(metrics["clip_norm"].nunique(), 2)
        self.assertEqual(metrics["clip_norm"][3], metrics["tracked_norm"][2])
        realised, planned = (
            json.loads((path / f"{name}.json").read_text())
            for name in ("privacy", "privacy_planned")
        )
        self.assertEqual((realised["basis"], planned["basis"]), ("realised", "planned"))
        least = realised["parameters"]["MinS (rounds strictly between)"]
        self.assertGreaterEqual(least, 1)
        self.assertEqual(planned["parameters"]["MinS (rounds strictly between)"], 1)
        self.assertEqual(planned["parameters"]["MaxP"], 4)
        self.assertLessEqual(realised["parameters"]["MaxP"], 4)
        guarantees = [s["guarantees"][0] for s in (realised, planned)]
        self.assertIn("with decay 0.7", (path / "report.html").read_text())
        self.assertLessEqual(guarantees[0]["rho"], guarantees[1]["rho"])
        self.assertEqual(guarantees[0]["rho"], metrics["rho"].iloc[-1])
        with np.load(path / _LAST) as arrays:
            taken = arrays["sampler_state/table/participations"]
        self.assertEqual(taken.sum(), 7 * 5)
        self.assertEqual(taken.max(), realised["parameters"]["MaxP"])
        beside = pd.read_csv(path / "simulator" / "baselines.csv")
        losses = dict(zip(beside["baseline"], beside["loss"], strict=True))
        self.assertLess(losses["the best possible"], losses["interpolated bigram"])
        made_of = dict(zip(beside["baseline"], beside["made_of"], strict=True))
        self.assertRegex(made_of["the best possible"], r"a loss of \d\.\d{4}, its ent")
        self.assertLess(
            losses["interpolated bigram"], losses["words by frequency alone"]
        )
        page = (path / "report.html").read_text()
        self.assertIn("<h2>Released model", page)
        truth = page.partition("The simulator's knowledge")[2]
        self.assertLess(truth.index("<img"), truth.index("<table"))
        for text in (
            "words by frequency alone",
            "interpolated trigram",
            "Kneser-Ney trigram",
            "Regret: loss minus that of the best possible",
            "zero-out",
            "--cohort_size=5",
            "--context_words=50",
        ):
            self.assertIn(text, page)
        for name in (
            "simulator/accuracy.png",
            "simulator/loss.png",
            "clip_norm.png",
            "zcdp.png",
        ):
            self.assertTrue((path / name).read_bytes().startswith(b"\x89PNG"))

    def test_clients_without_sentences(self):
        table = self.scratch / "a.csv"
        texts = ("???", "See you.", "How are you? See the sun.")
        rows = [f"u{i},{texts[i % 3]}\n" for i in range(60)]
        table.write_text("user,text\n" + "".join(rows))
        adaptive = ("--adaptive_clip", "--clipped_count_stddev=2", "--first_restart=2")
        fixed = [flag for flag in self.flags if flag not in adaptive]
        runs = {
            "worker": (*fixed, "--update_encoding=rotated"),
            "in_process": (
                *fixed,
                "--update_encoding=rotated",
                "--runtime=in_process",
            ),
            "adaptive": self.flags,
            "dropped": (*self.flags, "--empty_clients=drop"),
        }
        flags = (f"--population={table}", "--noise_multiplier=2", "--num_rounds=4")
        commands = [
            ("training.run_training", *of, *flags, f"--output_dir={self.scratch / n}")
            for n, of in runs.items()
        ]
        stated = {}
        for name, (code, _, errors) in zip(runs, _run_all(*commands), strict=True):
            self.assertEqual(code, 0, errors)
            self.assertIn(f"{32 if name == 'dropped' else 52} clients train", errors)
            metrics = pd.read_csv(self.scratch / name / "simulator/metrics.csv")
            self.assertFalse(metrics["non_finite_clients"].any())
            self.assertTrue(np.isfinite(metrics["held_out_loss"].iloc[-1]))
            found = json.loads((self.scratch / name / "privacy.json").read_text())
            stated[name] = {g["adjacency"]: g["rho"] for g in found["guarantees"]}
            with np.load(self.scratch / name / _LAST) as arrays:
                taken = arrays["sampler_state/table/participations"]
            self.assertEqual(taken.sum(), 4 * 5)
            if name != "dropped":
                clients = held_out.Clients.split(60, 8, 1).training
                self.assertGreater(taken[clients % 3 == 0].sum(), 0)
        for name in ("worker", "in_process"):
            self.assertEqual(stated[name]["emptied"], stated[name]["zero_out"])
        # sigma_b is 2, as is z: 1 + 3 / 4.
        emptied = stated["adaptive"]["emptied"]
        self.assertAlmostEqual(emptied, 1.75 * stated["adaptive"]["zero_out"])
        self.assertNotIn("emptied", stated["dropped"])

    def test_resampled_clients(self):
        """They train, and people are held out; a killed run resumes bit for bit."""
        table = self.scratch / "a.csv"
        lines = [f"u{i % 30},Are you {i} the one. See me.\n" for i in range(180)]
        table.write_text("user,text\n" + "".join(lines))
        flags = (f"--population={table}", "--resampled_clients=400")
        flags += ("--resampled_words=9", "--max_participation=1", "--min_separation=6")
        key = self.scratch / "key"
        key.write_text(f"{'0f' * 16}\n")
        flags += (f"--noise_key_file={key}",)
        command = ("training.run_training", *self.flags, *flags)
        whole, killed = self.scratch / "whole", self.scratch / "killed"
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            first = executor.submit(_run, *command, f"--output_dir={whole}")
            self.kill_after_a_checkpoint(
                forked_programs.Program(*command, f"--output_dir={killed}"), killed
            )
            code, output, errors = first.result()
        self.assertEqual(code, 0, errors)
        self.assertIn("of one of 30 people, drawn with replacement", output)
        self.assertIn("8 clients are held out", errors)
        page = (whole / "report.html").read_text()
        told = "says nothing about the people"
        self.assertGreaterEqual(page.count(told), 2)  # at the top, and the statement
        for name in ("privacy.md", "privacy_planned.md"):
            self.assertIn(told, (whole / name).read_text())
        resumed, evaluated, refused = _run_all(
            (
                *("training.run_training", "--resume", f"--output_dir={killed}"),
                f"--population_cache={self.scratch / 'cache'}",
            ),
            (
                *("training.evaluate_keyboard", f"--model={whole}"),
                *("--num_resamples=100", f"--output_dir={self.scratch / 'keyboard'}"),
                f"--population_cache={self.scratch / 'cache'}",
            ),
            ("training.run_training", *self.flags, "--resampled_clients=9"),
        )
        self.assertEqual(resumed[0], 0, resumed[2])
        self.assertEqual(run_directories.differing(whole, killed), [])
        self.assertEqual(evaluated[0], 0, evaluated[2])
        scores = pd.read_csv(self.scratch / "keyboard" / "simulator" / "scores.csv")
        loss = scores[(scores["model"] == "whole") & (scores["metric"] == "loss")]
        last = pd.read_csv(whole / "simulator" / "metrics.csv").iloc[-1]
        self.assertAlmostEqual(loss["value"].item(), last["held_out_loss"], places=5)
        self.assertEqual(refused[0], 2)
        self.assertRegex(refused[2], "error: --resampled_clients=9: .* a path")

    def test_an_epsilon_is_spent_and_sizes_follow_from_the_clients(self):
        table = self.scratch / "a.csv"
        lines = [f"u{i % 70},you see the time {i} times.\n" for i in range(140)]
        table.write_text("user,text\n" + "".join(lines))
        given = ("training.run_training", f"--population={table}", "--epsilon=8")
        given += (f"--population_cache={self.scratch / 'cache'}",)
        given += ("--num_held_out_clients=10", "--nodiurnal", "--timer_hours=0")
        small = ("--vocabulary_size=300", "--num_units=4", "--embedding_size=2")
        small += ("--num_rounds=6", "--max_words=4")
        other = self.scratch / "b.csv"
        lines = [f"u{i % 70},zwei drei vier {i} mal das sehen.\n" for i in range(140)]
        other.write_text("user,text\n" + "".join(lines))
        runs = {
            "refused": (),
            "other_words": (*small, "--cohort_size=20", f"--population={other}"),
            "spent": (*small, "--cohort_size=20"),
            "long_steps": (*small, "--server_learning_rate=1000"),
            "slowed": (*small, "--cohort_size=20", "--clip_norm=500"),
        }
        done = dict(
            zip(
                runs,
                _run_all(
                    *(
                        (*given, *flags, f"--output_dir={self.scratch / name}")
                        for name, flags in runs.items()
                    )
                ),
                strict=True,
            )
        )
        code, _, errors = done["refused"]
        self.assertEqual(code, 2, errors)
        self.assertRegex(
            errors, "Chosen for 60 training clients: --mechanism=blt --cohort_size="
        )
        self.assertRegex(errors, "error: the noise drowns this run: .*No setting saves")
        self.assertFalse((self.scratch / "refused").exists())
        code, _, errors = done["other_words"]
        self.assertEqual(code, 2, errors)
        self.assertRegex(errors, r"error: only 0\.7% of the typed words .*--vocabulary")
        code, _, errors = done["long_steps"]
        self.assertEqual(code, 2, errors)
        self.assertRegex(errors, "server_learning_rate=1000.0 is too high for this")
        code, _, errors = done["slowed"]
        self.assertEqual(code, 0, errors)
        self.assertRegex(errors, "this run: --server_learning_rate=0.0")
        code, shown, errors = done["spent"]
        self.assertEqual(code, 0, errors)
        self.assertIn("MinS 2, MaxP 2", errors)
        self.assertIn("Privacy: epsilon 8 at delta 1e-10", shown)
        stated = json.loads((self.scratch / "spent" / "privacy.json").read_text())
        (guarantee,) = (g for g in stated["guarantees"] if g["adjacency"] == "zero_out")
        self.assertAlmostEqual(guarantee["epsilon"], 8, places=5)

    def test_bad_input(self):
        table = self.scratch / "a.csv"
        table.write_text("user,text\n" + "".join(f"u{i},See you.\n" for i in range(40)))
        cases = (
            (("--clip_norm=1", "--population=no_such_file.csv"), "no_such_file.csv"),
            (
                (*self.flags, "--mechanism=fedavg"),
                "fedavg has no noise for estimating",
            ),
            (
                (*self.flags, f"--population={table}", "--min_separation=6"),
                "min_separation is 6.*at most 4",
            ),
            (
                (*self.flags, f"--vocabulary={table}", "--initial_bias=zero"),
                "has to begin with",
            ),
        )
        output = self.scratch / "bad"
        command = ("training.run_training", f"--output_dir={output}")
        results = _run_all(*((*command, *flags) for flags, _ in cases))
        for (_, regex), (code, _, errors) in zip(cases, results, strict=True):
            with self.subTest(regex):
                self.assertEqual(code, 2)
                self.assertRegex(errors.splitlines()[-1], f"error: .*{regex}")
        self.assertFalse(output.exists())

    def test_flags_that_it_cannot_use(self):
        cases = (
            ("--clip_norm=0", "--clip_norm=0: has to be a number in"),
            ("--context_strength=2", "--context_strength=2: has to be a number in"),
            ("--known_words=no_such_file", "Unknown command line flag 'known_words'"),
            ("--word_column=word", "Unknown command line flag 'word_column'"),
        )
        commands = (("training.run_training", *self.flags, flag) for flag, _ in cases)
        for (_, regex), (code, _, errors) in zip(
            cases, _run_all(*commands), strict=True
        ):
            with self.subTest(regex):
                self.assertEqual(code, 2)
                self.assertRegex(errors, f"^error: {regex}")


if __name__ == "__main__":
    absltest.main()
