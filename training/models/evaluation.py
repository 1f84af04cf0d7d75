"""Metrics of a language model: loss and accuracies, without padding.

Everything is a sum over positions, so the sums of batches, clients and blocks add up;
`metrics_of_sums` divides at the end. (In TFF's graphs `==` compares tensors as Python
objects: hence `tf.equal`.)
"""

import collections
from collections.abc import Mapping

import tensorflow as tf

from federated_hh.populations import vocabulary
from training.models import metric_names

# The words that a keyboard offers at a time.
_NUM_SUGGESTIONS = 3
_FIRST_WORD = len(vocabulary.SPECIAL_TOKENS)
# Names of the results of `metrics_of_sums`, in order.
METRICS = tuple(metric_names.LABELS)
_ACCURACIES = METRICS[1:]
# For each accuracy, the number of positions with the right word.
SUMS = ("loss", "places", "word_places", *_ACCURACIES)


def cross_entropy(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns each position's loss, 0 for padding.

    Args:
        logits: float32 [batch, time, num_tokens].
        targets: int32 [batch, time], token ids.

    Returns:
        float32 [batch, time], in nats.
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    return tf.where(tf.equal(targets, vocabulary.PAD), 0.0, losses)


def mean_loss(logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Returns the mean loss over positions without padding; 0 if there are none."""
    places = tf.math.count_nonzero(
        tf.not_equal(targets, vocabulary.PAD), dtype=tf.float32
    )
    return tf.math.divide_no_nan(tf.reduce_sum(cross_entropy(logits, targets)), places)


def suggestions(logits: tf.Tensor) -> tf.Tensor:
    """Returns the words that a keyboard offers: those with the highest scores.

    Args:
        logits: float32 [..., num_tokens].

    Returns:
        int32 [..., 3], token ids of words, the likeliest first; of equal ones the one
        with the lower id. Of a vocabulary of fewer words, all of them.
    """
    words = logits[..., _FIRST_WORD:]
    number = min(_NUM_SUGGESTIONS, words.shape[-1])
    return tf.math.top_k(words, number).indices + _FIRST_WORD


def sums_of_batch(
    logits: tf.Tensor, targets: tf.Tensor
) -> collections.OrderedDict[str, tf.Tensor]:
    """Returns a batch's part of each of `SUMS`.

    Args:
        logits: float32 [batch, time, num_tokens].
        targets: int32 [batch, time], token ids.

    Returns:
        float64 scalars by name.
    """
    is_word = targets >= _FIRST_WORD
    best = tf.argmax(logits, axis=-1, output_type=tf.int32)
    hits = tf.equal(suggestions(logits), targets[..., tf.newaxis])

    def count(places: tf.Tensor) -> tf.Tensor:
        return tf.math.count_nonzero(places, dtype=tf.float64)

    losses = tf.cast(cross_entropy(logits, targets), tf.float64)
    values = (
        tf.reduce_sum(losses),
        count(tf.not_equal(targets, vocabulary.PAD)),
        count(is_word),
        count(is_word & tf.equal(best, targets)),
        count(is_word & hits[..., 0]),
        count(is_word & tf.reduce_any(hits, axis=-1)),
    )
    return collections.OrderedDict(zip(SUMS, values, strict=True))


def metrics_of_sums(
    sums: Mapping[str, float],
) -> collections.OrderedDict[str, float]:
    """Returns the metrics from sums.

    Args:
        sums: Sums named as in `SUMS`.

    Returns:
        `loss`: mean cross entropy of all places (words, out-of-vocabulary words and
        ends of sentences), in nats. `top1_in_vocabulary`: the accuracy by which Xu et
        al. 2023 follow training: of the positions whose token is a word of the
        vocabulary, the share where that word has the highest score of all tokens.
        `one_suggestion`, `three_suggestions`: the same if only words compete, as on a
        keyboard, which never offers a special token. NaN without positions.
    """

    def ratio(numerator: str, denominator: str) -> float:
        if sums[denominator] == 0:
            return float("nan")
        return float(sums[numerator] / sums[denominator])

    return collections.OrderedDict(
        {"loss": ratio("loss", "places")}
        | {name: ratio(name, "word_places") for name in _ACCURACIES}
    )
