"""Tests of the server's steps against Keras, and equations written out by hand."""

import collections

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.rounds import checkpoints
from training.federated import server_optimizers as lib

_SHAPES = {"b": (3, 2), "a": (4,)}


def arrays(seed, scale=1.0):
    random = np.random.default_rng(seed)
    return collections.OrderedDict(
        (name, (scale * random.normal(size=shape)).astype(np.float32))
        for name, shape in _SHAPES.items()
    )


def walk(optimizer, num_steps, first=0, begin=None):
    """Returns state and weights after steps along given updates of differing sizes."""
    state, weights = begin or (optimizer.initial_state(arrays(99)), arrays(99))
    for number in range(first, num_steps):
        update = arrays(number, scale=10.0 ** (number % 3 - 1))
        state, weights = optimizer.step(state, weights, update)
    return state, weights


class ServerOptimizersTest(parameterized.TestCase):
    @parameterized.parameters(0.0, 0.9)
    def test_momentum_to_the_bit(self, beta):
        _, found = walk(lib.Sgdm(0.3, beta), 7)
        weights, momentum = arrays(99), arrays(0, scale=0.0)
        for number in range(7):
            update = arrays(number, scale=10.0 ** (number % 3 - 1))
            for name in weights:
                momentum[name] = np.float32(beta) * momentum[name] + update[name]
                weights[name] = weights[name] + np.float32(0.3) * momentum[name]
        for name in weights:
            self.assertEqual(found[name].dtype, np.float32)
            np.testing.assert_array_equal(found[name], weights[name])

    def test_adam_is_that_of_keras(self):
        _, found = walk(lib.Adam(0.3, 0.8, 0.95, 1e-2), 7)
        variables = {name: tf.Variable(array) for name, array in arrays(99).items()}
        keras = tf.keras.optimizers.legacy.Adam(0.3, 0.8, 0.95, 1e-2)
        for number in range(7):
            update = arrays(number, scale=10.0 ** (number % 3 - 1))
            keras.apply_gradients((-update[n], v) for n, v in variables.items())
        for name, variable in variables.items():
            np.testing.assert_allclose(found[name], variable.numpy(), rtol=1e-5)

    def test_yogi_is_that_of_its_paper(self):
        # Zaheer et al. 2018, with the correction of the first steps as in Adam.
        _, found = walk(lib.Yogi(0.3, 0.8, 0.95, 1e-2), 7)
        for name, start in arrays(99).items():
            weights, mean = start.astype(float), np.zeros(start.shape)
            square = np.full(start.shape, 1e-6)
            for number in range(7):
                update = arrays(number, scale=10.0 ** (number % 3 - 1))[name]
                mean = 0.8 * mean + 0.2 * update
                square -= 0.05 * np.sign(square - update**2.0) * update**2.0
                steps = number + 1
                rate = 0.3 * np.sqrt(1 - 0.95**steps) / (1 - 0.8**steps)
                weights += rate * mean / (np.sqrt(square) + 1e-2)
            np.testing.assert_allclose(found[name], weights, rtol=1e-4)

    @parameterized.parameters(*lib.BY_NAME.values())
    def test_it_goes_on_from_what_was_saved(self, kind):
        optimizer = kind(0.1)
        saved = {}
        tree = checkpoints.encode(walk(optimizer, 4), saved)
        arrays = collections.OrderedDict[str, np.ndarray]
        begin = checkpoints.decode(tuple[arrays, arrays], tree, saved)
        found = walk(optimizer, 7, first=4, begin=begin)
        expected = walk(optimizer, 7)
        self.assertEqual(checkpoints.digest(found), checkpoints.digest(expected))
        # The settings are the run's, and in no checkpoint.
        names = {"accumulator/a", "accumulator/b"}
        if kind is not lib.Sgdm:
            names |= {"preconditioner/a", "preconditioner/b", "step"}
        self.assertEqual(set(expected[0]), names)

    @parameterized.parameters(
        (lib.Sgdm, dict(learning_rate=0.0), "learning_rate is 0.0"),
        (lib.Sgdm, dict(momentum=1.0), r"momentum is 1.0; it has to be in \[0, 1\)"),
        (lib.Adam, dict(beta1=-0.1), r"beta1 is -0.1; it has to be in \[0, 1\)"),
        (lib.Adam, dict(beta2=1.0), "beta2 is 1.0"),
        (lib.Yogi, dict(epsilon=0.0), "epsilon is 0.0; it has to be .* above 0"),
    )
    def test_bad_settings(self, kind, settings, regex):
        with self.assertRaisesRegex(ValueError, regex):
            kind(**settings)


if __name__ == "__main__":
    absltest.main()
