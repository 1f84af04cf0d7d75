"""Tests that the benchmark's client in pfl-research does what the others do."""

import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks import training_ways, training_with_pfl
from training.models import evaluation, model
from training.text import examples

_LIMITS = examples.ClientLimits(max_words=6, batch_size=4)
_NUM_TOKENS = 30


def _clients():
    """Returns clients of several batches, with sentences of all lengths and longer."""
    random = np.random.default_rng(3)
    return [
        [random.integers(4, _NUM_TOKENS, size).tolist() for size in sizes]
        for sizes in ([1, 2, 3, 4, 5, 6, 7, 8, 9], [6], [0, 3, 1, 2])
    ]


def _model():
    """Returns a model and weights that leave nothing out, such as biases of zero."""
    language_model = model.cifg_language_model(
        _NUM_TOKENS, num_units=7, projection_size=5, embedding_size=3
    )
    random = np.random.default_rng(4)
    return language_model, {
        name: random.normal(0, 0.7, weight.shape).astype(np.float32)
        for name, weight in language_model.initial_weights(0).items()
    }


class InstallingTest(absltest.TestCase):
    def test_the_program_says_what_is_installed(self):
        # Imported it would define its flags, for all tests of the process.
        program = pathlib.Path(training_with_pfl.__file__)
        text = program.with_name("training.py").read_text()
        for requirement in training_with_pfl.REQUIREMENTS:
            self.assertIn(f" {requirement}", text)


class TrainingWithPflTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        if missing := training_with_pfl.missing():
            self.skipTest(f"not installed: {', '.join(missing)}")

    def test_it_is_the_same_model(self):
        import torch

        language_model, weights = _model()
        rows = training_ways.padded(_clients()[0], _LIMITS)
        inputs, targets = rows[:, :-1], rows[:, 1:]
        logits = language_model.logits(list(weights.values()), tf.constant(inputs))
        loss = float(evaluation.mean_loss(logits, tf.constant(targets)))
        module = training_with_pfl.module(weights)
        tensors = [torch.from_numpy(part).long() for part in (inputs, targets)]
        theirs = module(tensors[0]).detach().numpy()
        np.testing.assert_allclose(theirs, logits, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(module.loss(*tensors).item(), loss, rtol=1e-5)
        found = module.metrics(*tensors)["loss"]
        np.testing.assert_allclose(found.overall_value, loss, rtol=1e-5)

    def test_clients_learn_the_same(self):
        language_model, weights = _model()
        clients = _clients()
        expected = {name: np.zeros_like(weight) for name, weight in weights.items()}
        for sentences in clients:
            train = training_ways.plain(language_model, weights, [sentences], _LIMITS)
            for name, variable in zip(weights, train(), strict=True):
                expected[name] += variable.numpy() - weights[name]
        train = training_with_pfl.rounds(
            weights,
            clients,
            lambda sentences: training_ways.padded(sentences, _LIMITS),
            _LIMITS.batch_size,
            training_ways.RATE,
            num_threads=1,
        )
        # The second round begins as the first.
        for _ in range(2):
            found = train()
            self.assertEqual(found.keys(), expected.keys())
            for name, part in expected.items():
                self.assertGreater(np.linalg.norm(part), 0.1)
                error = np.linalg.norm(found[name] - part) / np.linalg.norm(part)
                self.assertLess(error, 1e-4, name)


if __name__ == "__main__":
    absltest.main()
