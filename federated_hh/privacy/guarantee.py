"""A guarantee: an (epsilon, delta), its unit, and the data sets that it compares.

A guarantee bounds the ratio of an outcome's probabilities on a data set D and on a
neighbouring one, D'. Which pairs are neighbours is the adjacency, and how much of the
data they differ in the unit. Both are named here, once: guarantees can be compared and
composed where the names are equal, and after a proved conversion (`ledger.converted`)
where they are not.
"""

import dataclasses
import enum
import math
from typing import Self

from federated_hh.options import checks
from federated_hh.privacy import rounding
from federated_hh.privacy import voting_rounds as triehh_curve

# An assumption of guarantees of reports as they leave the client.
EACH_REPORT = "none of the aggregation: it holds for each report as sent"


class _Described(enum.Enum):
    """Members that are known by a name, and explained by a text."""

    text: str

    def __new__(cls, name: str, text: str, *_) -> Self:
        member = object.__new__(cls)
        member._value_ = name
        member.text = text
        return member


class Unit(_Described):
    """The unit of privacy.

    TrieHH's and LDP TrieHH's "user" and training's "device" are the same thing: a
    client, with all its data.
    """

    ITEM = (
        "item",
        "one item of one client, such as one word or one report",
    )
    CLIENT = (
        "client",
        "all data of one client. A client is one device, also called a user; a person "
        "with two devices is two clients",
    )


class Adjacency(_Described):
    """The pairs D, D' that are neighbours.

    Attributes:
        unit: Unit in which they differ.
    """

    unit: Unit

    def __init__(self, name: str, text: str, unit: Unit):
        self.unit = unit

    REPLACE_ONE_ITEM = (
        "replace_one_item",
        "D' is D with one item of one client swapped for another, or for none; at "
        "most one of the client's contributions changes with it",
        Unit.ITEM,
    )
    REPLACE_CLIENT = (
        "replace_client",
        "D' is D with all data of one client swapped for any others, or none; the "
        "client stays in the population and takes part in the same rounds",
        Unit.CLIENT,
    )
    ZERO_OUT = (
        "zero_out",
        "D' is D with one client's contribution replaced by zeros in every round that "
        "it takes part in (zero-out; Kairouz et al. 2021, Definition 1.1)",
        Unit.CLIENT,
    )
    EMPTIED = (
        "emptied",
        "D' is D with all data of one client gone; the client stays in the population, "
        "takes part in the same rounds, and contributes as one without data",
        Unit.CLIENT,
    )


# An observer's question, by the compared data sets.
_SECRETS = {
    Adjacency.EMPTIED: "whether one client's data were used",
    Adjacency.ZERO_OUT: "whether one client's contributions were used",
    Adjacency.REPLACE_CLIENT: "which of two data sets one client has",
    Adjacency.REPLACE_ONE_ITEM: "which of two items one client has",
}
# The two worlds that a guarantee compares; the second half is for both directions.
_WORLDS = {
    Adjacency.EMPTIED: ("with one client's data as without", " or without as with"),
    Adjacency.ZERO_OUT: (
        "with one client's contributions as without",
        " or without as with",
    ),
    Adjacency.REPLACE_CLIENT: ("with any data of one client as with any other", ""),
    Adjacency.REPLACE_ONE_ITEM: (
        "with any value of one item of one client as with any other",
        "",
    ),
}
# Above it, a factor has too many digits to be read.
_LARGEST_EXPONENT = 20.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guarantee:
    """One (epsilon, delta) with everything needed to read it.

    Attributes:
        epsilon: Nonnegative; infinity says "none".
        delta: In [0, 1].
        bound: The theorem or method that gave the numbers.
        is_upper_bound: Whether the true epsilon at this delta is proved to be no
            larger. False for an estimate or a lower bound.
        one_sided: True if it holds from D to D' only, the direction that `adjacency`
            names; False where it holds in both directions.
        adjacency: Compared pairs of data sets.
        assumptions: Conditions of these numbers, beyond the statement's own
            assumptions; may be empty.
        of_one_repeat: True if it is one repeat's alone, of several that were run.
        rho: The zCDP of the Gaussian noise that epsilon is of; None where there is
            none.
        noise_rounds: Number of rounds in which that noise was drawn; None where there
            is none.
        voting: The rounds of votes whose curve, from D to D', epsilon and delta are of;
            None where there are none.
        is_comparison: True if it is stated for comparison only, such as a paper's bound
            next to a tighter one.

    Raises:
        ValueError: A field is missing, empty or out of range; the message names it.
    """

    epsilon: float
    delta: float
    bound: str
    is_upper_bound: bool
    one_sided: bool
    adjacency: Adjacency
    assumptions: tuple[str, ...] = ()
    of_one_repeat: bool = False
    rho: float | None = None
    noise_rounds: int | None = None
    voting: triehh_curve.VotingRounds | None = None
    is_comparison: bool = False

    def __post_init__(self):
        checks.number_field(self, "epsilon", 0.0, math.inf)
        checks.number_field(self, "delta", 0.0, 1.0)
        if (self.rho is None) != (self.noise_rounds is None):
            raise ValueError(
                f"rho is {self.rho!r} and noise_rounds {self.noise_rounds!r}: both "
                "have to be numbers, or neither"
            )
        if self.rho is not None:
            checks.number_field(self, "rho", 0.0, math.inf)
            checks.integer(noise_rounds=self.noise_rounds, least=1)
            if self.one_sided:
                raise ValueError("one_sided is True; it has to be False with rho")
        for name in ("is_upper_bound", "one_sided", "of_one_repeat", "is_comparison"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}; it has to be True or False")
        if self.voting is not None:
            checks.kind_field(self, "voting", triehh_curve.VotingRounds)
            if not self.one_sided:
                raise ValueError("one_sided is False; it has to be True with voting")
        checks.text_field(self, "bound")
        checks.kind_field(self, "adjacency", Adjacency)
        checks.texts_field(self, "assumptions", may_be_empty=True)

    @property
    def unit(self) -> Unit:
        """The unit of privacy."""
        return self.adjacency.unit

    def printed(self, value: float) -> str:
        """Formats one of its numbers, that of an upper bound rounded upwards."""
        if self.is_upper_bound:
            return rounding.rounded_up(value)
        return rounding.readable(value)

    def sentence(self) -> str:
        """Returns its meaning in a sentence, for readers who know no epsilon."""
        is_local = EACH_REPORT in self.assumptions
        seen = "a client's reports" if is_local else "the released results"
        who = f"Whoever sees {seen} and knows everybody else's data"
        of = _SECRETS[self.adjacency]
        if math.isinf(self.epsilon) or self.delta >= 1.0:
            return f"{who} may learn {of}."
        if not self.epsilon and not self.one_sided:
            if not self.delta:
                return f"{who} learns nothing about {of}."
            right = rounding.rounded_up(50 * (1 + self.delta))
            return (
                f"{who} guesses {of} correctly with probability at most {right}%, if "
                "both answers were equally likely before."
            )
        factor = f"e^{self.printed(self.epsilon)}"
        if self.epsilon < _LARGEST_EXPONENT:
            number = self.printed(math.exp(self.epsilon))
            if "e" in number:
                number = f"{float(number):,.0f}"
            factor = f"{number} ({factor})"
        world, reverse = _WORLDS[self.adjacency]
        told = f"For w{who[1:]}, any conclusion is at most {factor} times as likely "
        told += world
        told += "" if self.one_sided else reverse
        if self.delta:
            told += f", plus {self.printed(self.delta)}"
        if self.one_sided:
            told += ". The reverse has no such factor"
        return f"{told}."

    def row(self) -> dict[str, str]:
        """Returns it as a row of a table, by the names of the columns."""
        return {
            "unit": self.unit.value,
            "adjacency": self.adjacency.value.replace("_", " "),
            "epsilon": self.printed(self.epsilon),
            "delta": self.printed(self.delta),
            "direction": "one-sided" if self.one_sided else "both",
            "status": ("proved" if self.is_upper_bound else "an estimate")
            + (", for comparison" if self.is_comparison else ""),
            "scope": "one repeat" if self.of_one_repeat else "the run",
            "theorem": self.bound,
        }
