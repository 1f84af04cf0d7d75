"""Judges models in this process, without TFF: those of other runs, and central ones."""

import collections
from collections.abc import Callable

import tensorflow as tf

from training import evaluation, examples, windows

_SENTENCES_AT_A_TIME = 64
# From sentences to logits, and the targets that they are for.
Scores = Callable[[examples.Batch], tuple[tf.Tensor, tf.Tensor]]


def metrics(
    scores: Scores, judges: windows.Windows, length: int
) -> collections.OrderedDict[str, float]:
    """Returns what a model reaches at the places that federated models are judged by.

    Args:
        scores: See `model.LanguageModel.scores`, with the weights.
        judges: The places of the clients who judge.
        length: Steps of a sentence: its most words and its end.

    Returns:
        See `evaluation.metrics_of_sums`.
    """
    shape = [None, length]
    signature = examples.Batch(*[tf.TensorSpec(shape, tf.int32)] * 2)

    @tf.function(input_signature=[signature])
    def sums_of(batch):
        return evaluation.sums_of_batch(*scores(batch))

    sums = collections.OrderedDict.fromkeys(evaluation.SUMS, 0.0)
    inputs, targets = judges.sequences(length)
    for first in range(0, len(inputs), _SENTENCES_AT_A_TIME):
        some = slice(first, first + _SENTENCES_AT_A_TIME)
        added = sums_of(
            examples.Batch(*map(tf.constant, (inputs[some], targets[some])))
        )
        for name, value in added.items():
            sums[name] += float(value)
    return evaluation.metrics_of_sums(sums)
