"""Tests of the set union program as a user runs it."""

import json
import pathlib
import signal

from absl.testing import absltest, parameterized

from federated_hh.files import tables
from tests import forked_programs, run_directories

_MODULE = "federated_hh.run_set_union"
_SMALL = (
    *("--num_clients=4000", "--epsilon=4", "--delta=1e-6", "--num_passes=2"),
    *("--num_repeats=2", "--contribution_bound=8", "--max_k=50"),
)

_RELEASED = {
    *("flags.txt", "heavy_hitters.csv", "metrics.csv", "privacy.json", "privacy.md"),
    *("report.html", "run.json", "seal.json"),
}


def _run(*flags, directory=None):
    return forked_programs.run(_MODULE, *flags, directory=directory)


class RunSetUnionTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.cache = f"--population_cache={self.scratch / 'cache'}"

    @parameterized.parameters("uniform", "adaptive")
    def test_small_run_resumes_between_passes_to_the_same_result(self, weights):
        whole, killed = self.scratch / "whole", self.scratch / "killed"
        small = (*_SMALL, f"--weights={weights}", self.cache)
        first = _run(*small, f"--output_dir={whole}")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertRegex(first.stderr, r"if \d+ clients send it among 8 words each \(")
        self.assertRegex(first.stdout, r"words found by each .* the, .* Every one is ")
        self.assertRegex(first.stdout, r"of the clients that a word needs now: .*%")
        self.check_run_directory(whole)
        # No file of unreleased words is in the released part.
        names = {path.name for path in whole.iterdir() if path.is_file()}
        self.assertEqual(names, _RELEASED)
        died = forked_programs.run(
            "tests.killed_program",
            "checkpoint.jsonl",
            *(_MODULE, *small, f"--output_dir={killed}"),
        )
        self.assertEqual(died.returncode, -signal.SIGKILL, died.stderr)
        self.assertFalse((killed / "heavy_hitters.csv").exists())
        again = _run("--resume", self.cache, f"--output_dir={killed}")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(run_directories.differing(whole, killed), [])

    def check_run_directory(self, path):
        words = tables.read(path / "simulator" / "heavy_hitters.csv")
        self.assertEqual(
            words.columns.tolist(),
            ["repeat", "word", "pass", "weight", "true_count", "true_rank"],
        )
        self.assertTrue((words["true_count"] > 0).all())
        self.assertEqual(set(words["repeat"]), {0, 1})
        self.assertEqual(set(words["pass"]), {1, 2})
        self.assertFalse(words.duplicated(["repeat", "word"]).any())
        released = tables.read(path / "heavy_hitters.csv")
        self.assertEqual(
            released.columns.tolist(), ["repeat", "pass", "word", "weight"]
        )
        scores = tables.read(path / "simulator" / "scores.csv")
        self.assertTrue((scores["precision"] == 1).all())
        self.assertGreater(scores["recall"].iloc[9], 0.8)
        statement = json.loads((path / "privacy.json").read_text())
        self.assertIn("trusted aggregator", statement["setting"])
        self.assertEqual(statement["basis"], "realised")
        found = [
            (one["adjacency"], one["one_sided"], one["of_one_repeat"], one["delta"])
            for one in statement["guarantees"]
        ]
        self.assertEqual(
            found,
            [
                ("emptied", False, False, 2e-6),
                ("replace_client", False, False, 2e-6),
                ("emptied", False, True, 1e-6),
                ("replace_client", False, True, 1e-6),
            ],
        )
        together, exchanged, alone, _ = statement["guarantees"]
        self.assertBetween(alone["epsilon"], 3.999, 4)
        self.assertBetween(together["epsilon"], 4, 8)
        self.assertBetween(exchanged["epsilon"], together["epsilon"], 16)
        for name in ("discovery_rate.png", "f1_over_k.png", "passes.png"):
            picture = (path / "simulator" / name).read_bytes()
            self.assertTrue(picture.startswith(b"\x89PNG"))

    def test_words_of_any_script_are_found(self):
        (self.scratch / "words.csv").write_text(
            "user,text\n"
            + "".join(f"u{i},Straße где नमस्ते 안녕 only{i}\n" for i in range(300))
        )
        done = _run(
            *("--population=words.csv", "--epsilon=8", "--delta=1e-5", "--max_k=5"),
            *("--output_dir=out", self.cache),
            directory=self.scratch,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        words = tables.read(self.scratch / "out" / "heavy_hitters.csv")["word"]
        self.assertEqual(set(words), {"straße", "где", "नमस्ते", "안녕"})
        self.assertNotIn("alphabet", done.stderr)

    @parameterized.parameters(
        (("--contribution_bound=0",), r"--contribution_bound=0: .* in \[1, 100000\]"),
        (("--epsilon=0",), r"--epsilon=0(\.0)?: has to be a number in \(0, 50\]"),
        (("--num_passes=0",), r"--num_passes=0: .* in \[1, 100\]"),
        (("--pass_growth=9",), "--pass_growth=9.0 needs --num_passes above 1"),
        (("--weights=adaptive",), "--weights=adaptive needs from 2 to 16 passes"),
        (("--delta=2",), "--delta=2"),
        (("--extra",), "Unknown"),
    )
    def test_wrong_flags_are_answered_at_once(self, flags, message):
        result = _run(*flags, directory=self.scratch)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stdout + result.stderr, message)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEmpty(list(self.scratch.iterdir()))

    @parameterized.parameters(
        (
            ("--num_clients=500", "--epsilon=0.02"),
            r"--epsilon=0.02 and --delta=1/n\^2: nothing can be released. A word needs "
            r"\d+ holders, .* has 500 clients",
        ),
        (
            ("--num_clients=500", "--epsilon=50", "--delta=1e-12"),
            "nothing is proved of the integer noise; give a smaller epsilon",
        ),
    )
    def test_runs_that_cannot_go_on(self, flags, message):
        result = _run(*flags, self.cache, "--output_dir=out", directory=self.scratch)
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, f"error: .*{message}")
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse((self.scratch / "out").exists())


if __name__ == "__main__":
    absltest.main()
