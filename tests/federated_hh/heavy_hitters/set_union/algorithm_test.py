"""Tests of set union: clients' weights, releases, passes.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import collections
import math
import os

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.heavy_hitters.set_union import algorithm as set_union
from federated_hh.heavy_hitters.set_union import options as set_union_options
from federated_hh.options.fields import OptionError
from federated_hh.populations.columns import client_words
from federated_hh.privacy.sets import adaptive_gaussian, mechanisms, weighted_gaussian
from federated_hh.privacy.sets import plan as sets_plan
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import samplers, steps

_FALSE_ALARM = 1e-6
_KEY = noise_keys.NoiseKey(5, is_secret=True)
# Words of several scripts, of which no alphabet is needed.
_SHARED = ["the", "слово", "ひらがな", "कल", "🙂", "naïve"]


class SetUnionTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.populations = 0

    def algorithm(self, clients, passes, num_blocks=None):
        self.populations += 1
        folder = self.create_tempdir().full_path
        rows = [
            (str(i), [(word, 1 + i % 3) for word in words])
            for i, words in enumerate(clients)
        ]
        population = client_words.ClientWords.from_rows(
            os.path.join(folder, str(self.populations)), rows
        )
        sampler = samplers.Everybody(len(clients))
        plan = sets_plan.plan_of(sampler, passes)
        return set_union.SetUnion(population, plan, num_blocks)

    def clients(self, number, seed=1):
        random = np.random.default_rng(seed)
        found = []
        for i in range(number):
            words = random.choice(_SHARED, random.integers(0, 6), replace=False)
            found.append([*words, *(f"only{i}_{j}" for j in range(i % 9))])
        return found

    def passes(
        self,
        bound=4,
        epsilon=8.0,
        num_passes=1,
        kind=weighted_gaussian.WeightedGaussian,
    ):
        shares = [3.0**number for number in range(num_passes)]
        return weighted_gaussian.solve(epsilon, 1e-6, bound, shares, kind)

    def rounds(self, algorithm):
        """Runs a repeat; returns the exact sums of each pass, and all steps."""
        by_hand = steps.Steps(algorithm, seed=1, noise_key=_KEY)
        place, totals, done = by_hand.begin(), [], []
        with algorithm.worker():
            while (query := algorithm.next_query(place.state)) is not None:
                drawn = by_hand.draw(place)
                totals.append(by_hand.ask(place, query, drawn.cohort))
                done.append(by_hand.update(place, query, drawn, totals[-1]))
                place = done[-1].progress
        return totals, done

    def test_sums_are_those_of_plain_python_where_nobody_has_too_many_words(self):
        clients = self.clients(200)
        algorithm = self.algorithm(clients, self.passes(bound=20))
        (total,), _ = self.rounds(algorithm)
        expected = collections.Counter()
        for words in clients:
            for word in words:
                expected[word] += math.isqrt(2**40 // len(words))
        found = dict(zip(algorithm.population.words.to_pylist(), total, strict=True))
        self.assertEqual(found, dict(expected))

    def test_a_client_sends_no_more_words_than_the_bound(self):
        own = [f"w{i:02}" for i in range(30)]
        for bound in (1, 7, 29):
            algorithm = self.algorithm([own], self.passes(bound), num_blocks=1)
            (total,), _ = self.rounds(algorithm)
            self.assertEqual(np.count_nonzero(total), bound)
            self.assertEqual(set(total[total > 0]), {math.isqrt(2**40 // bound)})
            norm = sum(int(weight) ** 2 for weight in total)
            self.assertLessEqual(norm, weighted_gaussian.NORM**2)

    def test_each_subset_of_words_is_drawn_equally_often(self):
        clients = 9000
        algorithm = self.algorithm([list("abcde")] * clients, self.passes(2))
        # Each client in a block of its own, and all in a few, draw the same words.
        few = self.algorithm([list("abcde")] * 60, self.passes(2), num_blocks=3)
        alone = self.algorithm([list("abcde")] * 60, self.passes(2), num_blocks=60)
        stream = streams.Stream(3)
        ask = [each.next_query(each.initialize(0)).ask for each in (few, alone)]
        with few.worker():
            cohort = np.arange(60)
            np.testing.assert_array_equal(*(a(cohort, stream) for a in ask))
            # One client's sum is its subset.
            ask = alone.next_query(alone.initialize(0)).ask
            chosen = collections.Counter(
                tuple(np.flatnonzero(ask(cohort[i : i + 1], stream))) for i in range(60)
            )
            self.assertGreater(len(chosen), 7)
            self.assertEqual(set(map(len, chosen)), {2})
            ask = algorithm.next_query(algorithm.initialize(0)).ask
            total = ask(np.arange(clients), stream)
        counts = total // math.isqrt(2**40 // 2)
        self.assertEqual(counts.sum(), 2 * clients)
        low, high = stats.binom.ppf(
            [_FALSE_ALARM / 10, 1 - _FALSE_ALARM / 10], clients, 2 / 5
        )
        self.assertTrue(((counts >= low) & (counts <= high)).all(), counts)

    @parameterized.parameters(1, 3)
    def test_only_words_of_clients_are_released_and_once(self, num_passes):
        algorithm = self.algorithm(
            self.clients(3000), self.passes(num_passes=num_passes)
        )
        totals, done = self.rounds(algorithm)
        self.assertLen(totals, num_passes)
        seen = set()
        for total, step in zip(totals, done, strict=True):
            words = step.released.words
            self.assertTrue((total[words] > 0).all())
            # Later passes leave out what earlier ones released.
            self.assertFalse(seen & set(words.tolist()))
            self.assertEqual(total[sorted(seen)].sum(), 0)
            seen |= set(words.tolist())
            threshold = algorithm.plan.mechanism.thresholds[step.progress.rounds - 1]
            self.assertTrue((step.released.weights >= threshold).all())
        table = algorithm.results(done[-1].progress.state)["heavy_hitters"]
        self.assertContainsSubset(_SHARED, table["word"].tolist())
        order = table.sort_values(["pass", "weight"], ascending=[True, False])
        self.assertEqual(table["word"].tolist(), order["word"].tolist())
        self.assertEqual(len(table), len(seen))
        self.assertIsNone(algorithm.next_query(done[-1].progress.state))

    def test_other_words_get_the_weight_of_those_left_out(self):
        algorithm = self.algorithm([["a", "b"]] * 50, self.passes(num_passes=2))
        state = algorithm.initialize(0)
        released = mechanisms.Released(np.array([0]), np.array([10**8]))
        state, _ = algorithm.update(state, released)
        with algorithm.worker():
            total = algorithm.next_query(state).ask(np.arange(50), streams.Stream(1))
        np.testing.assert_array_equal(total, [0, 50 * weighted_gaussian.NORM])

    def test_adaptive_weights_are_those_of_plain_python(self):
        clients = self.clients(60)
        adaptive = adaptive_gaussian.AdaptiveGaussian
        passes = self.passes(bound=3, num_passes=2, kind=adaptive)
        # The same words in each pass, whatever was released before.
        algorithm = self.algorithm(clients, passes, num_blocks=3)
        levels = np.random.default_rng(2).integers(
            0, 17, algorithm.population.num_words
        )
        released = mechanisms.Released(
            np.array([0]), np.array([10**8]), levels.astype(np.uint8)
        )
        with algorithm.worker():
            state = algorithm.initialize(0)
            ask = algorithm.next_query(state).ask
            stream = streams.Stream(1, history=b"a" * 32)
            first = [ask(np.array([i]), stream) for i in range(60)]
            state, _ = algorithm.update(state, released)
            ask = algorithm.next_query(state).ask
            stream = streams.Stream(1, history=b"b" * 32)
            second = [ask(np.array([i]), stream) for i in range(60)]
            together = ask(np.arange(60), stream)
        for words, once, again in zip(clients, first, second, strict=True):
            sent = np.flatnonzero(once)
            self.assertLen(sent, min(3, len(words)))
            expected = np.zeros_like(again)
            squares = sum(int(levels[word]) ** 2 for word in sent)
            for word in sent:
                level = int(levels[word])
                if level:
                    expected[word] = math.isqrt(2**40 * level**2 // squares)
                    # Whether a word is sent is the same for all who sent it before.
                    self.assertGreater(again[word], 0)
            np.testing.assert_array_equal(again, expected)
            self.assertLessEqual(sum(int(weight) ** 2 for weight in again), 2**40)
        np.testing.assert_array_equal(together, sum(second))

    def test_weights_of_many_levels_have_the_norm(self):
        random = np.random.default_rng(3)
        owners = np.sort(random.integers(0, 40, 100_000)).astype(np.int32)
        owners[:99_000] = 0  # as many as a client can send
        levels = random.integers(0, 17, len(owners))
        found = set_union._weights(tf.constant(levels), tf.constant(owners), 40).numpy()
        self.assertTrue(((found > 0) == (levels > 0)).all())
        norms = np.bincount(owners, found.astype(float) ** 2)
        self.assertTrue((norms <= 2**40).all())
        self.assertGreater(norms[0], 0.98 * 2**40)

    def test_totals_are_of_all_passes(self):
        # Two runs of the mechanism: one releases everything, one nothing at first.
        every = mechanisms.NoisyTotals((2.0, 0.5), (1, 1), (1, 16))
        stream = streams.Stream(9, history=b"h" * 32)
        total = np.full(3_000, 2**30)
        total[::3] = 0
        first = every.release(total, every.initialize(), {}, stream)
        self.assertTrue((first.value.levels == 0).all())  # all are released
        second = every.release(total, first.state, {}, stream)
        for release, factors in ((first, (1,)), (second, (1, 16))):
            np.testing.assert_array_equal(release.value.words, np.flatnonzero(total))
            noise = release.value.weights - sum(factors) * 2**30
            stddev = math.hypot(2.0, factors[-1] / 2 if len(factors) > 1 else 0) * 2**20
            self.assertGreater(
                stats.kstest(noise / stddev, "norm").pvalue, _FALSE_ALARM
            )
        # The second pass adds to the first one's totals, and has noise of its own.
        later = second.value.weights - first.value.weights - 16 * 2**30
        self.assertLess(abs(np.corrcoef(later, first.value.weights)[0, 1]), 0.12)
        highest = int(second.value.weights.max())
        one = mechanisms.NoisyTotals((2.0, 0.5), (2**40, highest), (1, 16))
        held = one.release(total, one.initialize(), {}, stream)
        self.assertEmpty(held.value.words)
        np.testing.assert_array_equal(held.state.totals > 0, total > 0)
        again = one.release(total, held.state, {}, stream).value
        np.testing.assert_array_equal(again.weights, [highest])

    def test_holders_needed_are_found_so_often_by_totals(self):
        adaptive = adaptive_gaussian.AdaptiveGaussian
        passes = weighted_gaussian.solve(1, 1e-6, 20, [1, 1, 2], adaptive)
        stream = streams.Stream(9, history=b"h" * 32)
        mechanism = mechanisms.NoisyTotals(
            passes.noise_multipliers, passes.thresholds, passes.factors
        )
        for words in (1, 20):
            holders = passes.holders_needed(0.9, words)
            total = np.full(4_000, holders * weighted_gaussian.weight(words))
            state, found = mechanism.initialize(), 0
            for _ in range(3):
                release = mechanism.release(total, state, {}, stream)
                state, found = release.state, found + len(release.value.words)
                total = np.where(np.isin(range(4_000), release.value.words), 0, total)
            # Six standard errors below; a word that is near may be found before.
            self.assertBetween(found / 4_000, 0.87, 0.95)

    def test_only_words_that_were_sent_have_a_level(self):
        adaptive = adaptive_gaussian.AdaptiveGaussian
        passes = self.passes(num_passes=3, kind=adaptive)
        algorithm = self.algorithm(self.clients(3000), passes)
        totals, done = self.rounds(algorithm)
        self.assertLen(totals, 3)
        seen = set()
        for total, step in zip(totals, done, strict=True):
            words, levels = step.released.words, step.released.levels
            self.assertTrue((total[words] > 0).all())
            self.assertTrue((levels[words] == 0).all())
            self.assertTrue((levels[total == 0] == 0).all())
            self.assertFalse(seen & set(words.tolist()))
            seen |= set(words.tolist())
        self.assertContainsSubset(
            _SHARED, algorithm.results(done[-1].progress.state)["heavy_hitters"]["word"]
        )
        self.assertGreater(np.count_nonzero(done[0].released.levels), 0)

    def test_noise_has_its_law_and_a_sum_of_zero_none(self):
        passes = self.passes()
        mechanism = mechanisms.NoisyWeights(passes.noise_multipliers, (1,))
        total = np.full(20_000, 2**40)
        total[::2] = 0
        stream = streams.Stream(9, history=b"h" * 32)
        release = mechanism.release(total, mechanism.initialize(), {}, stream)
        self.assertEqual(release.state.rounds, 1)
        np.testing.assert_array_equal(release.value.words, np.arange(1, 20_000, 2))
        noise = (release.value.weights - 2**40) / passes.stddev(0)
        self.assertGreater(stats.kstest(noise, "norm").pvalue, _FALSE_ALARM)
        other = mechanism.release(
            total, mechanism.initialize(), {}, stream.of(b"i" * 32)
        )
        self.assertTrue((release.value.weights != other.value.weights).any())

    def test_each_pass_has_its_own_noise_and_threshold(self):
        mechanism = mechanisms.NoisyWeights((2.0, 0.5), (2**40, 2**20))
        total = np.full(5_000, 2**30)
        state, stream = mechanism.initialize(), streams.Stream(9, history=b"h" * 32)
        first = mechanism.release(total, state, {}, stream)
        self.assertEmpty(first.value.words)
        second = mechanism.release(total, first.state, {}, stream)
        self.assertLen(second.value.words, 5_000)
        noise = (second.value.weights - 2**30) / (0.5 * weighted_gaussian.NORM)
        self.assertGreater(stats.kstest(noise, "norm").pvalue, _FALSE_ALARM)

    def test_a_sum_at_the_threshold_is_released(self):
        total, stream = np.full(50, 2**30), streams.Stream(9, history=b"h" * 32)
        every = mechanisms.NoisyWeights((2.0,), (1,))
        weights = every.release(total, every.initialize(), {}, stream).value.weights
        highest = mechanisms.NoisyWeights((2.0,), (int(weights.max()),))
        again = highest.release(total, highest.initialize(), {}, stream).value
        np.testing.assert_array_equal(again.words, [weights.argmax()])

    def test_sums_without_room_are_refused(self):
        passes = weighted_gaussian.WeightedGaussian(5, (2.0**31,), (2**60,))
        with self.assertRaisesRegex(ValueError, "could exceed 53 bits"):
            sets_plan.plan_of(samplers.Everybody(10), passes)

    def test_nobody_who_sends_anything_releases_nothing(self):
        passes = self.passes()
        mechanism = mechanisms.NoisyWeights(passes.noise_multipliers, passes.thresholds)
        stream = streams.Stream(9, history=b"h" * 32)
        release = mechanism.release(
            np.zeros(5, np.int64), mechanism.initialize(), {}, stream
        )
        self.assertEqual(len(release.value.words), 0)
        self.assertEqual(release.state.rounds, 1)

    def test_other_populations_and_passes_are_refused(self):
        algorithm = self.algorithm(self.clients(30), self.passes())
        with self.assertRaisesRegex(ValueError, "for 30 clients, .* has 20"):
            other = self.algorithm(self.clients(20), self.passes())
            set_union.SetUnion(other.population, algorithm.plan)
        with self.assertRaisesRegex(ValueError, "no client .* has a word"):
            self.algorithm([[], []], self.passes())
        with self.assertRaisesRegex(ValueError, "round 2 is not in the plan"):
            algorithm.plan.check_round(2, {})


class SetUnionOptionsTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"contribution_bound": 0}, r"contribution_bound=0: .*\[1, 100000\]"),
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"epsilon": 51.0}, "no protection"),
        ({"delta": "1"}, "delta"),
        ({"num_passes": 0}, "num_passes"),
        ({"pass_growth": 2.0}, "pass_growth=2.0 needs num_passes above 1"),
        ({"weights": "adaptive"}, "weights=adaptive needs from 2 to 16 passes"),
        ({"weights": "other"}, "weights"),
    )
    def test_impossible_options_are_refused(self, values, message):
        with self.assertRaisesRegex(OptionError, message):
            set_union_options.SetUnionOptions(**values)

    def test_epsilon_at_which_nothing_can_be_released_is_refused(self):
        options = set_union_options.SetUnionOptions(epsilon=0.01, delta="1e-10")
        with self.assertRaisesRegex(
            OptionError, r"nothing can be released. A word needs 3,\d{3} holders, .*500"
        ):
            options.passes_for(500)
        self.assertEqual(options.passes_for(10_000).num_passes, 1)

    def test_settings_that_help_are_compared(self):
        options = set_union_options.SetUnionOptions(epsilon=1.0)
        table = options.what_is_found(10_000)
        self.assertLen({row["setting"] for row in table}, 3)
        text = set_union_options.sentences(table)
        self.assertRegex(text, r"with probability 0.9 if \d+ clients .* 100 words each")
        told = set_union_options.advice(table, 3, is_all=False)
        self.assertRegex(told, "--num_passes=3, at .* with --epsilon=2")
        told = set_union_options.advice(table, None, is_all=False)
        self.assertNotIn("--num_passes", told)


if __name__ == "__main__":
    absltest.main()
