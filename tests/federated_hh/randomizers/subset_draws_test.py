"""Tests of the exact draws of subsets, in each of their regimes.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import itertools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.randomizers import subset_draws
from tests.federated_hh.randomizers import enumeration

_FALSE_ALARM = 1e-6


def _draw(domain_size, size, items, included, seed):
    draw = subset_draws.SubsetDraw(domain_size, size)
    return draw.draw(
        tf.constant(items, tf.int32), tf.constant(included), tf.constant(seed)
    ).numpy()


class SubsetDrawTest(parameterized.TestCase):
    @parameterized.product(
        domain_size_and_size=[(n, k) for n in (2, 3, 5, 7) for k in range(1, n)]
    )
    def test_all_subsets_are_equally_likely(self, domain_size_and_size):
        # With the item and without it; Pearson's chi-squared, 20,000 subsets each.
        domain_size, size = domain_size_and_size
        for item, included in itertools.product({0, domain_size - 1}, (True, False)):
            drawn = _draw(
                domain_size, size, [item] * 20_000, [included] * 20_000, [item, 4]
            )
            law = enumeration.subset_selection(
                domain_size, size, item, 1 if included else 0
            )
            self.assertGreater(enumeration.p_value(drawn, law), _FALSE_ALARM)

    @parameterized.parameters(
        # One draw a place: rows with repeated items are drawn again.
        (10**6 + 1, 46, 2000),
        (101, 10, 5000),
        # More draws than places: the first distinct ones.
        (1000, 200, 500),
        (1000, 500, 300),
        (10**5, 2000, 50),
        # Most of the domain: what is left out is drawn.
        (1000, 501, 300),
        (1000, 999, 300),
        # Words of 64 bits.
        (2**31 - 1, 5, 2000),
        (2**31 - 1, 1, 2000),
        (10**9, 1000, 20),
    )
    def test_rows_are_sorted_subsets_that_have_their_item_or_not(
        self, domain_size, size, rows
    ):
        generator = np.random.default_rng(domain_size + size)
        items = generator.integers(0, domain_size, rows, dtype=np.int32)
        items[:2] = 0, domain_size - 1
        included = generator.random(rows) < 0.5
        drawn = _draw(domain_size, size, items, included, [7, 8])
        self.assertEqual(drawn.shape, (rows, size))
        self.assertTrue(np.all(drawn[:, 1:] > drawn[:, :-1]))
        self.assertGreaterEqual(drawn.min(), 0)
        self.assertLess(drawn.max(), domain_size)
        np.testing.assert_array_equal(
            (drawn == items[:, np.newaxis]).any(axis=1), included
        )

    @parameterized.parameters(
        (10**6 + 1, 46, 20_000),
        (1000, 200, 2000),
        (1000, 700, 2000),
        (10**5, 2000, 200),
        (2**31 - 1, 5, 50_000),
    )
    def test_items_of_large_domains_are_equally_likely(self, domain_size, size, rows):
        # Counts in 50 equal parts of the domain, which are negatively correlated:
        # the sum of their squared deviations is scaled to be chi-squared with 49
        # degrees of freedom.
        item = domain_size - 1
        drawn = _draw(domain_size, size, [item] * rows, [False] * rows, [1, 2])
        edges = np.linspace(0, domain_size - 1, 51).astype(np.int64)
        counts, _ = np.histogram(drawn, edges)
        expected = rows * size * np.diff(edges) / (domain_size - 1)
        scale = (domain_size - 1 - size) / (domain_size - 2)
        statistic = ((counts - expected) ** 2 / expected).sum() / scale
        self.assertGreater(stats.chi2.sf(statistic, 49), _FALSE_ALARM)
        # As regular as a lattice would be as wrong.
        self.assertGreater(stats.chi2.cdf(statistic, 49), _FALSE_ALARM)

    def test_pairs_of_places_come_up_together_as_often_as_they_should(self):
        # A uniform subset has each pair with k (k - 1) / (n (n - 1)).
        rows = 200_000
        drawn = _draw(31, 8, [30] * rows, [False] * rows, [3, 9])
        has = np.zeros((rows, 30), bool)
        np.put_along_axis(has, drawn, True, axis=1)
        together = has.T.astype(np.float32) @ has.astype(np.float32)
        pairs = together[np.triu_indices(30, 1)]
        chance = 8 * 7 / (30 * 29)
        deviation = (pairs - rows * chance) / np.sqrt(rows * chance * (1 - chance))
        # The largest of 435 normal deviates, by the union bound.
        limit = stats.norm.isf(_FALSE_ALARM / 2 / len(pairs))
        self.assertLess(np.abs(deviation).max(), limit)

    def test_the_coin_survives_rows_that_are_drawn_again(self):
        # About 40% of rows are drawn again, and more without the item than with it: a
        # coin that was tossed again with the row would favour the item.
        rows = 100_000
        included = np.arange(rows) % 2 == 0
        drawn = _draw(101, 10, [50] * rows, included, [1, 1])
        np.testing.assert_array_equal((drawn == 50).any(axis=1), included)

    def test_a_draw_is_a_function_of_its_seed(self):
        arguments = (101, 30, [5] * 100, [True] * 100)
        one = _draw(*arguments, [1, 2])
        np.testing.assert_array_equal(one, _draw(*arguments, [1, 2]))
        self.assertTrue(np.any(one != _draw(*arguments, [2, 2])))

    def test_enough_draws_a_row_and_not_too_many(self):
        for domain_size, size in ((1000, 200), (1000, 500), (10**6, 10**5)):
            draws = subset_draws.SubsetDraw(domain_size, size).draws_per_row
            needed = -(domain_size - 1) * np.log1p(-size / (domain_size - 1))
            self.assertBetween(draws, needed, 1.25 * needed)
        for domain_size, size in ((10**6 + 1, 46), (2, 1), (10**9, 1)):
            draw = subset_draws.SubsetDraw(domain_size, size)
            self.assertEqual(draw.draws_per_row, size)

    def test_no_rows(self):
        for size in (1, 40, 90):
            drawn = _draw(100, size, np.zeros(0), np.zeros(0, bool), [1, 2])
            self.assertEqual(drawn.shape, (0, size))


if __name__ == "__main__":
    absltest.main()
