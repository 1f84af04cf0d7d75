"""Tests of conversions and compositions against dp-accounting and integrals."""

import math

import mpmath
import numpy as np
from absl.testing import absltest, parameterized
from scipy import integrate, stats

from federated_hh.privacy import conversions
from federated_hh.privacy.conversions import ZcdpConversion


class ZcdpTest(parameterized.TestCase):
    # Xu et al. 2023: printed zCDP (what they converted), epsilon at 1e-10, and the
    # unrounded zCDP with its epsilon.
    @parameterized.parameters(
        (0.25, "4.49", 4.4922, 24, 4.4426),
        (1.86, "13.69", 13.6883, 182, 13.6762),
        (0.89, "9.01", 9.0103, 87, 8.9976),
        (0.61, "7.31", 7.3050, 60, 7.3199),
        (0.32, "5.13", 5.1335, 31, 5.1015),
        (0.99, "9.56", 9.5641, 97, 9.5630),
    )
    def test_epsilons_of_xu_et_al(self, rho, printed, epsilon, square, unrounded):
        found = conversions.zcdp_to_epsilon(rho, 1e-10)
        self.assertAlmostEqual(found, epsilon, delta=5.1e-5)
        # 7.3050 is a rounding tie at the fifth digit: compare through the tolerance.
        self.assertAlmostEqual(found, float(printed), delta=0.00501)
        found = conversions.zcdp_to_epsilon(square / 98, 1e-10)
        self.assertAlmostEqual(found, unrounded, delta=5.1e-5)

    def test_other_conversions(self):
        for conversion, expected in (
            (ZcdpConversion.RENYI, 9.40),
            (ZcdpConversion.BUN_STEINKE, 9.94),
        ):
            found = conversions.zcdp_to_epsilon(0.89, 1e-10, conversion)
            self.assertAlmostEqual(found, expected, delta=0.0051)
        # The earlier es-ES model, by the RDP conversion of its public notebook.
        found = conversions.zcdp_to_epsilon(79 / 98, 1e-10, ZcdpConversion.RENYI)
        self.assertAlmostEqual(found, 8.8985, delta=1e-3)

    def test_against_dp_accounting(self):
        import dp_accounting
        from dp_accounting import pld

        for rho, delta in ((0.05, 1e-6), (0.89, 1e-10), (3.0, 1e-8)):
            accountant = pld.PLDAccountant()
            accountant.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
            expected = accountant.get_epsilon(delta)
            found = conversions.zcdp_to_epsilon(rho, delta)
            self.assertAlmostEqual(found, expected, delta=2e-4 * expected)
            self.assertLessEqual(found, expected * (1 + 1e-6))

    def test_gaussian_delta_is_the_integral(self):
        for rho, epsilon in ((0.1, 0.3), (1.0, 2.0), (2.0, 0.0)):
            mean = math.sqrt(2 * rho)
            crossing = mean / 2 + epsilon / mean
            # The positive part begins where the densities' ratio is e^epsilon.
            integral = integrate.quad(stats.norm(mean).pdf, crossing, 15)[0]
            integral -= (
                math.exp(epsilon) * integrate.quad(stats.norm.pdf, crossing, 15)[0]
            )
            found = conversions.gaussian_delta(rho, epsilon)
            self.assertAlmostEqual(found, integral, places=10)

    def test_order_of_conversions_and_safety(self):
        generator = np.random.default_rng(51)
        for _ in range(200):
            rho = float(10 ** generator.uniform(-6, 2))
            delta = float(10 ** generator.uniform(-15, -1))
            exact, renyi, simple = (
                conversions.zcdp_to_epsilon(rho, delta, conversion)
                for conversion in ZcdpConversion
            )
            self.assertLessEqual(conversions.gaussian_delta(rho, exact), delta)
            self.assertLessEqual(exact, renyi * (1 + 1e-7))
            self.assertLessEqual(renyi, simple * (1 + 1e-7))

    @parameterized.parameters((0.0, 0.1), (-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0))
    def test_bad_input(self, rho, delta):
        for conversion in ZcdpConversion:
            with self.assertRaisesRegex(ValueError, "rho|delta"):
                conversions.zcdp_to_epsilon(rho, delta, conversion)


class RoundingTest(parameterized.TestCase):
    """No conversion returns less than 50 digits give."""

    def setUp(self):
        super().setUp()
        self.enterContext(mpmath.workdps(50))

    def test_gaussian(self):
        generator = np.random.default_rng(52)
        for _ in range(150):
            rho = float(10 ** generator.uniform(-13, 3))
            delta = float(10 ** generator.uniform(-30, -0.1))
            found = conversions.zcdp_to_epsilon(rho, delta)
            self.assertLessEqual(_exact_gaussian_delta(rho, found), delta, (rho, delta))
            if found > 0:
                lower = found * (1 - 1e-6)
                self.assertGreater(_exact_gaussian_delta(rho, lower), delta)

    def test_gaussian_delta(self):
        generator = np.random.default_rng(53)
        for _ in range(300):
            rho = float(10 ** generator.uniform(-13, 3))
            spread = math.sqrt(2 * rho)
            epsilon = max(0.0, rho + spread * float(generator.uniform(-10, 10)))
            exact = _exact_gaussian_delta(rho, epsilon)
            found = conversions.gaussian_delta(rho, epsilon)
            self.assertGreaterEqual(found, exact, (rho, epsilon))
            self.assertLessEqual(found, exact * (1 + 1e-6), (rho, epsilon))

    def test_renyi(self):
        generator = np.random.default_rng(54)
        for _ in range(300):
            rho = float(10 ** generator.uniform(-12, 2))
            delta = float(10 ** generator.uniform(-30, -0.1))
            order = 1 + float(10 ** generator.uniform(-3, 6))
            found = conversions.renyi_to_epsilon(rho, order, delta)
            a = mpmath.mpf(order)
            terms = (rho, mpmath.log(1 - 1 / a), -mpmath.log(a * delta) / (a - 1))
            self.assertGreaterEqual(found, mpmath.fsum(terms))
            slack = 1e-14 * float(mpmath.fsum(map(abs, terms)))
            self.assertLessEqual(found, mpmath.fsum(terms) + slack)

    def test_bun_steinke(self):
        generator = np.random.default_rng(55)
        for _ in range(300):
            rho = float(10 ** generator.uniform(-12, 3))
            delta = float(10 ** generator.uniform(-30, -0.1))
            found = conversions.zcdp_to_epsilon(rho, delta, ZcdpConversion.BUN_STEINKE)
            exact = rho + 2 * mpmath.sqrt(rho * -mpmath.log(delta))
            self.assertGreaterEqual(found, exact)
            self.assertLessEqual(found, exact * (1 + 1e-14))

    def test_groups(self):
        generator = np.random.default_rng(56)
        # With powers that a float does not hold, too.
        cases = [(0.7001, 1e-306, 1000)]
        for _ in range(300):
            epsilon, delta = 10 ** generator.uniform((-6, -300), (1, -200))
            cases.append((float(epsilon), float(delta), int(generator.integers(1, 40))))
        for epsilon, delta, size in cases:
            group_epsilon, group_delta = conversions.group_privacy(epsilon, delta, size)
            exact = delta * mpmath.fsum(
                mpmath.exp(i * mpmath.mpf(epsilon)) for i in range(size)
            )
            self.assertGreaterEqual(group_delta, exact)
            self.assertLessEqual(group_delta, exact * (1 + 1e-11))
            self.assertGreaterEqual(group_epsilon, size * mpmath.mpf(epsilon))
            rho = conversions.group_zcdp(epsilon, size)
            self.assertGreaterEqual(rho, size**2 * mpmath.mpf(epsilon))


def _exact_gaussian_delta(rho: float, epsilon: float) -> mpmath.mpf:
    """Computes delta from the normal distribution function, in 50 digits."""
    mean, e = mpmath.sqrt(2 * mpmath.mpf(rho)), mpmath.mpf(epsilon)
    first, second = mean / 2 - e / mean, -mean / 2 - e / mean
    return mpmath.ncdf(first) - mpmath.exp(e) * mpmath.ncdf(second)


class CompositionTest(parameterized.TestCase):
    def test_group_privacy(self):
        epsilon, delta = conversions.group_privacy(0.5, 1e-8, 3)
        self.assertAlmostEqual(epsilon, 1.5)
        self.assertAlmostEqual(
            delta, 1e-8 * (1 + math.exp(0.5) + math.exp(1.0)), delta=1e-20
        )
        self.assertEqual(conversions.group_privacy(0.5, 1e-8, 1)[0], 0.5)
        self.assertAlmostEqual(conversions.group_privacy(0.0, 1e-8, 4)[1], 4e-8)
        self.assertEqual(conversions.group_zcdp(0.25, 3), 2.25)
        with self.assertRaisesRegex(ValueError, "group_size"):
            conversions.group_privacy(5.0, 1e-3, 4)
        with self.assertRaisesRegex(ValueError, "group_size"):
            conversions.group_privacy(400.0, 1e-3, 4)


if __name__ == "__main__":
    absltest.main()
