"""Tests of Algorithm 2's client and server sides: norms, sums, rounding, training."""

import dataclasses
import functools
import math
from unittest import mock

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies
from scipy import linalg, stats

from federated_hh.privacy.dp_ftrl import model_updates
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.dp_ftrl.rotated_updates import RotatedUpdate
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import block_round, steps, timers
from tests.training import training_test_case as common
from training.federated import dp_ftrl, rotated_sums, server_optimizers, update_sums

_STREAM = streams.Stream(5, ("round",))


def update_of(ratio, size, num_clients=4, clip_norm=0.3):
    """Returns a contribution with q = s C / sqrt(padded dimension)."""
    default = RotatedUpdate.of(
        clip_norm=clip_norm, num_values=size, num_clients=num_clients
    )
    scale = ratio * math.sqrt(default.dimension) / clip_norm
    return dataclasses.replace(default, scale=scale)


def matrix_of(size):
    """Returns the Hadamard matrix of a size; `HadamardTest` has its law."""
    return np.stack([column_of(size, number) for number in range(size)], axis=1)


def column_of(size, number):
    """Returns a column of `matrix_of`."""
    one = np.zeros(size)
    one[number] = 1
    return rotated_sums.hadamard(tf.constant(one)).numpy()


class Client:
    """The messages of a round's clients, and the expected ones."""

    def __init__(self, contribution, stream=_STREAM):
        self.of = contribution
        self.sums = rotated_sums.RotatedSums(contribution)
        self.message = self.sums.message(stream)
        self._told = self.sums.told(
            {name: tf.constant(part) for name, part in self.message.items()}
        )
        self._add = tf.function(self._sent)

    def _sent(self, delta, place):
        total = self.sums.begin([delta])
        norm = update_sums.norm_of([delta])
        return self.sums.add(total, [delta], norm, {**self._told, "place": place})

    def integers(self, delta, place=0):
        """Returns a client's integers, not yet shifted, and the two counts."""
        found = self._add(tf.constant(delta, tf.float64), tf.constant(place, tf.int64))
        integers, *counts = (part.numpy() for part in found)
        assert integers.shape == (self.of.dimension,)
        return integers.astype(np.int64), counts

    def rotated(self, delta):
        """Returns what is rounded, by the paper's formulas in float64."""
        of = self.of
        scaled = of.scale * delta * min(1, of.clip_norm / np.linalg.norm(delta))
        padded = np.pad(scaled, (0, of.dimension - of.num_values))
        turned = self.rotation() @ padded
        return turned * min(1, of.largest_coordinate / np.abs(turned).max())

    def rotation(self):
        """Returns the matrix of rotation."""
        bits = [int(b) >> i & 1 for b in self.message["signs"] for i in range(8)]
        signs = 1 - 2 * np.array(bits[: self.of.dimension])
        return matrix_of(self.of.dimension) * signs / self.of.dimension**0.5

    def decoded(self, total, shapes=None):
        """Returns what the server makes of a sum of integers, by name."""
        modulus = 2**self.of.bits
        shift = self.of.num_clients * self.of.largest_coordinate
        sent = {"delta": (total + shift) % modulus, "num_below": 0}
        counts = dict.fromkeys(("num_non_finite", "num_bounded", "num_unrounded"), 0)
        found = self.sums.update_sum(
            sent | counts,
            shapes or {"w": (self.of.num_values,)},
            self.of.num_clients,
            self.of.num_clients,
            self.message,
        )
        return found.parts


def squared_norm(integers):
    return sum(x * x for x in integers.tolist())


class HadamardTest(parameterized.TestCase):
    def test_every_round_and_repeat_has_signs_and_rounding_of_its_own(self):
        sums = rotated_sums.RotatedSums(update_of(10, 300))
        told = [
            sums.message(streams.Stream(5).at("repeat", repeat, "round", number))
            for repeat in range(3)
            for number in range(3)
        ]
        for name in ("signs", "rounding"):
            self.assertLen({message[name].tobytes() for message in told}, 9)

    @parameterized.parameters(4, 12, 20, 28, 64, 12 << 3, 20 << 6, 28 << 1, 1 << 11)
    def test_signs_whose_rows_are_orthogonal(self, size):
        matrix = matrix_of(size)
        self.assertTrue(np.all(np.abs(matrix) == 1))
        np.testing.assert_array_equal(matrix @ matrix.T, size * np.eye(size))
        if size & (size - 1) == 0:
            np.testing.assert_array_equal(matrix, linalg.hadamard(size))

    @parameterized.parameters((8, 59), (28, 58), (20 << 10, 48))
    def test_products_are_exact(self, size, bits):
        values = np.random.default_rng(1).integers(-(2**bits), 2**bits, size)
        found = rotated_sums.exact_hadamard(values)
        for number in (0, 1, 5, size - 1):
            # Of Python's integers, which have no end.
            pairs = zip(column_of(size, number), values.tolist(), strict=True)
            self.assertEqual(found[number], sum(int(sign) * n for sign, n in pairs))

    @parameterized.parameters(8, 12)
    def test_at_the_end_of_64_bits(self, size):
        most = (2**63 - 1) // size
        for number, column in enumerate(matrix_of(size).T.astype(np.int64)):
            for sign in (1, -1):
                found = rotated_sums.exact_hadamard(sign * most * column)
                expected = [0] * size
                expected[number] = sign * most * size
                self.assertEqual(found.tolist(), expected)


class NormTest(parameterized.TestCase):
    @hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
    @hypothesis.given(data=strategies.data())
    def test_no_integers_are_longer_than_the_limit(self, data):
        size = data.draw(strategies.sampled_from((1, 5, 33)))
        ratio = data.draw(strategies.sampled_from((0.04, 1.0, 10.0, 1e7)))
        place = data.draw(strategies.integers(0, 2**31))
        client = self._client(ratio, size)
        element = strategies.floats(
            -(2.0**99), 2.0**99, width=32, allow_subnormal=False
        )
        shape = data.draw(strategies.sampled_from(("any", "along", "alike")))
        if shape == "any":
            elements = strategies.lists(element, min_size=size, max_size=size)
            delta = np.array(data.draw(elements))
        elif shape == "along":
            # Turned into one coordinate that is as long as all of it.
            row = data.draw(strategies.integers(0, client.of.dimension - 1))
            delta = client.rotation()[row][:size] * data.draw(element)
        else:
            # Turned into coordinates that are all as near to halves as can be.
            halves = np.full(client.of.dimension, 0.5 + math.floor(ratio))
            delta = (client.rotation().T @ halves)[:size] / client.of.scale
        if not np.isfinite(np.linalg.norm(delta)):
            return
        integers, (_, unrounded) = client.integers(delta, place)
        self.assertLessEqual(squared_norm(integers), client.of.squared_limit)
        self.assertLessEqual(np.abs(integers).max(), client.of.largest_coordinate)
        self.assertEqual(unrounded, 0)

    @functools.cache  # noqa: B019
    def _client(self, ratio, size):
        return Client(update_of(ratio, size))

    def test_neighbours_are_as_near_as_is_accounted(self):
        # The longest client among others, before and after the server's rounding.
        random = np.random.default_rng(1)
        for ratio, size in ((0.1, 3), (1, 50), (10, 100), (1e4, 64)):
            client = Client(update_of(ratio, size, num_clients=50))
            limit, most = client.of.squared_limit, client.of.largest_coordinate
            for _ in range(20):
                one = random.normal(size=client.of.dimension)
                one = np.trunc(one * math.sqrt(limit) / np.linalg.norm(one))
                one = np.clip(one, -most, most).astype(np.int64)
                others = random.integers(-49 * most, 49 * most + 1, client.of.dimension)
                without, with_ = (
                    client.decoded(sum_)["w"] for sum_ in (others, others + one)
                )
                moved = math.sqrt(squared_norm(with_ - without)) / 2**32
                self.assertLessEqual(moved, float(client.of.norm_factor))
            if size == client.of.dimension and ratio > 100:
                self.assertGreater(moved, 0.99 * float(client.of.norm_factor))

    def test_neighbours_are_as_near_where_the_server_s_floats_are_coarse(self):
        # Sums of 2^28 clients, where a float's last bit is tens of the units that sums
        # are rounded to: this shows, and is no more than accounted.
        client = Client(update_of(1.65, 2, num_clients=2**28))
        self.assertEqual(client.of.squared_limit, 16)
        one, moves = np.array([2, 2, 2, 2]), []
        most = 2**28 * client.of.largest_coordinate
        for others in np.random.default_rng(1).integers(-most, most, (20, 4)):
            without, with_ = (
                client.decoded(sum_)["w"] for sum_ in (others, others + one)
            )
            moves.append(math.sqrt(squared_norm(with_ - without)) / 2**32)
        self.assertLessEqual(max(moves), float(client.of.norm_factor))
        self.assertGreater(max(moves), 4 / 3.3 + 2**-31)

    @parameterized.parameters((0, 9), (1, 0), (1, 6), (9, 0))
    def test_without_a_try_that_is_short_enough_a_client_sends_zeros(
        self, tries, limit
    ):
        # Every third or so of 32 integers is 1 or -1.
        contribution = update_of(0.3, 30)
        contribution.__dict__["squared_limit"] = limit
        with mock.patch.object(rotated_sums, "MOST_TRIES", tries):
            integers, (_, unrounded) = Client(contribution).integers(np.ones(30))
        self.assertEqual(unrounded, 1)
        self.assertEqual(np.abs(integers).sum(), 0)

    def test_beyond_floats_of_32_bits_a_client_sends_zeros(self):
        for longest in (2.0**128, 2.0**200):
            client = Client(update_of(64.0, 6))
            integers, (_, unrounded) = client.integers(np.eye(6)[1] * longest)
            self.assertEqual((np.abs(integers).sum(), unrounded), (0, 1))

    def test_most_tries_are_short_enough(self):
        # Kairouz et al. 2021: the first with a probability of at least 1 - exp(-0.5).
        with mock.patch.object(rotated_sums, "MOST_TRIES", 1):
            for ratio, size in ((0.05, 2), (1, 16)):
                client = Client(update_of(ratio, size))
                lost = [client.integers(np.ones(size), i)[1][1] for i in range(80)]
                self.assertLess(np.mean(lost), math.exp(-0.5) + 0.1)


class RoundingTest(parameterized.TestCase):
    @parameterized.parameters((0.4, 12), (2.0, 12), (200.0, 12))
    def test_unbiased_and_as_far_off_as_bernoullis(self, ratio, size):
        client, tries = Client(update_of(ratio, size)), 700
        # So short that no try is beyond the limit: each coordinate is rounded alone.
        delta = np.random.default_rng(2).normal(size=size) * 0.02
        expected = client.rotated(delta)
        found = np.array([client.integers(delta, i)[0] for i in range(tries)])
        part = expected - np.floor(expected)
        self.assertEqual(
            {*np.unique(found - np.floor(expected).astype(int))}, {0.0, 1.0}
        )
        deviation = np.sqrt(part * (1 - part) / tries)
        scores = (found.mean(axis=0) - expected) / deviation
        # Of independent standard normals, as many as there are coordinates.
        self.assertLess(np.abs(scores).max(), stats.norm.isf(1e-4 / size))
        self.assertGreater(np.square(scores).sum(), stats.chi2.ppf(1e-4, len(part)))
        variance = found.var(axis=0, ddof=1).sum()
        self.assertAlmostEqual(
            variance / (part * (1 - part)).sum(), 1, delta=6 / math.sqrt(tries)
        )
        # Coordinates and clients are independent.
        correlation = np.corrcoef(found.T)[np.triu_indices(client.of.dimension, 1)]
        self.assertLess(np.abs(correlation).max(), 6 / math.sqrt(tries))

    @parameterized.parameters(1.0, 64.0, 65.0)
    def test_over_all_draws_the_mean_is_exact(self, ratio):
        # A coordinate for each of the 2^16 draws; from 65 on in 64 bits.
        sums = rotated_sums.RotatedSums(update_of(ratio, 1 << 16))
        most = sums._of.largest_coordinate
        words = np.arange(1 << 16, dtype=np.uint16).view(np.int32)
        for part in (0, 1, 2**15, 2**16 - 1):
            for whole in (0, 1, 17, -1, -most, most - 1):
                number = (whole << 16) + part
                with mock.patch.object(
                    tf.random, "stateless_uniform", return_value=tf.constant(words)
                ):
                    multiples = tf.fill([1 << 16], tf.constant(number, sums._integer))
                    found, square = sums._rounded(multiples, tf.zeros(2, tf.int32), 0)
                found = found.numpy().astype(np.int64)
                self.assertEqual(found.sum(), number)
                self.assertContainsSubset({*found.tolist()}, {whole, whole + 1})
                self.assertEqual(square.numpy(), np.square(found).sum())

    def test_long_updates_are_clipped_and_bounded(self):
        for ratio in (10.0, 1e5):
            client = Client(update_of(ratio, 64))
            row = client.rotation()[3] * 7
            integers, (bounded, _) = client.integers(row)
            # All of it in one coordinate, 8 q, is more than C_inf = 8.3 q is not.
            self.assertEqual(bounded, 0)
            self.assertAlmostEqual(integers[3] / (8 * ratio), 1, delta=0.02)
        # 32 q, and C_inf is 2 log(1024) q = 13.9 q.
        client = Client(update_of(10.0, 1024))
        integers, (bounded, _) = client.integers(client.rotation()[3])
        self.assertEqual(bounded, 1)
        self.assertEqual(integers[3], client.of.largest_coordinate)
        np.testing.assert_allclose(integers, client.rotated(client.rotation()[3]), 1, 1)


class SumTest(common.TrainingTestCase):
    @parameterized.product(sign=(1, -1), num_blocks=(1, 3))
    def test_no_sum_wraps_at_the_extremes(self, sign, num_blocks):
        # C_inf is 3, and five clients' sums are 0 to 30, of 32.
        of = dataclasses.replace(update_of(1.0, 6, num_clients=5), scale=6.0)
        self.assertEqual((of.largest_coordinate, of.bits), (3, 5))
        client = Client(of)

        def all_at_the_bound(message, block):
            del message
            count = tf.size(block["clients"])
            vector = tf.fill([8], sign * 3 * tf.cast(count, tf.int64))
            zero = tf.constant(0, tf.int64)
            return client.sums.sent([vector, zero, zero], count)

        size = block_round.block_size_of(5, num_blocks)
        ask = block_round.BlockRound(
            all_at_the_bound, client.sums.largest, block_size=size
        )
        found = ask({}, np.arange(5), _STREAM)
        self.assertEqual(found["delta"].tolist(), [15 + 15 * sign] * 8)
        parts = client.decoded(np.full(8, 15 * sign), {"a": (2, 2), "b": (2,)})
        expected = (client.rotation().T @ np.full(8, 15.0 * sign))[:6] / of.scale
        np.testing.assert_allclose(
            np.concatenate([parts["a"].ravel(), parts["b"]]),
            expected / model_updates.unit_of(of.clip_norm),
            atol=0.51,
        )
        with self.assertRaisesRegex(ValueError, "6 clients were given to sum; .* be 5"):
            client.sums.check(6)

    def test_a_rounds_sum_is_that_of_its_clients(self):
        network = common.bigram_model()
        clients = common.random_clients(6, seed=1)
        weights = network.initial_weights(2)
        cut, whole = (self.rounds(network, clients, num_blocks=n) for n in (4, 1))
        plain = cut.train(weights, np.arange(6), 0.3, 0.3).parts["table"]

        def trained(rounds, rotated):
            sums = rounds.train(weights, np.arange(6), 0.3, 0.3, _STREAM, rotated)
            return sums.parts["table"]

        fine, coarse = update_of(1e6, 144, 6), update_of(4.0, 144, 6)
        error = trained(cut, fine) - plain
        # A unit of the finer integers a client and coordinate, rotated.
        self.assertLess(np.abs(error).max(), 2**32 / 0.3 / fine.scale * 6 * 12)
        found = trained(cut, coarse)
        np.testing.assert_array_equal(found, trained(whole, coarse))
        # In the integers' units, that of a uniform place between two of them: 1/6.
        error = (found - plain) / 2**32 * 0.3 * coarse.scale
        self.assertBetween(np.square(error).mean() / 6, 0.12, 0.21)

    def test_bad_input(self):
        network = common.bigram_model()
        rounds = self.rounds(network, common.random_clients(6, seed=1))
        weights = network.initial_weights(2)
        rotated = update_of(4.0, 144, 6)
        with self.assertRaisesRegex(ValueError, "5 clients were given to sum"):
            rounds.train(weights, np.arange(5), 0.3, 0.3, _STREAM, rotated)
        with self.assertRaisesRegex(ValueError, "stream is missing"):
            rounds.train(weights, np.arange(6), 0.3, 0.3, rotated=rotated)
        plan = training_plan.plan_of(
            timers.Timers(num_clients=6, cohort_size=6, num_rounds=2, timer_hours=0),
            model_updates.NoNoise(num_rounds=2, clip_norm=0.3),
            update_of(4.0, 143, 6),
        )
        with self.assertRaisesRegex(ValueError, "num_values is 143; it has to be 144"):
            dp_ftrl.DpFtrl(rounds, plan, weights)


class TrainingTest(common.TrainingTestCase):
    def _trained(self, rounds, weights, rotated):
        mechanism = model_updates.NoNoise(num_rounds=2, clip_norm=0.3)
        sampler = timers.Timers(
            num_clients=9, cohort_size=5, num_rounds=2, timer_hours=0
        )
        algorithm = dp_ftrl.DpFtrl(
            rounds,
            training_plan.plan_of(sampler, mechanism, rotated),
            weights,
            optimizer=server_optimizers.Sgdm(1.0, 0.0),
        )
        loop = steps.Steps(algorithm, seed=3, noise_key=noise_keys.NoiseKey.of_seed(1))
        place = loop.begin()
        while (query := algorithm.next_query(place.state)) is not None:
            drawn = loop.draw(place)
            total = loop.ask(place, query, drawn.cohort)
            place = loop.update(place, query, drawn, total).progress
        return place.state.weights["table"].astype(np.float64)

    def test_a_model_is_within_the_roundings_noise(self):
        network = common.bigram_model()
        rounds = self.rounds(network, common.random_clients(9, seed=1))
        weights = network.initial_weights(2)
        plain = self._trained(rounds, weights, None)
        moved = np.linalg.norm(plain - weights["table"])
        for ratio in (1.0, 1e4):
            rotated = update_of(ratio, 144, num_clients=5)
            found = self._trained(rounds, weights, rotated)
            # Two rounds' means of five clients, each off by a sixth in the square.
            expected = math.sqrt(144 * 2 / 5 / 6) / rotated.scale
            self.assertBetween(np.linalg.norm(found - plain) / expected, 0.7, 1.5)
        self.assertLess(expected, 1e-4 * moved)


if __name__ == "__main__":
    absltest.main()
