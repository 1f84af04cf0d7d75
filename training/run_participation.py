"""How often and how soon again clients take part: as planned, or as it really was.

Two types, so that a statement cannot call realised what nobody has seen.
"""

import dataclasses

import numpy as np

from privacy import realised
from simulation import participation_timers as timers
from training.dp_ftrl_parameters import ServerParameters


@dataclasses.dataclass(frozen=True)
class Planned:
    """The worst that limits allow.

    Attributes:
        num_rounds: Rounds that are planned, at least 1.
        min_separation: MinS: rounds strictly between two participations of a client.
        max_participation: MaxP: rounds that a client takes part in at most.
    """

    num_rounds: int
    min_separation: int
    max_participation: int
    basis = "planned"

    def summary(self) -> None:
        """Returns that nothing was realised."""

    @classmethod
    def of(cls, rule: timers.ParticipationRule) -> "Planned":
        """Returns the worst participation that a rule allows."""
        separation = min(rule.min_separation or 0, rule.num_rounds - 1)
        possible = -(-rule.num_rounds // (separation + 1))
        most = min(rule.max_participation or possible, possible)
        return cls(rule.num_rounds, separation, most)

    def zcdp(self, parameters: ServerParameters) -> float:
        """Returns rho of the worst case that the three numbers allow."""
        return parameters.zcdp(
            self.num_rounds, self.min_separation, self.max_participation
        )


class Realised:
    """What the table of all clients says that happened.

    Attributes:
        num_rounds: Rounds that were done, at least 1.
        min_separation: The fewest rounds strictly between two participations of a
            client; where no client has two, one less than the rounds.
        max_participation: The most rounds that a client took part in.
    """

    basis = "realised"

    def __init__(self, table: timers.ParticipationTable, num_rounds: int):
        """Looks at what happened.

        Args:
            table: Of a run, after its last round.
            num_rounds: Rounds done, at least 1.

        Raises:
            TypeError: If `table` is no participation table.
            ValueError: If its participations do not fit together.
        """
        if not isinstance(table, timers.ParticipationTable):
            raise TypeError(
                f"table is a {type(table).__name__}: only the participation table of "
                "a run says what was realised."
            )
        counts = np.bincount(table.log_clients, minlength=len(table.participations))
        if not np.array_equal(counts, table.participations):
            raise ValueError(
                "the participation table counts other participations than it lists."
            )
        self.num_rounds = num_rounds
        separation = table.min_separation()
        self.min_separation = num_rounds - 1 if separation is None else separation
        self.max_participation = table.max_participation()
        self._table = table

    def summary(self) -> realised.Realised:
        """Returns what a statement says of the rounds."""
        return realised.Realised(self.num_rounds, len(self._table.log_clients))

    def zcdp(self, parameters: ServerParameters) -> float:
        """Returns rho of the client whose participations cost the most."""
        return parameters.observed_zcdp(
            self._table.log_clients, self._table.log_rounds, self.num_rounds
        )


RunParticipation = Planned | Realised
