"""A round's client work and secure sum, as one TFF computation over blocks of clients.

A TFF client value is a block: many devices, which the client computation treats each
on its own. A block of one device is a device. TFF costs about a millisecond a value,
so a cohort is cut into a few blocks whatever its size.
"""

import collections
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from randomness import streams

# Takes TFF's own context out, which prints an error where a program ends before it
# has a worker.
from simulation import runtime  # noqa: F401

Block = Mapping[str, tf.Tensor]
Work = Callable[[Any, Block], Mapping[str, Any]]


class BlockRound:
    """Client work that is summed over a cohort; needs `runtime.tff_worker`."""

    def __init__(
        self,
        work: Work,
        largest: Mapping[str, int | None],
        *,
        block_size: int,
        growing: frozenset[str] = frozenset(),
    ):
        """Describes a computation; it is compiled when it is first asked.

        Args:
            work: The body of the client computation: from the server's message and a
                block (`clients`: int64 [n]; `first_place`: int64, the place in the
                cohort of the first of them; `seed`: int32 [2], the block's own) to the
                sums over the block's devices, tensors or lists of tensors by name.
            largest: For each sum, the most that one client adds to a number of it,
                where no number is negative: a secure sum, whose range is checked.
                None: a sum in the open.
            block_size: The most clients of a block, at least 1.
            growing: Names of the message whose first dimension differs from round to
                round.
        """
        if block_size < 1:
            raise ValueError(f"block_size is {block_size}; it has to be at least 1")
        self._work = work
        self._largest = dict(largest)
        self._block_size = block_size
        self._growing = growing
        self._computations: dict[str, Callable[..., Any]] = {}

    def __call__(
        self,
        message: Mapping[str, Any],
        cohort: np.ndarray,
        stream: streams.Stream,
    ) -> Mapping[str, Any]:
        """Returns the sums over a cohort.

        Args:
            message: What the server tells every client: arrays, or lists of arrays,
                by name.
            cohort: int64 [clients], at least one.
            stream: Of the round.
        """
        message = collections.OrderedDict(message)
        message_type = tff.to_type(
            collections.OrderedDict(
                (name, self._type_of(name, value)) for name, value in message.items()
            )
        )
        key = str(message_type)
        if key not in self._computations:
            self._computations[key] = self._build(message_type)
        return self._computations[key](message, self.blocks(cohort, stream))

    def blocks(
        self, cohort: np.ndarray, stream: streams.Stream
    ) -> list[collections.OrderedDict[str, Any]]:
        """Returns a cohort cut into TFF client values."""
        return [
            collections.OrderedDict(
                clients=np.asarray(cohort[first : first + self._block_size], np.int64),
                first_place=first,
                seed=stream.stateless_seed("block", index),
            )
            for index, first in enumerate(range(0, len(cohort), self._block_size))
        ]

    def _type_of(self, name: str, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._type_of(name, part) for part in value]
        value = np.asarray(value)
        shape = list(value.shape)
        if name in self._growing:
            shape[0] = None
        return tff.TensorType(value.dtype, shape)

    def _build(self, message_type: tff.Type) -> Callable[..., Any]:
        block_type = tff.to_type(
            collections.OrderedDict(
                clients=tff.TensorType(np.int64, [None]),
                first_place=np.int64,
                seed=tff.TensorType(np.int32, [2]),
            )
        )

        @tff.tensorflow.computation(message_type, block_type)
        def client_work(message, block):
            return collections.OrderedDict(self._work(message, block))

        @tff.federated_computation(
            tff.FederatedType(message_type, tff.SERVER),
            tff.FederatedType(block_type, tff.CLIENTS),
        )
        def sums(message, blocks):
            found = tff.federated_map(
                client_work, (tff.federated_broadcast(message), blocks)
            )
            return tff.federated_zip(
                collections.OrderedDict(
                    (name, self._sum(getattr(found, name), largest))
                    for name, largest in self._largest.items()
                )
            )

        return sums

    def _sum(self, values: Any, largest: int | None) -> Any:
        if largest is None:
            return tff.federated_sum(values)
        return tff.federated_secure_sum(values, np.int64(largest * self._block_size))


def block_size_of(cohort_size: int, num_blocks: int) -> int:
    """Returns the size of blocks that a cohort is cut into.

    Args:
        cohort_size: At least 1.
        num_blocks: At least 1.
    """
    if num_blocks < 1:
        raise ValueError(f"num_blocks is {num_blocks}; it has to be at least 1")
    return math.ceil(cohort_size / num_blocks)
