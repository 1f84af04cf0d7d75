"""What it costs to sum vectors under masks.

    scripts/run benchmarks.secure_sum

Clients' random vectors are summed by the masking protocol, while some drop out; the sum
is compared with that of the vectors. Processor seconds of a client and of the server,
one after the other in this process, and bytes that a client sends and gets.
"""

import dataclasses
import time

from absl import app

from benchmarks import results as benchmark_results
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.runtime.worker import startup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is summed."""

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
    results_dir: str = option("results/benchmark_secure_sum", "Where the table goes.")

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
_SEED = 1


def graph_of(num_clients: int, neighbours: int, options: Options):
    """Returns the graph of a measurement.

    Args:
        num_clients: The number of clients of the cohort.
        neighbours: How many a client has; 0 for as many as it takes. A majority of
            them opens what a client shared; of those that are chosen, as many as the
            choice says.
        options: With the shares who drop out and collude.
    """
    from federated_hh.runtime.masking import graph

    needs = graph.Needs.of_shares(num_clients, options.dropout, options.corrupt)
    if neighbours:
        return graph.Graph(needs, neighbours, neighbours // 2 + 1)
    return graph.choose(needs)


def time_sum(num_clients: int, neighbours: int, size: int, bits: int, options: Options):
    """Returns a row: what a sum costs.

    Raises:
        RuntimeError: If the sum is not that of the vectors.
    """
    import numpy as np

    from federated_hh.randomness import streams
    from federated_hh.runtime.masking import messages, protocol

    graph = graph_of(num_clients, neighbours, options)
    expected = np.zeros(size, np.uint64)
    # A client's number is at most what does not let the sum wrap.
    limit = 2**bits // num_clients

    def vectors(clients):
        for client in clients.tolist():
            generator = np.random.default_rng([_SEED, client])
            vector = generator.integers(0, limit, size, np.uint64)
            np.add(expected, vector, out=expected)
            yield vector

    steps = tuple(messages.Step)
    gone = {
        client * num_clients // graph.needs.most_gone: steps[client % len(steps)]
        for client in range(graph.needs.most_gone)
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


def measure():
    """Returns a row for each sum."""
    import pandas as pd

    options = _FLAGS.read()
    # The first products make BLAS start its threads.
    time_sum(10, 0, 16, 32, options)
    rows = []
    for text in options.sums:
        clients, neighbours, size, bits = map(int, text.split(":"))
        rows.append(time_sum(clients, neighbours, size, bits, options))
    return pd.DataFrame(rows)


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    del argv
    startup.silence_tensorflow()
    table = measure()
    print(table.to_string(index=False))
    options = _FLAGS.read()
    benchmark_results.write(
        options.results_dir,
        "benchmarks.secure_sum",
        table,
        data=f"random vectors; {options.dropout:.0%} of the clients drop out, and "
        f"{options.corrupt:.0%} may collude",
    )


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
