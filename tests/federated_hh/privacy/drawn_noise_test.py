"""Tests of epsilon of the drawn noise, with 60 digits and the formula of the page."""

import fractions

import mpmath
from absl.testing import absltest, parameterized

from federated_hh.privacy import drawn_noise


def gaussian_delta(rho, epsilon):
    """Returns delta of a Gaussian mechanism (Balle and Wang 2018), with 60 digits."""
    mean = mpmath.sqrt(2 * mpmath.mpf(rho))
    first = mpmath.ncdf(mean / 2 - epsilon / mean)
    return first - mpmath.exp(epsilon) * mpmath.ncdf(-mean / 2 - epsilon / mean)


def left_out(epsilon, delta, num_rounds):
    """Returns what docs/integer_noise.md adds to delta; 2^32 numbers a round."""
    numbers = mpmath.mpf(num_rounds) * 2**32
    added = numbers * mpmath.mpf(2) ** -140 * (1 + mpmath.exp(epsilon))
    return added + delta * numbers * mpmath.mpf(2) ** -96


def epsilon_of_drawn(rho, delta, num_rounds):
    """Returns the least epsilon that the page proves at delta, or None."""
    numbers = mpmath.mpf(num_rounds) * 2**32

    def enough(epsilon):
        of_gaussian = gaussian_delta(rho, epsilon)
        return of_gaussian + left_out(epsilon, of_gaussian, num_rounds) <= delta

    # Delta falls and what is added rises with epsilon: look on a grid first.
    fits = [e for e in mpmath.arange(0, 200, 0.05) if enough(e)]
    if not fits:
        return None
    low, high = fits[0] - mpmath.mpf("0.05"), fits[0]
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high + numbers * mpmath.mpf(2) ** -96


class DrawnNoiseTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mpmath.workdps(60))

    @parameterized.parameters(
        (0.61, 1e-10, 1300),
        (0.61, 1e-6, 1300),
        (8.0, 1e-10, 2000),
        # A tenth and 0.3 of delta are left out.
        (0.1, 4.6e-30, 1),
        (0.1, 1.6e-30, 1),
        (4.5, 3e-14, 100_000),
    )
    def test_no_less_and_little_more_than_what_is_proved(self, rho, delta, rounds):
        found = drawn_noise.zcdp_to_epsilon(rho, delta, rounds)
        least = epsilon_of_drawn(rho, mpmath.mpf(delta), rounds)
        self.assertTrue(found.is_proved)
        self.assertGreaterEqual(mpmath.mpf(found.epsilon), least)
        self.assertLess(found.epsilon, least * (1 + mpmath.mpf("1e-2")))

    def test_usual_numbers_are_the_gaussian_s(self):
        for delta in (1e-10, 1e-6):
            for rho in (0.01, 0.61, 2.0, 5.0):
                found = drawn_noise.zcdp_to_epsilon(rho, delta, 10_000)
                alone = mpmath.findroot(
                    lambda e, rho=rho, delta=delta: (
                        mpmath.log(gaussian_delta(rho, e)) - mpmath.log(delta)
                    ),
                    mpmath.mpf(found.epsilon) * mpmath.mpf("1.01"),
                )
                self.assertAlmostEqual(float(found.epsilon / alone), 1, places=6)

    @parameterized.parameters(
        # 0.57 of delta would be left out, then far more than all of it.
        (0.1, 9e-31, 1),
        (10.0, 1e-40, 2),
        (0.61, 1e-40, 1),
        (0.001, 1e-33, 4),
        (0.001, 5e-324, 1),
        (400.0, 1e-10, 10),
        (1e6, 1e-10, 10),
    )
    def test_nothing_is_proved_where_too_much_is_left_out(self, rho, delta, rounds):
        found = drawn_noise.zcdp_to_epsilon(rho, delta, rounds)
        added = left_out(found.epsilon, mpmath.mpf(delta), rounds)
        self.assertGreater(added, mpmath.mpf(delta) / 2)
        self.assertFalse(found.is_proved)

    def test_added_epsilon_is_counted(self):
        # 2^40 rounds, which no run has, add 2^-24 to epsilon.
        one = drawn_noise.zcdp_to_epsilon(0.5, 1e-6, 1)
        many = drawn_noise.zcdp_to_epsilon(0.5, 1e-6, 2**40)
        added = fractions.Fraction(many.epsilon) - fractions.Fraction(one.epsilon)
        self.assertGreaterEqual(added, fractions.Fraction(1, 2**24) * 999 / 1000)


if __name__ == "__main__":
    absltest.main()
