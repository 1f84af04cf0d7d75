"""Tests of the LDP TrieHH program as a user runs it."""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys

import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.files import tables
from federated_hh.heavy_hitters.ldp_triehh import options as ldp_triehh_options
from tests import ROOT, forked_programs

_MODULE = "federated_hh.run_ldp_triehh"
_SMALL = (
    "--num_clients=8000",
    "--mean_words_per_client=40",
    "--cohort_size=900",
    "--max_depth=3",
    "--max_prefixes=40",
    "--contribution_bound=20",
    "--num_passes=2",
    "--counting_clients=2000",
)
_RELEASED = (
    "heavy_hitters.csv",
    "metrics.csv",
    "anonymity.csv",
    "flags.txt",
    "privacy.json",
)
_PLOTS = tuple(f"simulator/{name}.png" for name in ("coverage", "levels", "estimates"))
_TABLES = (
    "simulator/heavy_hitters.csv",
    "simulator/levels.csv",
    "simulator/coverage.csv",
    "simulator/rounds.jsonl",
)


def _environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _run(*flags, directory=None):
    return forked_programs.run(_MODULE, *flags, directory=directory)


class RunLdpTrieHHTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.cache = f"--population_cache={self.scratch / 'cache'}"

    def test_small_run_resumes_after_sigkill_to_the_same_result(self):
        whole, killed = self.scratch / "whole", self.scratch / "killed"
        first = _run(*_SMALL, self.cache, f"--output_dir={whole}")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("words found, the largest estimates first: ", first.stdout)
        self.check_run_directory(whole)
        self.kill_in_mid_run(killed)
        again = _run("--resume", self.cache, f"--output_dir={killed}")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("Resuming repeat 1", again.stderr)
        for name in (*_RELEASED, *_TABLES, *_PLOTS):
            with self.subTest(name):
                self.assertEqual(
                    (whole / name).read_bytes(), (killed / name).read_bytes()
                )

    def kill_in_mid_run(self, path):
        killed = forked_programs.run(
            *("tests.killed_program", "checkpoint.jsonl", _MODULE, *_SMALL),
            *(self.cache, f"--output_dir={path}"),
        )
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        run = json.loads((path / "run.json").read_text())
        self.assertEqual(run["status"], "running")
        self.assertFalse((path / "heavy_hitters.csv").exists())

    def check_run_directory(self, path):
        # Two letters are completed at level 2, "the" at 3; "I" is lower-cased, and
        # words of four letters are never completed.
        words = tables.read(path / "simulator" / "heavy_hitters.csv")
        self.assertTrue((words["word"].str.len() == words["level"]).all())
        self.assertContainsSubset(["the", "to"], words["word"].tolist())
        self.assertTrue(words.loc[words["word"] == "the", "real"].all())
        record = (path / "simulator" / "rounds.jsonl").read_text().splitlines()
        asked = [json.loads(line) for line in record]
        self.assertEqual([found["clients"] for found in asked], [900] * 6)
        self.assertLen({found["cohort"] for found in asked}, 6)
        coverage = pd.read_csv(path / "simulator" / "coverage.csv")
        self.assertEqual(coverage["pass_number"].tolist(), [1, 2])
        self.assertTrue(coverage["coverage"].is_monotonic_increasing)
        # Six standard errors: a false alarm below 1e-8.
        error = (coverage["estimated_coverage"] - coverage["coverage"]).abs()
        self.assertTrue((error < 6 * coverage["standard_error"]).all())
        statement = json.loads((path / "privacy.json").read_text())
        self.assertEqual(statement["basis"], "realised")
        self.assertIn(10, [each["epsilon"] for each in statement["guarantees"]])
        # P_0 is the 100 characters; a level has the end symbol too, and "no item".
        sizes = statement["parameters"]["domain_sizes (s)"].split(", ")
        self.assertEqual((sizes[0], sizes[3], len(sizes)), ("10101", "10101", 6))
        metrics = pd.read_csv(path / "metrics.csv")
        self.assertEqual([int(s) - 1 for s in sizes], metrics["candidates"].tolist())
        self.assertEqual(metrics["level"].tolist(), [1, 2, 3, 1, 2, 3])
        self.assertEqual(metrics["round"].tolist(), list(range(1, 7)))
        for name in _PLOTS:
            self.assertTrue((path / name).read_bytes().startswith(b"\x89PNG"))
        page = (path / "report.html").read_text()
        released, *rest = page.split("The simulator's knowledge")
        self.assertIn("<h2>Words released", released)
        self.assertIn(">the<", released)
        self.assertNotIn("true count", released)
        self.assertLess("".join(rest).index("<img"), "".join(rest).index("<table"))
        self.assertTrue(list((path / "simulator" / "tensorboard").iterdir()))
        run = json.loads((path / "run.json").read_text())
        self.assertEqual(run["status"], "complete")

    def test_own_data_without_local_privacy_finds_exactly_the_words(self):
        rows = [
            f"user{i}\t{word}\t{count}\n"
            for i in range(60)
            for word, count in (
                ("Yayyy", 3),
                ("s,r", 2),
                ("ok", 1),
                ("photographer", 2),
            )
        ]
        (self.scratch / "words.tsv").write_text("".join(rows))
        result = _run(
            "--population=words.tsv",
            "--population_format=word_counts",
            "--tokenizer=whitespace",
            "--epsilon=inf",
            "--cohort_size=10",
            "--max_depth=6",
            "--report_sampling=per_report",
            "--aggregation=ephemeral",
            "--sampler=random",
            "--output_dir=out",
            self.cache,
            directory=self.scratch,
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("cuda", result.stderr.lower())
        words = tables.read(self.scratch / "out" / "heavy_hitters.csv")
        found = dict(zip(words["word"], words["estimate"], strict=True))
        self.assertEqual(found, {"Yayyy": 10, "s,r": 10, "ok": 10})
        coverage = pd.read_csv(self.scratch / "out" / "simulator" / "coverage.csv")
        self.assertEqual(coverage["coverage"].tolist(), [6 / 8])
        # Sixty clients have five for each of twelve levels.
        longer = (
            "Most helpful change: --max_depth=12 with --cohort_size=5. Words of more"
        )
        self.assertIn(longer, result.stdout)
        # All clients were in a cohort: nobody is left to count.
        self.assertTrue(coverage["estimated_coverage"].isna().all())
        statement = json.loads((self.scratch / "out" / "privacy.json").read_text())
        self.assertEqual(statement["guarantees"], [])

    def test_another_randomizer_is_promised_no_more_than_is_proved_of_it(self):
        path = self.scratch / "out"
        result = _run(
            "--num_clients=4000",
            "--cohort_size=1000",
            "--max_depth=2",
            "--max_prefixes=40",
            "--contribution_bound=5",
            "--epsilon=2",
            "--randomizer=symmetric_one_hot",
            self.cache,
            f"--output_dir={path}",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        statement = json.loads((path / "privacy.json").read_text())
        self.assertIn("SymmetricOneHotEncoding", statement["mechanism"])
        self.assertNotIn("Subset Selection", json.dumps(statement))
        guarantees = statement["guarantees"]
        # Its epsilon is for leaving an item out: an exchange costs it twice.
        local = [g["epsilon"] for g in guarantees if g["delta"] == 0]
        self.assertEqual(local, [5 * 4, 4])
        for guarantee in guarantees:
            self.assertTrue(guarantee["is_upper_bound"])
            if guarantee["delta"]:
                self.assertStartsWith(guarantee["bound"], "clones, Feldman et al. 2021")
        self.assertEmpty(pd.read_csv(path / "anonymity.csv"))
        self.assertIn("for Subset Selection only", (path / "report.html").read_text())

    @parameterized.parameters(
        (("--randomizer=hadamard",), "randomizer is 'hadamard'; it has to be one of"),
        (("--randomizer=nowhere:At",), "randomizer is 'nowhere:At'; it has to be"),
        (
            ("--randomizer=symmetric_one_hot", "--central_epsilon=1"),
            "costs 2 times its epsilon; give --epsilon",
        ),
    )
    def test_randomizers_that_cannot_be_used(self, flags, message):
        result = _run(
            "--num_clients=500",
            "--cohort_size=40",
            "--max_depth=2",
            "--max_prefixes=40",
            *flags,
            self.cache,
            "--output_dir=out",
            directory=self.scratch,
        )
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, f"error: .*{message}")
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse((self.scratch / "out").exists())

    def test_statement_of_repeats_is_of_all_of_them(self):
        path = self.scratch / "out"
        result = _run(
            "--num_clients=3000",
            "--cohort_size=900",
            "--max_depth=2",
            "--max_prefixes=40",
            "--contribution_bound=5",
            "--num_repeats=3",
            self.cache,
            f"--output_dir={path}",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        statement = json.loads((path / "privacy.json").read_text())
        self.assertEqual(statement["parameters"]["num_repeats"], 3)
        sizes = statement["parameters"]["domain_sizes (s)"].split(", ")
        metrics = pd.read_csv(path / "metrics.csv")
        self.assertEqual([int(s) - 1 for s in sizes], metrics["candidates"].tolist())
        self.assertLen(sizes, 3 * 2)
        alone = [g for g in statement["guarantees"] if g["of_one_repeat"]]
        central = min(g["epsilon"] for g in alone if g["is_upper_bound"])
        of_a_user, of_an_item, local_user, local = (
            g for g in statement["guarantees"] if not g["of_one_repeat"]
        )
        self.assertEqual((local["epsilon"], local["unit"]), (30, "item"))
        self.assertEqual((local_user["epsilon"], local_user["unit"]), (150, "client"))
        # More than one repeat costs, and no more than three of them.
        self.assertBetween(of_an_item["epsilon"], 1.2 * central, 3 * central)
        self.assertGreater(of_a_user["epsilon"], of_an_item["epsilon"])
        # One line for a person: a client before an item, one repeat before all.
        shown = r"^Privacy: .*; epsilon (\S+) at delta 1e-10 per client, .* together "
        (printed,) = re.findall(shown, result.stdout, re.MULTILINE)
        self.assertAlmostEqual(float(printed), of_a_user["epsilon"], delta=0.1)
        for guarantee in (of_an_item, of_a_user):
            self.assertEqual(guarantee["delta"], 1e-10)
        text = " ".join(statement["assumptions"])
        self.assertIn("one level of each of the 3 repeats", text)
        self.assertNotIn("No client takes part", text)
        anonymity = pd.read_csv(path / "anonymity.csv")
        self.assertIn("in each of 3 repeats", anonymity["name"].iloc[-1])
        self.assertNotIn("proved", anonymity.columns)

    def test_central_epsilon_decides_the_local_one(self):
        path = self.scratch / "out"
        result = _run(
            "--num_clients=4000",
            "--cohort_size=1000",
            "--max_depth=2",
            "--max_prefixes=40",
            "--contribution_bound=5",
            "--num_repeats=2",
            "--central_epsilon=1.5",
            "--delta=1e-8",
            self.cache,
            f"--output_dir={path}",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        printed = re.search(r"Local epsilon ([0-9.]+): with it, an", result.stdout)
        local = float(printed[1])
        statement = json.loads((path / "privacy.json").read_text())
        self.assertAlmostEqual(
            statement["parameters"]["local_epsilon"], local, places=4
        )
        # Without amplification it would be 0.75.
        self.assertGreater(local, 1.5)
        central = [
            guarantee["epsilon"]
            for guarantee in statement["guarantees"]
            if "For all 2 repeats together." in guarantee["assumptions"]
            and guarantee["unit"] == "item"
            and guarantee["delta"] == 1e-8
        ]
        self.assertNotIn("will be noise", result.stderr)
        self.assertLen(central, 1)
        self.assertLessEqual(central[0], 1.5)

    def test_words_that_are_dropped_on_request_are_dropped_when_a_run_goes_on(self):
        words = ("wora", "worb", "worz")
        rows = [f"user{i}\t{words[i % 3]}\t1\n" for i in range(300)]
        (self.scratch / "words.tsv").write_text("".join(rows))
        path = self.scratch / "out"
        first = _run(
            "--population=words.tsv",
            "--population_format=word_counts",
            "--alphabet=abowr",
            "--out_of_alphabet=drop",
            "--cohort_size=40",
            "--max_depth=4",
            "--contribution_bound=2",
            self.cache,
            f"--output_dir={path}",
            directory=self.scratch,
        )
        self.assertEqual(first.returncode, 0, first.stderr)
        with self.subTest("what was not given is chosen, said and recorded"):
            chosen = "Chosen for 300 clients: --max_prefixes=20."
            self.assertIn(chosen, first.stderr)
            self.assertIn("--max_prefixes=20\n", (path / "flags.txt").read_text())
            metrics = pd.read_csv(path / "metrics.csv")
            self.assertLess(metrics["candidates"].max(), 1000)
        record = json.loads((path / "run.json").read_text())
        del record["finished"]
        (path / "run.json").write_text(json.dumps(record | {"status": "running"}))
        flags = ("--resume", self.cache, f"--output_dir={path}")
        again = _run(*flags, directory=self.scratch)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(first.stdout, again.stdout)
        self.assertNotIn("chosen", again.stderr)

    def test_settings_that_can_only_find_noise_warn(self):
        # One report of epsilon 0.1 from each of 10 clients.
        result = _run(
            "--num_clients=500",
            "--cohort_size=10",
            "--max_depth=1",
            "--max_prefixes=10",
            "--contribution_bound=1",
            "--epsilon=0.1",
            self.cache,
            f"--output_dir={self.scratch / 'out'}",
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("what is found will be noise", result.stderr)

    def test_levels_much_larger_than_is_of_use_warn(self):
        for clients, cohort, places, warns in (
            (1500, 99, 10_000, True),
            (1500, 99, 200, False),
            (300_000, 20_000, 10_000, False),
        ):
            options = ldp_triehh_options.LdpTrieHHOptions(
                cohort_size=cohort, max_prefixes=places
            )
            told = options.size_warning(clients, 100)
            self.assertEqual("many as --max_prefixes=200, and take" in told, warns)
            self.assertEqual(bool(told), warns)

    def test_sizes_by_population(self):
        options = ldp_triehh_options.LdpTrieHHOptions()
        names = ["cohort_size", "max_prefixes"]
        for clients, cohort in ((1000, 60), (10**5, 6000), (10**7, 200_000)):
            chosen = options.sensible(clients, 100, names)
            self.assertEqual(chosen["cohort_size"], cohort)
            self.assertEqual(
                options.sensible(clients, 100, names[:1]).keys(), {*names[:1]}
            )
        self.assertEqual(chosen["max_prefixes"], 10_000)
        without_noise = ldp_triehh_options.LdpTrieHHOptions(epsilon=math.inf)
        self.assertNotIn("max_prefixes", without_noise.sensible(1000, 100, names))

    def test_votes_that_rounding_makes_alike(self):
        options = ldp_triehh_options.LdpTrieHHOptions()
        vars(options)["local_epsilon"] = 1e-300  # less than the flag allows
        self.assertIn("deviation of inf", options.noise_warning(100))

    @parameterized.parameters(
        (
            ("--central_epsilon=0",),
            "=0: has to be a number in [1e-09, 40]",
        ),
        (("--central_epsilon=1e-16",), "in [1e-09, 40] (with less, the vot"),
        (("--central_epsilon=41",), ", 40]"),
        (("--central_epsilon=nan",), "--central_epsilon=nan"),
        (("--central_epsilon=1", "--epsilon=10"), "are both given"),
        (("--epsilon=0",), "--epsilon=0: has to be a number in [1e-09, 40], or inf"),
        (
            ("--epsilon=1e-300",),
            "--epsilon=1e-300: has to be a number in [1e-09,",
        ),
        (
            ("--epsilon=1e-16",),
            "--epsilon=1e-16: has to be a number in [1e-09, ",
        ),
        (("--epsilon=-1",), "--epsilon=-1"),
        (("--epsilon=nan",), "--epsilon=nan"),
        (("--epsilon=41",), "--epsilon=41: has to be a number in [1e-09, 40], or inf"),
        (("--cohort_size=100000",), "the population has 1,000,000"),
        (("--delta=0",), "--delta=0: has to be a number in (0, 1)"),
        (("--anonymity_alpha=1",), "--anonymity_alpha=1: has to be a number in (0, 1)"),
        (("--max_prefixes=0",), "max_prefixes"),
        ((f"--max_prefixes={2**63 - 1}",), "in [1, 2147483647] (cand"),
        (("--max_prefixes=20000000",), "2,020,000,000 candidates"),
        ((f"--cohort_size={2**40}",), "clients are numbered with 31 bits"),
        ((f"--contribution_bound={2**31}",), "nobody holds more items"),
        ((f"--num_passes={2**62}",), "in [1, 1000] (every pass"),
        ((f"--counting_clients={2**62}",), "--counting_clients=4611686018427387904"),
        ((f"--num_repeats={2**62}",), "in [1, 1000] (their losses"),
        (("--contribution_bound=0",), "contribution_bound"),
        (("--num_passes=0",), "num_passes"),
        (("--sampler=weighted",), "weighted"),
        (("--alphabet=abcdd",), "--alphabet repeats a character"),
        (("--resume",), "--resume needs --output_dir"),
        (("extra",), "extra"),
    )
    def test_wrong_flags_are_answered_at_once(self, flags, message):
        result = _run(*flags, directory=self.scratch)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(message, result.stdout + result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEmpty(list(self.scratch.iterdir()))

    @parameterized.parameters(
        (("--cohort_size=40",), r"need 600 clients; the population has 500"),
        (
            ("--cohort_size=20", "--counting_clients=300"),
            "counting task of --counting_clients=300 need 600 clients; the population "
            "has 500. --cohort_size=13 would fit",
        ),
        (
            ("--max_depth=10", "--epsilon=0.5"),
            "500 clients are too few for 10 levels: of 45 clients, the noise",
        ),
        (
            ("--max_depth=10", "--epsilon=0.5", "--cohort_size=50"),
            "It takes about [0-9,]+ clients, or a larger --epsilon, or a smaller --max",
        ),
        (
            ("--alphabet=abc", "--cohort_size=20"),
            "outside the alphabet .abc.: .the.*--out_of_alphabet=drop",
        ),
    )
    def test_runs_that_cannot_go_on(self, flags, message):
        result = _run(
            "--num_clients=500",
            *flags,
            self.cache,
            "--output_dir=out",
            directory=self.scratch,
        )
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, f"error: .*{message}")
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse((self.scratch / "out").exists())

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
        self.assertIn("(eta_max)", result.stdout)
        self.assertIn("heavy imports: []", result.stdout)


if __name__ == "__main__":
    absltest.main()
