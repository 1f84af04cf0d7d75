"""Sensible settings for a population of devices: cohorts, holders, the best change."""

import dataclasses
import functools
from typing import Any

from federated_hh.privacy import searches
from federated_hh.privacy.local import count_detection, device_policy
from federated_hh.statistics.analyses import analysis

_MOST_DEVICES = 10**10
_MOST_EPSILON = 10.0
# Probability that a value is found.
_RATE = 0.9
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
    """

    num_devices: int
    queries: int
    is_everybody: bool
    epsilon: float
    policy: device_policy.Policy
    drop_out: float = 0.0
    stderrs: float = 3.0

    @functools.cached_property
    def holders(self) -> int | None:
        """Devices that must report a value so that it is found nine times in ten.

        None where all devices are too few.
        """
        limits = dataclasses.replace(self.policy.limits, aggregate_epsilon=self.epsilon)
        try:
            epsilon = self.epsilon
            if self.is_everybody and self.queries > 1:
                limits = dataclasses.replace(limits, reports=self.queries)
                policy = dataclasses.replace(
                    self.policy, limits=limits, fields={"": limits}
                )
                epsilon = analysis.query_epsilon(policy, self.queries, self.num_devices)
            return _counts(
                population=analysis.reports_expected(self.num_devices, self.drop_out),
                epsilon=epsilon,
                delta=self.policy.delta,
                local_epsilon=limits.local_epsilon,
                num_queries=1 if self.is_everybody else self.queries,
                randomizer=self.policy.randomizer.value,
            ).holders_needed(_RATE, self.stderrs)
        except ValueError:  # such as a cohort of less than two devices
            return None

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
