"""Steps 3 and 4 of section 2.5 of Xu et al. 2023: report goal, noise, MinS and timer.

The participation of a run follows from its seed, its rule and the number of clients,
so it is simulated before anybody trains, and the run of the same seed has the same.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import tree_aggregation
from federated_hh.rounds import steps, timers

# How many report goals are looked at, from the small one to the largest, and timers.
_MOST_GOALS = 30
_MOST_TIMERS = 6
# Devices charge at night: where they come and go, timers are a multiple of a day.
_HOURS_OF_A_DAY = 24
# Numbers are given with so many digits.
_DIGITS = 4

# The rule of a run, of its report goal and the hours of its timer.
RuleOf = Callable[[int, int], timers.Timers]


@dataclasses.dataclass(frozen=True)
class Participation:
    """Participation of clients, from a simulation of the run's clock.

    Attributes:
        timer_hours: The timer, of those looked at, with the least zCDP.
        min_separation: MinS that can be enforced with it: rounds strictly between;
            one less than the rounds where nobody takes part twice.
        max_participation: MaxP that can be enforced with it.
        hours: Simulated hours that all rounds take.
        looked_at: Timers in hours with the MinS that each allows; None where some
            round has too few clients.
    """

    timer_hours: int
    min_separation: int
    max_participation: int
    hours: float
    looked_at: tuple[tuple[int, int | None], ...]


@dataclasses.dataclass(frozen=True)
class Choice:
    """A report goal with its noise, and what it guarantees.

    Attributes:
        report_goal: Clients of a round (m).
        noise_multiplier: Noise multiplier (z).
        largest_min_separation: Largest MinS that the population allows.
        participation: Participation that the clock allows.
        rho: zCDP of the worst participation within MinS and MaxP.
        is_scaled: Whether the noise grew in proportion to the report goal; else the
            target cannot be met so, and it was raised further at the largest goal.
    """

    report_goal: int
    noise_multiplier: float
    largest_min_separation: int
    participation: Participation
    rho: float
    is_scaled: bool


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The decisions of the experiments and the accounting.

    Attributes:
        server_learning_rate: The server's learning rate (eta_s).
        target_quantile: The quantile (gamma) with which the clip norm was found.
        clip_norm: The clip norm (C).
        noise_per_client: Noise multiplier over report goal (z / m).
        num_clients: Number of clients that train.
        choice: Report goal, noise, MinS and timer.
        seed: The final run's seed, not that of the experiments: by it other clients
            are held out than those whose loss has chosen.
    """

    server_learning_rate: float
    target_quantile: float
    clip_norm: float
    noise_per_client: float
    num_clients: int
    choice: Choice
    seed: int


def largest_min_separation(rule: timers.Timers) -> int:
    """Returns the largest MinS that a population allows; -1 where none does.

    While a client waits, each round takes others in, and its own round has to pick
    some as well.
    """
    return (rule.num_clients - rule.num_picked) // rule.cohort_size


def choose(
    rule_of: RuleOf,
    *,
    seed: int,
    noise_per_client: float,
    small_goal: int,
    largest_goal: int,
    target_rho: float,
) -> Choice:
    """Returns the smallest report goal that meets a target, with its noise.

    Args:
        rule_of: The rule of a run.
        seed: The seed of the run.
        noise_per_client: z / m, which stays as it is.
        small_goal: Smallest report goal of the search.
        largest_goal: Largest report goal of the system, at least `small_goal`.
        target_rho: zCDP of the run, above 0.

    Raises:
        ReportGoalNotMetError: If the largest goal is not met with any timer.
        ValueError: If the population is smaller than a round.
    """
    for goal in _goals(small_goal, largest_goal):
        rule = rule_of(goal, 0)
        noise = rounded(noise_per_client * goal)
        if _rho(rule, noise, largest_min_separation(rule), None) > target_rho:
            continue
        found = participation(rule_of, goal, seed)
        rho = _rho(rule, noise, found.min_separation, found.max_participation)
        if rho <= target_rho:
            largest = largest_min_separation(rule)
            return Choice(goal, noise, largest, found, rho, True)
    rule = rule_of(largest_goal, 0)
    found = participation(rule_of, largest_goal, seed)
    limits = found.min_separation, found.max_participation
    # rho falls with the square of the noise.
    noise = rounded_up(math.sqrt(_rho(rule, 1.0, *limits) / target_rho))
    return Choice(
        largest_goal,
        noise,
        largest_min_separation(rule),
        found,
        _rho(rule, noise, *limits),
        False,
    )


def _goals(small: int, largest: int) -> list[int]:
    spaced = np.geomspace(small, largest, _MOST_GOALS)
    return sorted({*spaced.round().astype(int).tolist(), largest})


def _rho(
    rule: timers.Timers, noise: float, min_separation: int, participation: int | None
) -> float:
    return tree_aggregation.TreeAggregation(
        noise_multiplier=noise,
        num_rounds=rule.num_rounds,
        min_separation=min(min_separation, rule.num_rounds - 1),
        max_participation=participation,
    ).rho


def participation(rule_of: RuleOf, goal: int, seed: int) -> Participation:
    """Returns the timer with the least zCDP with which all rounds come together.

    The longest one need not be it: where clients run short rounds wait for them, and
    fewer rounds fit into a timer.

    Args:
        rule_of: The rule of a run.
        goal: The report goal.
        seed: The seed of the run.

    Raises:
        ReportGoalNotMetError: If no timer at all is short enough.
    """
    looked_at: list[tuple[int, int | None]] = []
    found = []
    for hours in _timers(rule_of(goal, 0)):
        rule = rule_of(goal, hours)
        try:
            allowed = _within_limits(rule, seed)
        except timers.ReportGoalNotMetError:
            if not hours:
                raise
            looked_at.append((hours, None))
            continue
        limits = allowed.min_separation, allowed.max_participation
        looked_at.append((hours, allowed.min_separation))
        found.append((_rho(rule, 1.0, *limits), allowed.hours, allowed))
    *_, best = min(found, key=lambda one: one[:2])
    return dataclasses.replace(best, looked_at=tuple(looked_at))


def _within_limits(rule: timers.Timers, seed: int) -> Participation:
    """Returns the limits that a rule can promise, close to those that it has anyway.

    Who is kept out by a limit changes who is drawn afterwards, so that a limit holds
    only once it is simulated.

    Args:
        rule: Without limits.
        seed: The seed of the run.

    Raises:
        ReportGoalNotMetError: If some round has too few clients without limits.
    """
    last = _simulate(rule, seed)
    least = last.table.min_separation()
    separation = rule.num_rounds - 1 if least is None else int(least)
    most = int(last.table.max_participation())
    while True:
        most = min(
            most, tree_aggregation.largest_participation(rule.num_rounds, separation)
        )
        try:
            limited = dataclasses.replace(
                rule, min_separation=separation, max_participation=most
            )
            hours = _simulate(limited, seed).seconds / 3600
        except (timers.ReportGoalNotMetError, ValueError):
            if not separation:
                raise
            separation -= max(1, separation // 10)
            most += 1
            continue
        return Participation(rule.timer_hours, separation, most, hours, ())


def _timers(rule: timers.Timers) -> list[int]:
    """Returns timers in hours: none, and up to the longest that could be of use."""
    unit = 1 if rule.availability is None else _HOURS_OF_A_DAY
    rounds = min(largest_min_separation(rule) + 1, rule.num_rounds)
    longest = math.ceil(rounds * rule.round_minutes / 60 / unit)
    spaced = np.linspace(0, longest, min(longest, _MOST_TIMERS) + 1)
    return [unit * number for number in spaced.round().astype(int).tolist()]


def _simulate(rule: timers.Timers, seed: int) -> timers.Participation:
    """Returns the time of a run's clock after its last round."""
    stream = steps.public_stream(seed, 0)
    places = rule.initialize()
    for number in range(rule.num_rounds):
        drawn: plan_lib.Draw[timers.Participation] = rule.draw(places, number, stream)
        places = drawn.state
    return places


def rounded(number: float) -> float:
    """Returns the nearest number of few digits."""
    return float(f"{number:.{_DIGITS}g}")


def rounded_up(noise: float) -> float:
    """Returns a noise multiplier of few digits, not below one."""
    near = rounded(noise)
    last = math.floor(math.log10(noise)) - _DIGITS + 1
    return near if near >= noise else rounded(near + 10.0**last)
