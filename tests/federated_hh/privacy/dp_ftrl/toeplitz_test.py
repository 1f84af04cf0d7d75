"""Tests of correlated noise: sensitivity by brute force, errors by matrices."""

import functools
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import linalg, special

from federated_hh.privacy.dp_ftrl import toeplitz


def dense(coefficients):
    """Returns C."""
    return linalg.toeplitz(coefficients, np.zeros(len(coefficients)))


def patterns(num_rounds, max_participation, min_separation):
    """Yields every set of rounds that the limits allow."""
    for size in range(1, min(max_participation, num_rounds) + 1):
        for taken in itertools.combinations(range(num_rounds), size):
            if all(b - a > min_separation for a, b in itertools.pairwise(taken)):
                yield taken


def farthest(columns):
    """Returns the largest squared norm of a sum of columns, each times 1 or -1.

    Contributions of norm 1 move C x no farther than that of one number each: the
    squared norm is convex in each of them, and the products of columns are what counts.
    """
    found = 0.0
    for signs in itertools.product((1, -1), repeat=columns.shape[1] - 1):
        found = max(found, np.square(columns @ np.array((1, *signs))).sum())
    return found


def brute_force(coefficients, max_participation, min_separation):
    matrix = dense(coefficients)
    allowed = patterns(len(coefficients), max_participation, min_separation)
    return max(farthest(matrix[:, taken]) for taken in allowed)


class _Given(toeplitz.SquareRoot):
    """Has coefficients that are given."""

    def __init__(self, values):
        object.__setattr__(self, "values", np.asarray(values, float))

    def coefficients(self, num_rounds):
        return self.values[:num_rounds]


class SensitivityTest(parameterized.TestCase):
    def test_equals_brute_force_where_coefficients_do_not_increase(self):
        random = np.random.default_rng(1)
        for _ in range(150):
            num_rounds = int(random.integers(1, 13))
            values = np.sort(random.random(num_rounds))[::-1]
            values[random.integers(1, 14) :] = 0
            values[0] = 1
            most = int(random.integers(1, 6))
            separation = int(random.integers(0, num_rounds))
            expected = brute_force(values, most, separation)
            found = toeplitz.square_sensitivity(values, most, separation)
            self.assertGreaterEqual(found, expected)
            self.assertLess(found, expected * (1 + 1e-11))

    @parameterized.parameters((14, 3, 2), (14, 14, 1), (14, 4, 3), (13, 2, 11))
    def test_the_largest_cases(self, num_rounds, most, separation):
        values = toeplitz.SquareRoot(9).coefficients(num_rounds)
        expected = brute_force(values, most, separation)
        found = toeplitz.square_sensitivity(values, most, separation)
        self.assertAlmostEqual(found / expected, 1, places=10)

    def test_the_bare_formula_is_no_bound_where_they_increase(self):
        # b = 2, three participations in eight rounds.
        values = np.array([1.0, 0, 0, 1, 0, 0, 0, 0])
        bare = dense(values)[:, [0, 2, 4]].sum(axis=1)
        self.assertEqual(np.square(bare).sum(), 6)
        self.assertEqual(brute_force(values, 3, 1), 9)
        # Of (1, 1, 1, 1): 1 + 1 + 4 + 4 + 4 + 4 + 1 + 1.
        self.assertAlmostEqual(toeplitz.square_sensitivity(values, 3, 1), 20)

    def test_never_below_brute_force_whatever_the_coefficients(self):
        random = np.random.default_rng(2)
        for _ in range(150):
            values = random.normal(size=int(random.integers(2, 11)))
            values[random.random(len(values)) < 0.3] = 0
            values[0] = 1
            most = int(random.integers(1, 5))
            separation = int(random.integers(0, len(values)))
            found = toeplitz.square_sensitivity(values, most, separation)
            self.assertGreaterEqual(
                found, brute_force(values, most, separation) * (1 - 1e-13)
            )

    def test_blocks(self):
        # Every set of rounds, in a matrix of blocks.
        matrix = toeplitz.SquareRoot(5)
        for lengths, most, separation in (
            ((3, 4, 2), 3, 1),
            ((1, 1, 6), 4, 0),
            ((5, 5), 2, 3),
            ((3, 3), 4, 1),
            ((4,), 2, 1),
        ):
            blocks = linalg.block_diag(
                *(dense(matrix.coefficients(length)) for length in lengths)
            )
            allowed = patterns(sum(lengths), most, separation)
            exact = max(np.square(blocks[:, t].sum(axis=1)).sum() for t in allowed)
            # Without MinS across borders.
            alone = [
                [0.0]
                + [
                    brute_force(matrix.coefficients(length), n, separation)
                    for n in range(1, most + 1)
                ]
                for length in lengths
            ]
            divided = max(
                sum(part[n] for part, n in zip(alone, counts, strict=True))
                for counts in itertools.product(range(most + 1), repeat=len(lengths))
                if sum(counts) <= most
            )
            found = toeplitz.square_sensitivity_of_blocks(
                matrix, lengths, most, separation
            )
            self.assertAlmostEqual(found / divided, 1, places=10)
            self.assertGreaterEqual(found, exact)

    @parameterized.parameters((15, 0.3, ()), (15, 0.9, (4, 5)), (80, 0.7, (50,)))
    def test_observed(self, num_rounds, share, restarts):
        # With 80 rounds some take part more often than pairs are counted of.
        random = np.random.default_rng(3)
        taken = random.random((20, num_rounds)) < share
        taken[7] = False
        clients, rounds = np.nonzero(taken)
        shuffled = random.permutation(len(clients))
        lengths = np.diff([0, *(r + 1 for r in restarts), num_rounds]).tolist()
        for matrix in (
            toeplitz.SquareRoot(num_rounds),
            _Given(random.normal(size=num_rounds)),
        ):
            values = np.abs(matrix.coefficients(num_rounds))
            blocks = linalg.block_diag(*(dense(values[:size]) for size in lengths))
            expected = np.square(blocks @ taken.T).sum(axis=0).max()
            found = toeplitz.observed_square_sensitivity(
                matrix, clients[shuffled], rounds[shuffled], lengths
            )
            self.assertGreaterEqual(found, expected)
            self.assertLess(found, expected * (1 + 1e-10))

    def test_observed_is_at_most_the_worst(self):
        random = np.random.default_rng(4)
        matrix = toeplitz.SquareRoot(30)
        worst = np.array([0, 7, 14])
        for _ in range(30):
            rounds = 7 * np.arange(3) + np.sort(random.integers(0, 9, 3))
            found = toeplitz.observed_square_sensitivity(
                matrix, np.full(3, 5), rounds, [30]
            )
            limit = toeplitz.square_sensitivity(matrix.coefficients(30), 3, 6)
            self.assertLessEqual(found, limit * (1 + 1e-11))
        found = toeplitz.observed_square_sensitivity(matrix, 0 * worst, worst, [30])
        self.assertAlmostEqual(found / limit, 1, places=10)
        empty = np.zeros(0, int)
        self.assertEqual(
            toeplitz.observed_square_sensitivity(matrix, empty, empty, [30]), 0
        )

    def test_bad_participations(self):
        matrix = toeplitz.SquareRoot(3)
        observed = functools.partial(toeplitz.observed_square_sensitivity, matrix)
        for clients, rounds, regex in (
            ([1, 2], [1], "of one length"),
            ([1], [3], "from 0 to 2"),
            ([1, 1], [2, 2], "client 1 takes part twice in round 2"),
            ([1.0], [2], "to have integers"),
        ):
            with self.assertRaisesRegex(ValueError, regex):
                observed(np.array(clients), np.array(rounds), [3])


class ErrorTest(parameterized.TestCase):
    @parameterized.parameters(1, 4, 30)
    def test_matrices(self, bands):
        matrix, rounds = toeplitz.SquareRoot(bands), 30
        values = matrix.coefficients(rounds)
        expected = [special.binom(2 * t, t) / 4**t for t in range(bands)]
        np.testing.assert_allclose(values[:bands], expected)
        np.testing.assert_array_equal(values[bands:], 0)
        noise = np.tri(rounds) @ np.linalg.inv(dense(values))
        stddevs = np.linalg.norm(noise, axis=1)
        found = toeplitz.prefix_stddevs(matrix, rounds)
        np.testing.assert_allclose(found, stddevs, rtol=1e-12)
        self.assertAlmostEqual(toeplitz.largest_error(matrix, rounds), stddevs.max())

    def test_published(self):
        # 2,000 rounds, MinS 400 (b = 401), MaxP 5: the noise of the worst prefix for
        # the noise of one mechanism of sensitivity 1.
        for bands, expected in ((1, 100.0), (401, 9.61), (2000, 9.88)):
            matrix = toeplitz.SquareRoot(bands)
            square = toeplitz.square_sensitivity(matrix.coefficients(2000), 5, 400)
            found = math.sqrt(square) * toeplitz.largest_error(matrix, 2000)
            self.assertAlmostEqual(found / expected, 1, places=3)

    def test_streamed_noise(self):
        matrix, rounds, size = toeplitz.SquareRoot(4), 12, 50
        random = np.random.default_rng(5)
        independent = random.normal(size=(rounds, size))
        buffers, noises = [np.zeros(size)] * 3, []
        for z in independent:
            noise = z - matrix.mix(buffers)
            buffers = matrix.advance(buffers, noise)
            noises.append(noise)
        again = dense(matrix.coefficients(rounds)) @ noises
        np.testing.assert_allclose(again, independent, atol=1e-12)
        filtered = [matrix.filtered(column) for column in independent.T]
        np.testing.assert_allclose(np.transpose(filtered), noises, atol=1e-12)

    def test_bad_bands(self):
        with self.assertRaisesRegex(
            ValueError, "bands is 0; it has to be .* at least 1"
        ):
            toeplitz.SquareRoot(0)


if __name__ == "__main__":
    absltest.main()
