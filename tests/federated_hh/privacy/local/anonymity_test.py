"""Tests of approximate k-anonymity: the paper's parameters, and simulation."""

import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy.local import anonymity
from federated_hh.privacy.local.anonymity import VotingLevel


def _production_level() -> VotingLevel:
    """Sun et al. 2024, section 4.1: |X| = 100, eta_max = 10^4, N B = 3e7."""
    return VotingLevel(
        alphabet_size=100,
        kept_prefixes=10000,
        local_epsilon=10.0,
        num_reports=3 * 10**7,
    )


class ProductionTest(parameterized.TestCase):
    def test_parameters(self):
        level = _production_level()
        self.assertEqual((level.domain_size, level.subset_size), (1000001, 46))
        self.assertAlmostEqual(level.include_probability, 0.503294, delta=5.1e-7)
        self.assertAlmostEqual(level.other_probability, 4.549671e-5, delta=5.1e-12)

    def test_lemma_1_shows_nothing(self):
        found = _production_level().lemma_1(0.95)
        self.assertIsNone(found.k)
        self.assertAlmostEqual(found.expected_threshold, 1405.0, delta=0.051)
        self.assertAlmostEqual(found.kept_probability_at_zero, 0.1418, delta=5.1e-5)

    def test_direct_evaluation(self):
        level = _production_level()
        found = level.direct(0.95)
        self.assertEqual(found.k, 49)
        self.assertFalse(found.all_data_sets)
        self.assertAlmostEqual(found.expected_threshold, 1451.7, delta=0.051)
        self.assertAlmostEqual(found.kept_probability_at_zero, 0.0103, delta=5.1e-5)
        # The paper's 45 holds there.
        kept = level.kept_probability(45, level.other_probability)
        self.assertAlmostEqual(kept, 0.0439, delta=5.1e-5)

    def test_repeats_give_a_word_another_chance_each(self):
        # Independent repeats in which all holders take part.
        level = anonymity.VotingLevel(
            alphabet_size=10, kept_prefixes=20, local_epsilon=4.0, num_reports=2_000
        )
        share = level.other_probability
        for repeats in (1, 3, 10):
            chances = [
                1 - (1 - level.kept_probability(k, share)) ** repeats for k in range(80)
            ]
            expected = max(k for k, chance in enumerate(chances) if chance <= 0.9)
            found = level.direct(0.1, num_repeats=repeats)
            self.assertEqual(found.k, expected)
            self.assertAlmostEqual(found.kept_probability, chances[expected])
        self.assertLess(level.direct(0.1, 2, num_repeats=3).k, level.direct(0.1, 2).k)

    @parameterized.parameters(
        (44, 0.1418, 0.3222), (45, 0.0287, 0.0985), (46, 0.0032, 0.0173)
    )
    def test_other_subset_sizes(self, size, at_0, at_45):
        level = _production_level()
        share = size / (level.domain_size - 1)
        for holders, expected in ((0, at_0), (45, at_45)):
            found = level.kept_probability(holders, share)
            self.assertAlmostEqual(found, expected, delta=5.1e-5)


class RunTest(parameterized.TestCase):
    @parameterized.parameters(
        (None, 1, 49), (9000, 1, 46), (8000, 1, 43), (None, 2, 42), (8000, 2, 33)
    )
    def test_fewer_prefixes_and_more_passes(self, live, num_passes, k):
        # Values of an independent evaluation, at |X| = 101.
        level = VotingLevel(
            alphabet_size=101,
            kept_prefixes=10000,
            local_epsilon=10.0,
            num_reports=3 * 10**7,
            live_prefixes=live,
        )
        self.assertEqual(level.direct(0.95, num_passes).k, k)

    @parameterized.parameters(2, 3)
    def test_passes_by_all_splits_of_the_holders(self, num_passes):
        level = VotingLevel(
            alphabet_size=20, kept_prefixes=5, local_epsilon=4.0, num_reports=2000
        )
        found = level.direct(0.6, num_passes)
        share = level.other_probability
        missed = [1 - level.kept_probability(k, share) for k in range(found.k + 2)]

        def most_likely(holders):
            splits = itertools.product(range(holders + 1), repeat=num_passes - 1)
            return 1 - min(
                math.prod(missed[part] for part in (*split, holders - sum(split)))
                for split in splits
                if sum(split) <= holders
            )

        self.assertAlmostEqual(found.kept_probability, most_likely(found.k), places=10)
        self.assertLessEqual(most_likely(found.k), 0.4)
        self.assertGreater(most_likely(found.k + 1), 0.4)


class SimulationTest(parameterized.TestCase):
    def test_kept_probability(self):
        # The mechanism itself on a small level, 1,500 times, all others holding "no
        # item" (item 0). Statistic: how often a candidate with k holders is kept,
        # within 5.2 standard deviations (two-sided false-alarm rate 2e-7 a case, 3
        # cases) and 0.01 for the candidates' dependence, which the formula neglects.
        level = VotingLevel(
            alphabet_size=8, kept_prefixes=6, local_epsilon=1.5, num_reports=400
        )
        s, d = level.domain_size, level.subset_size
        self.assertEqual((s, d), (49, 9))
        generator = np.random.default_rng(61)
        repeats = 1500
        for holders in (0, 10, 25):
            held = np.zeros(400, dtype=int)
            held[:holders] = 1
            kept = 0
            for _ in range(repeats):
                keys = generator.random((400, s))
                keys[np.arange(400), held] = 2.0
                include = generator.random(400) < level.include_probability
                order = np.argpartition(keys, d, axis=1)
                chosen = np.zeros((400, s), dtype=bool)
                np.put_along_axis(chosen, order[:, :d], True, axis=1)
                # With the input: d - 1 others, so one chosen at random is dropped.
                drop = np.take_along_axis(
                    order, generator.integers(d, size=(400, 1)), axis=1
                )
                rows = np.flatnonzero(include)
                chosen[rows, drop[rows, 0]] = False
                chosen[rows, held[rows]] = True
                votes = chosen.sum(axis=0)
                threshold = np.sort(votes[2:])[-6]
                kept += votes[1] >= threshold
            expected = level.kept_probability(holders, level.other_probability)
            spread = math.sqrt(expected * (1 - expected) / repeats)
            self.assertAlmostEqual(kept / repeats, expected, delta=5.2 * spread + 0.01)

    def test_k_is_the_largest(self):
        level = VotingLevel(
            alphabet_size=20, kept_prefixes=50, local_epsilon=4.0, num_reports=20000
        )
        found = level.direct(0.9)
        share = level.other_probability
        self.assertLessEqual(level.kept_probability(found.k, share), 0.1)
        self.assertGreater(level.kept_probability(found.k + 1, share), 0.1)
        self.assertEqual(level.kept_probability(found.k, share), found.kept_probability)

    def test_kept_probability_by_convolution(self):
        level = VotingLevel(
            alphabet_size=4, kept_prefixes=3, local_epsilon=1.0, num_reports=40
        )
        p, q = level.include_probability, level.other_probability
        share = 0.2
        votes = np.convolve(
            stats.binom.pmf(np.arange(6), 5, p), stats.binom.pmf(np.arange(36), 35, q)
        )
        at_least = [
            stats.binom.sf(2, 12, stats.binom.sf(c - 1, 40, share)) for c in range(42)
        ]
        expected = sum(
            (at_least[c] - at_least[c + 1]) * votes[c:].sum() for c in range(41)
        )
        self.assertAlmostEqual(level.kept_probability(5, share), expected, places=10)


class BadInputTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"alphabet_size": 1}, "alphabet_size"),
        ({"kept_prefixes": 0}, "kept_prefixes"),
        ({"local_epsilon": -1.0}, "local_epsilon"),
        ({"live_prefixes": 0}, "live_prefixes"),
        ({"live_prefixes": 100}, "level of 10000 candidates keeps all of them"),
        ({"num_reports": 1}, "num_reports"),
    )
    def test_levels(self, change, message):
        values = {
            "alphabet_size": 100,
            "kept_prefixes": 10000,
            "local_epsilon": 10.0,
            "num_reports": 1000,
        }
        with self.assertRaisesRegex(ValueError, message):
            VotingLevel(**(values | change))

    def test_lemma_1_needs_reports_of_two_items(self):
        level = VotingLevel(
            alphabet_size=100,
            kept_prefixes=10000,
            local_epsilon=14.0,
            num_reports=1000,
        )
        with self.assertRaisesRegex(
            ValueError, "local_epsilon = 14 makes reports of one item"
        ):
            level.lemma_1(0.95)
        self.assertIsNotNone(level.direct(0.95))

    def test_alpha(self):
        for alpha in (0.0, 1.0, math.nan):
            with self.assertRaisesRegex(ValueError, "alpha"):
                _production_level().direct(alpha)

    def test_reports_of_two_items(self):
        level = VotingLevel(
            alphabet_size=10, kept_prefixes=10, local_epsilon=4.0, num_reports=1000
        )
        self.assertEqual(level.subset_size, 2)
        found = level.lemma_1(0.95)
        self.assertIsNone(found.k)
        self.assertEqual(found.kept_probability_at_zero, 1.0)
        self.assertIsInstance(found, anonymity.AnonymityResult)


if __name__ == "__main__":
    absltest.main()
