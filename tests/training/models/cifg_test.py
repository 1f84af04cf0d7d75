"""Tests of the model without padding: its scores and its gradient."""

import dataclasses

import hypothesis
import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import strategies

from tests.training import training_test_case as common
from training.federated import client_update
from training.models import model, places
from training.text import examples

_SENTENCES = strategies.lists(
    strategies.lists(strategies.integers(4, 11), max_size=7), min_size=1, max_size=6
)


def batch_of(sentences, max_words=5):
    """Returns sentences as a padded batch, built by hand."""
    inputs = np.zeros((len(sentences), max_words + 1), np.int32)
    targets = np.zeros_like(inputs)
    for row, sentence in enumerate(sentences):
        seen, following = common.sequence(sentence, max_words)
        inputs[row, : len(seen)] = seen
        targets[row, : len(following)] = following
    return examples.Batch(tf.constant(inputs), tf.constant(targets))


def random_weights(cifg, seed):
    random = np.random.default_rng(seed)
    return [
        tf.constant(random.normal(size=weight.shape).astype(np.float32))
        for weight in cifg.initial_weights(0).values()
    ]


class PlacesTest(absltest.TestCase):
    def test_places_are_those_of_the_longest_first(self):
        found = places.of_batch(*batch_of([[4], [5, 6, 7], [], [8, 9]], max_words=3))
        self.assertEqual(found.counts.numpy().tolist(), [4, 3, 2, 1])
        self.assertEqual(found.tokens.numpy().tolist(), [2, 2, 2, 2, 5, 8, 4, 6, 9, 7])
        self.assertEqual(found.targets.numpy().tolist(), [5, 8, 4, 3, 6, 9, 3, 7, 3, 3])

    def test_steps_that_no_sentence_has(self):
        found = places.of_batch(*batch_of([[4], [5]], max_words=4))
        self.assertEqual(found.counts.numpy().tolist(), [2, 2, 0, 0, 0])


class CifgTest(parameterized.TestCase):
    @hypothesis.settings(deadline=None, max_examples=12, derandomize=True)
    @hypothesis.given(_SENTENCES, strategies.integers(0, 1000))
    def test_scores_and_gradients_are_those_with_padding(self, sentences, seed):
        fast = common.small_cifg()
        padded = dataclasses.replace(fast, over_places=None)
        weights, batch = random_weights(fast, seed), batch_of(sentences)
        for found, expected in zip(
            fast.gradients(weights, batch),
            padded.gradients(weights, batch),
            strict=True,
        ):
            np.testing.assert_allclose(found, expected, atol=1e-6)
        logits, targets = fast.scores(weights, batch)
        all_logits, all_targets = padded.scores(weights, batch)
        exists = all_targets.numpy() != 0
        # As sets: each way has its own order of places.
        found = sorted(zip(targets.numpy(), logits.numpy().tolist(), strict=True))
        expected = sorted(
            zip(
                all_targets.numpy()[exists],
                all_logits.numpy()[exists].tolist(),
                strict=True,
            )
        )
        self.assertEqual([t for t, _ in found], [t for t, _ in expected])
        for (_, one), (_, other) in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)

    @parameterized.parameters(False, True)
    def test_the_gradient_is_the_slope_of_the_loss(self, tied):
        cifg = common.small_cifg(tied)
        weights, batch = random_weights(cifg, 1), batch_of([[4, 5, 6], [7], [8, 4]])
        gradients = cifg.gradients(weights, batch)

        def loss(moved):
            logits, targets = cifg.scores(moved, batch)
            logits = tf.cast(logits, tf.float64)
            chosen = tf.gather(logits, targets, batch_dims=1)
            return float(tf.reduce_mean(tf.reduce_logsumexp(logits, 1) - chosen))

        random = np.random.default_rng(2)
        for number, weight in enumerate(weights):
            direction = random.normal(size=weight.shape).astype(np.float32)
            moved = [list(weights), list(weights)]
            for sign, changed in zip((1, -1), moved, strict=True):
                changed[number] = weight + sign * np.float32(1e-2) * direction
            slope = (loss(moved[0]) - loss(moved[1])) / 2e-2
            expected = float(tf.reduce_sum(gradients[number] * direction))
            self.assertAlmostEqual(slope, expected, delta=2e-3 + 0.01 * abs(expected))

    @parameterized.parameters(False, True)
    def test_factors_of_eight_bits(self, tied):
        exact = common.small_cifg(tied)
        size = 4 if tied else 3
        rough = model.cifg_language_model(
            common.NUM_TOKENS,
            num_units=5,
            projection_size=size,
            embedding_size=4,
            tied=tied,
            precision="bfloat16",
        )
        weights, batch = random_weights(exact, 1), batch_of([[4, 5, 6], [7], [8, 4]])
        expected, found = (
            np.concatenate(
                [np.ravel(part) for part in network.gradients(weights, batch)]
            )
            for network in (exact, rough)
        )
        error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        self.assertBetween(error, 1e-4, 2e-2)
        # What is measured is not rougher.
        for one, other in zip(
            exact.scores(weights, batch), rough.scores(weights, batch), strict=True
        ):
            np.testing.assert_array_equal(one, other)

    @parameterized.parameters(False, True)
    def test_one_step(self, tied):
        cifg = common.small_cifg(tied)
        weights = random_weights(cifg, 3)
        batch = examples.Batch(tf.constant([[2], [4]]), tf.constant([[4], [7]]))
        padded = dataclasses.replace(cifg, over_places=None)
        for found, expected in zip(
            cifg.gradients(weights, batch),
            padded.gradients(weights, batch),
            strict=True,
        ):
            np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_again_to_the_bit(self):
        cifg = model.cifg_language_model(2_000, num_units=64)
        random = np.random.default_rng(4)
        sentences = random.integers(4, 2_000, (64, 20)).tolist()
        weights, batch = random_weights(cifg, 4), batch_of(sentences, max_words=20)
        gradients = tf.function(cifg.gradients)
        first = gradients(weights, batch)
        for _ in range(5):
            for one, other in zip(first, gradients(weights, batch), strict=True):
                np.testing.assert_array_equal(one, other)


class InTheWorkerTest(common.TrainingTestCase):
    def test_updates_and_metrics_are_those_with_padding(self):
        fast = common.small_cifg()
        padded = dataclasses.replace(fast, over_places=None)
        clients = common.random_clients(7, seed=6)
        training = client_update.LocalTraining(0.5, num_epochs=2)
        weights, found = fast.initial_weights(2), []
        for language_model in (fast, padded):
            rounds = self.rounds(language_model, clients, training=training)
            sums = rounds.train(weights, np.arange(7), 0.2, 0.2)
            found.append((sums.scaled(0.2), rounds.evaluate(weights, np.arange(7))))
        (updates, metrics), (expected_updates, expected_metrics) = found
        for name in weights:
            np.testing.assert_allclose(updates[name], expected_updates[name], atol=1e-6)
        for name, value in metrics.items():
            self.assertAlmostEqual(value, expected_metrics[name], places=5)


if __name__ == "__main__":
    absltest.main()
