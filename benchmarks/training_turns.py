"""Rounds of several ways to train, each in a process of its own, turn by turn.

TensorFlow settles its threads and its kernels once for a process. Ways that take turns
have the same share of a machine that does other work, too.
"""

import collections
import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks import harness, resource_usage, training_ways
from federated_hh.runtime.worker import startup

if TYPE_CHECKING:
    import pandas as pd


def settle(with_onednn: bool) -> None:
    """Settles how TensorFlow computes in a process that has not imported it."""
    startup.silence_tensorflow()
    startup.use_onednn(with_onednn)
    startup.prepare_in_process()
    harness.one_thread()


def in_a_process(
    work: Callable[[], Any], begin: Callable[[], object] | None = None
) -> Any:
    """Calls a function of a module in a new process, and returns its result.

    Args:
        work: The function.
        begin: Function that is called there before it.
    """
    with concurrent.futures.ProcessPoolExecutor(
        1, mp_context=multiprocessing.get_context("spawn"), initializer=begin
    ) as pool:
        return pool.submit(work).result()


class _Process:
    """A process that trains the clients of a workload in one way, when it is told."""

    # Set in the started process alone.
    _train: Callable[[], object]
    _context: contextlib.AbstractContextManager[Callable[[], object]]

    def __init__(self, way: str):
        """Starts it; nothing is computed yet."""
        self._way = way
        self._pool = concurrent.futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn")
        )

    @contextlib.contextmanager
    def training(
        self, workload: training_ways.Workload, scratch: str
    ) -> Iterator[None]:
        """Trains once, which builds the computation, and keeps it for the block."""
        self._pool.submit(self._begin, self._way, workload, scratch).result()
        yield
        self._pool.submit(self._end).result()

    def usage(self) -> dict[str, float]:
        """Returns the seconds and the memory of a round."""
        return self._pool.submit(self._go).result()

    def close(self) -> None:
        """Ends it."""
        self._pool.shutdown()

    @classmethod
    def _begin(cls, name: str, workload: training_ways.Workload, scratch: str) -> None:
        [way] = (way for way in training_ways.ways() if way.name == name)
        settle(way.with_onednn)
        cls._context = way.of(training_ways.task_of(workload, scratch))
        cls._train = staticmethod(cls._context.__enter__())
        cls._train()

    @classmethod
    def _go(cls) -> dict[str, float]:
        with resource_usage.Usage() as used:
            cls._train()
        return {
            "cpu_seconds": used.cpu_seconds,
            "wall_seconds": used.wall_seconds,
            "peak_own_gib": used.peak_own_bytes / 2**30,
        }

    @classmethod
    def _end(cls) -> None:
        cls._context.__exit__(None, None, None)


def measure(
    workloads: Sequence[training_ways.Workload],
    ways: Sequence[str],
    repeats: int,
    scratch: str,
) -> "pd.DataFrame":
    """Returns a table: a client's cost, by workload, way and repeat.

    Args:
        workloads: The clients and their models.
        ways: Names of the ways, of `training_ways.ways`.
        repeats: Rounds that are measured of each way, turn by turn: each time
            another way is the first.
        scratch: Directory for the clients' text.
    """
    import pandas as pd

    rows = []
    with contextlib.ExitStack() as stack:
        started = {way: _Process(way) for way in ways}
        for process in started.values():
            stack.callback(process.close)
        for workload in workloads:
            with contextlib.ExitStack() as trained:
                for process in started.values():
                    trained.enter_context(process.training(workload, scratch))
                for repeat in range(repeats):
                    turn = collections.deque(started.items())
                    turn.rotate(-repeat)
                    for name, process in turn:
                        used = process.usage()
                        rows.append(
                            {
                                "workload": workload.name,
                                "way": name,
                                "repeat": repeat,
                                "clients": workload.clients,
                                **{
                                    f"{key}_per_client": used[key] / workload.clients
                                    for key in ("cpu_seconds", "wall_seconds")
                                },
                                "peak_own_gib": used["peak_own_gib"],
                            }
                        )
    return pd.DataFrame(rows)


def ratios(found: "pd.DataFrame") -> dict[str, dict[str, float]]:
    """Returns each way's processor time to pfl-research's, by workload.

    Args:
        found: Table of `measure`.

    Returns:
        The median of the repeats' ratios; nothing without pfl-research.
    """
    table = found.pivot(
        index=["workload", "repeat"], columns="way", values="cpu_seconds_per_client"
    )
    if training_ways.PFL not in table:
        return {}
    medians = table.div(table[training_ways.PFL], axis=0).groupby(
        level="workload", sort=False
    )
    return medians.median().drop(columns=training_ways.PFL).to_dict("index")


def measure_threads(
    workload: training_ways.Workload, repeats: int, scratch: str
) -> "pd.DataFrame":
    """Returns a table of `rounds_on_cores`, measured in a process of its own.

    A program that trains has one too.

    Args:
        workload: The clients and their model.
        repeats: Rounds on each number of cores.
        scratch: Directory for the clients' text.
    """
    work = functools.partial(rounds_on_cores, workload, repeats, scratch)
    return in_a_process(work, functools.partial(settle, False))


def rounds_on_cores(
    workload: training_ways.Workload, repeats: int, scratch: str
) -> "pd.DataFrame":
    """Returns a table: seconds of a round on one core and on two, turn by turn.

    Args:
        workload: The clients and their model.
        repeats: Rounds on each, with a worker of their own, after one that builds the
            computation.
        scratch: Directory for the clients' text.

    Returns:
        A row a round. Where this process may use one core only, there are no rounds on
        two.
    """
    import pandas as pd

    cores = sorted(os.sched_getaffinity(0))
    task = training_ways.task_of(workload, scratch)
    rows = []
    try:
        for repeat in range(repeats):
            for used in range(1, min(2, len(cores)) + 1):
                os.sched_setaffinity(0, cores[:used])
                with training_ways.ours(task) as train:
                    train()
                    seconds = harness.seconds(train)
                rows.append({"repeat": repeat, "cores": used, "wall_seconds": seconds})
    finally:
        os.sched_setaffinity(0, cores)
    return pd.DataFrame(rows).assign(clients=workload.clients)


def threads_gain(found: "pd.DataFrame") -> dict[str, float]:
    """Returns the ratio of a round's seconds on one core to those on two.

    Args:
        found: Table of `measure_threads`.

    Returns:
        The medians' ratio; and the least and the most of rounds that followed one
        another. Nothing where there were no rounds on two.
    """
    seconds = found.pivot(index="repeat", columns="cores", values="wall_seconds")
    if 2 not in seconds:
        return {}
    medians, pairs = seconds.median(), seconds[1] / seconds[2]
    return {
        "two cores to one": float(medians[1] / medians[2]),
        "two cores to one, least of pairs": float(pairs.min()),
        "two cores to one, most of pairs": float(pairs.max()),
    }
