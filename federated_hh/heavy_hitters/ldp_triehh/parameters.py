"""The parameters of LDP TrieHH, from which the process and detection read."""

import dataclasses
import enum
import math
from collections.abc import Callable

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions
from federated_hh.privacy.local import (
    ldp_triehh_detection,
    ldp_triehh_settings,
    vote_law,
)
from federated_hh.randomizers import arguments, local_randomizer, subset_selection

_MAX_INT32 = 2**31 - 1
# The largest bound of TFF's secure sums.
_MAX_SUM = 2**62 - 1


class ReportSampling(enum.Enum):
    """Ways to draw the sum of a level's reports; its law is the same."""

    # Every report is drawn by the client computation, as a device would.
    PER_REPORT = "per_report"
    # The client computation gives the true items, and their reports' sum is drawn at
    # once: `LocalRandomizer.sum_of_reports`.
    AGGREGATE = "aggregate"


class Aggregation(enum.Enum):
    """Ways to keep votes from the server (Sun et al. 2024, Section 3)."""

    SECURE_SUM = "secure_sum"
    # Votes arrive one by one, and only their sum is stored.
    EPHEMERAL = "ephemeral"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LdpTrieHHParameters(ldp_triehh_settings.LdpTrieHHSettings):
    """The settings of an LDP TrieHH run, with its sampler and randomizer.

    Attributes:
        epsilon: Epsilon of a report, in (0, 40]; infinity for no local privacy.
        sampler: Choice of the reported items of a client that has more than B.
        make_randomizer: Class, or callable dataclass of plain values, that makes a
            local randomizer from epsilon and its domain size.
    """

    epsilon: float
    sampler: contributions.ItemSampler = contributions.ItemSampler.GREEDY
    make_randomizer: Callable[[float, int], local_randomizer.LocalRandomizer] = (
        subset_selection.SubsetSelection
    )

    def __post_init__(self):
        super().__post_init__()
        if self.epsilon != math.inf:
            arguments.check_epsilon(self.epsilon)

    @property
    def is_subset_selection(self) -> bool:
        """Whether reports are exactly those that Algorithm 1 makes."""
        return self.make_randomizer is subset_selection.SubsetSelection

    def check_sizes(
        self,
        num_clients: int,
        alphabet: alphabet_lib.Alphabet,
        block_size: int,
        report_sampling: ReportSampling,
    ) -> None:
        """Checks that a run fits its population and the integers that it counts in.

        Ties at the eta_max-th vote may still make a level larger than can be known
        before; that is checked level by level.

        Args:
            num_clients: Clients in the population.
            alphabet: The alphabet of the trie.
            block_size: The most clients in a block.
            report_sampling: Way to draw the reports.

        Raises:
            ValueError: If there are too few clients for all levels and passes, if a
                level has more candidates than int32 can number, if epsilon is too
                small for the domain, or if contribution_bound pads a block to more
                reports than int32 or a level to more items than a sum can count.
        """
        self.check_clients(num_clients)
        smallest = alphabet.size * alphabet.num_symbols
        prefixes = max(
            alphabet.size, min(self.max_prefixes, alphabet.size**self.max_depth)
        )
        check_num_candidates(prefixes, prefixes * alphabet.num_symbols)
        items_per_report = 1
        if not math.isinf(self.epsilon):
            self.randomizer(smallest)
            largest = self.randomizer(prefixes * alphabet.num_symbols)
            assert largest is not None
            items_per_report = largest.values_per_report
        items = self.reports_per_level * items_per_report
        if items > _MAX_SUM:
            raise ValueError(
                f"contribution_bound is {self.contribution_bound:,}: {items:,} items "
                f"in a level's {self.reports_per_level:,} reports, padding included, "
                f"are more than a sum can count, {_MAX_SUM:,}. Lower it or the cohort "
                "size"
            )
        padded = block_size * self.contribution_bound
        if report_sampling is ReportSampling.PER_REPORT and padded > _MAX_INT32:
            raise ValueError(
                f"contribution_bound is {self.contribution_bound:,}: a block of "
                f"{block_size:,} clients is padded to {padded:,} reports, and at most "
                f"{_MAX_INT32:,} are possible; use more blocks"
            )

    def randomizer(
        self, num_candidates: int
    ) -> local_randomizer.LocalRandomizer | None:
        """Returns the randomizer of a level, "no item" the last of its items.

        Args:
            num_candidates: The candidates of the level, at least 1.

        Returns:
            None where epsilon is infinite.

        Raises:
            PopulationError: If it will not fit into memory.
            ValueError: If its probabilities contradict its epsilon.
        """
        if math.isinf(self.epsilon):
            return None
        arguments.check_memory(
            self.make_randomizer,
            self.epsilon,
            num_candidates + 1,
            self.reports_per_level,
        )
        randomizer = self.make_randomizer(self.epsilon, num_candidates + 1)
        randomizer.check_claim()
        return randomizer

    def detection(
        self,
        num_clients: int,
        alphabet: alphabet_lib.Alphabet,
        reported_share: float = 1.0,
        competing: int = 0,
    ) -> ldp_triehh_detection.LdpTrieHHDetection:
        """Returns the law by which a run finds words.

        Args:
            num_clients: The number of clients of the population.
            alphabet: The alphabet of the trie.
            reported_share: See `LdpTrieHHDetection`.
            competing: See `LdpTrieHHDetection`.
        """
        return ldp_triehh_detection.LdpTrieHHDetection(
            settings=self,
            num_clients=num_clients,
            num_characters=alphabet.size,
            probabilities=self.probabilities,
            reported_share=reported_share,
            competing=competing,
        )

    def probabilities(self, domain_size: int) -> tuple[float, float]:
        """Returns the chances that a report speaks for its true item and for another.

        Args:
            domain_size: Candidates of the level, and one for "no item".
        """
        law = self.vote_law(self.randomizer(domain_size - 1))
        return law.own, law.other

    def vote_law(
        self, randomizer: local_randomizer.LocalRandomizer | None
    ) -> vote_law.VoteLaw:
        """Returns the law of a candidate's votes.

        Args:
            randomizer: The randomizer of the level, from `randomizer`.
        """
        own, other = 1.0, 0.0
        if randomizer is not None:
            own = float(randomizer.own_probability)
            other = float(randomizer.other_probability)
        return vote_law.VoteLaw(
            num_reports=self.reports_per_level, own=own, other=other
        )


def check_num_candidates(prefixes: int, candidates: int) -> None:
    """Raises a `ValueError` if a level has more candidates than can be numbered.

    Args:
        prefixes: Prefixes that the candidates extend.
        candidates: The candidates, "no item" not counted.
    """
    most = arguments.MAX_DOMAIN_SIZE - 1
    if candidates > most:
        raise ValueError(
            f"{prefixes:,} prefixes make {candidates:,} candidates for the next "
            f"level, and at most {most:,} are possible; use a smaller max_prefixes or "
            "alphabet, or, if ties at the last place caused this, more clients per "
            "level or a larger epsilon"
        )
