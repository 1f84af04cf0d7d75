"""The parts of a round, without files: for the loop, notebooks and tests.

    steps = Steps(algorithm, seed=1, noise_key=noise_keys.NoiseKey.fresh())
    progress = steps.begin()
    with algorithm.worker():
        while (query := algorithm.next_query(progress.state)) is not None:
            drawn = steps.draw(progress)
            total = steps.ask(progress, query, drawn.cohort)
            progress = steps.update(progress, query, drawn, total).progress

A caller may look at states between any two of them.
"""

import dataclasses
import hashlib
import json
import mmap
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from federated_hh.privacy import plan as plan_lib
from federated_hh.randomness import identities, noise_keys, streams
from federated_hh.rounds import checkpoints
from federated_hh.rounds.algorithm import Algorithm, Query, returned
from federated_hh.run_directory import files as run_files

S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Progress(Generic[S]):
    """The state of a repeat between two rounds.

    Attributes:
        repeat: Number of the repeat, from 0.
        rounds: Number of finished rounds.
        history: Keyed digest of all sums so far: 32 bytes.
        state: The algorithm's state.
        mechanism_state: The state of the plan's mechanism.
        sampler_state: The state of the plan's sampler.
    """

    repeat: int
    rounds: int
    history: bytes
    state: S
    mechanism_state: Any
    sampler_state: Any


@dataclasses.dataclass(frozen=True)
class Step(Generic[S]):
    """The outcome of a round.

    Attributes:
        progress: The state of the repeat after the round.
        released: The mechanism's output.
        metrics: Released metrics.
    """

    progress: Progress[S]
    released: Any
    metrics: Mapping[str, float | int]


def identity_of(algorithm: Algorithm[Any, Any], seed: int, code: str) -> str:
    """Returns a hash of everything that decides a run's sums, except its key.

    Args:
        algorithm: The run's algorithm.
        seed: The public seed.
        code: Digest of the code; empty where the noise need not be secret, so that a
            public seed means the same in every version.

    Raises:
        ValueError: If the plan or the algorithm's description has no canonical text.
    """
    text = json.dumps(
        [
            identities.name_of(type(algorithm)),
            identities.canonical(algorithm.plan),
            dict(_described(algorithm)),
            seed,
            code,
        ],
        sort_keys=True,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def facts_of(algorithm: Algorithm[Any, Any]) -> dict[str, Any]:
    """Returns the facts that a resumed run shares with its start."""
    return {"plan": identities.canonical(algorithm.plan), **_described(algorithm)}


def _described(algorithm: Algorithm[Any, Any]) -> Mapping[str, Any]:
    return returned(algorithm.describe(), Mapping, algorithm, "describe")


def next_query(algorithm: Algorithm[S, Any], state: S) -> Query[Any] | None:
    """Returns an algorithm's next query; None where the repeat is finished.

    Raises:
        ValueError: If the algorithm returns something else.
    """
    query = algorithm.next_query(state)
    return returned(query, (Query, type(None)), algorithm, "next_query")


def public_stream(seed: int, repeat: int) -> streams.Stream:
    """Returns the stream of a sampler whose cohorts are not secret."""
    return streams.Stream(seed, ("repeat", repeat, "cohorts"))


class Steps(Generic[S]):
    """The parts of an algorithm's rounds; see this module's docstring."""

    def __init__(
        self,
        algorithm: Algorithm[S, Any],
        *,
        seed: int,
        noise_key: noise_keys.NoiseKey,
        code: str = "",
        spill_folder: run_files.RunFiles | None = None,
    ):
        """Fixes the streams of random numbers.

        Args:
            algorithm: The algorithm.
            seed: The public seed, of cohorts that need not be secret.
            noise_key: The key of all other random numbers.
            code: Digest of the code, if each version has random numbers of its own.
            spill_folder: Folder for the mechanism's large arrays between rounds; None
                for memory.
        """
        self._algorithm = algorithm
        self._plan = algorithm.plan
        self._seed = seed
        self._key = noise_key.value
        self._identity = identity_of(algorithm, seed, code)
        self._spill_folder = spill_folder

    def begin(self, repeat: int = 0) -> Progress[S]:
        """Returns a repeat's first state."""
        state = self._algorithm.initialize(repeat)
        checkpoints.freeze(state)
        return Progress(
            repeat,
            0,
            bytes.fromhex(self._identity),
            state,
            self._plan.mechanism.initialize(),
            self._plan.sampler.initialize(),
        )

    def draw(self, progress: Progress[S]) -> plan_lib.Draw[Any]:
        """Draws the next round's cohort.

        Raises:
            ValueError: If the cohort does not fit the sampler's description.
        """
        sampler = self._plan.sampler
        stream = public_stream(self._seed, progress.repeat)
        if sampler.is_secret:
            stream = self._stream(progress.repeat).at("cohorts")
        drawn = sampler.draw(progress.sampler_state, progress.rounds, stream)
        self._check(drawn.cohort)
        drawn.cohort.flags.writeable = False
        return drawn

    def ask(
        self,
        progress: Progress[S],
        query: Query[Any],
        cohort: np.ndarray,
        failed: int = 0,
    ) -> Any:
        """Returns the exact sum over a cohort, which only the simulator knows.

        Args:
            progress: The repeat's state.
            query: The round's query.
            cohort: Cohort, from `draw`.
            failed: Number of failed attempts at this round.

        Raises:
            MaskedSumError: If the sum is masked and too many clients dropped out.
            ValueError: If the cohort is not one of the sampler's, or the plan has no
                such round.
        """
        self._plan.check_round(progress.rounds + 1, query.facts)
        self._check(cohort)
        stream = self._stream(progress.repeat).at("clients").of(progress.history)
        if failed:
            stream = stream.at("failed", failed)
        total = query.ask(cohort, stream)
        checkpoints.freeze(total)
        return total

    def update(
        self,
        progress: Progress[S],
        query: Query[Any],
        drawn: plan_lib.Draw[Any],
        total: Any,
    ) -> Step[S]:
        """Releases a round's sum by the plan's mechanism and updates the state.

        Args:
            progress: The repeat's state.
            query: The round's query.
            drawn: Draw, from `draw`.
            total: Sum, from `ask`.

        Raises:
            RunDirectoryError: If the mechanism's state cannot be spilled to disk.
        """
        stream = self._stream(progress.repeat)
        # Keyed, because a plain digest in a checkpoint would confirm a guessed sum.
        bits = stream.at("history").of(progress.history).bits(checkpoints.digest(total))
        history = bits.bytes(0, streams.HISTORY_BYTES)
        release = self._plan.release(
            total,
            progress.mechanism_state,
            query.facts,
            stream.at("release").of(history),
        )
        released, noise, of_release = release.value, release.state, release.metrics
        del release  # its arrays are as large as the model
        noise = self.spilled(noise)
        checkpoints.freeze(released)
        found = self._algorithm.update(progress.state, released)
        found = returned(found, tuple, self._algorithm, "update")
        if len(found) != 2:
            raise ValueError(
                f"{type(self._algorithm).__name__}.update returned {len(found)} "
                "values; it has to return the next state and metrics"
            )
        state = found[0]
        metrics = returned(found[1], Mapping, self._algorithm, "update's metrics")
        checkpoints.freeze(state)
        following = Progress(
            progress.repeat, progress.rounds + 1, history, state, noise, drawn.state
        )
        return Step(following, released, {**metrics, **of_release})

    def spilled(self, noise: Any) -> Any:
        """Returns a mechanism's state with its large arrays spilled to disk.

        Args:
            noise: The state, or one of its arrays.

        Raises:
            RunDirectoryError: If the disk has no room.
        """
        if self._spill_folder is None:
            return noise
        return spilled(noise, self._spill_folder)

    def _check(self, cohort: np.ndarray) -> None:
        sampler = self._plan.sampler
        if cohort.shape != (sampler.cohort_size,):
            raise ValueError(
                f"cohort has the shape {cohort.shape}; it has to be "
                f"[{sampler.cohort_size}]"
            )
        if np.any(np.diff(cohort) <= 0):
            raise ValueError(
                "cohort has a duplicate client, or is not sorted; it has to be "
                "strictly increasing"
            )
        if cohort[0] < 0 or cohort[-1] >= sampler.num_clients:
            raise ValueError(
                f"cohort has clients from {cohort[0]} to {cohort[-1]}; they have to be "
                f"in [0, {sampler.num_clients})"
            )

    def _stream(self, repeat: int) -> streams.Stream:
        return streams.Stream(self._key, ("run", self._identity, repeat))


# Large arrays are spilled to disk until the next round needs them: a noise tree has two
# vectors per node, each as large as the model, which over hundreds of rounds is more
# than everything else in memory. Their file has no name and is deleted with the last
# array that uses it, so a killed run leaves nothing behind.
T = TypeVar("T")
_LEAST_BYTES = 1 << 20
_ALIGNMENT = 64


def spilled(value: T, folder: run_files.RunFiles) -> T:
    """Returns a value whose large arrays are mapped from a file.

    Arrays that are already mapped stay in their file.

    Args:
        value: A dataclass, as for `checkpoints.encode`.
        folder: Folder of the file.

    Raises:
        RunDirectoryError: If the file cannot be written, as on a full disk.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = checkpoints.encode(value, arrays)
    large = {
        name: np.ascontiguousarray(array)
        for name, array in arrays.items()
        if array.nbytes >= _LEAST_BYTES and not is_spilled(array)
    }
    if not large:
        return value
    offsets = {}
    with folder.nameless_file() as file:
        for name, array in large.items():
            offsets[name] = file.seek(-file.tell() % _ALIGNMENT, 1)
            file.write(array.data.cast("B"))
        file.flush()
        # Private: some user-space file systems support no shared mapping.
        mapped = mmap.mmap(
            file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ
        )
    for name, array in large.items():
        flat = np.frombuffer(mapped, array.dtype, array.size, offsets[name])
        arrays[name] = flat.reshape(array.shape)
    return checkpoints.decode(type(value), tree, arrays)


def is_spilled(array: Any) -> bool:
    """Returns whether an array, or the base of a view, is mapped from a file."""
    return file_of(array) is not None


def file_of(array: Any) -> mmap.mmap | None:
    """Returns the mapped file of an array; None of an array in memory."""
    while isinstance(array, np.ndarray):
        array = array.base
    if isinstance(array, memoryview):
        array = array.obj
    return array if isinstance(array, mmap.mmap) else None
