"""Gaussian noise on integers, exact but for 2^-98: no lattice, no early end.

`docs/integer_noise.md` has the theorem, its proof and the bounds. In short:

* The drawn noise is the discrete Gaussian of variance S^2 + 5: an integer n with
  probability proportional to exp(-n^2 / (2 (S^2 + 5))). A continuous Gaussian of
  standard deviation S that is rounded at random to an integer near it has this law up
  to a factor 1 +- 2^-138. So an integer sum with this noise is post-processing of the
  same sum with continuous noise of standard deviation S, and has its guarantee.
* It is drawn as x1 k^3 + x2 k^2 + x3 k + x4 with x's from one discrete Gaussian narrow
  enough for a table (Micciancio and Walter 2017): with the k that are taken here, the
  sum's law is the wide discrete Gaussian's up to a factor 1 +- 2^-138 a step.
* The table is an alias table (Walker 1977; Vose 1991) of 2^15 values whose weights are
  integers that add up to 2^256; a comparison takes as many random bits as it needs. It
  reaches 14 standard deviations to each side; what is beyond has probability 2^-145.
"""

import decimal
import functools
from collections.abc import Iterable, Iterator
from fractions import Fraction

import numpy as np

from federated_hh.randomness import streams

# The variance, beyond that of the continuous Gaussian, that rounding at random adds;
# also the least variance of the conditional law in a step of the sum.
ROUNDING_VARIANCE = 5
_BIN_BITS = 15
_BINS = 1 << _BIN_BITS
_CENTRE = _BINS // 2
# Standard deviations on each side that the table has to reach.
_REACH = 14
_WORD_BITS = 32
_LOW_BITS = _WORD_BITS - _BIN_BITS
_LOW_MASK = (1 << _LOW_BITS) - 1
# Bits of a comparison that are looked at only if those of the word are equal.
_REST_BYTES = 28
_REST_BITS = 8 * _REST_BYTES
_WEIGHT_BITS = _WORD_BITS + _REST_BITS
_BLOCK = 1 << 16


def joined(parts: Iterable[tuple[slice, np.ndarray]], size: int) -> np.ndarray:
    """Returns the numbers whose parts `DiscreteGaussian.parts` draws: int64 [size]."""
    drawn = np.empty(size, np.int64)
    for place, part in parts:
        drawn[place] = part
    return drawn


class DiscreteGaussian:
    """A sampler of integer noise as good as a Gaussian of a standard deviation.

    Attributes:
        stddev: S, of the continuous Gaussian whose guarantee the noise has.
        step: k: the sum's steps.
        levels: Number of table draws that make a number.
        largest: No number is farther from 0.
    """

    def __init__(self, stddev: float):
        """Makes the table, which takes a tenth of a second.

        Args:
            stddev: S, above 0 and at most 2^56: what is drawn has to fit into 62 bits.

        Raises:
            ValueError: If it is out of range.
        """
        if not 0 < stddev <= 2.0**56:
            raise ValueError(
                f"the noise's standard deviation is {stddev:g} in units of the integer "
                "sum; it has to be above 0 and at most 2^56, so that it fits into 62 "
                "bits."
            )
        self.stddev = stddev
        variance = Fraction(stddev) ** 2 + ROUNDING_VARIANCE
        self.levels, self.step = _steps(variance)
        narrow = variance / _times(self.levels, self.step)
        self.largest = _CENTRE * sum(self.step**i for i in range(self.levels))
        self._thresholds, self._rests, self._values = _alias_table(narrow)

    def sample(self, bits: streams.KeyedBits, size: int) -> np.ndarray:
        """Draws numbers.

        Args:
            bits: The stream that the numbers are a function of.
            size: Number of values.

        Returns:
            int64 [size], independent.
        """
        return joined(self.parts(bits, size), size)

    def parts(
        self, bits: streams.KeyedBits, size: int
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Draws the numbers of `sample` a part at a time.

        Yields:
            Where a part is among them, the same for all samplers, and the part: int64.
        """
        for block, first in enumerate(range(0, size, _BLOCK)):
            place = slice(first, min(first + _BLOCK, size))
            length = place.stop - first
            words = bits.words(block, self.levels * length)
            words = words.reshape(length, self.levels)
            rest = functools.partial(bits.bytes, block, purpose="comparisons")
            yield (
                place,
                self._combine(self._look_up(np.ascontiguousarray(words.T), rest)),
            )

    def _combine(self, values: np.ndarray) -> np.ndarray:
        """Returns x1 k^(l-1) + ... + xl of values [levels, n]."""
        total = values[0].astype(np.int64)
        for value in values[1:]:
            total *= self.step
            total += value
        return total

    def _look_up(self, words: np.ndarray, rest) -> np.ndarray:
        """Returns the table's values for random words.

        Args:
            words: uint32, any shape: a bin, and the first bits of a comparison.
            rest: Gives so many bytes for comparisons that these do not decide.

        Returns:
            int16 of that shape.
        """
        bins = words >> _LOW_BITS
        low = words & _LOW_MASK
        thresholds = self._thresholds[bins]
        is_own = low < thresholds
        undecided = np.flatnonzero(low == thresholds)
        if undecided.size:
            drawn = rest(_REST_BYTES * undecided.size)
            for place, number in enumerate(undecided.tolist()):
                start = place * _REST_BYTES
                part = int.from_bytes(drawn[start : start + _REST_BYTES], "little")
                limit = self._rests[int(bins.flat[number])]
                is_own.flat[number] = part < limit
        return self._values[is_own.astype(np.intp), bins]


def _steps(variance: Fraction) -> tuple[int, int]:
    """Returns how many narrow draws, and which k, make a variance."""
    widest = Fraction(_CENTRE, _REACH) ** 2
    for levels in range(1, 64):
        step, limit = 1, 1 << _BIN_BITS
        # The least k for which the narrow Gaussian fits into the table.
        while step < limit:
            middle = (step + limit) // 2
            if variance <= widest * _times(levels, middle):
                limit = middle
            else:
                step = middle + 1
        narrow = variance / _times(levels, step)
        # Given the sum, a step's last x must not be too narrow for the integers.
        smooth = levels == 1 or narrow >= ROUNDING_VARIANCE * (step**2 + 1)
        if narrow <= widest and smooth:
            return levels, step
    raise AssertionError(f"no steps for the variance {variance}")


def _times(levels: int, step: int) -> int:
    """Returns what the sum's variance is to that of a narrow draw."""
    return sum(step ** (2 * i) for i in range(levels))


def _weights(variance: Fraction) -> list[int]:
    """Returns the law of the narrow discrete Gaussian as integers, 2^256 in all."""
    bits = 400  # of fixed-point numbers; a product loses one of them
    with decimal.localcontext(decimal.Context(prec=140)):
        exponent = -decimal.Decimal(variance.denominator) / (2 * variance.numerator)
        ratio = int(exponent.exp() * 2**bits)
    square = ratio * ratio >> bits
    # exp(-x^2 / 2v) from that of x - 1: times exp(-1/2v)^(2x - 1).
    half, factor = [1 << bits], ratio
    for _ in range(_CENTRE):
        half.append(half[-1] * factor >> bits)
        factor = factor * square >> bits
    density = half[:0:-1] + half[:-1]  # of -2^14 to 2^14 - 1
    total = sum(density)
    weights = [(part << _WEIGHT_BITS) // total for part in density]
    weights[_CENTRE] += (1 << _WEIGHT_BITS) - sum(weights)
    return weights


def _alias_table(variance: Fraction) -> tuple[np.ndarray, list[int], np.ndarray]:
    """Returns the alias table of a narrow discrete Gaussian.

    Bin i keeps its own value with probability t_i / 2^241, else gives its alias.

    Returns:
        The first 17 bits of t_i: uint32 [bins]; its other 224 bits; and the values,
        aliases in row 0 and own ones in row 1: int16 [2, bins].
    """
    weights = _weights(variance)
    full = 1 << (_WEIGHT_BITS - _BIN_BITS)
    alias = list(range(_BINS))
    less = [i for i in range(_BINS) if weights[i] < full]
    more = [i for i in range(_BINS) if weights[i] >= full]
    while less:
        small, large = less.pop(), more[-1]
        alias[small] = large
        weights[large] -= full - weights[small]
        if weights[large] < full:
            less.append(more.pop())
    thresholds = np.array([w >> _REST_BITS for w in weights], np.uint32)
    rests = [w & ((1 << _REST_BITS) - 1) for w in weights]
    own = np.arange(_BINS) - _CENTRE
    return (
        thresholds,
        rests,
        np.stack([np.array(alias) - _CENTRE, own]).astype(np.int16),
    )
