"""Tests of federated training against Algorithm 1 as the paper writes it."""

import collections
import dataclasses
import io
import math
import tempfile

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from simulation import client_text
from tests.training import training_test_case as common
from training import client_update, dp_ftrl, examples
from training import dp_ftrl_parameters as lib

_TREE, _GAUSSIAN, _NONE = lib.Mechanism
_SHAPES = {"a": (3, 2), "b": (4,)}


class _Rounds:
    """Stands where no client has to train: a model's shapes alone."""

    sensitivity = 2**32

    def __init__(self, about="clients"):
        self._about = about

    def describe(self):
        return self._about

    class model:  # noqa: N801
        @staticmethod
        def initial_weights(seed):
            random = np.random.default_rng(seed)
            return collections.OrderedDict(
                (name, random.normal(size=shape).astype(np.float32))
                for name, shape in _SHAPES.items()
            )


def server(seed=1, noise_key=1, about="clients", **options):
    """Returns a process to be driven by `update` alone."""
    values = dict(
        mechanism=_TREE,
        report_goal=10,
        num_rounds=100,
        noise_multiplier=0.5,
        clip_norm=2.0,
        server_learning_rate=0.3,
    )
    parameters = lib.ServerParameters(**values | options)
    return dp_ftrl.DpFtrlProcess(_Rounds(about), parameters, seed, noise_key)


def sums_of(values, num_below=5, num_clients=10, clip_norm=2.0):
    """Returns the sums of a round from floats by name."""
    unit = clip_norm / 2**32
    total = collections.OrderedDict(
        (name, np.rint(np.asarray(part) / unit).astype(np.int64))
        for name, part in values.items()
    )
    return client_update.RoundSums(total, unit, num_clients, num_below, 0)


def random_sums(number, **options):
    random = np.random.default_rng(100 + number)
    return sums_of(
        {name: random.normal(size=shape) for name, shape in _SHAPES.items()}, **options
    )


def zero_sums(**options):
    zeros = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
    return sums_of(zeros, **options)


def released(before, output, goal=10):
    """Returns the noisy sum of a round, had from the momentum."""
    return {
        name: (part - np.float32(0.9) * before.momentum[name]) * goal
        for name, part in output.state.momentum.items()
    }


class ServerTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(),
        dict(mechanism=_NONE, noise_multiplier=0, clip_norm=math.inf),
        dict(mechanism=_GAUSSIAN, momentum=0.0),
        dict(restart_rounds=(2, 5)),
    )
    def test_algorithm_1(self, **options):
        process = server(**options)
        state = process.initialize()
        first = state.weights
        parameters = process.parameters
        drawn = self._noise_of(process)
        private_sum = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
        momentum = {name: np.zeros(shape) for name, shape in _SHAPES.items()}
        for number in range(9):
            sums = random_sums(number)
            state, metrics = process.update(state, sums)
            for name in _SHAPES:
                # PrivateSum of all rounds so far, its mean, momentum on that, and the
                # step from the first weights.
                private_sum[name] += sums.delta[name]
                if parameters.mechanism is not _NONE:
                    private_sum[name] += drawn[number][name]
                momentum[name] *= parameters.momentum
                momentum[name] += private_sum[name] / 10
                np.testing.assert_allclose(
                    state.weights[name],
                    first[name] + 0.3 * momentum[name],
                    rtol=1e-4,
                    atol=1e-4,
                )
        self.assertEqual(state.round_number, 9)
        self.assertEqual(metrics.released["round"], 9)
        scale = 0 if parameters.mechanism is _NONE else 1
        self.assertEqual(metrics.released["noise_stddev"], scale * 1.0)

    def _noise_of(self, process):
        """Makes a process record what its noise adds; returns the record."""
        added = []
        if process._noise is None:
            return added
        add = process._noise.add

        def recorded(total, state, history):
            noised, state = add(total, state, history)
            parts = np.split((noised - total) * 2.0 / 2**32, [6])
            added.append(
                {
                    n: part.reshape(_SHAPES[n])
                    for n, part in zip("ab", parts, strict=True)
                }
            )
            return noised, state

        process._noise.add = recorded
        return added

    def test_the_clip_norm_changes_at_restarts_alone(self):
        adaptive = lib.AdaptiveClip(count_stddev=0.5)
        process = server(adaptive_clip=adaptive, restart_rounds=(3, 7))
        z_delta = process.parameters.delta_noise_multiplier
        state = process.initialize()
        in_force = []
        for number in range(10):
            sums = random_sums(number, num_below=2, clip_norm=state.clip_norm)
            state, metrics = process.update(state, sums)
            metrics = metrics.released
            in_force.append(metrics["clip_norm"])
            self.assertAlmostEqual(
                metrics["noise_stddev"], z_delta * metrics["clip_norm"]
            )
            if number in (3, 7):
                self.assertEqual(state.clip_norm, metrics["tracked_norm"])
        self.assertEqual(in_force[:4], [2.0] * 4)
        self.assertLen(set(in_force), 3)
        self.assertEqual(len(set(in_force[4:8])), 1)
        # A fifth of the updates are below, half should be: the norm grows.
        self.assertLess(in_force[0], in_force[4])
        self.assertLess(in_force[4], in_force[8])

    def test_independent_noise_takes_a_new_clip_norm_at_once(self):
        adaptive = lib.AdaptiveClip(count_stddev=0.5)
        process = server(mechanism=_GAUSSIAN, adaptive_clip=adaptive)
        state = process.initialize()
        for number in range(4):
            state, metrics = process.update(state, random_sums(number))
            self.assertEqual(state.clip_norm, metrics.released["tracked_norm"])
            self.assertNotEqual(state.clip_norm, metrics.released["clip_norm"])

    @parameterized.parameters((0.5, _TREE), (0.8, _GAUSSIAN))
    def test_the_clip_norm_becomes_the_quantile(self, quantile, mechanism):
        # Norms of 400 clients a round are log-normal. The shares of clients below the
        # norms in force have to be the quantile, on average over 1,500 rounds: the
        # estimate moves by the noisy shares' distance from it, so that these add up to
        # next to nothing, and what is left is the noise: of each round's share the
        # sampling's and the mechanism's, 0.056 together. The mean's standard deviation
        # is 0.0015; within six of it: false alarms 2e-9. (A tree's noise adds up to
        # less than independent noise does.)
        goal, spread, rounds = 400, 0.7, 1700
        adaptive = lib.AdaptiveClip(count_stddev=goal / 20, quantile=quantile)
        process = server(
            mechanism=mechanism,
            report_goal=goal,
            num_rounds=rounds,
            noise_multiplier=1.0,
            clip_norm=0.1,
            adaptive_clip=adaptive,
            restart_rounds=(59,) if mechanism is _TREE else (),
        )
        state = process.initialize()
        random = np.random.default_rng(int(10 * quantile))
        law = stats.norm(scale=spread)
        shares = []
        for _ in range(rounds):
            norms = np.exp(spread * random.standard_normal(goal))
            below = int(np.sum(norms <= state.tracked_norm))
            shares.append(law.cdf(math.log(state.tracked_norm)))
            sums = zero_sums(
                num_below=below, num_clients=goal, clip_norm=state.clip_norm
            )
            state, _ = process.update(state, sums)
        self.assertLess(abs(np.mean(shares[200:]) - quantile), 0.009)

    def test_a_step_that_would_spoil_the_model_is_not_taken(self):
        process = server(mechanism=_NONE, noise_multiplier=0)
        state = process.initialize()
        sums = random_sums(0)
        delta = sums.delta
        delta["a"][0, 0] = np.inf
        sums = dataclasses.replace(sums, total=delta, unit=1.0)
        before = state.weights["a"].copy()
        with self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "round 0"):
            process.update(state, sums)
        np.testing.assert_array_equal(state.weights["a"], before)

    def test_bad_input(self):
        process = server()
        state = process.initialize()
        with self.assertRaisesRegex(ValueError, "of 9 clients, not of 10"):
            process.update(state, random_sums(0, num_clients=9))
        done = dataclasses.replace(state, round_number=100)
        with self.assertRaisesRegex(ValueError, "100 rounds of the run are done"):
            process.next(done, np.arange(10))
        for cohort in (np.arange(9), np.zeros(10, np.int64)):
            with self.assertRaisesRegex(ValueError, "must have 10"):
                process.next(state, cohort)
        with self.assertRaisesRegex(ValueError, "the model has"):
            process.initialize(collections.OrderedDict(a=np.zeros(2)))
        arrays = process.to_arrays(state)
        other = server(adaptive_clip=lib.AdaptiveClip(count_stddev=1.0))
        with self.assertRaisesRegex(ValueError, "another configuration.*count_noise"):
            other.from_arrays(arrays)
        arrays["weights/a"] = np.zeros((3, 3), np.float32)
        with self.assertRaisesRegex(ValueError, "'a' have the shape"):
            process.from_arrays(arrays)


class NoiseOfOtherRunsTest(parameterized.TestCase):
    @parameterized.parameters(_TREE, _GAUSSIAN)
    def test_two_runs_that_differ_in_anything_have_other_noise(self, mechanism):
        # With the same draws, the one less the other would be the sums' difference.
        adaptive = lib.AdaptiveClip(count_stddev=3.0)

        def noise_of(sums=None, weights=None, goal=10, **options):
            process = server(
                mechanism=mechanism, adaptive_clip=adaptive, report_goal=goal, **options
            )
            sums = sums or zero_sums(num_clients=goal)
            state = process.initialize(weights)
            output = process.update(state, sums)
            drawn = released(state, output, goal)
            flat = [drawn[n].ravel() - sums.delta[n].ravel() for n in _SHAPES]
            scale = process.parameters.delta_noise_multiplier * 2.0
            below = sums.num_below / goal - 0.5
            count = -math.log(output.state.tracked_norm / 2.0) / 0.2 - below
            return np.append(np.concatenate(flat) / scale, count * goal / 3.0)

        warm = _Rounds.model.initial_weights(9)
        base = noise_of()
        np.testing.assert_array_equal(base, noise_of())
        others = [
            noise_of(noise_multiplier=1.0),
            noise_of(num_rounds=99),
            noise_of(momentum=0.5),
            noise_of(about="other clients"),
            noise_of(goal=11),
            noise_of(seed=2),
            noise_of(noise_key=2),
            noise_of(weights=warm),
            # What nothing describes, such as other cohorts, shows in the sums.
            noise_of(zero_sums(num_below=6)),
            noise_of(random_sums(1)),
            noise_of(random_sums(2)),
        ]
        for i, one in enumerate([base, *others]):
            for other in others[i:]:
                # Ten numbers of the updates' noise and one of the count's.
                self.assertGreater(np.abs(one - other)[:10].min(), 1e-4)
                self.assertGreater(abs(one - other)[10], 1e-4)

    def test_nobody_without_the_key_can_check_a_guess_of_the_sums(self):
        # All that a checkpoint has, of the same sums under two keys.
        states = []
        for noise_key in (1, 2):
            process = server(noise_key=noise_key)
            process.configuration = "the same"
            state, _ = process.update(process.initialize(), random_sums(1))
            states.append(process.to_arrays(state))
        for name in ("history", "noise/totals", "noise/estimates", "momentum/b"):
            same = np.count_nonzero(states[0][name] == states[1][name])
            self.assertLess(same, states[0][name].size / 4 + 1, name)

    def test_what_rounds_describe(self):
        with tempfile.TemporaryDirectory() as scratch:

            def describe(name, clients=([[4, 5]], [[6]]), rate=0.5, epochs=1, **limits):
                text = client_text.ClientText.from_rows(
                    f"{scratch}/{name}", [(str(i), c) for i, c in enumerate(clients)]
                )
                language_model = limits.pop("model", common.bigram_model())
                return client_update.FederatedRounds(
                    language_model,
                    examples.MappedText(text, examples.ClientLimits(**limits)),
                    client_update.LocalTraining(rate, epochs),
                ).describe()

            found = [
                describe("a"),
                describe("b", clients=([[4, 5]], [[7]])),
                describe("c", rate=0.25),
                describe("d", epochs=2),
                describe("e", max_words=3),
                describe("f", max_sentences=3),
                describe("g", batch_size=3),
                describe("h", model=common.small_cifg()),
            ]
            self.assertLen(set(found), len(found))
            self.assertEqual(found[0], describe("i"))

    @parameterized.parameters(_TREE, _GAUSSIAN)
    def test_the_noise_that_is_drawn_follows_the_clip_norm(self, mechanism):
        # After a restart the sum of zeros with noise has the new clip norm's standard
        # deviation: chi-square of 400,000 values, false alarms 1e-9.
        size = 400_000
        adaptive = lib.AdaptiveClip(count_stddev=30.0, learning_rate=0.3)
        parameters = lib.ServerParameters(
            mechanism=mechanism,
            report_goal=10,
            num_rounds=4,
            noise_multiplier=0.5,
            clip_norm=2.0,
            adaptive_clip=adaptive,
            restart_rounds=(0,) if mechanism is _TREE else (),
        )
        rounds = _Rounds()
        rounds.model = type(
            "model",
            (),
            {"initial_weights": lambda seed: {"w": np.zeros(size, np.float32)}},
        )
        process = dp_ftrl.DpFtrlProcess(rounds, parameters, 1, 1)
        state = process.initialize()
        norms = []
        for _ in range(2):
            norms.append(state.clip_norm)
            sums = sums_of({"w": np.zeros(size)}, clip_norm=state.clip_norm)
            output = process.update(state, sums)
            drawn = released(state, output)["w"].astype(float)
            stddev = parameters.delta_noise_multiplier * state.clip_norm
            statistic = np.sum((drawn / stddev) ** 2)
            law = stats.chi2(size)
            self.assertGreater(min(law.cdf(statistic), law.sf(statistic)), 1e-9)
            state = output.state
        self.assertGreater(abs(math.log(norms[1] / norms[0])), 0.05)

    @parameterized.parameters(_TREE, _GAUSSIAN)
    def test_noise_on_counts_and_updates_as_drawn(self, mechanism):
        # z is 0.6 and sigma_b 0.35: a client moves the updates' sum by C = 2 and the
        # count by 1/2, so together (0.5 / 0.35)^2 + (1 / z_delta)^2 is 1 / 0.6^2, by
        # which z_delta is 1.165, twice z. Each of 400 processes has its own key and
        # draws once: chi-square, false alarms 1e-9.
        z_delta = (1 / 0.6**2 - (0.5 / 0.35) ** 2) ** -0.5
        self.assertGreater(z_delta, 1.9 * 0.6)
        draws, counts, updates = 400, [], []
        for noise_key in range(draws):
            process = server(
                mechanism=mechanism,
                noise_key=noise_key,
                noise_multiplier=0.6,
                adaptive_clip=lib.AdaptiveClip(count_stddev=0.35, learning_rate=1.0),
            )
            state = process.initialize()
            output = process.update(state, zero_sums())
            # The logarithm falls by the noisy share of the clients less a half.
            counts.append(-10 * math.log(output.state.tracked_norm / 2.0))
            noisy = released(state, output)
            updates.extend(np.concatenate([noisy[name].ravel() for name in _SHAPES]))
        for values, stddev in ((counts, 0.35), (updates, 2.0 * z_delta)):
            statistic = np.sum(np.square(values, dtype=float)) / stddev**2
            law = stats.chi2(len(values))
            self.assertGreater(min(law.cdf(statistic), law.sf(statistic)), 1e-9)

    def test_a_restart_round_starts_both_trees_anew(self):
        adaptive = lib.AdaptiveClip(count_stddev=3.0)
        process = server(adaptive_clip=adaptive, restart_rounds=(2,))
        state = process.initialize()
        for number in range(5):
            before, sums = state, random_sums(number, clip_norm=state.clip_norm)
            output = process.update(state, sums)
            state = output.state
            rounds = [1, 2, 0, 1, 2][number]
            for noise in (state.noise, state.count_noise):
                self.assertEqual((noise.tree, noise.rounds), (int(number >= 2), rounds))
                self.assertLen(noise.nodes, rounds.bit_count())
            if number == 3:
                # The first leaf of a new tree: what is released is its noisy total,
                # of this round's sum and of none before.
                noisy = released(before, output)
                drawn = np.concatenate([noisy[name].ravel() for name in _SHAPES])
                total = state.noise.nodes[0].total
                np.testing.assert_allclose(drawn, total * sums.unit, atol=1e-4)
                exact = np.concatenate([sums.total[n].ravel() for n in _SHAPES])
                stddev = process.parameters.delta_noise_multiplier * 2**32
                # Ten numbers: one is beyond 7 of these once in 4e10 times.
                self.assertLess(np.abs(total - exact).max(), 7 * stddev)
        # The restart goes along with the checkpoint.
        place = process.to_arrays(state)["noise/place"]
        np.testing.assert_array_equal(place, [1, 2])

    def test_a_round_without_a_finite_update_stops_the_run(self):
        process = server()
        sums = dataclasses.replace(random_sums(0), num_non_finite=10)
        with self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "no client's update"):
            process.update(process.initialize(), sums)

    def test_a_tracked_norm_that_runs_away_stops_the_run(self):
        process = server(adaptive_clip=lib.AdaptiveClip(count_stddev=1e9))
        with self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "tracked norm"):
            process.update(process.initialize(), random_sums(0))


class FederatedTest(common.TrainingTestCase):
    def _process(self, rounds, **options):
        values = dict(
            mechanism=_TREE,
            report_goal=4,
            num_rounds=12,
            noise_multiplier=0.2,
            clip_norm=0.5,
        )
        return dp_ftrl.DpFtrlProcess(
            rounds, lib.ServerParameters(**values | options), seed=1, noise_key=1
        )

    def _cohort(self, number):
        return np.random.default_rng(number).choice(8, 4, replace=False)

    @parameterized.parameters(
        dict(adaptive_clip=lib.AdaptiveClip(count_stddev=0.4), restart_rounds=(1, 6)),
        dict(mechanism=_GAUSSIAN, adaptive_clip=lib.AdaptiveClip(count_stddev=0.4)),
        dict(mechanism=_NONE, noise_multiplier=0, clip_norm=math.inf),
    )
    def test_continued_from_disk_bit_for_bit(self, **options):
        # The clients' side has no state: it is built once.
        clients = common.random_clients(8, seed=2)
        rounds = self.rounds(common.bigram_model(), clients)
        process = self._process(rounds, **options)
        state = process.initialize()
        file = io.BytesIO()
        for number in range(8):
            if number == 4:
                np.savez(file, **process.to_arrays(state))
            state, _ = process.next(state, self._cohort(number))
        file.seek(0)
        with np.load(file) as arrays:
            process = self._process(rounds, **options)
            continued = process.from_arrays(dict(arrays))
        self.assertEqual(continued.round_number, 4)
        for number in range(4, 8):
            continued, _ = process.next(continued, self._cohort(number))
        expected, found = process.to_arrays(state), process.to_arrays(continued)
        self.assertEqual(expected.keys(), found.keys())
        for name, array in expected.items():
            np.testing.assert_array_equal(array, found[name], err_msg=name)

    def test_it_learns(self):
        # Everybody writes 4 5 6 7 in a circle. Of the four words that are used of each
        # sentence, three follow from the one before; the first words of the five
        # sentences are 4, 5, 6, 7 and 4. So the best accuracy is (3 + 2/5) / 4.
        clients = [[[4 + (i + j) % 4 for j in range(5)] for i in range(6)]] * 8
        process = self._process(
            self.rounds(common.bigram_model(), clients),
            mechanism=_NONE,
            noise_multiplier=0,
            clip_norm=math.inf,
            momentum=0.0,
            num_rounds=40,
        )
        state = process.initialize()
        before = process.rounds.evaluate(state.weights, np.arange(8))
        for number in range(40):
            state, _ = process.next(state, self._cohort(number))
        after = process.rounds.evaluate(state.weights, np.arange(8))
        self.assertAlmostEqual(after["accuracy_of_suggestion"], 0.85)
        self.assertLess(after["loss"], before["loss"] / 2)


if __name__ == "__main__":
    absltest.main()
