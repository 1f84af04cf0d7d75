"""Tests of the bounds on hypergeometric tails against exact rational sums."""

import math
from fractions import Fraction

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from privacy import hypergeometric


def _exact(population: int, holders: int, cohort: int, threshold: int) -> Fraction:
    """The tail from its definition; symmetric in holders and cohort."""
    holders, cohort = max(holders, cohort), min(holders, cohort)
    first = max(threshold, cohort - (population - holders), 0)
    ways = sum(
        math.comb(holders, votes) * math.comb(population - holders, cohort - votes)
        for votes in range(first, min(holders, cohort) + 1)
    )
    return Fraction(ways, math.comb(population, cohort))


class UpperTailTest(parameterized.TestCase):
    def test_all_small_cases(self):
        for n in range(1, 9):
            for holders in range(n + 1):
                for cohort in range(n + 1):
                    for threshold in range(-1, n + 2):
                        case = (n, holders, cohort, threshold)
                        self.assert_between(case)

    def test_random_cases(self):
        generator = np.random.default_rng(1)
        for _ in range(1000):
            n = int(10 ** generator.uniform(0.5, 3.3))
            holders, cohort = (int(x) for x in generator.integers(0, n + 1, size=2))
            threshold = int(generator.integers(0, min(holders, cohort) + 2))
            self.assert_between((n, holders, cohort, threshold))

    @parameterized.parameters(
        (10**6, 220, 49_252, 40), (10**6, 90, 12_084, 15), (10**5, 90, 8_935, 30)
    )
    def test_where_it_is_used(self, population, holders, cohort, threshold):
        self.assert_between((population, cohort, holders, threshold))
        swapped = hypergeometric.upper_tail(population, holders, cohort, threshold)
        self.assertEqual(
            hypergeometric.upper_tail(population, cohort, holders, threshold), swapped
        )

    def assert_between(self, case):
        low, high = hypergeometric.upper_tail(*case)
        exact = _exact(*case)
        self.assertLessEqual(Fraction(low), exact, case)
        self.assertGreaterEqual(Fraction(high), exact, case)
        if exact > 1e-290 and high < 1:
            self.assertLess(high / low, 1 + 1e-9, case)

    def test_tails_below_the_smallest_float(self):
        low, high = hypergeometric.upper_tail(10**6, 2000, 2000, 300)
        self.assertEqual(low, 0)
        self.assertBetween(high, 1e-308, 1e-307)

    def test_large_cohorts_have_an_upper_bound_still(self):
        n, holders, cohort = 10**9, 10**7, 10**7
        for threshold in (101_000, 102_000):
            low, high = hypergeometric.upper_tail(n, holders, cohort, threshold)
            exact = stats.norm.sf((threshold - 1e5) / math.sqrt(1e5 * 0.98))
            self.assertBetween(high, exact, 100 * exact)
            self.assertEqual(low, 0)
        below_the_mean = hypergeometric.upper_tail(n, holders, cohort, 99_000)
        self.assertEqual(below_the_mean, (0, 1))


if __name__ == "__main__":
    absltest.main()
