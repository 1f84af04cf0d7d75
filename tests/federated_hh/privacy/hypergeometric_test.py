"""Tests of the bounds on hypergeometric tails against exact rational sums."""

import math
from fractions import Fraction

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy import hypergeometric, voting_rounds


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


class PointUpperTest(parameterized.TestCase):
    def assert_above(self, population, holders, cohort, votes):
        held = np.array(holders)
        found = voting_rounds.point_upper(population, held, cohort, votes)
        self.assertEqual(found.shape, held.shape)
        for k, chance in zip(held.tolist(), found.tolist(), strict=True):
            exact = Fraction(0)
            if 0 <= votes <= cohort:
                ways = math.comb(k, votes) * math.comb(population - k, cohort - votes)
                exact = Fraction(ways, math.comb(population, cohort))
            case = (population, k, cohort, votes)
            self.assertGreaterEqual(Fraction(chance), exact, case)
            if exact == 0:
                self.assertEqual(chance, 0, case)
            elif exact > 1e-300:
                self.assertLess(Fraction(chance), exact * (1 + Fraction(2e-9)), case)

    def test_all_small_cases(self):
        for n in range(1, 9):
            for cohort in range(1, n + 1):
                for votes in range(n + 2):
                    self.assert_above(n, range(n + 1), cohort, votes)

    def test_random_cases(self):
        generator = np.random.default_rng(2)
        for _ in range(200):
            n = int(10 ** generator.uniform(0.5, 3.5))
            cohort = int(generator.integers(1, n + 1))
            held = generator.integers(0, n + 1, size=5)
            # Votes near the mean and far from it.
            mean = cohort * held[0] / n
            for votes in (int(mean), int(generator.integers(0, cohort + 1))):
                self.assert_above(n, held, cohort, votes)

    @parameterized.parameters(
        (2**31 - 1, 274_424, 30), (10**9, 1000, 30), (10**6, 93_506, 39)
    )
    def test_large_populations(self, population, cohort, votes):
        for k in (votes, votes + 1, 417, 2000):
            found = voting_rounds.point_upper(
                population, np.array([k]), cohort, votes
            ).item()
            # C(k, x) (m)_x (n - m)_(k - x) / (n)_k, in falling factorials.
            exact = Fraction(math.comb(k, votes))
            for i in range(k):
                part = cohort - i if i < votes else population - cohort - (i - votes)
                exact *= Fraction(part, population - i)
            self.assertGreaterEqual(Fraction(found), exact)
            self.assertLess(Fraction(found), exact * (1 + Fraction(2e-9)) + 1e-300)

    def test_probabilities_below_the_smallest_float(self):
        found = voting_rounds.point_upper(10**6, np.array([2000]), 2000, 300).item()
        self.assertBetween(found, 1e-308, 1e-307)


if __name__ == "__main__":
    absltest.main()
