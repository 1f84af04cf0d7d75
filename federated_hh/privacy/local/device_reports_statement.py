"""The privacy statement of devices' reports, and whether its numbers follow from it."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import realised, statement
from federated_hh.privacy.guarantee import EACH_REPORT, Adjacency, Guarantee
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import amplification as shuffling

# Of each repeat, its queries: both epsilons in millionths, and the minimum cohort.
Asked: TypeAlias = Sequence[Sequence[tuple[int, int, int]]]

_LARGEST_REPEATS = 1000
# Names of parameters.
_ANALYSIS = "the analysis"
_AGGREGATE_OF, _LOCAL_OF = "aggregate epsilon of ", "local epsilon of "
_REPORTS_OF = "reports of "
_QUERIES = "queries of each repeat (local epsilon, aggregate epsilon, minimum cohort)"
# Further assumptions of an aggregation, by name.
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


def statement_of(
    plan: plan_lib.Plan,
    asked: Asked | None,
    summary: realised.Realised | None,
    repeats: int,
) -> statement.PrivacyStatement:
    """Returns the statement of a plan of devices' reports.

    Args:
        plan: Plan with a `device_reports_plan.DeviceReports` as its contribution.
        asked: Queries of each repeat; None before the run.
        summary: Summary of the rounds; None before the run.
        repeats: Number of repeats before the run; else `asked` has it.
    """
    reports, sampler = plan.contribution, plan.sampler
    policy, is_disjoint = reports.policy, sampler.sampling is _DISJOINT
    repeats = repeats if asked is None else len(asked)
    checks.integer(num_repeats=repeats, least=1, most=_LARGEST_REPEATS)
    return statement.PrivacyStatement(
        setting=(
            "Aggregate DP of the released results, for an analyst who sees sums of "
            "cohorts only; and local DP of each device's reports, whoever sees them."
        ),
        protected=(
            "All data of a device, in its answers to the queries of the analysis "
            f"{policy.analysis}."
        ),
        adjacency=Adjacency.REPLACE_CLIENT,
        mechanism=(
            "Interactive federated statistics with private one-hot encoding "
            f"({policy.randomizer.value}; McMillan et al. 2022)"
        ),
        mechanism_output=(
            "Aggregate: the sums of the queries' reports, and their numbers. Local: "
            "every report."
        ),
        guarantees=_guarantees(
            policy,
            reports.max_queries,
            is_disjoint,
            asked,
            repeats,
        ),
        parameters=_parameters(plan, asked, repeats),
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
            f"The aggregation ({reports.aggregation}) shows reports only in sums of at "
            "least the minimum cohort. The simulation holds the reports in the clear.",
            *_OF_AGGREGATIONS.get(reports.aggregation, ()),
            "The devices of a batch are honest: each colluding one is one less to hide "
            "among.",
            "Whether a device answers follows from the recipes that it got, not from "
            "its data; one without a row that fits reports on the cell '(other)'.",
            "The simulation draws reports from the run's noise key: whoever knows it "
            "can remove the noise.",
        ),
        not_counted=(
            statement.SIMULATOR_KNOWLEDGE,
            "Other analyses of the same devices, each with a policy of its own, and "
            "choices made by looking at the data.",
            "A device's participation and its time.",
        ),
        realised=summary,
        num_repeats=repeats,
    )


def _guarantees(
    policy: device_policy.Policy,
    max_queries: int,
    is_disjoint: bool,
    asked: Asked | None,
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
                assumptions=(EACH_REPORT,),
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
    asked: Asked | None = None
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


def _written(asked: Asked) -> str:
    """Returns queries as a text, repeats separated by |, equal ones told once."""
    return " | ".join(
        "; ".join(
            f"{len([*same])} x {query[0] / device_policy.UNITS:.6f}, "
            f"{query[1] / device_policy.UNITS:.6f}, {query[2]}"
            for query, same in itertools.groupby(queries)
        )
        for queries in asked
    )


def _read(text: str) -> Asked:
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
    plan: plan_lib.Plan, asked: Asked | None, repeats: int
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
    if asked is not None:
        found[_QUERIES] = _written(asked)
    return found
