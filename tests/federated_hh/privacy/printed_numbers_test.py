"""Tests of how bounds are printed: never below themselves, no longer than needed."""

import fractions
import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import rounding


class RoundedUpToTest(parameterized.TestCase):
    @parameterized.parameters(
        (19.8012, 1, "19.9"),
        (1761.04, 1, "1,761.1"),
        (3.0, 2, "3"),
        (0.0, 2, "0"),
        # The last digits of a computation do not count.
        (0.1 + 0.2, 1, "0.3"),
        (1e-10, 2, "0.01"),
        # Of more than six digits none is lost.
        (1234561.04, 1, "1,234,561.1"),
        (1e25, 1, "10,000,000,000,000,000,000,000,000"),
        (math.inf, 1, "inf"),
        (200.5, 0, "201"),
    )
    def test_cases(self, value, places, shown):
        self.assertEqual(rounding.rounded_up_to(value, places), shown)

    def test_a_bound_stays_one_and_near(self):
        random = np.random.default_rng(0)
        for value in 10 ** random.uniform(-6, 12, 500):
            for places in (0, 1, 2, 4):
                shown = rounding.rounded_up_to(value, places)
                found = fractions.Fraction(shown.replace(",", ""))
                step = fractions.Fraction(1, 10**places)
                self.assertGreaterEqual(found, value * (1 - 2e-12))
                self.assertLess(found - fractions.Fraction(value), step)
                self.assertEqual(found % step, 0)

    def test_four_digits(self):
        for value, shown in ((1.23401, "1.235"), (2 + 1e-14, "2"), (1e-10, "1e-10")):
            self.assertEqual(rounding.rounded_up(value), shown)


if __name__ == "__main__":
    absltest.main()
