"""Tests of the page that compares runs."""

import pathlib
import subprocess
import sys

import pandas as pd
from absl.testing import absltest, flagsaver

from federated_hh import compare
from federated_hh.privacy import statement
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.randomness import noise_keys
from federated_hh.reports import compared, page
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

    def run_of(
        self,
        name,
        *,
        epsilon,
        rate,
        finished=True,
        words=None,
        losses=None,
        seed=1,
        clients=3000,
    ):
        """Makes a run whose repeats found so many words, or ended at such losses."""
        with run_directory.RunDirectory.create(
            self.scratch / name,
            program="a.program",
            flags=[f"--rate={rate}", "--same=1", f"--num_clients={clients}"],
            facts={
                "population": f"of {clients}",
                "seed": seed,
                "repeats": len(words or losses or "1"),
            },
            noise_key=noise_keys.NoiseKey(1, is_secret=False),
        ) as directory:
            rounds = pd.DataFrame(
                {
                    **{"repeat": 0, "round": [1, 2], "loss": [5.0, 5.0 - rate]},
                    "upload_bytes": [4000, 70],
                }
            )
            if words is not None:
                repeats = range(len(words))
                rounds = pd.DataFrame({"repeat": repeats, "round": 1})
                found = pd.DataFrame(
                    [
                        (r, f"w{i}", 5 * (i < 90))
                        for r in repeats
                        for i in range(words[r])
                    ],
                    columns=["repeat", "word", "true_count"],
                )
                directory.simulator.write_table("heavy_hitters.csv", found)
            if losses is not None:
                last = {"repeat": range(len(losses)), "round": 2}
                rounds = pd.DataFrame({**last, "held_out_loss": losses})
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
            compared.Compared.read(path, name)
            for path, name in zip(paths, compare.names_of(paths), strict=True)
        ]
        found, privacy, last, curves, given = compare.sections(runs)
        (table,) = found.blocks
        rows = [row[:3:2] for row in table.rows]
        self.assertEqual(rows, [["a", "loss 4.5"], ["b", "loss 3.75"]])
        epsilons = privacy.blocks[0].data["epsilon"].tolist()
        self.assertEqual(epsilons, ["2", "3.001"])  # never below the bound
        self.assertEqual(given.blocks[0].rows, [["--rate", "0.5", "1.25"]])
        self.assertEqual(
            last.blocks[0].rows,
            [
                ["loss", "4.500", "3.750"],
                ["upload bytes, largest round", "4,000", "4,000"],
            ],
        )
        self.assertEqual(
            [block.caption for block in curves.blocks], ["loss; upload bytes"]
        )

        output = self.scratch / "compare.html"
        with flagsaver.as_parsed(output=str(output)):
            compare.main(["compare", *paths])
        self.assertIn("Comparison of 2 runs", output.read_text())

    def test_a_run_that_is_not_finished_is_shown_as_far_as_it_is(self):
        paths = [
            self.run_of("a", epsilon=2.0, rate=0.5),
            self.run_of("b", epsilon=2.0, rate=0.5, finished=False),
        ]
        runs = [compared.Compared.read(path, path[-1]) for path in paths]
        found, privacy, last, _, given = compare.sections(runs)
        self.assertIn("running", found.blocks[0].data["status"].tolist())
        self.assertIn("b: no statement yet", privacy.blocks[1].source)
        self.assertEqual(given.blocks[0].source, "None.")
        self.assertEqual(last.blocks[0].rows[0], ["loss", "4.500", ""])

    def ranking(self, *paths):
        pairs = zip(paths, compare.names_of(paths), strict=True)
        return compared.ranking([compared.Compared.read(*pair) for pair in pairs])

    def test_the_run_that_found_more_is_named_at_its_guarantee(self):
        less = self.run_of("less", epsilon=2.0, rate=0.5, words=[10, 20, 30])
        more = self.run_of("more", epsilon=4.0, rate=0.5, words=[13, 24, 35])
        first, *prices, caution = self.ranking(less, more)
        # By hand: differences 3, 4, 5: 4 +- 4.303 / sqrt(3).
        self.assertEqual(
            first,
            "more found more. True words found, of any length, mean over the repeats: "
            "more 24; less 20. Lead over less, 95% interval: +1.5 to +6.5 (3 repeats, "
            "paired: same population and seeds).",
        )
        self.assertStartsWith(prices[0], "more: epsilon 4 at delta 1e-06")
        self.assertStartsWith(prices[1], "less: epsilon 2 at delta 1e-06")
        self.assertStartsWith(caution, "more spent more: epsilon 4 against 2.")
        about = self.run_of("about", epsilon=3.9, rate=0.5, words=[10, 20, 30])
        self.assertEqual(
            self.ranking(about, more)[-1],
            "They spent about the same: epsilon 4 and 3.9.",
        )
        with self.subTest("in the terminal and on the page"):
            output = self.scratch / "compare.html"
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "federated_hh.compare", less, more),
                    f"--output={output}",
                ],
                capture_output=True,
                text=True,
                check=True,
            )
            self.assertEqual(done.stdout.splitlines()[0], first)
            self.assertIn(first, output.read_text())

    def test_other_seeds_are_not_paired(self):
        few = self.run_of("few", epsilon=2.0, rate=0.5, words=[10, 20, 30])
        many = self.run_of("many", epsilon=2.0, rate=0.5, words=[13, 24, 35], seed=2)
        first, *rest = self.ranking(few, many)
        self.assertStartsWith(first, "No clear difference between many and few.")
        self.assertIn("not paired: different seed", first)
        self.assertLen(rest, 2)  # at one epsilon nothing is to be said of it

    def test_runs_of_different_populations_have_no_winner(self):
        few = self.run_of("few", epsilon=2.0, rate=0.5, words=[10, 20])
        same = self.run_of("same", epsilon=2.0, rate=0.5, words=[11, 21])
        more = self.run_of("more", epsilon=2.0, rate=0.5, words=[90, 80], clients=4000)
        first, *prices = self.ranking(few, same, more)
        self.assertEqual(
            first,
            "No ranking: the runs have 2 different populations (few, same | more), so "
            "their results are not comparable (--num_clients: few 3000, same 3000, "
            "more 4000). Repeat one of them on the other's population.",
        )
        self.assertLen(prices, 3)
        self.assertNotIn("No ranking", self.ranking(few, same)[0])

    def test_pages_of_different_runs_have_different_names(self):
        paths = [self.run_of(name, epsilon=2.0, rate=0.5) for name in "abc"]
        pages = [
            compare.page_path(chosen, compare.names_of(chosen))
            for chosen in (paths[:2], paths[1:], paths, paths[:2][::-1], paths[:2])
        ]
        self.assertLen(set(pages), 4)  # the last is the first
        self.assertRegex(pages[0], r"^compare_a_b_[0-9a-f]{8}\.html$")
        elsewhere = compare.page_path(["x/a", "x/b"], ["a", "b"])
        self.assertNotEqual(elsewhere, pages[0])
        longest = compare.page_path(["x/a", "x/b"], ["日" * 300, "../b"])
        self.assertLess(len(longest.encode()), 256)
        self.assertNotIn("/", longest)

    def test_words_that_nobody_has_and_empty_repeats_count_as_found_by_none(self):
        noise = self.run_of("noise", epsilon=2.0, rate=0.5, words=[300, 0])
        read = compared.Compared.read(noise, "noise")
        self.assertEqual(
            {name: list(values) for name, values in read.measures.items()},
            {
                "true_words_found,_of_any_length": [90, 0],
            },
        )

    def test_less_loss_is_better(self):
        one = self.run_of("one", epsilon=2.0, rate=0.5, losses=[4.5])
        two = self.run_of("two", epsilon=2.0, rate=0.5, losses=[4.125])
        first, *_ = self.ranking(one, two)
        self.assertEqual(
            first,
            "two has less loss. Held-out loss: two 4.125; one 4.500. Lead over one: "
            "0.375 (one repeat: no interval).",
        )
        one = self.run_of("more", epsilon=2.0, rate=0.5, losses=[4.5, 4.75])
        two = self.run_of("less", epsilon=2.0, rate=0.5, losses=[4.125, 4.375])
        first, *_ = self.ranking(one, two)  # differences by repeat are equal
        self.assertIn("95% interval: +0.375 to +0.375 (2 repeats, paired", first)

    def test_no_ranking_without_a_measure(self):
        words = self.run_of("words", epsilon=2.0, rate=0.5, words=[3])
        loss = self.run_of("loss", epsilon=2.0, rate=0.5, losses=[4.5])
        begun = self.run_of("begun", epsilon=2.0, rate=0.5, finished=False)
        self.assertIn("no quality measure in common", self.ranking(words, loss)[0])
        self.assertIn("not complete: begun.", self.ranking(words, begun)[0])

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
