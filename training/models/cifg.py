"""Gboard's CIFG-LSTM over a batch's positions without padding, and its gradient.

Nothing is computed after a sentence's end. Sentences are sorted by length, longest
first. At each step the unfinished ones are the first ones, and the positions of all
steps, one step after another, are the rows of matrices (`places.Places`). Input, output
and softmax are then one product per batch; only the recurrent part is computed step by
step. The gradient is written out, because that joins the products of all steps, needs
no loss, and never builds the one-hot targets; it is TensorFlow's of `scores` up to
float rounding.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from training.models.places import Places

# By the order of `model.cifg_language_model`'s weights.
Weights = Sequence[tf.Tensor]


class _Steps(NamedTuple):
    """The results of a batch's steps, a tensor a step, of the unfinished sentences.

    Attributes:
        before: The memory cells that each step began with: [rows, units].
        gates: Forget gate and output gate: [rows, 2 * units].
        new: The step's candidate cells: [rows, units].
        seen: tanh of the memory cells after it: [rows, units].
        hidden: Its output: [rows, projection].
    """

    before: list[tf.Tensor]
    gates: list[tf.Tensor]
    new: list[tf.Tensor]
    seen: list[tf.Tensor]
    hidden: list[tf.Tensor]


def _run(weights: Weights, inputs: tf.Tensor, counts: tf.Tensor) -> _Steps:
    """Returns the steps of a batch.

    Args:
        weights: The weights of the model.
        inputs: float32 [places, embedding], the input embeddings.
        counts: See `Places`.
    """
    _, kernel, recurrent, bias, projection, _, _ = weights
    units = projection.shape[0]
    arriving = tf.split(
        tf.matmul(inputs, kernel) + bias, counts, axis=0, num=counts.shape[0]
    )
    cell = tf.zeros([counts[0], units])
    steps = _Steps([], [], [], [], [])
    for number, gates in enumerate(arriving):
        if number:
            hidden = steps.hidden[-1][: counts[number]]
            gates += tf.matmul(hidden, recurrent)
            cell = cell[: counts[number]]
        steps.before.append(cell)
        opened = tf.sigmoid(gates[:, : 2 * units])
        new = tf.tanh(gates[:, 2 * units :])
        cell = new + opened[:, :units] * (cell - new)
        seen = tf.tanh(cell)
        steps.gates.append(opened)
        steps.new.append(new)
        steps.seen.append(seen)
        steps.hidden.append(tf.matmul(opened[:, units:] * seen, projection))
    return steps


def _output(weights: Weights) -> tf.Tensor:
    """Returns output embeddings and biases: [num_tokens, projection + 1]."""
    *_, output, bias = weights
    return tf.concat([output, bias[:, tf.newaxis]], axis=1)


def _with_one(hidden: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the outputs of all steps, and a one for the bias."""
    rows = tf.concat(hidden, axis=0)
    return tf.pad(rows, [[0, 0], [0, 1]], constant_values=1.0)


def scores(weights: Weights, places: Places) -> tf.Tensor:
    """Returns the logits of the next token at each position.

    Args:
        weights: The weights of the model.
        places: The places of a batch.

    Returns:
        float32 [places, num_tokens].
    """
    steps = _run(weights, tf.gather(weights[0], places.tokens), places.counts)
    return tf.matmul(_with_one(steps.hidden), _output(weights), transpose_b=True)


def _product(
    one: tf.Tensor, other: tf.Tensor, factors: tf.DType, **transposed: bool
) -> tf.Tensor:
    """Returns a product; factors and result are rounded to a type: float32."""
    found = tf.matmul(tf.cast(one, factors), tf.cast(other, factors), **transposed)
    return tf.cast(found, tf.float32)


def gradients(
    weights: Weights, places: Places, factors: tf.DType = tf.float32
) -> list[tf.Tensor]:
    """Returns the gradient of the cross entropy, summed over places.

    Args:
        weights: The weights of the model.
        places: The places of a batch, at least one.
        factors: Type of factors and results of the three products with the output
            embedding, which most of the time is for.

    Returns:
        float32, of the shapes of the weights.
    """
    embedding, kernel, recurrent, _, projection, output, _ = weights
    num_tokens = output.shape[0]
    inputs = tf.gather(embedding, places.tokens)
    steps = _run(weights, inputs, places.counts)

    # The softmax's gradient is the probabilities, less 1 at the target: where one-hot
    # rows would be multiplied, rows of the targets are added or picked.
    hidden = _with_one(steps.hidden)
    joined = _output(weights)
    probabilities = tf.nn.softmax(_product(hidden, joined, factors, transpose_b=True))
    to_output = tf.transpose(_product(hidden, probabilities, factors, transpose_a=True))
    to_output -= tf.math.unsorted_segment_sum(hidden, places.targets, num_tokens)
    to_hidden = _product(probabilities, output, factors)
    to_hidden -= tf.gather(output, places.targets)

    before, opened, new, seen = (tf.concat(part, axis=0) for part in steps[:4])
    forget, out = tf.split(opened, 2, axis=1)
    to_gates, to_hidden = _backwards(
        places.counts,
        to_hidden,
        _Factors(before, forget, out, new, seen),
        projection,
        recurrent,
    )
    previous = [
        rows[:count]
        for rows, count in zip(
            steps.hidden, tf.unstack(places.counts)[1:], strict=False
        )
    ]
    later = to_gates[places.counts[0] :]
    to_inputs = tf.matmul(to_gates, kernel, transpose_b=True)
    return [
        tf.math.unsorted_segment_sum(to_inputs, places.tokens, num_tokens),
        tf.matmul(inputs, to_gates, transpose_a=True),
        tf.matmul(tf.concat(previous, axis=0), later, transpose_a=True)
        if previous
        else tf.zeros_like(recurrent),
        tf.reduce_sum(to_gates, axis=0),
        tf.matmul(out * seen, to_hidden, transpose_a=True),
        to_output[:, :-1],
        to_output[:, -1],
    ]


def untied(weights: Weights) -> Weights:
    """Returns a tied model's weights, with the input embedding as the output's, too."""
    *cell, output_bias = weights
    return [*cell, cell[0], output_bias]


def tied_scores(weights: Weights, places: Places) -> tf.Tensor:
    """Returns `scores` of a model whose output embedding is the input's."""
    return scores(untied(weights), places)


def tied_gradients(
    weights: Weights, places: Places, factors: tf.DType = tf.float32
) -> list[tf.Tensor]:
    """Returns `gradients` of a model whose output embedding is the input's."""
    found = gradients(untied(weights), places, factors)
    to_input, *to_cell, to_output, to_bias = found
    return [to_input + to_output, *to_cell, to_bias]


class _Factors:
    """The factors of each step's incoming gradients, for all positions.

    Attributes:
        of_gates: From gradients of the cell, the output gate's product and the cell
            again to those of the three gates' sums: [places, 3 * units].
        through_output: From the gradient of the output gate's product to the cell's:
            [places, units].
        forget: From a cell's gradient to that of the cell before: [places, units].
    """

    def __init__(self, before, forget, out, new, seen):
        self.of_gates = tf.concat(
            [
                (before - new) * forget * (1 - forget),
                seen * out * (1 - out),
                (1 - forget) * (1 - new * new),
            ],
            axis=1,
        )
        self.through_output = out * (1 - seen * seen)
        self.forget = forget


def _backwards(
    counts: tf.Tensor,
    to_hidden: tf.Tensor,
    factors: _Factors,
    projection: tf.Tensor,
    recurrent: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Goes back through the steps.

    Args:
        counts: See `Places`.
        to_hidden: float32 [places, projection]: the gradients that the scores give.
        factors: The factors of all places.
        projection: The projection of the model.
        recurrent: The recurrent weights of the model.

    Returns:
        The gradients of the gates' sums, [places, 3 * units], and those of the
        outputs with what later steps give, [places, projection].
    """
    num_steps = counts.shape[0]

    def by_step(values):
        return tf.split(values, counts, axis=0, num=num_steps)

    arriving = by_step(to_hidden)
    of_gates = by_step(factors.of_gates)
    through = by_step(factors.through_output)
    forget = by_step(factors.forget)
    backwards = tf.transpose(recurrent)
    outwards = tf.transpose(projection)
    to_gates: list[tf.Tensor] = []
    to_cells: list[tf.Tensor] = []
    to_outputs: list[tf.Tensor] = []
    for number in reversed(range(num_steps)):
        hidden = arriving[number]
        if to_gates:
            ended = [[0, counts[number] - counts[number + 1]], [0, 0]]
            hidden += tf.pad(tf.matmul(to_gates[-1], backwards), ended)
        product = tf.matmul(hidden, outwards)
        cell = product * through[number]
        if to_gates:
            cell += tf.pad(to_cells[-1] * forget[number + 1], ended)
        to_gates.append(tf.concat([cell, product, cell], axis=1) * of_gates[number])
        to_outputs.append(hidden)
        to_cells.append(cell)
    return tf.concat(to_gates[::-1], axis=0), tf.concat(to_outputs[::-1], axis=0)
