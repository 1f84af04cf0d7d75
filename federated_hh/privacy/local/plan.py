"""Reports that are private before they leave a device, as a plan (LDP TrieHH).

Nobody takes part twice in a repeat; every client of a cohort sends B reports of a local
randomizer; their sum is released as it is.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import statement
from federated_hh.privacy.local import ldp_triehh_statement
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.randomness import identities, streams

# Facts of a round.
CANDIDATES = "candidates"
REPORTS = "reports"
_SUBSET_SELECTION = shuffling.Randomizer.SUBSET_SELECTION.value


class Known(Protocol):
    """What is known of a local randomizer."""

    @property
    def replacement_epsilon(self) -> float:
        """The epsilon of a report, for the exchange of its item."""

    @property
    def amplification(self) -> str:
        """A value of `shuffling.Randomizer`."""


class SumOfReports(Protocol):
    """What a local randomizer has to be able to do, and to say of itself."""

    @property
    def guarantee(self) -> Known:
        """What a report guarantees."""

    def sum_of_reports(
        self, histogram: np.ndarray, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Draws the sum of independent reports.

        Args:
            histogram: int64 [domain_size]: the reports of each true item, "no item"
                the last of them.
            seed: The seed of all that is random.

        Returns:
            int64 [domain_size]: for each item, the reports that speak for it.
        """


@identities.identity(
    "LocalReports",
    "randomizer epsilon replacement_epsilon name bound sampler draws_sum "
    "aggregation max_depth num_passes max_prefixes "
    "population_has_empty_users algorithm",
    without="max_candidates",
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalReports(plan_lib.Contribution):
    """B reports a client, of a local randomizer, in one level of one pass.

    Attributes:
        randomizer: Makes the randomizer of a level from epsilon and the size of its
            domain, "no item" counted. A class, or a dataclass of plain values that
            is called with the two.
        epsilon: What the randomizer is made with, above 0; infinity for true items.
        replacement_epsilon: The replacement epsilon of a report, for the exchange of
            its item.
        name: The randomizer's, in statements; None for Subset Selection as in Sun et
            al. 2024, Algorithm 1, for which more is proved than for others.
        bound: B, the reports of a client; at least 1.
        sampler: Which items a client reports on that has more: "greedy" or "random".
        draws_sum: Whether the sum of reports is drawn from the sum of true items, and
            not every report by itself.
        aggregation: How reports are kept from the server: "secure_sum" or "ephemeral".
        max_depth: D, the levels of a pass.
        num_passes: At least 1.
        max_prefixes: eta_max, the prefixes that a level keeps.
        max_candidates: The most items that a round asks about; None for any number.
        population_has_empty_users: Whether users without an item are in the population.
        algorithm: What the reports are for, in statements.
    """

    randomizer: Callable[[float, int], SumOfReports]
    epsilon: float
    replacement_epsilon: float
    name: str | None
    bound: int
    sampler: str
    draws_sum: bool
    aggregation: str
    max_depth: int
    num_passes: int
    max_prefixes: int
    max_candidates: int | None = None
    population_has_empty_users: bool = False
    algorithm: str = "LDP TrieHH"

    @property
    def local_epsilon(self) -> float:
        """The epsilon of the B reports together."""
        return self.bound * self.replacement_epsilon

    def __post_init__(self):
        for name in ("bound", "max_depth", "num_passes", "max_prefixes"):
            checks.integer(least=1, **{name: getattr(self, name)})
        for name in ("epsilon", "replacement_epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; it has to be above 0"
                )
        if math.isinf(self.epsilon) != math.isinf(self.replacement_epsilon):
            raise ValueError(
                f"replacement_epsilon is {self.replacement_epsilon}, and epsilon "
                f"{self.epsilon}; both are infinite, or neither is"
            )

    def made(self, candidates: int) -> SumOfReports | None:
        """Makes the randomizer of a round.

        Args:
            candidates: The items that the round asks about, "no item" not counted.

        Returns:
            None where clients send true items.

        Raises:
            ValueError: It costs more than the plan says, or is not what it names.
        """
        if math.isinf(self.epsilon):
            return None
        randomizer = self.randomizer(self.epsilon, candidates + 1)
        known = randomizer.guarantee
        if not known.replacement_epsilon <= self.replacement_epsilon:
            raise ValueError(
                f"the randomizer for {candidates:,} candidates has a replacement "
                f"epsilon of {known.replacement_epsilon:g}; the plan has "
                f"{self.replacement_epsilon:g}"
            )
        if self.name is None and known.amplification != _SUBSET_SELECTION:
            raise ValueError(
                f"the randomizer for {candidates:,} candidates is "
                f"{type(randomizer).__name__}, known as {known.amplification}; where "
                "the plan has no name for it, it has to be Subset Selection as in "
                "Algorithm 1"
            )
        return randomizer

    def reported(
        self, total: Any, facts: plan_lib.Facts, stream: streams.Stream
    ) -> np.ndarray:
        """Returns the votes that the reports of a level make.

        Args:
            total: int64 [candidates]: the sum of reports, or of true items where
                `draws_sum`.
            facts: The facts of the round: `CANDIDATES`, and `REPORTS` in all.
            stream: The stream of the round.

        Returns:
            int64 [candidates].

        Raises:
            ValueError: The sum is of another number of candidates, or there are more
                items than reports.
        """
        candidates = int(facts[CANDIDATES])
        if total.shape != (candidates,):
            raise ValueError(
                f"the sum has the shape {total.shape}; it has to be [{candidates}]"
            )
        if not self.draws_sum or (randomizer := self.made(candidates)) is None:
            return total
        no_item = int(facts[REPORTS]) - int(total.sum())
        if no_item < 0:
            raise ValueError(
                f"the sum is of {total.sum():,} items, of more than the "
                f"{facts[REPORTS]:,} reports"
            )
        return randomizer.sum_of_reports(
            np.append(total, no_item), stream.seed_sequence("sum of reports")
        )[:-1]


def one_report(
    randomizer: Callable[[float, int], SumOfReports],
    epsilon: float,
    *,
    replacement_epsilon: float,
    num_items: int,
    num_rounds: int,
    population_has_empty_users: bool,
    algorithm: str,
) -> LocalReports:
    """Returns one report of one item a client.

    Args:
        randomizer: See `LocalReports`.
        epsilon: See `LocalReports`.
        replacement_epsilon: See `LocalReports`.
        num_items: The most items that a round asks about, "no item" not counted.
        num_rounds: The most rounds of a repeat.
        population_has_empty_users: See `LocalReports`.
        algorithm: What the reports are for.
    """
    return LocalReports(
        randomizer=randomizer,
        epsilon=epsilon,
        replacement_epsilon=replacement_epsilon,
        name=identities.label_of(
            randomizer if isinstance(randomizer, type) else type(randomizer)
        ),
        bound=1,
        sampler="greedy",
        draws_sum=True,
        aggregation="secure_sum",
        max_depth=num_rounds,
        num_passes=1,
        max_prefixes=num_items,
        max_candidates=num_items,
        population_has_empty_users=population_has_empty_users,
        algorithm=algorithm,
    )


_Plan: TypeAlias = plan_lib.Plan[Any, LocalReports, plan_lib.NoNoise]


class _Theorem(plan_lib.Theorem):
    """What `ldp_triehh_statement` has, from a plan."""

    def check(self, plan: _Plan) -> None:
        """Raises `ValueError` where a parameter is out of range."""
        _run_of(plan, None, 1)
        reports = plan.contribution
        reports.made(1)
        cohort, clients = plan.sampler.cohort_size, plan.sampler.num_clients
        rounds = reports.max_depth * reports.num_passes
        if cohort * rounds > clients:
            raise ValueError(
                f"cohort_size is {cohort:,}: {rounds} rounds need {cohort * rounds:,} "
                f"clients, as none may take part twice; the population has {clients:,}"
            )

    def check_round(
        self, plan: plan_lib.Plan, number: int, facts: plan_lib.Facts
    ) -> None:
        """Raises `ValueError` where a round asks for other reports than are planned."""
        reports = plan.contribution
        rounds = reports.max_depth * reports.num_passes
        plan_lib.check_number(number, rounds, "max_depth times num_passes")
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
        """Returns the statement; see `ldp_triehh_statement`."""
        return ldp_triehh_statement.ldp_triehh_statement(
            _run_of(plan, record, repeats),
            delta=delta,
            rounds=record.rounds if record else None,
        )


def _run_of(
    plan: _Plan, record: plan_lib.Record | None, repeats: int
) -> ldp_triehh_statement.LdpTrieHHRun:
    """Returns what the accounting takes."""
    reports = plan.contribution
    rounds = record.rounds.rounds if record else ()
    return ldp_triehh_statement.LdpTrieHHRun(
        local_epsilon=reports.replacement_epsilon,
        cohort_size=plan.sampler.cohort_size,
        contribution_bound=reports.bound,
        domain_sizes=[int(found.facts[CANDIDATES]) + 1 for found in rounds],
        max_depth=reports.max_depth,
        num_passes=reports.num_passes,
        max_prefixes=reports.max_prefixes,
        sampler=reports.sampler,
        aggregation=reports.aggregation,
        num_repeats=record.rounds.num_repeats if record else repeats,
        has_empty_users=reports.population_has_empty_users,
        randomizer=reports.name,
        algorithm=reports.algorithm,
    )


plan_lib.register(
    plan_lib.Sampling.DISJOINT, LocalReports, plan_lib.NoNoise, _Theorem()
)
