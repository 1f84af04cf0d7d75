"""A round in its parts, without files: for the loop, notebooks and tests.

    steps = Steps(algorithm, seed=1, noise_key=noise_keys.NoiseKey.fresh())
    place = steps.begin()
    with algorithm.worker():
        while (query := algorithm.next_query(place.state)) is not None:
            drawn = steps.draw(place)
            total = steps.ask(place, query, drawn.cohort)
            place = steps.update(place, query, drawn, total).place

States may be looked at between any two of them.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from federated_hh.privacy import plan as plan_lib
from federated_hh.randomness import identities, noise_keys, streams
from federated_hh.rounds import codec
from federated_hh.rounds import spilled_arrays as parking
from federated_hh.rounds.algorithm import Algorithm, Query
from federated_hh.run_directory import files as run_files

S = TypeVar("S")


@dataclasses.dataclass(frozen=True)
class Place(Generic[S]):
    """Where a repeat stands between two rounds.

    Attributes:
        repeat: From 0.
        rounds: Rounds done.
        history: A keyed digest of all sums so far: 32 bytes.
        state: The algorithm's.
        noise: What the mechanism remembers.
        places: What the sampler remembers.
    """

    repeat: int
    rounds: int
    history: bytes
    state: S
    noise: Any
    places: Any


@dataclasses.dataclass(frozen=True)
class Step(Generic[S]):
    """What a round gave.

    Attributes:
        place: Where the repeat stands now.
        released: What the mechanism let through.
        metrics: Released.
    """

    place: Place[S]
    released: Any
    metrics: Mapping[str, float | int]


def identity_of(algorithm: Algorithm[Any, Any], seed: int, code: str) -> str:
    """Returns a hash of all that decides the sums of a run, but for its key.

    Args:
        algorithm: What is run.
        seed: The public seed.
        code: A digest of the code; empty where the noise need not be secret, so that
            a public seed means the same in every version.

    Raises:
        ValueError: If the plan, or what the algorithm says of itself, is not a value.
    """
    text = json.dumps(
        [
            identities.name_of(type(algorithm)),
            identities.canonical(algorithm.plan),
            dict(algorithm.describe()),
            seed,
            code,
        ],
        sort_keys=True,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def facts_of(algorithm: Algorithm[Any, Any]) -> dict[str, Any]:
    """Returns what a resumed run of an algorithm must have in common with its start."""
    return {"plan": identities.canonical(algorithm.plan), **algorithm.describe()}


def public_stream(seed: int, repeat: int) -> streams.Stream:
    """Returns the stream that a sampler draws from where cohorts are no secret."""
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
        parking_place: run_files.RunFiles | None = None,
    ):
        """Fixes what random numbers are a function of.

        Args:
            algorithm: What is run.
            seed: The public seed: of cohorts that need not be secret.
            noise_key: The noise key of all other random numbers.
            code: A digest of the code, where its random numbers are to be its own.
            parking_place: Where large arrays of the mechanism wait for the next round;
                in memory if None.
        """
        self._algorithm = algorithm
        self._plan = algorithm.plan
        self._seed = seed
        self._key = noise_key.value
        self._identity = identity_of(algorithm, seed, code)
        self._parking_place = parking_place

    def begin(self, repeat: int = 0) -> Place[S]:
        """Returns where a repeat begins."""
        state = self._algorithm.initialize(repeat)
        codec.freeze(state)
        return Place(
            repeat,
            0,
            bytes.fromhex(self._identity),
            state,
            self._plan.mechanism.initialize(),
            self._plan.sampler.initialize(),
        )

    def draw(self, place: Place[S]) -> plan_lib.Draw[Any]:
        """Chooses the clients of the next round.

        Raises:
            ValueError: If the sampler chooses others than it says.
        """
        sampler = self._plan.sampler
        stream = public_stream(self._seed, place.repeat)
        if sampler.is_secret:
            stream = self._stream(place.repeat).at("cohorts")
        drawn = sampler.draw(place.places, place.rounds, stream)
        self._check(drawn.cohort)
        drawn.cohort.flags.writeable = False
        return drawn

    def ask(
        self,
        place: Place[S],
        query: Query[Any],
        cohort: np.ndarray,
        failed: int = 0,
    ) -> Any:
        """Returns the exact sum over a cohort, which only the simulator knows.

        Args:
            place: Where the repeat stands.
            query: The query of the round.
            cohort: From `draw`.
            failed: How often this round was asked in vain, so that nothing came of it.

        Raises:
            MaskedSumError: If the sum is masked and too many clients dropped out.
            ValueError: If it is no cohort of the sampler's, or no round of the plan.
        """
        self._plan.check_round(place.rounds + 1, query.facts)
        self._check(cohort)
        stream = self._stream(place.repeat).at("clients").of(place.history)
        if failed:
            stream = stream.at("failed", failed)
        total = query.ask(cohort, stream)
        codec.freeze(total)
        return total

    def update(
        self, place: Place[S], query: Query[Any], drawn: plan_lib.Draw[Any], total: Any
    ) -> Step[S]:
        """Returns what comes of a round's sum, through the plan's mechanism.

        Raises:
            RunDirectoryError: If what the mechanism remembers cannot be parked.
        """
        stream = self._stream(place.repeat)
        # Keyed: in a checkpoint, a plain digest would tell who guesses a sum that the
        # guess is right.
        bits = stream.at("history").of(place.history).bits(codec.digest(total))
        history = bits.bytes(0, streams.HISTORY_BYTES)
        release = self._plan.release(
            total, place.noise, query.facts, stream.at("release").of(history)
        )
        released, noise, of_release = release.value, release.state, release.metrics
        del release  # its arrays are as large as the model
        noise = self.parked(noise)
        codec.freeze(released)
        state, metrics = self._algorithm.update(place.state, released)
        codec.freeze(state)
        following = Place(
            place.repeat, place.rounds + 1, history, state, noise, drawn.places
        )
        return Step(following, released, {**metrics, **of_release})

    def parked(self, noise: Any) -> Any:
        """Returns what the mechanism remembers, large arrays where they wait.

        Raises:
            RunDirectoryError: If there is no room for them.
        """
        if self._parking_place is None:
            return noise
        return parking.parked(noise, self._parking_place)

    def _check(self, cohort: np.ndarray) -> None:
        sampler = self._plan.sampler
        if cohort.shape != (sampler.cohort_size,):
            raise ValueError(
                f"cohort has the shape {cohort.shape}; it has to be "
                f"[{sampler.cohort_size}]"
            )
        if np.any(np.diff(cohort) <= 0):
            raise ValueError("cohort has a client twice, or is not ascending")
        if cohort[0] < 0 or cohort[-1] >= sampler.num_clients:
            raise ValueError(
                f"cohort has clients from {cohort[0]} to {cohort[-1]}; they have to be "
                f"in [0, {sampler.num_clients})"
            )

    def _stream(self, repeat: int) -> streams.Stream:
        return streams.Stream(self._key, ("run", self._identity, repeat))
