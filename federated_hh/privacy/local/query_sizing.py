"""Settings for a population of devices: cohorts, holders, budgets, the best change."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from scipy import special

from federated_hh.privacy import searches
from federated_hh.privacy.local import count_detection, device_policy
from federated_hh.privacy.shuffle import amplification as shuffling

_MOST_DEVICES = 10**10
_MOST_EPSILON = 10.0
# Defaults of a run: on average 0.1 of 5,101 empty cells are found.
_CELLS, _FALSE_POSITIVES = 5101, 0.1
# Share of the holders below which three reports a device are worth their cost.
_WORTH = 0.75


@dataclasses.dataclass(frozen=True)
class Setting:
    """Queries to a population.

    Attributes:
        num_devices: Number of devices.
        queries: Number of queries, at least 1.
        is_everybody: Whether each query goes to all devices, or to a cohort of its own.
        epsilon: Epsilon of all aggregates that a device's reports are in.
        policy: The devices' policy; its own limit on epsilon is not used.
        drop_out: Share of the devices that are gone before the sum, in [0, 1).
        stderrs: Standard errors of an empty cell that a count has to exceed.
        rate: Probability that a value of `holders` is found, in (0, 1).
    """

    num_devices: int
    queries: int
    is_everybody: bool
    epsilon: float
    policy: device_policy.Policy
    drop_out: float = 0.0
    stderrs: float = float(special.ndtri(1 - _FALSE_POSITIVES / _CELLS))
    rate: float = 0.9

    @property
    def reports(self) -> int:
        """The most reports of a device."""
        return self.queries if self.is_everybody else 1

    @functools.cached_property
    def counts(self) -> count_detection.CountDetection:
        """The counts that the budget allows.

        Raises:
            ValueError: If there are too few devices, such as one a cohort.
        """
        policy, epsilon = self._policy, self.epsilon
        if self.reports > 1:
            epsilon = query_epsilon(policy, self.queries, self.num_devices)
        return _counts(
            population=reports_expected(self.num_devices, self.drop_out),
            epsilon=epsilon,
            delta=policy.delta,
            local_epsilon=policy.limits.local_epsilon,
            num_queries=self.queries // self.reports,
            randomizer=policy.randomizer.value,
        )

    @property
    def _policy(self) -> device_policy.Policy:
        limits = dataclasses.replace(
            self.policy.limits, aggregate_epsilon=self.epsilon, reports=self.reports
        )
        return dataclasses.replace(self.policy, limits=limits, fields={"": limits})

    @functools.cached_property
    def holders(self) -> int | None:
        """Devices that must report a value so that it is found nine times in ten.

        None where all devices are too few.
        """
        try:
            return self.counts.holders_needed(self.rate, self.stderrs)
        except ValueError:
            return None

    @property
    def delta(self) -> float:
        """Delta of all reports of a device."""
        return self._policy.total_delta()

    @property
    def better_delta(self) -> float | None:
        """Delta of a query that makes `delta` less than 1/n; None where it is."""
        if self.delta * self.num_devices <= 1 + 1e-9:
            return None
        return 10.0 ** math.floor(-math.log10(2 * self.reports * self.num_devices))

    @property
    def share(self) -> float:
        """Share of the devices that must report a value; 2 where none will do."""
        return 2.0 if self.holders is None else self.holders / self.num_devices

    @property
    def is_better_by_everybody(self) -> bool:
        """Whether asking everybody needs much fewer holders than disjoint cohorts."""
        everybody, disjoint = (
            dataclasses.replace(self, is_everybody=each) for each in (True, False)
        )
        return self.queries > 1 and everybody.share < _WORTH * disjoint.share

    def check(self) -> None:
        """Raises `ValueError` where no value can be found, with what it would take."""
        if self.holders is not None:
            return
        least = searches.first_true(
            lambda num: dataclasses.replace(self, num_devices=num).holders is not None,
            self.num_devices,
            _MOST_DEVICES,
        )
        enough = searches.first_true(
            lambda tenths: (
                dataclasses.replace(self, epsilon=tenths / 10).holders is not None
            ),
            int(10 * self.epsilon) + 1,
            int(10 * _MOST_EPSILON),
        )
        ways = [] if least is None else [f"at least {least:,} devices"]
        ways += [] if enough is None else [f"an epsilon of {enough / 10:g}"]
        raise ValueError(
            f"{self.num_devices:,} devices cannot answer {counted(self.queries)} at an "
            f"epsilon of {self.epsilon:g} (delta {self.policy.delta:g}): even a value "
            "that all of them hold would be lost in the noise. Use "
            f"{' or '.join(ways) or 'another delta'}"
        )

    def best_change(self) -> str:
        """Returns the change that lowers the holders' share the most, in a sentence."""
        devices, epsilon = 2 * self.num_devices, 2 * self.epsilon
        changes: dict[str, dict[str, Any]] = {
            f"twice the devices ({devices:,})": {"num_devices": devices}
        }
        if epsilon <= _MOST_EPSILON:
            changes[f"an epsilon of {epsilon:g}"] = {"epsilon": epsilon}
        if self.queries > 1 and not self.is_everybody:
            changes["--cohorts=everybody"] = {"is_everybody": True}
        settings = {k: dataclasses.replace(self, **v) for k, v in changes.items()}
        name, best = min(settings.items(), key=lambda pair: pair[1].share)
        if self.holders is None or best.share >= self.share:
            return ""
        return (
            f"A value is found with probability 0.9 if {self.holders:,} of "
            f"{self.num_devices:,} devices report it ({self.share:.2%}). Most helpful "
            f"change: {name}, for {best.holders:,} of {best.num_devices:,} "
            f"({best.share:.2%})."
        )


def counted(queries: int) -> str:
    """Returns a number of queries in words."""
    return f"{queries} {'query' if queries == 1 else 'queries'}"


@functools.lru_cache(maxsize=256)
def _counts(**budget: Any) -> count_detection.CountDetection:
    return count_detection.CountDetection.within(**budget)


def query_epsilon(
    policy: device_policy.Policy, queries: int, cohort_size: int
) -> float:
    """Returns the largest aggregate epsilon that a device gives each of some queries.

    Args:
        policy: The policy of the devices.
        queries: Number of queries, of equal epsilons, that every device is to answer;
            at least 1.
        cohort_size: Expected number of reports of each.

    Returns:
        Epsilon, in whole millionths.

    Raises:
        ValueError: If no epsilon is so small that all are answered.
    """
    allowed = device_policy.units_of(policy.limits.aggregate_epsilon, "epsilon")
    if policy.composition is device_policy.Composition.BASIC:
        return allowed // queries / device_policy.UNITS
    if policy.composition is device_policy.Composition.ADVANCED:
        # Its cost is that of the aggregate epsilon alone.
        units = _largest(
            lambda units: _are_answered(policy, queries, policy.cost(units, 1, 2)),
            allowed,
        )
        return units / device_policy.UNITS
    most = device_policy.units_of(policy.limits.local_epsilon, "local_epsilon")
    local_units = _largest(
        lambda local: _are_answered(
            policy, queries, policy.cost(1, local, cohort_size)
        ),
        most,
    )
    epsilon = policy.cohort_epsilon(local_units, cohort_size)
    units = min(allowed, int(epsilon * device_policy.UNITS))
    while units > 0:
        budget = report_budget(
            policy.randomizer,
            policy.delta,
            policy.limits.local_epsilon,
            units / device_policy.UNITS,
            cohort_size,
        )
        if _are_answered(policy, queries, policy.cost(units, *budget)):
            break
        # The minimum cohort that goes with it is smaller than the cohort.
        units = units * 98 // 100
    return units / device_policy.UNITS


def _are_answered(
    policy: device_policy.Policy, queries: int, cost: device_policy.Spent
) -> bool:
    """Returns whether a device answers some queries of the same cost."""
    spent = device_policy.Spent()
    for _ in range(queries - 1):
        spent = spent.and_(cost)
    return policy.refusal(spent, policy.limits, cost) is None


def _largest(is_allowed: Callable[[int], bool], most: int) -> int:
    """Returns the most of something that is allowed, to a ten-thousandth of `most`.

    Raises:
        ValueError: If none is.
    """
    if is_allowed(most):
        return most
    low, high = 0, most
    while high - low > max(1, most // 10_000):
        middle = (low + high) // 2
        low, high = (middle, high) if is_allowed(middle) else (low, middle)
    if low == 0:
        raise ValueError("a device cannot answer so many queries within its policy")
    return low


def reports_expected(cohort_size: int, drop_out: float) -> int:
    """Returns the reports that a cohort sends at least, but for one time in 10^9.

    Args:
        cohort_size: Number of devices asked.
        drop_out: The probability with which each is gone.
    """
    stddev = math.sqrt(cohort_size * drop_out * (1 - drop_out))
    return max(0, math.floor(cohort_size * (1 - drop_out) - 6 * stddev))


@functools.lru_cache(maxsize=64)
def report_budget(
    randomizer: shuffling.Randomizer,
    delta: float,
    limit: float,
    epsilon: float,
    cohort_size: int,
) -> tuple[int, int]:
    """Returns the largest local epsilon for an aggregate's, and the minimum cohort.

    Args:
        randomizer: Local randomizer of the reports.
        delta: The delta of the aggregate.
        limit: The most that the local epsilon may be, for replacement.
        epsilon: The epsilon of the aggregate.
        cohort_size: Expected number of reports.

    Returns:
        (local epsilon in millionths, fewest reports).

    Raises:
        ValueError: If no local epsilon will do.
    """
    twice = randomizer is shuffling.Randomizer.SYMMETRIC_ONE_HOT
    largest = shuffling.largest_local_epsilon(
        randomizer, epsilon=epsilon, delta=delta, num_reports=cohort_size
    ) * (2 if twice else 1)
    units = device_policy.units_of(limit, "local_epsilon")
    # A thousandth less, so that a device that bounds it again does not need one more.
    units = min(units, int(largest * 0.999 * device_policy.UNITS))
    minimum = device_policy.minimum_cohort(
        randomizer, units, device_policy.units_of(epsilon, "aggregate_epsilon"), delta
    )
    if minimum > cohort_size:
        raise ValueError(
            f"cohort_size is {cohort_size:,}; it has to be at least {minimum:,} for a "
            f"cohort aggregate epsilon of {epsilon:g}"
        )
    return units, minimum
