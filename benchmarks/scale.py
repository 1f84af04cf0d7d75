"""Measures time and memory by clients and actors, and projects larger rounds' cost.

    scripts/run benchmarks.scale

Rounds of TrieHH's votes and of training, by one worker, by this program's own
TensorFlow, and by Ray with several actors; then rounds of a varying number of clients,
after which memory must not have grown. From the figures of one worker a line is fitted,
seconds = fixed + clients x (seconds a client), and with k workers the second part is
divided by k: that, and nothing else, is the projection.
"""

import dataclasses
from typing import TYPE_CHECKING

from absl import app

from benchmarks import engine_workloads, harness, resource_usage
from federated_hh.options.fields import option

if TYPE_CHECKING:
    import pandas as pd

_BLOCKS = 32
# Clients of a round that somebody may want, and on how many cores.
_WANTED = {"TrieHH's votes": 10**9, "training, exact sum": 6500}
_CORES = (1, 8, 64, 512)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Sizes of the rounds, and numbers of actors."""

    cohorts: tuple[str, ...] = option(
        ("10000", "100000", "1000000", "10000000"), "Clients that vote in a round."
    )
    trained: tuple[str, ...] = option(
        ("10", "100", "1000"), "Clients that train in a round."
    )
    num_units: int = option(256, "Units of the model's layer.", least=2, most=10_000)
    actors: tuple[str, ...] = option(("1", "2", "4"), "Actors of Ray.")
    memory_rounds: int = option(
        300, "Rounds after which memory is compared.", least=2, most=10**6
    )
    results_dir: str = harness.results_dir("benchmark_scale")

    def __post_init__(self):
        super().__post_init__()
        for name in ("cohorts", "trained", "actors"):
            for value in getattr(self, name):
                if not value.isdecimal() or int(value) < 1:
                    raise ValueError(
                        f"{name} has {value!r}; it has to be whole numbers above 0"
                    )

    @property
    def backends(self) -> list[str]:
        """Runtimes, by the names of `engine_workloads.computing`."""
        ray = [f"ray {count}" for count in self.actors]
        return [engine_workloads.WORKER, engine_workloads.IN_PROCESS, *ray]


def measure_cost(options: Options, scratch: str) -> "pd.DataFrame":
    """Returns a table: a row a back end and workload.

    Args:
        options: Sizes of the rounds.
        scratch: Directory for the clients.
    """
    import pandas as pd

    cohorts = [int(value) for value in options.cohorts]
    words = engine_workloads.population(scratch, max(cohorts))
    workloads = [
        engine_workloads.votes(words, min(size, words.num_clients)) for size in cohorts
    ]
    for value in options.trained:
        workloads += engine_workloads.training(
            scratch, int(value), options.num_units, _BLOCKS
        )[:1]
    rows = []
    for backend in options.backends:
        with engine_workloads.computing(backend):
            for workload in workloads:
                list(workload.rounds())  # compiles
                with resource_usage.Usage() as usage:
                    rounds = len(list(workload.rounds()))
                rows.append(
                    {
                        "backend": backend,
                        "rounds of": workload.name,
                        "clients": workload.clients,
                        "rounds": rounds,
                        "seconds_per_round": usage.wall_seconds / rounds,
                        "cpu_seconds_per_round": usage.cpu_seconds / rounds,
                        "peak_own_gib": usage.peak_own_bytes / 2**30,
                    }
                )
                print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def measure_memory(options: Options) -> "pd.DataFrame":
    """Returns a table: the memory of all processes as rounds of varying size go by."""
    import numpy as np
    import pandas as pd
    import tensorflow as tf

    from federated_hh.randomness import streams
    from federated_hh.rounds import block_round

    def work(message, block):
        values = tf.random.stateless_uniform([100_000], block["seed"], 0, 9, tf.int64)
        return {"values": tf.ensure_shape(values, [100_000])}

    rows = []
    for backend in options.backends:
        random = np.random.default_rng(1)
        asked = block_round.BlockRound(work, {"values": 9}, block_size=1)
        with engine_workloads.computing(backend):
            for number in range(1, options.memory_rounds + 1):
                cohort = np.arange(random.integers(5, 61))
                asked({"unused": np.int32(number)}, cohort, streams.Stream(number))
                if number in (options.memory_rounds // 2, options.memory_rounds):
                    own = resource_usage.own_bytes() / 2**30
                    rows.append((backend, number, own))
                    print(rows[-1], flush=True)
    return pd.DataFrame(rows, columns=["backend", "after_rounds", "own_gib"])


def project(cost: "pd.DataFrame") -> "pd.DataFrame":
    """Returns a table: the projected cost of a wanted round on more cores.

    A workload measured at one size only has no row.

    Args:
        cost: Table of `measure_cost`.
    """
    import numpy as np
    import pandas as pd

    rows = []
    measured = cost[cost["backend"] == engine_workloads.WORKER]
    for name, clients in _WANTED.items():
        of_it = measured[measured["rounds of"] == name]
        if len(of_it) < 2:
            continue
        seconds = of_it["cpu_seconds_per_round"]
        # Errors relative to the size, so that small rounds count.
        slope, fixed = np.polyfit(of_it["clients"], seconds, 1, w=1 / seconds)
        rows += [
            {
                "rounds of": name,
                "clients": clients,
                "cores": cores,
                "fixed_seconds": max(fixed, 0.0),
                "seconds_a_client": slope,
                "projected_seconds": max(fixed, 0.0) + slope * clients / cores,
            }
            for cores in _CORES
        ]
    return pd.DataFrame(rows)


def measure(options: Options, run: harness.Run) -> None:
    """Measures, and projects."""
    cost = measure_cost(options, run.scratch)
    run.show("cost", cost)
    run.show("memory", measure_memory(options))
    if len(projection := project(cost)):
        run.show("projection", projection)


CASE = harness.Case(Options, measure, "synthetic English words, and random sentences")

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
