"""Next-word models: the CIFG-LSTM of Hard et al. 2018, and any other one.

A model is two functions: its first weights, and from weights and tokens to logits.
Weights are plain arrays, so that they can be sent, clipped, noised and kept.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from federated_hh.options import checks
from federated_hh.randomness import streams
from federated_hh.runtime import compiled
from federated_hh.runtime.worker import startup
from training.models import cifg, evaluation, places
from training.text import examples

startup.load_generated_code()

Weights = Sequence[tf.Tensor]
FLOAT32 = "float32"


@dataclasses.dataclass(frozen=True)
class OverPlaces:
    """Scores and gradients of a model without padding, much faster than with it.

    Attributes:
        scores: Given weights and places, returns float32 [places, num_tokens]: the
            logits of the next token at each position.
        gradients: Given weights and places, at least one, returns the gradient of the
            cross entropy summed over the places: float32, of the weights' shapes.
    """

    scores: Callable[[Weights, places.Places], tf.Tensor]
    gradients: Callable[[Weights, places.Places], Sequence[tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """A model of the next token.

    Attributes:
        num_tokens: Size of the vocabulary with its special tokens.
        initial_weights: Given a seed (at least 0), returns the first weights by name:
            float32 arrays.
        logits: Given weights in that order and tokens (int32, [batch, time]), returns
            float32 [batch, time, num_tokens]: for each position, the logits of the next
            token. It must not use later positions.
        over_places: The same without padding; None to use TensorFlow's gradient of
            `logits`.
        precision: Type of factors and results of products with the output embedding,
            in training.
    """

    num_tokens: int
    initial_weights: Callable[[int], collections.OrderedDict[str, np.ndarray]]
    logits: Callable[[Weights, tf.Tensor], tf.Tensor]
    over_places: OverPlaces | None = None
    precision: str = FLOAT32

    def gradients(self, weights: Weights, batch: examples.Batch) -> list[tf.Tensor]:
        """Returns the gradient of a batch's mean loss over its positions.

        Args:
            weights: The weights of the model.
            batch: A batch of at least one sentence.

        Returns:
            float32, of the shapes of the weights.
        """
        # Shapes of what is left without padding depend on the sentences: not for XLA.
        if self.over_places is not None and not compiled.is_on():
            found = places.of_batch(*batch)
            share = 1.0 / tf.cast(tf.size(found.targets), tf.float32)
            return [share * part for part in self.over_places.gradients(weights, found)]
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits = self.logits(weights, batch.inputs)
            loss = evaluation.mean_loss(logits, batch.targets)
        gradients = tape.gradient(
            loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def scores(
        self, weights: Weights, batch: examples.Batch
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a batch's logits, and the targets that they are for.

        Args:
            weights: The weights of the model.
            batch: A batch of at least one sentence.

        Returns:
            float32 [..., num_tokens] and int32 [...], with or without padding.
        """
        if self.over_places is not None:
            found = places.of_batch(*batch)
            return self.over_places.scores(weights, found), found.targets
        return self.logits(weights, batch.inputs), batch.targets

    def arithmetic(self) -> dict[str, str]:
        """Returns what decides the bits of a gradient, where it is not the default."""
        return {} if self.precision == FLOAT32 else {"precision": self.precision}

    def num_parameters(self) -> int:
        """Returns the number of parameters."""
        return sum(weight.size for weight in self.initial_weights(0).values())


def cifg_shapes(
    num_tokens: int,
    num_units: int,
    projection_size: int,
    embedding_size: int,
    tied: bool = False,
) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the weights of `cifg_language_model`, by name."""
    shapes = {
        "input_embedding": (num_tokens, embedding_size),
        "input_kernel": (embedding_size, 3 * num_units),
        "recurrent_kernel": (projection_size, 3 * num_units),
        "gate_bias": (3 * num_units,),
        "projection": (num_units, projection_size),
        "output_embedding": (num_tokens, projection_size),
        "output_bias": (num_tokens,),
    }
    if tied:
        del shapes["output_embedding"]
    return shapes


def cifg_language_model(
    num_tokens: int,
    *,
    num_units: int = 670,
    projection_size: int = 96,
    embedding_size: int = 96,
    tied: bool = False,
    precision: str = FLOAT32,
) -> LanguageModel:
    """Returns the one-layer CIFG-LSTM of Gboard (Hard et al. 2018, Section 3).

    CIFG couples the input gate to the forget gate: i = 1 - f. The cell's output is
    projected, and scored against an output embedding: its own, or with `tied` the
    input's (Press and Wolf 2017). Xu et al. 2023, Section 2.3, advise against the
    latter.

    Args:
        num_tokens: Size of the vocabulary with its special tokens, at least 5.
        num_units: Memory cells, at least 1.
        projection_size: The size of the cell's output, and of the output
            embeddings; at least 1.
        embedding_size: The size of the input embeddings, at least 1.
        tied: Whether the output embedding is the input's.
        precision: See `LanguageModel`.

    Returns:
        The model: (embedding_size + projection_size + 1) * num_tokens parameters in
        embeddings and output bias, projection_size * num_tokens fewer if tied, and
        3 * num_units * (embedding_size + projection_size + 1)
        + num_units * projection_size in the cell.

    Raises:
        ValueError: If a size is out of range, or tied embeddings have two sizes.
    """
    checks.integer(least=5, num_tokens=num_tokens)
    checks.integer(
        least=1,
        num_units=num_units,
        projection_size=projection_size,
        embedding_size=embedding_size,
    )
    if tied and projection_size != embedding_size:
        raise ValueError(
            f"projection_size is {projection_size}; with tied embeddings it has to be "
            f"embedding_size, {embedding_size}"
        )
    sizes = num_units, projection_size, embedding_size
    shapes = cifg_shapes(num_tokens, *sizes, tied=tied)
    scores, gradients = cifg.scores, cifg.gradients
    if tied:
        scores, gradients = cifg.tied_scores, cifg.tied_gradients
    factors = tf.dtypes.as_dtype(precision)
    over_places = OverPlaces(scores, functools.partial(gradients, factors=factors))

    def initial_weights(seed: int) -> collections.OrderedDict[str, np.ndarray]:
        weights = collections.OrderedDict()
        for name, shape in shapes.items():
            if len(shape) == 1:
                weights[name] = np.zeros(shape, np.float32)
                continue
            # Glorot's range for matrices; an embedding's row is picked by one input.
            fan_in = 1 if name.endswith("embedding") else shape[0]
            limit = np.sqrt(6 / (fan_in + shape[1]))
            random = streams.generator(seed, "initial weights", name)
            weights[name] = random.uniform(-limit, limit, shape).astype(np.float32)
        weights["gate_bias"][:num_units] = 1  # remember at first
        return weights

    def logits(weights: Weights, tokens: tf.Tensor) -> tf.Tensor:
        batch, time = tf.shape(tokens)[0], tokens.shape[1]
        everywhere = places.Places(
            tf.reshape(tf.transpose(tokens), [-1]), None, tf.fill([time], batch)
        )
        scores = over_places.scores(weights, everywhere)
        return tf.transpose(tf.reshape(scores, [time, batch, num_tokens]), [1, 0, 2])

    return LanguageModel(num_tokens, initial_weights, logits, over_places, precision)


def from_functional_model(
    functional_model: tff.learning.models.FunctionalModel, num_tokens: int
) -> LanguageModel:
    """Returns a user's functional model as a language model.

    Args:
        functional_model: Its `predict_on_batch` takes int32 tokens [batch, time] and
            returns the logits of the tokens that follow. Its own loss and metrics are
            not used, because they may treat padding differently. Layers such as dropout
            act in training as in prediction: a client draws no random numbers that a
            resumed run could not reproduce.
        num_tokens: Size of the vocabulary with its special tokens.

    Raises:
        ValueError: If it has weights that are not trainable, or not float32.
    """
    trainable, fixed = functional_model.initial_weights
    if len(fixed):
        raise ValueError(
            f"functional_model has {len(fixed)} weights that are not trainable; every "
            "weight has to be, because the server learns only from clients' updates."
        )
    trainable = [np.asarray(weight) for weight in trainable]
    for number, weight in enumerate(trainable):
        if weight.dtype != np.float32:
            raise ValueError(
                f"functional_model: weight {number} is {weight.dtype}; it has to be "
                "float32."
            )

    def initial_weights(seed: int) -> collections.OrderedDict[str, np.ndarray]:
        del seed  # they belong to the model
        names = (f"weight_{number}" for number in range(len(trainable)))
        return collections.OrderedDict(zip(names, trainable, strict=True))

    def logits(weights: Weights, tokens: tf.Tensor) -> tf.Tensor:
        return functional_model.predict_on_batch(
            (tuple(weights), ()), tokens, training=False
        )

    return LanguageModel(num_tokens, initial_weights, logits)


def from_keras_model(
    keras_model: tf.keras.Model, num_tokens: int, sequence_length: int
) -> LanguageModel:
    """Returns a user's Keras model as a language model.

    TFF's conversion rebuilds the model in its own graph. After that, Keras cannot call
    earlier models outside TFF any more.

    Args:
        keras_model: From int32 tokens [batch, time] to the logits of the tokens that
            follow, [batch, time, num_tokens]; not compiled, without weights that are
            not trainable, and without its own losses.
        num_tokens: Size of the vocabulary with its special tokens.
        sequence_length: Tokens of a sequence, at least 1.

    Raises:
        ValueError: If the model's output has another shape, or it has its own losses;
            see also `from_functional_model`.
        KerasFunctionalModelError: From TFF, if it has layers that TFF does not support.
    """
    if any(type(layer).__name__.endswith("OpLambda") for layer in keras_model.layers):
        # Keras computes no shape for a layer made from `x + y`.
        shape = (1, *keras_model.output_shape[1:])
    else:
        shape = keras_model.compute_output_shape((1, sequence_length))
    if tuple(shape) != (1, sequence_length, num_tokens):
        raise ValueError(
            f"keras_model has outputs of the shape {tuple(shape)}; it has to be "
            f"(1, {sequence_length}, {num_tokens})."
        )
    if keras_model.losses:
        raise ValueError(
            "keras_model has its own losses, such as a regularizer's, which training "
            "would ignore; build it without them."
        )
    functional_model = tff.learning.models.functional_model_from_keras(
        keras_model,
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=(
            tf.TensorSpec([None, sequence_length], tf.int32),
            tf.TensorSpec([None, sequence_length], tf.int32),
        ),
    )
    return from_functional_model(functional_model, num_tokens)
