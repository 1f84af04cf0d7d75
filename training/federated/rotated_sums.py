"""Model updates as small integers, and their sum modulo a power of two.

Xu et al. 2023, Algorithm 2, between a client's update and the server's noise: the
client scales, clips, rotates, bounds and rounds at random, and sends integers modulo
2^k; the server takes their sum modulo 2^k, shifts it back and rotates it back, exactly
in integers, and rounds it once, to the units that noise is added in. See
`federated_hh.privacy.dp_ftrl.rotated_updates` for the numbers,
docs/secure_aggregation.md for the proof.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import linalg

from federated_hh.privacy.dp_ftrl import model_updates, rotated_updates
from federated_hh.randomness import streams
from federated_hh.rounds import block_round

# A try succeeds with a probability of at least 1 - exp(-0.5), and nearly always where
# the ratio is 1 or more: so many fail with a probability below 2e-14.
MOST_TRIES = 63
# Products with matrices of about 2^4 rows are the quickest.
_LARGEST_FACTOR_BITS = 5
# Coordinates are cut to multiples of 2^-16, which no sum shows. These are rounded at
# random to integers, with exactly the right mean.
_FRACTION_BITS = 16
# Up to this ratio float32 is accurate enough, and the multiples fit into 31 bits.
_LARGEST_FLOAT32_RATIO = 64.0
# By byte: the signs that its bits stand for, the lowest bit first.
_SIGNS = 1.0 - 2.0 * np.unpackbits(
    np.arange(256, dtype=np.uint8)[:, np.newaxis], axis=1, bitorder="little"
)


@dataclasses.dataclass(frozen=True)
class RotatedSum(model_updates.PartialUpdateSum):
    """The sum of rotated updates, of the whole cohort or of the remaining clients.

    Attributes:
        num_bounded: Number of clients' updates with a coordinate beyond C_inf, which
            were shortened.
        num_unrounded: Number that could not be rounded within the limit and count as
            zero.
    """

    num_bounded: int
    num_unrounded: int


class RotatedSums:
    """Updates as small integers, and their secure sum modulo 2^k.

    With the same interface as `update_sums.SecureSums`. The sum does not depend on how
    a cohort is cut into blocks.
    """

    def __init__(self, contribution: rotated_updates.RotatedUpdate):
        """Stores the numbers of a plan's contribution."""
        self._of = contribution
        modulus = block_round.PowerOfTwo(
            2 * contribution.largest_coordinate, contribution.num_clients
        )
        is_small = contribution.ratio <= _LARGEST_FLOAT32_RATIO and modulus.bits < 32
        self._float = tf.float32 if is_small else tf.float64
        self._integer = tf.int32 if is_small else tf.int64
        self.largest = {"delta": modulus, "num_bounded": 1, "num_unrounded": 1}

    def check(self, num_clients: int) -> None:
        """Raises `ValueError` for other clients than the modulus is made for."""
        if num_clients != self._of.num_clients:
            raise ValueError(
                f"{num_clients:,} clients were given to sum; it has to be "
                f"{self._of.num_clients:,}, for which the modulus was chosen."
            )

    def message(self, stream: streams.Stream) -> dict[str, np.ndarray]:
        """Returns the server's message to a round's clients, besides the model.

        Args:
            stream: The stream of the round.

        Returns:
            `signs`: one bit per number of the padded update, in bytes; `rounding`:
            int32 [2], to which a client's position and tries are added.
        """
        num_bytes = -(-self._of.dimension // 8)
        signs = stream.generator("signs").integers(0, 256, num_bytes, np.uint8)
        return {"signs": signs, "rounding": stream.stateless_seed("rounding")}

    def told(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a message with its signs as numbers, once per block."""
        signs = tf.gather(
            tf.constant(_SIGNS, self._float), tf.cast(message["signs"], tf.int32)
        )
        return {**message, "signs": tf.reshape(signs, [-1])[: self._of.dimension]}

    def begin(self, shapes: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the sum of nobody: the integers, and the two counts."""
        del shapes
        zero = tf.constant(0, tf.int64)
        return [tf.zeros([self._of.dimension], self._integer), zero, zero]

    def add(
        self,
        total: Sequence[tf.Tensor],
        delta: Sequence[tf.Tensor],
        norm: tf.Tensor,
        told: Mapping[str, tf.Tensor],
    ) -> list[tf.Tensor]:
        """Adds a client's update to the sum of others.

        Args:
            total: The sum so far, as from `begin`.
            delta: The update's parts, float64, finite.
            norm: float64 scalar: its L2 norm.
            told: Values of `told`, with `place`: int64, its position in the cohort.

        Returns:
            The sums: a client adds integers in [-C_inf, C_inf], whose squared norm is
            within the limit.
        """
        rotated = self._rotated(delta, norm, told["signs"])
        largest = tf.maximum(tf.reduce_max(rotated), -tf.reduce_min(rotated))
        # A number beyond a float32's range leaves none of the coordinates finite.
        is_finite = tf.math.is_finite(rotated[0])
        bound = self._of.largest_coordinate << _FRACTION_BITS
        bound = tf.constant(bound, self._float)
        is_beyond = largest > bound
        rotated = tf.cond(
            is_beyond,
            lambda: tf.clip_by_value(rotated * (bound / largest), -bound, bound),
            lambda: rotated,
        )
        integers, square = self._rounded(
            tf.cast(rotated, self._integer), told["rounding"], told["place"]
        )
        is_sent = is_finite & (square <= self._of.squared_limit)
        vector, num_bounded, num_unrounded = total
        return [
            tf.cond(is_sent, lambda: vector + integers, lambda: vector),
            num_bounded + tf.cast(is_beyond, tf.int64),
            num_unrounded + tf.cast(~is_sent, tf.int64),
        ]

    def _rotated(self, delta, norm, signs) -> tf.Tensor:
        """Returns 2^16 times an update that is scaled, clipped, padded and rotated."""
        padding = tf.zeros([self._of.dimension - self._of.num_values], self._float)
        parts = [tf.cast(tf.reshape(part, [-1]), self._float) for part in delta]
        factor = tf.minimum(tf.constant(1, tf.float64), self._of.clip_norm / norm)
        factor *= self._of.scale / self._of.dimension**0.5 * (1 << _FRACTION_BITS)
        return hadamard(
            signs * tf.concat([*parts, padding], axis=0), tf.cast(factor, self._float)
        )

    def _rounded(self, multiples, seed, place) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns conditionally rounded multiples of 2^-16, and their squared norm.

        It is above the limit where no try was within.
        """
        size, limit = self._of.dimension, self._of.squared_limit
        # Squares of so many neighbours have a sum without overflow.
        room = self._integer.max // self._of.largest_coordinate**2
        neighbours = math.gcd(size, 1 << min(10, room.bit_length() - 1))

        def is_beyond(number, integers, square):
            del integers
            return (number < MOST_TRIES) & (square > limit)

        def again(number, integers, square):
            del integers, square
            # Another seed for every client and try of a round.
            own = seed + tf.stack([tf.cast(place, tf.int32), number])
            drawn = tf.random.stateless_uniform(
                *([size // 2], own, None, None, tf.int32),
                alg="philox",  # on each device
            )
            drawn = tf.reshape(tf.bitcast(drawn, tf.uint16), [size])
            integers = tf.bitwise.right_shift(
                multiples + tf.cast(drawn, self._integer), _FRACTION_BITS
            )
            squares = tf.reshape(tf.square(integers), [-1, neighbours])
            sums = tf.cast(tf.reduce_sum(squares, axis=1), tf.int64)
            return number + 1, integers, tf.reduce_sum(sums)

        begin = tf.constant(0), multiples, tf.int64.max
        _, integers, square = tf.while_loop(
            is_beyond, again, begin, parallel_iterations=1
        )
        return integers, square

    def sent(
        self, total: Sequence[tf.Tensor], num_clients: tf.Tensor
    ) -> collections.OrderedDict[str, Any]:
        """Returns the answer of a block of clients: integers in [0, 2^k), and counts.

        Args:
            total: The result of `add`.
            num_clients: int32 scalar: of the block, those left out among them.
        """
        vector, num_bounded, num_unrounded = total
        shift = tf.cast(num_clients, tf.int64) * self._of.largest_coordinate
        modulus = tf.constant(1 << self._of.bits, tf.int64)
        return collections.OrderedDict(
            delta=tf.math.floormod(tf.cast(vector, tf.int64) + shift, modulus),
            num_bounded=num_bounded,
            num_unrounded=num_unrounded,
        )

    def update_sum(
        self,
        sums: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
        num_clients: int,
        num_summed: int,
        message: Mapping[str, np.ndarray],
    ) -> RotatedSum:
        """Returns the sum of updates, in units of C / 2^32, from the clients' sums.

        Args:
            sums: Sums named `largest`, `num_below` and `num_non_finite`.
            shapes: The shapes of the update's parts, by name.
            num_clients: Size of the cohort.
            num_summed: Number of clients in the sum.
            message: The server's message.
        """
        total = np.asarray(sums["delta"], np.int64)
        flat = self._decoded(total - num_summed * self._of.largest_coordinate, message)
        parts, first = collections.OrderedDict(), 0
        for name, shape in shapes.items():
            size = int(np.prod(shape))
            parts[name] = flat[first : first + size].reshape(shape)
            first += size
        return RotatedSum(
            parts,
            num_clients,
            int(sums["num_below"]),
            int(sums["num_non_finite"]),
            num_summed,
            int(sums["num_bounded"]),
            int(sums["num_unrounded"]),
        )

    def _decoded(self, total: np.ndarray, message) -> np.ndarray:
        """Returns a sum of integers, rotated back: int64 [d]."""
        size = self._of.num_values
        back = exact_hadamard(total)[:size]
        signs = _SIGNS[message["signs"]].reshape(-1)[:size]
        # Rounded once, after exact steps, so two sums are as near as the proof
        # requires.
        unit = model_updates.unit_of(self._of.clip_norm) * self._of.scale
        factor = 1 / (unit * self._of.dimension**0.5)
        return np.rint(back * factor * signs).astype(np.int64)


def hadamard(
    values: tf.Tensor, factor: tf.Tensor | float = 1.0, *, transpose: bool = False
) -> tf.Tensor:
    """Returns the product with a Hadamard matrix of entries 1 and -1, and a factor.

    The matrix is a Kronecker product of small ones, each a matrix product along an axis
    of its own: nothing is transposed.

    Args:
        values: [D] of floats, D as in `rotated_updates.RotatedUpdate.dimension`.
        factor: Scalar of the same type.
        transpose: Whether to multiply by the transposed matrix.
    """
    size = after = values.shape[0]
    for small in _matrices(size):
        matrix = tf.constant(small.T if transpose else small, values.dtype)
        matrix, factor = factor * matrix, 1.0
        rows = len(small)
        after //= rows
        if after == 1:
            values = tf.matmul(tf.reshape(values, [-1, rows]), matrix, transpose_b=True)
        else:
            values = tf.matmul(matrix, tf.reshape(values, [-1, rows, after]))
    return tf.reshape(values, [size])


def exact_hadamard(total: np.ndarray) -> np.ndarray:
    """Returns the exact product with the transposed Hadamard matrix: int64 [D].

    In two parts whose sums have less than 2^53, which float64 adds up exactly.

    Args:
        total: int64 [D], D at most 2^31; the sum of absolute values is below 2^63.
    """
    low_bits = 20
    high = total >> low_bits
    high, low = (
        hadamard(tf.constant(part, tf.float64), transpose=True).numpy().astype(np.int64)
        for part in (high, total - (high << low_bits))
    )
    return (high << low_bits) + low


@functools.cache
def _matrices(size: int) -> list[np.ndarray]:
    """Returns Hadamard matrices whose Kronecker product has `size` rows."""
    bits = (size & -size).bit_length() - 1
    paley = [_paley(4 * size >> bits)] if size >> bits > 1 else []
    bits -= 2 * len(paley)
    # Parts of about equal size: the largest last, Paley's second, is the quickest.
    count = -(-bits // _LARGEST_FACTOR_BITS)
    parts = [linalg.hadamard(1 << (bits + i) // count) for i in range(count)]
    return [*parts[:1], *paley, *parts[1:]]


def _paley(size: int) -> np.ndarray:
    """Returns a Hadamard matrix of 12, 20 or 28 rows (Paley 1933)."""
    prime = {12: 11, 20: 19, 28: 13}[size]
    is_square = np.isin(np.arange(prime), np.arange(1, prime) ** 2 % prime)
    one = np.eye(prime + 1, dtype=int)
    conference = 1 - one
    conference[1:, 1:] *= linalg.circulant(np.where(is_square, 1, -1))
    if size == 28:
        twice = np.kron(conference, [[1, 1], [1, -1]])
        return twice + np.kron(one, [[1, -1], [-1, -1]])
    conference[1:, 0] = -1
    return conference + one
