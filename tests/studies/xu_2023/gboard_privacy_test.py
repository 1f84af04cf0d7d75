"""Tests of report goal, noise, MinS and timer: by other ways to the same numbers."""

import dataclasses
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.dp_ftrl import tree_aggregation
from federated_hh.rounds import steps, timers
from studies.xu_2023 import gboard_privacy as lib


def rule_of(num_clients=320, num_rounds=16, **options):
    def rule(goal, hours):
        return timers.Timers(
            num_clients=num_clients,
            cohort_size=goal,
            num_rounds=num_rounds,
            timer_hours=hours,
            **{"round_minutes": 30} | options,
        )

    return rule


def choose(rule, **options):
    values = dict(
        seed=1, noise_per_client=0.05, small_goal=5, largest_goal=60, target_rho=2.0
    )
    return lib.choose(rule, **values | options)


def rho(noise, rounds, separation, participation):
    return tree_aggregation.TreeAggregation(
        noise_multiplier=noise,
        num_rounds=rounds,
        min_separation=separation,
        max_participation=participation,
    ).rho


class ChoiceTest(parameterized.TestCase):
    def test_the_smallest_goal_that_meets_the_target(self):
        found = choose(rule_of())
        self.assertTrue(found.is_scaled)
        self.assertAlmostEqual(found.noise_multiplier, 0.05 * found.report_goal)
        part = found.participation
        expected = rho(
            found.noise_multiplier, 16, part.min_separation, part.max_participation
        )
        self.assertEqual(found.rho, expected)
        self.assertLessEqual(found.rho, 2)
        # A goal below it does not, whatever the timer: not even once a client.
        least = found.report_goal - 2
        self.assertGreater(rho(0.05 * least, 16, min(320 // least - 1, 15), None), 2)

    def test_a_target_that_is_unachievable(self):
        found = choose(rule_of(), target_rho=0.01)
        self.assertFalse(found.is_scaled)
        self.assertEqual(found.report_goal, 60)
        self.assertGreater(found.noise_multiplier, 0.05 * 60)
        self.assertBetween(found.rho, 0.0099, 0.01)

    def test_no_target_is_missed_by_rounding(self):
        once = lib.participation(rule_of(), 60, 1)
        with mock.patch.object(lib, "participation", return_value=once):
            for target in np.geomspace(1e-3, 0.05, 40):
                found = choose(rule_of(), target_rho=target)
                self.assertFalse(found.is_scaled)
                self.assertBetween(found.rho, 0.995 * target, target)

    def test_the_promise_holds_in_the_run_of_the_same_seed(self):
        rule = rule_of(
            num_clients=3000, num_rounds=40, availability=timers.DiurnalAvailability()
        )
        found = lib.participation(rule, 100, seed=5)
        self.assertEqual(found.timer_hours % 24, 0)
        limited = dataclasses.replace(
            rule(100, found.timer_hours),
            min_separation=found.min_separation,
            max_participation=found.max_participation,
        )
        places, stream = limited.initialize(), steps.public_stream(5, 0)
        for number in range(40):
            places = limited.draw(places, number, stream).state
        self.assertEqual(places.seconds / 3600, found.hours)
        self.assertGreaterEqual(places.table.min_separation(), found.min_separation)
        self.assertLessEqual(places.table.max_participation(), found.max_participation)

    def test_the_timer_that_costs_least(self):
        # Rounds wait for those who charge: a longer timer need not separate more.
        rule = rule_of(
            num_clients=600,
            num_rounds=40,
            drop_out=0.2,
            over_selection=1.5,
            availability=timers.DiurnalAvailability(),
            round_minutes=120,
        )
        found = lib.participation(rule, 10, seed=1)
        costs = {}
        for hours, least in found.looked_at:
            one = lib.participation(lambda goal, _, h=hours: rule(goal, h), 10, 1)
            self.assertEqual(one.min_separation, least)
            costs[hours] = rho(1.0, 40, one.min_separation, one.max_participation)
        self.assertGreater(len(set(costs.values())), 2)
        self.assertEqual(costs[found.timer_hours], min(costs.values()))

    def test_a_promise_that_cannot_be_kept_is_loosened(self):
        simulate = lib._simulate

        def strict(rule, seed):
            if (rule.min_separation or 0) > 5:
                raise timers.ReportGoalNotMetError("too few")
            return simulate(rule, seed)

        with mock.patch.object(lib, "_simulate", strict):
            found = lib.participation(rule_of(), 40, seed=1)
        self.assertEqual(found.min_separation, 5)
        with_all = lib.participation(rule_of(), 40, seed=1)
        self.assertEqual((with_all.min_separation, with_all.max_participation), (7, 2))

    def test_the_target_is_met_with_the_limits_that_the_clock_allows(self):
        # A third of the separation that the population allows is left of it.
        rule = rule_of(
            num_clients=1200, availability=timers.DiurnalAvailability(), drop_out=0.2,
            over_selection=1.5, num_rounds=40,
        )  # fmt: skip
        first = choose(rule, target_rho=4.0)
        self.assertTrue(first.is_scaled)
        self.assertLess(
            first.participation.min_separation, first.largest_min_separation
        )
        found = choose(rule, target_rho=0.9 * first.rho)
        self.assertLessEqual(found.rho, 0.9 * first.rho)

    def test_a_longer_timer_starves_a_round(self):
        # Rounds of two days that pick 25 of 100, for 10 who report: after four of them
        # nobody is left, and the server waits for a week at most.
        rule = rule_of(
            drop_out=0.4, over_selection=2.5, num_clients=100, round_minutes=2 * 24 * 60
        )
        found = lib.participation(rule, 10, seed=1)
        starved = [hours for hours, least in found.looked_at if least is None]
        self.assertLess(found.timer_hours, min(starved))
        with self.assertRaises(timers.ReportGoalNotMetError):
            longer = rule(10, min(starved))
            places, stream = longer.initialize(), steps.public_stream(1, 0)
            for number in range(16):
                places = longer.draw(places, number, stream).state

    def test_everybody_once(self):
        found = lib.participation(rule_of(num_clients=10_000), 10, seed=1)
        self.assertEqual((found.min_separation, found.max_participation), (15, 1))
        self.assertNotIn(None, [least for _, least in found.looked_at])

    @parameterized.parameters(
        (0.50001, 0.5001), (7.0, 7.0), (0.0012344, 0.001235), (12341.0, 12350.0)
    )
    def test_rounded_up(self, noise, expected):
        found = lib.rounded_up(noise)
        self.assertTrue(math.isclose(found, expected, rel_tol=1e-12))
        self.assertGreaterEqual(found, noise)


if __name__ == "__main__":
    absltest.main()
