"""A round's client work and secure sum, as one TFF computation over blocks of clients.

A TFF client value is a block: many devices, which the client computation handles one by
one. TFF costs about a millisecond per value, so every cohort is cut into a few blocks.
With masked sums, every block is one device, whose vector enters the protocol.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from federated_hh.options import checks
from federated_hh.randomness import streams

# Removes TFF's own context, which prints an error if a program ends before it has a
# worker.
from federated_hh.runtime import runtime  # noqa: F401

if TYPE_CHECKING:  # most runs have no masks
    from federated_hh.rounds import masked_sums

Block = Mapping[str, tf.Tensor]
Work = Callable[[Any, Block], Mapping[str, Any]]
# The most bytes of clients' vectors in memory at once, and clients per TFF call.
_SLICE_BYTES = 1 << 26
_SLICE_CLIENTS = 256


@dataclasses.dataclass(frozen=True)
class Answer:
    """The sums of a cohort.

    Attributes:
        sums: Sums by name.
        num_summed: Number of clients in them: all, or those who did not drop out
            of a masked sum.
    """

    sums: Mapping[str, Any]
    num_summed: int


@dataclasses.dataclass(frozen=True)
class PowerOfTwo:
    """A secure sum modulo 2^bits, with the fewest bits that hold all sums.

    Clients send integers in [0, 2^bits), and nobody learns more than their sum modulo
    2^bits.

    Attributes:
        largest: The most that one client adds to a number, at least 1.
        num_clients: The most clients of a sum, at least 1.
    """

    largest: int
    num_clients: int

    def __post_init__(self):
        if self.largest < 1 or self.num_clients < 1 or self.bits > 62:
            raise ValueError(
                f"largest is {self.largest} of {self.num_clients} clients; their sum "
                "has to be in 1..2^62 - 1. Lower the bound or the cohort size"
            )

    @property
    def bits(self) -> int:
        """The bits of the modulus."""
        return (self.largest * self.num_clients).bit_length()


class BlockRound:
    """Client work that is summed over a cohort; needs `runtime.tff_worker`."""

    def __init__(
        self,
        work: Work,
        largest: Mapping[str, int | PowerOfTwo | None],
        *,
        block_size: int,
        growing: frozenset[str] = frozenset(),
        masking: "masked_sums.MaskedSums | None" = None,
    ):
        """Describes a computation; it is compiled at its first call.

        Args:
            work: The body of the client computation: from the server's message and a
                block (`clients`: int64 [n]; `first_place`: int64, the first one's
                position in the cohort; `seed`: int32 [2], the block's own) to the sums
                over the block's devices, tensors or lists of tensors by name.
            largest: For each sum, a client's largest contribution to a number, none of
                which is negative: a secure sum, whose range is checked. A power of two:
                a secure sum modulo it. None: a sum in the clear.
            block_size: The most clients of a block, at least 1.
            growing: Names of message arrays whose first dimension differs between
                rounds.
            masking: Masks of the sums; None for sums in the clear.

        Raises:
            ValueError: If the size is out of range, or a sum in the clear is to be
                masked.
        """
        checks.integer(least=1, block_size=block_size)
        open_sums = [name for name, most in largest.items() if most is None]
        if masking is not None and open_sums:
            raise ValueError(
                f"secure_sum is 'masked': {', '.join(open_sums)} has no bound, and "
                "only bounded values can be masked. Clip the updates, or use 'ideal'"
            )
        self._work = work
        self._masking = masking
        self._largest = dict(largest)
        self._block_size = block_size
        self._growing = growing
        self._computations: dict[str, Any] = {}

    def __call__(
        self,
        message: Mapping[str, Any],
        cohort: np.ndarray,
        stream: streams.Stream,
    ) -> Mapping[str, Any]:
        """Returns the sums over a cohort; see `ask`."""
        return self.ask(message, cohort, stream).sums

    def ask(
        self,
        message: Mapping[str, Any],
        cohort: np.ndarray,
        stream: streams.Stream,
    ) -> Answer:
        """Returns the sums over a cohort, and the number of clients in them.

        Args:
            message: The server's message to every client: arrays, or lists of arrays,
                by name.
            cohort: int64 [clients], at least one.
            stream: The stream of the round.

        Raises:
            MaskedSumError: If too many clients drop out of a masked sum.
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
        computation = self._computations[key]
        if self._masking is not None:
            return self._masked(computation, message, cohort, stream)
        sums = computation(message, self.blocks(cohort, stream))
        return Answer(sums, len(cohort))

    def blocks(
        self, cohort: np.ndarray, stream: streams.Stream
    ) -> list[collections.OrderedDict[str, Any]]:
        """Returns a cohort cut into TFF client values."""
        size = self._block_size
        return [
            _block(cohort[first : first + size], first, stream, index)
            for index, first in enumerate(range(0, len(cohort), size))
        ]

    def _masked(
        self,
        computation: Any,
        message: Mapping[str, Any],
        cohort: np.ndarray,
        stream: streams.Stream,
    ) -> Answer:
        """Returns the sums of clients' own vectors under masks."""
        from federated_hh.rounds import client_vectors

        assert self._masking is not None
        sent = computation.type_signature.result.member
        # Masks have their own modulus, with room for the sum of all clients.
        largest = {
            name: most.largest if isinstance(most, PowerOfTwo) else most
            for name, most in self._largest.items()
            if most is not None
        }
        layout = client_vectors.Layout(sent, largest)
        at_once = max(1, min(_SLICE_CLIENTS, _SLICE_BYTES // (8 * layout.size)))

        def vectors(places: np.ndarray) -> Iterator[np.ndarray]:
            for first in range(0, len(places), at_once):
                blocks = [
                    _block(cohort[place : place + 1], place, stream, place)
                    for place in places[first : first + at_once].tolist()
                ]
                for own in computation(message, blocks):
                    yield layout.vector(own)

        outcome = self._masking.add(
            len(cohort), layout.size, max(largest.values()), vectors, stream
        )
        return Answer(layout.sums(outcome.total), len(outcome.summed))

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

        types = (
            tff.FederatedType(message_type, tff.SERVER),
            tff.FederatedType(block_type, tff.CLIENTS),
        )
        if self._masking is not None:

            @tff.federated_computation(*types)
            def each(message, blocks):
                return tff.federated_map(
                    client_work, (tff.federated_broadcast(message), blocks)
                )

            return each

        @tff.federated_computation(*types)
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

    def _sum(self, values: Any, largest: int | PowerOfTwo | None) -> Any:
        if largest is None:
            return tff.federated_sum(values)
        if isinstance(largest, PowerOfTwo):
            # Sums of blocks may wrap in an int64, whose 2^64 is a multiple of 2^bits.
            return tff.backends.mapreduce.federated_secure_modular_sum(
                values, np.int64(1 << largest.bits)
            )
        return tff.federated_secure_sum(values, np.int64(largest * self._block_size))


def _block(
    clients: np.ndarray, first_place: int, stream: streams.Stream, index: int
) -> collections.OrderedDict[str, Any]:
    """Returns a TFF client value."""
    return collections.OrderedDict(
        clients=np.asarray(clients, np.int64),
        first_place=first_place,
        seed=stream.stateless_seed("block", index),
    )


def block_size_of(cohort_size: int, num_blocks: int) -> int:
    """Returns the size of blocks that a cohort is cut into.

    Args:
        cohort_size: Number of clients, at least 1.
        num_blocks: Number of blocks, at least 1.
    """
    checks.integer(least=1, num_blocks=num_blocks)
    return math.ceil(cohort_size / num_blocks)
