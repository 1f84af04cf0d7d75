"""What it costs to sum reports by two servers that check them.

    scripts/run benchmarks.two_servers

Clients cut random reports of 0 and 1 into shares and prove them, in this process; the
servers are processes of their own. Processor seconds of the clients, with sending, and
of each server, without their start; the reports themselves are drawn beforehand. The
sum is compared with that of the reports, and `refused` is how many are not in it.
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
    """How much is shared."""

    reports: tuple[str, ...] = option(
        ("272:100000", "10000:10000"), "Cells and reports of each measurement."
    )
    results_dir: str = option("results/benchmark_two_servers", "Where the table goes.")

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
_SEED = 1
# Of a bit of a report: about what an encoding with a local epsilon of 2 has.
_DENSITY = 0.2
_BLOCK_CELLS = 10**7


def blocks(num_cells: int, number: int):
    """Yields random reports: bool [reports, cells], some at a time."""
    import numpy as np

    generator = np.random.default_rng(_SEED)
    size = max(1, _BLOCK_CELLS // num_cells)
    for first in range(0, number, size):
        yield generator.random((min(size, number - first), num_cells)) < _DENSITY


def time_sum(num_cells: int, number: int):
    """Returns a row: what the sum of so many reports costs.

    Raises:
        RuntimeError: If the sum is not that of the reports.
    """
    import numpy as np
    import psutil

    from federated_hh.privacy.local import device_reports_plan
    from federated_hh.randomness import streams
    from federated_hh.statistics.two_servers import aggregator, field, pair, proof

    def seconds_of_servers():
        times = [psutil.Process(one.pid).cpu_times() for one in both.processes]
        return np.array([found.user + found.system for found in times])

    with pair.ProcessPair() as both:
        servers = aggregator.TwoServers(both)
        servers.begin(num_cells, number, streams.Stream(_SEED, ("benchmark",)))
        started = seconds_of_servers()
        clients = wall = 0.0
        expected = np.zeros(num_cells, np.int64)
        for reports in blocks(num_cells, number):
            expected += reports.sum(axis=0)
            before = time.process_time(), time.perf_counter()
            servers.add(reports, number)
            clients += time.process_time() - before[0]
            wall += time.perf_counter() - before[1]
        batch = servers.close()
        of_servers = seconds_of_servers() - started
        sizes = proof.BitProof(num_cells, field.Field())
    assert isinstance(batch, device_reports_plan.CheckedBatch)
    if batch.counts is None or (batch.counts != expected).any():
        raise RuntimeError(f"the sum of {number:,} reports is not theirs")
    return {
        "cells": num_cells,
        "reports": number,
        "clients_cpu_seconds": clients,
        "server_0_cpu_seconds": of_servers[0],
        "server_1_cpu_seconds": of_servers[1],
        "cpu_seconds": clients + of_servers.sum(),
        "wall_seconds": wall,
        "cpu_microseconds_per_report": (clients + of_servers.sum()) / number * 1e6,
        "values_of_a_share": sizes.table_size,
        "values_of_a_proof": sizes.proof_size,
        "refused": batch.refused,
    }


def measure():
    """Returns a row for each number of cells and reports."""
    import pandas as pd

    # The first products make BLAS start its threads.
    time_sum(16, 1000)
    pairs = [text.split(":") for text in _FLAGS.read().reports]
    return pd.DataFrame([time_sum(int(cells), int(number)) for cells, number in pairs])


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    del argv
    startup.silence_tensorflow()
    table = measure()
    print(table.to_string(index=False))
    benchmark_results.write(
        _FLAGS.read().results_dir,
        "benchmarks.two_servers",
        table,
        data=f"random bits, each 1 with probability {_DENSITY}",
    )


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
