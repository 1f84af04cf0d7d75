"""Gives a round's slices to Ray's actors, and takes their results in order.

Ray restarts dead actors where there is room. If an actor died or took too long, the
first free one gets its slice. A slice's result is a function of the slice, and is taken
once.
"""

import collections
import dataclasses
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from federated_hh.runtime.engines import ray_worker
from federated_hh.runtime.worker import stops

TRIES = 4
# How long all actors may be on their way back before a round is given up.
MENDING_SECONDS = 120.0
_SECONDS_BETWEEN_LOOKS = 0.5
_BEGINNING = None
_FORGOTTEN = -1


_CONNECT_SECONDS = 5.0


class EngineError(RuntimeError):
    """Ray cannot be used as asked for, or too much of it failed."""


def check_address(address: str) -> None:
    """Raises `EngineError` where nobody listens; Ray would wait for a minute."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise EngineError(
            f"--ray_address is {address!r}; it has to be host:port of a running "
            f"cluster, or auto ({error})"
        ) from error


@dataclasses.dataclass
class _Task:
    """A request to an actor: a slice by its number, a start, or the end of a round."""

    actor: Any
    number: int | None
    since: float


class Actors:
    """The actors of a run, which work on one round at a time.

    Attributes:
        handles: The actors.
    """

    def __init__(
        self, handles: Sequence[Any], terms: ray_worker.Terms, slice_timeout: float
    ):
        """Stores actors that have not begun.

        Args:
            handles: The handles of `SliceWorker`s.
            terms: Terms that they begin with.
            slice_timeout: Seconds that one may take for a slice.
        """
        import ray

        self._ray = ray
        self.handles = list(handles)
        self._terms = ray.put(terms)
        self._timeout = slice_timeout
        self._idle: collections.deque[Any] = collections.deque()
        self._tasks: dict[Any, _Task] = {}
        # State of the current round.
        self._waiting: collections.deque[int] = collections.deque()
        self._results: dict[int, Any] = {}
        self._tries: collections.Counter[int] = collections.Counter()
        self._last_work = time.monotonic()

    def begin(self, timeout: float) -> None:
        """Starts all actors' runtimes.

        Args:
            timeout: Seconds in which all have to be there.

        Raises:
            EngineError: If one is not there in time, or refuses.
        """
        for actor in self.handles:
            self._begin(actor)
        deadline = time.monotonic() + timeout
        while self._tasks:
            self._wait()
            if self._tasks and time.monotonic() > deadline:
                raise EngineError(
                    f"{len(self._tasks)} of {len(self.handles)} workers did not start "
                    f"within {timeout:.0f} s; the cluster needs a free core for each, "
                    "and this project's environment on each machine"
                )

    def map(
        self, call: ray_worker.Call, kept: Sequence[Any], slices: Sequence[Mapping]
    ) -> Iterator[Any]:
        """Yields the slices' results, in their order.

        Args:
            call: Call to compute on each.
            kept: References that it needs.
            slices: The clients' values of each.

        Raises:
            EngineError: If a slice failed too often, or no actor comes back.
            ValueError: If a contribution left its range.
            RuntimeError: If the computation fails.
        """
        self._waiting.extend(range(len(slices)))
        self._last_work = time.monotonic()
        following = 0
        try:
            while following < len(slices):
                while self._waiting and self._idle:
                    number, actor = self._waiting.popleft(), self._idle.popleft()
                    reference = actor.compute.remote(call, list(kept), slices[number])
                    self._tasks[reference] = _Task(actor, number, time.monotonic())
                self._wait()
                self._end_overdue()
                self._check_mending()
                while following in self._results:
                    yield self._results.pop(following)
                    following += 1
        finally:
            self._waiting.clear()
            self._results.clear()
            self._tries.clear()
            for task in self._tasks.values():
                if task.number is not _BEGINNING:
                    task.number = _FORGOTTEN

    def look_after(self) -> None:
        """Readmits actors that Ray has started again; rounds do so as they run."""
        if self._tasks:
            self._wait()

    def _begin(self, actor: Any) -> None:
        self._tasks[actor.begin.remote(self._terms)] = _Task(
            actor, _BEGINNING, time.monotonic()
        )

    def _wait(self) -> None:
        ready, _ = self._ray.wait(
            list(self._tasks), num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS
        )
        for reference in ready:
            self._take(reference)

    def _take(self, reference: Any) -> None:
        """Stores a task's result."""
        task = self._tasks.pop(reference)
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            self._idle.append(task.actor)
            if task.number == _FORGOTTEN:
                return
            cause = error.cause if isinstance(error.cause, Exception) else error
            raise cause from None
        except self._ray.exceptions.RayError as error:
            self._lost(task, " ".join(str(error).split()))
            return
        if task.number is _BEGINNING and found:
            raise EngineError(found)
        self._idle.append(task.actor)
        if task.number is not _BEGINNING and task.number != _FORGOTTEN:
            self._results[task.number] = found

    def _lost(self, task: _Task, reason: str) -> None:
        """Gives a lost actor's slice to others, and waits for its restart."""
        if "creation task" in reason:  # no restart helps
            raise EngineError(f"a worker cannot be started: {reason[-500:]}")
        logging.warning("Lost a worker (%.200s); Ray restarts it.", reason)
        if task.number is _BEGINNING:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        elif task.number != _FORGOTTEN:
            self._tries[task.number] += 1
            if self._tries[task.number] >= TRIES:
                raise EngineError(
                    f"a slice of a round failed {TRIES} times, the last time because "
                    f"of: {reason[:500]}{stops.advice()}"
                )
            self._waiting.appendleft(task.number)
        self._begin(task.actor)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for reference, task in list(self._tasks.items()):
            if task.number is _BEGINNING or now - task.since <= self._timeout:
                continue
            del self._tasks[reference]
            self._ray.kill(task.actor, no_restart=False)
            reason = (
                f"a slice took more than {self._timeout:g} s: its worker was stopped, "
                "hangs, or needs a longer --slice_timeout"
            )
            self._lost(task, reason)

    def _check_mending(self) -> None:
        """Raises `EngineError` if no actor works and none restarts."""
        tasks = self._tasks.values()
        if self._idle or any(task.number is not _BEGINNING for task in tasks):
            self._last_work = time.monotonic()
        elif time.monotonic() - self._last_work > MENDING_SECONDS:
            raise EngineError(
                f"all {len(self.handles)} workers are lost, and none restarted within "
                f"{MENDING_SECONDS:.0f} s{stops.advice()}"
            )
