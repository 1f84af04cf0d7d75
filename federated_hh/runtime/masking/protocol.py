"""One masked sum from beginning to end, with clients who drop out.

    outcome = masked_sum(graph.choose(needs), bits=22, size=2048, vectors=vectors,
                         stream=stream, gone={7: Step.INPUT})

Clients are the positions 0 to n - 1 of a cohort. Each party is an object of its own,
and everything between them is a message in the transcript. All random numbers come from
the stream, so a repeated sum has the same messages.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from federated_hh.randomness import streams
from federated_hh.runtime.masking import client as client_lib
from federated_hh.runtime.masking import graph as graph_lib
from federated_hh.runtime.masking import masks, messages, server
from federated_hh.runtime.masking.messages import Step

# Of clients, ascending, their vectors in this order: of `masks.dtype_of`, or integers
# that are not negative.
Vectors = Callable[[np.ndarray], Iterable[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a masked sum.

    Attributes:
        total: uint64 [size]: the sum modulo 2^bits.
        summed: int64: whose vectors are in it, ascending.
        bytes_up: Bytes sent by all clients.
        bytes_down: Bytes received by all clients.
        client_seconds: Processor seconds of all clients.
        server_seconds: The seconds of the server.
    """

    total: np.ndarray
    summed: np.ndarray
    bytes_up: int
    bytes_down: int
    client_seconds: float
    server_seconds: float


def drop_outs(num_clients: int, rate: float, stream: streams.Stream) -> dict[int, Step]:
    """Draws who drops out, each with the same probability, and before which message.

    Args:
        num_clients: n.
        rate: In [0, 1].
        stream: The stream of the sum.
    """
    generator = stream.generator("who drops out")
    is_gone = generator.random(num_clients) < rate
    steps = generator.integers(0, len(Step), num_clients)
    all_steps = tuple(Step)
    return {
        client: all_steps[steps[client]] for client in np.flatnonzero(is_gone).tolist()
    }


class _Watch:
    """Processor seconds of clients and of the server."""

    def __init__(self):
        self.seconds = {"client": 0.0, "server": 0.0}

    def __call__(self, who, work, *arguments):
        start = time.process_time()
        result = work(*arguments)
        self.seconds[who] += time.process_time() - start
        return result


def masked_sum(
    graph: graph_lib.Graph,
    *,
    bits: int,
    size: int,
    vectors: Vectors,
    stream: streams.Stream,
    gone: Mapping[int, Step],
    transcript: messages.Transcript | None = None,
) -> Outcome:
    """Sums vectors of integers modulo 2^bits under masks.

    Args:
        graph: Numbers of neighbours, and of those that open a client's secrets.
        bits: In 1..64.
        size: Numbers of a vector.
        vectors: Returns the vectors of the clients who get as far as sending theirs.
        stream: The stream of this sum alone.
        gone: Clients that drop out, and the message that they do not send.
        transcript: Collects all messages; None to keep none.

    Raises:
        MaskedSumError: If too few clients are left; nothing is released then.
        ValueError: If an argument is out of range, or a vector of another size.
    """
    terms = client_lib.Terms(size, bits, graph.threshold)
    transcript = messages.Transcript() if transcript is None else transcript
    watch = _Watch()
    number = graph.needs.num_clients
    steps = list(Step)
    left = {
        step: [c for c in range(number) if c not in gone or step in _before(gone[c])]
        for step in steps
    }
    order = stream.generator("ring").permutation(number)
    host = server.Server(terms, graph.ring(order), graph.least_left)

    clients, keys = {}, {}
    for name in left[Step.KEYS]:
        bits_of = stream.bits("client", name)
        clients[name] = watch("client", client_lib.Client, name, terms, bits_of)
        keys[name] = watch("client", clients[name].public_keys)
        transcript.up(keys[name])
    rosters = watch("server", host.rosters, keys)
    shared = {}
    for name in left[Step.SHARES]:
        transcript.down(rosters[name])
        shared[name] = watch("client", clients[name].shares, rosters[name])
        transcript.up(shared[name])
    mail = watch("server", host.mail, shared)
    inputs = np.array(left[Step.INPUT], np.int64)
    for name, vector in zip(left[Step.INPUT], vectors(inputs), strict=True):
        transcript.down(mail[name])
        own = _checked(vector, terms)
        masked = watch("client", clients[name].masked, own, mail.pop(name))
        transcript.up(masked)
        watch("server", host.take, masked)
    requests = watch("server", host.requests)
    answers = {}
    for name in left[Step.UNMASKING]:
        transcript.down(requests[name])
        answers[name] = watch("client", clients[name].unmasked, requests[name])
        transcript.up(answers[name])
    total = watch("server", host.opened, answers)
    return Outcome(
        total,
        np.array(sorted(host.summed), np.int64),
        transcript.bytes_up,
        transcript.bytes_down,
        watch.seconds["client"],
        watch.seconds["server"],
    )


def _before(step: Step) -> tuple[Step, ...]:
    """Returns the steps that a client takes before it drops out at one."""
    steps = tuple(Step)
    return steps[: steps.index(step)]


def _checked(vector: np.ndarray, terms: client_lib.Terms) -> np.ndarray:
    """Returns a client's vector in the integers of the sum."""
    if vector.shape != (terms.size,):
        raise ValueError(
            f"vectors has one with shape {vector.shape}; it has to be [{terms.size}]"
        )
    return vector.astype(masks.dtype_of(terms.bits))
