"""Tests of the fit of a Pitman-Yor process to partitions.

Seeds are fixed; a deviate of 5.4 of a normal law has a false-alarm rate of 1e-7.
"""

import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations.fit import partition_fit
from federated_hh.populations.synthetic import pitman_yor

_DEVIATE = 5.4


def _draw(rng, lengths, discount, concentration):
    """Returns counts and row splits of restaurants."""
    openers, sizes = pitman_yor.seat(rng, lengths, discount, concentration)
    ends = np.concatenate(([0], np.cumsum(lengths)))
    return sizes, np.searchsorted(openers, ends)


def _log_likelihood(rows, discount, concentration):
    """One guest after the other, table by table."""
    total = 0.0
    for row in rows:
        seated = 0
        for tables, size in enumerate(row):
            for at_table in range(size):
                if at_table:
                    weight = at_table - discount
                elif seated:
                    weight = concentration + discount * tables
                else:
                    weight = concentration  # divided by itself
                total += math.log(weight / (concentration + seated))
                seated += 1
    return total


class PartitionFitTest(parameterized.TestCase):
    def test_the_fit_is_the_peak_of_the_sequential_likelihood(self):
        lengths = np.array([40, 7, 0, 90, 1, 25])
        counts, splits = _draw(np.random.default_rng(2), lengths, 0.5, 3.0)
        rows = [counts[a:b].tolist() for a, b in itertools.pairwise(splits)]
        found = partition_fit.fit(counts, splits)
        best = _log_likelihood(rows, found.discount, found.concentration)
        for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
            beside = _log_likelihood(
                rows,
                found.discount + 0.01 * np.cos(angle),
                found.concentration + 0.1 * np.sin(angle),
            )
            self.assertLess(beside, best)
        # Few partitions: the curvature of the same likelihood.
        step = 1e-3
        curvature = (
            _log_likelihood(rows, found.discount + step, found.concentration)
            - 2 * best
            + _log_likelihood(rows, found.discount - step, found.concentration)
        ) / step**2
        information = np.linalg.inv(found.covariance)
        self.assertAlmostEqual(-curvature / information[0, 0], 1.0, places=3)

    @parameterized.parameters((0.81, 22.0), (0.3, 0.5), (0.02, 5.0), (0.6, -0.3))
    def test_many_partitions(self, discount, concentration):
        rng = np.random.default_rng(3)
        lengths = np.ceil(np.exp(rng.normal(3.5, 1, 2_000))).astype(int)
        found = partition_fit.fit(*_draw(rng, lengths, discount, concentration))
        first, second = found.errors
        self.assertLess(abs(found.discount - discount), _DEVIATE * first)
        self.assertLess(abs(found.concentration - concentration), _DEVIATE * second)
        self.assertLess(first, 0.02)

    def test_one_large_partition(self):
        rng = np.random.default_rng(4)
        found = partition_fit.fit(*_draw(rng, np.array([200_000]), 0.4, 500.0))
        first, second = found.errors
        self.assertLess(abs(found.discount - 0.4), _DEVIATE * first)
        self.assertLess(abs(found.concentration - 500), _DEVIATE * second)
        self.assertLess(first, 0.02)

    def test_errors_are_the_spread_of_fits(self):
        rng = np.random.default_rng(5)
        fits = [
            partition_fit.fit(*_draw(rng, np.full(100, 60), 0.5, 8.0))
            for _ in range(200)
        ]
        spread = np.std([(f.discount, f.concentration) for f in fits], axis=0)
        stated = np.mean([f.errors for f in fits], axis=0)
        # A standard deviation of 200 fits is off by 5% (one standard error).
        np.testing.assert_allclose(spread / stated, 1.0, atol=0.25)

    def test_nothing_to_say(self):
        with self.assertRaisesRegex(ValueError, "at least one partition needs two"):
            partition_fit.fit(np.ones(3, int), np.array([0, 1, 1, 2, 3]))
        # All are new, or all the same: no peak, and no error that would mean anything.
        for counts, splits in (([1] * 40, [0, 20, 40]), ([9, 9], [0, 1, 2])):
            found = partition_fit.fit(np.array(counts), np.array(splits))
            self.assertTrue(np.isnan(found.errors).all() or max(found.errors) > 0)


if __name__ == "__main__":
    absltest.main()
