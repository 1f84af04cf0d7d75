"""Tests of exported models: what they suggest is what the model says."""

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
        return exported_model.NextWordPredictor(self.path)

    def _probabilities(self, tokens):
        logits = self.model.logits(list(self.weights.values()), tf.constant([tokens]))
        return tf.nn.softmax(logits[0, -1]).numpy()

    def test_suggestions(self):
        predictor = self._export()
        for text, tokens in (
            ("", [2]),
            ("See  you", [2, 4, 5]),
            ("soon. You", [2, 5]),
            ("soon.", [2]),
            ("xyz don't", [2, 1, 7]),
            # A longer sentence is looked at from its end.
            ("see you soon see you", [5, 6, 4, 5]),
        ):
            expected = self._probabilities(tokens)
            found = predictor.suggest(text, 4)
            self.assertLen(found, 4)
            for word, probability in found:
                token = self.words.encode([word])[0]
                self.assertAlmostEqual(probability, expected[token], places=5)
            shares = [probability for _, probability in found]
            self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertLen(predictor.suggest("see", 2), 2)

    def test_bad_input(self):
        predictor = self._export()
        with self.assertRaisesRegex(ValueError, "num_words is 0"):
            predictor.suggest("see", 0)
        with self.assertRaisesRegex(ValueError, "is no exported model"):
            exported_model.NextWordPredictor(self.create_tempdir().full_path)
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
