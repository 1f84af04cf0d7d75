"""Tests of the client computation against a plain client, in another order of work."""

import contextlib
import dataclasses
import math
import os
import pathlib
from unittest import mock

import hypothesis
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest, parameterized
from hypothesis import strategies

from federated_hh.privacy.dp_ftrl import rotated_updates
from federated_hh.randomness import streams
from federated_hh.runtime import compiled, runtime
from federated_hh.runtime.worker import engine_options, startup
from tests.training import training_test_case as common
from training.federated import client_update, rotated_sums, update_sums
from training.models import custom_model, model
from training.text import examples

_INF = float("inf")
_CLIENTS = strategies.lists(
    strategies.lists(
        strategies.lists(strategies.integers(4, 11), min_size=1, max_size=6),
        min_size=1,
        max_size=5,
    ),
    min_size=1,
    max_size=2,
)


class KerasCifg(tf.keras.layers.Layer):
    """A CIFG-LSTM of 5 units, projected to 3, as a user of Keras writes it."""

    def build(self, shape):
        self.kernel = self.add_weight("kernel", [shape[-1], 15])
        self.recurrent = self.add_weight("recurrent", [3, 15])
        self.bias = self.add_weight("bias", [15])
        self.projection = self.add_weight("projection", [5, 3])

    def call(self, inputs):
        cell, hidden, outputs = 0.0, tf.zeros([tf.shape(inputs)[0], 3]), []
        for arriving in tf.unstack(inputs, axis=1):
            gates = arriving @ self.kernel + hidden @ self.recurrent + self.bias
            forget, output, proposed = tf.split(gates, 3, axis=1)
            forget = tf.sigmoid(forget)
            cell = forget * cell + (1 - forget) * tf.tanh(proposed)
            hidden = (tf.sigmoid(output) * tf.tanh(cell)) @ self.projection
            outputs.append(hidden)
        return tf.stack(outputs, axis=1)


def keras_cifg(num_tokens, sequence_length):
    """Returns the model of `common.small_cifg` in Keras, for `--model`."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([sequence_length], dtype=tf.int32),
            tf.keras.layers.Embedding(num_tokens, 4),
            KerasCifg(),
            tf.keras.layers.Dense(num_tokens),
        ]
    )


def random_weights(language_model, seed):
    """Returns weights that leave nothing out, such as biases of zero."""
    random = np.random.default_rng(seed)
    return {
        name: random.normal(0, 0.5, weight.shape).astype(np.float32)
        for name, weight in language_model.initial_weights(0).items()
    }


class CompiledTest(common.TrainingTestCase):
    """With `--xla`: padded batches, and TensorFlow's gradient of them."""

    def computing(self, xla):
        self.addCleanup(engine_options.choose)
        in_process = engine_options.Runtime.IN_PROCESS
        engine_options.choose(engine_options.RuntimeOptions(in_process, xla=xla))
        return runtime.computing()

    @parameterized.parameters("exact", "rotated", "not clipped")
    def test_sums_are_those_without_padding(self, encoding):
        clients = [[[4, 5, 6], [7], [8, 9]], [[10, 4, 4, 4, 4, 4]], []]
        network = common.small_cifg()
        weights = random_weights(network, 1)
        clip_norm = math.inf if encoding == "not clipped" else 0.4
        rotated = None
        if encoding == "rotated":
            rotated = rotated_updates.RotatedUpdate.of(
                clip_norm=clip_norm, num_values=network.num_parameters(), num_clients=3
            )
        sums, compiled_work = [], []
        compile_ = compiled.compiled
        for xla in (False, True):

            def keep(work, xla=xla):
                compiled_work.extend([work.__name__] * xla)
                return compile_(work)

            with contextlib.ExitStack() as stack:
                if xla:  # and else in the worker
                    stack.enter_context(self.computing(xla))
                    stack.enter_context(mock.patch.object(compiled, "compiled", keep))
                rounds = self.rounds(network, clients)
                of = rounds.train(
                    weights, np.arange(3), clip_norm, 0.3, streams.Stream(5), rotated
                )
                sums.append(of)
        self.assertEqual({*compiled_work}, {"gradients", "add"})
        plain, padded = sums
        self.assertEqual(plain.num_below, padded.num_below)
        total = np.concatenate([part.ravel() for part in plain.parts.values()])
        found = np.concatenate([part.ravel() for part in padded.parts.values()])
        self.assertGreater(np.linalg.norm(total), 0)
        # A coordinate that differs in its last bits may be rounded to the next integer.
        error = 1e-2 if encoding == "rotated" else 1e-4
        self.assertLess(np.linalg.norm(found - total) / np.linalg.norm(total), error)

    @parameterized.parameters("exact", "rotated")
    def test_an_update_is_encoded_to_the_same_bits(self, encoding):
        size = 10_000
        delta = [tf.random.stateless_normal([size], [1, 2], dtype=tf.float64)]
        if encoding == "exact":
            sums = update_sums.SecureSums(size)
            message = {"clip_norm": tf.constant(0.3, tf.float64)}
        else:
            of = rotated_updates.RotatedUpdate.of(
                clip_norm=0.3, num_values=size, num_clients=3
            )
            sums = rotated_sums.RotatedSums(of)
            message = sums.told(sums.message(streams.Stream(1)))
        told = {**message, "place": tf.constant(1, tf.int64)}
        arguments = sums.begin(delta), delta, update_sums.norm_of(delta), told
        expected = tf.function(sums.add)(*arguments)
        found = tf.function(sums.add, jit_compile=True)(*arguments)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)

    def test_what_xla_cannot_compile_fails(self):
        def logits(weights, tokens):
            texts = tf.as_string(tokens)
            return tf.gather(weights[0], tf.strings.to_number(texts, tf.int32))

        network = dataclasses.replace(common.bigram_model(), logits=logits)
        for xla in (False, True):
            rounds = self.rounds(network, [[[4, 5]]])
            with self.computing(xla), contextlib.ExitStack() as stack:
                if xla:
                    stack.enter_context(self.assertRaisesRegex(Exception, "XLA|compil"))
                rounds.train(network.initial_weights(1), np.arange(1), 1.0, 1.0)


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

    @parameterized.parameters(False, True)
    def test_another_processor_gives_other_sums_with_onednn(self, onednn):
        rounds = self.rounds(common.bigram_model(), [[[4]], [[5]]])
        processors = pathlib.Path(self.create_tempfile(content="model: 1").full_path)
        self.addCleanup(startup.processor.cache_clear)
        with (
            mock.patch.object(startup, "_PROCESSORS", processors),
            mock.patch.dict(os.environ, {"TF_ENABLE_ONEDNN_OPTS": str(int(onednn))}),
        ):
            startup.processor.cache_clear()
            before = rounds.describe()
            with mock.patch.dict(os.environ, {"ONEDNN_MAX_CPU_ISA": "SSE41"}):
                self.assertEqual(rounds.describe() != before, onednn)
            processors.write_text("model: 2")
            startup.processor.cache_clear()
            self.assertEqual(rounds.describe() != before, onednn)

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
        with self.assertRaisesRegex(ValueError, "token id 12; the model's ids"):
            self.rounds(language_model, [[[12]]])
        for rate in (0.0, -1.0, _INF, float("nan")):
            with self.assertRaisesRegex(ValueError, "learning_rate is"):
                client_update.LocalTraining(rate)
        with self.assertRaisesRegex(ValueError, "num_epochs is 0"):
            client_update.LocalTraining(1.0, 0)


class OneUpdateTest(common.TrainingTestCase):
    """The gradient that is written out, TensorFlow's, and Keras's, as updates."""

    @hypothesis.settings(deadline=None, max_examples=15, derandomize=True)
    @hypothesis.given(
        _CLIENTS,
        strategies.integers(1, 4),
        strategies.integers(1, 3),
        strategies.floats(-3, 1),
        strategies.integers(0, 1000),
    )
    def test_both_gradients_lead_to_one_update(
        self, clients, batch_size, epochs, log_norm, seed
    ):
        fast = common.small_cifg()
        norm = 10.0**log_norm
        weights = [
            tf.constant(weight) for weight in random_weights(fast, seed).values()
        ]
        message = {
            "weights": weights,
            "clip_norm": tf.constant(norm, tf.float64),
            "tracked_norm": tf.constant(norm, tf.float64),
        }
        block = {
            "clients": tf.range(len(clients), dtype=tf.int64),
            "first_place": tf.constant(0, tf.int64),
        }
        limits = examples.ClientLimits(max_words=4, batch_size=batch_size)
        training = client_update.LocalTraining(0.5, epochs)
        sent = []
        for language_model in (fast, dataclasses.replace(fast, over_places=None)):
            rounds = self.rounds(language_model, clients, limits, training)
            # In this process, without TFF: what a client does, but much cheaper.
            encoding = rounds._encoding(norm, None)
            sent.append(rounds._train_block(encoding, message, block))
        written_out, tape = sent
        moved = 0.0
        for found, expected in zip(written_out["delta"], tape["delta"], strict=True):
            self.assertEqual(found.dtype, tf.int64)
            moved += float(
                tf.norm(tf.cast(expected - 2**32 * len(clients), tf.float64))
            )
            apart = np.abs(found.numpy() - expected.numpy()) * (norm / 2**32)
            self.assertLess(np.max(apart), 2e-6)
        self.assertGreater(moved, 0)
        for name in ("num_below", "num_non_finite"):
            self.assertEqual(int(written_out[name]), int(tape[name]))

    def test_a_twin_in_keras(self):
        built_in = common.small_cifg()
        own = custom_model.language_model(
            f"{keras_cifg.__module__}:keras_cifg", common.NUM_TOKENS, 5, seed=1
        )
        weights = random_weights(built_in, 8)
        # Inputs come first in a dense layer of Keras, and tokens in the embedding.
        of_keras = {**weights, "output_embedding": weights["output_embedding"].T}
        own_weights = dict(zip(own.initial_weights(0), of_keras.values(), strict=True))
        clients = common.random_clients(4, seed=8)
        training = client_update.LocalTraining(0.5, num_epochs=2)
        of_built_in = self.rounds(built_in, clients, training=training)
        of_own = self.rounds(own, clients, training=training)
        for norm in (0.2, 100.0):
            expected, found = (
                rounds.train(first, np.arange(4), norm, 1.0).scaled(norm)
                for rounds, first in ((of_built_in, weights), (of_own, own_weights))
            )
            expected["output_embedding"] = expected["output_embedding"].T
            self.assertGreater(common.norm_of(expected), 0.3)
            for one, other in zip(found.values(), expected.values(), strict=True):
                np.testing.assert_allclose(one, other, atol=2e-6)


class EmptyClientTest(common.TrainingTestCase):
    """Clients without sentences: 0, 3 and the last."""

    cohort = np.arange(6)
    writers = np.array([1, 2, 4])

    def setUp(self):
        super().setUp()
        clients = common.random_clients(6, seed=2)
        for number in set(self.cohort) - set(self.writers):
            clients[number] = []
        self.network = common.small_cifg()
        self.federated = self.rounds(self.network, clients, num_blocks=2)
        self.weights = random_weights(self.network, 3)

    def rotated(self, num_clients):
        return rotated_updates.RotatedUpdate.of(
            clip_norm=0.3,
            num_values=self.network.num_parameters(),
            num_clients=num_clients,
            scale=50.0,
        )

    @parameterized.parameters(0.3, _INF)
    def test_they_send_zeros_and_a_bit(self, norm):
        for empty in (0, 3, 5):
            alone = self.federated.train(self.weights, np.array([empty]), norm, 1e-9)
            self.assertEqual((alone.num_below, alone.num_non_finite), (1, 0))
            for part in alone.parts.values():
                self.assertFalse(part.any())
        every, some = (
            self.federated.train(self.weights, clients, norm, 1e-9)
            for clients in (self.cohort, self.writers)
        )
        self.assertEqual((every.num_below, some.num_below), (3, 0))
        for name, part in every.parts.items():
            self.assertTrue(some.parts[name].any())
            if norm < _INF:
                np.testing.assert_array_equal(part, some.parts[name])
            else:
                np.testing.assert_allclose(part, some.parts[name], atol=1e-6)

    def test_their_bytes_are_those_of_a_model_and_an_update(self):
        model_bytes = sum(len(part.tobytes()) for part in self.weights.values())
        size, clients = self.network.num_parameters(), 4
        plain = self.federated.client_bytes(clients, _INF)
        self.assertEqual((plain.download, plain.upload), (model_bytes, model_bytes))
        rotated = self.rotated(clients)
        encoding = rotated_sums.RotatedSums(rotated)
        signs = len(encoding.message(streams.Stream(1))["signs"].tobytes())
        for told, told_bytes, numbers, largest in (
            (None, 0, size, 2**33),
            (rotated, signs, rotated.dimension, 2 * rotated.largest_coordinate),
        ):
            bits = len(f"{largest * clients:b}")  # of the largest sum
            found = self.federated.client_bytes(clients, 0.3, told)
            self.assertEqual(found.download, model_bytes + told_bytes)
            sent = np.packbits(np.ones((numbers, bits), bool))
            self.assertEqual(found.upload, len(sent.tobytes()))

    def test_rotated_zeros_are_zeros(self):
        # Whatever the signs and the rounding of a round are.
        for seed in range(3):
            stream = streams.Stream(seed)
            found = self.federated.train(
                self.weights, np.array([0, 3, 5]), 0.3, 1.0, stream, self.rotated(3)
            )
            self.assertEqual((found.num_unrounded, found.num_bounded), (0, 0))
            for part in found.parts.values():
                self.assertFalse(part.any())
        # Each client rounds for itself, by its place: 1 and 2 after two empty ones.
        after, before = (
            self.federated.train(
                self.weights, np.array(cohort), 0.3, 1.0, stream, self.rotated(4)
            )
            for cohort in ([0, 3, 1, 2], [5, 0, 1, 2])
        )
        for name, part in after.parts.items():
            self.assertTrue(part.any())
            np.testing.assert_array_equal(part, before.parts[name])

    def test_they_judge_nothing(self):
        every, some, none = (
            self.federated.evaluate(self.weights, clients)
            for clients in (self.cohort, self.writers, np.array([0, 3]))
        )
        self.assertEqual(every, some)
        self.assertTrue(all(np.isnan(list(none.values()))))


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
