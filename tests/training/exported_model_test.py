"""Tests of exported models: what they say is what the model says."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from simulation import vocabulary
from training import exported_model, model

_LENGTH = 4


class ExportedModelTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "model")
        self.words = vocabulary.Vocabulary(["see", "you", "soon", "don't"])
        self.model = model.cifg_language_model(8, num_units=5, projection_size=4)
        self.weights = self.model.initial_weights(3)
        self.weights["output_bias"][:] = np.arange(8) / 7

    def _export(self):
        exported_model.export(self.model, self.weights, self.words, _LENGTH, self.path)

    def test_logits_and_weights_are_the_models(self):
        self._export()
        tokens = tf.constant([[2, 4, 5, 0], [2, 7, 1, 6]])
        found = exported_model.load(self.path).signatures["serving_default"](
            tokens=tokens
        )
        expected = self.model.logits(list(self.weights.values()), tokens)
        np.testing.assert_allclose(found["logits"], expected, atol=1e-5)
        weights, words = exported_model.read_weights(self.path)
        self.assertEqual(words.words, self.words.words)
        self.assertEqual(list(weights), list(self.weights))
        for name, weight in weights.items():
            np.testing.assert_array_equal(weight, self.weights[name])

    def test_bad_input(self):
        self._export()
        with self.assertRaisesRegex(ValueError, "is no exported model"):
            exported_model.read_vocabulary(self.create_tempdir().full_path)
        with self.assertRaisesRegex(ValueError, "has 5 tokens, the model 8"):
            exported_model.export(
                self.model,
                self.weights,
                vocabulary.Vocabulary(["a"]),
                _LENGTH,
                self.path,
            )


if __name__ == "__main__":
    absltest.main()
