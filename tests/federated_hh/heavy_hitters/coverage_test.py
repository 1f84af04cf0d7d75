"""Tests of coverage against counts by hand and exact enumeration."""

import itertools
import math
import os
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters import coverage
from federated_hh.populations.columns import client_words

_ROWS = [
    ("u", [("b", 3), ("a", 1)]),
    ("v", []),
    ("w", [("c", 1), ("a", 1)]),
    ("x", [("b", 2)]),
    ("y", [("d", 5), ("a", 4), ("e", 1)]),
]


class CoverageTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.population = client_words.ClientWords.from_rows(
            os.path.join(self.create_tempdir().full_path, "population"), _ROWS
        )
        self.totals = coverage.WordTotals.of(self.population)

    def test_totals(self):
        words = self.population.words.to_pylist()
        by_word = dict(zip(words, self.totals.contributions, strict=True))
        self.assertEqual(by_word, {"a": 6, "b": 5, "c": 1, "d": 5, "e": 1})
        by_word = dict(zip(words, self.totals.holders, strict=True))
        self.assertEqual(by_word, {"a": 3, "b": 2, "c": 1, "d": 1, "e": 1})
        again = coverage.WordTotals.of(self.population)  # from the file
        np.testing.assert_array_equal(again.contributions, self.totals.contributions)
        np.testing.assert_array_equal(again.holders, self.totals.holders)

    @parameterized.parameters(
        ([], 0), (["a"], 6 / 18), (["a", "d", "zz"], 11 / 18), (["zz"], 0)
    )
    def test_true_coverage(self, words, expected):
        self.assertAlmostEqual(self.totals.coverage(words), expected)

    def test_a_word_that_no_client_has_is_not_real(self):
        absent = coverage.WordTotals(
            np.array([2, 0]), np.array([1, 0]), {"a": 0, "b": 1}
        )
        np.testing.assert_array_equal(absent.places(["b", "a", "c"]), [-1, 0, -1])

    def test_everybody_counts_the_truth_without_error(self):
        task = coverage.CountingTask(self.population, np.arange(5))
        words = [["a", "e"], [], ["a", "b", "c", "d", "e"]]
        estimates = task.estimates([self.totals.places(w) for w in words])
        for estimate, expected in zip(estimates, words, strict=True):
            self.assertAlmostEqual(
                estimate.coverage, self.totals.coverage(expected), places=15
            )
            self.assertEqual(estimate.standard_error, 0)
            self.assertEqual(estimate.contributions, 18)
            self.assertEqual(estimate.num_clients, 5)

    def test_a_group_counts_its_own_words_only(self):
        task = coverage.CountingTask(self.population, np.array([4, 0]))
        estimate = task.estimates([self.totals.places(["b", "d"])])[0]
        self.assertAlmostEqual(estimate.coverage, 8 / 14)

    def test_counts_are_the_same_in_pieces(self):
        whole = coverage.CountingTask(self.population, np.arange(5))
        words = [self.totals.places(["a"]), self.totals.places(["b", "e"])]
        expected = whole.estimates(words, population_size=100)
        with mock.patch.object(coverage, "_ENTRIES_AT_ONCE", 2):
            self.assertEqual(whole.estimates(words, population_size=100), expected)

    def test_standard_error_is_that_of_all_possible_groups(self):
        # Enumerates all groups of 6 among 12 clients with many words: the mean square
        # of the errors is what the mean of the stated variances says. Linearising a
        # ratio leaves an error of higher order; 3% cover it here.
        random = np.random.default_rng(0)
        rows = [
            (str(i), [("a", 20 + int(random.integers(9))), ("b", 40 + i)])
            for i in range(12)
        ]
        population = client_words.ClientWords.from_rows(
            os.path.join(self.create_tempdir().full_path, "p"), rows
        )
        totals = coverage.WordTotals.of(population)
        truth = totals.coverage(["a"])
        place = totals.places(["a"])
        errors, stated = [], []
        for group in itertools.combinations(range(12), 6):
            task = coverage.CountingTask(population, np.array(group))
            estimate = task.estimates([place])[0]
            errors.append(estimate.coverage - truth)
            stated.append(estimate.standard_error)
        self.assertLen(errors, math.comb(12, 6))
        ratio = np.mean(np.square(stated)) / np.mean(np.square(errors))
        self.assertBetween(ratio, 0.97, 1.03)

    @parameterized.parameters(([],), ([-1, 2],), ([0, 5],))
    def test_bad_groups(self, clients):
        with self.assertRaisesRegex(ValueError, "clients"):
            coverage.CountingTask(self.population, np.array(clients, np.int64))

    def test_a_group_without_words(self):
        task = coverage.CountingTask(self.population, np.array([1]))
        [estimate] = task.estimates([np.array([0])])
        self.assertEqual(estimate.contributions, 0)
        self.assertTrue(math.isnan(estimate.coverage))
        self.assertTrue(math.isnan(estimate.standard_error))

    def test_words_that_do_not_count(self):
        places = self.totals.places(["a", "b", "d"])
        counted = np.ones(self.population.num_words, bool)
        counted[places[2]] = False
        task = coverage.CountingTask(self.population, np.array([4, 0]), counted)
        estimates = task.estimates([places, places[:1]])
        # Of a, b and e; the five of d are neither found nor there to be found.
        self.assertAlmostEqual(estimates[0].coverage, 8 / 9)
        self.assertAlmostEqual(estimates[1].coverage, 5 / 9)

    def test_short_words_do_not_count(self):
        totals = coverage.WordTotals(
            np.array([3, 2, 4]), np.array([1, 1, 2]), {"a": 0, "bb": 1, "ccc": 2}
        )
        self.assertAlmostEqual(totals.of_length(2).coverage(["a", "bb"]), 2 / 6)
        self.assertTrue(math.isnan(totals.of_length(4).coverage(["a"])))
        np.testing.assert_array_equal(totals.of_length(4).holders, totals.holders)


if __name__ == "__main__":
    absltest.main()
