"""Tests of the study of learning, with small runs of the real program."""

import dataclasses
import json
import lzma
import math
import pathlib
import random
import re
from unittest import mock

import pandas as pd
from absl.testing import absltest

from federated_hh.files import tables, verified_files
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import blt, model_updates, tree_aggregation
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.randomness import noise_keys
from federated_hh.rounds import timers
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from studies import study, training_runs
from studies.xu_2023 import mechanisms as xu_2023
from tests import ROOT
from tests.studies import forked_training
from training.federated import mechanisms
from training.models import metric_names

_KEY = noise_keys.NoiseKey.of_seed(1)
_FLAGS = (
    "--vocabulary_size=100",
    "--num_units=6",
    "--embedding_size=4",
    "--num_held_out_clients=8",
    "--cohort_size=6",
    "--num_rounds=3",
    "--evaluate_every=2",
    "--max_sentences=4",
    "--num_blocks=1",
)


def _without_noise():
    plan = training_plan.plan_of(
        timers.Timers(num_clients=20, cohort_size=6, num_rounds=3),
        model_updates.NoNoise(num_rounds=3, clip_norm=math.inf),
    )
    statement = plan.statement(None, 1e-10)
    return json.loads(statement.to_json())


class StudyTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        folder = self.scratch / "data" / "blog-authorship"
        folder.mkdir(parents=True)
        draw = random.Random(1)
        self.lines = []
        for shard in range(2):
            lines = []
            for user in range(20):
                words = [draw.choice(("you", "see", "the", "time")) for _ in range(12)]
                post = {"user": f"{shard}-{user}", "text": " ".join(words) + "."}
                lines.append(json.dumps(post) + "\n")
            path = folder / f"posts-0{shard}-of-02.jsonl.xz"
            path.write_bytes(lzma.compress("".join(lines).encode()))
            self.lines += lines

    def test_the_posts_of_all_shards(self):
        cache = self.scratch / "cache"
        for _ in range(2):  # made, and found again
            path = xu_2023.posts_file(self.scratch / "data", cache)
            with lzma.open(path, "rt") as posts:
                self.assertEqual(posts.readlines(), self.lines)
        shards = (self.scratch / "data" / "blog-authorship").iterdir()
        sorted(shards)[1].write_bytes(lzma.compress(b"{}\n"))
        changed = xu_2023.posts_file(self.scratch / "data", cache)
        with lzma.open(changed, "rt") as posts:
            half = len(self.lines) // 2
            self.assertEqual(posts.readlines(), [*self.lines[:half], "{}\n"])
        with self.assertRaisesRegex(
            verified_files.PopulationError, "no file blog-authorship/posts"
        ):
            xu_2023.posts_file(cache, cache)

    def test_what_a_run_leaves(self):
        self.enter_context(forked_training.patched())
        tree, *rest, plain = xu_2023.SETTINGS
        made = xu_2023.prepare(
            "training_blogs",
            xu_2023.Options(str(self.scratch / "data")),
            seed=1,
            cache=self.scratch / "cache",
        )
        settings = [tree, next(s for s in rest if s.name == "blt")]
        flags = (*made.flags, *_FLAGS)
        made = dataclasses.replace(made, settings=settings, flags=flags)
        directory = run_directory.RunDirectory.create(
            self.scratch / "study",
            program="t",
            flags=(),
            facts=dict(made.data),
            noise_key=_KEY,
        )
        with directory:
            list(study.run(made, directory))
        path = directory.path / "dp_ftrl_repeat_1"
        before = (path / "run.json").stat().st_mtime_ns
        # As if killed between the end of training and the study's own checkpoint.
        (directory.path / run_directory.CHECKPOINT_FILE).unlink()
        directory = run_directory.RunDirectory.resume(
            directory.path, program="t", facts=dict(made.data), noise_key=_KEY
        )
        with directory:
            list(study.run(made, directory))
        self.assertEqual((path / "run.json").stat().st_mtime_ns, before)
        files = made.files({}, directory.path)
        for flags in (
            "--mechanism=dp_ftrl",
            "--mechanism=blt --noise_multiplier=1.2587",
        ):
            self.assertIn(f"`{flags}`", files[study.PAGE].decode())

        run = xu_2023.read_run(tree, path)
        none = xu_2023.Run(
            plain, run.metrics, run.baselines, _without_noise(), run.suggestions
        )
        files = xu_2023.files_of("A title", [run, none], ["Another note."])
        self.assertTrue(files["learning.png"].startswith(b"\x89PNG"))
        metrics = tables.read(path / "simulator" / "metrics.csv")
        table = tables.parse(files["runs.csv"].decode())
        for key in ("dp_ftrl", "fedavg"):
            pd.testing.assert_frame_equal(
                table[table["setting"] == key]
                .drop(columns="setting")
                .reset_index(drop=True),
                metrics,
            )
        text, last = files["table.md"].decode(), metrics.iloc[-1]
        for name in ("DP-FTRL", "FedAvg, not private"):
            self.assertIn(
                f"| {name} | {last['held_out_loss']:.3f} | "
                f"{last['held_out_top1_in_vocabulary']:.2%} | ",
                text,
            )
        beside = tables.read(path / "simulator" / "baselines.csv")
        self.assertEqual(tuple(beside["baseline"]), metric_names.NGRAMS)
        for row in beside.itertuples():
            self.assertIn(f"| {row.baseline} | {row.loss:.3f} |", text)
        self.assertIn("| none | none |", text)
        self.assertIn("* Another note.", text)
        guarantee, *_ = json.loads((path / "privacy.json").read_text())["guarantees"]
        (shown,) = re.findall(r"\| ([\d.]+) \(delta 1e-10\) \|", text)
        self.assertGreaterEqual(float(shown), guarantee["epsilon"])
        self.assertLess(float(shown), guarantee["epsilon"] + 0.0101)

    def test_runs_of_different_flags_are_not_compared(self):
        paths = {}
        for setting in xu_2023.SETTINGS:
            path = paths[setting] = self.scratch / setting.name
            (path / "simulator").mkdir(parents=True)
            record = run_record.new("t", setting.flags, {}, _KEY)
            (path / "run.json").write_text(json.dumps(record))
            (path / "simulator" / "facts.json").write_text('{"population": "1"}')
        self.assertLen(xu_2023.describe(paths), 3)
        flags = [*setting.flags, "--num_rounds=9"]
        record = run_record.new("t", flags, {}, _KEY)
        (path / "run.json").write_text(json.dumps(record))
        with self.assertRaisesRegex(ValueError, "runs of different flags or data"):
            xu_2023.describe(paths)

    def test_what_the_settings_spend(self):
        lines = (ROOT / "configs/training_blogs.flagfile").read_text().splitlines()
        common = dict(line.split("=") for line in lines if "=" in line)
        rounds = int(common["--num_rounds"])
        spent, noise = {}, {}
        for setting in xu_2023.SETTINGS[:-1]:
            flags = common | dict(flag.split("=") for flag in setting.flags)
            is_blt = flags["--mechanism"] == "blt"
            matrix = blt.optimal(rounds, min_separation=0, max_participation=1)
            found = mechanisms.BY_NAME[flags["--mechanism"]].make(
                num_rounds=rounds,
                clip_norm=float(flags["--clip_norm"]),
                noise_multiplier=float(flags["--noise_multiplier"]),
                adaptive_clip=None,
                restart_rounds=(),
                matrix=matrix if is_blt else None,
            )
            limits = plan_lib.Limits(1, rounds - 1)
            spent[setting.name] = found.zcdp(limits, rounds)
            if is_blt:
                noise[setting.name] = found.prefix_stddev(rounds)
        self.assertAlmostEqual(spent["dp_ftrl"], 6 / 8)
        self.assertAlmostEqual(spent["dp_ftrl_more_noise"], 6 / 72)
        self.assertAlmostEqual(spent["dp_fedavg"], 1 / 8)
        # The same epsilon, half the noise; and its noise for a quarter of rho.
        tree = 2 * tree_aggregation.largest_error([rounds])
        self.assertBetween(spent["blt"], 0.999 * 6 / 8, 6 / 8)
        self.assertAlmostEqual(noise["blt"] / tree, 0.5, places=3)
        self.assertAlmostEqual(spent["blt_less_epsilon"], 6 / 32, places=3)
        self.assertBetween(noise["blt_less_epsilon"], 0.999 * tree, tree)

    def test_a_run_that_fails(self):
        made = xu_2023.LearningStudy(
            flags=(
                f"--population={self.scratch / 'missing'}",
                "--clip_norm=1",
                *_FLAGS,
            ),
            cache=self.scratch,
        )
        directory = run_directory.RunDirectory.create(
            self.scratch / "fails", program="t", flags=(), facts={}, noise_key=_KEY
        )
        # Of no text nothing is begun; where a run fails, it is named.
        with directory:
            with self.assertRaisesRegex(ValueError, "population: .*/missing"):
                list(study.run(made, directory))
            self.assertEmpty(list(directory.path.glob("*/run.json")))
            self.enter_context(
                mock.patch.object(training_runs, "num_clients", return_value=100_000)
            )
            self.enter_context(forked_training.patched())
            with self.assertRaisesRegex(RuntimeError, "DP-FTRL .* exit code 2"):
                list(study.run(made, directory))


if __name__ == "__main__":
    absltest.main()
