"""Tests of the noise on sums, against its law.

4,000 independent streams at once (as coordinates of one array: each is a stream of its
own law) make chi-square statistics on variances and covariances of prefix sums; the
false-alarm rate of a test is below 1e-6.
"""

import collections

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from scipy import stats
from tensorflow_privacy.privacy.dp_query import tree_aggregation

from federated_hh.privacy.dp_ftrl import tree_aggregation as tree_aggregation_lib
from federated_hh.randomness import integer_noise as noise
from federated_hh.randomness import streams

_STREAMS = 4000
_ALARM = 1e-6
_HISTORY = bytes(32)


class _Values(tree_aggregation.ValueGenerator):
    """Hands out values that are given, one after the other."""

    def __init__(self, values):
        # The tree asks for the leaf, and its parents, after the last round too.
        self._values = tf.constant([*values, *([values[-1]] * 9)], tf.float32)

    def initialize(self):
        return tf.constant(0)

    def next(self, state):
        return tf.gather(self._values, state), state + 1


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


class Process:
    """Noise of one kind and standard deviation, and its stream."""

    def __init__(self, kind, stddev, *purpose, key=1):
        self.noise = kind()
        self.stddev = stddev
        self.stream = streams.Stream(key, ("noise", *(purpose or ("test",))))

    def add(self, total, state, history=_HISTORY):
        return self.noise.add(total, self.stddev, state, self.stream.of(history))


def noise_of_nodes(process):
    """Makes a process record the noise of each node; returns the record."""
    drawn, draw = {}, process.noise._draw_parts

    def recorded(size, stddev, stream, *place):
        parts = list(draw(size, stddev, stream, *place))
        found = np.concatenate([part for _, part in parts])
        np.testing.assert_array_equal(found, drawn.setdefault(place, found))
        return iter(parts)

    process.noise._draw_parts = recorded
    return drawn


class NoiseTest(parameterized.TestCase):
    def _run(self, kind, rounds, restarts=(), stddev=3.0 * 2**20, key=1):
        """Returns the released noise in units of 2^20: [rounds, streams]."""
        process = Process(kind, stddev, key=key)
        state = noise.NoiseState()
        released = []
        for number in range(rounds):
            zeros = np.zeros(_STREAMS, np.int64)
            noised, state = process.add(zeros, state, _HISTORY)
            released.append(noised / 2**20)
            if number in restarts:
                state = process.noise.restart(state)
        return np.array(released)

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
        released = self._run(noise.Tree, 11)
        self.assert_covariance(np.cumsum(released, axis=0), 9 * honaker_covariance(11))

    def test_the_planned_variance_at_every_node(self):
        # Honaker: a tree of height h has variance 1 / (2 - 2^-h).
        covariance = honaker_covariance(16)
        for height in range(5):
            rounds = 2**height
            self.assertAlmostEqual(
                covariance[rounds - 1, rounds - 1], 1 / (2 - 2.0**-height)
            )

    @parameterized.parameters(((16,),), ((11,),), ((3, 4, 2),))
    def test_the_planned_deviation_of_the_worst_prefix(self, lengths):
        done = worst = 0.0
        for length in lengths:
            variances = np.diag(honaker_covariance(length))
            worst = max(worst, done + variances.max())
            done += variances[-1]
        found = tree_aggregation_lib.largest_error(lengths)
        self.assertAlmostEqual(found, np.sqrt(worst))

    def test_across_restarts(self):
        # Trees of 3, 4 and 2 rounds: residuals of a new tree add to the noise that is
        # there, which stays.
        released = self._run(noise.Tree, 9, restarts=(2, 6))
        expected = np.zeros((9, 9))
        for start, length in ((0, 3), (3, 4), (7, 2)):
            within = 9 * honaker_covariance(length)
            padded = np.zeros((9, 9))
            end = start + length
            padded[start:end, start:end] = within
            padded[end:, start:end] = within[-1]
            padded[start:end, end:] = within[-1][:, np.newaxis]
            padded[end:, end:] = within[-1, -1]
            expected += padded
        self.assert_covariance(np.cumsum(released, axis=0), expected)

    def test_independent_noise(self):
        released = self._run(noise.Independent, 6, restarts=(2,))
        self.assert_covariance(released, 9 * np.eye(6))

    @parameterized.parameters(noise.Tree, noise.Independent)
    def test_streams(self, kind):
        one, again = (self._run(kind, 3, key=5) for _ in range(2))
        np.testing.assert_array_equal(one, again)
        zeros = np.zeros(2000, np.int64)

        def drawn(*purpose, key=1, history=_HISTORY, tree=0):
            process = Process(kind, 2.0**30, *purpose, key=key)
            state = noise.NoiseState(tree)
            return process.add(zeros, state, history)[0]

        base = drawn("x")
        np.testing.assert_array_equal(base, drawn("x"))
        others = [
            drawn("x", key=2),
            drawn("y"),
            drawn("x", "y"),
            drawn("x", history=bytes(31) + b"1"),
            drawn("x", tree=1),
        ]
        for i, other in enumerate(others):
            for before in (base, *others[:i]):
                self.assertLess(np.count_nonzero(before == other), 3)

    @parameterized.parameters(noise.Tree, noise.Independent)
    def test_nearby_scales_share_no_bits(self, kind):
        # With shared bits all 2,000 would be within 2^10; else 1.2 within 2^20.
        zeros = np.zeros(2000, np.int64)
        stddevs = (2.0**30, 2.0**30 * (1 + 2.0**-30))
        one, other = (
            Process(kind, stddev).add(zeros, noise.NoiseState())[0]
            for stddev in stddevs
        )
        self.assertLess(np.count_nonzero(abs(one - other) < 2**20), 20)

    def test_a_node_is_the_sum_of_its_rounds_whatever_their_histories(self):
        process = Process(noise.Tree, 2.0**40)
        nodes = noise_of_nodes(process)  # refuses a node that is drawn in two ways
        totals = np.arange(24).reshape(8, 3)
        state = noise.NoiseState()
        for number, total in enumerate(totals):
            _, state = process.add(total, state, number.to_bytes(32, "big"))
        (node,) = state.nodes
        np.testing.assert_array_equal(node.total - nodes[0, 3, 0], totals.sum(axis=0))

    def test_it_is_the_tree_of_tensorflow_privacy_with_the_same_nodes(self):
        rounds = 21
        process = Process(noise.Tree, 1e6)
        nodes = noise_of_nodes(process)
        random = np.random.default_rng(1)
        sums = random.integers(-(10**7), 10**7, (rounds, 50))
        state, released = noise.NoiseState(), []
        for part in sums:
            noised, state = process.add(part, state, _HISTORY)
            released.append(noised)
        found = np.cumsum(released, axis=0) - np.cumsum(sums, axis=0)
        # Its order: a leaf, and then the nodes that the leaf completes, upwards.
        order = [
            (0, height, place >> height)
            for place in range(rounds)
            for height in range(rounds.bit_length())
            if (place + 1) % (1 << height) == 0
        ]
        self.assertEqual(set(order), set(nodes))
        tree = tree_aggregation.EfficientTreeAggregator(
            _Values([nodes[node] for node in order])
        )
        theirs, expected = tree.init_state(), []
        for _ in range(rounds):
            value, theirs = tree.get_cumsum_and_update(theirs)
            expected.append(value.numpy())
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=10)

    @parameterized.parameters(noise.Tree, noise.Independent)
    def test_noisy_integers_alone_decide_what_is_released(self, kind):
        # Other sums, and noise that makes the same noisy total of every node: not a
        # bit differs, however the floats are rounded.
        rounds, size = 13, 40
        random = np.random.default_rng(2)
        sums = random.integers(-(2**59), 2**59, (2, rounds, size))
        process = Process(kind, 2.0**33)
        nodes = noise_of_nodes(process)
        state, released = noise.NoiseState(), []
        for part in sums[0] // rounds:
            noised, state = process.add(part, state, _HISTORY)
            released.append(noised)
        change = sums[0] // rounds - sums[1] // rounds

        def shifted(size, stddev, stream, tree, height, index):
            node = slice(index << height, (index + 1) << height)
            drawn = nodes[tree, height, index] + change[node].sum(axis=0)
            for first in range(0, size, 7):
                part = slice(first, min(first + 7, size))
                yield part, drawn[part]

        process.noise._draw_parts = shifted
        other = noise.NoiseState()
        for number, part in enumerate(sums[1] // rounds):
            noised, other = process.add(part, other, _HISTORY)
            np.testing.assert_array_equal(noised, released[number])
        self.assertLen(state.nodes, len(other.nodes))
        for node, same in zip(state.nodes, other.nodes, strict=True):
            np.testing.assert_array_equal(node.total, same.total)
            np.testing.assert_array_equal(node.estimate, same.estimate)

    def test_sums_are_not_rounded_before_the_noise(self):
        # A client that moves 2^55 by one moves the noisy total by one.
        for kind in (noise.Tree, noise.Independent):
            process = Process(kind, 100.0)
            nodes = noise_of_nodes(process)
            total = np.array([2**55, 2**55 + 1, -(2**55) - 1])
            noised, state = process.add(total, noise.NoiseState())
            if kind is noise.Tree:
                noisy = state.nodes[0].total
                self.assertEqual((noisy - nodes[0, 0, 0]).tolist(), total.tolist())
            np.testing.assert_array_equal(
                noised, (total + nodes[0, 0, 0]).astype(float)
            )

    def test_independent_noise_may_change_its_scale(self):
        # Chi-square of 4,000 values each, false alarms 1e-6.
        process, state = Process(noise.Independent, 1.0), noise.NoiseState()
        for stddev in (2.0**20, 3.0 * 2**20, 2.0**19):
            process.stddev = stddev
            noised, state = process.add(np.zeros(_STREAMS, np.int64), state)
            statistic = np.sum((noised / stddev) ** 2)
            law = stats.chi2(_STREAMS)
            self.assertGreater(min(law.cdf(statistic), law.sf(statistic)), _ALARM / 6)

    def test_what_could_leave_64_bits(self):
        with self.assertRaisesRegex(ValueError, "could exceed 64 bits: lower"):
            noise.check_room(2.0**40, 2**63 - 2**41)
        noise.check_room(2.0**40, 2**62)
        with self.assertRaisesRegex(ValueError, "sums have 0 values"):
            Process(noise.Tree, 1.0).add(np.zeros(0, np.int64), noise.NoiseState())

    def test_sums_of_another_size_than_before(self):
        process = Process(noise.Tree, 1.0)
        _, state = process.add(np.zeros(9, np.int64), noise.NoiseState())
        for size in (4, 12):
            with self.assertRaisesRegex(ValueError, f"have {size} values.* rounds, 9"):
                process.add(np.zeros(size, np.int64), state)


if __name__ == "__main__":
    absltest.main()
