"""Tests of loss and metrics against plain Python."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from training.models import evaluation

_NUM_TOKENS = 9


def reference(logits, targets):
    """Place by place."""
    sums = dict.fromkeys(evaluation.SUMS, 0.0)
    for row, tokens in zip(logits, targets, strict=True):
        for scores, target in zip(row, tokens, strict=True):
            if target == 0:
                continue
            sums["places"] += 1
            sums["loss"] += math.log(sum(math.exp(s) for s in scores)) - scores[target]
            if target < 4:
                continue
            sums["word_places"] += 1
            order = sorted(range(_NUM_TOKENS), key=lambda i: -scores[i])
            words = [i for i in order if i >= 4]
            sums["top1_in_vocabulary"] += order[0] == target
            sums["one_suggestion"] += words[0] == target
            sums["three_suggestions"] += target in words[:3]
    return sums


class EvaluationTest(parameterized.TestCase):
    @parameterized.parameters(range(5))
    def test_sums(self, seed):
        random = np.random.default_rng(seed)
        logits = random.normal(size=(6, 5, _NUM_TOKENS)).astype(np.float32)
        targets = random.integers(0, _NUM_TOKENS, (6, 5), np.int32)
        found = evaluation.sums_of_batch(tf.constant(logits), tf.constant(targets))
        expected = reference(logits.astype(float), targets)
        self.assertEqual(list(found), list(evaluation.SUMS))
        for name, value in expected.items():
            self.assertAlmostEqual(found[name].numpy(), value, places=4, msg=name)
        mean = evaluation.mean_loss(tf.constant(logits), tf.constant(targets))
        self.assertAlmostEqual(
            mean.numpy(), expected["loss"] / expected["places"], places=5
        )

    def test_padding_counts_for_nothing(self):
        random = np.random.default_rng(0)
        logits = random.normal(size=(3, 4, _NUM_TOKENS)).astype(np.float32)
        targets = random.integers(1, _NUM_TOKENS, (3, 4), np.int32)
        padded = np.pad(targets, ((0, 2), (0, 3)))
        more = random.normal(size=(5, 7, _NUM_TOKENS)).astype(np.float32)
        more[:3, :4] = logits
        plain = evaluation.sums_of_batch(tf.constant(logits), tf.constant(targets))
        with_pads = evaluation.sums_of_batch(tf.constant(more), tf.constant(padded))
        for name in evaluation.SUMS:
            self.assertAlmostEqual(plain[name].numpy(), with_pads[name].numpy())
        weights = tf.Variable(more)
        with tf.GradientTape() as tape:
            loss = evaluation.mean_loss(weights, tf.constant(padded))
        gradient = tape.gradient(loss, weights).numpy()
        self.assertGreater(np.abs(gradient[:3, :4]).min(), 0)
        gradient[:3, :4] = 0
        self.assertEqual(np.abs(gradient).max(), 0)

    def test_nothing_but_padding(self):
        zeros = tf.zeros([2, 3], tf.int32)
        logits = tf.zeros([2, 3, _NUM_TOKENS])
        self.assertEqual(evaluation.mean_loss(logits, zeros).numpy(), 0)
        sums = evaluation.sums_of_batch(logits, zeros)
        metrics = evaluation.metrics_of_sums({k: v.numpy() for k, v in sums.items()})
        self.assertTrue(all(math.isnan(value) for value in metrics.values()))

    def test_metrics(self):
        sums = dict(
            loss=10.0,
            places=5,
            word_places=4,
            top1_in_vocabulary=1,
            one_suggestion=2,
            three_suggestions=3,
        )
        self.assertEqual(
            dict(evaluation.metrics_of_sums(sums)),
            {
                "loss": 2.0,
                "top1_in_vocabulary": 0.25,
                "one_suggestion": 0.5,
                "three_suggestions": 0.75,
            },
        )


if __name__ == "__main__":
    absltest.main()
