"""Reports that are private before they leave a client, as a plan (LDP TrieHH).

Nobody takes part twice in a repeat; every client of a cohort sends B reports of a local
randomizer; their sum is released unchanged (Sun et al. 2024, Algorithm 2).
`report_guarantees` has the proofs' numbers, this module the statement.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import realised, statement
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.local import report_guarantees
from federated_hh.privacy.local.report_guarantees import ReportRounds
from federated_hh.privacy.local.reports import (
    CANDIDATES,
    REPORTS,
    LdpTrieHHReports,
    LocalReports,
    OneReport,
)

__all__ = ["CANDIDATES", "REPORTS", "LdpTrieHHReports", "LocalReports", "OneReport"]

_MECHANISM = "LDP TrieHH with Subset Selection (Sun et al. 2024, Algorithms 1 and 2)"
# Of the other algorithms whose reports are Algorithm 1's.
_WITH_SUBSETS = " with Subset Selection (Sun et al. 2024, Algorithm 1)"

_AGGREGATION = {
    "secure_sum": (
        "A secure sum shows the server nothing but a level's total: the central "
        "guarantees rest on it. The simulation computes the sum in the clear."
    ),
    "ephemeral": (
        "The server keeps a client's votes only until they are added up, and shows "
        "nothing else of them: the central guarantees rest on this and on access "
        "control. The local guarantee does not."
    ),
}

# Assumptions of all local reports: honest draws, and the secret that they rest on.
HONEST_CLIENTS = (
    "Reports are drawn as the local randomizer says, by honest clients, independently "
    "of each other."
)
NOISE_KEY = (
    "The simulation draws reports from the run's noise key, and whoever knows it can "
    "remove the noise: keep it secret if results on real data are shared. Runs with "
    "other parameters, cohorts or another population draw other noise from the same "
    "key. Its generators (PCG64, Philox), keyed with 64 bits or more of a hash of the "
    "key, are assumed to be random to all without it; they are not cryptographic."
)
# Of a population without empty clients.
_POPULATION_IS_PUBLIC = (
    "Clients without an item were left out of the population. Its members and their "
    "rounds are therefore assumed to be public: whether a client has any item at all "
    "is not protected."
)
_ASSUMPTIONS = (
    "A client with fewer items reports 'no item' more often, and samplers are "
    "consistent: exchanging one item of a client changes at most one reported item; "
    "exchanging all of them changes up to B in each repeat.",
    "All N clients of a level send exactly B reports, filled up with 'no item': a "
    "missing report is one less to hide among. In the simulation nobody drops out.",
    HONEST_CLIENTS,
    NOISE_KEY,
)
_NOT_COUNTED = (
    statement.SIMULATOR_KNOWLEDGE,
    "The counting task that estimates coverage, whose counts are exact.",
    "Choices made by looking at the data (alphabet, depth, parameters, number of "
    "repeats), a client's participation and its time.",
    "Further runs with the same clients: each costs its own epsilon and delta.",
)


def claimed_epsilon(reports: LdpTrieHHReports | OneReport) -> tuple[str, ...]:
    """Returns the assumption about a randomizer that is none of ours."""
    is_ours = getattr(reports.randomizer, "__module__", "").startswith("federated_hh.")
    if reports.name is None or is_ours:
        return ()
    return (
        f"{reports.name} is as private as it claims: a proof of its epsilon is its "
        "author's, and the code checks only the probabilities that it states.",
    )


def public_population(has_empty_users: bool) -> tuple[str, ...]:
    """Returns the assumption about a population without empty users, if any."""
    return () if has_empty_users else (_POPULATION_IS_PUBLIC,)


def empty_users(has_empty_users: bool) -> dict[str, str]:
    """Returns the statement's parameter about clients without an item."""
    return {"users_without_items": "counted" if has_empty_users else "left out"}


def statement_of(
    run: ReportRounds,
    delta: float,
    rounds: realised.RealisedRounds | None,
    *,
    found: tuple[tuple[Guarantee, ...], str] | None = None,
    **texts: Any,
) -> statement.PrivacyStatement:
    """Makes the statement of rounds of local reports.

    Args:
        run: The rounds.
        delta: Delta of the central guarantees, in (0, 1).
        rounds: Record of the rounds; None before a run.
        found: Guarantees and accounting; by default those of `report_guarantees`.
        **texts: Further fields of the statement.

    Returns:
        The statement; without a guarantee if the local epsilon is infinite.

    Raises:
        ValueError: `delta` is out of range, `rounds` are not those of `run`, or the
            local epsilon is finite and too large for the bounds.
    """
    checks.probability(delta=delta)
    if rounds is not None:
        run.check_record(rounds)
    reason = None
    if math.isinf(run.local_epsilon):
        reason = "epsilon is infinite: users send their true items."
        found = ((), "None: reports are not randomized.")
    guarantees, accounting = found or report_guarantees.guarantees(run, delta)
    return statement.PrivacyStatement(
        setting=(
            "Local DP of each report, whoever sees it; and central DP of the "
            "aggregated results, with smaller epsilons for those who see nothing else."
        ),
        adjacency=Adjacency.REPLACE_CLIENT,
        guarantees=tuple(guarantees),
        no_guarantee_reason=reason,
        accounting=accounting,
        realised=None if rounds is None else rounds.summary(),
        num_repeats=run.num_repeats,
        **texts,
    )


def report_statement(
    reports: LdpTrieHHReports | OneReport,
    run: ReportRounds,
    delta: float,
    rounds: realised.RealisedRounds | None = None,
) -> statement.PrivacyStatement:
    """Makes the statement of a plan's reports; see `statement_of`."""
    of_each_repeat, once = "", "takes part in more than one level of all levels and"
    participation = (
        f"No client {once} passes, so a level's guarantee is that of its clients for "
        "the whole run."
    )
    if run.num_repeats > 1:
        of_each_repeat = f" of each of {run.num_repeats} repeats"
        participation = (
            f"In a repeat no client {once} passes. Every repeat draws its own cohorts "
            "from the same clients, so a client may take part in one level of each of "
            f"the {run.num_repeats} repeats: the guarantees of all repeats together "
            "count that."
        )
    return statement_of(
        run,
        delta,
        rounds,
        protected=(
            "The items (prefixes of words) that clients report on: at most "
            f"{reports.bound} of each client, in one level of one pass"
            f"{of_each_repeat}."
        ),
        mechanism=_mechanism(reports),
        mechanism_output=(
            "Local: every report. Central: the vote totals of every level"
            f"{of_each_repeat}, and with them the prefixes kept, the words found, "
            "their counts and standard errors."
        ),
        parameters=_parameters(reports, run, delta),
        assumptions=(
            _AGGREGATION[reports.aggregation],
            participation,
            *claimed_epsilon(reports),
            *_ASSUMPTIONS,
            *public_population(reports.population_has_empty_users),
        ),
        not_counted=_NOT_COUNTED,
    )


def _mechanism(reports: LdpTrieHHReports | OneReport) -> str:
    if reports.name is not None:
        return f"{reports.algorithm} with {reports.name}"
    if isinstance(reports, OneReport):
        return reports.algorithm + _WITH_SUBSETS
    return _MECHANISM


def recomputed(stated: statement.PrivacyStatement) -> tuple[Guarantee, ...]:
    """Returns the guarantees that follow from a statement's parameters.

    Args:
        stated: A statement of local reports, with guarantees.

    Raises:
        KeyError: A parameter is missing.
        ValueError: A parameter is out of range or not that of the realised rounds.
    """
    found: dict[str, Any] = dict(stated.parameters)
    sizes = found["domain_sizes (s)"] if stated.realised else ""
    checks.one_of(_AGGREGATION, aggregation=found["aggregation"])
    run = ReportRounds(
        local_epsilon=found["local_epsilon"],
        cohort_size=found["cohort_size (N)"],
        contribution_bound=found["contribution_bound (B)"],
        domain_sizes=[int(size) for size in sizes.split(", ") if size],
        num_repeats=found["num_repeats"],
        randomizer=None
        if stated.mechanism == _MECHANISM or stated.mechanism.endswith(_WITH_SUBSETS)
        else stated.mechanism.rpartition(" with ")[2],
    )
    if found["reports_per_level (n = N B)"] != run.num_reports:
        raise ValueError(f"reports_per_level is not N B = {run.num_reports}")
    run.check_realised(stated.realised)
    return tuple(report_guarantees.guarantees(run, found["delta"])[0])


_Plan: TypeAlias = plan_lib.Plan[Any, LdpTrieHHReports | OneReport, plan_lib.NoNoise]


class _Theorem(plan_lib.Theorem):
    """The theorem of `report_guarantees`."""

    def check(self, plan: _Plan) -> None:
        """Raises `ValueError` for a parameter out of range."""
        _rounds_of(plan, None, 1)
        plan.contribution.made(1)
        cohort, clients = plan.sampler.cohort_size, plan.sampler.num_clients
        rounds = plan.contribution.num_rounds
        if cohort * rounds > clients:
            raise ValueError(
                f"cohort_size is {cohort:,}: {rounds} rounds need {cohort * rounds:,} "
                f"clients, as none may take part twice; the population has {clients:,}"
            )

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Raises `ValueError` for a round with other reports than planned."""
        reports = plan.contribution
        plan_lib.check_number(number, reports.num_rounds, reports.rounds_limit)
        candidates = checks.integer(
            least=1, most=reports.max_candidates, candidates=facts.get(CANDIDATES)
        )
        expected = plan.sampler.cohort_size * reports.bound
        if facts.get(REPORTS) != expected:
            raise ValueError(
                f"{REPORTS} is {facts.get(REPORTS)}; a cohort of "
                f"{plan.sampler.cohort_size:,} sends {expected:,}, {reports.bound:,} "
                "for each client"
            )
        reports.made(candidates)

    def statement(
        self,
        plan: _Plan,
        record: plan_lib.Record | None,
        delta: float,
        repeats: int,
    ) -> statement.PrivacyStatement:
        """Returns the statement; see `report_statement`."""
        run = _rounds_of(plan, record, repeats)
        rounds = record.rounds if record else None
        return report_statement(plan.contribution, run, delta, rounds)


def _rounds_of(
    plan: _Plan, record: plan_lib.Record | None, repeats: int
) -> ReportRounds:
    """Returns the rounds of a record, or those that are planned."""
    rounds = record.rounds.rounds if record else ()
    return ReportRounds(
        local_epsilon=plan.contribution.replacement_epsilon,
        cohort_size=plan.sampler.cohort_size,
        contribution_bound=plan.contribution.bound,
        domain_sizes=[int(found.facts[CANDIDATES]) + 1 for found in rounds],
        num_repeats=record.rounds.num_repeats if record else repeats,
        randomizer=plan.contribution.name,
    )


def _parameters(
    reports: LdpTrieHHReports | OneReport, run: ReportRounds, delta: float
) -> Mapping[str, float | int | str]:
    return {
        "local_epsilon": run.local_epsilon,
        "delta": delta,
        "cohort_size (N)": run.cohort_size,
        "contribution_bound (B)": run.contribution_bound,
        "reports_per_level (n = N B)": run.num_reports,
        "max_depth (D)": reports.max_depth,
        "num_passes": reports.num_passes,
        "num_repeats": run.num_repeats,
        **empty_users(reports.population_has_empty_users),
        "max_prefixes (eta_max)": reports.max_prefixes,
        "sampler": reports.sampler,
        "aggregation": reports.aggregation,
        "domain_sizes (s)": ", ".join(str(size) for size in run.domain_sizes)
        or "not known before the run",
    }


plan_lib.register(
    plan_lib.Sampling.DISJOINT, LocalReports, plan_lib.NoNoise, _Theorem()
)
