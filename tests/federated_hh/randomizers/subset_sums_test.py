"""Tests of sums of subsets against their enumerated joint law.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import fractions
import itertools

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.randomizers import subset_sums
from tests.federated_hh.randomizers import enumeration

_FALSE_ALARM = 1e-6


def _subset_law(num_items, size, owner=None):
    """The law of one subset: its items but the owner's, and then the owner's."""
    law = {}
    subsets = list(itertools.combinations(range(num_items), size))
    for subset in subsets:
        items = [int(z in subset and z != owner) for z in range(num_items)]
        own = [int(z in subset and z == owner) for z in range(num_items)]
        law[(*items, *own)] = fractions.Fraction(1, len(subsets))
    return law


def _joint_law(num_items, anonymous, subset_size, owners):
    laws = [_subset_law(num_items, 0)]
    for size, number in enumerate(anonymous):
        laws += [_subset_law(num_items, size)] * number
    for owner, number in enumerate(owners):
        laws += [_subset_law(num_items, subset_size, owner)] * number
    return enumeration.sum_of(laws)


class SumOfSubsetsTest(parameterized.TestCase):
    @parameterized.parameters(
        # anonymous by size, size of owned subsets, owners by item
        ([0, 0, 2], 1, [1, 1, 0]),
        ([0], 2, [2, 0, 1, 1]),
        ([1, 2], 1, [0, 1, 2, 0, 1]),
        ([0, 0, 0, 2], 2, [0, 0, 1, 0, 0, 1]),
        ([0, 0, 0, 1], 4, [0, 1, 0, 0, 2]),
        ([0], 0, [2, 1]),
        ([0, 0, 0, 2], 3, [1, 0, 1]),
    )
    def test_sums_follow_the_joint_law(self, anonymous, subset_size, owners):
        # All counts together as one outcome; Pearson's chi-squared, 2,000 sums.
        law = _joint_law(len(owners), anonymous, subset_size, owners)
        generator = np.random.default_rng(len(owners))
        sums = []
        for _ in range(2000):
            counts, own = subset_sums.sum_of_subsets(
                generator, np.array(anonymous), subset_size, np.array(owners)
            )
            sums.append(np.concatenate([counts, own]))
        self.assertGreater(enumeration.p_value(np.array(sums), law), _FALSE_ALARM)

    def test_the_test_finds_owners_that_are_not_followed(self):
        # A sum that gives own picks to the wrong items of an even domain.
        law = _joint_law(4, [0], 2, [2, 0, 1, 1])
        generator = np.random.default_rng(1)
        sums = []
        for _ in range(2000):
            counts, own = subset_sums.sum_of_subsets(
                generator, np.array([0, 0, 4]), 0, np.zeros(4, np.int64)
            )
            sums.append(np.concatenate([counts, own]))
        self.assertLess(enumeration.p_value(np.array(sums), law), 1e-6)

    @parameterized.parameters((1000, 30), (1037, 5), (513, 500), (64, 63))
    def test_moments_of_many_subsets(self, num_items, size):
        # 2 * 10^6 subsets, a third of them with owners; counts of 100 sums. Means and
        # variances as normal and chi-squared deviates, by the union bound over items.
        owners = np.zeros(num_items, np.int64)
        owners[[0, 7, num_items - 1]] = 300_000, 200_000, 200_000
        anonymous = np.zeros(size + 1, np.int64)
        anonymous[size] = 1_300_000
        n, q = 2_000_000, size / num_items
        generator = np.random.default_rng(size)
        draws = [
            subset_sums.sum_of_subsets(generator, anonymous, size, owners)
            for _ in range(100)
        ]
        counts = np.array([counts for counts, _ in draws])
        own = np.array([own for _, own in draws])
        np.testing.assert_array_equal((counts + own).sum(axis=1), n * size)
        rate = _FALSE_ALARM / 4 / num_items
        for sums, trials in ((counts, n - owners), (own, owners)):
            held = trials > 0
            self.assertTrue(np.all(sums[:, ~held] == 0))
            mean, variance = trials[held] * q, trials[held] * q * (1 - q)
            z = (sums[:, held].mean(axis=0) - mean) / np.sqrt(variance / 100)
            self.assertLess(np.abs(z).max(), stats.norm.isf(rate))
            ratio = ((sums[:, held] - mean) ** 2).sum(axis=0) / variance
            self.assertGreater(stats.chi2.sf(ratio, 100).min(), rate)
            self.assertGreater(stats.chi2.cdf(ratio, 100).min(), rate)
        # Two items of one subset repel each other: covariance -q (1 - q) / (n - 1).
        # For items that nobody owns, next to each other and in different halves.
        for a, b in ((2, 3), (2, num_items // 2 + 9)):
            both = counts[:, a] + counts[:, b]
            alone = q * (1 - q)
            variance = n * 2 * alone * (1 - 1 / (num_items - 1))
            ratio = ((both - 2 * n * q) ** 2).sum() / variance
            self.assertBetween(
                stats.chi2.sf(ratio, 100), _FALSE_ALARM, 1 - _FALSE_ALARM
            )

    def test_subsets_of_all_items_and_of_none(self):
        generator = np.random.default_rng(1)
        counts, own = subset_sums.sum_of_subsets(
            generator, np.array([5, 0, 0, 0, 0, 7]), 5, np.array([1, 0, 2, 0, 0])
        )
        np.testing.assert_array_equal(counts, [9, 10, 8, 10, 10])
        np.testing.assert_array_equal(own, [1, 0, 2, 0, 0])
        counts, own = subset_sums.sum_of_subsets(
            generator, np.array([5]), 0, np.zeros(5, np.int64)
        )
        np.testing.assert_array_equal([counts, own], np.zeros((2, 5)))

    def test_one_item(self):
        counts, own = subset_sums.sum_of_subsets(
            np.random.default_rng(1), np.array([5, 4]), 1, np.array([3])
        )
        np.testing.assert_array_equal([counts, own], [[4], [3]])

    def test_more_subsets_than_numpy_takes_in_one_urn(self):
        # 10^12 owned subsets: total, and the mean of each count to 6 deviations.
        owners = np.full(10, 10**11)
        counts, own = subset_sums.sum_of_subsets(
            np.random.default_rng(1), np.zeros(1, np.int64), 3, owners
        )
        self.assertEqual(counts.sum() + own.sum(), 3 * 10**12)
        for drawn, trials in ((counts, 9 * 10**11), (own, 10**11)):
            deviation = np.sqrt(trials * 0.3 * 0.7)
            self.assertLess(np.abs(drawn - 0.3 * trials).max(), 6 * deviation)


if __name__ == "__main__":
    absltest.main()
