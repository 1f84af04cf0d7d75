"""What a run of LDP TrieHH is asked to do, in one place.

The process, the accounting and the privacy statement all take it from here.
"""

import dataclasses
import enum
import math
from collections.abc import Callable

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions, found_words
from federated_hh.options import checks
from federated_hh.privacy.local import ldp_triehh_detection, vote_law
from federated_hh.randomizers import arguments, local_randomizer, subset_selection

_MAX_INT32 = 2**31 - 1
# The largest bound of TFF's secure sums.
_MAX_SUM = 2**62 - 1


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
        cohort_size: N, at least 1.
        max_depth: D, the levels of a pass and the most characters of a word; at
            least 1.
        max_prefixes: eta_max, the prefixes that a level keeps; at least 1.
        contribution_bound: B, the reports that each client of a cohort sends; at
            least 1.
        epsilon: The epsilon of a report, in (0, 40]; infinity for no local privacy.
        num_passes: At least 1.
        sampler: Which items a client reports on that has more than B.
        make_randomizer: Makes a local randomizer from epsilon and the size of its
            domain: a class, or a dataclass of plain values that is called.
        min_standard_errors: Words are released, of those found, whose estimate
            is at least so many of its standard errors; 0 for all. It costs no privacy
            and changes nothing in the run, whose later passes know all words found.
    """

    cohort_size: int
    max_depth: int
    max_prefixes: int
    contribution_bound: int
    epsilon: float
    num_passes: int = 1
    sampler: contributions.ItemSampler = contributions.ItemSampler.GREEDY
    make_randomizer: Callable[[float, int], local_randomizer.LocalRandomizer] = (
        subset_selection.SubsetSelection
    )
    min_standard_errors: float = found_words.NOISE_STANDARD_ERRORS

    def __post_init__(self):
        for name in (
            "cohort_size",
            "max_depth",
            "max_prefixes",
            "contribution_bound",
            "num_passes",
        ):
            checks.integer(least=1, **{name: getattr(self, name)})
        checks.not_negative(min_standard_errors=self.min_standard_errors)
        if self.epsilon != math.inf:
            arguments.check_epsilon(self.epsilon)

    @property
    def levels(self) -> int:
        """The most levels of all passes together."""
        return self.max_depth * self.num_passes

    @property
    def is_subset_selection(self) -> bool:
        """Whether reports are exactly those that Algorithm 1 makes."""
        return self.make_randomizer is subset_selection.SubsetSelection

    @property
    def reports_per_level(self) -> int:
        """The reports of a level, N B."""
        return self.cohort_size * self.contribution_bound

    @property
    def clients_needed(self) -> int:
        """The clients of a whole run: no one takes part twice."""
        return self.cohort_size * self.levels

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
            report_sampling: How reports come about.

        Raises:
            ValueError: If there are too few clients for all levels and passes, if a
                level has more candidates than int32 can number, if epsilon is too
                small for the domain, or if contribution_bound pads a block to more
                reports than int32 or a level to more items than a sum can count.
        """
        if self.clients_needed > num_clients:
            raise ValueError(
                f"cohort_size is {self.cohort_size:,}: {self.max_depth} "
                f"levels in {self.num_passes} passes need {self.clients_needed:,} "
                "clients, as none may take part twice; the population has "
                f"{num_clients:,}"
            )
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
                f"in the {self.reports_per_level:,} reports of a level, padding "
                f"included, are more than a sum can count, {_MAX_SUM:,}"
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
        """
        if math.isinf(self.epsilon):
            return None
        return self.make_randomizer(self.epsilon, num_candidates + 1)

    def detection(
        self,
        num_clients: int,
        alphabet: alphabet_lib.Alphabet,
        reported_share: float = 1.0,
        competing: int = 0,
    ) -> ldp_triehh_detection.LdpTrieHHDetection:
        """Returns which words a run can find.

        Args:
            num_clients: The number of clients of the population.
            alphabet: The alphabet of the trie.
            reported_share: See `LdpTrieHHDetection`.
            competing: See `LdpTrieHHDetection`.
        """

        def probabilities(domain_size: int) -> tuple[float, float]:
            law = self.vote_law(self.randomizer(domain_size - 1))
            return law.own, law.other

        return ldp_triehh_detection.LdpTrieHHDetection(
            num_clients=num_clients,
            cohort_size=self.cohort_size,
            contribution_bound=self.contribution_bound,
            max_depth=self.max_depth,
            max_prefixes=self.max_prefixes,
            num_characters=alphabet.size,
            probabilities=probabilities,
            num_passes=self.num_passes,
            min_standard_errors=self.min_standard_errors,
            reported_share=reported_share,
            competing=competing,
        )

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
        prefixes: That the candidates extend.
        candidates: The candidates, "no item" not counted.
    """
    most = arguments.MAX_DOMAIN_SIZE - 1
    if candidates > most:
        raise ValueError(
            f"{prefixes:,} prefixes make {candidates:,} candidates for the next "
            f"level, and at most {most:,} are possible; use a smaller max_prefixes or "
            "alphabet, or, where ties at the last place made them many, more clients "
            "per level or a larger epsilon"
        )
