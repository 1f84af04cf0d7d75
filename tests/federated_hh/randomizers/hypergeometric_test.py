"""Tests of hypergeometric draws; randomized ones raise a false alarm in 1e-6."""

import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.randomizers import hypergeometric
from tests.federated_hh.randomizers import enumeration

_FALSE_ALARM = 1e-6


class HypergeometricTest(parameterized.TestCase):
    @parameterized.product(
        urn=[(1, 0, 1), (3, 4, 2), (3, 4, 7), (10, 5, 9), (40, 60, 50), (0, 9, 4)],
        limit=[hypergeometric.NUMPY_LIMIT, 0],
    )
    def test_draws_follow_the_law_by_either_way(self, urn, limit):
        # Pearson's chi-squared, 50,000 draws.
        good, bad, sample = urn
        law = {
            (k,): math.comb(good, k)
            * math.comb(bad, sample - k)
            / math.comb(good + bad, sample)
            for k in range(max(0, sample - bad), min(good, sample) + 1)
        }
        drawn = hypergeometric.hypergeometric(
            np.random.default_rng(1),
            *(np.full(50_000, number) for number in urn),
            limit=limit,
        )
        p = enumeration.p_value(drawn[:, np.newaxis], law)
        self.assertGreater(p, _FALSE_ALARM)

    @parameterized.parameters(
        (10**12, 3 * 10**12, 10**12),
        (10**17, 10**17, 3),
        (2 * 10**9, 5, 10**9),
        (10**10, 10**18, 10**17),
    )
    def test_large_urns_have_the_right_mean_and_variance(self, good, bad, sample):
        # 2,000 draws; the mean as a normal deviate, the variance as chi-squared with
        # the normal law's kurtosis, which the hypergeometric has here or is below.
        total = good + bad
        share = good / total
        variance = sample * share * (1 - share) * (total - sample) / (total - 1)
        drawn = hypergeometric.hypergeometric(
            np.random.default_rng(2), *(np.full(2000, n) for n in (good, bad, sample))
        )
        self.assertBetween(drawn.min(), max(0, sample - bad), min(good, sample))
        # The mean is subtracted as an integer: float64 has no digits to spare.
        centre = sample * good // total
        deviations = (drawn - centre).astype(float) - (sample * good % total) / total
        z = deviations.sum() / np.sqrt(2000 * variance)
        self.assertLess(abs(z), stats.norm.isf(_FALSE_ALARM / 2))
        if variance > 100:
            ratio = (deviations**2).sum() / variance
            low, high = stats.chi2.ppf([_FALSE_ALARM / 2, 1 - _FALSE_ALARM / 2], 2000)
            self.assertBetween(ratio, low, high)

    def test_large_urns_are_emptied_or_left_alone(self):
        good, bad = np.array([2 * 10**9] * 2), np.array([3 * 10**9] * 2)
        drawn = hypergeometric.hypergeometric(
            np.random.default_rng(1), good, bad, np.array([0, 5 * 10**9])
        )
        np.testing.assert_array_equal(drawn, [0, 2 * 10**9])


class ChooseFromColumnsTest(absltest.TestCase):
    def test_samples_follow_the_multivariate_law(self):
        # 50,000 samples of 4 from an urn of 2, 3, 0 and 4; Pearson's chi-squared.
        counts = (2, 3, 0, 4)
        law = {}
        for chosen in itertools.product(*(range(n + 1) for n in counts)):
            if sum(chosen) == 4:
                ways = math.prod(map(math.comb, counts, chosen))
                law[chosen] = ways / math.comb(9, 4)
        drawn = hypergeometric.choose_from_columns(
            np.random.default_rng(3),
            np.tile(counts, (50_000, 1)),
            np.full(50_000, 4),
        )
        self.assertGreater(enumeration.p_value(drawn, law), _FALSE_ALARM)

    def test_urns_do_not_mix(self):
        counts = np.array([[5, 0, 0], [0, 2, 3], [1, 1, 1], [0, 0, 0]])
        drawn = hypergeometric.choose_from_columns(
            np.random.default_rng(1), counts, np.array([2, 5, 0, 0])
        )
        np.testing.assert_array_equal(
            drawn, [[2, 0, 0], [0, 2, 3], [0, 0, 0], [0, 0, 0]]
        )


if __name__ == "__main__":
    absltest.main()
