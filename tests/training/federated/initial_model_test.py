"""Tests of where training begins: earlier models, and public word frequencies."""

import collections
import functools
import pathlib

import numpy as np
import tensorflow as tf
import wordfreq
from absl.testing import absltest, parameterized

from federated_hh.populations import vocabulary
from federated_hh.privacy.dp_ftrl import model_updates
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.randomness import noise_keys
from federated_hh.rounds import algorithm, run, timers
from federated_hh.run_directory import directory as run_directory
from training.federated import dp_ftrl, initial_model
from training.models import exported_model, model


class Doubling(algorithm.Algorithm):
    """Ends after a round that doubles weights; asks nobody for anything."""

    def __init__(self, weights, average=None):
        self.average = average
        self.plan = training_plan.plan_of(
            timers.Timers(num_clients=3, cohort_size=1, num_rounds=1),
            model_updates.NoNoise(num_rounds=1, clip_norm=1.0),
        )
        self.weights = collections.OrderedDict(weights)

    def describe(self):
        return {}

    def initialize(self, repeat):
        return dp_ftrl.TrainingState(0, self.weights, self.weights, 1.0, 1.0)

    def next_query(self, state):
        if state.round_number:
            return None
        nothing = model_updates.UpdateSum({}, 1, 0, 0)
        return algorithm.Query(lambda cohort, stream: nothing, {"clip_norm": 1.0})

    def update(self, state, released):
        twice = collections.OrderedDict((n, 2 * w) for n, w in self.weights.items())
        state = dp_ftrl.TrainingState(1, twice, self.weights, 1.0, 1.0, self.average)
        return state, {}


class PublicBiasTest(parameterized.TestCase):
    def test_probabilities(self):
        words = vocabulary.Vocabulary.of_language(500)
        found = initial_model.public_probabilities(words)
        self.assertAlmostEqual(found.sum(), 1.0, places=12)
        self.assertTrue(np.all(found > 0))
        share = functools.partial(wordfreq.word_frequency, lang="en")
        by_word = {words.token(i): found[i] for i in range(words.num_tokens)}
        for word in ("of", "time", words.words[-1]):
            expected = share(word) / share("the")
            ratio = by_word[word] / by_word["the"]
            # word_frequency gives three digits.
            self.assertAlmostEqual(ratio, expected, delta=0.01 * expected)
        # wordfreq's frequencies are shares of all words, those outside included.
        all_words = found[vocabulary.OOV] + found[4:].sum()
        self.assertAlmostEqual(by_word["the"] / all_words, share("the"), places=3)
        self.assertAlmostEqual(found[vocabulary.EOS] / all_words, 1 / 15, places=4)
        self.assertLess(found[[vocabulary.PAD, vocabulary.BOS]].max(), 1e-3)

    def test_words_that_are_not_public_may_be_rare(self):
        public = ["the", "of", "time"]
        words = vocabulary.Vocabulary([*public[:2], "xqzzt", public[2]])
        found = initial_model.public_probabilities(words, others_are_rare=True)
        by_word = {words.token(i): found[i] for i in range(words.num_tokens)}
        self.assertEqual(by_word["xqzzt"], by_word["time"])
        alone = initial_model.public_probabilities(vocabulary.Vocabulary(public))
        self.assertAlmostEqual(by_word["of"] / by_word["the"], alone[5] / alone[4])
        self.assertEqual(initial_model.words_not_public(words), ["xqzzt"])
        mostly = vocabulary.Vocabulary(["the", "xqzzt", "xqzztt"])
        with self.assertRaisesRegex(ValueError, "2 words .*such as 'xqzzt'"):
            initial_model.public_probabilities(mostly, others_are_rare=True)

    def test_a_model_without_context_says_the_public_probabilities(self):
        words = vocabulary.Vocabulary.of_language(20)
        language_model = model.cifg_language_model(words.num_tokens, num_units=5)
        first = language_model.initial_weights(1)
        weights = initial_model.with_public_bias(first, words)
        self.assertEqual(list(weights), list(first))
        for name in first:
            if name != "output_bias":
                np.testing.assert_array_equal(weights[name], first[name])
        np.testing.assert_array_equal(first["output_bias"], 0)
        weights["output_embedding"] = np.zeros_like(weights["output_embedding"])
        logits = language_model.logits(list(weights.values()), tf.constant([[2, 9, 5]]))
        expected = initial_model.public_probabilities(words)
        for place in range(3):
            np.testing.assert_allclose(
                tf.nn.softmax(logits[0, place]), expected, rtol=1e-5
            )

    def test_bad_input(self):
        with self.assertRaisesRegex(ValueError, "1 words .*such as 'xqzzt'"):
            initial_model.public_probabilities(vocabulary.Vocabulary(["the", "xqzzt"]))
        words = vocabulary.Vocabulary(["the"])
        for weights in (dict(table=np.zeros(5)), dict(output_bias=np.zeros(4))):
            with self.assertRaisesRegex(ValueError, "output_bias with 5 values"):
                initial_model.with_public_bias(weights, words)


class InitialModelTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path)
        self.words = vocabulary.Vocabulary(["see", "you", "soon", "don't"])
        self.model = model.cifg_language_model(8, num_units=5, projection_size=4)
        self.weights = self.model.initial_weights(3)

    def export(self):
        path = self.path / "model"
        exported_model.export(self.model, self.weights, self.words, 4, path)
        return path

    def save_run(self, weights, average=None):
        """Writes a run of one round that doubles the weights."""
        path = self.path / "run"
        algorithm = Doubling(weights, average)
        facts = {"vocabulary": self.words.fingerprint}
        with run_directory.RunDirectory.create(
            path,
            program="training.run_training",
            flags=(),
            facts=facts,
            noise_key=noise_keys.NoiseKey.of_seed(1),
        ) as directory:
            run.run(algorithm, directory, seed=1)
        return path

    def test_an_exported_model(self):
        found = initial_model.read(self.export())
        self.assertEqual(list(found.weights), list(self.weights))
        for name, array in self.weights.items():
            np.testing.assert_array_equal(found.weights[name], array)
        initial_model.check(found, self.model.initial_weights(1), self.words)

    def test_the_last_checkpoint_of_a_run(self):
        found = initial_model.read(self.save_run(self.weights))
        self.assertEqual(list(found.weights), list(self.weights))
        for name, array in self.weights.items():
            np.testing.assert_array_equal(found.weights[name], 2 * array)
        initial_model.check(found, self.model.initial_weights(1), self.words)

    def test_the_average_of_a_run_that_has_one(self):
        average = self.model.initial_weights(4)
        found = initial_model.read(self.save_run(self.weights, average))
        self.assertEqual(list(found.weights), list(self.weights))
        for name, array in average.items():
            np.testing.assert_array_equal(found.weights[name], array)

    def test_fingerprints_tell_models_apart(self):
        def fingerprint(weights):
            return initial_model.InitialModel(weights, "").fingerprint

        changed = collections.OrderedDict(self.weights)
        changed["gate_bias"] = np.nextafter(self.weights["gate_bias"], np.float32(9))
        self.assertEqual(
            fingerprint(self.weights), initial_model.read(self.export()).fingerprint
        )
        self.assertNotEqual(fingerprint(self.weights), fingerprint(changed))

    def test_beginning(self):
        own = self.model.initial_weights(1)
        plain = initial_model.beginning(own, self.words, None, has_public_bias=False)
        self.assertIs(plain.weights, own)
        self.assertEqual((plain.public_data, plain.facts), ("", {}))
        path = str(self.export())
        warm = initial_model.beginning(own, self.words, path, has_public_bias=False)
        np.testing.assert_array_equal(
            warm.weights["projection"], self.weights["projection"]
        )
        digest = warm.facts["initial_model"]
        self.assertIn(path, warm.public_data)
        self.assertIn(digest[:16], warm.public_data)
        self.assertIn("not counted here", warm.public_data)
        words = vocabulary.Vocabulary.of_language(4)
        public = initial_model.beginning(own, words, None, has_public_bias=True)
        self.assertIn("bias", public.public_data)
        np.testing.assert_allclose(np.exp(public.weights["output_bias"]).sum(), 1, 1e-5)

    def test_refuses_what_does_not_fit(self):
        found = initial_model.read(self.export())
        first = self.model.initial_weights(1)
        with self.assertRaisesRegex(ValueError, "another voc.* --vocabulary to .*txt"):
            initial_model.check(found, first, vocabulary.Vocabulary(list("abcd")))
        larger = model.cifg_language_model(8, num_units=6, projection_size=4)
        with self.assertRaisesRegex(
            ValueError,
            r"kernel of --initial_model .* \(96, 15\), not the run's \(96, 18\)",
        ):
            initial_model.check(found, larger.initial_weights(1), self.words)
        found.weights["gate_bias"][2] = np.nan
        with self.assertRaisesRegex(ValueError, "gate_bias of --initial_model has val"):
            initial_model.check(found, first, self.words)

    def test_refuses_what_is_no_model(self):
        with self.assertRaisesRegex(ValueError, "holds no model"):
            initial_model.read(self.path)
        with self.assertRaisesRegex(ValueError, "has no weights"):
            initial_model.read(self.save_run({}))

    @parameterized.parameters("repeat-000000.npz", "checkpoint.jsonl", "facts.json")
    def test_refuses_a_damaged_checkpoint(self, name):
        path = self.save_run(self.weights)
        file = path / "simulator" / name
        file.write_bytes(file.read_bytes()[:-40])
        with self.assertRaisesRegex(ValueError, "run: the checkpoint cannot be read"):
            initial_model.read(path)

    def test_refuses_facts_of_another_program(self):
        path = self.save_run(self.weights)
        (path / "simulator" / "facts.json").write_text("{}")
        with self.assertRaisesRegex(ValueError, "cannot be read: KeyError"):
            initial_model.read(path)

    def test_refuses_a_damaged_export(self):
        path = self.export()
        (path / "saved_model.pb").write_bytes(b"x")
        with self.assertRaisesRegex(ValueError, "saved_model.pb cannot be read"):
            initial_model.read(path)


if __name__ == "__main__":
    absltest.main()
