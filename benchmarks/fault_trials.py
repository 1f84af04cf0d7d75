"""Fails a part of a round on Ray at random moments, and checks the sum.

    scripts/run benchmarks.fault_trials --trials=50

Each trial is a round of training on a cluster of this machine with two nodes of a core
each. In it one thing fails: an actor is killed, its TFF worker is killed, either is
stopped, or a node is removed. A round that ends before is no trial. The sum has to be
that of one worker to the bit.
"""

import dataclasses
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from absl import app

from benchmarks import engine_workloads, harness
from federated_hh.options.fields import option
from federated_hh.runtime.worker import engine_options

if TYPE_CHECKING:
    import pandas as pd

SAME = "the same sum"
_LONGEST_WAIT = 120.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(harness.Options):
    """Number of trials, and size of a round."""

    trials: int = option(50, "Number of trials.", least=1, most=100_000)
    clients: int = option(64, "Clients that train in a round.", least=1, most=10**6)
    num_units: int = option(64, "Units of the model's layer.", least=2, most=10_000)
    slice_timeout: float = option(
        10.0, "The longest time of a slice.", above=0, most=1e5, unit="seconds"
    )
    seed: int = option(1, "Seed of faults and moments.", least=0, most=2**31)
    results_dir: str = harness.results_dir("fault_trials")


class _Nodes:
    """A cluster of this machine: a head without cores, and nodes of a core each."""

    def __init__(self, ray: Any, number: int):
        from ray import cluster_utils

        self._cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0}
        )
        # Before there are others: it connects to one, and that cannot be removed.
        ray.init(
            address=self._cluster.address, log_to_driver=False, logging_level="ERROR"
        )
        self._nodes = [self._cluster.add_node(num_cpus=1) for _ in range(number)]

    def remove_one(self) -> None:
        """Ends a node, as if its machine was gone."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    def replace(self) -> None:
        """Adds a node in place of a removed one."""
        self._nodes.append(self._cluster.add_node(num_cpus=1))

    def close(self) -> None:
        """Ends the cluster."""
        self._cluster.shutdown()


def _processes(ray: Any, actors: Any) -> list[tuple[int, int]]:
    """Returns the ids of all actors and their workers, once all have begun."""
    deadline = time.monotonic() + _LONGEST_WAIT
    while time.monotonic() < deadline:
        try:
            asked = [actor.process_ids.remote() for actor in actors.handles]
            found = ray.get(asked, timeout=5)
        except ray.exceptions.RayError:
            found = []
        if found and all(worker is not None for _, worker in found):
            return found
        actors.look_after()
    raise RuntimeError(f"not all actors were back within {_LONGEST_WAIT:.0f} s")


class _Timer:
    """Lets something fail after a while, unless the round is over before.

    Attributes:
        struck: Seconds from the round's beginning to the fault; None without one.
    """

    def __init__(self, moment: float, fault: Callable[[], None]):
        self.struck: float | None = None
        self._fault = fault
        self._begun = time.monotonic()
        self._timer = threading.Timer(moment, self._strike)
        self._timer.start()

    def _strike(self) -> None:
        self.struck = time.monotonic() - self._begun
        self._fault()

    def end(self) -> float:
        """Returns the seconds of the round, which is over."""
        seconds = time.monotonic() - self._begun
        self._timer.cancel()
        self._timer.join()
        return seconds


def trials(options: Options, scratch: str) -> "pd.DataFrame":
    """Returns a table: a row a trial.

    Args:
        options: Number of trials, and size of a round.
        scratch: Directory for the clients.
    """
    import pandas as pd

    from federated_hh.runtime.engines import ray_engine

    workload, _ = engine_workloads.training(
        scratch, options.clients, options.num_units, num_blocks=32
    )
    with engine_workloads.computing(engine_workloads.WORKER):
        expected = list(workload.rounds())
    engine_options.choose(
        engine=engine_options.EngineOptions(
            engine_options.Engine.RAY,
            num_workers=2,
            slice_timeout=options.slice_timeout,
        )
    )
    ray = ray_engine.import_ray(is_local=True)
    chooser = random.Random(options.seed)
    nodes = _Nodes(ray, 2)
    rows: list[dict[str, Any]] = []
    try:
        with ray_engine.computing(-1) as actors:
            list(workload.rounds())  # compiles
            while len(rows) < options.trials:
                list(workload.rounds())  # ends one that was stopped after its round
                _processes(ray, actors)  # all are back
                undisturbed = harness.seconds(lambda: list(workload.rounds()))
                pids = _processes(ray, actors)
                kinds = engine_workloads.FAULTS
                kind = kinds[len(rows) % len(kinds)]
                moment = chooser.uniform(0, undisturbed)
                timer = _Timer(
                    moment,
                    engine_workloads.fault(
                        kind, chooser.choice(pids), nodes.remove_one
                    ),
                )
                try:
                    found = list(workload.rounds())
                    apart = engine_workloads.difference(expected, found)
                    outcome = SAME if apart == 0 else "ANOTHER SUM"
                except RuntimeError as error:
                    outcome = f"error: {str(error)[:200]}"
                seconds = timer.end()
                if timer.struck is not None and kind == "node removed":
                    nodes.replace()
                if timer.struck is None or timer.struck > seconds:
                    continue  # the round was over before
                rows.append(
                    {
                        "trial": len(rows) + 1,
                        "fault": kind,
                        "at_seconds": timer.struck,
                        "undisturbed_seconds": undisturbed,
                        "seconds": seconds,
                        "outcome": outcome,
                    }
                )
                print(rows[-1], flush=True)
    finally:
        ray.shutdown()
        nodes.close()
        engine_options.choose()
    return pd.DataFrame(rows)


def measure(options: Options, run: harness.Run) -> str | None:
    """Tries; returns an error where a round gave another sum, or none."""
    run.about["data"] = (
        f"{options.clients} synthetic clients, training of {options.num_units} units"
    )
    table = trials(options, run.scratch)
    run.show("cost", table)
    shown = table.groupby(["fault", "outcome"])["seconds"].agg(["count", "mean", "max"])
    print(shown.to_string(float_format=lambda x: f"{x:.3g}"))
    wrong = int((table["outcome"] != SAME).sum())
    return f"{wrong} of {len(table)} trials have not {SAME}" if wrong else None


CASE = harness.Case(Options, measure)

if __name__ == "__main__":
    app.run(CASE.main, flags_parser=CASE.parse)
