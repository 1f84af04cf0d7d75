"""Measures a sum of reports by two servers that check them.

    scripts/run benchmarks.two_servers

Clients cut random reports of 0 and 1 into shares and prove them, in this process; the
servers are processes of their own. Processor seconds of the clients, with sending, and
of each server, without their start; the reports are drawn beforehand. The sum is
compared with that of the reports; `refused` is the number of reports left out of it.
"""

import dataclasses
import time

from absl import app

from benchmarks import harness
from federated_hh.options.fields import option

_SEED = 1
# Of a bit of a report: about that of an encoding with a local epsilon of 2.
_DENSITY = 0.2
_BLOCK_CELLS = 10**7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Sizes of the sums."""

    reports: tuple[str, ...] = option(
        ("272:100000", "10000:10000"), "Cells and reports of each measurement."
    )
    results_dir: str = harness.results_dir("benchmark_two_servers")


def blocks(num_cells: int, number: int):
    """Yields random reports: bool [reports, cells], some at a time."""
    import numpy as np

    generator = np.random.default_rng(_SEED)
    size = max(1, _BLOCK_CELLS // num_cells)
    for first in range(0, number, size):
        yield generator.random((min(size, number - first), num_cells)) < _DENSITY


def time_sum(num_cells: int, number: int):
    """Returns a row: the cost of a sum.

    Args:
        num_cells: Cells of a report.
        number: Number of reports.

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
    total = clients + of_servers.sum()
    return {
        "cells": num_cells,
        "reports": number,
        "clients_cpu_seconds": clients,
        "server_0_cpu_seconds": of_servers[0],
        "server_1_cpu_seconds": of_servers[1],
        "cpu_seconds": total,
        "wall_seconds": wall,
        "cpu_microseconds_per_report": total / number * 1e6,
        "values_of_a_share": sizes.table_size,
        "values_of_a_proof": sizes.proof_size,
        "refused": batch.refused,
    }


def measure(options: Options, run: harness.Run) -> None:
    """Measures the sums."""
    import pandas as pd

    time_sum(16, 1000)  # the first products make BLAS start its threads
    sizes = [map(int, text.split(":")) for text in options.reports]
    run.show("cost", pd.DataFrame([time_sum(*size) for size in sizes]))


CASE = harness.Case(
    Options, measure, f"random bits, each 1 with probability {_DENSITY}"
)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
