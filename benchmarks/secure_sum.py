"""Measures sums of vectors under masks.

    scripts/run benchmarks.secure_sum

Clients' random vectors are summed by the masking protocol, while some drop out; the sum
is compared with that of the vectors. Processor seconds of a client and of the server,
one after the other in this process, and bytes that a client sends and gets.
"""

import dataclasses
import time

from absl import app

from benchmarks import harness
from federated_hh.options.fields import option

_SEED = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Sizes of the sums, and clients that drop out or collude."""

    sums: tuple[str, ...] = option(
        (
            "100:99:2048:32",
            "100:99:200000:32",
            "100:0:200000:32",
            "1000:64:2048:32",
            "1000:0:2048:32",
            "1000:0:200000:32",
            "10000:0:2048:32",
            "20:0:2400000:22",
            "100:0:2400000:22",
        ),
        "Clients, neighbours, numbers of a vector and bits of the modulus of each "
        "measurement. 0 neighbours: as many as it takes.",
    )
    dropout: float = option(
        0.05,
        "The share of clients that drops out, a quarter of it in each step.",
        least=0,
        most=0.5,
    )
    corrupt: float = option(
        0.05, "The share of clients that may collude.", least=0, most=0.4
    )
    results_dir: str = harness.results_dir("benchmark_secure_sum")


def time_sum(options: Options, num_clients: int, neighbours: int, size: int, bits: int):
    """Returns a row: the cost of a sum.

    Args:
        options: Shares of clients that drop out and collude.
        num_clients: Number of clients of the cohort.
        neighbours: Neighbours of a client; a majority opens its secrets. 0 takes as
            many as are needed, with a threshold to match.
        size: Length of a vector.
        bits: Bits of the modulus.

    Raises:
        RuntimeError: If the sum is not that of the vectors.
    """
    import numpy as np

    from federated_hh.randomness import streams
    from federated_hh.runtime.masking import graph as graphs
    from federated_hh.runtime.masking import messages, protocol

    needs = graphs.Needs.of_shares(num_clients, options.dropout, options.corrupt)
    graph = (
        graphs.Graph(needs, neighbours, neighbours // 2 + 1)
        if neighbours
        else graphs.choose(needs)
    )
    expected = np.zeros(size, np.uint64)
    # So small that the sum does not wrap.
    limit = 2**bits // num_clients

    def vectors(clients):
        for client in clients.tolist():
            generator = np.random.default_rng([_SEED, client])
            vector = generator.integers(0, limit, size, np.uint64)
            np.add(expected, vector, out=expected)
            yield vector

    steps = tuple(messages.Step)
    gone = {
        client * num_clients // needs.most_gone: steps[client % len(steps)]
        for client in range(needs.most_gone)
    }
    before = time.perf_counter()
    outcome = protocol.masked_sum(
        graph,
        bits=bits,
        size=size,
        vectors=vectors,
        stream=streams.Stream(_SEED, ("benchmark",)),
        gone=gone,
    )
    wall = time.perf_counter() - before
    if (outcome.total != expected).any():
        raise RuntimeError(f"the masked sum of {num_clients:,} clients is not theirs")
    return {
        "clients": num_clients,
        "neighbours": graph.neighbours,
        "threshold": graph.threshold,
        "size": size,
        "bits": bits,
        "dropped": len(gone),
        "security_bits": -graph.log2_insecure,
        "client_cpu_seconds": outcome.client_seconds / num_clients,
        "server_cpu_seconds": outcome.server_seconds,
        "cpu_seconds": outcome.client_seconds + outcome.server_seconds,
        "wall_seconds": wall,
        "bytes_up_per_client": outcome.bytes_up / num_clients,
        "bytes_down_per_client": outcome.bytes_down / num_clients,
    }


def measure(options: Options, run: harness.Run) -> None:
    """Measures the sums."""
    import pandas as pd

    run.about["data"] = (
        f"random vectors; {options.dropout:.0%} of the clients drop out, and "
        f"{options.corrupt:.0%} may collude"
    )
    time_sum(options, 10, 0, 16, 32)  # the first products make BLAS start its threads
    sizes = [map(int, text.split(":")) for text in options.sums]
    run.show("cost", pd.DataFrame([time_sum(options, *size) for size in sizes]))


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
