"""The rounds that were run, on which a realised statement rests.

A statement that is made from a configuration is planned. Only a record of rounds, with
who was asked in each, makes it realised: there is no word to pass.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Self

import numpy as np

from federated_hh.options import checks


def cohort_digest(cohort: np.ndarray) -> str:
    """Returns the SHA-256 of who was asked: int64 indices, little-endian, in hex."""
    return hashlib.sha256(np.asarray(cohort, "<i8").tobytes()).hexdigest()


@dataclasses.dataclass(frozen=True)
class Round:
    """A round that was run.

    Attributes:
        repeat: Number of the run among those on the population, from 0.
        number: The round of that run, from 1.
        clients: Number of clients asked, at least 1.
        cohort: SHA-256 of who was asked; see `of`. A secret where the sampling
            protects: a record is kept, and not published.
        code: Digest of what asked them: code and packages, plan, data and seed.
        facts: Facts of the round for the accounting, such as its number of
            candidates.
    """

    repeat: int
    number: int
    clients: int
    cohort: str
    code: str = ""
    facts: Mapping[str, float | int | str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for name, minimum in (("repeat", 0), ("number", 1), ("clients", 1)):
            value = checks.integer(least=minimum, **{name: getattr(self, name)})
            object.__setattr__(self, name, value)
        if not isinstance(self.cohort, str) or len(self.cohort) != 64:
            raise ValueError(
                f"cohort is {self.cohort!r}; it has to be a SHA-256 in hex"
            )

    @classmethod
    def of(
        cls,
        repeat: int,
        number: int,
        cohort: np.ndarray,
        code: str = "",
        facts: Mapping[str, float | int | str] | None = None,
    ) -> Self:
        """Returns the record of a round.

        Args:
            repeat: From 0.
            number: From 1.
            cohort: Clients asked: int64 [clients], indices.
            code: Digest of the code, as in the class.
            facts: Facts, as in the class.
        """
        digest = cohort_digest(cohort)
        return cls(repeat, number, len(cohort), digest, code, dict(facts or {}))


@dataclasses.dataclass(frozen=True)
class Realised:
    """A statement's summary of the rounds that it rests on.

    Attributes:
        rounds: Number of rounds, at least 1.
        clients: Number of clients asked in all rounds, with repetition.
    """

    rounds: int
    clients: int

    def __post_init__(self):
        checks.integer(rounds=self.rounds, least=1)
        checks.integer(clients=self.clients, least=self.rounds)


@dataclasses.dataclass(frozen=True)
class RealisedRounds:
    """The rounds of one run or of several repeats, in the order they were run in.

    Attributes:
        rounds: One or more; repeats and, within each, rounds are numbered without a
            gap.

    Raises:
        ValueError: There is none, or one is missing.
    """

    rounds: tuple[Round, ...]

    def __post_init__(self):
        object.__setattr__(self, "rounds", tuple(self.rounds))
        if not self.rounds:
            raise ValueError(
                "rounds is empty; a realised statement needs at least one round"
            )
        repeat, number = 0, 0
        for place, found in enumerate(self.rounds):
            if place and found.repeat == repeat + 1:
                repeat, number = repeat + 1, 0
            number += 1
            if (found.repeat, found.number) != (repeat, number):
                raise ValueError(
                    f"rounds[{place}] is round {found.number} of repeat "
                    f"{found.repeat}, round {number} of repeat {repeat} is expected"
                )

    @property
    def num_repeats(self) -> int:
        """The number of repeats that were run."""
        return self.rounds[-1].repeat + 1

    def summary(self) -> Realised:
        """Returns a statement's summary of these rounds."""
        return Realised(len(self.rounds), sum(r.clients for r in self.rounds))
