"""Tests of the composition of privacy losses against exact compositions."""

import decimal
import fractions
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy import conversions, loss_composition
from federated_hh.privacy import voting_rounds as triehh_curve
from federated_hh.privacy.loss_composition import Mechanisms


def _gaussian(rho, count=1):
    return Mechanisms(lambda e: conversions.gaussian_delta(rho, e), 100.0, count)


def _exact_delta(epsilon, delta, count, at):
    """Kairouz, Oh, Viswanath 2015, Theorem 3.3: the worst (epsilon, delta) mechanisms.

    The sum over the number of lies of binary randomized response, and the chance that
    one of them tells everything.
    """
    p = 1 / (1 + math.exp(-epsilon))
    lies = np.arange(count + 1)
    first = stats.binom.pmf(count - lies, count, p)
    second = stats.binom.pmf(lies, count, p)
    rest = np.maximum(first - math.exp(at) * second, 0).sum()
    return 1 - (1 - delta) ** count * (1 - rest)


class ComposedTest(parameterized.TestCase):
    @parameterized.product(rho=(1e-4, 0.01, 0.3), count=(2, 7, 180))
    def test_gaussian_mechanisms(self, rho, count):
        for delta in (1e-4, 1e-10):
            found = loss_composition.composed_epsilon([_gaussian(rho, count)], delta)
            exact = conversions.zcdp_to_epsilon(count * rho, delta)
            self.assertGreaterEqual(found, exact)
            self.assertLessEqual(found, exact * 1.005)

    def test_different_gaussian_mechanisms(self):
        found = loss_composition.composed_epsilon(
            [_gaussian(0.01), _gaussian(0.3, 2), _gaussian(2.0)], 1e-8
        )
        exact = conversions.zcdp_to_epsilon(2.61, 1e-8)
        self.assertBetween(found, exact, 1.005 * exact)

    @parameterized.parameters(
        (0.1, 1e-8, 50, 1.5e-6),
        (0.1, 1e-8, 50, 6e-7),
        (0.02, 0.0, 400, 1e-9),
        (1.0, 0.0, 10, 1e-3),
        (3.0, 1e-4, 3, 1e-2),
    )
    def test_the_worst_mechanisms_of_a_guarantee(self, epsilon, delta, count, total):
        found = loss_composition.composed_epsilon(
            [loss_composition.of_guarantee(epsilon, delta, count)], total
        )
        self.assertLessEqual(_exact_delta(epsilon, delta, count, found), total)
        self.assertGreater(_exact_delta(epsilon, delta, count, 0.99 * found), total)

    @parameterized.parameters(
        ((0.5, 1.0, 1.7), 1e-2),
        ((0.3, 0.3, 0.3, 2.0), 1e-3),
        ((0.05, 4.0), 0.02),
    )
    def test_unlike_mechanisms_by_enumeration(self, epsilons, delta):
        # All outcomes of unlike randomized responses (Murtagh, Vadhan 2016).
        found = loss_composition.composed_epsilon(
            [loss_composition.of_guarantee(e, 0.0) for e in epsilons], delta
        )
        exact = 0.0
        for signs in itertools.product((1, -1), repeat=len(epsilons)):
            terms = list(zip(signs, epsilons, strict=True))
            first = math.prod(1 / (1 + math.exp(-s * e)) for s, e in terms)
            second = math.prod(1 / (1 + math.exp(s * e)) for s, e in terms)
            exact += max(0.0, first - math.exp(found) * second)
        self.assertLessEqual(exact, delta)
        self.assertLessEqual(found, sum(epsilons) * (1 + 1e-12))

    def test_a_function_that_is_not_convex(self):
        # A bound with steps: the truth is convex, so the hull of the points is enough.
        def stairs(epsilon):
            return conversions.gaussian_delta(0.05, math.floor(epsilon * 9) / 9)

        found = loss_composition.composed_epsilon([Mechanisms(stairs, 30.0, 5)], 1e-6)
        exact = conversions.zcdp_to_epsilon(0.25, 1e-6)
        self.assertBetween(found, exact, 1.2 * exact)

    def test_points_near_zero_that_fit_no_law(self):
        # Randomized response with a delta at 0 that is too small for its other points
        # to be of a symmetric pair: what is left is still above the response itself.
        def delta_at(epsilon):
            return max(0.0, 0.45 * (math.e - math.exp(epsilon)) / (1 + math.e))

        found = loss_composition.composed_epsilon([Mechanisms(delta_at, 1.0, 4)], 1e-3)
        self.assertBetween(found, 1.0, 4.0)

    def test_small_deltas_keep_their_digits(self):
        for delta in (1e-20, 1e-40):
            found = loss_composition.composed_epsilon([_gaussian(0.01, 30)], delta)
            exact = conversions.zcdp_to_epsilon(0.3, delta)
            self.assertBetween(found, exact, 1.005 * exact)

    def test_one_mechanism_is_its_own_epsilon(self):
        found = loss_composition.composed_epsilon([_gaussian(0.1)], 1e-6)
        self.assertLessEqual(conversions.gaussian_delta(0.1, found), 1e-6)
        self.assertGreater(conversions.gaussian_delta(0.1, found * (1 - 1e-7)), 1e-6)

    def test_all_of_delta_is_spent_by_the_guarantees(self):
        found = loss_composition.composed_epsilon(
            [loss_composition.of_guarantee(0.5, 1e-6, 8)], 8e-6
        )
        self.assertEqual(found, 4.0)

    def test_nothing_to_lose(self):
        self.assertEqual(
            loss_composition.composed_epsilon([_gaussian(1e-9, 3)], 0.01), 0.0
        )

    def test_against_dp_accounting(self):
        import dp_accounting
        from dp_accounting import pld

        accountant = pld.PLDAccountant()
        mechanisms = []
        for scale, count in ((2.0, 3), (5.0, 20)):
            event = dp_accounting.LaplaceDpEvent(scale)
            accountant.compose(event, count)
            # delta of one Laplace mechanism: 1 - e^((epsilon - 1/scale) / 2).
            mechanisms.append(
                Mechanisms(
                    lambda e, s=scale: max(0.0, -math.expm1((e - 1 / s) / 2)),
                    1 / scale,
                    count,
                )
            )
        expected = accountant.get_epsilon(1e-6)
        found = loss_composition.composed_epsilon(mechanisms, 1e-6)
        self.assertAlmostEqual(found / expected, 1, delta=2e-3)

    @parameterized.parameters(
        ([], 1e-6, "mechanisms"),
        ([_gaussian(0.1)], 0.0, "delta"),
        ([loss_composition.of_guarantee(1.0, 1e-6, 10)], 1e-6, "at least 9.99996e-06"),
    )
    def test_bad_input(self, mechanisms, delta, message):
        with self.assertRaisesRegex(ValueError, message):
            loss_composition.composed_epsilon(mechanisms, delta)

    @parameterized.parameters(0, 10**7 + 1)
    def test_bad_counts(self, count):
        with self.assertRaisesRegex(ValueError, "count"):
            _gaussian(0.1, count)


class LawTest(parameterized.TestCase):
    def test_dominates_its_points(self):
        # The divergence of the law, from its masses, at every point and both ways.
        step = 0.05
        points = step * np.arange(65)
        deltas = np.array([conversions.gaussian_delta(0.1, e) for e in points])
        masses, infinite = loss_composition._dominating_law(deltas, step)
        self.assertAlmostEqual(masses.sum() + infinite, 1)
        losses = step * (np.arange(len(masses)) - 64)
        mirrored = masses[::-1] * np.exp(losses)
        np.testing.assert_allclose(mirrored[65:], masses[65:], rtol=1e-9)
        for epsilon, delta in zip(points, deltas, strict=True):
            gains = np.maximum(-np.expm1(epsilon - losses), 0)
            self.assertGreaterEqual(masses @ gains + infinite, delta * (1 - 1e-9))


class OneSidedTest(absltest.TestCase):
    def test_a_law_is_above_its_points(self):
        rounds, step = triehh_curve.VotingRounds(100, 20, 8, 1), 0.01
        deltas = rounds.deltas(step * np.arange(120))
        masses, lowest, infinite = loss_composition._one_sided_law(deltas, step)
        self.assertEqual(lowest, 0)
        exact = [decimal.Decimal(mass) for mass in masses.tolist()]
        self.assertGreaterEqual(sum(exact) + decimal.Decimal(infinite), 1)
        decay = (-decimal.Decimal(step)).exp()
        for first, delta in enumerate(deltas.tolist()):
            reached = decimal.Decimal(infinite) + sum(
                mass * (1 - decay ** (loss - first))
                for loss, mass in enumerate(exact)
                if loss > first
            )
            self.assertGreaterEqual(reached, decimal.Decimal(delta))
            self.assertLess(reached, decimal.Decimal(delta * (1 + 3e-9)))

    def test_the_curve_is_read_at_no_larger_losses(self):
        # Of 3 steps of 0.1, for one, the float product is more than the product.
        read, step = [], 0.1

        def deltas(epsilons):
            read.extend(epsilons.tolist())
            return 0.1 * np.exp(-epsilons)

        curve = Mechanisms(lambda at: 0.1, 5.0, one_sided_deltas=deltas)
        curve.law(step, 50)
        self.assertLen(read, 51)
        for number, epsilon in enumerate(map(fractions.Fraction, read)):
            self.assertLessEqual(epsilon, number * fractions.Fraction(step))

    def test_small_masses_move_to_larger_losses(self):
        law = [fractions.Fraction(each, 64) for each in (1, 5, 40, 16, 2)]
        masses, lowest, lost = loss_composition._power(
            np.array(law, float), -2, 5, 1e-2
        )
        exact = [fractions.Fraction(1)]
        for _ in range(5):
            longer = [fractions.Fraction(0)] * (len(exact) + 4)
            for (i, one), (j, other) in itertools.product(
                enumerate(exact), enumerate(law)
            ):
                longer[i + j] += one * other
            exact = longer
        self.assertGreater(lowest, -10)
        self.assertGreater(lost, 0)
        for index in range(len(exact)):
            above = masses[max(0, index - 10 - lowest) :].sum() + lost
            self.assertGreaterEqual(above * (1 + 1e-12), float(sum(exact[index:])))
        self.assertAlmostEqual(masses.sum() + lost, 1.0, places=5)


if __name__ == "__main__":
    absltest.main()
