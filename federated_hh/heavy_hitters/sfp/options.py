"""The options of a Sequence Fragment Puzzle run."""

import dataclasses

from federated_hh.options.fields import OptionError, check, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class SfpOptions:
    """Parameters of Zhu et al. 2020, appendix C; each is a flag.

    Raises:
        OptionError: If one is not allowed.
    """

    epsilon: float = option(
        4.0,
        "Local epsilon of a report.",
        above=0,
        most=40,
        why="coins of 64 bits",
    )
    threshold: int = option(
        20,
        "T: how many fragments with the largest estimates are kept of each position.",
        least=1,
        most=100_000,
    )
    max_length: int = option(
        10,
        "Characters of a word; longer ones are cut off, shorter ones padded with the "
        "end symbol. Even: a fragment has two.",
        least=2,
        most=100,
    )
    num_word_hashes: int = option(
        256,
        "Values of the word hash that fragments of one word have in common.",
        least=1,
        most=2**20,
    )
    num_hashes: int = option(
        2048, "k: hash functions of the sketch.", least=1, most=2**20
    )
    num_cells: int = option(
        1024,
        "m: cells that each of them maps to; a power of two.",
        least=2,
        most=2**20,
    )
    hash_seed: int = option(
        0, "Seed of the public hash functions.", least=0, most=2**63 - 1
    )
    max_words: int = option(
        1_000_000,
        "The most words that fragments are stitched to; where they would be more, none "
        "is made, and the fragments are what is found.",
        least=1,
        most=10**8,
    )
    cohort_size: int | None = option(
        None, "Clients that report; by default all.", least=1, most=2**31 - 1
    )
    report_sampling: str = option(
        "aggregate",
        "'aggregate' draws the sums of the reports from how many clients have each "
        "fragment, exactly in law; 'per_report' draws every report.",
        choices=("aggregate", "per_report"),
    )

    def __post_init__(self):
        check(self)
        if self.max_length % 2:
            raise OptionError(self, "{max_length=}: has to be even")
        if self.num_cells & (self.num_cells - 1):
            raise OptionError(self, "{num_cells=}: has to be a power of two")

    @property
    def num_positions(self) -> int:
        """The number of fragments of a word."""
        return self.max_length // 2
