"""Tests of the noise on sums, against its law.

4,000 independent streams at once (as coordinates of one array: each is a stream of its
own law) make chi-square statistics on variances and covariances of prefix sums; the
false-alarm rate of a test is below 1e-6.
"""

import collections

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from training import noise

_STREAMS = 4000
_ALARM = 1e-6


def honaker_covariance(num_rounds):
    """Returns the covariance of the prefix sums' noise for nodes of variance 1.

    Built from the definition: a prefix is a union of complete dyadic nodes; each is
    estimated from its whole subtree, the mean of the two children's estimates being
    combined with the node's own noise by inverse variance (Honaker 2015).
    """
    nodes = {}

    def noise_of(height, index):
        return nodes.setdefault((height, index), len(nodes))

    def estimate(height, index):
        """Returns the weights on nodes, and the estimate's variance."""
        own = collections.Counter({noise_of(height, index): 1.0})
        if height == 0:
            return own, 1.0
        left, left_variance = estimate(height - 1, 2 * index)
        right, right_variance = estimate(height - 1, 2 * index + 1)
        children_variance = left_variance + right_variance
        share = children_variance / (1 + children_variance)
        weights = collections.Counter({n: share * w for n, w in own.items()})
        for part in (left, right):
            for node, weight in part.items():
                weights[node] += (1 - share) * weight
        return weights, share

    rows = []
    for rounds in range(1, num_rounds + 1):
        row, start = collections.Counter(), 0
        for height in reversed(range(rounds.bit_length())):
            if rounds >> height & 1:
                row.update(estimate(height, start >> height)[0])
                start += 1 << height
        rows.append(row)
    matrix = np.zeros((num_rounds, len(nodes)))
    for number, row in enumerate(rows):
        for node, weight in row.items():
            matrix[number, node] = weight
    return matrix @ matrix.T


class NoiseTest(parameterized.TestCase):
    def _run(self, kind, rounds, restarts=(), stddev=3.0, seed=1):
        """Returns the released noise: [rounds, streams]."""
        template = {"a": np.zeros((_STREAMS // 2,)), "b": np.zeros((2, _STREAMS // 4))}
        process = kind(template, seed, "test")
        state = process.initial_state(stddev)
        released = []
        for number in range(rounds):
            noised, state = process.add(template, state)
            released.append(np.concatenate([v.reshape(-1) for v in noised.values()]))
            if number in restarts:
                stddev *= 2
                state = process.restart(state, stddev)
        return np.array(released, dtype=np.float64)

    def assert_covariance(self, samples, expected):
        """Checks every variance and covariance of Gaussian columns.

        With the whitened samples, each entry of the sample covariance is compared with
        the identity: n times a diagonal entry is chi-square, an entry beside it is
        nearly normal of variance 1/n.
        """
        size, count = len(samples), samples.shape[1]
        white = np.linalg.solve(np.linalg.cholesky(expected), samples)
        found = white @ white.T / count
        tests = size * (size + 1) / 2 + size
        law = stats.chi2(count)
        for i in range(size):
            self.assertGreater(law.cdf(count * found[i, i]), _ALARM / tests / 2)
            self.assertGreater(law.sf(count * found[i, i]), _ALARM / tests / 2)
            self.assertLess(
                abs(white[i].mean()) * np.sqrt(count),
                stats.norm.isf(_ALARM / tests / 2),
            )
            for j in range(i):
                z = abs(found[i, j]) * np.sqrt(count)
                # Products have heavier tails than a normal: a wider bound.
                self.assertLess(z, 1.3 * stats.norm.isf(_ALARM / tests / 2))

    def test_prefix_sums_have_the_covariance_of_the_tree(self):
        released = self._run(noise.TreeNoise, 11)
        self.assert_covariance(np.cumsum(released, axis=0), 9 * honaker_covariance(11))

    def test_the_planned_variance_at_every_node(self):
        # Honaker: a tree of height h has variance 1 / (2 - 2^-h).
        covariance = honaker_covariance(16)
        for height in range(5):
            rounds = 2**height
            self.assertAlmostEqual(
                covariance[rounds - 1, rounds - 1], 1 / (2 - 2.0**-height)
            )

    def test_across_restarts(self):
        # Trees of 3, 4 and 2 rounds, of nodes of 3, 6 and 12: residuals of a new tree
        # add to the noise that is there, which stays.
        released = self._run(noise.TreeNoise, 9, restarts=(2, 6))
        expected = np.zeros((9, 9))
        for start, length, stddev in ((0, 3, 3), (3, 4, 6), (7, 2, 12)):
            within = stddev**2 * honaker_covariance(length)
            padded = np.zeros((9, 9))
            end = start + length
            padded[start:end, start:end] = within
            padded[end:, start:end] = within[-1]
            padded[start:end, end:] = within[-1][:, np.newaxis]
            padded[end:, end:] = within[-1, -1]
            expected += padded
        self.assert_covariance(np.cumsum(released, axis=0), expected)

    def test_independent_noise(self):
        released = self._run(noise.GaussianNoise, 6, restarts=(2,))
        self.assert_covariance(released, np.diag([9.0] * 3 + [36.0] * 3))

    @parameterized.parameters(noise.TreeNoise, noise.GaussianNoise)
    def test_streams(self, kind):
        one, again = (self._run(kind, 3, seed=5) for _ in range(2))
        np.testing.assert_array_equal(one, again)
        self.assertFalse(np.any(one[0] == self._run(kind, 3, seed=6)[0]))
        template = {"a": np.zeros(4)}
        first, _ = kind(template, 1, "x").add(
            template, kind(template, 1, "x").initial_state(1.0)
        )
        other, _ = kind(template, 1, "y").add(
            template, kind(template, 1, "y").initial_state(1.0)
        )
        self.assertFalse(np.any(first["a"] == other["a"]))

    @parameterized.parameters(noise.TreeNoise, noise.GaussianNoise)
    def test_sums_come_through_and_states_are_kept(self, kind):
        random = np.random.default_rng(1)
        sums = [{"a": random.normal(size=5).astype(np.float32)} for _ in range(7)]
        process = kind(sums[0], 3, "test")
        quiet, loud = process.initial_state(0.0), process.initial_state(2.0)
        for number, part in enumerate(sums):
            found, quiet = process.add(part, quiet)
            np.testing.assert_allclose(found["a"], part["a"], atol=1e-6)
            expected, following = process.add(part, loud)
            # Through plain arrays and another process.
            copy = kind(sums[0], 3, "test").unflatten(process.flatten(loud))
            found, copy = process.add(part, copy)
            np.testing.assert_array_equal(found["a"], expected["a"])
            if number == 3:
                following = process.restart(following, 5.0)
            loud = following


if __name__ == "__main__":
    absltest.main()
