"""Tests of models of a user's own: what a run does with them, and what it refuses."""

import importlib
import json
import pathlib
import re
import shutil
import sys
from unittest import mock

import numpy as np
import pandas as pd
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.files import software
from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.dp_ftrl import update_noise
from federated_hh.randomness import noise_keys
from federated_hh.reports import plots
from federated_hh.rounds import checkpoints, experiment, timers
from tests import ROOT, forked_programs
from tests.training import training_test_case as common
from training.federated import initial_model, preparation, server_optimizers
from training.federated import options as training_options
from training.keyboard import model as keyboard_model
from training.models import custom_model
from training.text import examples

_WORDS = vocabulary_lib.Vocabulary(list("abcdefgh"))  # 12 tokens
_BAD = """
import tensorflow as tf
number = 3
def fails(num_tokens, sequence_length):
    raise KeyError("of mine")
def no_model(num_tokens, sequence_length):
    return [num_tokens]
def other_size(num_tokens, sequence_length):
    return tf.keras.Sequential([
        tf.keras.layers.InputLayer([sequence_length], dtype=tf.int32),
        tf.keras.layers.Embedding(num_tokens, num_tokens + 1)])
def normalized(num_tokens, sequence_length):
    return tf.keras.Sequential([
        tf.keras.layers.InputLayer([sequence_length], dtype=tf.int32),
        tf.keras.layers.Embedding(num_tokens, num_tokens),
        tf.keras.layers.BatchNormalization()])
def of(num_tokens, sequence_length, layer):
    inputs = tf.keras.Input([sequence_length], dtype=tf.int32)
    inner = layer(tf.keras.layers.Embedding(num_tokens, 8)(inputs))
    # Zeros at first, behind which nothing is seen.
    last = tf.keras.layers.Dense(num_tokens, kernel_initializer="zeros")
    return tf.keras.Model(inputs, last(inner))
def both_ways(num_tokens, sequence_length):
    gru = tf.keras.layers.GRU(3, return_sequences=True)
    return of(num_tokens, sequence_length, tf.keras.layers.Bidirectional(gru))
def one_ahead(num_tokens, sequence_length):
    layer = tf.keras.layers.Conv1D(3, 3, padding="same")
    return of(num_tokens, sequence_length, layer)
def convolution(num_tokens, sequence_length):
    layer = tf.keras.layers.Conv1D(3, 3, padding="causal")
    return of(num_tokens, sequence_length, layer)
def residual(num_tokens, sequence_length):
    layer = tf.keras.layers.Conv1D(8, 3, padding="causal")
    return of(num_tokens, sequence_length, lambda x: tf.nn.relu(x + layer(x)))
def residual_of_other_size(num_tokens, sequence_length):
    return residual(num_tokens + 1, sequence_length)
class Noise(tf.keras.layers.Layer):
    def call(self, inner):
        return inner + tf.random.normal([8])
def noisy(num_tokens, sequence_length):
    return of(num_tokens, sequence_length, Noise())
def dropping(num_tokens, sequence_length):
    dropout = tf.keras.layers.Dropout(0.5)
    return of(num_tokens, sequence_length, lambda inner: dropout(inner, training=True))
class Mask(tf.keras.layers.Layer):
    def __init__(self, value, **kwargs):
        super().__init__(**kwargs)
        self._value = value
    def get_config(self):
        return super().get_config() | {"value": self._value}
    def call(self, logits):
        is_first = tf.equal(tf.range(tf.shape(logits)[-1]), 0)
        return tf.where(is_first, logits + self._value, logits)
def masked(num_tokens, sequence_length, padding, value):
    inputs = tf.keras.Input([sequence_length], dtype=tf.int32)
    layer = tf.keras.layers.Conv1D(3, 3, padding=padding)
    inner = layer(tf.keras.layers.Embedding(num_tokens, 8)(inputs))
    logits = tf.keras.layers.Dense(num_tokens)(inner)
    return tf.keras.Model(inputs, Mask(value)(logits))
class NoConfig(tf.keras.layers.Layer):
    def __init__(self, value):
        super().__init__()
def no_config(num_tokens, sequence_length):
    return of(num_tokens, sequence_length, NoConfig(1.0))
def eager(num_tokens, sequence_length):
    inputs = tf.keras.Input([sequence_length], dtype=tf.int32)
    logits = tf.keras.layers.Embedding(num_tokens, num_tokens)(inputs)
    mask = tf.zeros([1, sequence_length, num_tokens])
    return tf.keras.Model(inputs, tf.keras.layers.Add()([logits, mask]))
def ahead_and_masked_by_much(num_tokens, sequence_length):
    return masked(num_tokens, sequence_length, "same", -1e9)
def ahead_and_masked_whole(num_tokens, sequence_length):
    return masked(num_tokens, sequence_length, "same", float("-inf"))
def back_and_masked_by_much(num_tokens, sequence_length):
    return masked(num_tokens, sequence_length, "causal", -1e9)
def back_and_masked_whole(num_tokens, sequence_length):
    return masked(num_tokens, sequence_length, "causal", float("-inf"))
def no_numbers(num_tokens, sequence_length):
    return masked(num_tokens, sequence_length, "causal", float("nan"))
def probabilities(num_tokens, sequence_length):
    model = convolution(num_tokens, sequence_length)
    return tf.keras.Model(model.input, tf.keras.layers.Softmax()(model.output))
def regularized(num_tokens, sequence_length):
    layer = tf.keras.layers.Dense(3, kernel_regularizer="l2")
    return of(num_tokens, sequence_length, layer)
"""


def guide_example():
    """Returns the model of the guide's section, smaller."""
    guide = (ROOT / "docs/guide/custom_model.md").read_text()
    (code,) = re.findall(r"```python\n([^`]*def gru\([^`]*)```", guide)
    return code.replace(", 32)", ", 4)").replace("64,", "6,")


def gru_by_hand(weights, tokens):
    """Returns logits; Keras has a second bias, behind the recurrent product."""
    embedding, kernel, recurrent, bias, output, output_bias = map(np.float64, weights)
    size = recurrent.shape[0]
    hidden, logits = np.zeros((len(tokens), size)), []
    for time in range(tokens.shape[1]):
        inner = embedding[tokens[:, time]] @ kernel + bias[0]
        past = hidden @ recurrent + bias[1]
        update, reset = np.split(
            1 / (1 + np.exp(-inner - past))[:, : 2 * size], 2, axis=1
        )
        new = np.tanh(inner[:, 2 * size :] + reset * past[:, 2 * size :])
        hidden = update * hidden + (1 - update) * new
        logits.append(hidden @ output + output_bias)
    return np.stack(logits, axis=1)


class CustomModelTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        (self.scratch / "gru_model.py").write_text(guide_example())
        (self.scratch / "bad_models.py").write_text(_BAD)
        sys.path.insert(0, str(self.scratch))
        self.addCleanup(sys.path.remove, str(self.scratch))
        for name in ("gru_model", "bad_models"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()

    def test_logits_outside_of_graphs_are_those_of_keras(self):
        own = custom_model.language_model("gru_model:gru", 12, 5, seed=1)
        weights = list(own.initial_weights(0).values())
        tokens = np.arange(10, dtype=np.int32).reshape(2, 5) % 12
        found = tf.function(own.logits)(weights, tokens).numpy()
        np.testing.assert_allclose(found, gru_by_hand(weights, tokens), atol=1e-5)

    def test_gradients_outside_of_graphs_are_those_of_the_equations(self):
        own = custom_model.language_model("gru_model:gru", 12, 5, seed=1)
        weights = list(own.initial_weights(0).values())
        tokens = np.arange(10, dtype=np.int32).reshape(2, 5) % 12
        targets = np.array([[5, 6, 7, 0, 0], [1, 2, 3, 4, 5]], np.int32)

        def loss(weights):
            logits = gru_by_hand(weights, tokens)
            laws = np.log(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True))
            of_targets = np.take_along_axis(laws, targets[..., np.newaxis], -1)[..., 0]
            return -of_targets[targets != 0].mean()  # 0 is padding

        batch = examples.Batch(tf.constant(tokens), tf.constant(targets))
        found = tf.function(own.gradients)([tf.constant(w) for w in weights], batch)
        for number, part in enumerate(weights):
            for place in ((0,) * part.ndim, (-1,) * part.ndim):
                sides = []
                for step in (1e-5, -1e-5):
                    moved = [np.float64(array) for array in weights]
                    moved[number][place] += step
                    sides.append(loss(moved))
                expected = (sides[0] - sides[1]) / 2e-5
                self.assertAlmostEqual(float(found[number][place]), expected, places=4)
        self.assertGreater(max(float(tf.norm(part)) for part in found), 0.1)

    def test_function_that_fails(self):
        # A program tells flag, file and line: see `custom_parts.failure`.
        with self.assertRaises(KeyError):
            custom_model.language_model("bad_models:fails", 12, 5, 0)

    def test_first_weights_follow_from_the_seed(self):
        np.random.seed(7)
        state = np.random.get_state()[1].copy()

        def first(seed):
            own = custom_model.language_model("gru_model:gru", 12, 5, seed)
            return own.initial_weights(3)["weight_0"]

        one = first(1)
        np.testing.assert_array_equal(first(1), one)
        self.assertGreater(np.abs(first(2) - one).max(), 1e-3)
        np.testing.assert_array_equal(np.random.get_state()[1], state)

    @parameterized.parameters(
        ("nowhere:gru", "to be module:function of a function of the number of tokens"),
        ("gru_model:lstm", "has no attribute 'lstm'"),
        ("bad_models:number", "which is a int; it has to be a function"),
        ("bad_models:no_model", "which returns a list; it has to be"),
        ("bad_models:other_size", r"shape \(1, 5, 13\); it has to be \(1, 5, 12\)"),
        ("bad_models:normalized", "which cannot train: .*batch normalization"),
        (
            "bad_models:both_ways",
            "cannot train: its logits .* depend on later positions",
        ),
        (
            "bad_models:one_ahead",
            "cannot train: its logits .* depend on later positions",
        ),
        ("bad_models:ahead_and_masked_by_much", "depend on later positions"),
        ("bad_models:ahead_and_masked_whole", "depend on later positions"),
        ("bad_models:no_numbers", "cannot train: its logits are infinite or NaN"),
        ("bad_models:probabilities", "cannot train: its outputs are probabilities"),
        ("bad_models:regularized", "cannot train: .*has its own losses"),
        (
            "bad_models:eager",
            "cannot train: .*no attribute '_keras_history'.*layers.Add",
        ),
        ("bad_models:no_config", "cannot train: NotImplementedError: Layers with"),
        ("bad_models:residual_of_other_size", r"shape \(1, 5, 13\); it has to be"),
        ("bad_models:noisy", "cannot train: it draws random .* Random"),
        ("bad_models:dropping", "cannot train: it draws random .* Random"),
    )
    def test_what_is_no_model(self, name, regex):
        with self.assertRaisesRegex(ValueError, f"^--model is '{name}'.*{regex}"):
            custom_model.language_model(name, 12, 5, seed=1)

    @parameterized.product(
        name=(
            "convolution",
            "residual",
            "back_and_masked_whole",
            "back_and_masked_by_much",
        ),
        sequence_length=(1, 2, 5),
    )
    def test_what_looks_back_alone(self, name, sequence_length):
        name = f"bad_models:{name}"
        own = custom_model.language_model(name, 12, sequence_length, seed=1)
        self.assertEqual(own.num_tokens, 12)

    def algorithm(self, seed=1, **options):
        text = client_text.ClientText.from_rows(
            self.create_tempdir().full_path + "/text",
            [(str(i), c) for i, c in enumerate(common.random_clients(14, seed=1))],
        )
        values = training_options.TrainingOptions(
            model="gru_model:gru",
            cohort_size=3,
            clip_norm=0.5,
            max_words=4,
            num_held_out_clients=2,
            num_blocks=1,
            **options,
        )
        prepared = preparation.prepare(values, _WORDS, text, seed)
        plan = training_plan.plan_of(
            timers.Timers(num_clients=12, cohort_size=3, num_rounds=2, timer_hours=0),
            update_noise.TreeNoise(num_rounds=2, clip_norm=0.5, noise_multiplier=1.0),
        )
        return prepared.algorithm(plan, server_optimizers.Sgdm())

    def test_a_run_goes_on_to_the_same_weights(self):
        def stop(observed):
            if observed.number == 2:
                raise KeyboardInterrupt
            return {}

        # No picture is compared.
        self.enter_context(mock.patch.object(plots, "png", return_value=b"a picture"))
        algorithm = self.algorithm()
        whole, cut = (str(self.scratch / name) for name in ("whole", "cut"))
        key = {"seed": 1, "noise_key": noise_keys.NoiseKey.of_seed(1)}
        done = experiment.run_experiment(algorithm, whole, **key)
        with self.assertRaises(KeyboardInterrupt):
            experiment.run_experiment(algorithm, cut, observers=[stop], **key)
        # As of another process: the model is made again.
        again = experiment.run_experiment(self.algorithm(), cut, seed=1, resume=True)
        found, expected = (one.outcome.states[0].weights for one in (again, done))
        self.assertEqual(checkpoints.digest(found), checkpoints.digest(expected))
        first = algorithm.initialize(0).weights
        self.assertNotEqual(checkpoints.digest(first), checkpoints.digest(expected))

    def test_its_code_is_the_runs(self):
        digest = software.custom_digest([self.algorithm()])
        self.assertEqual(software.custom_digest([self.algorithm()]), digest)
        with open(self.scratch / "gru_model.py", "a") as file:
            file.write("# another\n")
        self.assertNotEqual(software.custom_digest([self.algorithm()]), digest)

    def test_the_program(self):
        # The example of the guide, as it says: trained on public text, then by a run
        # that begins with it; another run begins with that one.
        out, public = self.scratch / "out", self.scratch / "public"
        for user, words in (("p", "the way of all"), ("u", "you see the time like we")):
            lines = [f"{user}{number},{words} do\n" for number in range(20)]
            (self.scratch / f"{user}.csv").write_text("user,text\n" + "".join(lines))
        flags = (
            *("--model=gru_model:gru", "--vocabulary_size=50"),
            *("--num_held_out_clients=4", f"--population_cache={self.scratch}/cache"),
        )
        path = {"PYTHONPATH": f"{ROOT}:{self.scratch}"}
        done = forked_programs.run(
            "training.pretrain",
            *flags,
            *(f"--population={self.scratch}/p.csv", f"--output_dir={public}"),
            *("--num_steps=30", "--batch_size=4", "--learning_rate=0.05"),
            environment=path,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        log_loss = pd.read_csv(public / "simulator" / "metrics.csv")["held_out_loss"]
        self.assertLess(log_loss.iloc[-1], 1)  # one sentence, again and again
        begun = initial_model.read(public).fingerprint
        done = forked_programs.run(
            "training.run_training",
            *flags,
            *("--num_rounds=2", "--noise_multiplier=0.5", "--cohort_size=4"),
            "--allow_useless_noise",
            *("--clip_norm=0.5", "--nodiurnal", "--timer_hours=0", "--num_blocks=1"),
            *(f"--population={self.scratch}/u.csv", f"--output_dir={out}"),
            f"--initial_model={public}",
            environment=path,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads((out / "simulator" / "facts.json").read_text())
        self.assertEqual(facts["initial_model"], begun)
        name = "gru_model:gru"
        command = f"predict_next_word --model={out} --custom_models={name} "
        self.assertIn(command, done.stdout)
        exported = initial_model.read(out / "model")
        kept = initial_model.read(out)
        self.assertEqual(exported.fingerprint, kept.fingerprint)
        # What the exported model says is what the equations say.
        words = vocabulary_lib.Vocabulary.of_language(50)
        token = words.encode(["you"])[0]
        logits = gru_by_hand(exported.weights.values(), np.array([[2, token]]))[0, 1]
        expected = np.exp(logits) / np.exp(logits).sum()
        with self.assertRaisesRegex(ValueError, f"Add --custom_models={name}"):
            keyboard_model.read(out)
        whole = keyboard_model.read(out, [name]).suggest("you", 5)
        for word, share in whole:
            self.assertAlmostEqual(share, expected[words.encode([word])[0]], places=5)
        # Of a run that is not finished the checkpoint is taken.
        shutil.rmtree(out / "model")
        self.assertEqual(keyboard_model.read(out, [name]).suggest("you", 5), whole)
        own = custom_model.language_model("gru_model:gru", 54, 21, seed=2)
        beginning = initial_model.beginning(
            own.initial_weights(0), words, str(out), has_public_bias=False
        )
        self.assertEqual(beginning.facts["initial_model"], exported.fingerprint)


if __name__ == "__main__":
    absltest.main()
