"""Reports that are private before they leave a client, as a plan's contributions.

Every client of a cohort sends reports of a local randomizer; their sum is released
unchanged. `federated_hh.privacy.local.plan` has the theorem for both kinds.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.randomness import identities, streams

# Facts of a round.
CANDIDATES = "candidates"
REPORTS = "reports"
_SUBSET_SELECTION = shuffling.Randomizer.SUBSET_SELECTION.value
_IDENTITY = (
    "randomizer epsilon replacement_epsilon name bound sampler draws_sum aggregation "
    "max_depth num_passes max_prefixes population_has_empty_users algorithm"
)


class Known(Protocol):
    """Guarantee of a local randomizer."""

    @property
    def replacement_epsilon(self) -> float:
        """The epsilon of a report, for the exchange of its item."""

    @property
    def amplification(self) -> str:
        """A value of `shuffling.Randomizer`."""


class SumOfReports(Protocol):
    """A local randomizer whose reports are summed."""

    @property
    def guarantee(self) -> Known:
        """The guarantee of a report."""

    @property
    def bits_per_report(self) -> int:
        """The bits of one report on the wire."""

    def sum_of_reports(
        self, histogram: np.ndarray, seed: np.random.SeedSequence
    ) -> np.ndarray:
        """Draws the sum of independent reports.

        Args:
            histogram: Reports of each true item, int64 [domain_size]; "no item" last.
            seed: Seed of all draws.

        Returns:
            Reports that speak for each item, int64 [domain_size].
        """


@identities.identity("federated_hh.privacy.local.LocalReports")
@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalReports(plan_lib.Contribution):
    """Reports of a local randomizer; `OneReport` and `LdpTrieHHReports` are its kinds.

    Attributes:
        randomizer: Class, or callable dataclass of plain values, that makes a round's
            randomizer from epsilon and its domain size, "no item" included.
        epsilon: Argument of `randomizer`, above 0; infinity for true items.
        replacement_epsilon: Epsilon of a report, for the exchange of its item.
        name: The randomizer's name in statements; None for Subset Selection as in Sun
            et al. 2024, Algorithm 1, for which more is proved than for others.
        bound: Reports of a client (B), at least 1.
        draws_sum: Whether the sum of reports is drawn from the sum of true items
            instead of report by report.
        max_candidates: Largest number of items of a round; None for no limit.
        population_has_empty_users: Whether clients without an item are in the
            population.
        algorithm: The algorithm's name in statements.
    """

    randomizer: Callable[[float, int], SumOfReports]
    epsilon: float
    replacement_epsilon: float
    name: str | None
    bound: int = 1
    draws_sum: bool = True
    max_candidates: int | None = None
    population_has_empty_users: bool = False
    algorithm: str = "LDP TrieHH"

    @property
    def local_epsilon(self) -> float:
        """The epsilon of the B reports together."""
        return self.bound * self.replacement_epsilon

    def __post_init__(self):
        checks.integer(bound=self.bound, least=1)
        for name in ("epsilon", "replacement_epsilon"):
            value = getattr(self, name)
            checks.holds(value > 0, "above 0", **{name: value})
        if math.isinf(self.epsilon) != math.isinf(self.replacement_epsilon):
            raise ValueError(
                f"replacement_epsilon is {self.replacement_epsilon}, and epsilon "
                f"{self.epsilon}; both are infinite, or neither is"
            )

    def made(self, candidates: int) -> SumOfReports | None:
        """Makes the randomizer of a round.

        Args:
            candidates: Items of the round, "no item" not counted.

        Returns:
            The randomizer; None if clients send true items.

        Raises:
            ValueError: Its epsilon is above the plan's, or its name is not the plan's.
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
        """Returns the votes of a round's reports.

        Args:
            total: Sum of reports, or of true items with `draws_sum`; int64
                [candidates].
            facts: Facts of the round: `CANDIDATES` and `REPORTS`.
            stream: Stream of the round.

        Returns:
            Votes, int64 [candidates].

        Raises:
            ValueError: The sum has another number of candidates, or more items than
                reports.
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


@identities.identity("LocalReports", _IDENTITY, without="num_rounds max_candidates")
@dataclasses.dataclass(frozen=True, kw_only=True)
class OneReport(LocalReports):
    """One report of a client's one item, in one of the rounds.

    Attributes:
        num_rounds: Largest number of rounds of a repeat.
        max_candidates: Largest number of items of a round, "no item" not counted.
    """

    num_rounds: int
    max_candidates: int

    # Identities and statements name them for every plan of local reports.
    sampler: ClassVar[str] = "greedy"
    aggregation: ClassVar[str] = "secure_sum"
    num_passes: ClassVar[int] = 1
    rounds_limit: ClassVar[str] = "num_rounds"

    @property
    def max_depth(self) -> int:
        """The rounds of a repeat."""
        return self.num_rounds

    @property
    def max_prefixes(self) -> int:
        """The items of a round."""
        return self.max_candidates

    def __post_init__(self):
        super().__post_init__()
        checks.integer(
            least=1, num_rounds=self.num_rounds, max_candidates=self.max_candidates
        )


@identities.identity("LocalReports", _IDENTITY, without="max_candidates")
@dataclasses.dataclass(frozen=True, kw_only=True)
class LdpTrieHHReports(LocalReports):
    """B reports of a client in one level of one pass of LDP TrieHH.

    Attributes:
        sampler: Choice of the reported items of a client that has more: "greedy" or
            "random".
        aggregation: Protection of reports from the server: "secure_sum" or
            "ephemeral".
        max_depth: Levels of a pass (D).
        num_passes: Positive.
        max_prefixes: Prefixes that a level keeps (eta_max).
    """

    sampler: str
    aggregation: str
    max_depth: int
    num_passes: int
    max_prefixes: int

    rounds_limit: ClassVar[str] = "max_depth times num_passes"

    @property
    def num_rounds(self) -> int:
        """The largest number of levels of all passes."""
        return self.max_depth * self.num_passes

    def __post_init__(self):
        super().__post_init__()
        for name in ("max_depth", "num_passes", "max_prefixes"):
            checks.integer(least=1, **{name: getattr(self, name)})
        checks.one_of(("secure_sum", "ephemeral"), aggregation=self.aggregation)
