"""The arguments of the accounting's answers: each a flag with its range and help.

An answer is a function. Its signature names its flags and says which it needs:

    def dp_ftrl(*, noise_multiplier: NoiseMultiplier, delta: Delta, ...) -> Rows: ...
"""

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeAlias

from federated_hh.options import fields

Rows: TypeAlias = list[dict[str, Any]]

# The values of `shuffling.Randomizer`, which takes a while to import.
RANDOMIZERS = (
    "arbitrary",
    "asymmetric_one_hot",
    "symmetric_one_hot",
    "k_ary",
    "subset_selection",
)

SET_UNION_WEIGHTS = ("uniform", "adaptive")

_ROUNDS = "no training has as many rounds"
_CLIENTS = "100 for each human"
_INDICES = "candidates are numbered with 31 bits"
_PROBABILITY = "it is a probability"

# Each is of a type, help, and the range with its reason, or the choices.
NoiseMultiplier = Annotated[
    float,
    "z, the noise's deviation over the clip.",
    "[0.001, 1e9]",
    "below, rho is above 500,000: no guarantee; above, it is as good as perfect",
]
NumRounds = Annotated[int, "T, rounds of training.", "[1, 1e9]", _ROUNDS]
MaxParticipation = Annotated[
    int,
    "MaxP, rounds a client takes part in at most; what MinS allows if not set.",
    "[1, 1e9]",
    _ROUNDS,
]
MinSeparation = Annotated[
    int,
    "MinS, rounds strictly between two of a client; not needed with --population.",
    "[0, 1e9]",
    _ROUNDS,
]
RestartFirst = Annotated[
    int, "First round after which the noise restarts.", "[1, 1e9]", _ROUNDS
]
RestartPeriod = Annotated[int, "Rounds between restarts.", "[1, 1e9]", _ROUNDS]
Buffers = Annotated[
    int,
    "d, vectors that BLT remembers; 2 if not set.",
    "[1, 4]",
    "a fifth is of no use",
]
Forgotten = Annotated[
    str, "With a given BLT: what each buffer loses a round, with commas."
]
Weights = Annotated[str, "With a given BLT: the weight of each buffer, with commas."]
Table = Annotated[str, "Compare tree and BLT for all runs of a paper.", ("xu_2023",)]
CountStddev = Annotated[
    float,
    "sigma_b, noise on the count of unclipped devices, if any.",
    "(0, 1e12]",
    "beyond it the count is of no use, and costs nothing",
]
GroupSize = Annotated[
    int, "Devices of a user, for a user's guarantee.", "[1, 1e6]", "nobody has more"
]
Delta = Annotated[float, "Delta of the guarantee.", "(0, 1)", _PROBABILITY]
Epsilon = Annotated[
    float, "Wanted central epsilon.", "(0, 1000]", "more would guarantee nothing"
]
Randomizer = Annotated[str, "Local randomizer of a report.", RANDOMIZERS]
LocalEpsilon = Annotated[
    float,
    "Local epsilon of a report (of symmetric_one_hot: for deletion; of statistics the "
    "largest, for replacement, 6 if not set).",
    "(0, 100]",
    "above this, a report is not private",
]
NumReports = Annotated[
    int,
    "Reports that are shuffled or summed.",
    "[1, 1e12]",
    "100 for each human; beyond it binomial laws lose their digits and need "
    "more memory than there is",
]
DomainSize = Annotated[
    int,
    "Items of a report, the 'no item' symbol included.",
    "[1, 2147483647]",
    "items are numbered with 31 bits",
]
NumQueries = Annotated[
    int,
    "Queries of an analyst; 3 if not set.",
    "[1, 1000]",
    "more leave no cohorts",
]
Cohorts = Annotated[
    str,
    "Clients of a query of statistics: an equal part of all (disjoint), or all, who "
    "divide --epsilon (everybody); as the run chooses (auto) if not set.",
    ("auto", "disjoint", "everybody"),
]
HonestFraction = Annotated[float, "Share of honest reports; 1 if not set.", "(0, 1]"]
Population = Annotated[int, "n, clients of the run.", "[1, 1e12]", _CLIENTS]
MaxLength = Annotated[
    int,
    "L, symbols of the longest word, its end included; 10 if not set.",
    "[1, 1e6]",
    "no word has as many",
]
Threshold = Annotated[
    int, "theta, for the guarantee of given parameters.", "[1, 1e12]", _CLIENTS
]
CohortSize = Annotated[
    int,
    "m, clients of a round. TrieHH and training find it if it is not set.",
    "[1, 1e12]",
    _CLIENTS,
]
Parameters = Annotated[
    str,
    "Way from --epsilon to threshold and cohort size: those that find the "
    "rarest words (tight, if not set), or those of Zhu et al. 2020 (corollary1).",
    ("tight", "corollary1"),
]
DiscoveryRate = Annotated[
    float,
    "Probability with which a word is to be found; 0.9 if not set.",
    "(0, 0.999999]",
    "1 word in a million is missed at it, and the search would take long beyond",
]
RedrawsEachRound = Annotated[bool, "Whether users draw a new word in every round."]
AlphabetSize = Annotated[
    int, "|X|, symbols of LDP TrieHH.", "[1, 2097152]", "Unicode has fewer characters"
]
KeptPrefixes = Annotated[
    int, "eta_max, prefixes that a level keeps.", "[1, 2147483647]", _INDICES
]
Detectable = Annotated[
    bool, "Print how frequent a word has to be for TrieHH or LDP TrieHH to find it."
]
Plot = Annotated[str, "With --vary or --detectable: file of the plot (.png, .pdf)."]
WordLength = Annotated[
    int,
    "With --detectable: characters of the word; 6, and the longest, if not set.",
    "[1, 1e6]",
    "no word has as many",
]
ContributionBound = Annotated[
    int,
    "B, reports of a client, 60 if not set; of set union its words in a pass, 100.",
    "[1, 1e6]",
    "nobody holds more items",
]
MaxDepth = Annotated[
    int,
    "D, levels of LDP TrieHH; 15 if not set.",
    "[1, 1000]",
    "no word has as many characters",
]
NumPasses = Annotated[
    int,
    "Passes of LDP TrieHH or set union; 1 if not set.",
    "[1, 1000]",
    "every pass takes clients of its own for every level, or a part of the budget",
]
PassGrowth = Annotated[
    float,
    "Share of a pass of set union in the budget, over the last one's; 3 if not set.",
    "[0.01, 100]",
    "else a pass would have next to no budget",
]
WordWeights = Annotated[
    str,
    "Weights of set union, over 2 to 16 passes if adaptive; uniform if not set.",
    SET_UNION_WEIGHTS,
]
MinStandardErrors = Annotated[
    float,
    "Standard errors that a released word's estimate has at least; 3 if not set, of "
    "statistics those of the run's defaults, 4.11.",
    "[0, 1000]",
    "no estimate stands out as far from the noise",
]
ReportedShare = Annotated[
    float,
    "Probability that a word's holder reports on it; 1 if not set.",
    "(0, 1]",
    _PROBABILITY,
]
CompetingPrefixes = Annotated[
    int,
    "Prefixes that have more votes than the word at every level; 0 if not set.",
    "[0, 2147483647]",
    _INDICES,
]
Alpha = Annotated[
    float, "alpha of approximate k-anonymity, such as 0.95.", "(0, 1)", _PROBABILITY
]


def row(quantity: str, value: Any, basis: str) -> dict[str, Any]:
    """Returns a row of an answer."""
    return {"quantity": quantity, "value": value, "basis": basis}


def options_class(answers: Iterable[Callable[..., Rows]]) -> Any:
    """Makes the dataclass of all options of some answers, each None by default."""
    found: dict[str, Any] = {}
    for answer in answers:
        for name, hint in typing.get_type_hints(answer, include_extras=True).items():
            # An option that is not needed is of `Delta | None`, say.
            kinds = (hint, *typing.get_args(hint))
            found |= [(name, k) for k in kinds if hasattr(k, "__metadata__")]
    order = list(globals().values())
    made = [
        (name, kind.__origin__ | None, _option(kind.__origin__, *kind.__metadata__))
        for name, kind in sorted(found.items(), key=lambda item: order.index(item[1]))
    ]
    namespace = {
        "__doc__": "All of the answers' options; None is one that is not given.",
        "__post_init__": fields.check,
    }
    return dataclasses.make_dataclass(
        "AccountingOptions", made, namespace=namespace, frozen=True, kw_only=True
    )


def _option(kind: type, help: str, limits: Any = "", why: str = "") -> Any:
    """Makes the option of a flag whose range is an interval, such as "(0, 1]"."""
    if not isinstance(limits, str):
        return fields.option(None, help, choices=limits)
    if not limits:
        return fields.option(None, help)
    low, high = (kind(float(bound)) for bound in limits[1:-1].split(", "))
    named = {
        "least" if limits[0] == "[" else "above": low,
        "most" if limits[-1] == "]" else "below": high,
    }
    return fields.option(None, help, why=why, **named)


def call(answer: Callable[..., Rows], name: str, values: Mapping[str, Any]) -> Rows:
    """Calls an answer with the flags that were set.

    Args:
        answer: The answer.
        name: Its mechanism, for messages.
        values: Values of the flags that were set, by name.

    Returns:
        The answer's rows.

    Raises:
        ValueError: A flag is missing, or is none of this mechanism's.
    """
    known = inspect.signature(answer).parameters
    for flag in values:
        if flag not in known:
            raise ValueError(
                f"--{flag} does not apply to --mechanism={name}; leave it out"
            )
    missing = [
        f"--{flag}"
        for flag, parameter in known.items()
        if parameter.default is parameter.empty and flag not in values
    ]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        others = [f"--{flag}" for flag in known if f"--{flag}" not in missing]
        raise ValueError(
            f"{', '.join(missing)} {verb} needed for --mechanism={name}; it also "
            f"takes {', '.join(others)}"
        )
    return answer(**values)
