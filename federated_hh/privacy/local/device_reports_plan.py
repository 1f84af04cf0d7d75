"""Reports that devices decide on, summed over large enough cohorts, as a plan.

Each device verifies, budgets and randomizes (`device_policy`); the sum of a query's
reports is released where there are at least as many as the devices asked for
(McMillan et al. 2022, sections 3.1.2 and 4).
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import statement
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.randomness import identities, streams

# Facts of a round.
CELLS = "cells"
LOCAL_UNITS = "local_epsilon_millionths"
AGGREGATE_UNITS = "aggregate_epsilon_millionths"
MINIMUM_COHORT = "minimum_cohort"
_LARGEST_REPEATS = 1000
# Names of parameters.
_ANALYSIS = "the analysis"
_AGGREGATE_OF, _LOCAL_OF = "aggregate epsilon of ", "local epsilon of "
_REPORTS_OF = "reports of "
_QUERIES = "queries of each repeat (local epsilon, aggregate epsilon, minimum cohort)"
# Of each repeat, its queries: both epsilons in millionths, and the minimum cohort.
_Asked: TypeAlias = Sequence[Sequence[tuple[int, int, int]]]


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
        return _statement(plan, record, repeats)


def _statement(
    plan: _Plan, record: plan_lib.Record | None, repeats: int
) -> statement.PrivacyStatement:
    reports, sampler = plan.contribution, plan.sampler
    policy, is_disjoint = reports.policy, sampler.sampling is _DISJOINT
    repeats = record.rounds.num_repeats if record else repeats
    checks.integer(num_repeats=repeats, least=1, most=_LARGEST_REPEATS)
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
        guarantees=_guarantees(
            policy,
            reports.max_queries,
            is_disjoint,
            _asked(record) if record else None,
            repeats,
        ),
        parameters=_parameters(plan, record, repeats),
        accounting=(
            "The sum of m reports has (epsilon, delta) by amplification (the numerical "
            "bounds of federated_hh.privacy.shuffle.amplification); the device "
            "computes m, sends it along, and "
            "the aggregation releases no smaller sum. "
            + (
                "No device is asked twice in a repeat, so a query's guarantee is that "
                "of its devices for the whole repeat."
                if is_disjoint
                else "Every device is asked every query, and its accountant composes "
                f"those that it answers ({policy.composition.theorem})."
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
            "its data; one without a row that fits reports on the cell '(other)'.",
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
        num_repeats=repeats,
    )


def _asked(record: plan_lib.Record) -> _Asked:
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


def _guarantees(
    policy: device_policy.Policy,
    max_queries: int,
    is_disjoint: bool,
    asked: _Asked | None,
    repeats: int,
) -> tuple[Guarantee, ...]:
    """Returns those of the policy, or of what was asked where that is less."""
    answers = 1 if is_disjoint else min(policy.limits.reports, max_queries)
    is_renyi = policy.composition is device_policy.Composition.RENYI

    def of_device(costs: list[int]) -> int:
        return max(costs) if is_disjoint else sum(costs)

    # Of each repeat.
    local = [answers * policy.limits.local_epsilon] * repeats
    aggregate = [policy.limits.aggregate_epsilon] * repeats
    if asked is not None:
        units = [of_device([query[0] for query in queries]) for queries in asked]
        local = [min(local[0], own / device_policy.UNITS) for own in units]
        composed = [
            of_device([_composed(policy, query) for query in queries])
            for queries in asked
        ]
        aggregate = [
            min(aggregate[0], policy.epsilon_of(own)) if own else 0.0
            for own in composed
        ]
    theorem = policy.amplification
    if is_renyi:
        theorem = policy.composition.theorem
    elif not is_disjoint:
        theorem += f"; {policy.composition.theorem}"
    if asked is None:
        theorem += "; the limit of the policy"
    is_spent = any(map(any, zip(local, aggregate, strict=True)))
    if not is_spent:
        theorem = "devices refused every query, so no report was sent"
    common: dict[str, Any] = {
        "is_upper_bound": True,
        "one_sided": False,
        "adjacency": Adjacency.REPLACE_CLIENT,
    }
    found = []
    for count, of in ((repeats, math.fsum), (1, max))[: min(repeats, 2)]:
        delta = min(1.0, policy.delta * count)
        if is_renyi or not is_disjoint:
            delta = policy.total_delta(count)
        delta = delta if is_spent else 0.0
        how = f"; basic composition over {count} repeats" if count > 1 else ""
        common["of_one_repeat"] = count < repeats
        found += [
            Guarantee(
                epsilon=of(aggregate),
                delta=delta,
                bound=theorem + how,
                assumptions=("only sums of at least the minimum cohort are seen",),
                **common,
            ),
            Guarantee(
                epsilon=of(local),
                delta=0.0,
                bound="local DP of a device's reports together, basic composition",
                assumptions=(
                    "none of the aggregation: it holds for each report as sent",
                ),
                **common,
            ),
        ]
    return tuple(found)


def _composed(policy: device_policy.Policy, query: tuple[int, int, int]) -> int:
    """Returns the part of a query's cost that the composition adds up."""
    local, aggregate, cohort = query
    if not local:
        return 0
    cost = policy.cost(aggregate, local, cohort)
    is_renyi = policy.composition is device_policy.Composition.RENYI
    return cost.divergence if is_renyi else cost.units


def recomputed(stated: statement.PrivacyStatement) -> tuple[Guarantee, ...]:
    """Returns the guarantees that follow from a statement's parameters.

    Args:
        stated: A statement of devices' reports.

    Raises:
        KeyError: A parameter is missing.
        ValueError: A parameter is out of range.
    """
    found: dict[str, Any] = dict(stated.parameters)
    limits = {
        name.removeprefix(_REPORTS_OF): device_policy.Limits(
            aggregate_epsilon=found[_AGGREGATE_OF + name.removeprefix(_REPORTS_OF)],
            local_epsilon=found[_LOCAL_OF + name.removeprefix(_REPORTS_OF)],
            reports=found[name],
        )
        for name in found
        if name.startswith(_REPORTS_OF)
    }
    order, slack = found["order of the composition"], found["slack of the composition"]
    policy = device_policy.Policy(
        analysis=found["analysis"],
        limits=limits.pop(_ANALYSIS),
        fields=limits,
        randomizer=shuffling.Randomizer(found["randomizer"]),
        delta=found["delta of a query"],
        composition=device_policy.Composition(found["composition"]),
        slack=slack or None,
        order=None if order == "none" else order,
    )
    asked: _Asked | None = None
    if stated.realised:
        asked = _read(found[_QUERIES])
        counts = len(asked), sum(map(len, asked))
        if counts != (found["num_repeats"], stated.realised.rounds):
            raise ValueError(f"{_QUERIES} has not as many as were asked")
    return _guarantees(
        policy,
        found["max_queries"],
        found["cohorts"] == "disjoint",
        asked,
        found["num_repeats"],
    )


def _written(asked: _Asked) -> str:
    """Returns queries as a text, repeats separated by |, equal ones told once."""
    return " | ".join(
        "; ".join(
            f"{len([*same])} x {query[0] / device_policy.UNITS:.6f}, "
            f"{query[1] / device_policy.UNITS:.6f}, {query[2]}"
            for query, same in itertools.groupby(queries)
        )
        for queries in asked
    )


def _read(text: str) -> _Asked:
    """Returns the queries that `_written` wrote."""
    asked = []
    for of_repeat in text.split(" | "):
        queries: list[tuple[int, int, int]] = []
        for several in of_repeat.split("; "):
            count, _, query = several.partition(" x ")
            local, aggregate, cohort = query.split(", ")
            units = [
                device_policy.units_of(float(epsilon), _QUERIES)
                if float(epsilon)
                else 0
                for epsilon in (local, aggregate)
            ]
            queries += [(units[0], units[1], int(cohort))] * int(count)
        asked.append(queries)
    return asked


def _parameters(
    plan: _Plan, record: plan_lib.Record | None, repeats: int
) -> dict[str, float | int | str]:
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
        "cohorts": "disjoint" if plan.sampler.sampling is _DISJOINT else "everybody",
        "max_queries": plan.contribution.max_queries,
        "num_repeats": repeats,
    }
    for name, limits in ((_ANALYSIS, policy.limits), *policy.fields.items()):
        found |= {
            _AGGREGATE_OF + name: limits.aggregate_epsilon,
            _LOCAL_OF + name: limits.local_epsilon,
            _REPORTS_OF + name: limits.reports,
        }
    if record:
        found[_QUERIES] = _written(_asked(record))
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
