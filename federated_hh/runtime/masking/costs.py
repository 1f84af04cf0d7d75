"""Costs of a masked sum, estimated within a factor of about two.

They are for refusing runs that would take hours; docs/masked_sum.md has measured
figures.
"""

import dataclasses

from federated_hh.runtime.masking import graph as graph_lib
from federated_hh.runtime.masking import masks

# Processor seconds on a core of 2020 or so: two key agreements with a neighbour, shares
# and keys of both; a byte of a mask; a number of a vector that TFF's worker hands over.
_SECONDS_PER_NEIGHBOUR = 1.3e-4
_SECONDS_PER_BYTE = 2e-10
_SECONDS_PER_NUMBER = 8e-8
# Of keys and sealed shares, which client and server hold until the sum is opened.
_BYTES_PER_NEIGHBOUR = 800
# Vectors in memory at once, besides a slice of clients' vectors.
_VECTORS = 6


@dataclasses.dataclass(frozen=True)
class Cost:
    """Costs of a masked sum.

    Attributes:
        seconds: Processor seconds of all parties, one after the other.
        num_bytes: Memory of the program.
    """

    seconds: float
    num_bytes: int

    @classmethod
    def of(cls, graph: graph_lib.Graph, size: int, bits: int) -> "Cost":
        """Estimates a sum's cost.

        Args:
            graph: The graph of the sum.
            size: Numbers of a vector.
            bits: The bits of the modulus.
        """
        vector = size * masks.dtype_of(bits).itemsize
        clients, k = graph.needs.num_clients, graph.neighbours
        # For dropped-out clients, the server computes their neighbours' masks again.
        of_clients = clients * (k + 2)
        of_server = clients + graph.needs.most_gone * k
        seconds = (clients + graph.needs.most_gone) * k * _SECONDS_PER_NEIGHBOUR
        seconds += (of_clients + of_server) * vector * _SECONDS_PER_BYTE
        seconds += clients * size * _SECONDS_PER_NUMBER
        memory = clients * k * _BYTES_PER_NEIGHBOUR + _VECTORS * 8 * size
        return cls(seconds, memory)
