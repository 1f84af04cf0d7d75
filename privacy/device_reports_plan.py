"""Reports that devices decide on, summed over large enough cohorts, as a plan.

Each device verifies, budgets and randomizes (`device_policy`); the sum of a query's
reports is released where there are at least as many as the devices asked for
(McMillan et al. 2022, sections 3.1.2 and 4).
"""

import dataclasses
import math
from typing import Any, TypeAlias

import numpy as np

from privacy import argument_checks, device_policy, statement
from privacy import plan as plan_lib
from privacy.guarantee import Guarantee
from privacy.neighbours import Adjacency
from randomness import streams

# Facts of a round.
CELLS = "cells"
LOCAL_UNITS = "local_epsilon_millionths"
AGGREGATE_UNITS = "aggregate_epsilon_millionths"
MINIMUM_COHORT = "minimum_cohort"
_LARGEST_REPEATS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceReports(plan_lib.Contribution):
    """At most one report a device and query, if its policy allows it.

    Attributes:
        policy: What ships with every device.
        max_queries: The most queries of a repeat, at least 1.
        aggregation: Who adds the reports up, in statements.
    """

    policy: device_policy.Policy
    max_queries: int
    aggregation: str

    def __post_init__(self):
        argument_checks.integer("max_queries", self.max_queries, 1)


@dataclasses.dataclass(frozen=True)
class Batch:
    """What an aggregation holds of a query; no server releases it as it is.

    Attributes:
        counts: int64 [cells]: the sum of the reports; None where the aggregation
            itself keeps it back.
        reports: How many they are.
        minimum_cohort: The largest minimum that travelled with one of them.
    """

    counts: np.ndarray | None
    reports: int
    minimum_cohort: int


@dataclasses.dataclass(frozen=True)
class CheckedBatch(Batch):
    """What an aggregation holds that may refuse reports.

    Attributes:
        refused: How many reports were sent and are not among `reports`: not
            well-formed, sent twice or too late, or not sent to the end.
    """

    refused: int


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """What an analyst gets of a query.

    Attributes:
        counts: int64 [cells]: the sum of the reports; None where they were too few.
        reports: How many they were. Whether a device reports does not depend on its
            data.
    """

    counts: np.ndarray | None
    reports: int


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
        """Raises `ValueError` where a cohort is none of what is proved."""
        sampler = plan.sampler
        is_disjoint = sampler.sampling is plan_lib.Sampling.DISJOINT
        if not is_disjoint and sampler.cohort_size != sampler.num_clients:
            raise ValueError(
                f"cohort_size is {sampler.cohort_size:,}; where a device is asked more "
                f"than once, it has to be all {sampler.num_clients:,} clients"
            )

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Raises `ValueError` where a round is none of the plan."""
        plan_lib.check_number(number, plan.contribution.max_queries, "max_queries")
        for name, least in (
            (CELLS, 2),
            (LOCAL_UNITS, 1),
            (AGGREGATE_UNITS, 1),
            (MINIMUM_COHORT, 2),
        ):
            argument_checks.integer(name, facts.get(name), least)

    def statement(
        self,
        plan: _Plan,
        record: plan_lib.Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns the statement; delta is that of the policy."""
        del delta
        return _statement(plan, record, repeats)


def _statement(
    plan: _Plan, record: plan_lib.Record | None, repeats: int
) -> statement.PrivacyStatement:
    reports, sampler = plan.contribution, plan.sampler
    policy, is_disjoint = reports.policy, sampler.sampling is _DISJOINT
    repeats = record.rounds.num_repeats if record else repeats
    argument_checks.integer("num_repeats", repeats, 1, _LARGEST_REPEATS)
    return statement.PrivacyStatement(
        setting=(
            "Aggregate DP of what is released, for an analyst who sees sums of cohorts "
            "only; and local DP of each device's reports, whoever sees them."
        ),
        protected=(
            "All that a device stores, as its answers to the queries of the analysis "
            f"{policy.analysis}."
        ),
        adjacency=Adjacency.REPLACE_CLIENT,
        mechanism=(
            "Interactive federated statistics with private one-hot encoding "
            f"({policy.randomizer.value}; McMillan et al. 2022)"
        ),
        mechanism_output=(
            "Aggregate: the sums of the queries' reports, and how many they are. "
            "Local: every report."
        ),
        guarantees=tuple(_guarantees(plan, record, repeats)),
        parameters=_parameters(plan, repeats),
        accounting=(
            "The sum of m reports has (epsilon, delta) by amplification (the numerical "
            "bounds of privacy.shuffling); the device computes m, sends it along, and "
            "the aggregation releases no smaller sum. "
            + (
                "No device is asked twice in a repeat, so a query's guarantee is that "
                "of its devices for the whole repeat."
                if is_disjoint
                else "Every device is asked every query, and its accountant composes "
                f"those that it answers ({policy.composition.value} composition)."
            )
            + (
                " The Renyi divergences of the sums of minimum cohorts add up at order "
                f"{policy.order}, and their total is turned into epsilon at the delta "
                "stated (a Renyi filter: queries may depend on earlier answers)."
                if policy.order is not None
                else ""
            )
        ),
        assumptions=(
            f"The aggregation ({reports.aggregation}) shows nothing of a report but as "
            "part of a sum of at least the minimum cohort. The simulation holds the "
            "reports in the clear.",
            *_OF_AGGREGATIONS.get(reports.aggregation, ()),
            "The devices of a batch are honest: each colluding one is one less to hide "
            "among.",
            "Whether a device answers follows from the recipes that it got, not from "
            "its data; one without a row that fits reports on the cell 'out of "
            "vocabulary'.",
            "The simulation draws reports from the run's noise key: who knows it can "
            "take the noise off.",
        ),
        not_counted=(
            statement.SIMULATOR_KNOWLEDGE,
            "Other analyses of the same devices, each with a policy of its own, and "
            "choices made by looking at the data.",
            "That a device takes part, and when.",
        ),
        realised=record.rounds.summary() if record else None,
    )


def _guarantees(
    plan: _Plan, record: plan_lib.Record | None, repeats: int
) -> list[Guarantee]:
    """Returns those of the policy, or of what was asked where that is less."""
    policy = plan.contribution.policy
    is_disjoint = plan.sampler.sampling is _DISJOINT
    answers = min(policy.limits.reports, plan.contribution.max_queries)
    answers = 1 if is_disjoint else answers
    local = answers * policy.limits.local_epsilon * repeats
    aggregate = policy.limits.aggregate_epsilon * repeats
    if record:
        asked: dict[int, list[tuple[int, int]]] = {}
        for found in record.rounds.rounds:
            pair = int(found.facts[LOCAL_UNITS]), _composed(policy, found.facts)
            asked.setdefault(found.repeat, []).append(pair)
        # Of each repeat, what one device answered.
        local_units, of_aggregates = (
            [
                max(values) if is_disjoint else sum(values)
                for values in ([pair[i] for pair in pairs] for pairs in asked.values())
            ]
            for i in range(2)
        )
        local = min(local, sum(local_units) / device_policy.UNITS)
        aggregate = min(aggregate, math.fsum(map(policy.epsilon_of, of_aggregates)))
    delta = min(1.0, policy.delta * repeats)
    if not is_disjoint or policy.composition is device_policy.Composition.RENYI:
        delta = policy.total_delta(repeats)
    common: dict[str, Any] = {
        "is_upper_bound": True,
        "one_sided": False,
        "adjacency": Adjacency.REPLACE_CLIENT,
    }
    return [
        Guarantee(
            epsilon=aggregate,
            delta=delta,
            bound="cohort aggregates, McMillan et al. 2022, section 4.3: "
            + ("the smaller of limit and what was asked" if record else "the limit")
            + " of the policy",
            assumptions=("only sums of at least the minimum cohort are seen",),
            **common,
        ),
        Guarantee(
            epsilon=local,
            delta=0.0,
            bound="local DP of a device's reports together, basic composition",
            assumptions=("none of the aggregation: it holds for each report as sent",),
            **common,
        ),
    ]


def _composed(policy: device_policy.Policy, facts: plan_lib.Facts) -> int:
    """Returns what the composition adds up, of the cost of one query."""
    cost = policy.cost(
        int(facts[AGGREGATE_UNITS]), int(facts[LOCAL_UNITS]), int(facts[MINIMUM_COHORT])
    )
    is_renyi = policy.composition is device_policy.Composition.RENYI
    return cost.divergence if is_renyi else cost.units


def _parameters(plan: _Plan, repeats: int) -> dict[str, float | int | str]:
    policy = plan.contribution.policy
    found: dict[str, float | int | str] = {
        "analysis": policy.analysis,
        "randomizer": policy.randomizer.value,
        "delta of a query": policy.delta,
        "composition": policy.composition.value,
        "slack of the composition": policy.slack or 0.0,
        "order of the composition": policy.order or "none",
        "num_clients": plan.sampler.num_clients,
        "cohort_size": plan.sampler.cohort_size,
        "max_queries": plan.contribution.max_queries,
        "num_repeats": repeats,
    }
    for name, limits in (("the analysis", policy.limits), *policy.fields.items()):
        found |= {
            f"aggregate epsilon of {name}": limits.aggregate_epsilon,
            f"local epsilon of {name}": limits.local_epsilon,
            f"reports of {name}": limits.reports,
        }
    return found


# What more is assumed of an aggregation, by name.
_OF_AGGREGATIONS = {
    "two_servers": (
        "The two servers do not collude, and each does what the protocol says. It has "
        "one additive share of a report, and the values that both open to check a "
        "proof are uniform whatever the report is.",
        "A report that is no vector of 0 and 1 is left out, and counts for no minimum "
        "cohort. One that is and lies is counted: no proof covers that.",
    ),
}
_DISJOINT = plan_lib.Sampling.DISJOINT
for _sampling in (_DISJOINT, plan_lib.Sampling.UNIFORM):
    plan_lib.register(_sampling, DeviceReports, MinimumCohort, _Theorem())
