"""Evaluates models in this process, without TFF: those of other runs, central ones."""

import collections
from collections.abc import Callable

import tensorflow as tf

from training.models import evaluation
from training.text import examples, windows

_SENTENCES_AT_A_TIME = 64
# From sentences to logits, and the targets that they are for.
Scores = Callable[[examples.Batch], tuple[tf.Tensor, tf.Tensor]]


class CentralEvaluation:
    """A model's scores at the positions of held-out clients."""

    def __init__(self, scores: Scores, held_out_text: windows.Windows, length: int):
        """Makes the sentences, and TensorFlow's graph of the scores.

        Args:
            scores: See `model.LanguageModel.scores`, with the weights.
            held_out_text: The positions of the held-out clients.
            length: Steps of a sentence: its most words and its end.
        """
        self._inputs, self._targets = held_out_text.sequences(length)
        signature = examples.Batch(*[tf.TensorSpec([None, length], tf.int32)] * 2)
        self._sums = tf.function(
            lambda batch: evaluation.sums_of_batch(*scores(batch)),
            input_signature=[signature],
        )

    def metrics(self) -> collections.OrderedDict[str, float]:
        """Returns the current metrics; see `evaluation.metrics_of_sums`."""
        sums = collections.OrderedDict.fromkeys(evaluation.SUMS, 0.0)
        for first in range(0, len(self._inputs), _SENTENCES_AT_A_TIME):
            some = slice(first, first + _SENTENCES_AT_A_TIME)
            batch = examples.Batch(
                tf.constant(self._inputs[some]), tf.constant(self._targets[some])
            )
            for name, value in self._sums(batch).items():
                sums[name] += float(value)
        return evaluation.metrics_of_sums(sums)
