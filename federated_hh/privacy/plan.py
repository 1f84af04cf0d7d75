"""A run's plan: everything that its privacy depends on, in one value.

A `Plan` is a sampler (a round's cohort), a contribution (one client's message) and a
mechanism (the release). The run takes all three from the plan, and so does the
accounting: there is no second place that could say otherwise. A combination for which
no theorem is proved cannot be made into a plan.
"""

import abc
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from federated_hh.privacy import realised, statement
from federated_hh.randomness import identities, streams

P = TypeVar("P")
M = TypeVar("M")
_SamplerT = TypeVar("_SamplerT", bound="Sampler")
_ContributionT = TypeVar("_ContributionT", bound="Contribution")
_MechanismT = TypeVar("_MechanismT", bound="Mechanism")
Facts = Mapping[str, float | int | str]
Metrics = Mapping[str, float | int]


class Sampling(enum.Enum):
    """The law by which a round's clients are chosen."""

    # Each round a uniform sample without replacement of the whole population.
    UNIFORM = "uniform"
    # Nobody takes part twice; each cohort is a uniform sample of those who did not.
    DISJOINT = "disjoint"
    # Anybody, as long as a bound on participations and their distance is kept.
    LIMITED = "limited"


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits on a client's participation.

    Attributes:
        max_participation: MaxP: rounds of one repeat that a client is in at most.
        min_separation: MinS: rounds strictly between two of them, at least.
    """

    max_participation: int
    min_separation: int


@dataclasses.dataclass(frozen=True)
class Draw(Generic[P]):
    """A round's clients.

    Attributes:
        cohort: int64 [cohort_size], ascending, distinct.
        state: The state of the sampler after the draw.
        metrics: Metrics of the draw that only the simulator knows.
    """

    cohort: np.ndarray
    state: P
    metrics: Metrics = dataclasses.field(default_factory=dict)


class Sampler(abc.ABC, Generic[P]):
    """Chooses the clients of each round; a frozen dataclass.

    Attributes:
        num_clients: Clients of the population.
        cohort_size: Clients that a round's sum is of.
        sampling: The law.
        is_secret: Whether the guarantee rests on nobody knowing who was chosen. The
            draws come from the noise key then, else from the public seed.
    """

    num_clients: int
    cohort_size: int
    sampling: Sampling
    is_secret: bool

    @abc.abstractmethod
    def initialize(self) -> P:
        """Returns the state before the first round."""

    @abc.abstractmethod
    def draw(self, state: P, number: int, stream: streams.Stream) -> Draw[P]:
        """Chooses the clients of a round.

        Args:
            state: The state after the last round.
            number: The round of its repeat, from 0.
            stream: The stream of the repeat; the same in all its rounds.
        """

    @abc.abstractmethod
    def limits(self, num_rounds: int) -> Limits:
        """Returns the limits of every client's participation in so many rounds."""


class Contribution:
    """The message of one client in a round; a frozen dataclass."""

    @property
    def local_epsilon(self) -> float | None:
        """The epsilon of all that a client sends in a round, for replacement.

        None where what a client sends is not private by itself.
        """
        return None

    def reported(self, total: Any, facts: Facts, stream: streams.Stream) -> Any:
        """Returns the sum of clients' messages, from the simulation's sum.

        They are the same, unless the simulation computes the sum of the clients' true
        items and draws the sum of their reports from it.
        """
        del facts, stream
        return total


@dataclasses.dataclass(frozen=True)
class Release(Generic[M]):
    """The release of a mechanism.

    Attributes:
        value: Released value that the server's code sees.
        state: State of the mechanism; no exact sum.
        metrics: Released.
    """

    value: Any
    state: M
    metrics: Metrics = dataclasses.field(default_factory=dict)


class Mechanism(abc.ABC, Generic[M]):
    """Makes the release from a round's sum; a frozen dataclass."""

    def initialize(self) -> M | None:
        """Returns the state before the first round."""
        return None

    @abc.abstractmethod
    def release(
        self, total: Any, state: M, facts: Facts, stream: streams.Stream
    ) -> Release[M]:
        """Returns a round's release.

        Args:
            total: The sum of the clients' contributions.
            state: State after the last round.
            facts: The facts of the round, as recorded before it.
            stream: Its history is a digest of this sum and of all before it.
        """


@identities.identity("NoNoise")
@dataclasses.dataclass(frozen=True)
class NoNoise(Mechanism[None]):
    """Releases the sum unchanged."""

    def release(
        self, total: Any, state: None, facts: Facts, stream: streams.Stream
    ) -> Release[None]:
        """Returns the sum."""
        del facts, stream
        return Release(total, state)


def check_number(number: int, most: int, what: str) -> None:
    """Raises `ValueError` for a round beyond the last that is planned.

    Args:
        number: The round, from 1.
        most: The last one.
        what: Name of the limit in the plan.
    """
    if number > most:
        raise ValueError(
            f"round {number} is not in the plan: {what} is {most}; plan more rounds, "
            f"or let the algorithm end after round {most}"
        )


@dataclasses.dataclass(frozen=True)
class Record:
    """The record of a run.

    Attributes:
        rounds: All rounds of all repeats, written down before anybody was asked.
        sampler_states: The state of the sampler at the end of each repeat.
    """

    rounds: realised.RealisedRounds
    sampler_states: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class Repeat:
    """The progress of a repeat.

    Attributes:
        rounds: Rounds done.
        sampler_state: The state of the sampler.
    """

    rounds: int
    sampler_state: Any


class Theorem(abc.ABC):
    """A theorem on one combination."""

    @abc.abstractmethod
    def check(self, plan: "Plan[Any, Any, Any]") -> None:
        """Raises `ValueError` where a condition is not met."""

    @abc.abstractmethod
    def check_round(self, plan: "Plan", number: int, facts: Facts) -> None:
        """Raises `ValueError` if the theorem does not cover a round."""

    @abc.abstractmethod
    def statement(
        self,
        plan: "Plan[Any, Any, Any]",
        record: Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns the statement: of a record, or of the worst case that is planned."""

    def spent(
        self, plan: "Plan[Any, Any, Any]", repeats: Sequence[Repeat], delta: float
    ) -> Metrics:
        """Returns the known cost so far, for the metrics of a round.

        By default nothing: where nobody is asked twice, what a run costs does not
        depend on how far it has come.
        """
        del plan, repeats, delta
        return {}


_theorems: list[tuple[Sampling, type, type, Theorem]] = []


def register(
    sampling: Sampling, contribution: type, mechanism: type, theorem: Theorem
) -> None:
    """Adds a theorem.

    Args:
        sampling: The law of the cohorts.
        contribution: The class of contributions that it holds for.
        mechanism: The class of mechanisms.
        theorem: Theorem.
    """
    _theorems.append((sampling, contribution, mechanism, theorem))


@identities.identity("Plan", "sampler contribution mechanism")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Generic[_SamplerT, _ContributionT, _MechanismT]):
    """A run's sampler, contribution and mechanism; see this module's docstring.

    Attributes:
        sampler: Sampler of the cohorts.
        contribution: One client's message.
        mechanism: Mechanism that releases the sum.

    Raises:
        ValueError: If there is no theorem for the three, or its conditions are not
            met.
    """

    sampler: _SamplerT
    contribution: _ContributionT
    mechanism: _MechanismT

    def __post_init__(self):
        self.theorem.check(self)

    @property
    def theorem(self) -> Theorem:
        """The theorem on this combination; the last registered one that fits."""
        for sampling, contribution, mechanism, theorem in reversed(_theorems):
            if (
                self.sampler.sampling is sampling
                and isinstance(self.contribution, contribution)
                and isinstance(self.mechanism, mechanism)
            ):
                return theorem
        known = ", ".join(
            f"{sampling.value} with {contribution.__name__} and {mechanism.__name__}"
            for sampling, contribution, mechanism, _ in _theorems
        )
        raise ValueError(
            f"no theorem is proved for {self.sampler.sampling.value} cohorts with "
            f"{type(self.contribution).__name__} and {type(self.mechanism).__name__}; "
            "theorems exist for "
            f"{known or 'nothing: import the module that registers one'}"
        )

    def check_round(self, number: int, facts: Facts) -> None:
        """Checks a round before its clients are asked.

        Args:
            number: The round of its repeat, from 1.
            facts: Facts for the accounting.

        Raises:
            ValueError: The round is none that the statement is of.
        """
        self.theorem.check_round(self, number, facts)

    def release(
        self, total: Any, state: Any, facts: Facts, stream: streams.Stream
    ) -> Release:
        """Returns the release of a sum; the only way from sums to an algorithm."""
        reported = self.contribution.reported(total, facts, stream.at("reports"))
        return self.mechanism.release(reported, state, facts, stream.at("mechanism"))

    def statement(
        self, record: Record | None, delta: float, *, repeats: int = 1
    ) -> statement.PrivacyStatement:
        """Returns the privacy statement.

        Args:
            record: Record of the run; None for the planned worst case.
            delta: The delta of the guarantees, in (0, 1).
            repeats: Number of planned repeats; a record has its own.
        """
        return self.theorem.statement(self, record, delta, repeats)
