"""The participations of a run, from which realised guarantees are computed.

MinS counts the rounds strictly between two participations of a client, as the
accounting of tensorflow-privacy does: with MinS = 2, after round 5 comes round 8 at the
earliest.
"""

import dataclasses
from typing import Self

import numpy as np

from federated_hh.privacy import realised

NEVER = -1


@dataclasses.dataclass(frozen=True)
class ParticipationTable:
    """Every client's participation so far, in one repeat.

    Attributes:
        last_round: int32 [clients]: the last round that has a client's update; -1 if
            there is none.
        participations: int32 [clients]: in how many rounds a client's update is.
        least_separation: int32 [clients]: the fewest rounds strictly between two
            participations of a client; 2**31 - 1 if there were not two.
        log_clients: int32 [participations]: of each update that is in a round's sum,
            in the order of the rounds, whose it is.
        log_rounds: int32 [participations]: and in which round's sum it is, from 0.
    """

    last_round: np.ndarray
    participations: np.ndarray
    least_separation: np.ndarray
    log_clients: np.ndarray
    log_rounds: np.ndarray

    @classmethod
    def empty(cls, num_clients: int) -> Self:
        """Returns the table before the first round."""
        return cls(
            np.full(num_clients, NEVER, np.int32),
            np.zeros(num_clients, np.int32),
            np.full(num_clients, np.iinfo(np.int32).max, np.int32),
            np.zeros(0, np.int32),
            np.zeros(0, np.int32),
        )

    def record(self, clients: np.ndarray, round_number: int) -> Self:
        """Returns the table after a round.

        Args:
            clients: int64 [n], distinct: whose updates are in the round's sum.
            round_number: After each of their last rounds.
        """
        last, count, least = (
            self.last_round.copy(),
            self.participations.copy(),
            self.least_separation.copy(),
        )
        again = clients[last[clients] != NEVER]
        separation = round_number - last[again] - 1
        if separation.size and separation.min() < 0:
            raise ValueError(
                f"round_number is {round_number}; a client already took part in round "
                f"{last[again].max()}. Rounds have to increase."
            )
        least[again] = np.minimum(least[again], separation)
        last[clients] = round_number
        count[clients] += 1
        return type(self)(
            last,
            count,
            least,
            np.append(self.log_clients, clients.astype(np.int32)),
            np.append(self.log_rounds, np.full(len(clients), round_number, np.int32)),
        )

    def max_participation(self) -> int:
        """Returns the most rounds that one client took part in: the measured MaxP."""
        return int(self.participations.max())

    def min_separation(self) -> int | None:
        """Returns the measured MinS; None if no client took part twice."""
        least = int(self.least_separation.min())
        return None if least == np.iinfo(np.int32).max else least

    def check(self, rounds: list[realised.Round]) -> None:
        """Checks that the table matches the recorded rounds.

        Args:
            rounds: The rounds of the table's repeat, in order.

        Raises:
            ValueError: If it is not, or its columns do not fit together.
        """
        counts = np.bincount(self.log_clients, minlength=len(self.participations))
        if not np.array_equal(counts, self.participations):
            raise ValueError(
                "the participation table's counts and list differ; restore the "
                "checkpoint, or begin a new run."
            )
        ends = np.searchsorted(self.log_rounds, np.arange(len(rounds) + 1))
        cohorts = np.split(self.log_clients, ends)[1:]
        if [realised.cohort_digest(cohort) for cohort in cohorts] != [
            *(asked.cohort for asked in rounds),
            realised.cohort_digest(np.zeros(0)),
        ]:
            raise ValueError(
                "the participation table and the record of rounds have different "
                "clients; restore the checkpoint, or begin a new run."
            )
