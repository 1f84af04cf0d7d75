"""Tests of who takes part: limits, timers, availability, laws of the picks.

Randomized tests have fixed seeds. Chi-square and binomial statistics, each with a
false-alarm rate below 1e-6; sample sizes stand with them.
"""

import collections
import itertools
import pathlib

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy.dp_ftrl import participation_table
from federated_hh.randomness import streams
from federated_hh.rounds import checkpoints, timers
from federated_hh.run_directory import files as run_files

_ALARM = 1e-6
_STREAM = streams.Stream(1, ("cohorts",))


def run(rule, rounds=None, state=None, seed=1, first=0):
    """Returns the states before each round and the cohorts."""
    state = state or rule.initialize()
    stream = streams.Stream(seed, ("cohorts",))
    states, cohorts = [], []
    for number in range(first, first + (rounds or rule.num_rounds)):
        states.append(state)
        drawn = rule.draw(state, number, stream)
        state = drawn.state
        cohorts.append(drawn)
    return [*states, state], cohorts


def waited(drawn):
    """Returns the simulated seconds until a round began."""
    return round(drawn.metrics["waited_hours"] * 3600)


def history(cohorts):
    """Returns each client's rounds."""
    rounds = collections.defaultdict(list)
    for number, cohort in enumerate(cohorts):
        for client in cohort.cohort:
            rounds[int(client)].append(number)
    return rounds


class LimitsTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(),
        dict(min_separation=0, max_participation=12),
        dict(min_separation=3),
        dict(max_participation=4),
        dict(min_separation=5, max_participation=5),
        dict(timer_hours=24, availability=timers.DiurnalAvailability()),
        dict(
            min_separation=2,
            max_participation=9,
            drop_out=0.3,
            over_selection=2.0,
            availability=timers.DiurnalAvailability(0.5, 0.2, 0.9),
            timer_hours=2,
        ),
    )
    def test_limits_hold_and_the_table_is_the_history(self, **options):
        rule = timers.Timers(num_clients=60, cohort_size=5, num_rounds=36, **options)
        states, cohorts = run(rule)
        rounds = history(cohorts)
        separations = [
            later - earlier - 1
            for played in rounds.values()
            for earlier, later in itertools.pairwise(played)
        ]
        most = max(map(len, rounds.values()))
        if rule.min_separation is not None:
            self.assertGreaterEqual(min(separations), rule.min_separation)
        if rule.max_participation is not None:
            self.assertLessEqual(most, rule.max_participation)
        table = states[-1].table
        self.assertEqual(table.max_participation(), most)
        self.assertEqual(table.min_separation(), min(separations, default=None))
        for client in range(60):
            played = rounds[client]
            self.assertEqual(table.participations[client], len(played))
            self.assertEqual(table.last_round[client], played[-1] if played else -1)
        for before, after, cohort in zip(states[:-1], states[1:], cohorts, strict=True):
            self.assertLen(set(cohort.cohort.tolist()), 5)
            self.assertEqual(cohort.cohort.dtype, np.int64)
            began = before.seconds + waited(cohort)
            self.assertGreaterEqual(after.seconds, began + 600)
            self.assertTrue(np.all(before.ready_at[cohort.cohort] <= began))
            self.assertTrue(
                np.all(after.ready_at[cohort.cohort] == began + rule.timer_hours * 3600)
            )

    def test_limits_are_those_that_the_rounds_allow(self):
        rule = timers.Timers(
            num_clients=60,
            cohort_size=5,
            num_rounds=36,
            min_separation=5,
            max_participation=9,
        )
        for rounds, most, separation in ((36, 6, 5), (7, 2, 5), (3, 1, 2)):
            limits = rule.limits(rounds)
            self.assertEqual(limits.max_participation, most)
            self.assertEqual(limits.min_separation, separation)

    def test_the_tightest_min_separation_is_a_fixed_order(self):
        rule = timers.Timers(
            num_clients=12, cohort_size=3, num_rounds=20, min_separation=3
        )
        _, cohorts = run(rule)
        for number in range(4, 20):
            np.testing.assert_array_equal(
                cohorts[number].cohort, cohorts[number - 4].cohort
            )

    def test_timers_of_all_who_were_picked_start_and_end_to_the_second(self):
        # Every round picks all 12, a third of whom drop out; so the next one begins
        # when all timers have run out, those of dropped clients too, and then at once:
        # the server looks every ten minutes, and an hour has six of these.
        rule = timers.Timers(
            num_clients=12,
            cohort_size=4,
            num_rounds=30,
            over_selection=3.0,
            drop_out=0.3,
            timer_hours=5,
        )
        states, cohorts = run(rule)
        began = [
            state.seconds + waited(cohort)
            for state, cohort in zip(states[:-1], cohorts, strict=True)
        ]
        attempts = [1 + cohort.metrics["failed_attempts"] for cohort in cohorts]
        self.assertEqual(began[0], (attempts[0] - 1) * 5 * 3600)
        for number in range(1, 30):
            between = began[number] - began[number - 1]
            self.assertEqual(between, attempts[number] * 5 * 3600)
        for state, time in zip(states[1:], began, strict=True):
            self.assertEqual(state.ready_at.tolist(), 12 * [time + 5 * 3600])

    def test_a_round_takes_nobody_whose_timer_runs(self):
        # 4 of 9 are picked; a failed round's clients wait too. Who is picked is seen
        # by the timers alone, as most of them drop out.
        rule = timers.Timers(
            num_clients=9,
            cohort_size=1,
            num_rounds=40,
            over_selection=4.0,
            drop_out=0.8,
            timer_hours=1,
        )
        states, cohorts = run(rule)
        for before, after, cohort in zip(states[:-1], states[1:], cohorts, strict=True):
            began = before.seconds + waited(cohort)
            changed = after.ready_at != before.ready_at
            last = after.ready_at == began + 3600
            self.assertEqual(np.count_nonzero(last & changed), 4)
            self.assertTrue(last[cohort.cohort[0]])
            if not cohort.metrics["failed_attempts"]:
                self.assertTrue(np.all(before.ready_at[last] <= began))
                self.assertEqual(np.count_nonzero(changed), 4)

    def test_the_list_of_participations(self):
        rule = timers.Timers(num_clients=50, cohort_size=4, num_rounds=12, drop_out=0.2)
        states, cohorts = run(rule)
        for number, state in enumerate(states):
            pairs = [(c, r) for r in range(number) for c in cohorts[r].cohort]
            found = zip(state.table.log_clients, state.table.log_rounds, strict=True)
            self.assertEqual(list(found), pairs)

    def test_continued_from_a_copy_on_disk(self):
        rule = timers.Timers(
            num_clients=50,
            cohort_size=4,
            num_rounds=12,
            min_separation=2,
            drop_out=0.2,
            over_selection=1.5,
            timer_hours=5,
            availability=timers.DiurnalAvailability(),
        )
        states, cohorts = run(rule)
        folder = run_files.RunFiles(pathlib.Path(self.create_tempdir()))
        saved = checkpoints.write(folder, "state.npz", states[5])
        tree, arrays = checkpoints.read(folder.path, saved)
        state = checkpoints.decode(timers.Participation, tree, arrays)
        continued, again = run(rule, 7, state, first=5)
        for one, other in zip(cohorts[5:], again, strict=True):
            np.testing.assert_array_equal(one.cohort, other.cohort)
            self.assertEqual(one.metrics, other.metrics)
        self.assertEqual(
            checkpoints.digest(continued[-1]), checkpoints.digest(states[-1])
        )

    def test_metrics_are_those_of_the_table(self):
        rule = timers.Timers(num_clients=50, cohort_size=4, num_rounds=30)
        states, cohorts = run(rule)
        for state, cohort in zip(states[1:], cohorts, strict=True):
            counts = np.bincount(state.table.log_clients)
            self.assertEqual(cohort.metrics["max_participation"], counts.max())
            self.assertEqual(cohort.metrics["simulated_hours"], state.seconds / 3600)
        rounds = history(cohorts).values()
        least = min(b - a - 1 for r in rounds for a, b in itertools.pairwise(r))
        self.assertEqual(cohorts[-1].metrics["min_separation"], least)
        self.assertTrue(np.isnan(cohorts[0].metrics["min_separation"]))

    def test_a_round_that_comes_before_the_last(self):
        table = participation_table.ParticipationTable.empty(3).record(np.array([1]), 4)
        with self.assertRaisesRegex(ValueError, "round_number is 4"):
            table.record(np.array([1]), 4)


class LawTest(parameterized.TestCase):
    def assert_likely(self, law, value, alarm):
        """Checks a value by its two tails."""
        self.assertGreater(law.cdf(value), alarm / 2)
        self.assertGreater(law.sf(value - 1), alarm / 2)

    def test_all_subsets_are_equally_likely(self):
        # 4,000 rounds, 20 subsets of 3 of 6 clients; chi-square, 19 degrees of freedom.
        rule = timers.Timers(
            num_clients=6,
            cohort_size=3,
            num_rounds=4000,
            over_selection=1.6,
            drop_out=0.25,
        )
        _, cohorts = run(rule)
        counts = collections.Counter(tuple(cohort.cohort) for cohort in cohorts)
        observed = [counts[subset] for subset in itertools.combinations(range(6), 3)]
        self.assertEqual(sum(observed), 4000)
        self.assertGreater(stats.chisquare(observed).pvalue, _ALARM)

    def test_rounds_fail_as_often_as_too_many_drop_out(self):
        # 2,000 rounds; a begun round succeeds where Bin(10, 0.6) >= 6: the number of
        # failures before 2,000 successes is negative binomial.
        rule = timers.Timers(
            num_clients=20,
            cohort_size=6,
            num_rounds=2000,
            over_selection=10 / 6,
            drop_out=0.4,
        )
        self.assertEqual(rule.num_picked, 10)
        states, cohorts = run(rule)
        success = stats.binom.sf(5, 10, 0.6)
        failures = sum(cohort.metrics["failed_attempts"] for cohort in cohorts)
        self.assertEqual(states[-1].attempts, 2000 + failures)
        law = stats.nbinom(2000, success)
        self.assert_likely(law, failures, _ALARM)

    def test_availability_follows_the_curve(self):
        # 200,000 devices at each hour: binomial, two-sided, 48 looks.
        availability = timers.DiurnalAvailability()
        size = 200_000
        shares = []
        for hour in range(48):
            share = availability.charging_share(hour * 3600)
            shares.append(share)
            present = availability.available(hour * 3600, size, _STREAM)
            law = stats.binom(size, share * 0.5)
            self.assert_likely(law, np.count_nonzero(present), _ALARM / 48)
        self.assertEqual((np.argmax(shares[:24]), np.argmin(shares[:24])), (3, 15))
        self.assertAlmostEqual(max(shares) / min(shares), 4)
        np.testing.assert_allclose(shares[:24], shares[24:])

    def test_devices_charge_for_hours(self):
        availability = timers.DiurnalAvailability(idle_share=1.0)
        evening = [
            availability.available(hour * 3600, 10_000, _STREAM)
            for hour in range(16, 28)
        ]
        for earlier, later in itertools.pairwise(evening):
            self.assertFalse(np.any(earlier & ~later))
        # Another day has other devices: at 20 h of two days they are independent.
        days = [availability.available(h * 3600, 10_000, _STREAM) for h in (20, 44)]
        table = np.histogram2d(*(day.astype(int) for day in days), bins=2)[0]
        self.assertGreater(stats.chi2_contingency(table)[1], _ALARM)

    def test_idleness_stays_for_ten_minutes(self):
        always = timers.DiurnalAvailability(mean_charging=1.0, amplitude=0.0)
        first, last, after = (
            always.available(seconds, 1000, _STREAM) for seconds in (600, 1199, 1200)
        )
        np.testing.assert_array_equal(first, last)
        # Independent: binomial, 1,000 devices.
        changed = np.count_nonzero(first != after)
        self.assert_likely(stats.binom(1000, 0.5), changed, _ALARM)

    def test_more_rounds_begin_at_night(self):
        rule = timers.Timers(
            num_clients=1000,
            cohort_size=100,
            num_rounds=300,
            timer_hours=24,
            availability=timers.DiurnalAvailability(),
        )
        states, cohorts = run(rule, 40)
        began = [
            state.seconds + waited(cohort)
            for state, cohort in zip(states[:-1], cohorts, strict=True)
        ]
        night = sum(time // 3600 % 24 >= 21 or time // 3600 % 24 < 9 for time in began)
        self.assertGreater(night, len(began) / 2)
        for rounds in history(cohorts).values():
            for earlier, later in itertools.pairwise(rounds):
                self.assertGreaterEqual(began[later] - began[earlier], 24 * 3600)
        self.assertGreater(began[-1], 3 * 24 * 3600)


class BadInputTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(cohort_size=0), "cohort_size is 0; it has to be at least 1"),
        (dict(over_selection=0.5), "over_selection is 0.5"),
        (dict(over_selection=float("nan")), "over_selection is nan"),
        (dict(over_selection=float("inf")), "over_selection is inf; it has to be at"),
        (dict(over_selection=1001.0), "over_selection is 1001.0; it has to be at most"),
        (dict(timer_hours=87_601), "timer_hours is 87601; it has to be at most 87,600"),
        (dict(round_minutes=10_081), "round_minutes is 10081; it has to be at most"),
        (dict(max_wait_hours=87_601), "max_wait_hours is 87601; it has to be at most"),
        (dict(num_rounds=2**31), "num_rounds is 2147483648; it has to be at most"),
        (dict(drop_out=1.0), r"drop_out is 1.0; it has to be in \[0, 1\)"),
        (dict(timer_hours=-1), "timer_hours is -1"),
        (dict(min_separation=-1), "min_separation is -1"),
        (dict(max_participation=0), "max_participation is 0"),
        (dict(cohort_size=101), "picks 101 clients"),
        (dict(over_selection=11.0), "picks 110 clients"),
        (dict(min_separation=10), "It can be at most 9"),
        (dict(min_separation=9, over_selection=1.1), "It can be at most 8"),
        (dict(max_participation=1), "need it to be at least 2"),
        (
            dict(max_participation=2, over_selection=1.5),
            "the last of which picks 15 clients, need it to be at least 3",
        ),
    )
    def test_rules(self, options, regex):
        values = dict(num_clients=100, cohort_size=10, num_rounds=20)
        with self.assertRaisesRegex(ValueError, regex):
            timers.Timers(**values | options)

    def test_a_short_run_needs_less(self):
        rule = timers.Timers(
            num_clients=30, cohort_size=10, num_rounds=3, min_separation=99
        )
        _, cohorts = run(rule)
        self.assertLen({c for cohort in cohorts for c in cohort.cohort}, 30)

    @parameterized.parameters(
        (dict(mean_charging=0.0), "mean_charging is 0"),
        (dict(idle_share=1.5), "idle_share is 1.5"),
        (dict(mean_charging=0.9), r"amplitude is 0.225; it has to be in \[0, 0.1\]"),
    )
    def test_availability(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            timers.DiurnalAvailability(**options)

    @parameterized.parameters(
        # Never more than about 60% x 50% of the devices are there at once.
        (dict(cohort_size=60, availability=timers.DiurnalAvailability()), "at most"),
        (dict(cohort_size=60, timer_hours=200), "at most 40 of them were available"),
        (dict(cohort_size=90, drop_out=0.9), "rounds failed with too few reports"),
    )
    def test_a_goal_that_cannot_be_met_stops_the_run(self, options, regex):
        rule = timers.Timers(num_clients=100, num_rounds=2, **options)
        with self.assertRaisesRegex(timers.ReportGoalNotMetError, regex):
            run(rule)

    def test_used_up_clients_stop_the_run_at_once(self):
        rule = timers.Timers(
            num_clients=7, cohort_size=3, num_rounds=7, max_participation=3
        )
        with self.assertRaisesRegex(timers.ReportGoalNotMetError, "MaxP 3 admit 2 of"):
            for seed in range(50):  # whether it happens depends on the picks
                run(rule, seed=seed)


if __name__ == "__main__":
    absltest.main()
