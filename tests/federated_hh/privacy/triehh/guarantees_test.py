"""Tests of TrieHH's parameters, and of what it finds in the worst case."""

import fractions
import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import voting_rounds as triehh_curve
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import solver as triehh_solver


def _tail(n: int, holders: int, cohort: int, threshold: int) -> fractions.Fraction:
    """P(Hypergeometric(n, holders, cohort) >= threshold), from its definition."""
    ways = sum(
        math.comb(holders, votes) * math.comb(n - holders, cohort - votes)
        for votes in range(threshold, min(holders, cohort) + 1)
    )
    return fractions.Fraction(ways, math.comb(n, cohort))


class ParametersTest(parameterized.TestCase):
    def test_all_rounds_of_some_runs(self):
        parameters = triehh.TrieHHParameters(100, 20, 8, 4)
        rounds = triehh_curve.VotingRounds(100, 20, 8, 12)
        self.assertEqual(parameters.voting_rounds(3), rounds)

    @parameterized.parameters(
        ("population_size", (1, 1, 10, 10)),
        ("cohort_size", (100, 101, 10, 10)),
        ("cohort_size", (100, 0, 10, 10)),
        ("threshold", (100, 10, 0, 10)),
        ("max_length", (100, 10, 10, 0)),
        ("max_length", (100, 10, 10, 2.0)),
        ("threshold", (100, 10, True, 10)),
    )
    def test_bad_parameters(self, name, arguments):
        with self.assertRaisesRegex(ValueError, name):
            triehh.TrieHHParameters(*arguments)


class DiscoveryRateTest(parameterized.TestCase):
    @parameterized.parameters(
        (10**4, 12, 151, 900, 0.0358700225),
        (10**4, 12, 151, 1500, 0.9709157069),
        (10**5, 14, 1294, 1500, 0.4301662625),
    )
    def test_digits(self, n, theta, cohort, occurrences, expected):
        parameters = triehh.TrieHHParameters(n, cohort, theta, 10)
        rate = triehh.worst_case_discovery_rate(occurrences, parameters)
        self.assertIsInstance(rate, float)
        self.assertAlmostEqual(rate, expected, delta=6e-11)

    def test_equals_exact_rational_sum_also_where_it_is_tiny(self):
        parameters = triehh.TrieHHParameters(2000, 60, 8, 5)
        occurrences = np.array([[0, 7, 8], [9, 400, 2000]])
        rates = triehh.worst_case_discovery_rate(occurrences, parameters)
        self.assertEqual(rates.shape, (2, 3))
        total = math.comb(2000, 60)
        for holders, rate in zip(occurrences.flat, rates.flat, strict=True):
            holders = int(holders)
            ways = sum(
                math.comb(holders, i) * math.comb(2000 - holders, 60 - i)
                for i in range(8, min(holders, 60) + 1)
            )
            exact = float(fractions.Fraction(ways, total) ** 5)
            self.assertAlmostEqual(rate, exact, delta=1e-8 * exact)

    def test_bad_occurrences(self):
        parameters = triehh.TrieHHParameters(2000, 60, 8, 5)
        for bad in (-1, 2001, 1.5, np.array([1.0])):
            with self.assertRaisesRegex(ValueError, "occurrences"):
                triehh.worst_case_discovery_rate(bad, parameters)

    def test_holders_needed_is_the_smallest(self):
        parameters = triehh.TrieHHParameters(300, 60, 8, 5)
        for rate in (0.05, 0.5, 0.9, 0.999):
            needed = triehh_solver.holders_needed(parameters, rate)
            self.assertGreaterEqual(_tail(300, needed, 60, 8) ** 5, rate)
            self.assertLess(_tail(300, needed - 1, 60, 8) ** 5, rate)
        nothing = triehh.TrieHHParameters(300, 7, 8, 5)
        self.assertIsNone(triehh_solver.holders_needed(nothing, 0.9))


if __name__ == "__main__":
    absltest.main()
