"""Time and memory against clients and actors, and what larger rounds would cost.

    scripts/run benchmarks.scale

Rounds of TrieHH's votes and of training, by one worker, by this program's own
TensorFlow, and by Ray with several actors; then rounds of a varying number of clients,
after which memory must not have grown. From the figures of one worker a line is fitted,
seconds = fixed + clients x (seconds a client), and with k workers the second part is
divided by k: that, and nothing else, is the projection.
"""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psutil
from absl import app

from benchmarks import engine_workloads, resource_usage
from benchmarks import results as benchmark_results
from federated_hh.options import option_flags
from federated_hh.options.fields import check, option
from federated_hh.runtime.worker import engine_options, startup

if TYPE_CHECKING:
    import pandas as pd

_WORKER, _IN_PROCESS = "worker", "in_process"
_BLOCKS = 32
# Clients of a round that somebody may want, and on how many cores.
_WANTED = {"TrieHH's votes": 10**9, "training, exact sum": 6500}
_CORES = (1, 8, 64, 512)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is measured."""

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
    results_dir: str = option("results/benchmark_scale", "Where tables go.")

    def __post_init__(self):
        check(self)
        for name in ("cohorts", "trained", "actors"):
            for value in getattr(self, name):
                if not value.isdecimal() or int(value) < 1:
                    raise ValueError(
                        f"{name} has {value!r}; it has to be whole numbers above 0"
                    )


_FLAGS = option_flags.define(Options)


@contextlib.contextmanager
def _computing(backend: str) -> Iterator[None]:
    """Computes by a back end: worker, in_process, or how many actors of Ray."""
    from federated_hh.runtime import runtime

    if backend == _IN_PROCESS:
        engine_options.choose(
            engine_options.RuntimeOptions(engine_options.Runtime.IN_PROCESS)
        )
    elif backend != _WORKER:
        engine_options.choose(
            engine=engine_options.EngineOptions(
                engine_options.Engine.RAY, num_workers=int(backend.split()[1])
            )
        )
    try:
        with runtime.computing():
            yield
    finally:
        engine_options.choose()


def _backends(options: Options) -> list[str]:
    return [_WORKER, _IN_PROCESS, *(f"ray {count}" for count in options.actors)]


def measure_cost(options: Options, scratch: str) -> "pd.DataFrame":
    """Returns a table: a row a back end and workload.

    Args:
        options: What is measured.
        scratch: Where clients are written.
    """
    import pandas as pd

    cohorts = [int(value) for value in options.cohorts]
    words = engine_workloads.population(scratch, max(cohorts))
    workloads = [
        engine_workloads.votes(words, min(size, words.num_clients)) for size in cohorts
    ]
    for value in options.trained:
        training, _ = engine_workloads.training(
            scratch, int(value), options.num_units, _BLOCKS
        )
        workloads.append(training)
    rows = []
    for backend in _backends(options):
        with _computing(backend):
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
    for backend in _backends(options):
        random = np.random.default_rng(1)
        asked = block_round.BlockRound(work, {"values": 9}, block_size=1)
        with _computing(backend):
            for number in range(1, options.memory_rounds + 1):
                cohort = np.arange(random.integers(5, 61))
                asked({"unused": np.int32(number)}, cohort, streams.Stream(number))
                if number in (options.memory_rounds // 2, options.memory_rounds):
                    rows.append(
                        {
                            "backend": backend,
                            "after_rounds": number,
                            "own_gib": _own_bytes() / 2**30,
                        }
                    )
                    print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def _own_bytes() -> int:
    """Returns the memory of this process and all below it that they do not share."""
    total = 0
    process = psutil.Process()
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = one.memory_info()
            total += memory.rss - memory.shared
    return total


def project(cost: "pd.DataFrame") -> "pd.DataFrame":
    """Returns a table: what a wanted round would take on more cores.

    What was measured at one size only has no row.

    Args:
        cost: The cost of `measure_cost`.
    """
    import numpy as np
    import pandas as pd

    rows = []
    measured = cost[cost["backend"] == _WORKER]
    for name, clients in _WANTED.items():
        of_it = measured[measured["rounds of"] == name]
        if len(of_it) < 2:
            continue
        # Of its own size each, so that small rounds count.
        slope, fixed = np.polyfit(
            of_it["clients"],
            of_it["cpu_seconds_per_round"],
            1,
            w=1 / of_it["cpu_seconds_per_round"],
        )
        for cores in _CORES:
            rows.append(
                {
                    "rounds of": name,
                    "clients": clients,
                    "cores": cores,
                    "fixed_seconds": max(fixed, 0.0),
                    "seconds_a_client": slope,
                    "projected_seconds": max(fixed, 0.0) + slope * clients / cores,
                }
            )
    return pd.DataFrame(rows)


def main(argv: list[str]) -> None:
    """Measures, writes and prints."""
    del argv
    startup.silence_tensorflow()
    options = _FLAGS.read()
    with tempfile.TemporaryDirectory(prefix="benchmark_scale_") as scratch:
        cost = measure_cost(options, scratch)
        memory = measure_memory(options)
    more = {"memory": memory}
    if len(projection := project(cost)):
        more["projection"] = projection
    benchmark_results.write(
        options.results_dir,
        "benchmarks.scale",
        cost,
        "synthetic English words, and random sentences",
        more=more,
    )
    for table in (cost, *more.values()):
        print(table.to_string(index=False, float_format=lambda x: f"{x:.4g}"))


if __name__ == "__main__":
    app.run(main, flags_parser=_FLAGS.parse)
