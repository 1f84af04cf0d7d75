"""The loop that runs every algorithm in a run directory and can be interrupted.

In each round the plan's sampler draws a cohort, the round is recorded, the query is
asked of the cohort, the plan's mechanism releases its sum, and the algorithm updates
its state. An observer sees the truth, for the simulator's metrics, and changes no
state.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from absl import logging

from federated_hh.files import freed_memory, software
from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import realised
from federated_hh.rounds import checkpoints, record, steps
from federated_hh.rounds.algorithm import Algorithm, Query
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory.metrics import RoundMetrics
from federated_hh.runtime.worker import stops

S = TypeVar("S")
_CHECKPOINT = "checkpoint-{:09d}.npz"
# Seconds of rounds that share a line of the log, after the first rounds.
_QUIET_SECONDS = 5
_FIRST_ROUNDS = 10
# The parts of a finished repeat's state that are kept.
_KEPT = ("state", "sampler_state")


@dataclasses.dataclass(frozen=True)
class Observed(Generic[S]):
    """A round as an observer sees it; all arrays are read-only.

    Attributes:
        repeat: Number of the repeat, from 0.
        number: Number of the round, from 1.
        cohort: Clients of the round: int64.
        total: The exact sum.
        released: The mechanism's output.
        before: The state before the round.
        state: The state after the round.
        is_last: True for the last round of its repeat.
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
    """The outcome of a run.

    Attributes:
        states: The last state of each repeat.
        record: The queries and their cohorts, for the plan's statement.
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
    """Runs an algorithm, or the rest of an interrupted run.

    A round's cohort is recorded before its clients are asked, and the state after the
    round is saved. A directory with a checkpoint is resumed from it, with the same
    result as without the interruption: rounds after the checkpoint are repeated, with
    the same clients and random numbers.

    Args:
        algorithm: The algorithm.
        directory: Directory for the record, checkpoints and metrics; its noise key is
            the run's.
        seed: The public seed, of cohorts that need not be secret.
        repeats: Number of repeats, at least 1; each has its own cohorts and noise.
        delta: Delta of the epsilon in the metrics, if the plan's theorem has one.
        save_every: Rounds between checkpoints, at least 1.
        keep: Number of checkpoints that stay, at least 1.
        observers: Sources of metrics from ground truth.

    Raises:
        RunDirectoryError: If the directory is damaged, or of another run or code.
        ValueError: If a number is out of range, or a cohort does not fit the sampler.
    """
    numbers = {"repeats": repeats, "save_every": save_every, "keep": keep}
    checks.integer(least=1, repeats=repeats, save_every=save_every, keep=keep)
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
        # Identities of algorithm, plan, data and seed; without and with the code.
        self._asks = steps.identity_of(algorithm, seed, "")
        self._code = steps.identity_of(algorithm, seed, code)[:16]
        self._steps = steps.Steps(
            algorithm,
            seed=seed,
            noise_key=directory.noise_key,
            # With a public key, a seed means the same in every version.
            code=code if directory.noise_key.is_secret else "",
            spill_folder=directory.simulator,
        )
        self._record = record.RoundRecord(directory.simulator)
        self._failed = record.FailedSums(directory.simulator)
        # The files of finished repeats, their states and their participation.
        self._finished: list[dict[str, str]] = []
        self._states: list[S] = []
        self._ended: list[plan_lib.Repeat] = []
        self._seconds: list[float] = []
        self._unlogged = 0.0

    def run(self) -> Outcome[S]:
        restored = [found for found in (self._restore(),) if found is not None]
        if len(self._finished) < self._repeats:
            self._record.check_code(self._code)
            with (
                freed_memory.quick_collections(),
                self._algorithm.worker(),
                stops.between_rounds(),
            ):
                while len(self._finished) < self._repeats:
                    stops.check()
                    # No name here for the initial state, so that it can be freed.
                    self._finish(
                        self._rounds(
                            restored.pop()
                            if restored
                            else self._steps.begin(len(self._finished))
                        )
                    )
        self._record.check_done()
        rounds = realised.RealisedRounds(tuple(self._record.rounds))
        samplers = tuple(repeat.sampler_state for repeat in self._ended)
        return Outcome(tuple(self._states), plan_lib.Record(rounds, samplers))

    def _rounds(self, progress: steps.Progress[S]) -> steps.Progress[S]:
        """Runs the rest of a repeat."""
        query = steps.next_query(self._algorithm, progress.state)
        while query is not None:
            try:
                progress, query = self._round(progress, query)
            except Exception:
                if progress.rounds and len(self._record.rounds):
                    self._save(progress)
                raise
            is_due = progress.rounds % self._save_every == 0
            if query is not None and (is_due or stops.asked()):
                self._save(progress)
                stops.check()
        return progress

    def _round(
        self, progress: steps.Progress[S], query: Query[Any]
    ) -> tuple[steps.Progress[S], Query[Any] | None]:
        start = time.perf_counter()
        drawn = self._steps.draw(progress)
        # Before the record, which is of rounds that were asked.
        self._plan.check_round(progress.rounds + 1, query.facts)
        self._record.add(
            realised.Round.of(
                progress.repeat,
                progress.rounds + 1,
                drawn.cohort,
                self._code,
                query.facts,
            )
        )
        total = self._ask(progress, query, drawn.cohort)
        step = self._steps.update(progress, query, drawn, total)
        freed_memory.return_freed()
        following = steps.next_query(self._algorithm, step.progress.state)
        seen = Observed(
            progress.repeat,
            step.progress.rounds,
            drawn.cohort,
            total,
            step.released,
            progress.state,
            step.progress.state,
            following is None,
        )
        truth = dict(drawn.metrics)
        if query.client_bytes is not None:
            truth |= query.client_bytes().metrics()
        for observer in self._observers:
            truth |= observer(seen)
        released = {
            "repeat": progress.repeat,
            "round": step.progress.rounds,
            **step.metrics,
            **self._spent(step.progress),
        }
        if step.metrics.keys() & {"repeat", "round"}:
            raise ValueError(
                "an algorithm's metric is named 'repeat' or 'round', which are "
                "reserved; rename it"
            )
        self._add_metrics(released, truth, time.perf_counter() - start, seen.is_last)
        return step.progress, following

    def _ask(
        self, progress: steps.Progress[S], query: Query[Any], cohort: np.ndarray
    ) -> Any:
        """Returns the sum; records a failed attempt, for the next one."""
        asked = progress.repeat, progress.rounds + 1
        try:
            return self._steps.ask(progress, query, cohort, self._failed.count(*asked))
        except RuntimeError as error:
            # Imported here, so that runs without masks do not load the protocol.
            from federated_hh.runtime.masking import messages

            if not isinstance(error, messages.MaskedSumError):
                raise
            self._failed.add(*asked)
            raise messages.MaskedSumError(
                f"{error}. --resume asks the same clients again, with new keys"
            ) from error

    def _spent(self, progress: steps.Progress[S]) -> Mapping[str, float | int]:
        so_far = (
            *self._ended,
            plan_lib.Repeat(progress.rounds, progress.sampler_state),
        )
        return self._plan.theorem.spent(self._plan, so_far, self._delta)

    def _add_metrics(
        self,
        released: Mapping[str, float | int],
        truth: Mapping[str, float | int],
        seconds: float,
        is_last: bool,
    ) -> None:
        metrics = RoundMetrics(released, {**truth, "seconds": seconds})
        self._directory.add_metrics(int(released["round"]), metrics)
        row = metrics.combined()
        most = self._algorithm.max_rounds
        self._seconds.append(seconds)
        self._unlogged += seconds
        # Other quick rounds say nothing new.
        is_due = not row["repeat"] and (
            row["round"] <= _FIRST_ROUNDS or row["round"] % _FIRST_ROUNDS == 0
        )
        if not is_due and not is_last and self._unlogged < _QUIET_SECONDS:
            return
        self._unlogged = 0.0
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
            self._algorithm.progress(row) or "done",
            seconds,
            left,
        )

    def _finish(self, progress: steps.Progress[S]) -> None:
        """Writes a repeat's final state to its own file."""
        self._finished.append(
            checkpoints.write(
                self._directory.simulator,
                f"repeat-{progress.repeat:06d}.npz",
                {name: getattr(progress, name) for name in _KEPT},
            )
        )
        self._states.append(progress.state)
        self._ended.append(plan_lib.Repeat(progress.rounds, progress.sampler_state))
        self._save(None)

    def _save(self, progress: steps.Progress[S] | None) -> None:
        count = len(self._record.rounds)
        if progress is not None and self._record_is_ahead(progress):
            count -= 1
        folder = self._directory.simulator
        saved = None
        if progress is not None:
            saved = checkpoints.write(folder, _CHECKPOINT.format(count), progress)
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
        checkpoints.keep_last(
            folder, "checkpoint-*.npz", self._keep, last, self._is_due
        )

    def _is_due(self, name: str) -> bool:
        """Returns whether a checkpoint is of a round after which one is saved."""
        count = int(name.removeprefix("checkpoint-").removesuffix(".npz"))
        rounds = self._record.rounds[count - 1 : count]
        return any(found.number % self._save_every == 0 for found in rounds)

    def _record_is_ahead(self, progress: steps.Progress[S]) -> bool:
        """Returns whether the record has a round that the state does not have."""
        last = self._record.rounds[-1]
        return (last.repeat, last.number) != (progress.repeat, progress.rounds)

    def _restore(self) -> steps.Progress[S] | None:
        checkpoint = self._directory.load_checkpoint()
        if checkpoint is None:
            return None
        if checkpoint["asks"] != self._asks:
            raise record.RecordError(
                f"{self._directory.path}: the run has another plan, data or seed than "
                "when it began; restore them, or begin a new run"
            )
        self._record.take_over(checkpoint["rounds"], checkpoint["record"])
        folder = self._directory.simulator.path
        first = self._steps.begin(len(self._finished))
        counts = collections.Counter(found.repeat for found in self._record.rounds)
        for saved in checkpoint["finished"]:
            tree, arrays = checkpoints.read(folder, saved)
            self._finished.append(saved)
            self._states.append(_like(first.state, tree["state"], arrays))
            sampler = _like(first.sampler_state, tree["sampler_state"], arrays)
            self._ended.append(plan_lib.Repeat(counts[len(self._ended)], sampler))
        if checkpoint["state"] is None:
            return None
        tree, arrays = checkpoints.read(folder, checkpoint["state"], self._waiting)
        values = {
            field.name: _like(getattr(first, field.name), tree[field.name], arrays)
            for field in dataclasses.fields(steps.Progress)
        }
        logging.info(
            "Resuming repeat %d after round %d.",
            values["repeat"] + 1,
            values["rounds"],
        )
        return steps.Progress(**values)

    def _waiting(self, path: str, array: np.ndarray) -> np.ndarray:
        """Returns an array of a checkpoint, spilled to disk if it is noise's."""
        is_noise = path.startswith("mechanism_state/")
        return self._steps.spilled(array) if is_noise else array


def _like(first: Any, tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Returns a saved value of the type that a repeat begins with."""
    value = checkpoints.decode(type(first), tree, arrays)
    checkpoints.freeze(value)
    return value


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
