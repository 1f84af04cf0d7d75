"""Clipping, encoding and sums of clients' model updates.

A secure sum adds integers in [0, bound]. A client scales its update by 2^b / C, C the
clip norm, clips it, rounds each coordinate to the nearest integer, and adds 2^b, so
that none is negative; the server subtracts m 2^b from the sum of m clients and scales
back.

The guarantee needs that the *encoded* update, and not just the update, is no longer
than C. Rounding moves a vector of d coordinates by sqrt(d) / 2 at most, so a client
clips to 2^b - sqrt(d) / 2, minus float64's possible error. Then the integers have an L2
norm of at most 2^b, which is C, exactly; hence each lies within -2^b and 2^b. Sums of
integers depend on no order, so not on a cohort's division into blocks.

`rotated_sums` has Algorithm 2 of Xu et al. 2023, which sums modulo a small
number: it rotates updates to make their coordinates alike, rounds them at random, and
accounts for the norm that this inflates. Here b is 32: with 64 bits a coordinate no
rotation is needed, rounding costs less than float32 does, and no norm is inflated.
"""

import abc
import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from federated_hh.options import checks
from federated_hh.privacy.dp_ftrl import model_updates
from federated_hh.randomness import streams

# The largest bound of a contribution that TFF's secure sum takes, and so of the sum.
_LARGEST_SUM = 2**62 - 1
# A float64 of a magnitude below 2^51 that is added to it is rounded to the nearest
# integer, halves to the even one, and the sum's bits are those of `_ROUNDING` plus that
# integer: cheaper than to round and to convert. int64 sums of bits wrap, and are right
# when the constant is subtracted.
_ROUNDING = 1.5 * 2.0**52
_ROUNDING_BITS = int(np.float64(_ROUNDING).view(np.int64))


def difference(
    after: Sequence[tf.Tensor], before: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Returns the difference of weights, part by part."""
    return [new - old for new, old in zip(after, before, strict=True)]


def sum_of(one: Sequence[tf.Tensor], other: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the sum of weights and an update, part by part."""
    return [left + right for left, right in zip(one, other, strict=True)]


def norm_of(delta: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the L2 norm of an update's parts: float64 scalar."""
    # `l2_loss` is half of the sum of squares, without an array of them.
    return tf.sqrt(2 * tf.add_n([tf.nn.l2_loss(part) for part in delta]))


class _SumsOfParts(abc.ABC):
    """The common part of encodings that leave an update's parts as they are."""

    dtype: tf.DType

    def message(self, stream: streams.Stream) -> dict[str, np.ndarray]:
        """Returns the server's message besides the model: nothing."""
        del stream
        return {}

    def told(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a message unchanged."""
        return {**message}

    def begin(self, shapes: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the sum of nobody.

        Args:
            shapes: Tensors of the shapes of the update's parts.
        """
        return [tf.zeros_like(part, self.dtype) for part in shapes]

    @abc.abstractmethod
    def sent(
        self, total: Sequence[tf.Tensor], num_clients: tf.Tensor
    ) -> collections.OrderedDict[str, Any]:
        """Returns the answer of a block of clients.

        Args:
            total: The sum of their updates, of `add`.
            num_clients: int32 scalar: of the block, those left out among them.
        """

    @abc.abstractmethod
    def centred(self, total: np.ndarray, num_clients: int) -> np.ndarray:
        """Returns a part of a sum as it was before it was shifted for sending."""

    def update_sum(
        self,
        sums: Mapping[str, Any],
        shapes: Mapping[str, tuple[int, ...]],
        num_clients: int,
        num_summed: int,
        message: Mapping[str, np.ndarray],
    ) -> model_updates.UpdateSum:
        """Returns the sum of updates from the sum of messages.

        Args:
            sums: `delta`, `num_below` and `num_non_finite`.
            shapes: The shapes of the update's parts, by name.
            num_clients: Size of the cohort.
            num_summed: Number of clients in the sum.
            message: The server's message.
        """
        del message
        parts = collections.OrderedDict(
            (name, self.centred(part, num_summed))
            for name, part in zip(shapes, sums["delta"], strict=True)
        )
        counts = num_clients, int(sums["num_below"]), int(sums["num_non_finite"])
        if num_summed < num_clients:
            return model_updates.PartialUpdateSum(parts, *counts, num_summed)
        return model_updates.UpdateSum(parts, *counts)


class SecureSums(_SumsOfParts):
    """Clipped updates as integers, and their secure sum.

    Attributes:
        fraction_bits: b.
        clip_limit: The norm, in units of 2^-b C, to which an update is clipped before
            it is rounded.
    """

    dtype = tf.int64

    def __init__(
        self, num_values: int, fraction_bits: int = model_updates.FRACTION_BITS
    ):
        """Chooses the limit.

        Args:
            num_values: d, the coordinates of an update; at least 1.
            fraction_bits: b, in 1..40: of a float64's 53 bits some are left.

        Raises:
            ValueError: If a value is out of range, or rounding alone could make an
                update as long as the clip norm.
        """
        checks.integer(least=1, num_values=num_values)
        checks.integer(least=1, most=40, fraction_bits=fraction_bits)
        self.fraction_bits = fraction_bits
        # A sum of d squares is wrong by d roundings at most, in any order, and each
        # coordinate by a few more.
        margin = (num_values + 16) * np.finfo(np.float64).eps
        self._bound = 1 << fraction_bits
        self.clip_limit = self._bound * (1 - margin) - math.sqrt(num_values) / 2
        if self.clip_limit <= 0:
            raise ValueError(
                f"fraction_bits is {fraction_bits}, too few for {num_values:,} "
                "values: rounding alone could make an update as long as the clip "
                "norm. Raise it."
            )

    @property
    def largest(self) -> dict[str, int]:
        """The largest integer that a client contributes; none is below 0."""
        return {"delta": 2 * self._bound}

    @property
    def most_clients(self) -> int:
        """The largest number of clients in a sum."""
        return _LARGEST_SUM // self.largest["delta"]

    def check(self, num_clients: int) -> None:
        """Raises `ValueError` where a sum could leave its integers."""
        if num_clients > self.most_clients:
            raise ValueError(
                f"{num_clients:,} clients were given to sum; at most "
                f"{self.most_clients:,} are possible, as the sum has 62 bits."
            )

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
            norm: float64 scalar: `norm_of(delta)`.
            told: `clip_norm`, C: float64 scalar, above 0, finite.

        Returns:
            The sum: a client adds integers of an L2 norm of at most 2^b.
        """
        # Not above the scale: a short update is not made longer.
        factor = tf.minimum(self._bound / told["clip_norm"], self.clip_limit / norm)
        *parts, added = total
        return [
            *(
                sum_ + tf.bitcast(factor * part + _ROUNDING, tf.int64)
                for sum_, part in zip(parts, delta, strict=True)
            ),
            added + 1,
        ]

    def begin(self, shapes: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Returns the sum of nobody, and the number of those in it; see base class."""
        return [*super().begin(shapes), tf.constant(0, tf.int64)]

    def sent(
        self, total: Sequence[tf.Tensor], num_clients: tf.Tensor
    ) -> collections.OrderedDict[str, Any]:
        """Returns the answer of a block of clients, int64; see base class.

        Each client, also one that is left out, adds numbers in [0, 2^(b+1)].
        """
        *parts, added = total
        shift = tf.cast(num_clients, tf.int64) * self._bound - added * _ROUNDING_BITS
        return collections.OrderedDict(delta=[part + shift for part in parts])

    def centred(self, total: np.ndarray, num_clients: int) -> np.ndarray:
        """Returns a part of the sum of clients' integers, as they were before 2^b.

        Args:
            total: int64: a part of the secure sum.
            num_clients: The number of clients of the sum.

        Returns:
            int64: a client moves it by at most 2^b in L2 norm.
        """
        return total - num_clients * self._bound


class PlainSums(_SumsOfParts):
    """Updates as they are, and their sum in the clear, where nothing bounds them.

    With the same interface as `SecureSums`. Float addition is in order, so the last
    bits of a sum depend on how the cohort is cut.
    """

    dtype = tf.float32
    largest: ClassVar[dict[str, None]] = {"delta": None}

    def check(self, num_clients: int) -> None:
        """Does nothing: any number of clients can be summed."""

    def add(
        self,
        total: Sequence[tf.Tensor],
        delta: Sequence[tf.Tensor],
        norm: tf.Tensor,
        told: Mapping[str, tf.Tensor],
    ) -> list[tf.Tensor]:
        """Adds an unchanged update to the sum of others."""
        return [
            sum_ + tf.cast(part, tf.float32)
            for sum_, part in zip(total, delta, strict=True)
        ]

    def sent(
        self, total: Sequence[tf.Tensor], num_clients: tf.Tensor
    ) -> collections.OrderedDict[str, Any]:
        """Returns the answer of a block of clients, float32; see base class."""
        return collections.OrderedDict(delta=list(total))

    def centred(self, total: np.ndarray, num_clients: int) -> np.ndarray:
        """Returns a part of the sum unchanged."""
        return total
