"""What the command line of the accounting takes: each option once, with its range."""

import dataclasses
from typing import Any

from federated_hh.options.fields import check, option

# The values of `shuffling.Randomizer`, which takes a while to import.
RANDOMIZERS = (
    "arbitrary",
    "asymmetric_one_hot",
    "symmetric_one_hot",
    "k_ary",
    "subset_selection",
)
TRIEHH_PARAMETERS = ("tight", "corollary1")
TABLES = ("xu_2023",)

_ROUNDS: dict[str, Any] = {"most": 10**9, "why": "no training has as many rounds"}
_CLIENTS: dict[str, Any] = {"most": 10**12, "why": "100 for each human"}
_INDICES: dict[str, Any] = {
    "most": 2**31 - 1,
    "why": "candidates are numbered with 31 bits",
}
_PROBABILITY: dict[str, Any] = {"why": "it is a probability"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccountingOptions:
    """All of the answers' options; None tells one that is not given.

    Which of them a mechanism takes, and which it needs, its answer's signature says.
    """

    noise_multiplier: float | None = option(
        None,
        "z, the noise's deviation over the clip.",
        least=1e-3,
        most=1e9,
        why="below, rho is above 500,000: no guarantee; above, it is as good as "
        "perfect",
    )
    num_rounds: int | None = option(None, "T, rounds of training.", least=1, **_ROUNDS)
    max_participation: int | None = option(
        None,
        "MaxP, rounds a device takes part in at most; what MinS allows if not set.",
        least=1,
        **_ROUNDS,
    )
    min_separation: int | None = option(
        None, "MinS, rounds strictly between two of a device.", least=0, **_ROUNDS
    )
    restart_first: int | None = option(
        None, "First round after which the noise starts anew.", least=1, **_ROUNDS
    )
    restart_period: int | None = option(
        None, "Rounds between restarts.", least=1, **_ROUNDS
    )
    buffers: int | None = option(
        None,
        "d, vectors that BLT remembers; 2 if not set.",
        least=1,
        most=4,
        why="a fifth is of no use",
    )
    forgotten: str | None = option(
        None, "With a given BLT: what each buffer loses a round, with commas."
    )
    weights: str | None = option(
        None, "With a given BLT: the weight of each buffer, with commas."
    )
    table: str | None = option(
        None, "Compare tree and BLT for all runs of a paper.", choices=TABLES
    )
    count_stddev: float | None = option(
        None,
        "sigma_b, noise on the count of unclipped devices, if any.",
        above=0,
        most=1e12,
        why="beyond it the count is of no use, and costs nothing",
    )
    group_size: int | None = option(
        None,
        "Devices of a user, for a user's guarantee.",
        least=1,
        most=10**6,
        why="nobody has more",
    )
    delta: float | None = option(
        None, "Delta of the guarantee.", above=0, below=1, **_PROBABILITY
    )
    epsilon: float | None = option(
        None,
        "Wanted central epsilon.",
        above=0,
        most=1e3,
        why="more would guarantee nothing",
    )
    randomizer: str | None = option(
        None, "Local randomizer of a report.", choices=RANDOMIZERS
    )
    local_epsilon: float | None = option(
        None,
        "Local epsilon of a report (of symmetric_one_hot: for deletion).",
        above=0,
        most=100,
        why="a report tells all long before",
    )
    num_reports: int | None = option(
        None,
        "Reports that are shuffled or summed.",
        least=1,
        most=10**12,
        why="100 for each human; beyond it binomial laws lose their digits and need "
        "more memory than there is",
    )
    domain_size: int | None = option(
        None,
        "Items of a report, the 'no item' symbol included.",
        least=1,
        most=2**31 - 1,
        why="items are numbered with 31 bits",
    )
    honest_fraction: float | None = option(
        None, "Share of honest reports; 1 if not set.", above=0, most=1
    )
    population: int | None = option(
        None, "n, users of a TrieHH or LDP TrieHH run.", least=1, **_CLIENTS
    )
    max_length: int | None = option(
        None,
        "L, symbols of the longest word, its end included.",
        least=1,
        most=10**6,
        why="no word has as many",
    )
    threshold: int | None = option(
        None, "theta, for the guarantee of given parameters.", least=1, **_CLIENTS
    )
    cohort_size: int | None = option(
        None,
        "m, for the guarantee of given parameters; --epsilon finds it if not set.",
        least=1,
        **_CLIENTS,
    )
    parameters: str | None = option(
        None,
        "How threshold and cohort size are found for --epsilon: those that find the "
        "rarest words (tight, if not set), or those of Zhu et al. 2020 (corollary1).",
        choices=TRIEHH_PARAMETERS,
    )
    discovery_rate: float | None = option(
        None,
        "How surely a word is to be found; 0.9 if not set.",
        above=0,
        most=0.999999,
        why="1 word in a million is missed at it, and the search would take long "
        "beyond",
    )
    redraws_each_round: bool | None = option(
        None, "Whether users draw a new word in every round."
    )
    alphabet_size: int | None = option(
        None,
        "|X|, symbols of LDP TrieHH.",
        least=1,
        most=2**21,
        why="Unicode has fewer characters",
    )
    kept_prefixes: int | None = option(
        None, "eta_max, prefixes that a level keeps.", least=1, **_INDICES
    )
    detectable: bool | None = option(
        None, "Print how frequent a word has to be for TrieHH or LDP TrieHH to find it."
    )
    plot: str | None = option(
        None, "With --detectable: write a plot over n to this file (.png, .pdf)."
    )
    word_length: int | None = option(
        None,
        "With --detectable: characters of the word; 6, and the longest, if not set.",
        least=1,
        most=10**6,
        why="no word has as many",
    )
    contribution_bound: int | None = option(
        None,
        "B, reports of a client; 60 if not set.",
        least=1,
        most=10**6,
        why="nobody holds more items",
    )
    max_depth: int | None = option(
        None,
        "D, levels of LDP TrieHH; 15 if not set.",
        least=1,
        most=1000,
        why="no word has as many characters",
    )
    num_passes: int | None = option(
        None,
        "Passes of LDP TrieHH; 1 if not set.",
        least=1,
        most=1000,
        why="every pass takes clients of its own for every level",
    )
    min_standard_errors: float | None = option(
        None,
        "Standard errors that a released word's estimate has at least; 3 if not set.",
        least=0,
        most=1000,
        why="no estimate stands out as far from the noise",
    )
    reported_share: float | None = option(
        None,
        "How likely a client that holds a word reports on it; 1 if not set.",
        above=0,
        most=1,
        **_PROBABILITY,
    )
    competing_prefixes: int | None = option(
        None,
        "Prefixes that have more votes than the word at every level; 0 if not set.",
        least=0,
        **_INDICES,
    )
    alpha: float | None = option(
        None,
        "alpha of approximate k-anonymity, such as 0.95.",
        above=0,
        below=1,
        **_PROBABILITY,
    )

    def __post_init__(self):
        check(self)
