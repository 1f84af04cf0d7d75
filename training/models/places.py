"""The positions of a batch's sentences that have a target, without padding."""

from typing import NamedTuple

import tensorflow as tf

from federated_hh.populations import vocabulary


class Places(NamedTuple):
    """The positions of a batch, step by step, with the longest sentences first.

    Attributes:
        tokens: int32 [places]: what is seen at each place.
        targets: int32 [places]: what follows there.
        counts: int32 [time]: number of unfinished sentences at each step, which falls;
            the number of steps is known when the graph is built.
    """

    tokens: tf.Tensor
    targets: tf.Tensor
    counts: tf.Tensor


def of_batch(inputs: tf.Tensor, targets: tf.Tensor) -> Places:
    """Returns the positions of a batch.

    Args:
        inputs: int32 [sentences, time], padded at the end.
        targets: int32 [sentences, time], padded where the inputs are.
    """
    exists = tf.not_equal(targets, vocabulary.PAD)
    lengths = tf.math.count_nonzero(exists, axis=1, dtype=tf.int32)
    longest_first = tf.argsort(lengths, direction="DESCENDING", stable=True)

    def by_step(values: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.gather(values, longest_first))

    exists = by_step(exists)
    counts = tf.math.count_nonzero(exists, axis=1, dtype=tf.int32)
    return Places(
        tf.boolean_mask(by_step(inputs), exists),
        tf.boolean_mask(by_step(targets), exists),
        tf.ensure_shape(counts, [inputs.shape[1]]),
    )
