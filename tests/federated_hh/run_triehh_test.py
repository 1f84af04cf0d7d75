"""Tests of the TrieHH program as a user runs it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pandas as pd
import psutil
from absl.testing import absltest, parameterized

import federated_hh
from simulation import tables

_MODULE = "federated_hh.run_triehh"
_RESULTS = ("heavy_hitters.csv", "scores.csv", "discovery_rate.csv")
_SMALL = (
    "--num_clients=20000",
    "--epsilon=8",
    "--delta=1e-4",
    "--max_length=6",
    "--num_repeats=2",
    "--max_k=20",
)


def _command(*flags):
    return [sys.executable, "-P", "-m", _MODULE, *flags]


def _environment():
    root = pathlib.Path(federated_hh.__file__).parent.parent
    return {**os.environ, "PYTHONPATH": str(root)}


def _run(*flags, directory=None):
    return subprocess.run(
        _command(*flags),
        env=_environment(),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=300,
    )


class RunTrieHHTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.cache = f"--population_cache={self.scratch / 'cache'}"

    def test_small_run_resumes_after_sigkill_to_the_same_result(self):
        whole, killed = self.scratch / "whole", self.scratch / "killed"
        first = _run(*_SMALL, self.cache, f"--output_dir={whole}")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("words found", first.stdout)
        self.check_run_directory(whole)

        program = subprocess.Popen(
            _command(*_SMALL, self.cache, f"--output_dir={killed}"),
            env=_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 120
        while not (killed / "checkpoint.json").exists():
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(program.poll())
            time.sleep(0.001)
        program.send_signal(signal.SIGKILL)
        program.wait()
        with open(killed / "run.json") as file:
            self.assertEqual(json.load(file)["status"], "running")
        self.assertFalse((killed / "heavy_hitters.csv").exists())

        again = _run("--resume", self.cache, f"--output_dir={killed}")
        self.assertEqual(again.returncode, 0, again.stderr)
        for name in (*_RESULTS, "flags.txt", "privacy.json", "f1_over_k.png"):
            with self.subTest(name):
                self.assertEqual(
                    (whole / name).read_bytes(), (killed / name).read_bytes()
                )
        metrics = [pd.read_csv(d / "metrics.csv") for d in (whole, killed)]
        pd.testing.assert_frame_equal(
            *[table.drop(columns="seconds") for table in metrics]
        )

        with self.subTest("a complete run is left alone"):
            third = _run("--resume", self.cache, f"--output_dir={killed}")
            self.assertEqual(third.returncode, 1)
            self.assertIn("is complete", third.stderr)
        with self.subTest("another run's directory is left alone"):
            third = _run(*_SMALL, "--seed=7", self.cache, f"--output_dir={whole}")
            self.assertEqual(third.returncode, 1)
            self.assertIn("choose another directory", third.stderr)

    def check_run_directory(self, path):
        words = tables.read(path / "heavy_hitters.csv")
        self.assertEqual(
            words.columns.tolist(),
            ["repeat", "word", "round_completed", "votes", "true_count", "true_rank"],
        )
        self.assertIn("the", words["word"].tolist())
        self.assertEqual(set(words["repeat"]), {0, 1})
        self.assertTrue((words["word"].str.len() + 1 == words["round_completed"]).all())
        statement = json.loads((path / "privacy.json").read_text())
        self.assertLessEqual(statement["guarantees"][0]["epsilon"], 8)
        self.assertLessEqual(statement["guarantees"][0]["delta"], 1e-4)
        self.assertTrue(
            (words["votes"] >= statement["parameters"]["threshold (theta)"]).all()
        )
        scores = pd.read_csv(path / "scores.csv")
        self.assertEqual(scores["k"].tolist(), list(range(1, 21)))
        self.assertTrue((scores["precision"] == 1).all())
        for name in ("f1_over_k.png", "discovery_rate.png", "trie_growth.png"):
            self.assertTrue((path / name).read_bytes().startswith(b"\x89PNG"))
        self.assertIn("the", (path / "report.html").read_text())
        self.assertTrue(list((path / "tensorboard").iterdir()))
        run = json.loads((path / "run.json").read_text())
        self.assertEqual(run["status"], "complete")

    def test_own_data_multi_word_setting_and_given_parameters(self):
        rows = [
            f"user{i}\t{word}\t{count}\n"
            for i in range(400)
            for word, count in (("lol", 3), ("brb", 2), (f"only{chr(97 + i % 26)}", 1))
        ]
        (self.scratch / "words.tsv").write_text("".join(rows))
        result = _run(
            "--population=words.tsv",
            "--population_format=word_counts",
            "--threshold=10",
            "--cohort_size=30",
            "--max_length=5",
            "--word_selection=by_frequency",
            "--output_dir=out",
            self.cache,
            directory=self.scratch,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("cuda", result.stderr.lower())
        statement = json.loads((self.scratch / "out" / "privacy.json").read_text())
        self.assertIn("by basic composition", statement["accounting"])

    @parameterized.parameters(
        ((), "give --epsilon, or --threshold and --cohort_size"),
        (("--threshold=20",), "both --threshold and --cohort_size"),
        (
            ("--epsilon=1", "--threshold=20", "--cohort_size=9"),
            "either --epsilon and --delta",
        ),
        (("--epsilon=1", "--delta=small"), "--delta=small"),
        (("--epsilon=1", "--delta=2"), "--delta=2"),
        (("--epsilon=nan",), "--epsilon=nan"),
        (
            ("--threshold=20", "--cohort_size=9", "--delta=0.1"),
            "either --epsilon and --delta",
        ),
        (("--epsilon=1", "--word_selection=longest"), "longest"),
        (("--epsilon=1", "extra"), "extra"),
        (("--epsilon=1", "--no_such_flag=3"), "no_such_flag"),
        (("--epsilon=1", "--resume"), "--resume needs --output_dir"),
        (("--epsilon=1", "--resume", "--output_dir=nowhere"), "holds no run"),
    )
    def test_wrong_flags_are_answered_at_once(self, flags, message):
        result = _run(*flags, directory=self.scratch)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(message, result.stdout + result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEmpty(list(self.scratch.iterdir()))

    @parameterized.parameters(
        (("--population=missing.csv", "--epsilon=1"), "missing.csv"),
        (("--num_clients=500", "--epsilon=1"), "no parameters for epsilon = 1"),
        (
            ("--num_clients=500", "--threshold=20", "--cohort_size=900"),
            "cohort_size",
        ),
        (
            ("--num_clients=500", "--threshold=20", "--cohort_size=100"),
            "Theorem 1 .* does not apply.*--norequire_guarantee",
        ),
    )
    def test_runs_that_cannot_go_on(self, flags, message):
        result = _run(*flags, self.cache, "--output_dir=out", directory=self.scratch)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, f"error: .*{message}")
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse((self.scratch / "out").exists())

    def test_ctrl_c_in_a_round_ends_the_program_and_its_worker(self):
        output = self.scratch / "interrupted"
        flags = [*_SMALL, "--num_repeats=1000", self.cache, f"--output_dir={output}"]
        # Where this test runs in the background of a shell, SIGINT is ignored, and a
        # new program would inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        program = subprocess.Popen(
            _command(*flags),
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 120
        while not (output / "checkpoint.json").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        # The worker, and what joins it to the program where it has its own network.
        workers = psutil.Process(program.pid).children(recursive=True)
        self.assertIn(len(workers), (1, 2))
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130, errors)
        self.assertIn(f"--resume --output_dir={output}", errors)
        self.assertNotIn("Aborted", errors)
        gone, alive = psutil.wait_procs(workers, timeout=10)
        self.assertEqual((len(gone), alive), (len(workers), []))

    def test_help_imports_no_tensorflow(self):
        program = (
            "import runpy, sys\n"
            f"sys.argv = ['run', '--help']\n"
            f"try: runpy.run_module({_MODULE!r}, run_name='__main__')\n"
            "except SystemExit: pass\n"
            "heavy = {'tensorflow', 'numpy', 'pandas', 'pyarrow'} & set(sys.modules)\n"
            "print('heavy imports:', sorted(heavy))"
        )
        result = subprocess.run(
            [sys.executable, "-c", program],
            env=_environment(),
            capture_output=True,
            text=True,
        )
        self.assertIn("--epsilon", result.stdout)
        self.assertIn("heavy imports: []", result.stdout)


if __name__ == "__main__":
    absltest.main()
