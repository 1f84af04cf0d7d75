"""Tests of the average of models against TensorFlow's."""

import collections

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from training.federated import model_average


def models(count):
    random = np.random.default_rng(3)
    return [
        collections.OrderedDict(
            b=random.normal(size=(3, 2)).astype(np.float32),
            a=random.normal(size=4).astype(np.float32),
        )
        for _ in range(count)
    ]


class ModelAverageTest(parameterized.TestCase):
    @parameterized.parameters(0.05, 0.5, 0.98)
    def test_it_is_that_of_tensorflow(self, decay):
        first, *others = models(60)
        average, found = model_average.ModelAverage(decay), first
        variables = {name: tf.Variable(part) for name, part in first.items()}
        steps = tf.Variable(0)
        oracle = tf.train.ExponentialMovingAverage(decay, num_updates=steps)
        oracle.apply(list(variables.values()))
        for number, weights in enumerate(others):
            steps.assign(number)
            for name, variable in variables.items():
                variable.assign(weights[name])
            oracle.apply(list(variables.values()))
            found = average.following(found, weights, number)
            self.assertEqual(list(found), list(first))
            for name, variable in variables.items():
                self.assertEqual(found[name].dtype, np.float32)
                expected = oracle.average(variable).numpy()
                np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-6)

    def test_what_it_is_given_stays(self):
        first, weights = models(2)
        before = {name: part.copy() for name, part in first.items()}
        found = model_average.ModelAverage(0.9).following(first, weights, 5)
        for name, part in before.items():
            np.testing.assert_array_equal(first[name], part)
            self.assertFalse(np.shares_memory(found[name], weights[name]))

    @parameterized.parameters(0.0, 1.0, -0.5, float("nan"))
    def test_out_of_range(self, decay):
        with self.assertRaisesRegex(ValueError, "decay is .* in \\(0, 1\\)"):
            model_average.ModelAverage(decay)


if __name__ == "__main__":
    absltest.main()
