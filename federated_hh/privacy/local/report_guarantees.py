"""The guarantees of summed local reports: of each report, an item and a client.

For an item the n = N B reports of a round are one group to hide in. For a client, which
makes B of them, take the first reports of all N clients of the round, the second ones,
and so on: B groups of N reports with one of the client's in each. The totals of the
round are the sums of the groups' totals, so an observer of them sees no more than an
observer of the B groups. These are B mechanisms for the exchange of one report in N,
whatever the other clients hold, and the exchange of a client is no worse than their
composition. Repeats are composed in the same way: R mechanisms for an item, R B for a
client. For an emptied client, whose reports all become "no item", `emptied_client`
proves less.
"""

import dataclasses
from collections.abc import Callable, Sequence

from federated_hh.options import checks
from federated_hh.privacy import loss_composition, realised
from federated_hh.privacy.guarantee import EACH_REPORT, Adjacency, Guarantee
from federated_hh.privacy.local import emptied_client
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import blanket, clones, closed_forms

# More would compose more mechanisms than anybody repeats an experiment.
LARGEST_REPEATS = 1_000

_CLONES_2021 = shuffling.Method.CLONES_2021.value
_CLONES_2022 = (
    "stronger clones, Feldman et al. 2022 Theorem 3.2, exact sum (by its erratum not "
    "proved for Subset Selection)"
)
_THEOREM_2 = (
    "closed form, Sun et al. 2024 Theorem 2 (equation (1) of McMillan et al. 2022; "
    "rests on the same theorem of 2022)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportRounds:
    """Rounds of local reports, as their guarantees depend on them.

    Attributes:
        local_epsilon: Epsilon of a report, for the exchange of its item; above 0,
            infinity for none.
        cohort_size: Clients of a round (N), at least 1.
        contribution_bound: Reports of a client (B), at least 1.
        domain_sizes: Candidates of each round of each repeat, in order, and one more
            for "no item". Empty before a run: the guarantees hold for any sizes.
        num_repeats: Repeats with the same clients, each with new cohorts; 1 to 1,000.
        randomizer: The local randomizer's name; None for Subset Selection as in Sun et
            al. 2024, Algorithm 1. For any other only bounds are stated that hold for
            every randomizer of the local epsilon.
    """

    local_epsilon: float
    cohort_size: int
    contribution_bound: int = 1
    domain_sizes: Sequence[int] = ()
    num_repeats: int = 1
    randomizer: str | None = None

    def __post_init__(self):
        checks.integer(num_repeats=self.num_repeats, least=1, most=LARGEST_REPEATS)
        epsilon, sizes = self.local_epsilon, self.domain_sizes
        checks.holds(epsilon > 0, "above 0", local_epsilon=epsilon)
        checks.integer(cohort_size=self.cohort_size, least=1)
        checks.integer(contribution_bound=self.contribution_bound, least=1)
        are_sizes = min(sizes, default=2) >= 2
        checks.holds(are_sizes, "sizes of at least 2", domain_sizes=list(sizes))

    @property
    def num_reports(self) -> int:
        """The reports of a round, N B."""
        return self.cohort_size * self.contribution_bound

    @property
    def has_blanket(self) -> bool:
        """Whether the bound made for Subset Selection can be computed."""
        return self.randomizer is None and len(self.domain_sizes) > 0

    def check_record(self, rounds: realised.RealisedRounds) -> None:
        """Checks that a record has these rounds.

        Raises:
            ValueError: It has another number of rounds or clients, or a cohort twice.
        """
        levels, repeats = len(rounds.rounds), rounds.num_repeats
        if (levels, repeats) != (len(self.domain_sizes), self.num_repeats):
            raise ValueError(
                f"rounds has {levels} levels of {repeats} repeats; the run has "
                f"{len(self.domain_sizes)} of {self.num_repeats}"
            )
        for found in rounds.rounds:
            if found.clients != self.cohort_size:
                raise ValueError(
                    f"rounds has {found.clients} clients in level {found.number} of "
                    f"repeat {found.repeat}; cohort_size is {self.cohort_size}"
                )
        if len({(found.repeat, found.cohort) for found in rounds.rounds}) < levels:
            raise ValueError("rounds has a duplicate cohort; cohorts have to differ")

    def check_realised(
        self, done: realised.Realised | None, num_rounds: int | None = None
    ) -> None:
        """Checks that a statement's realised rounds are these.

        Args:
            done: The realised rounds; None if nothing was run.
            num_rounds: Rounds of all repeats; by default one for each domain size.

        Raises:
            ValueError: It has another number of rounds or clients.
        """
        rounds = len(self.domain_sizes) if num_rounds is None else num_rounds
        if done and (done.rounds, done.clients) != (rounds, rounds * self.cohort_size):
            raise ValueError(
                f"{done.rounds} rounds asked {done.clients} clients; the parameters "
                f"have {rounds} of {self.cohort_size}"
            )


def guarantees(run: ReportRounds, delta: float) -> tuple[list[Guarantee], str]:
    """Computes the guarantees of rounds of reports.

    Args:
        run: The rounds, of a finite local epsilon.
        delta: Delta of the central guarantees.

    Returns:
        (guarantees, accounting): those of all repeats first, a client's before an
        item's; and the text about their computation.
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
        assumptions=(EACH_REPORT,),
    )
    accounting = (
        f"A level has n = N B = {run.num_reports} reports. An item is reported on in "
        "one level, so the central epsilon is the largest over the levels"
    )
    cases = [
        (count, of_client)
        for count in sorted({1, run.num_repeats}, reverse=True)
        for of_client in (True, False)
    ]
    locals_ = [
        _of(run, local, "basic composition", lambda n, _: n * local.epsilon, *case)
        for case in cases
    ]
    if run.num_reports < 2:
        return locals_, accounting + ". A single report is not amplified."
    best, how = _amplified(run, delta)
    accounting += (
        f"{how} The cost of a client's reports, and of all repeats, is composed from "
        "bounds of delta at every epsilon, as privacy loss distributions."
    )

    def composed(count: int, of_client: bool) -> float:
        group = run.cohort_size if of_client else run.num_reports
        is_one = count == 1 and not of_client
        return best.epsilon if is_one else _composed(run, group, count, delta)

    central = [
        _of(run, best, "composed", composed, repeats, of_client)
        for repeats, of_client in cases
        if run.cohort_size > 1 or not of_client
    ]
    compared, missing = _other_bounds(run, delta, best)
    if run.cohort_size > 1:
        central[1:1] = _central_of_an_emptied_client(run, delta, central[0])
    return [*central, *locals_, *compared], accounting + missing


def of_an_item(run: ReportRounds, delta: float) -> float:
    """Computes the central epsilon of an item over all repeats, as `guarantees` does.

    Args:
        run: The rounds, of a finite local epsilon and at least 2 reports.
        delta: Wanted delta.
    """
    if run.num_repeats > 1:
        return _composed(run, run.num_reports, run.num_repeats, delta)
    return _amplified(run, delta)[0].epsilon


def _amplified(run: ReportRounds, delta: float) -> tuple[Guarantee, str]:
    """Returns the best guarantee of an item in the sums of one repeat, and why."""
    if not run.has_blanket:
        best = shuffling.amplify_in_any_level(
            run.local_epsilon, num_reports=run.num_reports, delta=delta
        )
        return best, (
            ", which is the same for all: the bound is one that holds for every local "
            "randomizer and domain."
        )
    best, level = shuffling.amplify_over_levels(
        run.local_epsilon, run.domain_sizes, num_reports=run.num_reports, delta=delta
    )
    return best, (
        f", each computed with its own domain size. The worst is level {level} of "
        f"{len(run.domain_sizes)}, with s = {run.domain_sizes[level - 1]}. A "
        "level's domain results from earlier levels, in which other clients took part: "
        "it does not depend on the client's own items. Before the run it was not "
        "known, and larger epsilons were possible."
    )


def _other_bounds(
    run: ReportRounds, delta: float, best: Guarantee
) -> tuple[list[Guarantee], str]:
    """Returns the bounds to compare Subset Selection's with, and missing ones."""
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
    run: ReportRounds, delta: float, replaced: Guarantee
) -> list[Guarantee]:
    """Returns the guarantee of an emptied client if it is below that of any change."""
    if not run.has_blanket:
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
    distinct = (
        "the items that a client reports on in a level are distinct, as both samplers "
        "choose them"
    )
    return [
        dataclasses.replace(
            replaced,
            epsilon=epsilon,
            bound="emptied client, docs/ldp_triehh_privacy.md Theorem 1",
            adjacency=Adjacency.EMPTIED,
            assumptions=(*replaced.assumptions, distinct),
        )
    ]


def _of(
    run: ReportRounds,
    one: Guarantee,
    how: str,
    cost: Callable[[int, bool], float],
    repeats: int,
    of_client: bool,
) -> Guarantee:
    """Returns a report's guarantee as that of all reports of an item or a client."""
    count, bound = repeats, one.bound
    if of_client:
        count *= run.contribution_bound
        bound += f"; {how} over {count} reports of a client"
        if how == "composed":
            bound += f", each among the {run.cohort_size} at its position"
    elif repeats > 1:
        bound += f"; {how} over {repeats} repeats"
    together = (f"For all {repeats} repeats together.",) if repeats > 1 else ()
    return dataclasses.replace(
        one,
        epsilon=cost(count, of_client),
        bound=bound,
        adjacency=Adjacency.REPLACE_CLIENT if of_client else one.adjacency,
        assumptions=(*together, *one.assumptions),
        of_one_repeat=repeats < run.num_repeats,
    )


def _composed(run: ReportRounds, num_reports: int, count: int, delta: float) -> float:
    """Composes exchanges of one report among some, at any level.

    At every epsilon the worst level counts: a client may be in any, and in another one
    in each repeat.
    """
    alone = loss_composition.of_guarantee(run.local_epsilon, 0.0)
    pair = clones.ClonePair(run.local_epsilon, num_reports, stronger=False)
    levels = None
    if run.has_blanket:
        sizes = frozenset(run.domain_sizes)
        levels = blanket.worst_size(run.local_epsilon, sizes, num_reports)

    def delta_at(epsilon: float) -> float:
        worst = 1.0 if levels is None else levels.delta(epsilon)
        return min(alone.delta_at(epsilon), pair.delta(epsilon), worst)

    mechanisms = loss_composition.Mechanisms(delta_at, run.local_epsilon, count)
    composed = loss_composition.composed_epsilon([mechanisms], delta)
    return min(composed, count * run.local_epsilon)
