"""Tests of exported models: what they say is what the model says."""

import json
import os
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from federated_hh.populations import vocabulary
from federated_hh.run_directory import record as run_record
from training.models import exported_model, model, model_vocabularies

_LENGTH = 4
_VARIABLE = tf.Variable


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
        with self.assertRaisesRegex(ValueError, "is not an exported model"):
            exported_model.read(self.create_tempdir().full_path)
        with self.assertRaisesRegex(ValueError, "has 5 tokens; the model has 8"):
            exported_model.export(
                self.model,
                self.weights,
                vocabulary.Vocabulary(["a"]),
                _LENGTH,
                self.path,
            )

    def test_the_vocabulary_of_another_model(self):
        self._export()
        file = pathlib.Path(self.path, model_vocabularies.VOCABULARY_FILE)
        for words, told in (
            (["see", "you", "soon"], "is of 8 tokens, and that file is of 7"),
            # As many, of which one means something else.
            (["see", "me", "soon", "don't"], "is of words with the fingerprint"),
        ):
            file.write_text(vocabulary.Vocabulary(words).to_text())
            with self.assertRaisesRegex(
                ValueError, f"{file} does not match the model .*{told}"
            ):
                exported_model.read_weights(self.path)

    def test_the_vocabulary_of_a_model_of_an_older_version(self):
        """The run alone knows it, where the model is in its run's directory."""
        with mock.patch.object(tf, "Variable", _without_text):
            self._export()
        facts = pathlib.Path(self.path).parent / run_record.FACTS_FILE
        exported_model.read(self.path)
        facts.parent.mkdir()
        facts.write_text(json.dumps({"vocabulary": self.words.fingerprint}))
        exported_model.read(self.path)
        facts.write_text(json.dumps({"vocabulary": "another"}))
        with self.assertRaisesRegex(ValueError, "does not match the model"):
            exported_model.read(self.path)
        moved = f"{self.path}_elsewhere"
        os.rename(self.path, moved)
        exported_model.read(moved)

    def test_a_model_that_has_diverged(self):
        self.weights["projection"][1, 2] = np.inf
        self._export()
        with self.assertRaisesRegex(
            ValueError, "projection of the model has values that are not fin"
        ):
            exported_model.read(self.path)


def _without_text(value, *arguments, **named):
    """A variable, or nothing for text, as older versions have it."""
    if isinstance(value, str):
        return None
    return _VARIABLE(value, *arguments, **named)


if __name__ == "__main__":
    absltest.main()
