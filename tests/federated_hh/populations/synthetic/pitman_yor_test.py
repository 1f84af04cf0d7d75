"""Tests of the Pitman-Yor process against its sequential scheme.

Seeds are fixed; each comparison has a false-alarm rate of 1e-7 under its null law: a
chi-square test, or a normal deviate of 5.4 of a mean of thousands of bounded values.
"""

import collections
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.populations.synthetic import pitman_yor

_FALSE_ALARM = 1e-7
_DEVIATE = 5.4
_LAWS = ((0.81, 22.0), (0.5, 0.0), (0.0, 1.5), (0.7, -0.4), (0.3, -0.29), (0.95, 3.0))


def _sequential(guests, discount, concentration):
    """Returns the law of (openers, guests of each table), one guest after the other."""
    law = {((), ()): 1.0}
    for guest in range(guests):
        following = collections.Counter()
        for (openers, sizes), chance in law.items():
            tables = len(sizes)
            anew = 1.0
            if guest:
                anew = (concentration + discount * tables) / (concentration + guest)
            following[(*openers, guest), (*sizes, 1)] += chance * anew
            for table in range(tables):
                more = (*sizes[:table], sizes[table] + 1, *sizes[table + 1 :])
                joins = (sizes[table] - discount) / (concentration + guest)
                following[openers, more] += chance * joins
        law = following
    return law


def _expected_tables(guests, discount, concentration):
    tables = 1.0
    for guest in range(1, guests):
        tables += (concentration + discount * tables) / (concentration + guest)
    return tables


class SeatTest(parameterized.TestCase):
    @parameterized.parameters(*_LAWS)
    def test_law_is_that_of_the_sequential_scheme(self, discount, concentration):
        # Restaurants of 0, 1, 2 and 6 guests beside each other.
        lengths = np.tile([6, 0, 1, 2], 40_000)
        openers, sizes = pitman_yor.seat(
            np.random.default_rng(1), lengths, discount, concentration
        )
        starts = np.cumsum(lengths) - lengths
        owner = np.searchsorted(starts, openers, side="right") - 1
        owner = np.where(lengths[owner] == 0, owner - 1, owner)
        tables = [[] for _ in lengths]
        for place, restaurant, size in zip(
            openers - starts[owner], owner, sizes, strict=True
        ):
            tables[restaurant].append((int(place), int(size)))
        for guests in (1, 2, 6):
            seen = collections.Counter(
                tuple(zip(*found, strict=True))
                for found, length in zip(tables, lengths, strict=True)
                if length == guests
            )
            law = _sequential(guests, discount, concentration)
            self.assertAlmostEqual(sum(law.values()), 1.0)
            self.assertLessEqual(set(seen), set(law))
            observed = np.array([seen[key] for key in law], float)
            expected = np.array(list(law.values())) * observed.sum()
            cell = np.where(expected < 10, expected.argmax(), np.arange(len(law)))
            observed = np.bincount(cell, observed, len(law))
            expected = np.bincount(cell, expected, len(law))
            used = expected > 0
            statistic = ((observed - expected)[used] ** 2 / expected[used]).sum()
            p_value = stats.chi2.sf(statistic, max(used.sum() - 1, 1))
            self.assertGreater(p_value, _FALSE_ALARM, (guests, seen))

    @parameterized.parameters(*_LAWS)
    def test_number_of_tables_of_many_guests(self, discount, concentration):
        lengths = np.full(2_000, 700)
        openers, sizes = pitman_yor.seat(
            np.random.default_rng(2), lengths, discount, concentration
        )
        self.assertEqual(sizes.sum(), lengths.sum())
        tables = np.bincount(openers // 700, minlength=2_000)
        error = tables.std() / math.sqrt(len(tables))
        expected = _expected_tables(700, discount, concentration)
        self.assertLess(abs(tables.mean() - expected), _DEVIATE * error)

    def test_nobody_comes(self):
        openers, sizes = pitman_yor.seat(
            np.random.default_rng(0), np.zeros(3, int), 0.5, 1.0
        )
        self.assertLen(openers, 0)
        self.assertLen(sizes, 0)


class ExpectedMassesTest(parameterized.TestCase):
    @parameterized.parameters((0.3, 50.0), (0.0, 20.0), (0.78, 10.0), (0.5, -0.3))
    def test_as_many_above_a_size_as_sticks_that_are_broken(self, discount, strength):
        # Size-biased masses: the k-th stick takes a Beta(1 - d, a + k d) part.
        rng = np.random.default_rng(3)
        sticks = np.arange(1, 4_001)
        parts = rng.beta(1 - discount, strength + sticks * discount, (1_000, 4_000))
        left = np.cumprod(1 - parts, axis=1)
        broken = parts * np.concatenate((np.ones((1_000, 1)), left[:, :-1]), axis=1)
        masses, beyond = pitman_yor.expected_masses(discount, strength, 20_000)
        self.assertAlmostEqual(masses.sum() + beyond, 1.0)
        self.assertTrue((np.diff(masses) <= 0).all())
        for size in (0.2, 0.1, 0.05, 0.02, 0.01, 0.005):
            above = (broken > size).sum(axis=1)
            error = above.std() / math.sqrt(len(above))
            # The k-th mass spans from N = k - 1 to N = k.
            self.assertLess(
                abs((masses > size).sum() - above.mean()), 1 + _DEVIATE * error, size
            )

    @parameterized.parameters((0.78, 3_060.0), (0.1, 15_000.0), (0.0, 500.0))
    def test_chance_that_two_draws_are_the_same(self, discount, strength):
        masses, _ = pitman_yor.expected_masses(discount, strength, 300_000)
        same = (1 - discount) / (1 + strength)
        self.assertAlmostEqual((masses**2).sum() / same, 1.0, delta=5e-3)

    def test_few_words_of_a_law_that_has_many(self):
        few, beyond = pitman_yor.expected_masses(0.8, 3_000.0, 10)
        many, _ = pitman_yor.expected_masses(0.8, 3_000.0, 1_000)
        np.testing.assert_allclose(few, many[:10], rtol=1e-6)
        self.assertAlmostEqual(few.sum() + beyond, 1.0)


if __name__ == "__main__":
    absltest.main()
