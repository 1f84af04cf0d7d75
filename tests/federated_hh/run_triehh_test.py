"""Tests of the TrieHH program as a user runs it."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import psutil
from absl.testing import absltest, parameterized

from federated_hh.files import tables
from federated_hh.heavy_hitters.triehh.options import TrieHHOptions
from tests import ROOT, forked_programs, run_directories

_CHECKPOINT = "simulator/checkpoint.jsonl"
_MODULE = "federated_hh.run_triehh"
_RESULTS = (
    "heavy_hitters.csv",
    "simulator/heavy_hitters.csv",
    "simulator/scores.csv",
    "simulator/discovery_rate.csv",
    "simulator/f1_over_k.png",
)
_SMALL = (
    "--num_clients=4000",
    "--epsilon=8",
    "--delta=1e-3",
    "--max_length=4",
    "--num_repeats=2",
    "--max_k=7",
)

# What a run of threshold and cohort size may load of this library, with a prepared
# population.
_MOST_MODULES, _MOST_LINES = 99, 19_100
_NOT_LOADED = (
    "federated_hh.heavy_hitters.ldp_triehh",
    "federated_hh.heavy_hitters.sfp",
    "federated_hh.populations.readers",
    "federated_hh.populations.synthetic",
    "federated_hh.privacy.dp_ftrl",
    "federated_hh.privacy.ledger",
    "federated_hh.privacy.local",
    "federated_hh.privacy.shuffle",
    "federated_hh.runtime.engines",
    "federated_hh.runtime.masking",
    "federated_hh.statistics",
)


def _command(*flags):
    return [sys.executable, "-P", "-m", _MODULE, *flags]


def _environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _run(*flags, directory=None):
    return forked_programs.run(_MODULE, *flags, directory=directory)


class RunTrieHHTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.cache = f"--population_cache={self.scratch / 'cache'}"

    def test_small_run_resumes_after_sigkill_to_the_same_result(self):
        whole, killed = self.scratch / "whole", self.scratch / "killed"
        small = (*_SMALL, self.cache)
        first = _run(*small, f"--output_dir={whole}")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("words found", first.stdout)
        self.assertRegex(first.stderr, "Chosen for 4,000 clients and --epsilon=8: --th")
        self.assertRegex(first.stderr, r"if \d+ clients vote with it \(")
        self.assertRegex(first.stderr, r" words, \d+ have so many votes")
        with self.subTest("quick rounds of later repeats are one line"):
            logged = [first.stderr.count(f"repeat {i} of 2, round") for i in (1, 2)]
            self.assertLess(logged[1], logged[0])
            self.assertRegex(first.stderr, r"repeat 2 of 2, round \d of 4: .* words")
        self.check_run_directory(whole)
        with self.subTest("a run loads what it uses"):
            self.check_loaded_modules()

        self.kill_after_a_round(*small, f"--output_dir={killed}")
        self.assertFalse((killed / "heavy_hitters.csv").exists())

        with self.subTest("another runtime does not go on with it"):
            flags = ["--runtime=in_process", f"--output_dir={killed}"]
            refused = _run("--resume", self.cache, *flags)
            self.assertEqual(refused.returncode, 2)
            message = "--runtime is 'in_process', but the run began with 'worker'"
            self.assertIn(message, refused.stderr)

        moved = self.scratch / "moved"
        shutil.copytree(killed, moved)
        again = _run("--resume", self.cache, f"--output_dir={killed}")
        self.assertEqual(again.returncode, 0, again.stderr)
        with self.subTest("another engine goes on with it"):
            ray = ["--engine=ray", "--num_workers=1", f"--output_dir={moved}"]
            on_ray = _run("--resume", self.cache, *ray)
            self.assertEqual(on_ray.returncode, 0, on_ray.stderr)
            for name in (*_RESULTS, "privacy.json", "metrics.csv"):
                self.assertEqual(
                    (whole / name).read_bytes(), (moved / name).read_bytes()
                )
        self.assertEqual(run_directories.differing(whole, killed), [])

        with self.subTest("a complete run is left alone"):
            third = _run("--resume", self.cache, f"--output_dir={killed}")
            self.assertEqual(third.returncode, 2)
            self.assertIn("is complete", third.stderr)
        with self.subTest("another run's directory is left alone"):
            third = _run(*small, "--seed=7", f"--output_dir={whole}")
            self.assertEqual(third.returncode, 2)
            self.assertIn("choose another directory", third.stderr)

    def check_loaded_modules(self):
        parameters = ["--threshold=10", "--cohort_size=200", "--delta=1e-4"]
        flags = [*parameters, _SMALL[0], "--max_length=6", self.cache]
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *_command(*flags)[1:]],
            env=_environment(),
            cwd=self.scratch,
            capture_output=True,
            text=True,
            check=True,
        )
        lines = [line for line in done.stderr.splitlines() if "import time:" in line]
        names = {line.rpartition("|")[2].strip() for line in lines} | {_MODULE}
        loaded = sorted(name for name in names if name.startswith("federated_hh"))
        files = [ROOT / name.replace(".", "/") for name in loaded]
        files = [
            path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            for path in files
        ]
        lines = sum(len(path.read_text().splitlines()) for path in files)
        self.assertContainsSubset(["federated_hh.rounds.run"], loaded)
        self.assertLessEqual(len(loaded), _MOST_MODULES, loaded)
        self.assertLessEqual(lines, _MOST_LINES, loaded)
        for family in _NOT_LOADED:
            self.assertFalse([name for name in loaded if name.startswith(family)])

    def kill_after_a_round(self, *flags):
        path = pathlib.Path(flags[-1].partition("=")[2])
        killed = forked_programs.run(
            "tests.killed_program", "checkpoint.jsonl", _MODULE, *flags
        )
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        self.assertTrue((path / _CHECKPOINT).exists())
        with open(path / "run.json") as file:
            self.assertEqual(json.load(file)["status"], "running")

    def check_run_directory(self, path):
        words = tables.read(path / "simulator" / "heavy_hitters.csv")
        self.assertEqual(
            words.columns.tolist(),
            ["repeat", "word", "round", "votes", "true_count", "true_rank"],
        )
        self.assertIn("the", words["word"].tolist())
        self.assertEqual(set(words["repeat"]), {0, 1})
        self.assertTrue((words["word"].str.len() + 1 == words["round"]).all())
        statement = json.loads((path / "privacy.json").read_text())
        together, _, alone, _ = statement["guarantees"]
        self.assertBetween(alone["epsilon"], 4, 8)
        self.assertEqual(alone["delta"], 1e-3)
        self.assertTrue(alone["of_one_repeat"])
        self.assertFalse(together["of_one_repeat"])
        self.assertBetween(together["epsilon"], alone["epsilon"], 16)
        self.assertTrue(
            (words["votes"] >= statement["parameters"]["threshold (theta)"]).all()
        )
        scores = pd.read_csv(path / "simulator" / "scores.csv")
        self.assertEqual(scores["k"].tolist(), list(range(1, 8)))
        self.assertTrue((scores["precision"] == 1).all())
        for name in ("f1_over_k.png", "discovery_rate.png", "levels.png"):
            self.assertTrue(
                (path / "simulator" / name).read_bytes().startswith(b"\x89PNG")
            )
        self.assertIn("the", (path / "report.html").read_text())
        self.assertTrue(list((path / "simulator" / "tensorboard").iterdir()))
        run = json.loads((path / "run.json").read_text())
        self.assertEqual(run["status"], "complete")

    def test_own_data_multi_word_setting_and_given_parameters(self):
        rows = [
            f"user{i}\t{word}\t{count}\n"
            for i in range(400)
            for word, count in (("lol", 3), ("brb", 2), (f"only{chr(97 + i % 26)}", 1))
        ]
        # A word that the maximum length leaves out.
        rows += [f"user{i}\totherwise\t30\n" for i in range(400)]
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
        self.assertIn("Most helpful change: --max_length=10, at epsilon", result.stdout)
        self.assertEqual(statement["parameters"]["redraws_each_round"], "yes")
        self.assertEqual(statement["basis"], "realised")
        self.assertEqual(
            statement["realised"]["clients"], 30 * statement["realised"]["rounds"]
        )

    def test_given_parameters_resume_after_sigkill(self):
        output = self.scratch / "killed"
        flags = ("--threshold=12", "--cohort_size=400", "--num_clients=4000")
        flags += ("--num_repeats=3", "--max_length=3", "--max_k=5")
        self.kill_after_a_round(*flags, self.cache, f"--output_dir={output}")
        self.assertIn("--delta=1/n^2", (output / "flags.txt").read_text())
        again = _run("--resume", self.cache, f"--output_dir={output}")
        self.assertEqual(again.returncode, 0, again.stderr)
        statement = json.loads((output / "privacy.json").read_text())
        self.assertEqual(statement["parameters"]["threshold (theta)"], 12)
        together, _, once, _ = statement["guarantees"]
        self.assertAlmostEqual(together["delta"] * 4000**2, 3)
        self.assertAlmostEqual(once["delta"] * 4000**2, 1)
        self.assertEqual(together["voting"]["num_rounds"], 9)

    def test_parameters_that_are_chosen(self):
        for given, threshold, cohort in (({}, 9, 798), ({"cohort_size": 500}, 6, 500)):
            options = TrieHHOptions(epsilon=8, delta=1e-3, max_length=4, **given)
            chosen = options.parameters_for(2000)
            found = (chosen.threshold, chosen.cohort_size)
            self.assertEqual(found, (threshold, cohort))

    def test_the_papers_parameters(self):
        output = self.scratch / "out"
        flags = ("--parameters=corollary1", f"--output_dir={output}")
        result = _run(*_SMALL, self.cache, *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        statement = json.loads((output / "privacy.json").read_text())
        parameters = statement["parameters"]
        # Corollary 1: a cohort of (1 - e^(-8/4)) 4,000 / 10 clients, 345.
        self.assertEqual(parameters["threshold (theta)"], 10)
        self.assertEqual(parameters["cohort_size (m)"], 345)
        self.assertIn("Theorem 1", statement["guarantees"][-1]["bound"])

    @parameterized.parameters(
        ((), "give --epsilon, or --threshold and --cohort_size"),
        (("--threshold=20",), "give --epsilon, or --threshold and --cohort_size"),
        (("--threshold=20", "--cohort_size=9"), "--threshold=20 is above --cohort"),
        (
            ("--epsilon=1", "--threshold=20", "--cohort_size=9"),
            "either --epsilon or --threshold",
        ),
        (("--epsilon=1", "--max_length=1"), r"--max_length=1: .* in \[2, 1000\]"),
        (("--epsilon=1", "--delta=small"), "--delta=small"),
        (
            ("--epsilon=-3", "--delta=7", "--max_length=0", "--num_clients=abc"),
            r"(?s)--epsilon=-3: .*--delta=7: .*--max_length=0: .*--num_clients=abc: ",
        ),
        (("--epsilon=1", "--delta=2"), "--delta=2"),
        (("--epsilon=nan",), "--epsilon=nan"),
        (
            ("--epsilon=1", "--cohort_size=9", "--parameters=corollary1"),
            "--parameters=corollary1 chooses the cohort size",
        ),
        (
            ("--epsilon=1", "--parameters=corollary1", "--discovery_rate=0.5"),
            "--discovery_rate=0.5 is for",
        ),
        (("--epsilon=1", "--discovery_rate=1"), "--discovery_rate=1: .* 0.999999"),
        (("--epsilon=1", "--discovery_rate=0.9999999"), "would take long"),
        (("--epsilon=1", f"--max_k={2**63 - 1}"), "max_k"),
        (("--epsilon=1", f"--num_repeats={2**62}"), "num_repeats"),
        ((f"--threshold={2**31}", "--cohort_size=9"), "threshold"),
        (("--threshold=9", f"--cohort_size={2**31}"), "cohort_size"),
        (("--epsilon=1", "--word_selection=longest"), "longest"),
        (("--epsilon=1", "extra"), "extra"),
        (("--epsilon=1", "--no_such_flag=3"), "no_such_flag"),
        (("--epsilon=1", "--resume"), "--resume needs --output_dir"),
        (("--epsilon=1", "--resume", "--output_dir=nowhere"), "holds no run"),
    )
    def test_wrong_flags_are_answered_at_once(self, flags, message):
        result = _run(*flags, directory=self.scratch)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stdout + result.stderr, message)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEmpty(list(self.scratch.iterdir()))

    @parameterized.parameters(
        (("--population=missing.csv", "--epsilon=1"), "missing.csv"),
        (("--num_clients=500", "--epsilon=0.01"), "no parameters for epsilon = 0.01"),
        (
            ("--num_clients=500", "--epsilon=1", "--parameters=corollary1"),
            "no parameters by Corollary 1 for epsilon = 1",
        ),
        (
            ("--num_clients=500", "--threshold=20", "--cohort_size=900"),
            "cohort_size",
        ),
        (
            ("--num_clients=500", "--threshold=5", "--cohort_size=200"),
            "no guarantee at delta = 4e-06 .*--norequire_guarantee",
        ),
    )
    def test_runs_that_cannot_go_on(self, flags, message):
        result = _run(*flags, self.cache, "--output_dir=out", directory=self.scratch)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, f"error: .*{message}")
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse((self.scratch / "out").exists())

    def test_a_terminal_without_the_words_letters_shows_their_numbers(self):
        table = self.scratch / "a.csv"
        table.write_text("user,text\n" + "".join(f"u{i},где\n" for i in range(600)))
        flags = [f"--population={table}", "--alphabet=где", "--epsilon=4", self.cache]
        flags += ["--delta=1e-4", f"--output_dir={self.scratch / 'run'}"]
        done = subprocess.run(
            _command(*flags),
            env=_environment() | {"PYTHONIOENCODING": "latin-1"},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(r"\u0433\u0434\u0435", done.stdout)

    @parameterized.parameters(*(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
    def test_a_signal_ends_the_program_and_its_worker(self, number):
        output = self.scratch / "interrupted"
        flags = [*_SMALL, self.cache, "--num_repeats=1000", f"--output_dir={output}"]
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
        while not (output / _CHECKPOINT).exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        # The worker, and what joins it to the program where it has its own network.
        workers = psutil.Process(program.pid).children(recursive=True)
        self.assertIn(len(workers), (1, 2))
        program.send_signal(number)
        _, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 128 + number, errors)
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
