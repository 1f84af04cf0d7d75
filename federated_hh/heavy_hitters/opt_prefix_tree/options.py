"""The options of an OptPrefixTree run."""

import dataclasses

from federated_hh.options.fields import check, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptPrefixTreeOptions:
    """Options of OptPrefixTree; each is a flag.

    Raises:
        OptionError: If one is not allowed.
    """

    epsilon: float = option(
        8.0,
        "Local epsilon of a report; 'inf' for true items without local privacy.",
        above=0,
        most=40,
        or_infinite=True,
        why="coins of 64 bits",
    )
    randomizer: str = option(
        "subset_selection",
        "The local randomizer: subset_selection, k_ary, asymmetric_one_hot, "
        "symmetric_one_hot, or a class of your own as module:Class.",
    )
    report_sampling: str = option(
        "aggregate",
        "'aggregate' draws the sum of a round's reports at once, exactly in law; "
        "'per_report' draws every report as a device would.",
        choices=("aggregate", "per_report"),
    )
    selection: str = option(
        "uniform",
        "A client's choice among its words that may still grow the tree: one of its "
        "distinct words, each as likely; 'by_frequency', by how often it has them; or "
        "its 'most_frequent' one.",
        choices=("uniform", "by_frequency", "most_frequent"),
    )
    cohort_size: int | None = option(
        None,
        "Clients of a round; no client takes part twice. By default the population is "
        "dealt out to all rounds.",
        least=1,
        most=2**31 - 1,
    )
    num_rounds: int = option(8, "The most rounds of a pass.", least=1, most=100)
    num_passes: int = option(
        1,
        "Passes; in each, clients leave out the words that earlier ones found (a deny "
        "list between runs).",
        least=1,
        most=100,
    )
    max_depth: int = option(
        10, "Characters of the longest word that can be found.", least=1, most=100
    )
    max_candidates: int = option(
        1_000_000,
        "The most candidates of a round, 'none of them' not counted. A round extends "
        "its prefixes by as many characters as this allows.",
        least=2,
        most=100_000_000,
    )
    false_share: float = option(
        0.1,
        "A round keeps as many candidates as it can with at most this share of them "
        "expected to be noise.",
        above=0,
        below=1,
    )

    def __post_init__(self):
        check(self)
