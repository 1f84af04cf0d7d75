"""The privacy statement of a run of LDP TrieHH (Sun et al. 2024, Algorithm 2).

For an item the n = N B reports of a level are one group to hide in. For a user, who
makes B of them, take the first reports of all N clients of the level, the second ones,
and so on: B groups of N reports with one of the user's in each. The totals of the level
are the sums of the groups' totals, so who sees them sees no more than the B groups each
on its own. These are B mechanisms for the exchange of one report in N, whatever the
other clients hold, and the exchange of a user is no worse than their composition.
Repeats are composed in the same way: R mechanisms for an item, R B for a user. For an
emptied client, whose reports all become "no item", `emptied_client` proves less.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from federated_hh.options import checks
from federated_hh.privacy import loss_composition, realised, statement
from federated_hh.privacy.guarantee import Guarantee
from federated_hh.privacy.local import emptied_client
from federated_hh.privacy.neighbours import Adjacency
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import blanket, clones, closed_forms

_MECHANISM = "LDP TrieHH with Subset Selection (Sun et al. 2024, Algorithms 1 and 2)"
_CLONES_2021 = shuffling.Method.CLONES_2021.value
_CLONES_2022 = (
    "stronger clones, Feldman et al. 2022 Theorem 3.2, exact sum (by its erratum not "
    "proved for Subset Selection)"
)
_THEOREM_2 = (
    "closed form, Sun et al. 2024 Theorem 2 (equation (1) of McMillan et al. 2022; "
    "rests on the same theorem of 2022)"
)

# More would compose more mechanisms than anybody repeats an experiment.
LARGEST_REPEATS = 1_000

_AGGREGATION = {
    "secure_sum": (
        "A secure sum shows the server nothing but a level's total: the central "
        "guarantees rest on it. The simulation computes the sum in the clear."
    ),
    "ephemeral": (
        "The server keeps the votes of a user only until they are added up, and shows "
        "nothing else of them: the central guarantees rest on it, and on access "
        "control. The local guarantee does not."
    ),
}

# How reports are drawn in the simulation, and who must not know it.
NOISE_KEY = (
    "The simulation draws reports from the run's noise key: who knows it can take the "
    "noise off. Keep it secret where results on real data leave the house. Runs that "
    "differ in a parameter, in the cohorts or in the population have noise of their "
    "own, also with the same key. The generators behind it (PCG64, Philox), keyed with "
    "64 bits or more of a hash of the key, are taken for random by all who do not have "
    "it; they are not cryptographic."
)

_ASSUMPTIONS = (
    "A user who holds fewer items reports 'no item' the more often, and samplers are "
    "consistent: exchanging one item of a user changes at most one of those that are "
    "reported on; exchanging all of them, up to B in each repeat.",
    "Every user of a level sends exactly B reports, filled up with 'no item', and all "
    "N users of the level do: a report that never arrives is one less to hide among. "
    "In the simulation nobody drops out.",
    "Reports are drawn as the local randomizer says, by honest clients, independently "
    "of each other.",
    NOISE_KEY,
)

# Of a population without users who hold nothing.
POPULATION_IS_PUBLIC = (
    "Users without an item were left out of the population, so that who is in it, and "
    "when it is asked, depends on who has items: that is taken to be public, and "
    "whether a user has any item at all is not protected."
)

_NOT_COUNTED = (
    statement.SIMULATOR_KNOWLEDGE,
    "The counting task that estimates coverage, whose counts are exact.",
    "Choices made by looking at the data (alphabet, depth, parameters, number of "
    "repeats), the time at which a device takes part, and that it does.",
    "Further runs with the same users: each costs its own epsilon and delta.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LdpTrieHHRun:
    """What the guarantees of a run depend on.

    Attributes:
        local_epsilon: The local epsilon of a report, for the exchange of its item;
            above 0, infinity for none.
        cohort_size: N, at least 1.
        contribution_bound: B, at least 1.
        domain_sizes: For each level of each pass of each repeat, in order, its
            candidates and one more for "no item". Empty before a run: the guarantees
            hold whatever they turn out to be.
        max_depth: D.
        num_passes: At least 1.
        num_repeats: How often the whole run is made with the same users, each time
            with cohorts of its own; 1 to 1,000.
        has_empty_users: Whether users without an item are in the population. Where
            they were left out, the statement says what that gives away.
        max_prefixes: eta_max.
        sampler: "greedy" or "random".
        aggregation: "secure_sum" or "ephemeral".
        randomizer: The local randomizer's name; None for Subset Selection as in
            Algorithm 1. For any other only bounds are stated that hold for every
            randomizer of the local epsilon.
        algorithm: What the reports are for.
    """

    local_epsilon: float
    cohort_size: int
    contribution_bound: int
    domain_sizes: Sequence[int]
    max_depth: int
    num_passes: int
    max_prefixes: int
    sampler: str
    aggregation: str
    num_repeats: int = 1
    has_empty_users: bool = False
    randomizer: str | None = None
    algorithm: str = "LDP TrieHH"

    def __post_init__(self):
        checks.integer(num_repeats=self.num_repeats, least=1, most=LARGEST_REPEATS)
        if not self.local_epsilon > 0:
            raise ValueError(
                f"local_epsilon is {self.local_epsilon!r}; it has to be above 0"
            )
        for name in ("cohort_size", "contribution_bound"):
            checks.integer(least=1, **{name: getattr(self, name)})
        if min(self.domain_sizes, default=2) < 2:
            raise ValueError(
                f"domain_sizes is {list(self.domain_sizes)!r}; it has to hold sizes of "
                "at least 2"
            )
        if self.aggregation not in _AGGREGATION:
            raise ValueError(
                f"aggregation is {self.aggregation!r}; it has to be one of "
                f"{sorted(_AGGREGATION)}"
            )

    @property
    def num_reports(self) -> int:
        """The reports of a level, N B."""
        return self.cohort_size * self.contribution_bound


def ldp_triehh_statement(
    run: LdpTrieHHRun, *, delta: float, rounds: realised.RealisedRounds | None = None
) -> statement.PrivacyStatement:
    """Makes the privacy statement of a run with all its repeats.

    Args:
        run: What happened, or is to happen.
        delta: The delta of the central guarantees, in (0, 1).
        rounds: The levels that were run, with who was asked; None where nothing was
            run yet. Only with it the statement is of what was realised.

    Returns:
        The statement; without a guarantee where the local epsilon is infinite.

    Raises:
        ValueError: `delta` is out of range, `rounds` are not those of `run`, or the
            local epsilon is finite and above what the bounds can compute with.
    """
    checks.probability(delta=delta)
    if rounds is not None:
        _check_rounds(run, rounds)
    has_guarantee = math.isfinite(run.local_epsilon)
    found: list[Guarantee] = []
    accounting = "None: reports are not randomized."
    if has_guarantee:
        found, accounting = guarantees(run, delta)
    return statement.PrivacyStatement(
        setting=(
            "Local DP of each report, whoever sees it; and central DP of what comes "
            "out of the aggregation, with smaller epsilons for those who see no more."
        ),
        protected=(
            "The items (prefixes of words) that users report on: at most "
            f"{run.contribution_bound} of each user, in one level of one pass"
            + _of_each_repeat(run)
            + "."
        ),
        adjacency=Adjacency.REPLACE_CLIENT,
        mechanism=(
            _MECHANISM
            if run.randomizer is None
            else f"{run.algorithm} with {run.randomizer}"
        ),
        mechanism_output=(
            "Local: every report. Central: the vote totals of every level"
            + _of_each_repeat(run)
            + ", and so the prefixes kept, the words found, their counts and standard "
            "errors."
        ),
        guarantees=tuple(found),
        no_guarantee_reason=None
        if has_guarantee
        else "epsilon is infinite: users send their true items.",
        parameters=_parameters(run, delta),
        accounting=accounting,
        assumptions=(
            _AGGREGATION[run.aggregation],
            _participation(run),
            *_ASSUMPTIONS,
            *(() if run.has_empty_users else (POPULATION_IS_PUBLIC,)),
        ),
        not_counted=_NOT_COUNTED,
        realised=None if rounds is None else rounds.summary(),
        num_repeats=run.num_repeats,
    )


def recomputed(stated: statement.PrivacyStatement) -> tuple[Guarantee, ...]:
    """Returns the guarantees that follow from a statement's parameters.

    Args:
        stated: A statement of `ldp_triehh_statement`, with guarantees.

    Raises:
        KeyError: A parameter is missing.
        ValueError: A parameter is out of range, or not that of what was realised.
    """
    found: dict[str, Any] = dict(stated.parameters)
    rounds, sizes = stated.realised, found["domain_sizes (s)"]
    run = LdpTrieHHRun(
        local_epsilon=found["local_epsilon"],
        cohort_size=found["cohort_size (N)"],
        contribution_bound=found["contribution_bound (B)"],
        domain_sizes=[int(size) for size in sizes.split(", ")] if rounds else [],
        max_depth=found["max_depth (D)"],
        num_passes=found["num_passes"],
        max_prefixes=found["max_prefixes (eta_max)"],
        sampler=found["sampler"],
        aggregation=found["aggregation"],
        num_repeats=found["num_repeats"],
        randomizer=None
        if stated.mechanism == _MECHANISM
        else stated.mechanism.rpartition(" with ")[2],
    )
    if found["reports_per_level (n = N B)"] != run.num_reports:
        raise ValueError(f"reports_per_level is not N B = {run.num_reports}")
    levels = len(run.domain_sizes)
    if rounds and (rounds.rounds, rounds.clients) != (levels, levels * run.cohort_size):
        raise ValueError(
            f"{rounds.rounds} rounds asked {rounds.clients} clients; the parameters "
            f"have {levels} of {run.cohort_size}"
        )
    return tuple(guarantees(run, found["delta"])[0])


def _check_rounds(run: LdpTrieHHRun, rounds: realised.RealisedRounds) -> None:
    """Makes sure that a record is of a run."""
    levels, repeats = len(rounds.rounds), rounds.num_repeats
    if (levels, repeats) != (len(run.domain_sizes), run.num_repeats):
        raise ValueError(
            f"rounds has {levels} levels of {repeats} repeats; the run has "
            f"{len(run.domain_sizes)} of {run.num_repeats}"
        )
    for found in rounds.rounds:
        if found.clients != run.cohort_size:
            raise ValueError(
                f"rounds has {found.clients} clients in level {found.number} of repeat "
                f"{found.repeat}; cohort_size is {run.cohort_size}"
            )
    if len({(found.repeat, found.cohort) for found in rounds.rounds}) < levels:
        raise ValueError("rounds has the same cohort twice")


def _parameters(run: LdpTrieHHRun, delta: float) -> dict[str, float | int | str]:
    return {
        "local_epsilon": run.local_epsilon,
        "delta": delta,
        "cohort_size (N)": run.cohort_size,
        "contribution_bound (B)": run.contribution_bound,
        "reports_per_level (n = N B)": run.num_reports,
        "max_depth (D)": run.max_depth,
        "num_passes": run.num_passes,
        "num_repeats": run.num_repeats,
        "users_without_items": "counted" if run.has_empty_users else "left out",
        "max_prefixes (eta_max)": run.max_prefixes,
        "sampler": run.sampler,
        "aggregation": run.aggregation,
        "domain_sizes (s)": ", ".join(str(size) for size in run.domain_sizes)
        or "not known before the run",
    }


def _of_each_repeat(run: LdpTrieHHRun) -> str:
    return f" of each of {run.num_repeats} repeats" if run.num_repeats > 1 else ""


def _participation(run: LdpTrieHHRun) -> str:
    once = "takes part in more than one level of all levels and passes"
    if run.num_repeats == 1:
        return (
            f"No user {once}, so a level's guarantee is that of its users for the "
            "whole run."
        )
    return (
        f"In a repeat no user {once}. Every repeat draws cohorts of its own from the "
        "same users, so that a user may take part in one level of each of the "
        f"{run.num_repeats} repeats: the guarantees of all repeats together count that."
    )


def guarantees(run: LdpTrieHHRun, delta: float) -> tuple[list[Guarantee], str]:
    """Returns what a run guarantees, and how that was computed.

    Args:
        run: The run, of a finite local epsilon.
        delta: The delta of the central guarantees.

    Returns:
        Those of all repeats first, a client's before an item's; and the accounting.
    """
    local = Guarantee(
        epsilon=run.local_epsilon,
        delta=0.0,
        bound="local DP, Sun et al. 2024 Theorem 1"
        if run.randomizer is None
        else f"local DP, as {run.randomizer} states it",
        is_upper_bound=True,
        one_sided=False,
        adjacency=Adjacency.REPLACE_ONE_ITEM,
        assumptions=("none of the aggregation: it holds for each report as sent",),
    )
    accounting = (
        f"A level has n = N B = {run.num_reports} reports. An item is reported on in "
        "one level, so the central epsilon is the largest over the levels"
    )
    repeats = sorted({1, run.num_repeats}, reverse=True)
    locals_ = [
        _local(run, local, count, unit) for count in repeats for unit in (True, False)
    ]
    if run.num_reports < 2:
        return locals_, accounting + ". A single report is not amplified."
    best, how = _amplified(run, delta)
    accounting += (
        f"{how} What all reports of a user cost, and all repeats, is composed from "
        "bounds of delta at every epsilon, as privacy loss distributions."
    )
    central = [
        _central(run, delta, best, count, unit)
        for count in repeats
        for unit in (True, False)
        if run.cohort_size > 1 or not unit
    ]
    compared, missing = _other_bounds(run, delta, best)
    if run.cohort_size > 1:
        central[1:1] = _central_of_an_emptied_client(run, delta, central[0])
    return [*central, *locals_, *compared], accounting + missing


def _has_blanket(run: LdpTrieHHRun) -> bool:
    """Returns whether the bound made for Subset Selection can be computed."""
    return run.randomizer is None and len(run.domain_sizes) > 0


def _amplified(run: LdpTrieHHRun, delta: float) -> tuple[Guarantee, str]:
    """Returns the best guarantee of an item in the sums of one repeat, and why."""
    if _has_blanket(run):
        best, level = shuffling.amplify_over_levels(
            run.local_epsilon,
            run.domain_sizes,
            num_reports=run.num_reports,
            delta=delta,
        )
        how = (
            f", each computed with its own domain size. The worst is level {level} of "
            f"{len(run.domain_sizes)}, with s = {run.domain_sizes[level - 1]}. A "
            "level's domain is a result of earlier levels, which other users took part "
            "in: it does not depend on the user's own items. Before the run it was not "
            "known, and larger epsilons possible."
        )
    else:
        best = shuffling.amplify_in_any_level(
            run.local_epsilon, num_reports=run.num_reports, delta=delta
        )
        how = (
            ", which is the same for all: the bound is one that holds for every local "
            "randomizer and domain."
        )
    return best, how


def _other_bounds(
    run: LdpTrieHHRun, delta: float, best: Guarantee
) -> tuple[list[Guarantee], str]:
    """Returns the bounds that Subset Selection's is compared with, and what is not."""
    if run.randomizer is not None:
        return [], ""
    found, missing = [], ""
    for stronger, name in ((False, _CLONES_2021), (True, _CLONES_2022)):
        pair = clones.ClonePair(run.local_epsilon, run.num_reports, stronger=stronger)
        epsilon = min(pair.epsilon(delta), run.local_epsilon)
        if name != best.bound:
            found.append((name, epsilon, not stronger))
    try:
        printed = closed_forms.amplified_epsilon(
            run.local_epsilon, run.num_reports, delta
        )
        found.append((_THEOREM_2, printed, False))
    except ValueError as error:
        missing = f" Theorem 2 of Sun et al. 2024 does not apply: {error}."
    compared = [
        dataclasses.replace(
            best,
            epsilon=epsilon,
            bound=name,
            is_upper_bound=proved,
            of_one_repeat=run.num_repeats > 1,
            is_comparison=True,
        )
        for name, epsilon, proved in found
    ]
    return compared, missing


def _central_of_an_emptied_client(
    run: LdpTrieHHRun, delta: float, replaced: Guarantee
) -> list[Guarantee]:
    """Returns the guarantee of an emptied client if it is below that of any change."""
    if not _has_blanket(run):
        return []
    epsilon = emptied_client.epsilon(
        run.local_epsilon,
        run.domain_sizes,
        cohort_size=run.cohort_size,
        contribution_bound=run.contribution_bound,
        num_repeats=run.num_repeats,
        delta=delta,
    )
    if epsilon >= replaced.epsilon:
        return []
    return [
        dataclasses.replace(
            replaced,
            epsilon=epsilon,
            bound="emptied client, docs/ldp_triehh_privacy.md Theorem 1",
            adjacency=Adjacency.EMPTIED,
            assumptions=(
                *replaced.assumptions,
                "the items that a client reports on in a level are distinct, as both "
                "samplers choose them",
            ),
        )
    ]


def _of(
    run: LdpTrieHHRun, guarantee: Guarantee, epsilon: float, how: str, repeats: int
) -> Guarantee:
    """Returns a report's guarantee as one of more reports of an item or a user."""
    together = (f"For all {repeats} repeats together.",) if repeats > 1 else ()
    return dataclasses.replace(
        guarantee,
        epsilon=epsilon,
        bound=f"{guarantee.bound}{how}",
        assumptions=(*together, *guarantee.assumptions),
        of_one_repeat=repeats < run.num_repeats,
    )


def _local(
    run: LdpTrieHHRun, local: Guarantee, repeats: int, is_of_user: bool
) -> Guarantee:
    """Returns what the reports cost as sent: of an item, or of all of a user."""
    count = repeats * (run.contribution_bound if is_of_user else 1)
    how = ""
    if is_of_user:
        local = dataclasses.replace(local, adjacency=Adjacency.REPLACE_CLIENT)
        how = f"; basic composition over {count} reports of a user"
    elif repeats > 1:
        how = f"; basic composition over {repeats} repeats"
    return _of(run, local, count * local.epsilon, how, repeats)


def _central(
    run: LdpTrieHHRun, delta: float, best: Guarantee, repeats: int, is_of_user: bool
) -> Guarantee:
    """Returns what the reports cost as sums, at the delta that was asked for."""
    if is_of_user:
        count = repeats * run.contribution_bound
        how = (
            f"; composed over {count} reports of a user, each among the "
            f"{run.cohort_size} of its place"
        )
        epsilon = _composed(run, run.cohort_size, count, delta)
        best = dataclasses.replace(best, adjacency=Adjacency.REPLACE_CLIENT)
    elif repeats > 1:
        how = f"; composed over {repeats} repeats"
        epsilon = _composed(run, run.num_reports, repeats, delta)
    else:
        how, epsilon = "", best.epsilon
    return _of(run, best, epsilon, how, repeats)


def _composed(run: LdpTrieHHRun, num_reports: int, count: int, delta: float) -> float:
    """Composes exchanges of one report among some, at any level.

    At every epsilon the worst level counts, as a user may be in any, and in another
    one of each repeat.
    """
    alone = loss_composition.of_guarantee(run.local_epsilon, 0.0)
    pair = clones.ClonePair(run.local_epsilon, num_reports, stronger=False)
    levels = []
    if _has_blanket(run):
        levels = [
            blanket.subset_selection(run.local_epsilon, size, num_reports)
            for size in sorted(set(run.domain_sizes))
        ]

    def delta_at(epsilon: float) -> float:
        worst = max((level.delta(epsilon) for level in levels), default=1.0)
        return min(alone.delta_at(epsilon), pair.delta(epsilon), worst)

    mechanisms = loss_composition.Mechanisms(delta_at, run.local_epsilon, count)
    composed = loss_composition.composed_epsilon([mechanisms], delta)
    return min(composed, count * run.local_epsilon)
