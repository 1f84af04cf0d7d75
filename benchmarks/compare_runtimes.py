"""Compares the runtimes that client work can be executed by: speed, and what comes out.

    scripts/run benchmarks.compare_runtimes --in_process_device=/GPU:0

The same rounds in TFF's worker and in this program's own TensorFlow, on the device that
is asked for. Counts have to be the same to the bit; sums of training and scores differ
in the last bits of floats, and the table says by how much. Rounds run twice: times are
those of the second, with computations compiled.
"""

import dataclasses
import itertools
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from absl import app

from benchmarks import engine_workloads, resource_usage
from federated_hh.command_line import exit_codes
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.runtime.worker import engine_options, startup

if TYPE_CHECKING:
    import pandas as pd

# Rounding of float32 and its elementary functions, over some thousand operations of a
# client's training.
TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Options:
    """What is compared."""

    in_process_device: str | None = option(
        None, "What computes in this program, such as /GPU:0; TensorFlow's choice."
    )
    num_clients: int = option(
        200_000, "Clients of the population.", least=10_000, most=10**9
    )
    num_rounds: int = option(100, "The most rounds of each kind.", least=1, most=1000)
    training_clients: int = option(
        64, "Clients that train in a round.", least=1, most=10**6
    )
    num_units: int = option(256, "Units of the model's layer.", least=2, most=10_000)

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)


def _workloads(options: Options, scratch: str) -> list[engine_workloads.Workload]:
    words = engine_workloads.population(scratch, options.num_clients)
    return [
        engine_workloads.votes(words, words.num_clients // 10),
        engine_workloads.reports(words, words.num_clients // 10),
        *engine_workloads.training(
            scratch, options.training_clients, options.num_units
        ),
    ]


def compare(
    workloads: Sequence[engine_workloads.Workload], num_rounds: int, device: str | None
) -> "pd.DataFrame":
    """Returns a table: a row a workload.

    Args:
        workloads: What is computed.
        num_rounds: The most rounds of each.
        device: What computes in this program; None for TensorFlow's choice.
    """
    import pandas as pd

    from federated_hh.runtime import runtime

    in_process = engine_options.RuntimeOptions(
        engine_options.Runtime.IN_PROCESS, device
    )
    rows = []
    for workload in workloads:
        found, costs = [], []
        for chosen in (engine_options.RuntimeOptions(), in_process):
            engine_options.choose(chosen)
            with runtime.computing():
                for _ in range(2):  # the first time compiles
                    with resource_usage.Usage() as cost:
                        rounds = itertools.islice(workload.rounds(), num_rounds)
                        sums = list(rounds)
            found.append(sums)
            costs.append(cost)
        rows.append(
            {
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
        )
    engine_options.choose()
    return pd.DataFrame(rows)


def main(argv: list[str]) -> None:
    """Compares, prints, and fails where results differ."""
    del argv
    startup.silence_tensorflow()
    startup.prepare_in_process()
    options = _FLAGS.read()
    with tempfile.TemporaryDirectory(prefix="compare_runtimes_") as scratch:
        try:
            workloads = _workloads(options, scratch)
            table = compare(workloads, options.num_rounds, options.in_process_device)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(exit_codes.WRONG_USE)
    print(table.to_string(index=False, float_format=lambda x: f"{x:.3g}"))
    wrong = table[table["relative_difference"] > table["has_to_be_at_most"]]
    if len(wrong):
        names = ", ".join(wrong["rounds of"])
        print(f"error: the runtimes do not agree on {names}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
