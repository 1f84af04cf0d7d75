"""Tests of exported models: read as data, they say what the model and the graph say."""

import collections
import contextlib
import dataclasses
import importlib
import json
import os
import pathlib
import resource
import shutil
import sys
import tempfile
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from federated_hh.populations import vocabulary
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import record as run_record
from tests import run_directories
from training.models import (
    custom_model,
    exported_model,
    model,
    model_vocabularies,
)

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

    def test_a_full_disk_is_told_with_the_models_folder(self):
        self._export()
        files = {each.name for each in pathlib.Path(self.path).rglob("*")}
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for limit in (1024, 30_000):  # in the weights, and in the graph
            self.path += str(limit)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            try:
                with self.assertRaisesRegex(OSError, f"{self.path} cannot.* too large"):
                    self._export()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            left = {each.name for each in pathlib.Path(self.path).rglob("*")}
            self.assertNotEmpty(left - files, limit)
            # The next export leaves nothing of it.
            self._export()
            again = {each.name for each in pathlib.Path(self.path).rglob("*")}
            self.assertEqual(again, files)

    def _of_graph(self, tokens):
        """Returns the logits of the graph that is exported for deployment."""
        loaded = tf.saved_model.load(self.path)
        return loaded.signatures["serving_default"](tokens=tokens)["logits"]

    def test_logits_and_weights_are_the_models(self):
        self._export()
        tokens = tf.constant([[2, 4, 5, 0], [2, 7, 1, 6]])
        found = exported_model.read(self.path)
        self.assertEqual(found.vocabulary.words, self.words.words)
        self.assertEqual(found.length, _LENGTH)
        self.assertEqual(list(found.weights), list(self.weights))
        for name, weight in found.weights.items():
            np.testing.assert_array_equal(weight, self.weights[name])
        expected = self.model.logits(list(self.weights.values()), tokens)
        values = list(found.weights.values())
        for logits in (found.network().logits(values, tokens), self._of_graph(tokens)):
            np.testing.assert_allclose(logits, expected, atol=1e-5)

    def test_a_tied_model_is_known_by_its_weights(self):
        self.model = model.cifg_language_model(
            8, num_units=4, projection_size=3, embedding_size=3, tied=True
        )
        self.weights = self.model.initial_weights(3)
        self._export()
        tokens = tf.constant([[2, 4, 5, 0], [2, 7, 1, 6]])
        found = exported_model.read(self.path)
        values = list(found.weights.values())
        np.testing.assert_allclose(
            found.network().logits(values, tokens), self._of_graph(tokens), atol=1e-5
        )

    def test_a_custom_model_is_made_by_the_function_that_the_user_names(self):
        self.enter_context(_module("kinds", _KINDS))
        tokens = tf.constant([[2, 4, 5, 0], [2, 7, 1, 6]])
        for kind in ("gru", "lstm", "convolution", "residual"):
            name = f"kinds:{kind}"
            self.model = custom_model.language_model(name, 8, _LENGTH, seed=3)
            self.weights = self.model.initial_weights(3)
            self.path = os.path.join(self.create_tempdir().full_path, "model")
            self._export()
            found = exported_model.read(self.path)
            with self.assertRaisesRegex(ValueError, "Add --custom_models=module:fu"):
                found.network()
            logits = tf.function(found.network([name]).logits)
            values = list(found.weights.values())
            np.testing.assert_allclose(
                logits(values, tokens), self._of_graph(tokens), atol=1e-5, err_msg=kind
            )
            ours = dataclasses.replace(found, flags={"model": name})
            ours.network(["kinds:other", name])
            with self.assertRaisesRegex(ValueError, f"custom_models={name}"):
                ours.network(["kinds:other"])
        # Other functions, and code that has changed.
        with self.assertRaisesRegex(ValueError, "weight_0 .* the shape .* kinds:gru"):
            found.network(["kinds:gru"])
        sys.modules["kinds"].SCALE = 2
        with self.assertRaisesRegex(ValueError, "computes other logits"):
            found.network(["kinds:residual"])

    def test_exports_have_the_same_bytes(self):
        """However many functions the process made before."""
        self.enter_context(_module("kinds", _KINDS))
        for name in (None, "kinds:gru", "kinds:residual"):
            if name is not None:
                self.model = custom_model.language_model(name, 8, _LENGTH, seed=3)
                self.weights = self.model.initial_weights(3)
            found = []
            for number in range(3):
                for made in range(37 * number):
                    tf.function(lambda x, made=made: x + made)(tf.constant(1))
                self.path = os.path.join(self.create_tempdir().full_path, "model")
                self._export()
                found.append(run_directories.untimed_files(self.path))
            self.assertIn("saved_model.pb", found[0])
            self.assertIn("fingerprint.pb", found[0])
            for other in found[1:]:
                differ = [n for n in found[0] if found[0][n] != other[n]]
                self.assertEqual((differ, name), ([], name))

    def test_a_graph_is_never_run(self):
        """One that writes a file, in place of the export's and next to its weights."""
        written = os.path.join(self.create_tempdir().full_path, "written")
        for has_weights in (True, False):
            self._export()
            text = pathlib.Path(self.path, model_vocabularies.VOCABULARY_FILE)
            kept = text.read_text()
            weights = self.weights if has_weights else {}
            _save_hostile(self.path, written, weights, self.words.fingerprint)
            text.write_text(kept)
            if has_weights:
                found = exported_model.read(self.path)
                np.testing.assert_array_equal(
                    found.weights["projection"], self.weights["projection"]
                )
                found.network()
            else:
                with self.assertRaisesRegex(
                    ValueError, "not an exported model of this .* never run; bring"
                ):
                    exported_model.read(self.path)
            text.unlink()
            with self.assertRaisesRegex(ValueError, "lacks vocabulary.txt.* never run"):
                exported_model.read(self.path)
            self.assertFalse(os.path.exists(written))
        self._of_graph_of(self.path)
        self.assertTrue(os.path.exists(written))  # the graph does write it

    def _of_graph_of(self, path):
        loaded = tf.saved_model.load(path)
        loaded.signatures["serving_default"](tokens=tf.zeros([1, _LENGTH], tf.int32))

    def test_damaged_files(self):
        self._export()
        files = [f for f in pathlib.Path(self.path).rglob("*") if f.is_file()]
        self.assertLen(files, 5)
        tokens = tf.constant([[2, 4, 5, 0]])
        expected = self.model.logits(list(self.weights.values()), tokens)
        random = np.random.default_rng(1)
        refused = collections.Counter()
        for file in files:
            whole = file.read_bytes()
            damaged = [None, b"", whole[: len(whole) // 2], whole[:-1], whole[1:]]
            for place in random.integers(len(whole), size=25):
                flipped = bytes([whole[place] ^ (1 << random.integers(8))])
                damaged.append(whole[:place] + flipped + whole[place + 1 :])
            for contents in damaged:
                file.unlink() if contents is None else file.write_bytes(contents)
                try:
                    found = exported_model.read(self.path)
                    network = found.network()
                except ValueError as error:
                    self.assertNotIn("\n", str(error))
                    self.assertIn(self.path, str(error))
                    refused[file.name] += 1
                else:
                    values = list(found.weights.values())
                    np.testing.assert_array_equal(
                        network.logits(values, tokens), expected, err_msg=file.name
                    )
                file.write_bytes(whole)
        self.assertGreaterEqual(refused["variables.index"], 25)
        self.assertGreaterEqual(refused["variables.data-00000-of-00001"], 25)

    def test_variables_of_another_model(self):
        for changed, told in (
            ({"projection": np.zeros((5, 3), np.float32)}, "has the shape"),
            ({"projection": np.zeros(5, np.float32)}, "has to have two sizes"),
            ({"output_bias": np.zeros(8)}, "weights/6 is float64, not float32"),
            ({"output_bias": None}, "is a custom model"),
        ):
            given = {
                name: weight
                for name, weight in (self.weights | changed).items()
                if weight is not None
            }
            self._export()
            text = pathlib.Path(self.path, model_vocabularies.VOCABULARY_FILE)
            kept = text.read_text()
            _save_hostile(self.path, "/nowhere", given, self.words.fingerprint)
            text.write_text(kept)
            with self.assertRaisesRegex(ValueError, f"{self.path}.*{told}"):
                exported_model.read(self.path).network()

    def test_settings_of_the_run(self):
        self._export()
        found = exported_model.read(self.path)
        flags = {"num_units": "5", "embedding_size": "4"}
        with self.assertRaisesRegex(
            ValueError, r"input_embedding .* \(8, 96\); .*embedding 4 has \(8, 4\)"
        ):
            dataclasses.replace(found, flags=flags).network()
        run = run_record.new("t", ["--max_words=4"], {}, noise_keys.NoiseKey.of_seed(1))
        beside = pathlib.Path(self.path).parent
        (beside / run_record.RUN_FILE).write_text(json.dumps(run))
        with self.assertRaisesRegex(ValueError, "inputs of 4 tokens; .*max_words=4 ha"):
            exported_model.read(self.path)
        (beside / run_record.RUN_FILE).write_text("{}")
        with self.assertRaisesRegex(ValueError, "run.json: schema_version"):
            exported_model.read(self.path)

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
            (["see", "you", "soon"], "that file's 7 tokens have"),
            # As many, of which one means something else.
            (["see", "me", "soon", "don't"], "is of words with the fingerprint"),
        ):
            file.write_text(vocabulary.Vocabulary(words).to_text())
            with self.assertRaisesRegex(
                ValueError, f"{file} does not match the model .*{told}"
            ):
                exported_model.read(self.path)

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


_KINDS = """
import tensorflow as tf

SCALE = 1


def _model(num_tokens, length, *layers):
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer([length], dtype=tf.int32),
            tf.keras.layers.Embedding(num_tokens, 6),
            *layers,
            tf.keras.layers.Rescaling(SCALE),
            tf.keras.layers.Dense(num_tokens),
        ]
    )


def gru(num_tokens, length):
    return _model(num_tokens, length, tf.keras.layers.GRU(7, return_sequences=True))


def lstm(num_tokens, length):
    return _model(num_tokens, length, tf.keras.layers.LSTM(5, return_sequences=True))


def convolution(num_tokens, length):
    layer = tf.keras.layers.Conv1D(5, 2, padding="causal", activation="relu")
    return _model(num_tokens, length, layer)


def residual(num_tokens, length):
    tokens = tf.keras.Input([length], dtype=tf.int32)
    seen = tf.keras.layers.Embedding(num_tokens, 8)(tokens)
    mixed = tf.keras.layers.Conv1D(8, 3, padding="causal", activation="relu")(seen)
    mixed = tf.keras.layers.Rescaling(SCALE)(mixed)
    scores = tf.keras.layers.Dense(num_tokens)(tf.keras.layers.Add()([seen, mixed]))
    return tf.keras.Model(tokens, scores)
"""


@contextlib.contextmanager
def _module(name, text):
    """Makes a module that can be imported."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, f"{name}.py").write_text(text)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(folder)
            sys.modules.pop(name, None)


def _save_hostile(path, written, weights, fingerprint):
    """Saves a SavedModel whose signature writes a file, with weights next to it."""
    module = tf.Module()
    module.weights = [tf.Variable(w, name=name) for name, w in weights.items()]
    module.vocabulary = tf.Variable(fingerprint, trainable=False)

    @tf.function(input_signature=[tf.TensorSpec([None, _LENGTH], tf.int32, "tokens")])
    def logits(tokens):
        with tf.control_dependencies([tf.io.write_file(written, "x")]):
            return {"logits": tf.one_hot(tokens, 8)}

    shutil.rmtree(path)
    module.logits = logits
    tf.saved_model.save(module, path, signatures={"serving_default": logits})


def _without_text(value, *arguments, **named):
    """A variable, or nothing for text, as older versions have it."""
    if isinstance(value, str):
        return None
    return _VARIABLE(value, *arguments, **named)


if __name__ == "__main__":
    absltest.main()
