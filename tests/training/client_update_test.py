"""Tests of the client computation against a plain client, in another order of work."""

import os
from unittest import mock

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest, parameterized

from simulation import startup
from tests.training import training_test_case as common
from training import client_update, examples, model

_INF = float("inf")


class ExamplesTest(common.TrainingTestCase):
    def test_batches(self):
        clients = [[[4], [5, 6, 7, 8], [4, 5, 6, 7, 8, 9]], [[10, 11]]]
        limits = examples.ClientLimits(max_sentences=3, max_words=4, batch_size=2)
        mapped = examples.MappedText(self.text(clients), limits)

        @tff.tensorflow.computation(np.int64, np.int64)
        def batch(client, number):
            first, count = mapped.sentences_of(client)
            return *mapped.batch(first, count, number), mapped.num_batches(count)

        expected = {
            (0, 0): (
                [[2, 4, 0, 0, 0], [2, 5, 6, 7, 8]],
                [[4, 3, 0, 0, 0], [5, 6, 7, 8, 3]],
                2,
            ),
            (0, 1): ([[2, 4, 5, 6, 0]], [[4, 5, 6, 7, 0]], 2),
            (1, 0): ([[2, 10, 11, 0, 0]], [[10, 11, 3, 0, 0]], 1),
        }
        for (client, number), values in expected.items():
            inputs, targets, num_batches = batch(client, number)
            self.assertEqual(inputs.tolist(), values[0])
            self.assertEqual(targets.tolist(), values[1])
            self.assertEqual(num_batches, values[2])

    def test_limits(self):
        for name in ("max_sentences", "max_words", "batch_size"):
            with self.assertRaisesRegex(ValueError, f"{name} is 0"):
                examples.ClientLimits(**{name: 0})


class TrainingTest(common.TrainingTestCase):
    @parameterized.parameters(
        (common.bigram_model, 1, _INF, 1),
        (common.bigram_model, 2, 0.7, 3),
        (common.small_cifg, 2, 0.2, 3),
    )
    def test_the_sum_is_that_of_plain_clients(self, build, epochs, norm, num_blocks):
        language_model = build()
        clients = common.random_clients(9, seed=epochs)
        limits = examples.ClientLimits(max_sentences=5, max_words=4, batch_size=2)
        training = client_update.LocalTraining(0.5, epochs)
        rounds = self.rounds(
            language_model, clients, limits, training, num_blocks=num_blocks
        )
        weights = language_model.initial_weights(2)
        cohort = np.array([8, 0, 3, 4, 5, 6, 7])
        deltas = [
            common.plain_delta(language_model, weights, clients[i], limits, training)
            for i in cohort
        ]
        norms = [common.norm_of(delta) for delta in deltas]
        tracked = float(np.median(norms)) * 1.001
        found = rounds.train(weights, cohort, norm, tracked)
        self.assertEqual(found.num_clients, 7)
        self.assertEqual(found.num_below, sum(n <= tracked for n in norms))
        self.assertEqual(found.num_non_finite, 0)
        for name in weights:
            expected = sum(
                delta[name] * min(1, norm / length)
                for delta, length in zip(deltas, norms, strict=True)
            )
            np.testing.assert_allclose(found.scaled(norm)[name], expected, atol=2e-5)
        self.assertGreater(common.norm_of(found.scaled(norm)), 0.05)

    def test_blocks_and_repetition(self):
        language_model = common.small_cifg()
        clients = common.random_clients(6, seed=1)
        weights = language_model.initial_weights(1)
        limits = examples.ClientLimits(max_sentences=5, max_words=2, batch_size=2)
        rounds = self.rounds(language_model, clients, limits, num_blocks=3)
        first, again = (rounds.train(weights, np.arange(6), 0.3, 0.3) for _ in "12")
        other = self.rounds(language_model, clients, limits, num_blocks=6)
        one_by_one = other.train(weights, np.arange(6), 0.3, 0.3)
        for name in weights:
            np.testing.assert_array_equal(first.parts[name], again.parts[name])
            # Integers are added: neither order nor blocks matter, to the last bit.
            np.testing.assert_array_equal(first.parts[name], one_by_one.parts[name])
        self.assertGreater(common.norm_of(first.scaled(0.3)), 0.1)

    def test_no_client_is_longer_than_the_clip(self):
        language_model = common.bigram_model()
        clients = common.random_clients(20, seed=3)
        rounds = self.rounds(language_model, clients, num_blocks=1)
        weights = language_model.initial_weights(3)
        lengths = []
        for client in range(20):
            sums = rounds.train(weights, np.array([client]), 0.1, 1.0)
            lengths.append(common.norm_of(sums.scaled(0.1)))
        # The integers are not (see update_sums_test); float32 rounds them.
        self.assertLessEqual(max(lengths), 0.1 * (1 + np.finfo(np.float32).eps))
        self.assertGreater(np.median(lengths), 0.1 * (1 - 1e-5))

    def test_updates_that_are_not_finite_are_left_out_and_counted(self):
        # A weight that overflows where a client has word 11, and only there.
        language_model = common.bigram_model(scale=10.0)
        weights = language_model.initial_weights(0)
        weights["table"][11] = 3e38
        clients = common.random_clients(4, seed=4, words=(4, 11))
        clients[1] = [[11, 4]]
        clients[2][0] = [4, 11, 5]
        rounds = self.rounds(language_model, clients)
        found = rounds.train(weights, np.arange(4), 1.0, _INF)
        self.assertEqual((found.num_non_finite, found.num_below), (2, 2))
        self.assertTrue(np.all(np.isfinite(found.parts["table"])))
        finite = rounds.train(weights, np.array([0, 3]), 1.0, _INF)
        np.testing.assert_array_equal(found.parts["table"], finite.parts["table"])
        plain = rounds.train(weights, np.arange(4), _INF, _INF)
        self.assertEqual((plain.num_non_finite, plain.num_below), (2, 2))
        self.assertTrue(np.all(np.isfinite(plain.parts["table"])))

    def test_a_keras_model(self):
        keras = tf.keras.Sequential(
            [
                tf.keras.layers.InputLayer([5], dtype=tf.int32),
                tf.keras.layers.Embedding(common.NUM_TOKENS, 4),
                tf.keras.layers.LSTM(3, return_sequences=True),
                tf.keras.layers.Dense(common.NUM_TOKENS),
            ]
        )
        own = model.from_keras_model(keras, common.NUM_TOKENS, 5)
        clients = common.random_clients(3, seed=5)
        rounds = self.rounds(own, clients)
        weights = own.initial_weights(0)
        before = rounds.evaluate(weights, np.arange(3))
        for _ in range(3):
            sums = rounds.train(weights, np.arange(3), _INF, 1.0)
            for name, part in sums.parts.items():
                weights[name] = weights[name] + part / 3
        self.assertEqual(sums.num_non_finite, 0)
        after = rounds.evaluate(weights, np.arange(3))
        self.assertLess(after["loss"], before["loss"])

    def test_what_bits_depend_on_is_part_of_what_is_summed(self):
        rounds = self.rounds(common.bigram_model(), [[[4]], [[5]]])
        before = rounds.describe()
        for name, value in (
            ("TF_ENABLE_ONEDNN_OPTS", str(int(not startup.onednn_is_used()))),
            ("TF_NUM_INTRAOP_THREADS", "7"),
        ):
            with mock.patch.dict(os.environ, {name: value}):
                self.assertNotEqual(rounds.describe(), before)
        self.assertEqual(rounds.describe(), before)

    def test_bad_input(self):
        language_model = common.bigram_model()
        rounds = self.rounds(language_model, [[[4]], [[5]]])
        weights = language_model.initial_weights(0)
        with self.assertRaisesRegex(ValueError, "clients is empty"):
            rounds.train(weights, np.zeros(0, np.int64), 1.0, 1.0)
        for bad in (-1, 2):
            with self.assertRaisesRegex(ValueError, rf"{bad} to {bad}; .* in \[0"):
                rounds.train(weights, np.array([bad]), 1.0, 1.0)
        with self.assertRaisesRegex(ValueError, "num_blocks is 0"):
            self.rounds(language_model, [[[4]]], num_blocks=0)
        with self.assertRaisesRegex(ValueError, "token id 12, the model knows"):
            self.rounds(language_model, [[[12]]])
        for rate in (0.0, -1.0, _INF, float("nan")):
            with self.assertRaisesRegex(ValueError, "learning_rate is"):
                client_update.LocalTraining(rate)
        with self.assertRaisesRegex(ValueError, "num_epochs is 0"):
            client_update.LocalTraining(1.0, 0)


class EvaluationTest(common.TrainingTestCase):
    def test_metrics_of_held_out_clients(self):
        language_model = common.small_cifg()
        clients = common.random_clients(5, seed=6, words=(1, common.NUM_TOKENS))
        clients = [
            [[t for t in s if t not in (2, 3)] or [4] for s in c] for c in clients
        ]
        limits = examples.ClientLimits(max_sentences=4, max_words=4, batch_size=3)
        rounds = self.rounds(language_model, clients, limits, num_blocks=2)
        weights = language_model.initial_weights(7)
        found = rounds.evaluate(weights, np.array([1, 3, 4]))
        losses, hits = [], []
        for client in (1, 3, 4):
            for sentence in clients[client][:4]:
                inputs, targets = common.sequence(sentence, 4)
                logits = language_model.logits(
                    list(weights.values()), tf.constant([inputs])
                ).numpy()[0]
                for scores, target in zip(logits, targets, strict=True):
                    losses.append(np.log(np.sum(np.exp(scores))) - scores[target])
                    if target >= 4:
                        hits.append(np.argmax(scores) == target)
        self.assertAlmostEqual(found["loss"], np.mean(losses), places=4)
        self.assertAlmostEqual(found["top1_in_vocabulary"], np.mean(hits), places=6)


if __name__ == "__main__":
    absltest.main()
