"""Tests of the fit of a population: it finds the law that a population was drawn from.

Seeds are fixed. A value may be off by 4.5 of its stated standard errors, which a normal
law is in 7 of a million draws.
"""

import pathlib

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.populations import population, population_numbers
from federated_hh.populations.fit import fitted_law
from federated_hh.populations.options import population_options
from federated_hh.reports import fit_report
from tests import ROOT, forked_programs

_DEVIATE = 4.5


def _fit_of_program(test, *arguments):
    """Runs the program; returns its run directory and what it printed."""
    directory = pathlib.Path(test.create_tempdir().full_path) / "run"
    done = forked_programs.run(
        "federated_hh.fit_population",
        f"--output_dir={directory}",
        f"--population_cache={test.cache}",
        "--num_simulations=4",
        *arguments,
        directory=ROOT,
    )
    return directory, done


class FittedLawTest(parameterized.TestCase):
    @parameterized.parameters(
        fitted_law.Law(90.0, 1.1, 0.81, 22.0, 0.1, 15_000.0),
        fitted_law.Law(60.0, 1.2, 0.7, 10.0, 0.7, 500.0),
        fitted_law.Law(8.0, 0.8, 0.4, 3.0, 0.5, 100.0),
    )
    def test_law_is_found_again(self, law):
        rows = law.draw(np.random.default_rng(6), 1_200)
        fit = fitted_law.fit(rows, np.random.default_rng(7), 4, own_lengths=False)
        for name, error in fit.errors.items():
            value, true = getattr(fit.law, name), getattr(law, name)
            self.assertLess(abs(value - true), _DEVIATE * error, (name, value, error))
        self.assertAlmostEqual(fit.law.words_sigma / law.words_sigma, 1, delta=0.1)

    def test_drawn_words_are_those_of_the_two_levels(self):
        # Two words of one client: the second repeats the first with chance
        # (1 - d) / (1 + a), or is drawn anew and the same by the common law: on average
        # (1 - d0) / (1 + a0), where the common law is one draw for all clients.
        law = fitted_law.Law(2.0, 0.0, 0.4, 1.5, 0.2, 1_000.0)
        rows = law.draw(np.random.default_rng(8), 50_000)
        self.assertEqual(rows.counts.sum(), 100_000)
        same = np.mean(np.diff(rows.row_splits) == 1)
        anew = 1 - 0.6 / 2.5
        expected = 0.6 / 2.5 + anew * 0.8 / 1_001
        self.assertLess(abs(same - expected), 5.4 * np.sqrt(0.25 / 50_000))

    @parameterized.parameters((1.5, 0.4), (3.0, 0.8), (130.0, 1.1))
    def test_spread_of_the_words_of_a_client(self, mean, sigma):
        law = fitted_law.Law(mean, sigma, 0.5, 1.0, 0.5, 1.0)
        numbers = population_numbers.Numbers(law.draw(np.random.default_rng(9), 40_000))
        found = fitted_law.words_law(
            mean, numbers.values()["words of a client, sd of the logarithm"]
        )
        self.assertAlmostEqual(found / sigma, 1, delta=0.03)


class FitPopulationTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = self.create_tempdir().full_path

    def _prepare(self, **options):
        return population.prepare(
            population_options.PopulationOptions(**options), self.cache
        )

    def test_flagfile_simulates_what_was_fitted(self):
        flags = [
            "--tokenizer=whitespace",
            "--num_clients=2000",
            "--mean_words_per_client=60",
            "--client_law=pitman_yor",
            "--client_discount=0.75",
            "--client_concentration=15",
            "--common_law=pitman_yor",
            "--common_discount=0.2",
            "--common_concentration=2000",
        ]
        directory, done = _fit_of_program(self, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2,000 clients with ", done.stdout)
        law = pd.read_csv(directory / "simulator" / "law.csv", index_col=0)
        true = {"discount d": 0.75, "concentration a": 15.0}
        true |= {"discount d0": 0.2, "concentration a0": 2000.0}
        for row in law.itertuples():
            for name, value in true.items():
                if row.Index.endswith(f", {name}"):
                    off = abs(row.value - value) / row.standard_error
                    self.assertLess(off, _DEVIATE, row)
        page = (directory / "report.html").read_text()
        self.assertIn("Data and law compared", page)
        self.assertEqual(page.count("data:image/png"), 4)

        flagfile = directory / "simulator" / "population.flagfile"
        self.assertIn(f"--flagfile={flagfile}"[11:], done.stdout)
        again, done = _fit_of_program(
            self, f"--flagfile={flagfile}", "--num_clients=4000", "--population_seed=5"
        )
        lengths = directory / "simulator" / "words_per_client.txt"
        self.assertLen(lengths.read_text().splitlines(), 2_000)
        self.assertEqual(done.returncode, 0, done.stderr)
        simulated = pd.read_csv(again / "simulator" / "law.csv", index_col=0)
        off = (simulated.value - law.value) / np.hypot(
            law.standard_error, simulated.standard_error
        )
        # The number of words has the mean that the first population happened to have.
        self.assertLess(off.abs().max(), _DEVIATE)

    @parameterized.parameters("own", "own_counts")
    def test_own_words(self, word_list):
        directory, done = _fit_of_program(
            self,
            "--num_clients=300",
            "--alphabet=abcdefghijklmnopqrstuvwxyz",
            f"--word_list={word_list}",
            "--words_law=log_normal",
            "--max_clients_fitted=200",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("200 clients with", done.stdout)
        lines = (directory / "simulator" / "words.tsv").read_text().splitlines()
        counts = [int(line.partition("\t")[2] or 0) for line in lines]
        self.assertEqual(counts, sorted(counts, reverse=True))
        self.assertEqual(0 in counts, word_list == "own")
        drawn = self._prepare(
            num_clients=300, alphabet="abcdefghijklmnopqrstuvwxyz", seed=0
        )
        totals = np.bincount(drawn.word_ids, drawn.counts)
        self.assertEqual(counts[0], totals.max())
        self.assertEqual(sum(counts), totals.sum())
        flags = (directory / "simulator" / "population.flagfile").read_text()
        self.assertIn(f"--common_words={directory}/simulator/words.tsv\n", flags)
        self.assertNotIn("--words_per_client=", flags)

    def test_where_the_law_misses_is_said(self):
        columns = ["number", "data", "standard_error", "law", "law_spread"]
        rows = [
            ("share of the top 70", 0.0084, 0.0001, 0.0215, 0.0002),
            ("many errors, but near", 0.500, 0.0001, 0.510, 0.0001),
            ("far, but uncertain", 1.0, 0.2, 1.9, 0.1),
            ("words, median", 85.0, 1.0, 85.5, float("nan")),
        ]
        numbers = pd.DataFrame(rows, columns=columns)
        missed = fit_report.FitReport.misses(numbers)
        self.assertEqual(missed["number"].tolist(), ["share of the top 70"])
        said = fit_report._advice(missed)
        self.assertRegex(said, "in 1 of its numbers .*top 70 0.0084 .* law has 0.0215")
        self.assertEqual(fit_report._advice(missed[:0]), "")

    def test_nothing_to_fit(self):
        path = self.create_tempfile("a.csv", "user,text\nann,sun\nbob,moon\n").full_path
        _, done = _fit_of_program(self, f"--population={path}")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.splitlines()[-1], "^error: .*two")


if __name__ == "__main__":
    absltest.main()
