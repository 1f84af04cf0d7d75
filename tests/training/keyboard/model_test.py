"""Tests of models as a keyboard uses them, and of where they are read from."""

import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from federated_hh.populations import vocabulary
from federated_hh.populations.languages import words
from federated_hh.randomness import noise_keys
from federated_hh.rounds import checkpoints
from federated_hh.run_directory import directory as run_directory
from training.keyboard import model as keyboard_model
from training.models import exported_model, model
from training.models import finished_runs as keyboard_runs

_LENGTH = 4
_KEY = noise_keys.NoiseKey.of_seed(1)


class KeyboardModelTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path)
        self.words = vocabulary.Vocabulary(["see", "you", "soon", "don't"])
        self.model = model.cifg_language_model(
            8, num_units=5, projection_size=4, embedding_size=3
        )
        self.weights = self.model.initial_weights(3)
        self.weights["output_bias"][:] = np.arange(8) / 7

    def _export(self, path):
        exported_model.export(self.model, self.weights, self.words, _LENGTH, path)

    def _run(self, *flags, weights=None):
        """Leaves what a run of training does, up to its checkpoint."""
        path = self.path / "run"
        words = self.path / "words.txt"
        words.write_text(self.words.to_text())
        flags = (
            f"--vocabulary={words}",
            f"--max_words={_LENGTH - 1}",
            "--max_sentences=9",
            "--num_held_out_clients=2",
            "--seed=1",
            *flags,
        )
        facts = {"vocabulary": self.words.fingerprint, "population": "p"}
        directory = run_directory.RunDirectory.create(
            path, program="t", flags=flags, facts=facts, noise_key=_KEY
        )
        with directory:
            if weights is not None:
                saved = checkpoints.write(
                    directory.simulator, "state.npz", {"state": {"weights": weights}}
                )
                directory.save_checkpoint({"state": saved, "finished": []})
        return path

    def test_words_are_cut_as_in_training(self):
        options = words.WordOptions(hyphens="part")
        exported_model.export(
            self.model, self.weights, self.words, _LENGTH, self.path / "m", options
        )
        unfinished = self._run("--hyphens=part", weights=self.weights)
        for path in (self.path / "m", unfinished):
            parted = keyboard_model.read(path)
            self.assertEqual(parted.words, options)
            self.assertEqual(parted.suggest("see-you"), parted.suggest("see you"))
        self._export(self.path / "n")
        whole = keyboard_model.read(self.path / "n")
        self.assertEqual(whole.suggest("see-you"), whole.suggest("xyz"))

    def _probabilities(self, tokens):
        logits = self.model.logits(list(self.weights.values()), tf.constant([tokens]))
        return tf.nn.softmax(logits[0, -1]).numpy()

    def _check(self, found):
        self.assertEqual(found.vocabulary.words, self.words.words)
        self.assertEqual(found.length, _LENGTH)
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
            suggested = found.suggest(text, 4)
            self.assertLen(suggested, 4)
            for word, probability in suggested:
                token = self.words.encode([word])[0]
                self.assertAlmostEqual(probability, expected[token], places=5)
            shares = [probability for _, probability in suggested]
            self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertLen(found.suggest("see", 2), 2)
        with self.assertRaisesRegex(ValueError, "num_words is 0"):
            found.suggest("see", 0)

    def test_exported(self):
        self._export(self.path / "here")
        self._check(keyboard_model.read(self.path / "here"))
        self._export(self.path / "run" / "model")
        self._check(keyboard_model.read(self.path / "run"))

    def test_last_checkpoint_of_a_run_that_is_not_finished(self):
        self._check(keyboard_model.read(self._run(weights=self.weights)))

    def test_no_model(self):
        with self.assertRaisesRegex(ValueError, "neither a training run's directory"):
            keyboard_model.read(self.path)
        path = self._run()
        with self.assertRaisesRegex(ValueError, "no checkpoint .*--resume"):
            keyboard_model.read(path)
        checkpoint = path / run_directory.CHECKPOINT_FILE
        checkpoint.write_text("no checkpoint\n")
        with self.assertRaisesRegex(ValueError, "checkpoint cannot be read"):
            keyboard_model.read(path)

    def test_another_vocabulary(self):
        path = self._run(weights=self.weights)
        (self.path / "words.txt").write_text(
            vocabulary.Vocabulary(["see", "me", "soon", "don't"]).to_text()
        )
        with self.assertRaisesRegex(ValueError, "but its flags now give"):
            keyboard_model.read(path)

    def test_a_checkpoint_of_a_users_own_model(self):
        path = self._run(weights={"weight_0": np.zeros((2, 2), np.float32)})
        with self.assertRaisesRegex(ValueError, "is a custom model.*--custom_models"):
            keyboard_model.read(path)

    def test_run_of_a_model(self):
        path = self._run(weights=self.weights)
        self._export(path / "model")
        for model_path in (path, path / "model"):
            found = keyboard_runs.TrainingRun.of_model(model_path)
            self.assertEqual(found.path, path)
            self.assertEqual(found.split, ("p", "1", "2"))
        shutil.move(path / "model", self.path / "elsewhere")
        self.assertIsNone(keyboard_runs.TrainingRun.of_model(self.path / "elsewhere"))
        facts = path / "simulator" / "facts.json"
        facts.write_text(json.dumps({"vocabulary": "v"}))
        with self.assertRaisesRegex(ValueError, "holds a run of t; .* of training"):
            keyboard_runs.TrainingRun.read(path)


if __name__ == "__main__":
    absltest.main()
