"""The one loop: runs an algorithm in a run directory, so that it can be interrupted.

For each round: the plan's sampler draws a cohort; the round is written down; the query
is asked of the cohort; the plan's mechanism makes of the sum what is released; the
algorithm makes of that the next state. An observer sees the truth, for the simulator's
metrics, and reaches no state.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from absl import logging

from federated_hh.files import memory, software
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import realised
from federated_hh.rounds import checkpoints, codec, record, steps
from federated_hh.rounds.algorithm import Algorithm, Query
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory.round_metrics import RoundMetrics

S = TypeVar("S")
_CHECKPOINT = "checkpoint-{:09d}.npz"


@dataclasses.dataclass(frozen=True)
class Observed(Generic[S]):
    """What an observer sees of a round; all arrays are read-only.

    Attributes:
        repeat: From 0.
        number: From 1.
        cohort: Who was asked: int64.
        total: The exact sum.
        released: What the mechanism let through.
        before: The state that the round was asked with.
        state: The state after the round.
        is_last: Whether it was the last round of its repeat.
    """

    repeat: int
    number: int
    cohort: np.ndarray
    total: Any
    released: Any
    before: S
    state: S
    is_last: bool


Observer = Callable[[Observed[Any]], Mapping[str, float | int]]


@dataclasses.dataclass(frozen=True)
class Outcome(Generic[S]):
    """What a run gave.

    Attributes:
        states: The last state of each repeat.
        record: What was asked of whom, for the plan's statement.
    """

    states: tuple[S, ...]
    record: plan_lib.Record


def run(
    algorithm: Algorithm[S, Any],
    directory: run_directory.RunDirectory,
    *,
    seed: int,
    repeats: int = 1,
    delta: float = 1e-10,
    save_every: int = 1,
    keep: int = 1,
    observers: Sequence[Observer] = (),
) -> Outcome[S]:
    """Runs an algorithm, or what is left of an interrupted run of it.

    A round's cohort is written down before its clients are asked, and the state after
    it is saved. A directory that has a checkpoint is continued where it stands, with
    the same result as without the interruption: rounds after the checkpoint are asked
    again, of the same clients, with the same random numbers.

    Args:
        algorithm: What to run.
        directory: Takes the record, checkpoints and a row of metrics a round; its
            noise key is the run's.
        seed: The public seed: of the cohorts, where they need not be secret.
        repeats: How often, at least 1; each with cohorts and noise of its own.
        delta: The delta of the privacy in the metrics, where the plan's theorem has it.
        save_every: Rounds between checkpoints, at least 1.
        keep: How many checkpoints stay, at least 1.
        observers: What adds metrics from ground truth.

    Raises:
        RunDirectoryError: If what is on file is damaged, or of another run or code.
        ValueError: If a number is out of range, or the sampler's cohort is none.
    """
    numbers = {"repeats": repeats, "save_every": save_every, "keep": keep}
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; it has to be at least 1")
    return _Loop(algorithm, directory, seed, delta, observers, **numbers).run()


class _Loop(Generic[S]):
    def __init__(
        self, algorithm, directory, seed, delta, observers, *, repeats, save_every, keep
    ):
        self._algorithm: Algorithm[S, Any] = algorithm
        self._plan: plan_lib.Plan[Any, Any, Any] = algorithm.plan
        self._directory: run_directory.RunDirectory = directory
        self._repeats = repeats
        self._delta = delta
        self._save_every = save_every
        self._keep = keep
        self._observers: Sequence[Observer] = observers
        code = software.digest_with(algorithm, self._plan)
        # What asks: algorithm, plan, data and seed; and those with the code.
        self._asks = steps.identity_of(algorithm, seed, "")
        self._code = steps.identity_of(algorithm, seed, code)[:16]
        self._steps = steps.Steps(
            algorithm,
            seed=seed,
            noise_key=directory.noise_key,
            # With a public key, a seed means the same in every version.
            code=code if directory.noise_key.is_secret else "",
            parking_place=directory.simulator,
        )
        self._record = record.RoundRecord(directory.simulator)
        self._failed = record.FailedSums(directory.simulator)
        # Of finished repeats: their files, and what they hold.
        self._finished: list[dict[str, str]] = []
        self._states: list[S] = []
        self._ended: list[plan_lib.Repeat] = []
        self._seconds: list[float] = []

    def run(self) -> Outcome[S]:
        restored = [place for place in (self._restore(),) if place is not None]
        if len(self._finished) < self._repeats:
            self._record.check_code(self._code)
            with memory.quick_collections(), self._algorithm.worker():
                while len(self._finished) < self._repeats:
                    # Only what runs the rounds holds where they began.
                    self._finish(
                        self._rounds(
                            restored.pop()
                            if restored
                            else self._steps.begin(len(self._finished))
                        )
                    )
        self._record.check_done()
        rounds = realised.RealisedRounds(tuple(self._record.rounds))
        places = tuple(repeat.places for repeat in self._ended)
        return Outcome(tuple(self._states), plan_lib.Record(rounds, places))

    def _rounds(self, place: steps.Place[S]) -> steps.Place[S]:
        """Runs what is left of a repeat."""
        query = self._algorithm.next_query(place.state)
        while query is not None:
            try:
                place, query = self._round(place, query)
            except Exception:
                if place.rounds and len(self._record.rounds):
                    self._save(place)
                raise
            if query is not None and place.rounds % self._save_every == 0:
                self._save(place)
        return place

    def _round(
        self, place: steps.Place[S], query: Query[Any]
    ) -> tuple[steps.Place[S], Query[Any] | None]:
        start = time.perf_counter()
        drawn = self._steps.draw(place)
        # Before it is on file: the record is of rounds that were asked.
        self._plan.check_round(place.rounds + 1, query.facts)
        self._record.add(
            realised.Round.of(
                place.repeat, place.rounds + 1, drawn.cohort, self._code, query.facts
            )
        )
        total = self._ask(place, query, drawn.cohort)
        step = self._steps.update(place, query, drawn, total)
        memory.return_freed()
        following = self._algorithm.next_query(step.place.state)
        seen = Observed(
            place.repeat,
            step.place.rounds,
            drawn.cohort,
            total,
            step.released,
            place.state,
            step.place.state,
            following is None,
        )
        truth = dict(drawn.metrics)
        for observer in self._observers:
            truth |= observer(seen)
        released = {
            "repeat": place.repeat,
            "round": step.place.rounds,
            **step.metrics,
            **self._spent(step.place),
        }
        if step.metrics.keys() & {"repeat", "round"}:
            raise ValueError("metrics of an algorithm cannot be named repeat or round")
        self._add_metrics(released, truth, time.perf_counter() - start)
        return step.place, following

    def _ask(self, place: steps.Place[S], query: Query[Any], cohort: np.ndarray) -> Any:
        """Returns the sum; one that fails is written down, for the next attempt."""
        asked = place.repeat, place.rounds + 1
        try:
            return self._steps.ask(place, query, cohort, self._failed.count(*asked))
        except RuntimeError as error:
            from federated_hh.runtime.masking import messages

            if not isinstance(error, messages.MaskedSumError):
                raise
            self._failed.add(*asked)
            raise messages.MaskedSumError(
                f"{error}. --resume asks the same clients once more, with other keys"
            ) from error

    def _spent(self, place: steps.Place[S]) -> Mapping[str, float | int]:
        so_far = (*self._ended, plan_lib.Repeat(place.rounds, place.places))
        return self._plan.theorem.spent(self._plan, so_far, self._delta)

    def _add_metrics(
        self,
        released: Mapping[str, float | int],
        truth: Mapping[str, float | int],
        seconds: float,
    ) -> None:
        metrics = RoundMetrics(released, {**truth, "seconds": seconds})
        self._directory.add_metrics(int(released["round"]), metrics)
        row = metrics.combined()
        most = self._algorithm.max_rounds
        self._seconds.append(seconds)
        left = ""
        if most:
            rounds = most * (self._repeats - row["repeat"]) - row["round"]
            mean = sum(self._seconds) / len(self._seconds)
            left = f", at most {_duration(rounds * mean)} left" if rounds else ""
        logging.info(
            "%sround %s%s: %s (%.2f s%s)",
            f"repeat {row['repeat'] + 1} of {self._repeats}, "
            if self._repeats > 1
            else "",
            row["round"],
            f" of {most}" if most else "",
            self._algorithm.progress(row),
            seconds,
            left,
        )

    def _finish(self, place: steps.Place[S]) -> None:
        """Keeps the end of a repeat in a file of its own."""
        self._finished.append(
            checkpoints.write(
                self._directory.simulator,
                f"repeat-{place.repeat:06d}.npz",
                {"state": place.state, "places": place.places},
            )
        )
        self._states.append(place.state)
        self._ended.append(plan_lib.Repeat(place.rounds, place.places))
        self._save(None)

    def _save(self, place: steps.Place[S] | None) -> None:
        count = len(self._record.rounds)
        if place is not None and self._record_is_ahead(place):
            count -= 1
        folder = self._directory.simulator
        saved = None
        if place is not None:
            saved = checkpoints.write(folder, _CHECKPOINT.format(count), place)
        self._directory.save_checkpoint(
            {
                "state": saved,
                "finished": self._finished,
                "rounds": count,
                "record": self._record.digest(count),
                "asks": self._asks,
            }
        )
        last = saved["file"] if saved else None
        checkpoints.keep_last(folder, "checkpoint-*.npz", self._keep, last)

    def _record_is_ahead(self, place: steps.Place[S]) -> bool:
        """Returns whether a round was written down that the state does not have."""
        last = self._record.rounds[-1]
        return (last.repeat, last.number) != (place.repeat, place.rounds)

    def _restore(self) -> steps.Place[S] | None:
        checkpoint = self._directory.load_checkpoint()
        if checkpoint is None:
            return None
        if checkpoint["asks"] != self._asks:
            raise record.RecordError(
                f"{self._directory.path}: what was run has another plan, data or seed; "
                "restore what it began with, or begin a new run"
            )
        self._record.take_over(checkpoint["rounds"], checkpoint["record"])
        folder = self._directory.simulator.path
        first = self._steps.begin(len(self._finished))
        counts = collections.Counter(found.repeat for found in self._record.rounds)
        for saved in checkpoint["finished"]:
            tree, arrays = checkpoints.read(folder, saved)
            self._finished.append(saved)
            self._states.append(_like(first.state, tree["state"], arrays))
            places = _like(first.places, tree["places"], arrays)
            self._ended.append(plan_lib.Repeat(counts[len(self._ended)], places))
        if checkpoint["state"] is None:
            return None
        tree, arrays = checkpoints.read(folder, checkpoint["state"], self._waiting)
        values = {
            name: _like(getattr(first, name), tree[name], arrays)
            for name in ("repeat", "rounds", "history", "state", "noise", "places")
        }
        logging.info(
            "Continuing repeat %d after round %d.",
            values["repeat"] + 1,
            values["rounds"],
        )
        return steps.Place(**values)

    def _waiting(self, path: str, array: np.ndarray) -> np.ndarray:
        """Returns an array of a saved place, which waits on disk if it is noise's."""
        return self._steps.parked(array) if path.startswith("noise/") else array


def _like(first: Any, tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns a saved value, which is of the type of what a repeat begins with."""
    value = codec.decode(type(first), tree, arrays)
    codec.freeze(value)
    return value


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
