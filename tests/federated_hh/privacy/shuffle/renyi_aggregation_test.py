"""Tests of the Renyi route: known values, brute sums, exact laws of small cases."""

import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import special, stats

from federated_hh.privacy import conversions
from federated_hh.privacy.shuffle import clones, renyi_aggregation
from tests.federated_hh.privacy import enumeration


class RhoTest(parameterized.TestCase):
    @parameterized.product(
        n=(2, 5, 40, 300), local=(0.2, 1.5, 4.0), order=(1.3, 4.0, 60.0)
    )
    def test_equals_the_sum_over_coins(self, n, local, order):
        honest = 1 / (1 + math.exp(-local))
        coin = 2 * (1 - honest)
        logs = []
        for coins in range(n):
            x = np.arange(coins + 2)
            with np.errstate(divide="ignore"):
                one = stats.binom.logpmf(x - 1, coins, 0.5)
                none = stats.binom.logpmf(x, coins, 0.5)
            first = np.logaddexp(math.log(honest) + one, math.log(1 - honest) + none)
            second = np.logaddexp(math.log(1 - honest) + one, math.log(honest) + none)
            moment = special.logsumexp(order * first + (1 - order) * second)
            logs.append(stats.binom.logpmf(coins, n - 1, coin) + moment)
        exact = 2 * special.logsumexp(logs) / (order - 1)
        found = renyi_aggregation.symmetric_one_hot_rho(order, local, n)
        self.assertGreaterEqual(found, exact * (1 - 1e-9))
        # What is beyond 11 standard deviations and 45 coins more is bounded.
        self.assertLessEqual(found, exact * (1 + 1e-6) + 1e-9)

    @parameterized.parameters((10**6, 150.0), (10**7, 30.0))
    def test_blocks_cost_little(self, n, order):
        # 95,000 coins on average or more, in blocks, against the sum over each count.
        local = 3.0
        honest = 1 / (1 + math.exp(-local))
        mean = n * 2 * (1 - honest)
        reach, step = int(8 * math.sqrt(mean)), int(math.sqrt(mean) / 12)
        logs = []
        for coins in range(int(mean) - reach, int(mean) + reach, step):
            trials = coins + 1
            x = np.arange(trials // 2 - 5 * reach // 4, trials // 2 + 5 * reach // 4)
            u = x / trials
            first = honest * u + (1 - honest) * (1 - u)
            terms = (
                stats.binom.logpmf(x, trials, 0.5)
                + math.log(2)
                + order * np.log(first)
                + (1 - order) * np.log(1 - first)
            )
            logs.append(
                stats.binom.logpmf(coins, n - 1, 2 * (1 - honest))
                + math.log(step)
                + special.logsumexp(terms)
            )
        middle = 2 * special.logsumexp(logs) / (order - 1)
        found = renyi_aggregation.symmetric_one_hot_rho(order, local, n)
        self.assertAlmostEqual(found, middle, delta=0.01 * middle)
        self.assertGreaterEqual(found, middle * (1 - 1e-4))

    @parameterized.product(n=(2, 40, 300), local=(0.2, 3.0), order=(1.3, 60.0))
    def test_asymmetric_equals_the_sum_over_coins(self, n, local, order):
        other = 1 / (1 + math.exp(local))
        exact = 0.0
        for lower, upper in ((other, 0.5), (0.5, other)):
            logs = []
            for coins in range(n):
                x = np.arange(coins + 2)
                with np.errstate(divide="ignore"):
                    one = stats.binom.logpmf(x - 1, coins, 0.5)
                    none = stats.binom.logpmf(x, coins, 0.5)
                first, second = (
                    np.logaddexp(math.log(b) + one, math.log(1 - b) + none)
                    for b in (upper, lower)
                )
                moment = special.logsumexp(order * first + (1 - order) * second)
                logs.append(stats.binom.logpmf(coins, n - 1, 2 * other) + moment)
            exact += special.logsumexp(logs) / (order - 1)
        found = renyi_aggregation.asymmetric_one_hot_rho(order, local, n)
        self.assertGreaterEqual(found, exact * (1 - 1e-9))
        self.assertLessEqual(found, exact * (1 + 1e-6) + 1e-9)

    @parameterized.parameters(False, True)
    def test_bounds_every_small_data_set(self, symmetric):
        rho = renyi_aggregation.asymmetric_one_hot_rho
        if symmetric:
            rho = renyi_aggregation.symmetric_one_hot_rho
        generator = np.random.default_rng(71)
        for _ in range(40):
            local = float(generator.uniform(0.2, 3.0))
            n = int(generator.integers(2, 5))
            order = float(generator.uniform(1.1, 12.0))
            matrix, vectors = enumeration.one_hot(local, 3, symmetric)
            others = generator.integers(3, size=n - 1).tolist()
            laws = [enumeration.sum_law(matrix, [x, *others], vectors) for x in (0, 1)]
            moment = math.fsum(
                chance**order * laws[1][total] ** (1 - order)
                for total, chance in laws[0].items()
            )
            exact = math.log(moment) / (order - 1)
            self.assertLessEqual(exact, rho(order, local, n) * (1 + 1e-9))


class EpsilonTest(parameterized.TestCase):
    # delta = 1e-6; local epsilon for deletion. The second number is what the same
    # proved rho gave on a coarser grid, the third the largest exact value of three
    # data sets: a bound is between them.
    @parameterized.parameters(
        (1.5, 1000, 0.4047, 0.3014),
        (1.5, 10**5, 0.03485, 0.0243),
        (3.0, 1000, 1.2697, 0.9371),
        (3.0, 10**5, 0.1071, 0.0682),
    )
    def test_known_values(self, local, n, coarse, exact):
        found, order = renyi_aggregation.symmetric_one_hot_epsilon(local, n, 1e-6)
        self.assertBetween(found, exact, coarse)
        again = conversions.renyi_to_epsilon(
            renyi_aggregation.symmetric_one_hot_rho(order, local, n), order, 1e-6
        )
        self.assertAlmostEqual(found, again, places=9)

    @parameterized.parameters((0.001, 10**12, 1e-10))
    def test_best_orders_out_of_reach_have_a_bound_all_the_same(self, local, n, delta):
        epsilon, order = renyi_aggregation.symmetric_one_hot_epsilon(local, n, delta)
        self.assertBetween(order, 1, 1e7 + 1)
        least = clones.ClonePair(2 * local, n, stronger=True).epsilon(delta)
        self.assertBetween(epsilon, least, 2 * local)

    def test_conversion_is_that_of_dp_accounting(self):
        from dp_accounting import rdp

        for rho, order, delta in ((0.3, 8.0, 1e-6), (0.01, 300.0, 1e-10)):
            expected, _ = rdp.compute_epsilon([order], [rho], delta)
            found = conversions.renyi_to_epsilon(rho, order, delta)
            self.assertAlmostEqual(found, expected, places=10)

    @parameterized.parameters(
        ((1.0, 1.0, 10), "order"),
        ((math.nan, 1.0, 10), "order"),
        ((2.0, 0.0, 10), "local_epsilon"),
        ((2.0, 1.0, 1), "num_reports"),
    )
    def test_bad_input(self, arguments, message):
        with self.assertRaisesRegex(ValueError, message):
            renyi_aggregation.symmetric_one_hot_rho(*arguments)
        with self.assertRaisesRegex(ValueError, "delta"):
            renyi_aggregation.symmetric_one_hot_epsilon(1.0, 10, 1.0)


if __name__ == "__main__":
    absltest.main()
