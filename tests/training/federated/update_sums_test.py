"""Tests of encoded updates: their exact norm, their sum, and where it would wrap."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest, parameterized

from federated_hh.runtime import runtime
from federated_hh.runtime.worker import engine_options
from tests.training import training_test_case as common
from training.federated import update_sums
from training.models import model
from training.text import examples


def encode(sums, delta, clip_norm):
    """Returns a client's integers, without their shift, of one part."""
    after = [tf.constant(delta, tf.float32)]
    delta = [tf.cast(part, tf.float64) for part in after]
    norm = update_sums.norm_of(delta)
    total = sums.add(
        sums.begin(after),
        delta,
        norm,
        {"clip_norm": tf.constant(clip_norm, tf.float64)},
    )
    [sent] = sums.sent(total, tf.constant(1))["delta"]
    sent = sent.numpy()
    bound = 2**sums.fraction_bits
    assert sent.dtype == np.int64
    assert 0 <= sent.min() <= sent.max() <= 2 * bound
    return sent - bound


def squared_norm(integers):
    return sum(x * x for x in integers.tolist())


def adversaries(size):
    """Yields updates that rounding, or float arithmetic, makes as long as can be."""
    random = np.random.default_rng(size)
    yield np.ones(size)
    yield -np.ones(size)
    yield np.eye(1, size)[0]
    yield -1e20 * np.eye(1, size)[0]
    spike = np.full(size, 1e-3)
    spike[-1] = 1.0
    yield spike
    yield random.normal(size=size)
    yield random.standard_cauchy(size)
    yield random.choice([-1.0, 1.0], size)
    yield np.exp(random.uniform(-40, 40, size))


class SensitivityTest(parameterized.TestCase):
    @parameterized.product(
        bits=(8, 12, 20, 32, 40), size=(1, 7, 1000), clip_norm=(1e-3, 0.7, 1.0, 1e6)
    )
    def test_encoded_updates_are_no_longer_than_the_clip(self, bits, size, clip_norm):
        sums = update_sums.SecureSums(size, bits)
        for delta in adversaries(size):
            direction = delta / np.linalg.norm(delta)
            for length in (1e-6, 1 - 1e-7, 1.0, 1 + 1e-7, 2.0, 1e12):
                sent = encode(sums, length * clip_norm * direction, clip_norm)
                self.assertLessEqual(squared_norm(sent), 4**bits)

    def test_where_every_coordinate_is_rounded_up(self):
        # Clipped to 2^12 itself, each of 16,897 equal coordinates is 31.51, and 32
        # after rounding: the update is longer by 1.5%.
        size, bits = 16_897, 12
        clipped = np.full(size, 2**bits / np.sqrt(size))
        self.assertGreater(squared_norm(np.rint(clipped).astype(int)), 4**bits * 1.03)
        sums = update_sums.SecureSums(size, bits)
        sent = encode(sums, np.ones(size), 1.0)
        self.assertLessEqual(squared_norm(sent), 4**bits)
        self.assertGreater(squared_norm(sent), 4**bits * 0.95)

    def test_the_margin_covers_float64(self):
        size = 200_000
        sums = update_sums.SecureSums(size)
        for delta in adversaries(size):
            sent = encode(sums, 1e3 * delta, 0.3)
            self.assertLessEqual(squared_norm(sent), 4**sums.fraction_bits)
            # And no more is lost than that.
            self.assertGreater(squared_norm(sent), 4**sums.fraction_bits * (1 - 1e-6))

    def test_short_updates_keep_their_length(self):
        sums = update_sums.SecureSums(3)
        sent = encode(sums, [0.25, -0.5, 0.0], 2.0)
        np.testing.assert_array_equal(sent, [2**29, -(2**30), 0])
        np.testing.assert_array_equal(encode(sums, np.zeros(3), 2.0), 0)
        # To the nearest integer, halves to the even one.
        units = np.array([0.5, 1.5, -2.5]) * 2.0 / 2**32
        np.testing.assert_array_equal(encode(sums, units, 2.0), [0, 2, -2])

    def test_a_norm_is_not_finite_where_a_coordinate_is_not(self):
        for value in (np.nan, np.inf, -np.inf):
            delta = [tf.constant([1.0, value], tf.float64), tf.zeros(3, tf.float64)]
            self.assertFalse(np.isfinite(update_sums.norm_of(delta)))

    def test_adding_to_others(self):
        delta = [tf.constant([0.5, -1.0], tf.float64)]
        sums = update_sums.SecureSums(2, 4)
        norm, clip_norm = (tf.constant(x, tf.float64) for x in (1.25**0.5, 4.0))
        told = {"clip_norm": clip_norm}
        total = sums.begin(delta)
        for _ in range(3):
            total = sums.add(total, delta, norm, told)
        # Of five clients, two are left out.
        [found] = sums.sent(total, tf.constant(5))["delta"]
        expected = [3 * 2 + 5 * 16, 3 * -4 + 5 * 16]
        self.assertEqual(found.numpy().tolist(), expected)
        others = [tf.constant([7.0, 9.0])]
        [found] = update_sums.PlainSums().add(others, delta, norm, told)
        self.assertEqual(found.numpy().tolist(), [7.5, 8.0])


class SumTest(parameterized.TestCase):
    def _sum(self, sums, blocks, most_clients):
        @tff.federated_computation(
            tff.FederatedType(tff.TensorType(np.int64, blocks[0].shape), tff.CLIENTS)
        )
        def add(values):
            return tff.federated_secure_sum(
                values, np.int64(sums.largest["delta"] * most_clients)
            )

        with runtime.tff_worker():
            return add(blocks)

    @parameterized.parameters(0.01, 1.0, 300.0)
    def test_it_is_the_sum_of_clipped_updates(self, clip_norm):
        size, clients = 50, 12
        sums = update_sums.SecureSums(size)
        random = np.random.default_rng(1)
        deltas = random.normal(size=(clients, size)).astype(np.float32)
        blocks = [
            sum(encode(sums, d, clip_norm) + 2**32 for d in deltas[low : low + 5])
            for low in range(0, clients, 5)
        ]
        total = self._sum(sums, blocks, 5)
        found = sums.centred(total, clients) * clip_norm / 2**32
        clipped = [encode(sums, d, clip_norm) for d in deltas]
        np.testing.assert_array_equal(sums.centred(total, clients), sum(clipped))
        norms = np.linalg.norm(deltas.astype(float), axis=1)
        limit = clip_norm * sums.clip_limit / 2**32
        expected = np.minimum(1, limit / norms) @ deltas.astype(float)
        # Each client rounds by half a unit at most.
        error = clients * 0.5 * clip_norm / 2**32 + 1e-14 * np.abs(expected)
        np.testing.assert_array_less(np.abs(found - expected), error + 1e-15)
        self.assertLess(clip_norm - limit, 1e-8 * clip_norm)

    def test_the_largest_sum(self):
        sums = update_sums.SecureSums(1, fraction_bits=40)
        most = sums.most_clients
        self.assertEqual(most, (2**62 - 1) // 2**41)
        # As many clients as can be, each with the most that it can send: no wrap.
        half, rest = most // 2, most - most // 2
        blocks = [np.array([half * 2**41]), np.array([rest * 2**41])]
        total = self._sum(sums, blocks, rest)
        self.assertEqual(total.tolist(), [most * 2**41])
        self.assertEqual(sums.centred(total, most).tolist(), [most * 2**40])
        sums.check(most)
        with self.assertRaisesRegex(ValueError, "2,097,152 clients.*most 2,097,151"):
            sums.check(most + 1)

    def test_contributions_out_of_range_are_errors(self):
        sums = update_sums.SecureSums(1, fraction_bits=10)
        for value, regex in ((3 * 2**11 + 1, "above its bound"), (-1, "is negative")):
            with self.assertRaisesRegex(runtime.SecureSumError, regex):
                self._sum(sums, [np.array([value]), np.array([0])], 3)

    def test_bad_input(self):
        for bits in (0, 41):
            with self.assertRaisesRegex(ValueError, f"fraction_bits is {bits}"):
                update_sums.SecureSums(10, bits)
        with self.assertRaisesRegex(ValueError, "num_values is 0"):
            update_sums.SecureSums(0)
        # sqrt(4^11) / 2 is 2^10.
        with self.assertRaisesRegex(ValueError, "too few for 4,194,304 values"):
            update_sums.SecureSums(4**11, 10)
        self.assertGreater(update_sums.SecureSums(4**11, 11).clip_limit, 0)


class InStepTest(common.TrainingTestCase):
    def test_clients_in_step_in_this_program(self):
        # Large enough for TensorFlow to save memory; the norm has three parts.
        size, num_clients = 2_000, 6
        weights = collections.OrderedDict(
            table=np.random.default_rng(1).normal(size=(size, size)).astype(np.float32),
            scale=np.ones(1, np.float32),
            bias=np.zeros(size, np.float32),
        )
        large = model.LanguageModel(
            size,
            lambda _: weights,
            lambda w, tokens: w[1] * tf.gather(w[0], tokens) + w[2],
        )
        clients = [
            [[4 + client, 5, 6]] * (2 * num_batches)
            for num_batches in (1, 4)
            for client in range(num_clients)
        ]
        self.addCleanup(engine_options.choose)
        engine_options.choose(
            engine_options.RuntimeOptions(engine_options.Runtime.IN_PROCESS)
        )
        limits = examples.ClientLimits(max_sentences=8, max_words=4, batch_size=2)
        rounds = self.rounds(large, clients, limits, num_blocks=num_clients)
        with runtime.computing(max_concurrent_calls=num_clients):
            for first in (0, num_clients):
                cohort = np.arange(first, first + num_clients)
                alone = [
                    rounds.train(weights, cohort[i : i + 1], 1.0, 1.0)
                    for i in range(num_clients)
                ]
                for _ in range(3):
                    together = rounds.train(weights, cohort, 1.0, 1.0)
                    for name in weights:
                        np.testing.assert_array_equal(
                            together.parts[name], sum(one.parts[name] for one in alone)
                        )


if __name__ == "__main__":
    absltest.main()
