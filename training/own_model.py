"""A next-word model of a user's own: a function that makes a Keras model, by name.

    def make(num_tokens: int, sequence_length: int) -> tf.keras.Model

From int32 tokens [batch, sequence_length] to the logits of the tokens that follow,
[batch, sequence_length, num_tokens]; see `model.from_keras_model`.
"""

import collections
import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_federated.python.learning.models import functional

from randomness import seeds
from simulation import own_parts
from training import model as model_lib

_WHAT = (
    "a function of the number of tokens and the length of a sequence, which returns "
    "a tf.keras.Model"
)


def language_model(
    name: str, num_tokens: int, sequence_length: int, seed: int
) -> model_lib.LanguageModel:
    """Returns the model that a function of a user's makes.

    Its first weights are those that Keras draws, by the seed. Its function is part of
    it, so that a run's code includes the user's.

    Args:
        name: The name of the function, as `module:function`.
        num_tokens: Size of the vocabulary with its special tokens.
        sequence_length: Tokens of a sequence.
        seed: At least 0.

    Raises:
        ValueError: If there is no such function, it fails, or what it returns is no
            model that can be trained.
    """
    make = own_parts.load_function("--model", name, _WHAT)
    keras_model = _drawn_by_seed(
        functools.partial(_made, make, name, num_tokens, sequence_length), seed
    )
    try:
        own = model_lib.from_keras_model(keras_model, num_tokens, sequence_length)
        # Another time, as TFF's worker will: what fails there says less.
        graph = _graph_of(own, sequence_length)
    except (functional.KerasFunctionalModelError, ValueError, TypeError) as error:
        raise ValueError(f"--model is {name!r}, which cannot train: {error}") from error
    return dataclasses.replace(
        own,
        initial_weights=functools.partial(_first_weights, make, own.initial_weights(0)),
        logits=functools.partial(_logits, own.logits, graph),
    )


def _made(
    make: Callable[[int, int], Any], name: str, num_tokens: int, sequence_length: int
) -> tf.keras.Model:
    try:
        keras_model = make(num_tokens, sequence_length)
    except Exception as error:  # of whatever a user's function raises
        raise ValueError(
            f"--model is {name!r}, which fails with {num_tokens} tokens and sequences "
            f"of {sequence_length}: {error!r}"
        ) from error
    if not isinstance(keras_model, tf.keras.Model):
        raise ValueError(
            f"--model is {name!r}, which returns a {type(keras_model).__name__}; it "
            f"has to be {_WHAT}"
        )
    return keras_model


def _drawn_by_seed(make: Callable[[], tf.keras.Model], seed: int) -> tf.keras.Model:
    """Returns a model whose weights a seed decides; leaves other generators alone."""
    before = random.getstate(), np.random.get_state()
    keras_seed = seeds.generator(seed, "initial weights", "keras").integers(2**31)
    tf.keras.utils.set_random_seed(int(keras_seed))
    try:
        # TensorFlow that was imported after absl's `app.run` does not know that it is
        # eager outside of functions; Keras asks.
        with tf.__internal__.eager_context.eager_mode():
            return make()
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def _first_weights(
    make: Callable[[int, int], Any],
    weights: collections.OrderedDict[str, np.ndarray],
    seed: int,
) -> collections.OrderedDict[str, np.ndarray]:
    """Returns first weights; `make` is held for who asks what they are made by."""
    del make, seed  # they were drawn by the run's
    return collections.OrderedDict((n, array.copy()) for n, array in weights.items())


@dataclasses.dataclass(frozen=True)
class _Graph:
    """A model as a graph: inputs are its weights `weight_0` ..., and `tokens`."""

    definition: tf.compat.v1.GraphDef
    num_weights: int


def _graph_of(own: model_lib.LanguageModel, sequence_length: int) -> _Graph:
    """Returns a model's graph; TFF's conversion of Keras computes in graphs alone."""
    first = own.initial_weights(0).values()
    with tf.Graph().as_default() as graph:
        weights = [
            tf.compat.v1.placeholder(tf.float32, array.shape, f"weight_{number}")
            for number, array in enumerate(first)
        ]
        shape = [None, sequence_length]
        tokens = tf.compat.v1.placeholder(tf.int32, shape, "tokens")
        tf.identity(own.logits(weights, tokens), name="logits")
    return _Graph(graph.as_graph_def(), len(weights))


def _logits(
    in_graphs: Callable[[Sequence[tf.Tensor], tf.Tensor], tf.Tensor],
    graph: _Graph,
    weights: Sequence[tf.Tensor],
    tokens: tf.Tensor,
) -> tf.Tensor:
    """Returns a model's logits, in TFF's graphs as well as in functions outside."""
    with tf.init_scope():
        is_outside = tf.executing_eagerly()
    if not is_outside:
        return in_graphs(weights, tokens)
    inputs = {f"weight_{number}": weight for number, weight in enumerate(weights)}
    (found,) = tf.graph_util.import_graph_def(
        graph.definition, inputs | {"tokens": tokens}, ["logits:0"]
    )
    return found
