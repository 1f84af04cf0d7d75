"""A custom next-word model: a function that makes a Keras model, by name.

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

from federated_hh.files import custom_parts
from federated_hh.randomness import streams
from training.models import custom_model_checks
from training.models import model as model_lib
from training.text import examples

_WHAT = (
    "a function of the number of tokens and the length of a sequence, which returns "
    "a tf.keras.Model"
)


def language_model(
    name: str,
    num_tokens: int,
    sequence_length: int,
    seed: int,
    *,
    option: str = "--model",
) -> model_lib.LanguageModel:
    """Returns the model that a custom function makes.

    Keras draws its first weights from the seed. The function is part of the model, so a
    run's code includes the user's.

    Args:
        name: The name of the function, as `module:function`.
        num_tokens: Size of the vocabulary with its special tokens.
        sequence_length: Tokens of a sequence.
        seed: The seed, at least 0.
        option: Option that names the function, for errors.

    Raises:
        ValueError: If there is no such function, it fails, or what it returns is no
            model that can be trained.
    """
    make = custom_parts.load_function(option, name, _WHAT)
    keras_model = _drawn_by_seed(
        functools.partial(
            _made, make, f"{option} is {name!r}", num_tokens, sequence_length
        ),
        seed,
    )
    try:
        keras = model_lib.from_keras_model(keras_model, num_tokens, sequence_length)
        first = functools.partial(_first_weights, make, keras.initial_weights(0))
        in_graphs = dataclasses.replace(keras, initial_weights=first)
        # A second time, as TFF's worker will, where errors are less clear.
        as_logits = _graph_of(in_graphs, sequence_length, _logits_of)
        as_gradients = _graph_of(in_graphs, sequence_length, _gradients_of)
        custom_model_checks.check_repeatable(as_gradients.definition)
        weights = [*keras.initial_weights(0).values()]
        of_graph = functools.partial(_imported, as_logits)
        custom_model_checks.check_logits(of_graph, weights, num_tokens, sequence_length)
    except (
        functional.KerasFunctionalModelError,
        AttributeError,  # of Keras, where an input is no output of a layer
        NotImplementedError,  # of Keras, where a layer does not know its shape
        TypeError,
        ValueError,
    ) as error:
        # Traced errors have whole stacks; the cause is in the last lines.
        what = str(error)
        if what.startswith("in user code:"):
            what = what.strip().splitlines()[-1].strip()
        if "_keras_history" in what:
            what += (
                ". Write operations between layers as layers, such as "
                "tf.keras.layers.Add()([x, y]) in place of x + y"
            )
        raise ValueError(f"{option} is {name!r}, which cannot train: {what}") from error
    return _OwnModel(
        num_tokens,
        first,
        functools.partial(_logits, in_graphs.logits, as_logits),
        as_gradients=as_gradients,
    )


def _made(
    make: Callable[[int, int], Any], named: str, num_tokens: int, sequence_length: int
) -> tf.keras.Model:
    keras_model = make(num_tokens, sequence_length)
    if not isinstance(keras_model, tf.keras.Model):
        raise ValueError(
            f"{named}, which returns a {type(keras_model).__name__}; it "
            f"has to be {_WHAT}"
        )
    return keras_model


def _drawn_by_seed(make: Callable[[], tf.keras.Model], seed: int) -> tf.keras.Model:
    """Returns a model whose weights a seed decides; leaves other generators alone."""
    before = random.getstate(), np.random.get_state()
    keras_seed = streams.generator(seed, "initial weights", "keras").integers(2**31)
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
    """Returns first weights; it holds `make`, so that code digests include it."""
    del make, seed  # they were drawn by the run's
    return collections.OrderedDict((n, array.copy()) for n, array in weights.items())


@dataclasses.dataclass(frozen=True)
class _Graph:
    """The computation of a model, as a graph.

    Attributes:
        definition: Its inputs are the weights `weight_0` ..., `tokens` and `targets`.
        num_outputs: Its outputs are `output_0` ...
    """

    definition: tf.compat.v1.GraphDef
    num_outputs: int

    def __call__(
        self,
        weights: Sequence[tf.Tensor],
        tokens: tf.Tensor,
        targets: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        """Returns the outputs."""
        # Only a graph's own tensors can be its inputs.
        named = {f"weight_{number}": weight for number, weight in enumerate(weights)}
        inputs = {name: tf.identity(weight) for name, weight in named.items()}
        inputs["tokens"] = tokens
        if targets is not None:
            inputs["targets"] = targets
        names = [f"output_{number}:0" for number in range(self.num_outputs)]
        return tf.graph_util.import_graph_def(self.definition, inputs, names)


@dataclasses.dataclass(frozen=True)
class _OwnModel(model_lib.LanguageModel):
    """TFF's conversion of a Keras model, which computes only in graphs.

    In functions outside of them, graphs that were made before are imported. No tape
    sees operations that are imported, so one has the gradient.

    Attributes:
        as_gradients: The gradient of a batch's mean loss.
    """

    as_gradients: _Graph = dataclasses.field(kw_only=True)

    def gradients(
        self, weights: model_lib.Weights, batch: examples.Batch
    ) -> list[tf.Tensor]:
        """Returns the gradient of a batch's mean loss over its positions."""
        if not _is_outside():
            return super().gradients(weights, batch)
        return self.as_gradients(weights, batch.inputs, batch.targets)


def _logits_of(
    own: model_lib.LanguageModel, weights: model_lib.Weights, batch: examples.Batch
) -> list[tf.Tensor]:
    return [own.logits(weights, batch.inputs)]


def _gradients_of(
    own: model_lib.LanguageModel, weights: model_lib.Weights, batch: examples.Batch
) -> list[tf.Tensor]:
    return own.gradients(weights, batch)


def _graph_of(
    own: model_lib.LanguageModel,
    sequence_length: int,
    compute: Callable[..., list[tf.Tensor]],
) -> _Graph:
    """Returns the computation of a model, its weights and a batch, as a graph."""
    with tf.Graph().as_default() as graph:
        weights = [
            tf.compat.v1.placeholder(tf.float32, array.shape, f"weight_{number}")
            for number, array in enumerate(own.initial_weights(0).values())
        ]
        shape = [None, sequence_length]
        batch = examples.Batch(
            tf.compat.v1.placeholder(tf.int32, shape, "tokens"),
            tf.compat.v1.placeholder(tf.int32, shape, "targets"),
        )
        outputs = compute(own, weights, batch)
        for number, output in enumerate(outputs):
            tf.identity(output, name=f"output_{number}")
    return _Graph(graph.as_graph_def(), len(outputs))


def _is_outside() -> bool:
    """Returns whether this is a function or eager, not one of TFF's graphs."""
    with tf.init_scope():
        return tf.executing_eagerly()


def _logits(
    in_graphs: Callable[[Sequence[tf.Tensor], tf.Tensor], tf.Tensor],
    graph: _Graph,
    weights: Sequence[tf.Tensor],
    tokens: tf.Tensor,
) -> tf.Tensor:
    """Returns a model's logits, in TFF's graphs as well as in functions outside."""
    if not _is_outside():
        return in_graphs(weights, tokens)
    return _imported(graph, weights, tokens)


def _imported(
    graph: _Graph, weights: Sequence[tf.Tensor], tokens: tf.Tensor
) -> tf.Tensor:
    [found] = graph(weights, tokens)
    return found
