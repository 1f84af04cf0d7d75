"""Checks of a custom model: repeatable, and with causal logits."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from federated_hh.randomness import streams

# Random operations without "Random" in their names.
_LOTTERIES = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "StatefulStandardNormal",
        "StatefulStandardNormalV2",
        "StatefulTruncatedNormal",
        "StatefulUniform",
        "StatefulUniformFullInt",
        "StatefulUniformInt",
        "TruncatedNormal",
    }
)
# Relative rounding error allowed in logits and probabilities.
_ROUNDING = 1e-3
# Distance from the first weights, whose zeros may hide a dependence.
_STDDEV = 0.1


def check_repeatable(definition: tf.compat.v1.GraphDef) -> None:
    """Checks that a repeated computation has the same result.

    A resumed run repeats the rounds after its checkpoint, with the same releases.

    Args:
        definition: The graph of the computation.

    Raises:
        ValueError: If an operation draws random numbers from a state of its own.
    """
    for operation in _operations(definition):
        if operation in _LOTTERIES or (
            "Random" in operation and not operation.startswith("Stateless")
        ):
            raise ValueError(
                f"it draws random numbers in training (the operation {operation}), "
                "which a resumed run could not reproduce; leave layers of noise "
                "and dropout out."
            )


def _operations(definition: tf.compat.v1.GraphDef) -> Iterator[str]:
    for function in definition.library.function:
        yield from (node.op for node in function.node_def)
    yield from (node.op for node in definition.node)


def check_logits(
    logits: Callable[[Sequence[tf.Tensor], tf.Tensor], tf.Tensor],
    weights: Sequence[np.ndarray],
    num_tokens: int,
    sequence_length: int,
) -> None:
    """Checks that a model returns logits that do not depend on later positions.

    The token there is the one to predict.

    Args:
        logits: Given weights and tokens, in a graph; see `model.LanguageModel`.
        weights: First weights; it is tried with others near them.
        num_tokens: Size of the vocabulary with its special tokens.
        sequence_length: Tokens of a sequence.

    Raises:
        ValueError: If they do, are probabilities, or are NaN. A token's logit may be
            minus infinity at all positions.
    """
    rng = streams.generator(0, "a causal model")
    tried = [
        (array + rng.normal(0, _STDDEV, array.shape)).astype(np.float32)
        for array in weights
    ]
    cuts = sorted({sequence_length // 2, sequence_length - 1} - {0})
    tokens = rng.integers(0, num_tokens, (1 + len(cuts), sequence_length))
    for row, cut in enumerate(cuts, 1):
        tokens[row] = tokens[0]
        tokens[row, cut:] = (tokens[0, cut:] + 1) % num_tokens
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        given = [tf.compat.v1.placeholder(tf.float32, array.shape) for array in tried]
        found = logits(given, tf.constant(tokens, tf.int32))
        first, *others = session.run(found, dict(zip(given, tried, strict=True)))
    if not all(np.all(row < np.inf) for row in (first, *others)):
        raise ValueError("its logits are infinite or NaN at some positions.")
    if np.all(first >= 0) and np.allclose(first.sum(axis=-1), 1, rtol=_ROUNDING):
        raise ValueError(
            "its outputs are probabilities: they add up to 1 at each position. It "
            "has to return logits, so leave the last softmax out."
        )
    for cut, other in zip(cuts, others, strict=True):
        if _differ(first[:cut], other[:cut]):
            raise ValueError(
                "its logits at a position depend on later positions, which hold the "
                "token to predict; use layers that look back only (no "
                'Bidirectional; padding="causal"; use_causal_mask=True).'
            )


def _differ(logits: np.ndarray, others: np.ndarray) -> bool:
    """Returns whether logits differ by more than rounding does to them."""
    is_masked = np.isneginf(logits)
    if np.any(is_masked != np.isneginf(others)):
        return True
    logits, others = np.where(is_masked, 0, logits), np.where(is_masked, 0, others)
    # Of a token that a large number masks its own size; of others that of most.
    size = np.maximum(np.abs(logits), np.median(np.abs(logits)))
    return bool(np.any(np.abs(logits - others) > _ROUNDING * size))
