"""Tests of noise on updates: its law, its cost, and the clip norm that adapts."""

import collections
import dataclasses
import fractions
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy import plan
from federated_hh.privacy.dp_ftrl import (
    model_updates,
    update_noise,
    worst_participation,
)
from federated_hh.randomness import streams

_BOTH = (update_noise.TreeNoise, update_noise.GaussianNoise)
_SHAPES = {"a": (3, 2), "b": (4,)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecayingNoise(update_noise.GaussianNoise):
    """As the docstring of `update_noise` has it."""

    decay: float

    def multiplier(self, number):
        return self.noise_multiplier * self.decay**number


def tree(**options):
    values = dict(num_rounds=1000, noise_multiplier=7.0, clip_norm=5.0)
    return update_noise.TreeNoise(**values | options)


def gaussian(**options):
    values = dict(num_rounds=1000, noise_multiplier=7.0, clip_norm=5.0)
    return update_noise.GaussianNoise(**values | options)


class Run:
    """Releases of a mechanism, one after the other."""

    def __init__(self, kind, key=1, **options):
        values = dict(num_rounds=100, noise_multiplier=0.5, clip_norm=2.0)
        self.mechanism = kind(**values | options)
        self.state = self.mechanism.initialize()
        self.stream = streams.Stream(key, ("test",))

    def release(self, parts, num_below=5, num_clients=10):
        """Returns what is released of a sum of floats by name, and its metrics."""
        unit = self.state.clip_norm / 2**32
        total = model_updates.UpdateSum(
            {n: np.rint(np.asarray(p) / unit).astype(np.int64) for n, p in parts},
            num_clients,
            num_below,
            0,
        )
        history = self.state.round_number.to_bytes(32, "big")
        release = self.mechanism.release(
            total,
            self.state,
            {"clip_norm": self.state.clip_norm},
            self.stream.of(history),
        )
        self.state = release.state
        return release.value, release.metrics


def zeros():
    return [(name, np.zeros(shape)) for name, shape in _SHAPES.items()]


def flat(value):
    return np.concatenate([part.ravel() for part in value.total.values()])


class ClipNormTest(parameterized.TestCase):
    def test_it_changes_at_restarts_alone(self):
        adaptive = update_noise.AdaptiveClip(count_stddev=0.5)
        run = Run(update_noise.TreeNoise, adaptive_clip=adaptive, restart_rounds=(3, 7))
        z_delta = run.mechanism.delta_multiplier(0)
        in_force = []
        for number in range(10):
            value, metrics = run.release(zeros(), num_below=2)
            in_force.append(metrics["clip_norm"])
            self.assertAlmostEqual(
                metrics["noise_stddev"], z_delta * metrics["clip_norm"]
            )
            self.assertEqual(value.tracked_norm, metrics["tracked_norm"])
            if number in (3, 7):
                self.assertEqual(value.clip_norm, metrics["tracked_norm"])
        self.assertEqual(in_force[:4], [2.0] * 4)
        self.assertLen(set(in_force), 3)
        self.assertLen(set(in_force[4:8]), 1)
        # A fifth of the updates are below, half should be: the norm grows.
        self.assertLess(in_force[0], in_force[4])
        self.assertLess(in_force[4], in_force[8])

    def test_independent_noise_takes_a_new_one_at_once(self):
        adaptive = update_noise.AdaptiveClip(count_stddev=0.5)
        run = Run(update_noise.GaussianNoise, adaptive_clip=adaptive)
        for _ in range(4):
            value, metrics = run.release(zeros())
            self.assertEqual(value.clip_norm, metrics["tracked_norm"])
            self.assertNotEqual(value.clip_norm, metrics["clip_norm"])

    @parameterized.parameters(
        (0.5, update_noise.TreeNoise), (0.8, update_noise.GaussianNoise)
    )
    def test_it_becomes_the_quantile(self, quantile, kind):
        # Norms of 400 clients a round are log-normal. The shares of clients below the
        # norms in force have to be the quantile, on average over 1,500 rounds: the
        # estimate moves by the noisy shares' distance from it, so that these add up to
        # next to nothing, and what is left is the noise: of each round's share the
        # sampling's and the mechanism's, 0.056 together. The mean's standard deviation
        # is 0.0015; within six of it: false alarms 2e-9. (A tree's noise adds up to
        # less than independent noise does.)
        goal, spread, rounds = 400, 0.7, 1700
        options = {"restart_rounds": (59,)} if kind is update_noise.TreeNoise else {}
        run = Run(
            kind,
            num_rounds=rounds,
            noise_multiplier=1.0,
            clip_norm=0.1,
            adaptive_clip=update_noise.AdaptiveClip(goal / 20, quantile),
            **options,
        )
        random = np.random.default_rng(int(10 * quantile))
        law = stats.norm(scale=spread)
        shares = []
        for _ in range(rounds):
            norms = np.exp(spread * random.standard_normal(goal))
            tracked = run.state.tracked_norm
            shares.append(law.cdf(math.log(tracked)))
            run.release(zeros(), int(np.sum(norms <= tracked)), goal)
        self.assertLess(abs(np.mean(shares[200:]) - quantile), 0.009)

    def test_one_that_runs_away_stops_the_run(self):
        adaptive = update_noise.AdaptiveClip(count_stddev=1e9)
        run = Run(update_noise.TreeNoise, adaptive_clip=adaptive)
        with self.assertRaisesRegex(update_noise.TrackedNormError, "tracked norm"):
            run.release(zeros())

    def test_clients_were_told_another(self):
        mechanism = gaussian()
        total = model_updates.UpdateSum(dict(a=np.zeros(3, np.int64)), 10, 5, 0)
        stream = streams.Stream(1, history=bytes(32))
        with self.assertRaisesRegex(ValueError, "clipped to 6.0; .* clip norm, 5.0"):
            mechanism.release(total, mechanism.initialize(), {"clip_norm": 6.0}, stream)


class NoiseTest(parameterized.TestCase):
    @parameterized.parameters(*_BOTH)
    def test_it_follows_the_clip_norm(self, kind):
        # After a restart the sum of zeros with noise has the new clip norm's standard
        # deviation: chi-square of 400,000 values, false alarms 1e-9.
        size = 400_000
        options = {"restart_rounds": (0,)} if kind is update_noise.TreeNoise else {}
        adaptive = update_noise.AdaptiveClip(count_stddev=30.0, learning_rate=0.3)
        run = Run(kind, num_rounds=4, adaptive_clip=adaptive, **options)
        norms = []
        for number in range(2):
            norms.append(run.state.clip_norm)
            stddev = run.mechanism.delta_multiplier(number) * norms[-1]
            value, metrics = run.release([("w", np.zeros(size))])
            self.assertEqual(metrics["noise_stddev"], stddev)
            statistic = np.sum((flat(value).astype(float) / stddev) ** 2)
            law = stats.chi2(size)
            self.assertGreater(min(law.cdf(statistic), law.sf(statistic)), 1e-9)
        self.assertGreater(abs(math.log(norms[1] / norms[0])), 0.05)

    @parameterized.parameters(*_BOTH)
    def test_counts_and_updates_as_drawn(self, kind):
        # z is 0.6 and sigma_b 0.35: a client moves the updates' sum by C = 2 and the
        # count by 1/2, so together (0.5 / 0.35)^2 + (1 / z_delta)^2 is 1 / 0.6^2, by
        # which z_delta is 1.165, twice z. Each of 400 keys draws once: chi-square,
        # false alarms 1e-9.
        z_delta = (1 / 0.6**2 - (0.5 / 0.35) ** 2) ** -0.5
        self.assertGreater(z_delta, 1.9 * 0.6)
        counts, updates = [], []
        for key in range(400):
            adaptive = update_noise.AdaptiveClip(count_stddev=0.35, learning_rate=1.0)
            run = Run(kind, key, noise_multiplier=0.6, adaptive_clip=adaptive)
            value, _ = run.release(zeros())
            # The logarithm falls by the noisy share of the clients less a half.
            counts.append(-10 * math.log(value.tracked_norm / 2.0))
            updates.extend(flat(value))
        for values, stddev in ((counts, 0.35), (updates, 2.0 * z_delta)):
            statistic = np.sum(np.square(values, dtype=float)) / stddev**2
            law = stats.chi2(len(values))
            self.assertGreater(min(law.cdf(statistic), law.sf(statistic)), 1e-9)

    def test_a_scale_of_each_round(self):
        # Chi-square of 400,000 values, false alarms 1e-9.
        size = 400_000
        run = Run(DecayingNoise, decay=0.5)
        for number in range(3):
            stddev = 0.5 * 0.5**number * 2.0
            value, metrics = run.release([("w", np.zeros(size))])
            self.assertEqual(metrics["noise_stddev"], stddev)
            statistic = np.sum((flat(value).astype(float) / stddev) ** 2)
            law = stats.chi2(size)
            self.assertGreater(min(law.cdf(statistic), law.sf(statistic)), 1e-9)

    def test_a_restart_round_starts_both_trees_anew(self):
        adaptive = update_noise.AdaptiveClip(count_stddev=3.0)
        run = Run(update_noise.TreeNoise, adaptive_clip=adaptive, restart_rounds=(2,))
        random = np.random.default_rng(1)
        for number in range(5):
            parts = [(name, random.normal(size=s)) for name, s in _SHAPES.items()]
            unit = run.state.clip_norm / 2**32
            value, _ = run.release(parts)
            rounds = [1, 2, 0, 1, 2][number]
            for noise in (run.state.noise, run.state.count_noise):
                self.assertEqual((noise.tree, noise.rounds), (int(number >= 2), rounds))
                self.assertLen(noise.nodes, rounds.bit_count())
            if number == 3:
                # The first leaf of a new tree: what is released is its noisy total,
                # of this round's sum and of none before.
                total = run.state.noise.nodes[0].total
                np.testing.assert_allclose(flat(value), total * unit, rtol=1e-6)
                exact = np.concatenate([part.ravel() for _, part in parts]) / unit
                stddev = run.mechanism.delta_multiplier(number) * 2**32
                # Ten numbers: one is beyond 7 of these once in 4e10 times.
                self.assertLess(np.abs(total - exact).max(), 7 * stddev)

    def test_sums_without_a_bound_get_no_noise(self):
        mechanism = gaussian()
        total = model_updates.UpdateSum(dict(a=np.zeros(3, np.float32)), 10, 5, 0)
        stream = streams.Stream(1, history=bytes(32))
        with self.assertRaisesRegex(ValueError, "is float32; it has to be int64"):
            mechanism.release(total, mechanism.initialize(), {"clip_norm": 5.0}, stream)

    def test_room(self):
        mechanism = tree(num_rounds=4)
        mechanism.check_room(2**28)
        with self.assertRaisesRegex(ValueError, "could exceed 64 bits"):
            mechanism.check_room(2**29)


class CostTest(parameterized.TestCase):
    # Xu et al. 2023, Tables 1 and 2: rounds, MinS, MaxP and zCDP, to its 2 decimals.
    @parameterized.parameters(
        (930, 212, 4, 0.48),
        (530, 54, 8, 1.86),
        (1290, 170, 6, 1.14),
        (2800, 371, 7, 1.31),
        (870, 327, 3, 0.32),
        (430, 54, 7, 0.99),
    )
    def test_tables(self, rounds, min_separation, max_participation, expected):
        limits = plan.Limits(max_participation, min_separation)
        found = tree(num_rounds=rounds).zcdp(limits, rounds)
        self.assertEqual(round(found, 2), expected)

    @parameterized.parameters(0.3, 1.0, 7.0, 500.0)
    def test_the_two_noises_make_one_mechanism(self, z):
        adaptive = update_noise.AdaptiveClip(count_stddev=6500 / 20)
        z_delta = tree(noise_multiplier=z, adaptive_clip=adaptive).delta_multiplier(0)
        self.assertGreater(z_delta, z)
        # Sensitivity 1 on the updates (for clip norm 1) and 1/2 on the counts.
        square = (1 / z_delta) ** 2 + (0.5 / adaptive.count_stddev) ** 2
        self.assertAlmostEqual(square, 1 / z**2)
        self.assertEqual(tree(noise_multiplier=z).delta_multiplier(0), z)

    def test_restarts(self):
        # By hand: a client in rounds 0 and 3. One tree of 4 rounds has the nodes {0},
        # {3}, {0, 1}, {2, 3}, {0..3}: 1 + 1 + 1 + 1 + 4. Trees of rounds 0 to 2 and 3
        # have {0}, {0, 1} and {3}: 1 + 1 + 1.
        plain, restarted = (
            tree(num_rounds=4, noise_multiplier=1.0, restart_rounds=restarts)
            for restarts in ((), (2,))
        )
        self.assertAlmostEqual(plain.zcdp(plan.Limits(2, 2), 4), 8 / 2)
        self.assertAlmostEqual(restarted.zcdp(plan.Limits(2, 2), 4), 3 / 2)
        # Before the restart there is one tree, as without it.
        limits = plan.Limits(3, 0)
        self.assertEqual(restarted.zcdp(limits, 3), plain.zcdp(limits, 3))

    def test_other_mechanisms(self):
        limits = plan.Limits(4, 99)
        noise = gaussian(noise_multiplier=2.0)
        self.assertAlmostEqual(noise.zcdp(limits, 1000), 4 / (2 * 2.0**2))
        self.assertAlmostEqual(noise.zcdp(limits, 150), 2 / (2 * 2.0**2))
        none = model_updates.NoNoise(num_rounds=1000, clip_norm=math.inf)
        self.assertEqual(none.zcdp(limits, 1000), math.inf)

    def test_rho_grows_with_the_rounds(self):
        run = tree(num_rounds=400, restart_rounds=(128,))
        limits = plan.Limits(10, 20)
        spent = [run.zcdp(limits, rounds) for rounds in range(1, 401, 7)]
        # The float64 that is nearest from above, or equal.
        self.assertGreaterEqual(fractions.Fraction(spent[0]), fractions.Fraction(1, 98))
        self.assertLess(math.nextafter(spent[0], 0), fractions.Fraction(1, 98))
        self.assertGreater(spent[-1], spent[0])

    @parameterized.product(
        decay=(0.8, 1.3), separation=(0, 1, 2, 4), most=(1, 2, 3, 9), rounds=(1, 5, 9)
    )
    def test_costliest_rounds_of_a_decaying_scale(
        self, decay, separation, most, rounds
    ):
        # Every set of rounds that the limits allow, in exact arithmetic.
        noise = DecayingNoise(
            num_rounds=9, noise_multiplier=0.7, clip_norm=1.0, decay=decay
        )
        costs = [
            1 / (2 * fractions.Fraction(noise.multiplier(n)) ** 2)
            for n in range(rounds)
        ]
        expected = max(
            sum(costs[n] for n in taken)
            for size in range(1, min(most, rounds) + 1)
            for taken in itertools.combinations(range(rounds), size)
            if all(b - a > separation for a, b in itertools.pairwise(taken))
        )
        found = noise.zcdp(plan.Limits(most, separation), rounds)
        self.assertGreaterEqual(fractions.Fraction(found), expected)
        self.assertLess(found, float(expected) * (1 + 1e-13))

    def test_observed_rounds_of_a_decaying_scale(self):
        noise = DecayingNoise(
            num_rounds=20, noise_multiplier=0.7, clip_norm=1.0, decay=0.9
        )
        random = np.random.default_rng(4)
        cohorts = [random.choice(12, 4, replace=False) for _ in range(15)]
        clients, rounds = np.concatenate(cohorts), np.repeat(np.arange(15), 4)
        spent = collections.Counter()
        for client, number in zip(clients.tolist(), rounds.tolist(), strict=True):
            spent[client] += 1 / (2 * fractions.Fraction(noise.multiplier(number)) ** 2)
        expected = max(spent.values())
        found = noise.observed_zcdp(clients, rounds, 15)
        self.assertGreaterEqual(fractions.Fraction(found), expected)
        self.assertLess(found, float(expected) * (1 + 1e-13))
        nobody = np.zeros(0, np.int64)
        self.assertEqual(noise.observed_zcdp(nobody, nobody, 15), 0)
        with self.assertRaisesRegex(ValueError, "takes part twice in round 2"):
            noise.observed_zcdp(np.array([5, 5]), np.array([2, 2]), 15)

    def test_equal_costs_at_a_distance(self):
        found = worst_participation.largest_sum(np.full(1000, 0.5), 50, 99)
        self.assertAlmostEqual(found, 5.0, places=12)


class BadInputTest(parameterized.TestCase):
    @parameterized.parameters(
        (dict(num_rounds=0), "num_rounds is 0"),
        (
            dict(noise_multiplier=0.0),
            "noise_multiplier is .*; it has to be .* above 0",
        ),
        (dict(clip_norm=math.inf), "clip_norm is .*; it has to be a finite number"),
        (dict(clip_norm=1e-320), "clip_norm is 1e-320; it has to be at least 1e-15"),
        (dict(restart_rounds=(5, 5)), "strictly increasing"),
        (dict(restart_rounds=(999,)), "restart_rounds"),
        (
            dict(adaptive_clip=update_noise.AdaptiveClip(count_stddev=3.5)),
            "to be below 7, twice the noise",
        ),
    )
    def test_tree(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            tree(**options)

    def test_a_later_round(self):
        with self.assertRaisesRegex(
            ValueError, "noise_multiplier is .*; it has to be "
        ):
            DecayingNoise(num_rounds=9, noise_multiplier=1.0, clip_norm=1.0, decay=0.0)

    def test_a_tree_has_one_scale(self):
        class Decaying(update_noise.TreeNoise):
            def multiplier(self, number):
                return self.noise_multiplier * 0.9**number

        with self.assertRaisesRegex(ValueError, "round 1 has .* noise of one scale"):
            Decaying(num_rounds=9, noise_multiplier=1.0, clip_norm=1.0)

    def test_no_noise(self):
        with self.assertRaisesRegex(ValueError, "clip_norm is 0"):
            model_updates.NoNoise(num_rounds=1, clip_norm=0.0)

    @parameterized.parameters(
        (dict(count_stddev=0.0), "count_stddev is 0.0; it has to be .* above 0"),
        (dict(count_stddev=1.0, quantile=1.0), "quantile is 1"),
        (
            dict(count_stddev=1.0, learning_rate=math.nan),
            "learning_rate is nan; it has to be .*",
        ),
    )
    def test_adaptive_clip(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            update_noise.AdaptiveClip(**options)


if __name__ == "__main__":
    absltest.main()
