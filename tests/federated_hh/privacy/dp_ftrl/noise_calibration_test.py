"""Tests of how much noise a guarantee needs, and of how it is divided."""

import fractions
import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.dp_ftrl import noise_calibration, planning
from federated_hh.privacy.dp_ftrl.tree_aggregation import TreeAggregation


def _noise_multiplier(epsilon, delta, independent_noise=False, **limits):
    mechanism = "dp_fedavg" if independent_noise else "dp_ftrl"
    plan = planning.TrainingPlan(mechanism=mechanism, **limits)
    return plan.noise_multiplier(epsilon, delta)


class TargetTest(parameterized.TestCase):
    @parameterized.parameters(
        # Xu et al. 2023: noise multiplier 7 gave these S2, and delta is 1e-10.
        (930, 212, 4, 47),
        (1280, 180, 5, 87),
        (530, 54, 8, 182),
    )
    def test_tree_against_dp_accounting(self, rounds, separation, most, square_sum):
        import dp_accounting

        for epsilon in (0.5, 2.0, 8.0):
            found = _noise_multiplier(
                epsilon,
                1e-10,
                num_rounds=rounds,
                min_separation=separation,
                max_participation=most,
            )
            # The oracle: the privacy loss distribution of the one Gaussian mechanism
            # that S2 makes of the tree. Its grid is coarser than the search.
            oracle = []
            for z in (found, found * 0.999):
                accountant = dp_accounting.pld.PLDAccountant()
                accountant.compose(
                    dp_accounting.GaussianDpEvent(z / math.sqrt(square_sum))
                )
                oracle.append(accountant.get_epsilon(1e-10))
            self.assertAlmostEqual(oracle[0], epsilon, delta=2e-4 * epsilon)
            self.assertGreater(oracle[1], epsilon)

    def test_independent_noise_counts_participations(self):
        values = {"num_rounds": 100, "min_separation": 9, "max_participation": 4}
        independent = _noise_multiplier(2.0, 1e-8, independent_noise=True, **values)
        single = _noise_multiplier(2.0, 1e-8, num_rounds=1)
        self.assertAlmostEqual(independent / single, 2.0, places=7)
        tree = _noise_multiplier(2.0, 1e-8, **values)
        square_sum = TreeAggregation(noise_multiplier=1.0, **values).square_sum
        self.assertAlmostEqual(tree / single, math.sqrt(square_sum), places=6)

    def test_restarts_count(self):
        values = {"num_rounds": 64, "min_separation": 7}
        whole = _noise_multiplier(1.0, 1e-6, **values)
        parts = _noise_multiplier(1.0, 1e-6, restart_rounds=(15, 31, 47), **values)
        self.assertLess(parts, 0.9 * whole)

    @parameterized.parameters(1e-9, 0.01, 1.0, 40.0, 1000.0)
    def test_never_more_than_the_wanted_epsilon(self, epsilon):
        from federated_hh.privacy import conversions

        for delta in (1e-15, 1e-5, 0.5):
            found = _noise_multiplier(epsilon, delta, num_rounds=7)
            run = TreeAggregation(noise_multiplier=found, num_rounds=7)
            self.assertLessEqual(conversions.zcdp_to_epsilon(run.rho, delta), epsilon)
            run = TreeAggregation(noise_multiplier=found * (1 - 1e-8), num_rounds=7)
            self.assertGreater(conversions.zcdp_to_epsilon(run.rho, delta), epsilon)

    @parameterized.parameters(
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": 1001.0}, "epsilon .* at most 1000"),
        ({"delta": 0.0}, "delta"),
        ({"num_rounds": 0}, "num_rounds"),
        ({"max_participation": 11}, "max_participation"),
    )
    def test_bad_input(self, change, message):
        values = {"epsilon": 1.0, "delta": 1e-6, "num_rounds": 10}
        with self.assertRaisesRegex(ValueError, message):
            _noise_multiplier(**(values | change))


class LocalEpsilonTest(parameterized.TestCase):
    def test_inverts_the_bound_for_any_randomizer(self):
        # Feldman et al. 2021: local epsilon 10 and 3e7 reports have 0.30747 at 1e-10.
        found = noise_calibration.local_epsilon_for(
            0.30747, 1e-10, num_reports=3 * 10**7
        )
        self.assertAlmostEqual(found, 10.0, delta=1e-3)

    @parameterized.parameters((1, 4_000), (3, 4_000), (2, 300))
    def test_the_run_keeps_it_whatever_its_levels(self, repeats, clients):
        from federated_hh.privacy import guarantee
        from federated_hh.privacy.local import report_guarantees

        found = noise_calibration.local_epsilon_for(
            1.0, 1e-8, num_reports=5 * clients, num_repeats=repeats
        )
        for sizes in ([2], [50, 999_999]):
            run = report_guarantees.ReportRounds(
                local_epsilon=found,
                cohort_size=1,  # an item's guarantee is of all reports
                contribution_bound=5 * clients,
                domain_sizes=sizes,
                num_repeats=repeats,
            )
            stated, _ = report_guarantees.guarantees(run, delta=1e-8)
            of_all = [
                one.epsilon
                for one in stated
                if one.unit is guarantee.Unit.ITEM
                and one.delta
                and not one.of_one_repeat
            ]
            self.assertLessEqual(min(of_all), 1.0 + 1e-9)

    def test_without_anybody_to_hide_among(self):
        found = noise_calibration.local_epsilon_for(
            1.5, 1e-12, num_reports=1, num_repeats=3
        )
        self.assertAlmostEqual(found, 0.5, places=5)

    def test_is_never_above_the_largest(self):
        self.assertEqual(
            noise_calibration.local_epsilon_for(
                30.0, 1e-6, num_reports=10, largest=4.0
            ),
            4.0,
        )

    @parameterized.parameters(
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"num_reports": 0}, "num_reports"),
        ({"num_repeats": 0}, "num_repeats"),
    )
    def test_bad_input(self, change, message):
        values = {"epsilon": 1.0, "delta": 1e-6, "num_reports": 10}
        with self.assertRaisesRegex(ValueError, message):
            noise_calibration.local_epsilon_for(**(values | change))


class CalibrationTest(parameterized.TestCase):
    def test_noise_split(self):
        # Theorem 1 of Xu et al. with Algorithm 1's sigma_b = m / 20, m = 6500.
        found = noise_calibration.delta_noise_multiplier(7.0, 325.0)
        self.assertAlmostEqual(found, (7.0**-2 - 650.0**-2) ** -0.5, places=12)
        self.assertGreater(found, 7.0)
        with self.assertRaisesRegex(ValueError, "count_stddev"):
            noise_calibration.delta_noise_multiplier(7.0, 3.5)

    def test_noise_split_costs_no_more(self):
        # In exact fractions, of which the floats' rounding is a part.
        for z, sigma in np.random.default_rng(1).uniform(1, 9, (100, 2)).tolist():
            sigma += z / 2
            found = noise_calibration.delta_noise_multiplier(z, sigma)
            spent = fractions.Fraction(found) ** -2
            spent += (2 * fractions.Fraction(sigma)) ** -2
            self.assertLessEqual(spent, fractions.Fraction(z) ** -2)


if __name__ == "__main__":
    absltest.main()
