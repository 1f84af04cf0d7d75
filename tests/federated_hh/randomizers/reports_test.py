"""Tests of single reports against their enumerated laws, and of their privacy.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import decimal
import fractions
import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.randomizers import (
    coins,
    count_mean_sketch,
    k_ary,
    one_hot,
    subset_selection,
)
from tests.federated_hh.randomizers import enumeration

_FALSE_ALARM = 1e-6
_DRAWS = 50_000
_EPSILONS = (0.1, 1.0, 3.0, 20.0)


def _exp(epsilon: float) -> fractions.Fraction:
    with decimal.localcontext(prec=80):
        return fractions.Fraction(decimal.Decimal(epsilon).exp())


def _law(randomizer, item):
    own, other = randomizer.own_probability, randomizer.other_probability
    if isinstance(randomizer, subset_selection.SubsetSelection):
        size = randomizer.subset_size
        return enumeration.subset_selection(randomizer.domain_size, size, item, own)
    return enumeration.one_hot(randomizer.domain_size, item, own, other)


def _make(name, epsilon, domain_size):
    if name.startswith("subset_of_"):
        size = int(name.removeprefix("subset_of_"))
        return subset_selection.SubsetSelection(epsilon, domain_size, size)
    return {
        "subset": subset_selection.SubsetSelection,
        "k_ary": k_ary.KAryRandomizedResponse,
        "asymmetric": one_hot.AsymmetricOneHotEncoding,
        "symmetric": one_hot.SymmetricOneHotEncoding,
        "sketch": count_mean_sketch.CountMeanSketch,
    }[name](epsilon, domain_size)


_CASES = [
    (name, epsilon, domain_size)
    for name in ("subset", "k_ary", "asymmetric", "symmetric")
    for epsilon in _EPSILONS
    for domain_size in (2, 6)
] + [
    ("subset_of_5", 0.1, 6),
    ("subset_of_5", 20.0, 6),
    ("subset_of_4", 1.0, 6),
    ("subset_of_2", 3.0, 6),
]


class PrivacyTest(parameterized.TestCase):
    @parameterized.parameters(*_CASES)
    def test_every_likelihood_ratio_is_at_most_that_of_epsilon_and_reached(
        self, name, epsilon, domain_size
    ):
        randomizer = _make(name, epsilon, domain_size)
        guarantee = randomizer.guarantee
        self.assertEqual(guarantee.epsilon, epsilon)
        laws = [_law(randomizer, item) for item in range(domain_size)]
        for law in laws:
            self.assertEqual(sum(law.values()), 1)
        largest = max(
            enumeration.largest_ratio(one, other)
            for one, other in itertools.permutations(laws, 2)
        )
        # In exact fractions: the chances in force, not their float64 neighbours.
        bound = _exp(guarantee.replacement_epsilon)
        self.assertLessEqual(largest, bound)
        self.assertGreater(largest / bound, 1 - 1e-9)

    @parameterized.product(epsilon=_EPSILONS, domain_size=(2, 3, 6))
    def test_the_symmetric_encoding_is_within_epsilon_of_its_reference_law(
        self, epsilon, domain_size
    ):
        randomizer = _make("symmetric", epsilon, domain_size)
        self.assertEqual(randomizer.guarantee.model, "deletion")
        other = randomizer.other_probability
        reference = enumeration.one_hot(domain_size, -1, other, other)
        for item in range(domain_size):
            law = _law(randomizer, item)
            for ratio in (
                enumeration.largest_ratio(law, reference),
                enumeration.largest_ratio(reference, law),
            ):
                self.assertLessEqual(ratio, _exp(epsilon))
                self.assertGreater(ratio / _exp(epsilon), 1 - 1e-9)

    def test_a_report_without_the_bit_of_no_item_follows_the_reference_law(self):
        randomizer = _make("symmetric", 1.0, 4)
        marginal = {}
        for bits, chance in _law(randomizer, 3).items():
            marginal[bits[:3]] = marginal.get(bits[:3], 0) + chance
        other = randomizer.other_probability
        self.assertEqual(marginal, enumeration.one_hot(3, -1, other, other))

    @parameterized.parameters(*((e,) for e in _EPSILONS))
    def test_chances_are_those_of_the_papers(self, epsilon):
        e = float(np.exp(epsilon))
        for domain_size in (2, 7, 1001):
            subset = _make("subset", epsilon, domain_size)
            size = int(np.ceil(domain_size / (e + 1)))
            self.assertEqual(subset.subset_size, size)
            own = size * e / (size * e + domain_size - size)
            self.assertAlmostEqual(float(subset.own_probability), own, 14)
            k = _make("k_ary", epsilon, domain_size)
            own = e / (e + domain_size - 1)
            self.assertAlmostEqual(float(k.own_probability), own, 14)
            other = 1 / (e + domain_size - 1)
            self.assertAlmostEqual(float(k.other_probability) / other, 1, 9)
            asymmetric = _make("asymmetric", epsilon, domain_size)
            self.assertEqual(asymmetric.own_probability, fractions.Fraction(1, 2))
            flipped = float(asymmetric.other_probability) * (e + 1)
            self.assertAlmostEqual(flipped, 1, 9)
            symmetric = _make("symmetric", epsilon, domain_size)
            wrong = float(1 - symmetric.own_probability) * (e + 1)
            self.assertAlmostEqual(wrong, 1, 9)
            flipped = float(symmetric.other_probability) * (e + 1)
            self.assertAlmostEqual(flipped, 1, 9)

    def test_the_production_setting_of_the_paper(self):
        # Sun et al. 2024, section 4.1: 10^4 prefixes of 100 characters, "no item".
        randomizer = _make("subset", 10.0, 10**6 + 1)
        self.assertEqual(randomizer.subset_size, 46)
        self.assertAlmostEqual(float(randomizer.own_probability), 0.503294, 6)
        self.assertAlmostEqual(float(randomizer.other_probability), 4.549671e-5, 11)

    @parameterized.parameters(
        ("subset", "replacement", 1, "subset_selection", 180),
        ("k_ary", "replacement", 1, "k_ary", 10),
        ("asymmetric", "replacement", 1, "asymmetric_one_hot", 1000),
        ("symmetric", "deletion", 2, "symmetric_one_hot", 1000),
        ("subset_of_3", "replacement", 1, "arbitrary", 30),
        ("subset_of_500", "replacement", 1, "arbitrary", 1000),
    )
    def test_guarantees_and_bits(self, name, model, factor, amplification, bits):
        randomizer = _make(name, 4.0, 1000)
        guarantee = randomizer.guarantee
        self.assertEqual(guarantee.model, model)
        self.assertEqual(guarantee.replacement_epsilon, 4.0 * factor)
        self.assertEqual(guarantee.amplification, amplification)
        self.assertNotEmpty(guarantee.amplification_reason)
        self.assertEqual(randomizer.bits_per_report, bits)
        # The accounting knows it by that name, and agrees on the local epsilon.
        reports = shuffling.Reports(
            randomizer=shuffling.Randomizer(amplification),
            local_epsilon=guarantee.epsilon,
            domain_size=randomizer.domain_size,
        )
        self.assertEqual(reports.replacement_epsilon, guarantee.replacement_epsilon)
        central = shuffling.amplify(reports, num_reports=10**6, delta=1e-6)
        self.assertLess(central.epsilon, 1.0)


class LawOfReportsTest(parameterized.TestCase):
    @parameterized.parameters(*_CASES)
    def test_reports_follow_the_enumerated_law(self, name, epsilon, domain_size):
        # Pearson's chi-squared, 50,000 reports of each of two items.
        randomizer = _make(name, epsilon, domain_size)
        for item in (0, domain_size - 1):
            items = np.full(_DRAWS, item, np.int32)
            reports = randomizer.randomize(items, [5, item]).numpy()
            p = enumeration.p_value(reports.astype(int), _law(randomizer, item))
            self.assertGreater(p, _FALSE_ALARM)

    @parameterized.product(
        name=("subset", "k_ary", "asymmetric", "symmetric", "subset_of_3"),
        epsilon=(0.1, 3.0),
    )
    def test_devices_are_independent(self, name, epsilon):
        # The reports of neighbours, as one outcome of a product law: 25,000 pairs.
        domain_size = 4
        randomizer = _make(name, epsilon, domain_size)
        one, other = _law(randomizer, 0), _law(randomizer, 1)
        pairs = {a + b: one[a] * other[b] for a, b in itertools.product(one, other)}
        items = np.tile([0, 1], _DRAWS // 2)
        reports = randomizer.randomize(items, [6, 0]).numpy().astype(int)
        outcomes = reports.reshape(_DRAWS // 2, -1)
        self.assertGreater(enumeration.p_value(outcomes, pairs), _FALSE_ALARM)

    def test_the_test_finds_a_wrong_chance(self):
        # The power of the statistic: a chance that is off by 4 in 100 is found.
        randomizer = _make("subset", 1.0, 6)
        wrong = randomizer.own_probability * fractions.Fraction(96, 100)
        law = enumeration.subset_selection(6, randomizer.subset_size, 0, wrong)
        reports = randomizer.randomize(np.zeros(_DRAWS, np.int32), [5, 0]).numpy()
        self.assertLess(enumeration.p_value(reports, law), 1e-6)

    def test_tally_counts_what_reports_speak_for(self):
        subset = _make("subset_of_2", 1.0, 4)
        counts = subset.tally(tf.constant([[0, 3], [1, 3], [0, 1]]))
        np.testing.assert_array_equal(counts, [2, 2, 0, 2])
        encoding = _make("symmetric", 1.0, 3)
        counts = encoding.tally(tf.constant([[True, False, True], [True] * 3]))
        np.testing.assert_array_equal(counts, [2, 1, 2])
        self.assertEqual(counts.dtype, tf.int64)


class SeedsTest(parameterized.TestCase):
    @parameterized.parameters(
        ("subset", 2), ("k_ary", 2), ("asymmetric", 1), ("symmetric", 1), ("sketch", 2)
    )
    def test_no_two_draws_of_a_report_have_one_seed(self, name, least):
        seeds, uniform = [], tf.random.stateless_uniform

        def recorded(shape, seed, **options):
            seeds.append(tuple(np.asarray(seed).tolist()))
            return uniform(shape, seed, **options)

        randomizer = _make(name, 2.0, 12)
        with mock.patch.object(tf.random, "stateless_uniform", recorded):
            randomizer._randomize(tf.constant([3, 3, 5]), tf.constant([1, 2]))
        self.assertLen(set(seeds), len(seeds))
        self.assertGreaterEqual(len(seeds), least)


class CoinTest(parameterized.TestCase):
    @parameterized.parameters(1, 2**31, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1)
    def test_heads_are_the_words_below_the_number(self, heads):
        words = tf.random.stateless_uniform(
            [1000], [1, 2], minval=None, maxval=None, dtype=tf.uint64, alg="philox"
        )
        for number in (heads, int(words[0])):
            expected = [int(word) < number for word in words.numpy()]
            found = coins.Coin(number).toss([1000], [1, 2])
            self.assertEqual(found.numpy().tolist(), expected)

    def test_rounding_is_to_the_side_asked_for(self):
        third = decimal.Decimal(1) / decimal.Decimal(3)
        self.assertEqual(coins.Coin.at_most(third).heads, (2**64 - 1) // 3)
        self.assertEqual(coins.Coin.at_least(third).heads, (2**64 - 1) // 3 + 1)
        half = decimal.Decimal("0.5")
        self.assertEqual(coins.Coin.at_most(half), coins.FAIR)
        self.assertEqual(coins.Coin.at_least(half), coins.FAIR)

    @parameterized.parameters(0, 2**64, -1)
    def test_a_coin_with_one_side_is_refused(self, heads):
        with self.assertRaisesRegex(ValueError, "heads"):
            coins.Coin(heads)

    def test_counts_of_nearly_certain_heads_are_right(self):
        # 1 - 2e-12 of 10^15: the tails have mean 2000, and float64 would be off by
        # 1e-16 / 2e-12. Ten standard deviations of the mean of 100 draws.
        tails = fractions.Fraction(2, 10**12)
        tosses = np.full(100, 10**15)
        heads = coins.count_heads(np.random.default_rng(1), tosses, 1 - tails)
        mean = (tosses - heads).mean()
        self.assertAlmostEqual(mean, 2000, delta=10 * np.sqrt(2000 / 100))


if __name__ == "__main__":
    absltest.main()
