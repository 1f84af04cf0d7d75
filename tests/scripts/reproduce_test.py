"""Tests of studies from the command line, killed in the middle of a setting too."""

import json
import pathlib
import shutil

from absl.testing import absltest, parameterized

from federated_hh.files import tables
from tests import forked_programs

_SMALL = (
    "--study=oov_table1",
    "--scale=1e-4",
    "--num_repeats=1",
    "--max_depth=2",
    "--max_prefixes=20",
    "--contribution_bound=5",
    "--mean_words_per_client=100",
    # Words of a short list are prepared in no time.
    "--vocabulary_size=1000",
)


class ReproduceTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)

    def start(self, *flags):
        return forked_programs.Program(
            "scripts.reproduce", *flags, directory=self.scratch
        )

    def finish(self, *flags):
        done = forked_programs.run("scripts.reproduce", *flags, directory=self.scratch)
        return done.returncode, done.stdout, done.stderr

    def places(self, name):
        return (
            "--population_cache=cache",
            f"--output_dir={name}",
            f"--results_dir={name}_results",
        )

    def test_killed_in_a_setting_and_continued(self):
        process = self.start(*_SMALL, *self.places("run"))
        # Half of the second setting's levels are done: its first checkpoint.
        part = self.scratch / "run" / "random_one_pass_repeat_1" / "simulator"
        process.kill_once((part / "checkpoint.jsonl").exists)
        results = self.scratch / "run_results"
        self.assertFalse((results / "table.md").exists())
        shutil.copytree(self.scratch / "run", self.scratch / "tasks")
        resume = ("--resume", "--population_cache=cache")
        status, page, errors = self.finish(*resume, "--output_dir=run")
        self.assertEqual(status, 0, errors)
        self.assertIn("| random, two passes | 50 | 1 |", page)
        told = (results / "README.md").read_text()
        self.assertIn("--study=oov_table1", told)
        self.assertIn("--scale=0.0001", told)
        results.rename(self.scratch / "resumed")

        # Each setting as a part, uninterrupted: two were run before as jobs, and a
        # task of Ray's runs the third.
        parts = self.scratch / "tasks" / "parts"
        for number in (1, 2):
            flags = (f"--study_part={number}/3", f"--output_dir={parts}/part-{number}")
            flags = (*_SMALL, "--population_cache=cache", *flags)
            status, _, errors = self.finish(*flags)
            self.assertEqual(status, 0, errors)
        before = self.last_changes(parts)
        ray = ("--engine=ray", "--num_workers=2", "--output_dir=tasks")
        status, again, errors = self.finish(*resume, *ray)
        self.assertEqual(status, 0, errors)
        self.assertEqual(again.partition("Report:")[0], page.partition("Report:")[0])
        after = self.last_changes(parts)
        self.assertLen(after, 3)
        self.assertEqual(after, {**after, **before})  # those two are left alone
        for name in ("runs", "levels", "summary"):
            resumed, tasks = (
                tables.read(folder / f"{name}.csv")
                for folder in (self.scratch / "resumed", results)
            )
            resumed, tasks = (
                table.drop(columns=table.filter(regex="^seconds").columns)
                for table in (resumed, tasks)
            )
            self.assertEqual(resumed.to_csv(), tasks.to_csv())

    def last_changes(self, parts):
        """Returns when each part's record changed; all have to be complete."""
        found = {}
        for path in parts.glob("*/run.json"):
            record = json.loads(path.read_text())
            self.assertEqual(record["status"], "complete")
            found[path.parent.name] = path.stat().st_mtime_ns
        return found

    @parameterized.parameters(
        ((), 2, "error: --study is needed: one of "),
        (("--scale=1",), 2, "error: --study is needed"),
        (("--study=training_blogs", "--scale=1"), 2, "Unknown command line flag 'sca"),
        (
            ("--study=training_blogs", "--data_dir=x", "--settings=blt,tree"),
            2,
            "--settings=blt,tree: has to name some of blt, blt_less_epsilon, dp_fe",
        ),
        (
            ("--num_repeats", "2", "--study", "oov_real_text"),
            2,
            "give --data_dir: The dir",
        ),
        (
            ("--study=oov_table1", "--scale=0"),
            2,
            "--scale=0: has to be a number in (0, 1]",
        ),
        (("--study=oov_table1", "--scale=2"), 2, "--scale=2"),
        (
            ("--resume", "--output_dir=nowhere", "--scale=1"),
            2,
            "nowhere holds no run",
        ),
        (("--study=oov_table1", "--scale=1e-7"), 2, "setting 'greedy, one pass'"),
    )
    def test_flags_that_are_wrong(self, flags, status, message):
        found, output, errors = self.finish(*flags)
        self.assertEqual(found, status, errors)
        self.assertEqual(output, "")
        self.assertLen(errors.splitlines(), 1, errors)
        self.assertIn(message, errors)

    @parameterized.parameters(
        ("oov_table1", "trending_share", "settings"),
        ("training_blogs", "data_dir", "trending_share"),
    )
    def test_help_has_the_flags_of_the_study(self, study, own, others):
        _, text, _ = self.finish(f"--study={study}", "--help")
        self.assertIn(f"  --{own}", text)
        self.assertIn("  --results_dir", text)
        self.assertNotIn(f"  --{others}", text)


if __name__ == "__main__":
    absltest.main()
