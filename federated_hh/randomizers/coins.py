"""Biased coins with an exact chance of heads.

A privacy guarantee is a statement about probabilities, so the ones in force have to be
known to the last bit. A float32 uniform has 24 random bits: compared with the flip
probability of epsilon = 20, 2e-9, it shows heads with probability 0 or 6e-8, and
the report is then not private, or far more private than stated. A coin here is a
64-bit integer: it comes up heads for so many of the 2^64 words of a generator, and the
number is rounded to the private side from 60 decimal digits.
"""

import dataclasses
import decimal
import fractions
from collections.abc import Callable
from typing import Self

import numpy as np
import tensorflow as tf

from federated_hh.options import checks
from federated_hh.randomizers import binomials

_WORDS = 2**64
_DIGITS = 60


@dataclasses.dataclass(frozen=True)
class Coin:
    """A coin that comes up heads for `heads` of the 2^64 words.

    Attributes:
        heads: In [1, 2^64 - 1].
    """

    heads: int

    def __post_init__(self):
        checks.holds(1 <= self.heads < _WORDS, "in [1, 2^64 - 1]", heads=self.heads)

    @classmethod
    def at_most(cls, probability: decimal.Decimal) -> Self:
        """Returns the coin with the largest chance of heads up to `probability`."""
        return cls(_round(probability, decimal.ROUND_FLOOR))

    @classmethod
    def at_least(cls, probability: decimal.Decimal) -> Self:
        """Returns the coin with the smallest chance of heads from `probability` on."""
        return cls(_round(probability, decimal.ROUND_CEILING))

    @property
    def probability(self) -> fractions.Fraction:
        """The chance of heads, exactly."""
        return fractions.Fraction(self.heads, _WORDS)

    @property
    def opposite(self) -> "Coin":
        """The coin that comes up heads where this one comes up tails."""
        return Coin(_WORDS - self.heads)

    def toss(
        self, shape: tf.types.experimental.TensorLike, seed: tf.Tensor
    ) -> tf.Tensor:
        """Tosses the coin in a TensorFlow graph.

        Args:
            shape: Shape of the coins.
            seed: An int32 or int64 stateless seed of shape [2].

        Returns:
            bool, of shape `shape`: whether it is heads.
        """
        words = tf.random.stateless_uniform(
            shape, seed, minval=None, maxval=None, dtype=tf.uint64, alg="philox"
        )
        return words < tf.constant(self.heads, tf.uint64)


FAIR = Coin(_WORDS // 2)


def _round(probability: decimal.Decimal, rounding: str) -> int:
    with decimal.localcontext(prec=_DIGITS):
        return int((probability * _WORDS).to_integral_value(rounding))


def exact(formula: Callable[[decimal.Decimal], decimal.Decimal], epsilon: float):
    """Evaluates a formula of e^epsilon to 60 digits.

    Args:
        formula: Function from e^epsilon to a probability.
        epsilon: The exponent.

    Returns:
        The probability.
    """
    with decimal.localcontext(prec=_DIGITS):
        return formula(decimal.Decimal(epsilon).exp())


def count_heads(
    generator: np.random.Generator,
    num_tosses: np.ndarray | int,
    probability: fractions.Fraction,
) -> np.ndarray:
    """Draws the number of heads of `num_tosses` tosses.

    The less likely side is the one drawn: close to 1, a float64 has no digits left
    for how far from 1 a probability is.

    Args:
        generator: The source of random bits.
        num_tosses: int64 of any shape, at least 0.
        probability: The probability of heads, in [0, 1].

    Returns:
        int64, of the shape of `num_tosses`.
    """
    if probability > fractions.Fraction(1, 2):
        tails = binomials.binomial(generator, num_tosses, float(1 - probability))
        return num_tosses - tails
    return binomials.binomial(generator, num_tosses, float(probability))
