"""Reports that devices decide on, summed over large enough cohorts, as a plan.

Each device verifies, budgets and randomizes (`device_policy`); the sum of a query's
reports is released where there are at least as many as the devices asked for
(McMillan et al. 2022, sections 3.1.2 and 4).
"""

import dataclasses
from typing import Any, TypeAlias

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import statement
from federated_hh.privacy.local import device_policy, device_reports_statement
from federated_hh.randomness import identities, streams

# Facts of a round.
CELLS = "cells"
LOCAL_UNITS = "local_epsilon_millionths"
AGGREGATE_UNITS = "aggregate_epsilon_millionths"
MINIMUM_COHORT = "minimum_cohort"


@identities.identity("DeviceReports", "policy max_queries aggregation")
@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceReports(plan_lib.Contribution):
    """At most one report a device and query, if its policy allows it.

    Attributes:
        policy: Policy that ships with every device.
        max_queries: The most queries of a repeat, at least 1.
        aggregation: Aggregator of the reports, in statements.
    """

    policy: device_policy.Policy
    max_queries: int
    aggregation: str

    def __post_init__(self):
        checks.integer(max_queries=self.max_queries, least=1)


@dataclasses.dataclass(frozen=True)
class Batch:
    """The reports of a query in an aggregation; no server releases them as they are.

    Attributes:
        counts: int64 [cells]: the sum of the reports; None where the aggregation
            itself keeps it back.
        reports: Number of reports.
        minimum_cohort: The largest minimum that travelled with one of them.
    """

    counts: np.ndarray | None
    reports: int
    minimum_cohort: int


@dataclasses.dataclass(frozen=True)
class CheckedBatch(Batch):
    """The reports of a query in an aggregation that may refuse some.

    Attributes:
        refused: Number of reports that were sent and are not in `reports`: not
            well-formed, sent twice or too late, or not sent to the end.
    """

    refused: int


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """The released part of a query.

    Attributes:
        counts: int64 [cells]: the sum of the reports; None where they were too few.
        reports: Number of reports. Whether a device reports does not depend on its
            data.
    """

    counts: np.ndarray | None
    reports: int


@identities.identity("MinimumCohort")
@dataclasses.dataclass(frozen=True)
class MinimumCohort(plan_lib.Mechanism[None]):
    """Releases the sum of a batch of at least the minimum, and nothing of others."""

    def release(
        self, total: Any, state: None, facts: plan_lib.Facts, stream: streams.Stream
    ) -> plan_lib.Release[None]:
        """Returns an `Aggregate` of a `Batch`."""
        del stream
        least = max(total.minimum_cohort, int(facts[MINIMUM_COHORT]))
        is_enough = total.reports >= least
        counts = total.counts if is_enough else None
        metrics = {}
        if isinstance(total, CheckedBatch):
            metrics["refused"] = total.refused
        return plan_lib.Release(Aggregate(counts, total.reports), state, metrics)


_Plan: TypeAlias = plan_lib.Plan[Any, DeviceReports, MinimumCohort]


class _Theorem(plan_lib.Theorem):
    """Composition over the queries that a device answers."""

    def check(self, plan: _Plan) -> None:
        """Raises `ValueError` if the theorem does not cover a cohort."""
        sampler = plan.sampler
        is_disjoint = sampler.sampling is plan_lib.Sampling.DISJOINT
        if not is_disjoint and sampler.cohort_size != sampler.num_clients:
            raise ValueError(
                f"cohort_size is {sampler.cohort_size:,}; if a device is asked more "
                "than once, it has to be the whole population, "
                f"{sampler.num_clients:,} clients"
            )

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Raises `ValueError` where a round is none of the plan."""
        plan_lib.check_number(number, plan.contribution.max_queries, "max_queries")
        # Both epsilons are 0 where devices refused the query.
        is_refused = facts.get(LOCAL_UNITS) == facts.get(AGGREGATE_UNITS) == 0
        least_units = 0 if is_refused else 1
        for name, least in (
            (CELLS, 2),
            (LOCAL_UNITS, least_units),
            (AGGREGATE_UNITS, least_units),
            (MINIMUM_COHORT, 2),
        ):
            found: Any = facts.get(name)
            checks.integer(least=least, **{name: found})

    def statement(
        self,
        plan: _Plan,
        record: plan_lib.Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns the statement; delta is that of the policy."""
        del delta
        asked = summary = None
        if record is not None:
            asked, summary = _asked(record), record.rounds.summary()
        return device_reports_statement.statement_of(plan, asked, summary, repeats)


def _asked(record: plan_lib.Record) -> device_reports_statement.Asked:
    """Returns the queries of each repeat: two epsilons in millionths, and a cohort."""
    found: list[list[tuple[int, int, int]]] = [
        [] for _ in range(record.rounds.num_repeats)
    ]
    for one in record.rounds.rounds:
        local, aggregate, cohort = (
            int(one.facts[name])
            for name in (LOCAL_UNITS, AGGREGATE_UNITS, MINIMUM_COHORT)
        )
        found[one.repeat].append((local, aggregate, cohort))
    return found


for _sampling in (plan_lib.Sampling.DISJOINT, plan_lib.Sampling.UNIFORM):
    plan_lib.register(_sampling, DeviceReports, MinimumCohort, _Theorem())
