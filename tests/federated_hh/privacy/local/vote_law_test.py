"""Tests of the law of votes against the enumerated law of a few reports."""

import itertools
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.local import vote_law


def law_by_enumeration(own, other, num_reports, holders):
    """Returns the probability of each number of votes: float64 [num_reports + 1]."""
    law = np.zeros(num_reports + 1)
    for speaks in itertools.product((0, 1), repeat=num_reports):
        chances = [
            (own if i < holders else other)
            if spoken
            else 1 - (own if i < holders else other)
            for i, spoken in enumerate(speaks)
        ]
        law[sum(speaks)] += math.prod(chances)
    return law


class VoteLawTest(parameterized.TestCase):
    @parameterized.product(
        (dict(own=0.6, other=0.1), dict(own=1.0, other=0.0)), holders=(0, 1, 4, 7)
    )
    def test_estimate_is_unbiased_and_has_its_error(self, own, other, holders):
        law = vote_law.VoteLaw(num_reports=7, own=own, other=other)
        chances = law_by_enumeration(own, other, 7, holders)
        estimates = law.estimate(np.arange(8))
        self.assertAlmostEqual(chances @ estimates, holders)
        variance = chances @ (estimates - holders) ** 2
        error = float(law.standard_error(np.array(holders)))
        self.assertAlmostEqual(error, math.sqrt(variance))

    def test_noise_tail(self):
        law = vote_law.VoteLaw(num_reports=7, own=0.6, other=0.1)
        chances = law_by_enumeration(0.6, 0.1, 7, 0)
        for votes in range(9):
            self.assertAlmostEqual(law.noise_tail(votes), chances[votes:].sum())

    @parameterized.parameters(
        (1000, 0.5, 0.02, 3), (50, 0.9, 0.3, 2), (10**8, 0.5, 4.5e-5, 3), (9, 1, 0, 3)
    )
    def test_least_votes(self, num_reports, own, other, errors):
        law = vote_law.VoteLaw(num_reports=num_reports, own=own, other=other)
        least = law.least_votes(errors)
        for votes in (least - 1, least):
            estimate = (votes - num_reports * other) / (own - other)
            holders = min(max(estimate, 0), num_reports)
            variance = holders * own * (1 - own)
            variance += (num_reports - holders) * other * (1 - other)
            error = math.sqrt(variance) / (own - other)
            is_enough = votes > 0 and estimate >= errors * error
            self.assertEqual(is_enough, votes == least)

    def test_no_cut_and_no_votes_that_are_enough(self):
        law = vote_law.VoteLaw(num_reports=20, own=0.6, other=0.5)
        self.assertEqual(law.least_votes(0), 0)
        self.assertEqual(law.least_votes(100), 21)
        self.assertEqual(law.noise_tail(21), 0)

    def test_threshold_by_enumeration(self):
        # The third largest of four independent numbers of votes.
        one = law_by_enumeration(0.4, 0.2, 3, 0)
        expected = np.zeros(4)
        for votes in itertools.product(range(4), repeat=4):
            expected[sorted(votes)[-3]] += math.prod(one[list(votes)])
        values, chances = vote_law.threshold_law(3, 0.2, 4, 3)
        np.testing.assert_allclose(chances, expected[values], atol=1e-12)
        self.assertAlmostEqual(chances.sum(), 1)

    def test_threshold_of_many_votes_is_computed_in_steps(self):
        settings = (4 * 10**8, 0.3, 100_000, 300)
        with mock.patch.multiple(vote_law, _MOST_VALUES=1000, _STEPS=512):
            values, chances = vote_law.threshold_law(*settings)
        with mock.patch.object(vote_law, "_MOST_VALUES", 10**8):
            all_values, all_chances = vote_law.threshold_law(*settings)
        self.assertBetween(len(values), 200, 512)
        self.assertAlmostEqual(chances.sum(), 1)
        mean, exact = values @ chances, all_values @ all_chances
        spread = math.sqrt((all_values - exact) ** 2 @ all_chances)
        self.assertLess(abs(mean - exact), 0.05 * spread)
        found = math.sqrt((values - mean) ** 2 @ chances)
        self.assertLess(abs(found / spread - 1), 0.01)

    @parameterized.parameters(
        (dict(num_reports=0, own=0.5, other=0.1), "num_reports"),
        (dict(num_reports=5, own=1.5, other=0.1), "own"),
        (dict(num_reports=5, own=0.5, other=0.5), "other is 0.5; it has to be"),
        (dict(num_reports=5, own=0.5, other=math.nan), "other is nan; it has to be"),
    )
    def test_bad_arguments(self, arguments, message):
        with self.assertRaisesRegex(ValueError, message):
            vote_law.VoteLaw(**arguments)


if __name__ == "__main__":
    absltest.main()
