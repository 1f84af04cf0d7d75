"""Compares the runtimes that execute client work: their speed, and their sums.

    scripts/run benchmarks.compare_runtimes --in_process_device=/GPU:0

The same rounds in TFF's worker and in this program's own TensorFlow, on the device that
is asked for. Counts have to be the same to the bit; sums of training and scores differ
in the last bits of floats, and the table says by how much. Rounds run twice: times are
those of the second, with computations compiled.
"""

import dataclasses
import itertools

from absl import app

from benchmarks import engine_workloads, harness, resource_usage
from federated_hh.options.fields import option
from federated_hh.runtime.worker import startup

# Rounding of float32 and its elementary functions, over some thousand operations of a
# client's training.
TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Device, and sizes of the rounds."""

    in_process_device: str | None = option(
        None,
        "Device that computes in this program, such as /GPU:0; by default "
        "TensorFlow's choice.",
    )
    num_clients: int = option(
        200_000, "Clients of the population.", least=10_000, most=10**9
    )
    num_rounds: int = option(100, "The most rounds of each kind.", least=1, most=1000)
    training_clients: int = option(
        64, "Clients that train in a round.", least=1, most=10**6
    )
    num_units: int = option(256, "Units of the model's layer.", least=2, most=10_000)


def compared(options: Options, workload: engine_workloads.Workload) -> dict:
    """Returns a row: a workload's cost by both runtimes, and its sums' difference."""
    found, costs = [], []
    for backend in (engine_workloads.WORKER, engine_workloads.IN_PROCESS):
        with engine_workloads.computing(backend, options.in_process_device):
            for _ in range(2):  # the first time compiles
                with resource_usage.Usage() as cost:
                    rounds = itertools.islice(workload.rounds(), options.num_rounds)
                    sums = list(rounds)
        found.append(sums)
        costs.append(cost)
    return {
        "rounds of": workload.name,
        "clients": workload.clients,
        "rounds": len(found[0]),
        "worker_seconds": costs[0].wall_seconds,
        "in_process_seconds": costs[1].wall_seconds,
        "worker_cpu_seconds": costs[0].cpu_seconds,
        "in_process_cpu_seconds": costs[1].cpu_seconds,
        "relative_difference": engine_workloads.difference(*found),
        "has_to_be_at_most": 0.0 if workload.is_exact else TOLERANCE,
    }


def measure(options: Options, run: harness.Run) -> str | None:
    """Compares; returns an error where results differ."""
    import pandas as pd

    startup.prepare_in_process()
    words = engine_workloads.population(run.scratch, options.num_clients)
    workloads = [
        engine_workloads.votes(words, words.num_clients // 10),
        engine_workloads.reports(words, words.num_clients // 10),
        *engine_workloads.training(
            run.scratch, options.training_clients, options.num_units
        ),
    ]
    table = pd.DataFrame([compared(options, workload) for workload in workloads])
    run.show("cost", table)
    wrong = table[table["relative_difference"] > table["has_to_be_at_most"]]
    names = ", ".join(wrong["rounds of"])
    return f"the runtimes do not agree on {names}" if names else None


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
