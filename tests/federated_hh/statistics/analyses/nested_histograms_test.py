"""Tests of distributions from nested noisy histograms, against their law."""

import numpy as np
from absl.testing import absltest, parameterized
from scipy import linalg

from federated_hh.statistics.analyses import nested_histograms

_FINE = np.array([0.0, 1.0, 2.0, 4.0, 5.0])
_COARSE = np.array([0.0, 2.0, 5.0])
_SHARES = np.array([0.05, 0.3, 0.1, 0.35, 0.15, 0.05])
_OWN, _OTHER = 0.5, 0.05


def _variances():
    gap = (_OWN - _OTHER) ** 2
    return _OTHER * (1 - _OTHER) / gap, _OWN * (1 - _OWN) / gap


def _coarse(shares):
    return np.array([shares[0], shares[1:3].sum(), shares[3:5].sum(), shares[5]])


def _histogram(boundaries, shares, reports):
    return nested_histograms.Histogram(boundaries, shares, reports, *_variances())


def _drawn(boundaries, shares, reports, generator):
    """Returns what noisy one-hot reports of a sample give."""
    counts = generator.multinomial(reports, shares)
    ones = generator.binomial(counts, _OWN)
    ones = ones + generator.binomial(reports - counts, _OTHER)
    estimates = (ones / reports - _OTHER) / (_OWN - _OTHER)
    return _histogram(boundaries, estimates, reports)


def _covariance(shares, reports):
    """Returns that of estimated shares, from the definition of a report's bits."""
    ones = _OTHER + (_OWN - _OTHER) * shares
    bits = np.diag(ones)
    for i in range(len(shares)):
        for j in range(len(shares)):
            if i != j:
                # Both bits are one: the true cell is i, j, or another.
                bits[i, j] = (shares[i] + shares[j]) * _OWN * _OTHER + (
                    1 - shares[i] - shares[j]
                ) * _OTHER**2
    return (bits - np.outer(ones, ones)) / (_OWN - _OTHER) ** 2 / reports


class NestedHistogramsTest(parameterized.TestCase):
    @parameterized.parameters(1, 2)
    def test_least_squares_by_lagrange(self, num):
        # The shares themselves are unknown, and their sum is a constraint.
        given = _SHARES + np.array([0.02, -0.01, 0.01, 0.02, -0.01, 0.0])
        parts = [(_coarse(_SHARES) + 0.01, 300, _COARSE), (given, 500, _FINE)][-num:]
        found = nested_histograms.combine(
            [_histogram(b, shares, reports) for shares, reports, b in parts]
        )
        design = [np.array([_coarse(row) for row in np.eye(6)]).T, np.eye(6)][-num:]
        shares = np.zeros(6)
        for _ in range(2):
            system, right = np.zeros((7, 7)), np.zeros(7)
            system[6, :6] = system[:6, 6] = right[6] = 1
            for matrix, (values, reports, _) in zip(design, parts, strict=True):
                weight = np.linalg.inv(_covariance(matrix @ shares, reports))
                system[:6, :6] += matrix.T @ weight @ matrix
                right[:6] += matrix.T @ weight @ values
            solved = linalg.solve(system, right)
            covariance = np.linalg.inv(system)[:6, :6]
            shares = solved[:6]
        self.assertTrue((shares > 0).all())
        np.testing.assert_allclose(found.shares, shares, rtol=1e-8)
        np.testing.assert_allclose(found.below, np.cumsum(shares)[:-1], rtol=1e-8)
        np.testing.assert_allclose(
            found.share_stderrs, np.sqrt(np.diag(covariance)), rtol=1e-8
        )
        lower = np.tril(np.ones((6, 6)))[:-1]
        np.testing.assert_allclose(
            found.stderrs, np.sqrt(np.diag(lower @ covariance @ lower.T)), rtol=1e-8
        )

    @parameterized.parameters(1, 2)
    def test_errors_have_their_standard_errors(self, num):
        generator = np.random.default_rng(1)
        below = np.cumsum(_SHARES)[:-1]
        scores, better = [], []
        for _ in range(600):
            fine = _drawn(_FINE, _SHARES, 4000, generator)
            coarse = _drawn(_COARSE, _coarse(_SHARES), 4000, generator)
            found = nested_histograms.combine([coarse, fine][-num:])
            scores.append((found.below - below) / found.stderrs)
            better.append(found.stderrs)
        scores = np.array(scores)
        # 600 repeats: the mean has the standard error 0.04, the deviation 0.03.
        self.assertLess(np.abs(scores.mean(axis=0)).max(), 0.17)
        self.assertLess(np.abs(scores.std(axis=0) - 1).max(), 0.13)
        if num == 2:
            alone = nested_histograms.combine([fine]).stderrs
            self.assertTrue((np.mean(better, axis=0) < alone).all())

    def test_quantiles_of_a_line(self):
        found = nested_histograms.Distribution(
            np.array([0.0, 10.0]), np.array([0.0, 1.0]), np.full(2, 0.02), np.zeros(3)
        )
        values, errors = found.quantiles(np.array([0.3, 0.5]))
        np.testing.assert_allclose(values, [3, 5])
        np.testing.assert_allclose(errors, [0.2, 0.2])
        np.testing.assert_allclose(found.at(np.array([-1.0, 2.5, 11.0])), [0, 0.25, 1])

    def test_monotone_is_between(self):
        below = np.array([-0.1, 0.5, 0.3, 0.3, 1.2])
        found = nested_histograms.Distribution(_FINE, below, np.ones(5), np.ones(6))
        np.testing.assert_allclose(found.monotone(), [0, 0.4, 0.4, 0.4, 1])

    def test_boundaries_have_to_be_nested(self):
        for other in ([0.5], [0.0, 6.0]):
            other = np.array(other)
            shares = np.full(len(other) + 1, 1 / (len(other) + 1))
            with self.assertRaisesRegex(ValueError, "boundaries"):
                nested_histograms.combine(
                    [_histogram(other, shares, 10), _histogram(_FINE, _SHARES, 10)]
                )


if __name__ == "__main__":
    absltest.main()
