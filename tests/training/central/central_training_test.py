"""Tests of central training: its batches, its steps against Keras, and going on."""

import collections
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from federated_hh.populations.columns import client_text
from federated_hh.randomness import noise_keys
from federated_hh.rounds import experiment
from tests.training import training_test_case as common
from training.central import central_training
from training.federated import dp_ftrl, model_average
from training.models import evaluation
from training.text import examples, windows

_LIMITS = examples.ClientLimits(max_sentences=4, max_words=4, batch_size=3)


class StoppedError(RuntimeError):
    pass


class CentralTrainingTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.clients = common.random_clients(9, seed=6)
        rows = [(str(i), sentences) for i, sentences in enumerate(self.clients)]
        self.text = client_text.ClientText.from_rows(self.scratch / "text", rows)
        self.network = common.small_cifg()
        self.who = np.arange(6)

    def sentences(self, seed=1):
        return central_training.Sentences(self.text, self.who, _LIMITS, seed)

    def algorithm(self, num_steps=7, **options):
        return central_training.CentralTraining(
            self.network,
            self.sentences(),
            self.network.initial_weights(2),
            identity={"text": self.text.fingerprint},
            num_clients=len(self.who),
            num_steps=num_steps,
            **({"steps_per_round": 2, "learning_rate": 0.05} | options),
        )

    def run_to(self, name, algorithm, **options):
        return experiment.run_experiment(
            algorithm,
            str(self.scratch / name),
            noise_key=noise_keys.NoiseKey.of_seed(1),
            **options,
        )

    def test_each_epoch_has_every_sentence_once(self):
        expected = collections.Counter()
        for client in self.who:
            for sentence in self.clients[client][:4]:
                inputs, targets = common.sequence(sentence, 4)
                padding = [0] * (5 - len(inputs))
                expected[(*inputs, *padding, *targets, *padding)] += 1
        found = self.sentences()
        size = sum(expected.values())
        self.assertLen(found, size)
        rows = [
            (*inputs.tolist(), *targets.tolist())
            for number in range(size)  # three epochs
            for inputs, targets in zip(*found.batch(number), strict=True)
        ]
        epochs = [rows[size * i : size * (i + 1)] for i in range(3)]
        for epoch in epochs:
            self.assertEqual(collections.Counter(epoch), expected)
        self.assertNotEqual(epochs[0], epochs[1])
        np.testing.assert_array_equal(found.batch(4), self.sentences().batch(4))

    def test_steps_are_those_of_keras(self):
        done = self.run_to("run", self.algorithm())
        (state,) = done.outcome.states
        self.assertEqual(state.steps, 7)
        self.assertEqual(done.metrics["steps"].tolist(), [2, 4, 6, 7])
        first = self.network.initial_weights(2)
        weights = [tf.Variable(part) for part in first.values()]
        adam = tf.keras.optimizers.legacy.Adam(0.05)
        for number in range(7):
            inputs, targets = self.sentences().batch(number)
            with tf.GradientTape() as tape:
                logits = self.network.logits(
                    [part.read_value() for part in weights], tf.constant(inputs)
                )
                loss = evaluation.mean_loss(logits, tf.constant(targets))
            gradients = tape.gradient(loss, weights)
            adam.apply_gradients(zip(gradients, weights, strict=True))
        for (name, found), expected in zip(state.weights.items(), weights, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4, err_msg=name)
            self.assertGreater(np.abs(found - first[name]).max(), 0.05)
        self.assertEqual(done.statement.guarantees, ())
        self.assertIn("Nothing.", done.statement.protected)

    def test_the_average_is_tensorflows(self):
        models = []

        def see(observed):
            models.append(observed.state.model)
            return {}

        # A step a round: each model is seen.
        self.run_to("steps", self.algorithm(steps_per_round=1), observers=[see])
        first = self.network.initial_weights(2)
        variables = {name: tf.Variable(part) for name, part in first.items()}
        steps = tf.Variable(0)
        oracle = tf.train.ExponentialMovingAverage(0.3, num_updates=steps)
        oracle.apply(list(variables.values()))
        for number, weights in enumerate(models):
            steps.assign(number)
            for name, variable in variables.items():
                variable.assign(weights[name])
            oracle.apply(list(variables.values()))
        average = model_average.ModelAverage(0.3)
        done = self.run_to("averaged", self.algorithm(average=average))
        (state,) = done.outcome.states
        for name, variable in variables.items():
            np.testing.assert_array_equal(state.weights[name], models[-1][name])
            np.testing.assert_allclose(
                state.model[name], oracle.average(variable), rtol=0, atol=1e-6
            )
            self.assertGreater(np.abs(state.model[name] - models[-1][name]).max(), 0.01)

    def test_a_run_that_was_stopped_goes_on(self):
        average = model_average.ModelAverage(0.5)
        whole = self.run_to("whole", self.algorithm(average=average))

        def interrupt(observed):
            if observed.number == 3:
                raise StoppedError
            return {}

        with self.assertRaises(StoppedError):
            self.run_to(
                "stopped", self.algorithm(average=average), observers=[interrupt]
            )
        on = self.run_to("stopped", self.algorithm(average=average), resume=True)
        (expected,), (found,) = whole.outcome.states, on.outcome.states
        for part in ("weights", "mean", "mean_square", "average"):
            for name, array in getattr(expected, part).items():
                np.testing.assert_array_equal(getattr(found, part)[name], array)

    def test_evaluation(self):
        judges = windows.of_clients(
            self.text, np.arange(6, 9), _LIMITS, common.NUM_TOKENS
        )
        observer = central_training.Evaluation(self.network, judges, 5, every=3)
        average = model_average.ModelAverage(0.5)
        done = self.run_to("run", self.algorithm(average=average), observers=[observer])
        evaluated = done.metrics["held_out_loss"].notna()
        self.assertEqual(done.metrics["steps"][evaluated].tolist(), [4, 6, 7])
        (state,) = done.outcome.states
        loss = places = 0
        for client in range(6, 9):
            for sentence in self.clients[client][:4]:
                inputs, targets = common.sequence(sentence, 4)
                logits = self.network.logits(
                    list(state.model.values()), tf.constant([inputs])
                )
                laws = tf.nn.log_softmax(logits)[0].numpy()
                loss -= sum(laws[i, token] for i, token in enumerate(targets))
                places += len(targets)
        last = done.metrics["held_out_loss"].iloc[-1]
        self.assertAlmostEqual(last, loss / places, places=5)

    def test_a_model_that_is_no_longer_finite(self):
        with self.assertRaisesRegex(dp_ftrl.NonFiniteModelError, "step 2: .*finite"):
            self.run_to("run", self.algorithm(learning_rate=1e38))

    def test_bad_input(self):
        with self.assertRaisesRegex(ValueError, "num_steps is 0;.* at le"):
            self.algorithm(num_steps=0)
        with self.assertRaisesRegex(ValueError, "learning_rate is 0"):
            self.algorithm(learning_rate=0)


if __name__ == "__main__":
    absltest.main()
