"""Tests of the page that has runs side by side."""

import pathlib
import subprocess
import sys

import pandas as pd
from absl.testing import absltest, flagsaver

from federated_hh import compare
from federated_hh.privacy import statement
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.randomness import noise_keys
from federated_hh.reports import page
from federated_hh.run_directory import directory as run_directory


def _statement(epsilon):
    return statement.PrivacyStatement(
        setting="central DP",
        protected="a run",
        adjacency=Adjacency.ZERO_OUT,
        mechanism="noise",
        mechanism_output="sums",
        guarantees=(
            Guarantee(
                epsilon=epsilon,
                delta=1e-6,
                bound="a theorem",
                is_upper_bound=True,
                one_sided=False,
                adjacency=Adjacency.ZERO_OUT,
            ),
        ),
        parameters={"z": 1.0},
        accounting="by hand",
        assumptions=("none",),
        not_counted=("nothing",),
    )


class CompareTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)

    def run_of(self, name, *, epsilon, rate, finished=True):
        with run_directory.RunDirectory.create(
            self.scratch / name,
            program="a.program",
            flags=[f"--rate={rate}", "--same=1"],
            facts={},
            noise_key=noise_keys.NoiseKey(1, is_secret=False),
        ) as directory:
            rounds = pd.DataFrame(
                {"repeat": 0, "round": [1, 2], "loss": [5.0, 5.0 - rate]}
            )
            if finished:
                report = page.Page(directory, "A run")
                report.summary(f"loss {5 - rate}")
                report.statement(_statement(epsilon))
                report.write()
                directory.simulator.write_table("metrics.csv", rounds)
                directory.complete()
        return str(self.scratch / name)

    def test_what_differs_stands_side_by_side(self):
        paths = [
            self.run_of("a", epsilon=2.0, rate=0.5),
            self.run_of("b", epsilon=3.00001, rate=1.25),
        ]
        runs = [
            compare.Compared.read(path, name)
            for path, name in zip(paths, compare.names_of(paths), strict=True)
        ]
        found, privacy, given, last, curves = compare.sections(runs)
        (table,) = found.blocks
        rows = [row[:3:2] for row in table.rows]
        self.assertEqual(rows, [["a", "loss 4.5"], ["b", "loss 3.75"]])
        epsilons = privacy.blocks[0].data["epsilon"].tolist()
        self.assertEqual(epsilons, ["2", "3.001"])  # never below the bound
        self.assertEqual(given.blocks[0].rows, [["--rate", "0.5", "1.25"]])
        self.assertEqual(last.blocks[0].rows, [["loss", "4.5", "3.75"]])
        self.assertEqual([block.caption for block in curves.blocks], ["loss"])

        output = self.scratch / "compare.html"
        with flagsaver.as_parsed(output=str(output)):
            compare.main(["compare", *paths])
        self.assertIn("2 runs side by side", output.read_text())

    def test_a_run_that_is_not_finished_is_shown_as_far_as_it_is(self):
        paths = [
            self.run_of("a", epsilon=2.0, rate=0.5),
            self.run_of("b", epsilon=2.0, rate=0.5, finished=False),
        ]
        runs = [compare.Compared.read(path, path[-1]) for path in paths]
        found, privacy, given, last, _ = compare.sections(runs)
        self.assertIn("running", found.blocks[0].data["status"].tolist())
        self.assertIn("b: no statement yet", privacy.blocks[1].source)
        self.assertEqual(given.blocks[0].source, "None.")
        self.assertEqual(last.blocks[0].rows, [["loss", "4.5", ""]])

    def test_names_are_the_shortest_that_tell_apart(self):
        self.assertEqual(compare.names_of(["/x/a", "/x/b"]), ["a", "b"])
        self.assertEqual(compare.names_of(["/x/a", "/y/a"]), ["x/a", "y/a"])
        with self.assertRaisesRegex(ValueError, "given twice"):
            compare.names_of(["/x/a", "/x/a"])

    def test_what_cannot_be_compared_is_one_line(self):
        path = self.run_of("a", epsilon=2.0, rate=0.5)
        for arguments, message in (
            ((path,), "two run directories or more"),
            ((path, str(self.scratch)), "is no run directory"),
        ):
            done = subprocess.run(
                [sys.executable, "-m", "federated_hh.compare", *arguments],
                capture_output=True,
                text=True,
            )
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, f"^error: .*{message}.*\n$")


if __name__ == "__main__":
    absltest.main()
