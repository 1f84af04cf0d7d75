"""Who takes part in federated training: availability, timers, MinS and MaxP.

The simulated clock of a cross-device system (Bonawitz et al. 2019; Xu et al. 2023,
Section 2.2). A device is available while it charges and is idle. Once picked, it has to
wait until its timer has run out. How often (MaxP) and how soon again (MinS) a client
takes part is counted for each client in a `ParticipationTable`; where limits are set, a
client that would break one is not admitted.

MinS counts the rounds strictly between two participations of a client, as the
accounting of tensorflow-privacy does: with MinS = 2, after round 5 comes round 8 at the
earliest.
"""

import dataclasses
import math
from typing import Any, Self

import numpy as np

from randomness import seeds

_HOUR = 3600
_DAY = 24 * _HOUR
# Devices come and go; the server looks again after this long.
_SECONDS_BETWEEN_LOOKS = 600
_NEVER = -1
# Of a rule's numbers. Rounds are counted with 32 bits, hours are at most ten years and
# a round takes a week at most: more means nothing in a simulated day.
_COUNT = 2**31 - 1
_HOURS = 10 * 365 * 24
_RANGES = {
    "report_goal": (1, _COUNT),
    "num_rounds": (1, _COUNT),
    "over_selection": (1, 1000),
    "timer_hours": (0, _HOURS),
    "round_minutes": (1, 7 * 24 * 60),
    "max_wait_hours": (1, _HOURS),
    "min_separation": (0, _COUNT),
    "max_participation": (1, _COUNT),
}


class ReportGoalNotMetError(RuntimeError):
    """Fewer clients than the report goal can take part in a round."""


@dataclasses.dataclass(frozen=True)
class DiurnalAvailability:
    """Which devices are available at a time of simulated day.

    A device charges at an hour of the day with the probability of the diurnal curve

        mean_charging + amplitude * cos(2 pi (hour - 3) / 24),

    highest at 3 at night and lowest at 15; and while it charges it is idle and on an
    unmetered network with probability `idle_share`. The defaults make four times as
    many devices available at night as by day, as Bonawitz et al. 2019, Section 9,
    report for a population of one country. Each device and day (from noon to noon) has
    one uniform number that is compared with the curve, so that a device that charges
    does so for hours on end; idleness is drawn anew every ten minutes.

    Attributes:
        mean_charging: Share of the devices that charge, averaged over a day; in (0, 1].
        amplitude: How far the share goes up and down, at least 0, such that it stays in
            [0, 1].
        idle_share: Share of the charging devices that are idle, in (0, 1].
    """

    mean_charging: float = 0.375
    amplitude: float = 0.225
    idle_share: float = 0.5

    def __post_init__(self):
        for name in ("mean_charging", "idle_share"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be in (0, 1].")
        most = min(self.mean_charging, 1 - self.mean_charging)
        if not 0 <= self.amplitude <= most:
            raise ValueError(
                f"amplitude is {self.amplitude}, must be in [0, {most:g}] where "
                f"mean_charging is {self.mean_charging}."
            )

    def charging_share(self, seconds: int) -> float:
        """Returns the share of devices that charge at a simulated time.

        Args:
            seconds: Since a midnight, at least 0.
        """
        angle = 2 * math.pi * (seconds / _HOUR - 3) / 24
        return self.mean_charging + self.amplitude * math.cos(angle)

    def available(self, seconds: int, num_clients: int, seed: int) -> np.ndarray:
        """Returns who is available at a simulated time.

        Args:
            seconds: Since midnight of the first day, at least 0.
            num_clients: At least 1.
            seed: The run's seed.

        Returns:
            bool [num_clients], a function of the arguments; the same throughout a slot
            of ten minutes but for the slow change of the curve.
        """
        day = (seconds + _DAY // 2) // _DAY
        slot = seconds // _SECONDS_BETWEEN_LOOKS
        charging = seeds.generator(seed, "charging", day).random(num_clients)
        idle = seeds.generator(seed, "idle", slot).random(num_clients)
        return (charging < self.charging_share(seconds)) & (idle < self.idle_share)


@dataclasses.dataclass(frozen=True)
class ParticipationTable:
    """What every client's participation was so far.

    Attributes:
        last_round: int32 [clients]: the last round that has a client's update; -1 if
            there is none.
        participations: int32 [clients]: in how many rounds a client's update is.
        least_separation: int32 [clients]: the fewest rounds strictly between two
            participations of a client; 2**31 - 1 if there were not two.
        ready_at: int64 [clients]: the simulated second at which its timer runs out.
        log_clients: int32 [participations]: of each update that is in a round's sum,
            in the order of the rounds, whose it is.
        log_rounds: int32 [participations]: and in which round's sum it is.
    """

    last_round: np.ndarray
    participations: np.ndarray
    least_separation: np.ndarray
    ready_at: np.ndarray
    log_clients: np.ndarray
    log_rounds: np.ndarray

    @classmethod
    def empty(cls, num_clients: int) -> Self:
        """Returns the table before the first round."""
        return cls(
            np.full(num_clients, _NEVER, np.int32),
            np.zeros(num_clients, np.int32),
            np.full(num_clients, np.iinfo(np.int32).max, np.int32),
            np.zeros(num_clients, np.int64),
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
        again = clients[last[clients] != _NEVER]
        separation = round_number - last[again] - 1
        if separation.size and separation.min() < 0:
            raise ValueError(
                f"round_number is {round_number}; a client took part in round "
                f"{last[again].max()}."
            )
        least[again] = np.minimum(least[again], separation)
        last[clients] = round_number
        count[clients] += 1
        return dataclasses.replace(
            self,
            last_round=last,
            participations=count,
            least_separation=least,
            log_clients=np.append(self.log_clients, clients.astype(np.int32)),
            log_rounds=np.append(
                self.log_rounds, np.full(len(clients), round_number, np.int32)
            ),
        )

    def max_participation(self) -> int:
        """Returns the most rounds that one client took part in: the measured MaxP."""
        return int(self.participations.max())

    def min_separation(self) -> int | None:
        """Returns the measured MinS; None if no client took part twice."""
        least = int(self.least_separation.min())
        return None if least == np.iinfo(np.int32).max else least

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns the columns by name; see `from_arrays`."""
        names = (field.name for field in dataclasses.fields(self))
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Self:
        """Returns the table whose `to_arrays` gave `arrays`."""
        return cls(**arrays)


@dataclasses.dataclass(frozen=True)
class ParticipationRule:
    """How the clients of a round come together.

    Attributes:
        num_clients: Clients of the population, numbered from 0.
        report_goal: Updates that a round sums up, no more and no fewer; at least 1.
        num_rounds: Rounds of the run, at least 1.
        seed: The run's seed.
        over_selection: How many clients are picked for each that is needed, 1 to 1000.
        drop_out: Probability that a client that was picked does not report, in [0, 1).
        timer_hours: Hours after being picked during which a client is not picked
            again; at least 0.
        round_minutes: What a round takes, whether it succeeds or fails; at least 1.
        min_separation: MinS that is enforced, at least 0; None: only measured.
        max_participation: MaxP that is enforced, at least 1; None: only measured.
        max_wait_hours: After how long without a round the run stops; at least 1.
        availability: Which devices are there; None: all, always.
    """

    num_clients: int
    report_goal: int
    num_rounds: int
    seed: int
    over_selection: float = 1.0
    drop_out: float = 0.0
    timer_hours: int = 0
    round_minutes: int = 10
    min_separation: int | None = None
    max_participation: int | None = None
    max_wait_hours: int = 7 * 24
    availability: DiurnalAvailability | None = None

    def __post_init__(self):
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not value >= least:
                raise ValueError(f"{name} is {value}, must be at least {least}.")
            if value > most:
                raise ValueError(f"{name} is {value}, must be at most {most:,}.")
        if not 0 <= self.drop_out < 1:
            raise ValueError(f"drop_out is {self.drop_out}, must be in [0, 1).")
        if self.num_picked > self.num_clients:
            raise ValueError(
                f"a round picks {self.num_picked:,} clients (report_goal "
                f"{self.report_goal:,} times over_selection {self.over_selection:g}); "
                f"the population has {self.num_clients:,}."
            )
        self._check_limits()

    def _check_limits(self) -> None:
        separation = min(self.min_separation or 0, self.num_rounds - 1)
        if separation * self.report_goal + self.num_picked > self.num_clients:
            most = (self.num_clients - self.num_picked) // self.report_goal
            raise ValueError(
                f"min_separation is {self.min_separation}: after {separation:,} rounds "
                f"of {self.report_goal:,} clients, another {self.num_picked:,} have to "
                f"be left of the population's {self.num_clients:,}. It can be at most "
                f"{most:,}."
            )
        # The last round picks its clients of those who have a participation left.
        needed = (self.num_rounds - 1) * self.report_goal + self.num_picked
        if (self.max_participation or needed) * self.num_clients < needed:
            raise ValueError(
                f"max_participation is {self.max_participation}: {self.num_rounds:,} "
                f"rounds of {self.report_goal:,} updates, the last of which picks "
                f"{self.num_picked:,} clients, need it to be at least "
                f"{math.ceil(needed / self.num_clients)} for {self.num_clients:,} "
                "clients."
            )

    @property
    def num_picked(self) -> int:
        """Clients that are asked to take part in a round."""
        return math.ceil(self.report_goal * self.over_selection)


@dataclasses.dataclass(frozen=True)
class ParticipationState:
    """Where simulated time stands between rounds.

    Attributes:
        table: Of each client.
        seconds: Simulated seconds since midnight of the first day.
        round_number: The next round, from 0.
        attempts: Rounds begun so far, those included that failed.
    """

    table: ParticipationTable
    seconds: int = 0
    round_number: int = 0
    attempts: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the state without the table, as values that JSON can hold."""
        names = ("seconds", "round_number", "attempts")
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True)
class Cohort:
    """The clients of a round.

    Attributes:
        clients: int64 [report_goal], ascending, distinct: whose updates are summed.
        waited_seconds: Simulated time from the end of the last round to the beginning
            of this one.
        failed_attempts: Rounds that were begun meanwhile and got too few reports.
    """

    clients: np.ndarray
    waited_seconds: int
    failed_attempts: int


def initial_state(rule: ParticipationRule) -> ParticipationState:
    """Returns the state before the first round, at midnight."""
    return ParticipationState(ParticipationTable.empty(rule.num_clients))


def admitted(
    rule: ParticipationRule, table: ParticipationTable, round_number: int
) -> np.ndarray:
    """Returns who may take part in a round without breaking MinS or MaxP.

    Args:
        rule: Has the limits.
        table: What every client's participation was before the round.
        round_number: The round.

    Returns:
        bool [clients].
    """
    may = np.ones(rule.num_clients, bool)
    if rule.min_separation is not None:
        separation = round_number - table.last_round - 1
        may &= (table.last_round == _NEVER) | (separation >= rule.min_separation)
    if rule.max_participation is not None:
        may &= table.participations < rule.max_participation
    return may


def next_cohort(
    rule: ParticipationRule, state: ParticipationState
) -> tuple[ParticipationState, Cohort]:
    """Waits for a round's clients, and records that they took part.

    Whenever enough clients are available, a uniform sample of them is picked; each
    drops out on its own; of those that report, the first `report_goal` (in an order
    drawn uniformly) are summed, and the others' updates are not used. If too few
    report, the round has failed, nothing of it is used, and the server tries again. A
    client's timer starts whenever it was picked.

    Args:
        rule: How clients come together.
        state: Where simulated time stands.

    Returns:
        The state after the round, and the cohort: functions of the arguments.

    Raises:
        ReportGoalNotMetError: If MinS and MaxP leave too few clients, or not enough of
            them were available, or reported, for `max_wait_hours`.
    """
    may = admitted(rule, state.table, state.round_number)
    if np.count_nonzero(may) < rule.num_picked:
        raise ReportGoalNotMetError(
            f"round {state.round_number}: MinS {rule.min_separation} and MaxP "
            f"{rule.max_participation} admit {np.count_nonzero(may):,} of "
            f"{rule.num_clients:,} clients, and a round picks {rule.num_picked:,}. "
            "Lower the report goal or the over-selection, or loosen the limits."
        )
    table, now, attempts = state.table, state.seconds, state.attempts
    most = 0
    while now - state.seconds <= rule.max_wait_hours * _HOUR:
        ready = may & (table.ready_at <= now)
        if rule.availability is not None:
            ready &= rule.availability.available(now, rule.num_clients, rule.seed)
        candidates = np.flatnonzero(ready)
        most = max(most, candidates.size)
        if candidates.size < rule.num_picked:
            now += _SECONDS_BETWEEN_LOOKS
            continue
        random = seeds.generator(rule.seed, "attempt", attempts)
        picked = random.choice(candidates, rule.num_picked, replace=False)
        reports = picked[random.random(picked.size) >= rule.drop_out]
        ready_at = table.ready_at.copy()
        ready_at[picked] = now + rule.timer_hours * _HOUR
        table = dataclasses.replace(table, ready_at=ready_at)
        attempts += 1
        began = now
        now += rule.round_minutes * 60
        if reports.size >= rule.report_goal:
            clients = np.sort(reports[: rule.report_goal])
            failed = attempts - state.attempts - 1
            return (
                ParticipationState(
                    table.record(clients, state.round_number),
                    now,
                    state.round_number + 1,
                    attempts,
                ),
                Cohort(clients, began - state.seconds, failed),
            )
    raise ReportGoalNotMetError(
        f"round {state.round_number}: for {rule.max_wait_hours} simulated hours, of "
        f"{np.count_nonzero(may):,} clients that MinS and MaxP admit at most {most:,} "
        f"were available with their timer run out, and {attempts - state.attempts} "
        f"rounds failed for want of reports; a round picks {rule.num_picked:,} and "
        f"needs {rule.report_goal:,}. Lower the report goal or the timer "
        f"({rule.timer_hours} h), or raise the over-selection "
        f"({rule.over_selection:g}) where many drop out."
    )
