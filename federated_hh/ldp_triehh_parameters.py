"""What a run of LDP TrieHH is asked to do, in one place.

The process, the accounting and the privacy statement all take it from here.
"""

import dataclasses
import enum
import math

from federated_hh import contributions
from federated_hh.randomizers import subset_selection


class ReportSampling(enum.Enum):
    """How the sum of a level's reports comes about; its law is the same."""

    # Every report is drawn by the client computation, as a device would.
    PER_REPORT = "per_report"
    # The client computation gives the true items, and their reports' sum is drawn at
    # once: `LocalRandomizer.sum_of_reports`.
    AGGREGATE = "aggregate"


class Aggregation(enum.Enum):
    """How votes are kept from the server (Sun et al. 2024, Section 3)."""

    SECURE_SUM = "secure_sum"
    # Votes arrive one by one, and only their sum is stored.
    EPHEMERAL = "ephemeral"


@dataclasses.dataclass(frozen=True)
class LdpTrieHHParameters:
    """What a run of LDP TrieHH does, and what its guarantee depends on.

    Attributes:
        clients_per_level: N, at least 1.
        max_depth: D, the levels of a pass and the most characters of a word; at
            least 1.
        max_prefixes: eta_max, the prefixes that a level keeps; at least 1.
        contribution_bound: B, the reports that each client of a cohort sends; at
            least 1.
        epsilon: Of a report, above 0; infinity for no local privacy.
        num_passes: At least 1.
        sampler: Which items a client reports on that has more than B.
    """

    clients_per_level: int
    max_depth: int
    max_prefixes: int
    contribution_bound: int
    epsilon: float
    num_passes: int = 1
    sampler: contributions.ItemSampler = contributions.ItemSampler.GREEDY

    def __post_init__(self):
        for name in (
            "clients_per_level",
            "max_depth",
            "max_prefixes",
            "contribution_bound",
            "num_passes",
        ):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; it has to be at least 1"
                )
        if not self.epsilon > 0:
            raise ValueError(f"epsilon is {self.epsilon}; it has to be above 0")

    @property
    def reports_per_level(self) -> int:
        """The reports of a level, N B."""
        return self.clients_per_level * self.contribution_bound

    @property
    def clients_needed(self) -> int:
        """The clients of a whole run: no one takes part twice."""
        return self.clients_per_level * self.max_depth * self.num_passes

    def randomizer(
        self, num_candidates: int
    ) -> subset_selection.SubsetSelection | None:
        """Returns the randomizer of a level, "no item" the last of its items.

        Args:
            num_candidates: The candidates of the level, at least 1.

        Returns:
            None where epsilon is infinite.
        """
        if math.isinf(self.epsilon):
            return None
        return subset_selection.SubsetSelection(self.epsilon, num_candidates + 1)
