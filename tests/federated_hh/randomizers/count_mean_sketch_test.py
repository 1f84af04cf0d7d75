"""Tests of the count mean sketch, by enumeration of small ones.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import collections
import fractions
import itertools
import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.randomizers import count_mean_sketch
from federated_hh.randomness import identities
from tests.federated_hh.randomizers import affine_hashes_case, enumeration

_FALSE_ALARM = 1e-6


def _cell(columns, item):
    """h(item): the exclusive or of the columns of its bits, and the last one."""
    found = columns[-1]
    for place, column in enumerate(columns[:-1]):
        if item >> place & 1:
            found ^= column
    return int(found)


def law_of_report(families, num_cells, item, right):
    """Apple 2017: (j, v) with v_l = +1 at h_j(item) and -1 else, each b_l right.

    Args:
        families: For each j, the columns of h_j.
        num_cells: m.
        item: The device's.
        right: The chance that a bit is not turned round.

    Returns:
        The law of (j, ones of each cell).
    """
    law = {}
    for j, columns in enumerate(families):
        v = [1 if cell == _cell(columns, item) else -1 for cell in range(num_cells)]
        for b in itertools.product((1, -1), repeat=num_cells):
            chance = fractions.Fraction(1, len(families))
            for sign in b:
                chance *= right if sign == 1 else 1 - right
            bits = tuple(int(x * y == 1) for x, y in zip(v, b, strict=True))
            law[j, *bits] = chance
    return law


def law_of_sketch(families, num_cells, items, right):
    """The law of the flattened sum of reports, a row of ones and a count for each j."""
    width = num_cells + 1
    rows = []
    for item in items:
        law = collections.defaultdict(fractions.Fraction)
        reports = law_of_report(families, num_cells, item, right)
        for (j, *bits), chance in reports.items():
            flat = [0] * (len(families) * width)
            flat[j * width : (j + 1) * width] = [*bits, 1]
            law[tuple(flat)] += chance
        rows.append(dict(law))
    return enumeration.sum_of(rows)


def _small(epsilon=1.0, domain_size=3, num_hashes=2, num_cells=2, hash_seed=5):
    return count_mean_sketch.CountMeanSketch(
        epsilon,
        domain_size,
        num_hashes=num_hashes,
        num_cells=num_cells,
        hash_seed=hash_seed,
    )


class GuaranteeTest(parameterized.TestCase):
    @parameterized.parameters(0.1, 1.0, 4.29, 11.0)
    def test_likelihood_ratios_of_all_reports(self, epsilon):
        # Of all pairs of items, under functions that keep them apart: the largest
        # ratio is e^epsilon, and no more by the rounding of the coin.
        randomizer = _small(epsilon, 4, num_hashes=2, num_cells=4)
        families = [[1, 2, 0], [3, 1, 2]]
        right = randomizer.own_probability
        laws = [law_of_report(families, 4, item, right) for item in range(4)]
        largest = max(
            enumeration.largest_ratio(laws[a], laws[b])
            for a, b in itertools.permutations(range(4), 2)
        )
        exact = math.exp(epsilon)
        self.assertLessEqual(float(largest), exact * (1 + 1e-14))
        self.assertGreater(float(largest), exact * (1 - 1e-9))
        self.assertEqual(randomizer.guarantee.replacement_epsilon, epsilon)

    def test_bits_are_right_as_the_paper_has_it(self):
        for epsilon in (0.5, 4.0):
            own = _small(epsilon).own_probability
            self.assertAlmostEqual(
                float(own), math.exp(epsilon / 2) / (math.exp(epsilon / 2) + 1), 15
            )


class EstimateTest(parameterized.TestCase):
    @parameterized.parameters(([2, 1, 0],), ([3, 0, 0],), ([1, 1, 1],))
    def test_mean_and_variance_over_reports_and_functions(self, histogram):
        # All pairs of functions from items of two bits to two cells, all reports.
        randomizer = _small()
        right = randomizer.own_probability
        items = [i for i, number in enumerate(histogram) for _ in range(number)]
        every = affine_hashes_case.every_function(2, 2).tolist()
        first = np.zeros(3)
        second = np.zeros(3)
        for families in itertools.product(every, repeat=2):
            cells = [[_cell(f, item) for f in families] for item in range(3)]
            for flat, chance in law_of_sketch(families, 2, items, right).items():
                counts = [
                    sum(flat[3 * j + cell] for j, cell in enumerate(cells[item]))
                    for item in range(3)
                ]
                estimates = randomizer.estimate(np.array(counts), len(items))
                first += float(chance) * estimates
                second += float(chance) * estimates**2
        first, second = first / len(every) ** 2, second / len(every) ** 2
        np.testing.assert_allclose(first, histogram, atol=1e-12)
        stated = randomizer.variance(np.array(histogram), len(items))
        stated = stated + randomizer.variance_of_collisions(np.array(histogram))
        np.testing.assert_allclose(second - first**2, stated, rtol=1e-12)

    def test_the_estimate_is_that_of_apples_server(self):
        # The matrix of debiased rows, its mean along the functions, less n / m.
        randomizer = _small(2.0, 50, num_hashes=8, num_cells=16)
        histogram = np.zeros(50, np.int64)
        histogram[[3, 7]] = 300, 100
        sketch = randomizer.sketch_of_histogram(histogram, np.random.SeedSequence(1))
        k, m, n = 8, 16, 400
        c = (math.exp(1) + 1) / (math.exp(1) - 1)
        signed = 2 * sketch[:, :-1] - sketch[:, -1:]
        matrix = k * (c / 2 * signed + sketch[:, -1:] / 2)
        for item in (0, 3, 7, 49):
            cells = [_cell(columns, item) for columns in randomizer.hashes.columns]
            mean = sum(matrix[j, cell] for j, cell in enumerate(cells)) / k
            expected = m / (m - 1) * (mean - n / m)
            found = randomizer.estimate(randomizer.tally_of_sketch(sketch), n)[item]
            self.assertAlmostEqual(found, expected, 8)


class LawOfSketchTest(parameterized.TestCase):
    @parameterized.product(
        way=["sketch_of_histogram", "sketch_per_report"],
        # An item with as many reports as functions has a multinomial of them.
        case=[(2, [1, 0, 2]), (2, [0, 3, 0]), (1, [3, 1, 0]), (3, [1, 1, 0])],
    )
    def test_the_joint_law(self, way, case):
        num_hashes, histogram = case
        randomizer = _small(num_hashes=num_hashes)
        items = np.repeat(np.arange(3), histogram)
        sketch = tf.function(randomizer.sketch_per_report)
        drawn = []
        for seed in range(600):
            if way == "sketch_of_histogram":
                sequence = np.random.SeedSequence(seed)
                drawn.append(randomizer.sketch_of_histogram(histogram, sequence))
            else:
                drawn.append(sketch(items, tf.constant([seed, 1])).numpy())
        families = randomizer.hashes.columns.tolist()
        law = law_of_sketch(families, 2, items, randomizer.own_probability)
        outcomes = np.array(drawn).reshape(len(drawn), -1)
        self.assertGreater(enumeration.p_value(outcomes, law), _FALSE_ALARM)
        wrong = law_of_sketch(families, 2, items, fractions.Fraction(4, 5))
        self.assertLess(enumeration.p_value(outcomes, wrong), _FALSE_ALARM)

    def test_many_and_few_reports_of_an_item_have_one_law(self):
        # 60 reports of an item of 50 functions are drawn by a multinomial, 40 one by
        # one: their numbers in function 0, over 400 draws.
        for number in (60, 40):
            randomizer = _small(2.0, 3, num_hashes=50, num_cells=4)
            counts = [
                randomizer.sketch_of_histogram(
                    [0, number, 0], np.random.SeedSequence(seed)
                )[0, -1]
                for seed in range(400)
            ]
            law = {
                (n,): math.comb(number, n) * 0.02**n * 0.98 ** (number - n)
                for n in range(number + 1)
            }
            p = enumeration.p_value(np.array(counts)[:, np.newaxis], law)
            self.assertGreater(p, _FALSE_ALARM)

    def test_the_cost_does_not_grow_with_reports(self):
        randomizer = _small(4.0, 100, num_hashes=64, num_cells=32)
        histogram = np.zeros(100, np.int64)
        histogram[[1, 99]] = 3 * 10**14, 10**14
        counts = randomizer.sum_of_reports(histogram, 1)
        estimates = randomizer.estimate(counts, 4 * 10**14)
        # The hash functions alone are off by the root of their variance.
        error = np.sqrt(randomizer.variance_of_collisions(histogram))
        np.testing.assert_array_less(np.abs(estimates - histogram), 6 * error)


class ReportsTest(absltest.TestCase):
    def test_tally_and_sketch_count_the_same_reports(self):
        randomizer = _small(1.0, 40, num_hashes=5, num_cells=8)
        reports = randomizer.randomize(np.arange(40), [1, 2]).numpy()
        self.assertEqual(reports.shape, (40, 9))
        self.assertEqual(randomizer.bits_per_report, 3 + 8)
        expected = [
            sum(
                int(row[1 + _cell(randomizer.hashes.columns[row[0]], item)])
                for row in reports
            )
            for item in range(40)
        ]
        np.testing.assert_array_equal(randomizer.tally(reports).numpy(), expected)

    def test_what_it_is_made_with_is_in_its_canonical_text(self):
        self.assertEqual(
            identities.canonical(_small(1.5)),
            "CountMeanSketch(1.5, 3, num_hashes=2, num_cells=2, hash_seed=5)",
        )

    def test_epsilon_too_small_for_its_coins(self):
        with self.assertRaisesRegex(ValueError, "epsilon is 1e-30"):
            _small(1e-30)


if __name__ == "__main__":
    absltest.main()
