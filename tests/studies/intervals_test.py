"""Tests of intervals in [0, 1], against SciPy's and by their coverage."""

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized
from scipy import stats

from studies import intervals


class MeanTest(parameterized.TestCase):
    @parameterized.parameters((3, 10), (90, 100), (1, 1000))
    def test_a_share_is_a_mean_of_its_binomial_error(self, successes, trials):
        share = successes / trials
        error = np.sqrt(share * (1 - share) / trials)
        found = intervals.wilson(share, error, stats.norm.ppf(0.975))
        expected = stats.binomtest(successes, trials).proportion_ci(method="wilson")
        np.testing.assert_allclose(found, expected, atol=1e-12)

    def test_in_the_middle_it_is_students(self):
        low, high = intervals.wilson(0.5, 0.001, 2.776)
        self.assertAlmostEqual(float(low), 0.5 - 0.002776, 6)
        self.assertAlmostEqual(float(high), 0.5 + 0.002776, 6)

    def test_it_stays_in_the_unit_interval(self):
        mean, error = np.meshgrid(np.linspace(0, 1, 101), np.geomspace(1e-6, 1, 30))
        low, high = intervals.wilson(mean, error, 12.7)
        is_known = (mean > 0) & (mean < 1)
        np.testing.assert_array_equal(np.isfinite(low), is_known)
        np.testing.assert_array_equal(np.isfinite(high), is_known)
        low, high, mean = low[is_known], high[is_known], mean[is_known]
        self.assertTrue(np.all((low >= 0) & (low <= mean)))
        self.assertTrue(np.all((high <= 1) & (high >= mean)))

    def test_it_covers_the_mean(self):
        # 4,000 means of five scores near 1, whose law is skewed: 93.6% are covered,
        # with a standard error of 0.4%, and by Student's interval 91.6%. The seed is
        # fixed.
        generator = np.random.default_rng(1)
        values = generator.beta(18, 2, (4_000, 5))
        error = values.std(axis=1, ddof=1) / np.sqrt(5)
        mean, quantile = values.mean(axis=1), stats.t.ppf(0.975, 4)
        low, high = intervals.wilson(mean, error, quantile)
        covered = np.mean((low <= 0.9) & (high >= 0.9))
        self.assertBetween(covered, 0.92, 0.97)
        self.assertGreater(covered, np.mean(np.abs(mean - 0.9) <= quantile * error))

    @parameterized.parameters(2, 3, 10)
    def test_of_few_repeats_it_is_students(self, number):
        values = 0.5 + np.random.default_rng(0).normal(0, 1e-5, number)
        expected = stats.t.interval(
            0.95, number - 1, loc=values.mean(), scale=stats.sem(values)
        )
        np.testing.assert_allclose(intervals.of_mean(values), expected, atol=1e-8)


class HalfOfMeanTest(absltest.TestCase):
    def test_three_repeats_cover_the_mean_as_often_as_is_said(self):
        """By the normal law's quantile, 1.96, it would be four times in five."""
        values = np.random.default_rng(0).normal(5, 2, (4000, 3))
        halves = np.array([intervals.half_of_mean(some) for some in values])
        covered = np.mean(np.abs(values.mean(axis=1) - 5) <= halves)
        # Within four standard deviations.
        self.assertBetween(covered, 0.936, 0.964)

    def test_two_repeats(self):
        low, high = stats.t.interval(0.95, 1, loc=3, scale=stats.sem([2, 4]))
        half = intervals.half_of_mean(np.array([2.0, 4.0]))
        np.testing.assert_allclose([3 - half, 3 + half], [low, high])

    def test_one_repeat_tells_nothing(self):
        self.assertTrue(np.isnan(intervals.half_of_mean(np.array([5.0]))))
        self.assertEqual(intervals.shown(5.0, np.nan, ".2f"), "5.00")


class TableTest(absltest.TestCase):
    def test_means_by_key_in_the_order_of_the_rows(self):
        rows = pd.DataFrame(
            {
                "line": ["b", "b", "a", "b", "a", "c"],
                "k": [1, 1, 1, 1, 1, 1],
                "score": [0.2, 0.4, 1.0, 0.6, 1.0, np.nan],
            }
        )
        found = intervals.of_means(rows, ["line", "k"], ["score"])
        self.assertEqual(list(found["line"]), ["b", "a", "c"])
        self.assertEqual(list(found["repeats"]), [3, 2, 1])
        np.testing.assert_allclose(found["score"], [0.4, 1.0, np.nan])
        # No two runs differ: nothing says how far off the mean may be.
        self.assertTrue(found.loc[1, ["score_low", "score_high"]].isna().all())
        self.assertLess(found.loc[0, "score_low"], 0.2)
        self.assertTrue(np.isnan(found.loc[2, "score_low"]))


if __name__ == "__main__":
    absltest.main()
