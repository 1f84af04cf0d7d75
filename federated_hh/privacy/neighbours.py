"""The unit of a guarantee's privacy, and the data sets that it compares.

A guarantee bounds how much more likely an outcome is on a data set D than on a
neighbouring one, D'. Which pairs are neighbours is the adjacency, and how much of the
data they differ in the unit. Both are named here, once: guarantees can be compared and
composed where the names are equal, and after a proved conversion (`ledger.converted`)
where they are not.
"""

import enum
from typing import Self


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
        "one item of one client: what one contribution is about, such as a word",
    )
    CLIENT = (
        "client",
        "all that one client of the population holds, however much; a client is what "
        "others call a user or a device, and a person with several devices is several",
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
        "D' is D with one item of one client exchanged (swapped) for another item, or "
        "for none; at most one of the client's contributions changes with it",
        Unit.ITEM,
    )
    REPLACE_CLIENT = (
        "replace_client",
        "D' is D with all that one client holds exchanged (swapped) for anything else, "
        "or for nothing; the client stays in the population and takes part in the same "
        "rounds",
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
        "D' is D with all that one client holds taken away; the client stays in the "
        "population, takes part in the same rounds, and contributes as one that holds "
        "nothing",
        Unit.CLIENT,
    )
