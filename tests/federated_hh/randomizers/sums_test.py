"""Tests of `sum_of_reports` against enumeration, and against reports one by one.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.randomizers import (
    k_ary,
    local_randomizer,
    one_hot,
    subset_selection,
)
from tests.federated_hh.randomizers import enumeration

_FALSE_ALARM = 1e-6


def _subset(epsilon, domain_size, size=None):
    return subset_selection.SubsetSelection(epsilon, domain_size, size)


def _sum_law(randomizer, histogram):
    own, other = randomizer.own_probability, randomizer.other_probability
    size = randomizer.domain_size
    laws = []
    for item, number in enumerate(histogram):
        if isinstance(randomizer, subset_selection.SubsetSelection):
            law = enumeration.counts_of_sets(
                enumeration.subset_selection(size, randomizer.subset_size, item, own),
                size,
            )
        else:
            law = enumeration.one_hot(size, item, own, other)
        laws += [law] * number
    return enumeration.sum_of(laws)


def _aggregate(randomizer, histogram, seed):
    return randomizer.sum_of_reports(histogram, seed)


def _per_report(randomizer, histogram, seed):
    """The sum as a randomizer without a faster way draws it."""
    return local_randomizer.LocalRandomizer._sum_of_reports(
        randomizer, np.asarray(histogram), np.random.SeedSequence(seed)
    )


class LawOfSumsTest(parameterized.TestCase):
    @parameterized.parameters(
        (_subset(1.0, 4), [1, 1, 0, 1]),
        (_subset(1.0, 5), [0, 2, 0, 0, 1]),
        (_subset(0.1, 5, 4), [1, 1, 0, 0, 1]),
        (_subset(3.0, 3, 1), [2, 0, 1]),
        (_subset(1.0, 2), [2, 1]),
        (_subset(1.0, 4, 2), [0, 0, 0, 3]),
        (k_ary.KAryRandomizedResponse(1.0, 4), [2, 0, 1, 1]),
        (one_hot.AsymmetricOneHotEncoding(1.0, 3), [2, 0, 1]),
        (one_hot.SymmetricOneHotEncoding(1.0, 3), [1, 2, 0]),
    )
    def test_sums_follow_the_joint_law(self, randomizer, histogram):
        # All counts together as one outcome; Pearson's chi-squared, 1,000 sums.
        sums = [_aggregate(randomizer, histogram, seed) for seed in range(1000)]
        law = _sum_law(randomizer, histogram)
        self.assertGreater(enumeration.p_value(np.array(sums), law), _FALSE_ALARM)

    def test_the_test_finds_a_wrong_histogram(self):
        randomizer = _subset(1.0, 4)
        sums = [_aggregate(randomizer, [1, 1, 0, 1], seed) for seed in range(1000)]
        law = _sum_law(randomizer, [1, 0, 1, 1])
        self.assertLess(enumeration.p_value(np.array(sums), law), 1e-6)

    @parameterized.product(
        randomizer=[
            _subset(1.0, 12),
            _subset(3.0, 12, 3),
            _subset(0.1, 12, 11),
            k_ary.KAryRandomizedResponse(2.0, 12),
            one_hot.AsymmetricOneHotEncoding(2.0, 12),
            one_hot.SymmetricOneHotEncoding(2.0, 12),
        ],
        draw=[_aggregate, _per_report],
    )
    def test_moments_are_those_of_the_formulas(self, randomizer, draw):
        # 100 sums of 5,000 reports. By the union bound over 12 items each: the means
        # of the estimates as normal deviates, their squares as chi-squared.
        histogram = np.zeros(12, np.int64)
        histogram[[0, 3, 4, 11]] = 2000, 1500, 500, 1000
        sums = np.array([draw(randomizer, histogram, seed) for seed in range(100)])
        estimates = np.array([randomizer.estimate(row, 5000) for row in sums])
        variances = randomizer.variance(histogram, 5000)
        rate = _FALSE_ALARM / 5 / 12
        z = (estimates.mean(axis=0) - histogram) / np.sqrt(variances / 100)
        self.assertLess(np.abs(z).max(), stats.norm.isf(rate))
        ratio = ((estimates - histogram) ** 2).sum(axis=0) / variances
        self.assertGreater(stats.chi2.sf(ratio, 100).min(), rate)
        self.assertGreater(stats.chi2.cdf(ratio, 100).min(), rate)

    @parameterized.parameters(_aggregate, _per_report)
    def test_counts_of_subset_selection_are_correlated_as_they_should(self, draw):
        # The variance of a sum of two counts, over 300 sums, as chi-squared: for two
        # items that are held, one and "no item", and two that are not held.
        randomizer = _subset(1.0, 9, 4)
        histogram = np.array([300, 0, 0, 200, 0, 0, 0, 0, 100])
        sums = np.array([draw(randomizer, histogram, seed) for seed in range(300)])
        laws = [
            enumeration.subset_selection(9, 4, item, randomizer.own_probability)
            for item in range(9)
        ]
        for a, b in ((0, 3), (0, 8), (3, 4), (1, 2), (5, 6)):
            variance = mean = 0.0
            for law, number in zip(laws, histogram, strict=True):
                both = [((a in s) + (b in s), float(p)) for s, p in law.items()]
                first = sum(k * p for k, p in both)
                second = sum(k * k * p for k, p in both)
                mean += number * first
                variance += number * (second - first**2)
            ratio = ((sums[:, a] + sums[:, b] - mean) ** 2).sum() / variance
            p = stats.chi2.sf(ratio, 300)
            self.assertBetween(p, _FALSE_ALARM / 10, 1 - _FALSE_ALARM / 10)

    @parameterized.parameters(0, 5, 8)
    def test_own_hits_follow_their_binomial(self, item):
        # All reports have one item, so that its count is the own hits: 40 reports, 500
        # times, by either way.
        randomizer = _subset(1.0, 9)
        own = float(randomizer.own_probability)
        law = {(k,): stats.binom.pmf(k, 40, own) for k in range(41)}
        histogram = np.zeros(9, np.int64)
        histogram[item] = 40
        sums = [randomizer.sum_of_reports(histogram, seed) for seed in range(500)]
        reports = randomizer.randomize(np.full(500 * 40, item), [1, 2]).numpy()
        has_item = (reports == item).any(axis=1).reshape(500, 40)
        for hits in (np.array(sums)[:, item], has_item.sum(axis=1)):
            p = enumeration.p_value(hits[:, np.newaxis], law)
            self.assertGreater(p, _FALSE_ALARM)


class ExtremesTest(parameterized.TestCase):
    @parameterized.product(
        make=[
            _subset,
            k_ary.KAryRandomizedResponse,
            one_hot.AsymmetricOneHotEncoding,
            one_hot.SymmetricOneHotEncoding,
        ],
        epsilon=[0.1, 20.0, 40.0],
        domain_size=[2, 257],
        number=[0, 10**6],
    )
    def test_sums_of_reports_that_all_have_no_item(
        self, make, epsilon, domain_size, number
    ):
        # Each estimate within 8 standard deviations of its true count.
        randomizer = make(epsilon, domain_size)
        histogram = np.zeros(domain_size, np.int64)
        histogram[-1] = number
        counts = randomizer.sum_of_reports(histogram, 1)
        self.assertEqual(counts.dtype, np.int64)
        self.assertBetween(counts.min(), 0, number)
        self.assertLessEqual(counts.max(), number)
        error = np.abs(randomizer.estimate(counts, number) - histogram)
        limit = 8 * np.sqrt(randomizer.variance(histogram, number)) + 8
        self.assertTrue(np.all(error <= limit))
        if isinstance(randomizer, subset_selection.SubsetSelection):
            self.assertEqual(counts.sum(), number * randomizer.subset_size)
        none = randomizer.randomize(np.zeros(0, np.int32), [1, 2])
        self.assertEqual(none.shape[0], 0)
        np.testing.assert_array_equal(
            randomizer.sum_per_report(np.zeros(0, np.int32), [1, 2]),
            np.zeros(domain_size),
        )

    def test_a_sum_is_a_function_of_its_seed(self):
        histogram = np.arange(50)
        for randomizer in (_subset(1.0, 50), one_hot.SymmetricOneHotEncoding(1.0, 50)):
            for draw in (_aggregate, _per_report):
                one = draw(randomizer, histogram, 1)
                np.testing.assert_array_equal(one, draw(randomizer, histogram, 1))
                self.assertTrue(np.any(one != draw(randomizer, histogram, 2)))
            np.testing.assert_array_equal(
                randomizer.sum_of_reports(histogram, 1),
                randomizer.sum_of_reports(histogram, np.random.SeedSequence(1)),
            )

    def test_a_billion_reports_at_the_scale_of_the_paper(self):
        # The mean and the variance of 10^6 counts, which are all but independent: 10
        # standard deviations.
        randomizer = _subset(10.0, 10**6 + 1)
        histogram = np.zeros(10**6 + 1, np.int64)
        histogram[:5] = 10**8
        histogram[-1] = 5 * 10**8
        counts = randomizer.sum_of_reports(histogram, 3)
        self.assertEqual(counts.sum(), 46 * 10**9)
        error = randomizer.estimate(counts, 10**9) - histogram
        z = error / np.sqrt(randomizer.variance(histogram, 10**9))
        self.assertLess(np.abs(z).max(), stats.norm.isf(_FALSE_ALARM / 10**6))
        self.assertAlmostEqual(np.var(z[5:-1]), 1, delta=10 * np.sqrt(2e-6))


if __name__ == "__main__":
    absltest.main()
