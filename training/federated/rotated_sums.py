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
# Products with matrices of at most 2^6 rows are the quickest.
_LARGEST_FACTOR_BITS = 6
# Up to this a float32 is right to 2^-17 of an integer, which no sum shows.
_LARGEST_FLOAT32_RATIO = 64.0


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
        is_float32 = contribution.ratio <= _LARGEST_FLOAT32_RATIO
        self._float = tf.float32 if is_float32 else tf.float64
        modulus = block_round.PowerOfTwo(
            2 * contribution.largest_coordinate, contribution.num_clients
        )
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
        bits = tf.bitwise.right_shift(
            message["signs"][:, tf.newaxis], tf.constant(np.arange(8), tf.uint8)
        )
        signs = tf.reshape(tf.bitwise.bitwise_and(bits, tf.constant(1, tf.uint8)), [-1])
        signs = 1 - 2 * tf.cast(signs[: self._of.dimension], self._float)
        return {**message, "signs": signs}

    def begin(self, shapes: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the sum of nobody: the integers, and the two counts."""
        del shapes
        zero = tf.constant(0, tf.int64)
        return [tf.zeros([self._of.dimension], tf.int64), zero, zero]

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
        largest = tf.reduce_max(tf.abs(rotated))
        bound = tf.constant(self._of.largest_coordinate, self._float)
        # A longest coordinate of 0 gives infinity here, and the minimum is 1.
        rotated *= tf.minimum(tf.constant(1, self._float), bound / largest)
        rotated = tf.clip_by_value(rotated, -bound, bound)
        integers, is_rounded = self._rounded(rotated, told["rounding"], told["place"])
        vector, num_bounded, num_unrounded = total
        return [
            vector + integers,
            num_bounded + tf.cast(largest > bound, tf.int64),
            num_unrounded + tf.cast(~is_rounded, tf.int64),
        ]

    def _rotated(self, delta, norm, signs) -> tf.Tensor:
        """Returns an update that is scaled, clipped, padded and rotated."""
        flat = tf.concat([tf.reshape(part, [-1]) for part in delta], axis=0)
        factor = self._of.scale * tf.minimum(
            tf.constant(1, tf.float64), self._of.clip_norm / norm
        )
        flat = tf.cast(factor / self._of.dimension**0.5 * flat, self._float)
        padding = self._of.dimension - self._of.num_values
        return hadamard(signs * tf.pad(flat, [[0, padding]]))

    def _rounded(self, values, seed, place) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns conditionally rounded values, and whether a try was within the limit.

        Otherwise they are zeros, so the message is always bounded.
        """
        limit = tf.constant(self._of.squared_limit, tf.int64)
        low = tf.floor(values)
        part = values - low
        low = tf.cast(low, tf.int64)

        def is_beyond(number, integers, square):
            del integers
            return (number < MOST_TRIES) & (square > limit)

        def again(number, integers, square):
            del integers, square
            # Another seed for every client and try of a round.
            own = seed + tf.stack([tf.cast(place, tf.int32), number])
            drawn = tf.random.stateless_uniform(
                [self._of.dimension], own, dtype=self._float
            )
            integers = low + tf.cast(drawn < part, tf.int64)
            return number + 1, integers, tf.reduce_sum(tf.square(integers))

        _, integers, square = tf.while_loop(
            is_beyond, again, (tf.constant(0), low, limit + 1), parallel_iterations=1
        )
        is_rounded = square <= limit
        return tf.where(is_rounded, integers, tf.zeros_like(integers)), is_rounded

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
            delta=tf.math.floormod(vector + shift, modulus),
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
        bits = np.unpackbits(message["signs"], count=size, bitorder="little")
        # Rounded once, after exact steps, so two sums are as near as the proof
        # requires.
        unit = model_updates.unit_of(self._of.clip_norm) * self._of.scale
        scaled = back * (1 / (unit * self._of.dimension**0.5))
        return np.rint(np.where(bits == 1, -scaled, scaled)).astype(np.int64)


def hadamard(values: tf.Tensor) -> tf.Tensor:
    """Returns the product with a Hadamard matrix of entries 1 and -1.

    The matrix is a Kronecker product of small ones, each a matrix product along an axis
    of its own: nothing is transposed.

    Args:
        values: [2^b] of floats, b at least 1.
    """
    size = after = values.shape[0]
    for bits in _factor_bits(size.bit_length() - 1):
        after >>= bits
        matrix = tf.constant(linalg.hadamard(1 << bits), values.dtype)
        values = tf.matmul(matrix, tf.reshape(values, [-1, 1 << bits, after]))
    return tf.reshape(values, [size])


def _factor_bits(bits: int) -> list[int]:
    """Returns about equal parts of a number, none above `_LARGEST_FACTOR_BITS`."""
    count = -(-bits // _LARGEST_FACTOR_BITS)
    return [(bits + i) // count for i in range(count)]


def exact_hadamard(values: np.ndarray) -> np.ndarray:
    """Returns the product with a Hadamard matrix of entries 1 and -1, exactly.

    Args:
        values: int64 [2^b], b at least 1; the sum of their absolute values is below
            2^63.
    """
    size, half = len(values), 1
    while half < size:
        pairs = values.reshape(-1, 2, half)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1)
        half *= 2
    return values.reshape(size)
