"""Participation in federated training: availability, timers, MinS and MaxP.

The simulated clock of a cross-device system (Bonawitz et al. 2019; Xu et al. 2023,
Section 2.2). A device is available while it charges and is idle. Once picked, it has to
wait until its timer has run out. Each client's number of participations (MaxP) and the
rounds between them (MinS) are in a `participation_table.ParticipationTable`, which
defines both. If limits are set, a client that would break one is not admitted.
"""

import dataclasses
import math

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan
from federated_hh.privacy.dp_ftrl import participation_table, tree_aggregation
from federated_hh.randomness import identities, streams

_HOUR = 3600
_DAY = 24 * _HOUR
# Availability changes; the server looks again after this time.
_SECONDS_BETWEEN_LOOKS = 600
# Of a sampler's numbers. Rounds are counted with 32 bits, hours are at most ten years
# and a round takes a week at most: more means nothing in a simulated day.
_COUNT = 2**31 - 1
_HOURS = 10 * 365 * 24
_RANGES = {
    "cohort_size": (1, _COUNT),
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


@identities.identity("DiurnalAvailability", "mean_charging amplitude idle_share")
@dataclasses.dataclass(frozen=True)
class DiurnalAvailability:
    """The available clients at a time of the simulated day.

    A device charges at an hour of the day with the probability of the diurnal curve

        mean_charging + amplitude * cos(2 pi (hour - 3) / 24),

    highest at 3 at night and lowest at 15; and while it charges it is idle and on an
    unmetered network with probability `idle_share`. The defaults make four times as
    many devices available at night as by day, as Bonawitz et al. 2019, Section 9,
    report for a population of one country. Each device and day (from noon to noon) has
    one uniform number that is compared with the curve, so a charging device keeps
    charging for hours; idleness is drawn again every ten minutes.

    Attributes:
        mean_charging: Share of the devices that charge, averaged over a day; in (0, 1].
        amplitude: Amplitude of the share, at least 0, such that it stays in
            [0, 1].
        idle_share: Share of the charging devices that are idle, in (0, 1].
    """

    mean_charging: float = 0.375
    amplitude: float = 0.225
    idle_share: float = 0.5

    def __post_init__(self):
        checks.fraction(mean_charging=self.mean_charging, idle_share=self.idle_share)
        most = min(self.mean_charging, 1 - self.mean_charging)
        if not 0 <= self.amplitude <= most:
            raise ValueError(
                f"amplitude is {self.amplitude}; it has to be in [0, {most:g}] for a "
                f"mean_charging of {self.mean_charging}."
            )

    @property
    def dependable_share(self) -> float:
        """Share of the clients that some hours of every night have available.

        Two thirds of the mean at the best hour, so that few clients suffice.
        """
        return (self.mean_charging + self.amplitude) * self.idle_share * 2 / 3

    def charging_share(self, seconds: int) -> float:
        """Returns the share of devices that charge at a simulated time.

        Args:
            seconds: Since a midnight, at least 0.
        """
        angle = 2 * math.pi * (seconds / _HOUR - 3) / 24
        return self.mean_charging + self.amplitude * math.cos(angle)

    def available(
        self, seconds: int, num_clients: int, stream: streams.Stream
    ) -> np.ndarray:
        """Returns the available clients at a simulated time.

        Args:
            seconds: Since midnight of the first day, at least 0.
            num_clients: Number of clients, at least 1.
            stream: The stream of the run.

        Returns:
            bool [num_clients], a function of the arguments; the same throughout a slot
            of ten minutes but for the slow change of the curve.
        """
        day = (seconds + _DAY // 2) // _DAY
        slot = seconds // _SECONDS_BETWEEN_LOOKS
        charging = stream.generator("charging", day).random(num_clients)
        idle = stream.generator("idle", slot).random(num_clients)
        return (charging < self.charging_share(seconds)) & (idle < self.idle_share)


@dataclasses.dataclass(frozen=True)
class Participation:
    """The sampler's state between rounds: simulated time and participations.

    Attributes:
        table: Participation of each client.
        ready_at: int64 [clients]: the simulated second at which its timer runs out.
        seconds: Simulated seconds since midnight of the first day.
        attempts: Rounds begun so far, those included that failed.
    """

    table: participation_table.ParticipationTable
    ready_at: np.ndarray
    seconds: int = 0
    attempts: int = 0


@identities.identity(
    "Timers",
    "num_clients cohort_size num_rounds over_selection drop_out timer_hours "
    "round_minutes min_separation max_participation max_wait_hours "
    "availability",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Timers(plan.Sampler[Participation]):
    """A sampler that simulates timers and availability.

    Whenever enough clients are available, a uniform sample of them is picked; each
    drops out independently; of those that report, the first `cohort_size` (in an order
    drawn uniformly) are summed, and the others' updates are not used. If too few
    report, the round has failed, nothing of it is used, and the server tries again. A
    client's timer starts whenever it was picked.

    Attributes:
        num_clients: Clients of the population, numbered from 0.
        cohort_size: The report goal: exact number of updates in a round's sum; at least
            1.
        num_rounds: Rounds of the run, at least 1.
        over_selection: Clients picked per needed report, 1 to 1000.
        drop_out: Probability that a picked client does not report, in [0, 1).
        timer_hours: Hours after being picked during which a client is not picked
            again; at least 0.
        round_minutes: Length of a round, successful or not; at least 1.
        min_separation: MinS that is enforced, at least 0; None: only measured.
        max_participation: MaxP that is enforced, at least 1; None: only measured.
        max_wait_hours: Hours without a round after which the run stops; at least 1.
        availability: Available clients; None for all, always.
    """

    num_clients: int
    cohort_size: int
    num_rounds: int
    over_selection: float = 1.0
    drop_out: float = 0.0
    timer_hours: int = 0
    round_minutes: int = 10
    min_separation: int | None = None
    max_participation: int | None = None
    max_wait_hours: int = 7 * 24
    availability: DiurnalAvailability | None = None
    sampling = plan.Sampling.LIMITED
    is_secret = False

    def __post_init__(self):
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is None:
                continue
            checks.holds(value >= least, f"at least {least}", **{name: value})
            checks.holds(value <= most, f"at most {most:,}", **{name: value})
        checks.holds(0 <= self.drop_out < 1, "in [0, 1)", drop_out=self.drop_out)
        if self.num_picked > self.num_clients:
            raise ValueError(
                f"a round picks {self.num_picked:,} clients (cohort_size "
                f"{self.cohort_size:,} times over_selection {self.over_selection:g}); "
                f"the population has {self.num_clients:,}. Lower either of the two."
            )
        self._check_limits()

    def _check_limits(self) -> None:
        separation = min(self.min_separation or 0, self.num_rounds - 1)
        if separation * self.cohort_size + self.num_picked > self.num_clients:
            most = (self.num_clients - self.num_picked) // self.cohort_size
            raise ValueError(
                f"min_separation is {self.min_separation}: after {separation:,} "
                f"rounds of {self.cohort_size:,} clients, the population's "
                f"{self.num_clients:,} clients have to leave another "
                f"{self.num_picked:,}. It can be at most {most:,}."
            )
        # The last round picks from the clients with a remaining participation.
        needed = (self.num_rounds - 1) * self.cohort_size + self.num_picked
        if (self.max_participation or needed) * self.num_clients < needed:
            raise ValueError(
                f"max_participation is {self.max_participation}: {self.num_rounds:,} "
                f"rounds of {self.cohort_size:,} updates, the last of which picks "
                f"{self.num_picked:,} clients, need it to be at least "
                f"{math.ceil(needed / self.num_clients)} for {self.num_clients:,} "
                "clients."
            )

    @property
    def num_picked(self) -> int:
        """Clients that are asked to take part in a round."""
        return math.ceil(self.cohort_size * self.over_selection)

    def limits(self, num_rounds: int) -> plan.Limits:
        """Returns the enforced limits and their consequences."""
        separation = min(self.min_separation or 0, num_rounds - 1)
        possible = tree_aggregation.largest_participation(num_rounds, separation)
        return plan.Limits(
            min(self.max_participation or possible, possible), separation
        )

    def initialize(self) -> Participation:
        """Returns the state before the first round, at midnight."""
        return Participation(
            participation_table.ParticipationTable.empty(self.num_clients),
            np.zeros(self.num_clients, np.int64),
        )

    def admitted(
        self, table: participation_table.ParticipationTable, number: int
    ) -> np.ndarray:
        """Returns the clients that may take part without breaking MinS or MaxP.

        Args:
            table: Every client's participation before the round.
            number: The round, from 0.

        Returns:
            bool [clients].
        """
        may = np.ones(self.num_clients, bool)
        if self.min_separation is not None:
            separation = number - table.last_round - 1
            never = table.last_round == participation_table.NEVER
            may &= never | (separation >= self.min_separation)
        if self.max_participation is not None:
            may &= table.participations < self.max_participation
        return may

    def draw(
        self, state: Participation, number: int, stream: streams.Stream
    ) -> plan.Draw[Participation]:
        """Waits for a round's clients, and records that they took part.

        Args:
            state: Simulated time and past participations.
            number: The round, from 0.
            stream: The stream of the repeat.

        Raises:
            ReportGoalNotMetError: If MinS and MaxP leave too few clients, or not
                enough of them were available, or reported, for `max_wait_hours`.
        """
        may = self._check_admitted(state.table, number)
        ready_at, now, attempts = state.ready_at, state.seconds, state.attempts
        most = 0
        while now - state.seconds <= self.max_wait_hours * _HOUR:
            ready = may & (ready_at <= now)
            if self.availability is not None:
                ready &= self.availability.available(now, self.num_clients, stream)
            candidates = np.flatnonzero(ready)
            most = max(most, candidates.size)
            if candidates.size < self.num_picked:
                now += _SECONDS_BETWEEN_LOOKS
                continue
            random = stream.generator("attempt", attempts)
            picked = random.choice(candidates, self.num_picked, replace=False)
            reports = picked[random.random(picked.size) >= self.drop_out]
            ready_at = ready_at.copy()
            ready_at[picked] = now + self.timer_hours * _HOUR
            attempts += 1
            began = now
            now += self.round_minutes * 60
            if reports.size >= self.cohort_size:
                cohort = np.sort(reports[: self.cohort_size])
                table = state.table.record(cohort, number)
                after = Participation(table, ready_at, now, attempts)
                return plan.Draw(cohort, after, _metrics(state, after, began))
        raise ReportGoalNotMetError(
            f"round {number}: {np.count_nonzero(may):,} clients satisfy MinS and "
            f"MaxP. Within {self.max_wait_hours} simulated hours at most {most:,} of "
            "them were available with an expired timer, and "
            f"{attempts - state.attempts} rounds failed with too few reports; a round "
            f"picks {self.num_picked:,} and needs {self.cohort_size:,}. Lower the "
            f"report goal or the timer ({self.timer_hours} h), or raise the "
            f"over-selection ({self.over_selection:g}) where many drop out."
        )

    def _check_admitted(self, table, number: int) -> np.ndarray:
        may = self.admitted(table, number)
        if np.count_nonzero(may) < self.num_picked:
            raise ReportGoalNotMetError(
                f"round {number}: MinS {self.min_separation} and MaxP "
                f"{self.max_participation} admit {np.count_nonzero(may):,} of "
                f"{self.num_clients:,} clients, and a round picks "
                f"{self.num_picked:,}. Lower the report goal or the over-selection, "
                "or loosen the limits."
            )
        return may


def _metrics(
    before: Participation, after: Participation, began: int
) -> dict[str, float | int]:
    separation = after.table.min_separation()
    return {
        "simulated_hours": after.seconds / _HOUR,
        "waited_hours": (began - before.seconds) / _HOUR,
        "failed_attempts": after.attempts - before.attempts - 1,
        "max_participation": after.table.max_participation(),
        "min_separation": math.nan if separation is None else separation,
    }
