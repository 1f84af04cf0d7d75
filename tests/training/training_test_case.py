"""Base of the tests of training: small models and populations, a plain client."""

import collections
import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from federated_hh.populations.columns import client_text
from federated_hh.runtime import runtime
from training.federated import client_update
from training.models import model
from training.text import examples

NUM_TOKENS = 12


def bigram_model(scale=1.0):
    """Returns a model whose logits are a row of a table."""

    def initial_weights(seed):
        random = np.random.default_rng(seed)
        table = random.normal(size=(NUM_TOKENS, NUM_TOKENS)).astype(np.float32)
        return collections.OrderedDict(table=table)

    def logits(weights, tokens):
        return scale * tf.gather(weights[0], tokens)

    return model.LanguageModel(NUM_TOKENS, initial_weights, logits)


def small_cifg(tied=False):
    size = 4 if tied else 3
    return model.cifg_language_model(
        NUM_TOKENS, num_units=5, projection_size=size, embedding_size=4, tied=tied
    )


def sequence(sentence, max_words):
    """Returns the inputs and targets of a sentence, without padding."""
    tokens = [2, *sentence, 3][: max_words + 1 + (len(sentence) <= max_words)]
    return tokens[:-1], tokens[1:]


def plain_delta(language_model, weights, sentences, limits, training):
    """Trains one client, sentence after sentence and without padding, in eager mode."""
    names, values = list(weights), [tf.constant(w) for w in weights.values()]
    used = sentences[: limits.max_sentences]
    for _ in range(training.num_epochs):
        for first in range(0, len(used), limits.batch_size):
            with tf.GradientTape() as tape:
                tape.watch(values)
                losses = []
                for sentence in used[first : first + limits.batch_size]:
                    inputs, targets = sequence(sentence, limits.max_words)
                    logits = language_model.logits(values, tf.constant([inputs]))
                    losses.append(
                        tf.nn.sparse_softmax_cross_entropy_with_logits(
                            tf.constant([targets]), logits
                        )[0]
                    )
                loss = tf.reduce_mean(tf.concat(losses, axis=0))
            gradients = tape.gradient(
                loss, values, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            values = [
                v - training.learning_rate * tf.convert_to_tensor(g)
                for v, g in zip(values, gradients, strict=True)
            ]
    return {
        name: value.numpy().astype(np.float64) - weights[name]
        for name, value in zip(names, values, strict=True)
    }


def norm_of(delta):
    return np.sqrt(sum(np.sum(np.square(part, dtype=float)) for part in delta.values()))


def random_clients(num_clients, seed, words=(4, NUM_TOKENS)):
    """Returns clients' sentences of random words and lengths."""
    random = np.random.default_rng(seed)
    return [
        [
            random.integers(*words, random.integers(1, 8)).tolist()
            for _ in range(random.integers(1, 9))
        ]
        for _ in range(num_clients)
    ]


class TrainingTestCase(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())
        cls.scratch = cls.enterClassContext(tempfile.TemporaryDirectory())

    def text(self, clients):
        parent = tempfile.mkdtemp(dir=self.scratch)
        return client_text.ClientText.from_rows(
            os.path.join(parent, "text"),
            [(str(i), sentences) for i, sentences in enumerate(clients)],
        )

    def rounds(self, language_model, clients, limits=None, training=None, **options):
        limits = limits or examples.ClientLimits(
            max_sentences=5, max_words=4, batch_size=2
        )
        return client_update.FederatedRounds(
            language_model,
            examples.MappedText(self.text(clients), limits),
            training or client_update.LocalTraining(0.5),
            **options,
        )
