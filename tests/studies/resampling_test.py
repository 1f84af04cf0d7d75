"""Tests of populations drawn from others, against their law.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import collections
import os

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.populations.columns import client_words
from studies import resampling

_ROWS = [
    ("a", [("x", 3), ("y", 1)]),
    ("b", [("y", 5)]),
    ("c", []),
    ("d", [("y", 2), ("z", 1)]),
]


class ResamplingTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = self.create_tempdir().full_path
        self.population = client_words.ClientWords.from_rows(
            os.path.join(self.scratch, "rows"), _ROWS
        )

    def drawn(self, what, num_clients=20_000, seed=1):
        return resampling.resampled(
            self.population, num_clients, what, seed=seed, cache=self.scratch
        )

    @parameterized.parameters(
        # The most frequent words of those who have one; all occurrences.
        (resampling.FAVORITES, {"x": 1 / 3, "y": 2 / 3}),
        (resampling.OCCURRENCES, {"x": 3 / 12, "y": 8 / 12, "z": 1 / 12}),
    )
    def test_words_have_their_frequencies(self, what, expected):
        found = self.drawn(what)
        self.assertEqual(found.num_clients, found.num_entries)
        counts = collections.Counter(found.word(i) for i in found.word_ids)
        self.assertEqual(counts.keys(), expected.keys())
        p = stats.chisquare(
            [counts[word] for word in expected],
            [share * 20_000 for share in expected.values()],
        ).pvalue
        self.assertGreater(p, 1e-6)

    def test_clients_are_drawn_with_all_that_they_have(self):
        found = self.drawn(resampling.CLIENTS)
        rows = [tuple(words) for _, words in _ROWS]
        counts = collections.Counter(tuple(found.client(i)) for i in range(20_000))
        self.assertEqual(set(counts), set(rows))
        p = stats.chisquare([counts[row] for row in rows]).pvalue
        self.assertGreater(p, 1e-6)

    @parameterized.parameters(1, 70_000)
    def test_as_many_clients_as_asked_for(self, number):
        """The larger number is of two chunks; what is at hand is four clients."""
        for what in (resampling.FAVORITES, resampling.OCCURRENCES, resampling.CLIENTS):
            self.assertEqual(self.drawn(what, number).num_clients, number)

    def test_a_seed_gives_the_same_and_another_another(self):
        for what in (resampling.FAVORITES, resampling.CLIENTS):
            first, again = self.drawn(what, 50), self.drawn(what, 50)
            self.assertEqual(first.directory, again.directory)
            other = self.drawn(what, 50, seed=2)
            self.assertFalse(
                np.array_equal(first.entries, other.entries)
                and np.array_equal(first.row_splits, other.row_splits)
            )

    @parameterized.parameters(("all", 5, "what is 'all'"), ("clients", 0, "is 0; it"))
    def test_bad_arguments(self, what, number, message):
        with self.assertRaisesRegex(ValueError, message):
            self.drawn(what, number)


if __name__ == "__main__":
    absltest.main()
