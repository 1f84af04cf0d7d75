"""Known attacks on noise made of floats: they work on TensorFlow's, not on ours.

TensorFlow's float32 normal is Box and Muller's: r cos(a), r sin(a) of two neighbouring
coordinates, with exp(-r^2 / 2) a multiple of 2^-23, or 1e-7 where that is zero. Two
attacks follow. Nothing is ever beyond 5.678 standard deviations; and what a release
tells depends on the last bits, which only the right guess of the sum explains (compare
Mironov 2012).
"""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    model_updates,
    update_noise,
)
from federated_hh.randomness import streams

_SIZE = 400_000
_NOISE_MULTIPLIER = 7.0
_TRIALS = 20


class _Blt(correlated_noise.BltNoise):
    """With a matrix."""

    def __init__(self, **options):
        super().__init__(matrix=blt.Blt((0.1,), (0.3,)), **options)


def distance_to_the_lattice(noise):
    """Returns how far pairs are from the squared radii that Box and Muller's has.

    Args:
        noise: float64 [n], n even, of standard deviation 1.

    Returns:
        The mean distance to a multiple of 2^-23, in these, of pairs with a large
        radius: a quarter for all noise but that of the lattice.
    """
    squares = np.square(noise).reshape(-1, 2).sum(axis=1)
    multiples = np.exp(-squares / 2) * 2**23
    shown = multiples[(multiples > 500) & (multiples < 20_000)]
    return np.mean(np.abs(shown - np.rint(shown)))


def guess(released, others, victim):
    """Returns whether the adversary, who knows both, takes the victim for present."""
    without, present = (
        distance_to_the_lattice((released - known) / _NOISE_MULTIPLIER)
        for known in (others, others + victim)
    )
    return present < without


def float32_release(total, trial):
    """Returns a sum with TensorFlow's noise, as tensorflow-privacy makes it."""
    noise = tf.random.stateless_normal([_SIZE], [7, trial], stddev=_NOISE_MULTIPLIER)
    return (tf.constant(total, tf.float32) + noise).numpy().astype(np.float64)


def our_release(kind, total, trial):
    """Returns a sum with the noise of a mechanism, as the server gets it."""
    mechanism = kind(num_rounds=1, noise_multiplier=_NOISE_MULTIPLIER, clip_norm=1.0)
    integers = {"w": np.rint(total * 2**32).astype(np.int64)}
    release = mechanism.release(
        model_updates.UpdateSum(integers, 2, 1, 0),
        mechanism.initialize(),
        {"clip_norm": 1.0},
        streams.Stream(trial, ("test",), bytes(32)),
    )
    return release.value.total["w"].astype(np.float64)


class LatticeAttackTest(parameterized.TestCase):
    def _right_guesses(self, release):
        """Returns how often the adversary is right, half of the times by chance."""
        random = np.random.default_rng(1)
        right = 0
        for trial in range(_TRIALS):
            # In units of the secure sum, and of float32: so rounding hides nothing.
            vectors = random.normal(size=(2, _SIZE))
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            others, victim = np.rint(vectors * 2**20 * 0.999) / 2**20
            is_present = bool(trial % 2)
            released = release(others + victim * is_present, trial)
            right += guess(released, others, victim) == is_present
        return right

    def test_it_tells_neighbours_apart_under_float32_noise(self):
        self.assertEqual(self._right_guesses(float32_release), _TRIALS)

    @parameterized.parameters(update_noise.TreeNoise, update_noise.GaussianNoise, _Blt)
    def test_it_guesses_under_ours(self, kind):
        # 20 tosses of a coin are outside of 3..17 with probability 4e-4.
        right = self._right_guesses(lambda *args: our_release(kind, *args))
        self.assertBetween(right, 3, 17)


if __name__ == "__main__":
    absltest.main()
