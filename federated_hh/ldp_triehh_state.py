"""What the server of LDP TrieHH knows between levels."""

import dataclasses
from typing import Any, Self

import numpy as np

from federated_hh import alphabet as alphabet_lib
from federated_hh import trie as trie_lib


@dataclasses.dataclass(frozen=True)
class FoundWord:
    """A word that was found.

    Attributes:
        text: The word.
        pass_number: The pass that found it, from 1.
        level: The level that completed it, from 1: its number of characters.
        votes: The reports of that level that spoke for it.
        estimate: The debiased count: of how many clients of that level's cohort it
            was one of the items reported on.
        standard_error: Of the estimate.
    """

    text: str
    pass_number: int
    level: int
    votes: int
    estimate: float
    standard_error: float


@dataclasses.dataclass(frozen=True)
class LdpTrieHHState:
    """The server's state between levels.

    Attributes:
        trie: Of the pass in progress; its first level is the alphabet.
        participated: bool, shape [clients]: who took part so far.
        found: The words found so far.
        pass_number: The pass in progress, from 1.
        levels_done: Levels done in all passes together.
        finished: Whether the last level of the last pass is done.
    """

    trie: trie_lib.PrefixTrie
    participated: np.ndarray
    found: tuple[FoundWord, ...] = ()
    pass_number: int = 1
    levels_done: int = 0
    finished: bool = False

    @property
    def level(self) -> int:
        """The level that comes next, from 1."""
        return self.trie.depth

    def to_json(self) -> dict[str, Any]:
        """Returns the state, but for who took part, as values that JSON can hold."""
        return {
            "levels": self.trie.to_json(),
            "found": [dataclasses.astuple(word) for word in self.found],
            "pass_number": self.pass_number,
            "levels_done": self.levels_done,
            "finished": self.finished,
        }

    @classmethod
    def from_json(
        cls,
        alphabet: alphabet_lib.Alphabet,
        values: dict[str, Any],
        participated: np.ndarray,
    ) -> Self:
        """Returns the state whose `to_json` gave `values`.

        Args:
            alphabet: Of the trie.
            values: From `to_json`.
            participated: Who took part until then.
        """
        return cls(
            trie=trie_lib.PrefixTrie.from_json(alphabet, values["levels"]),
            participated=participated,
            found=tuple(FoundWord(*word) for word in values["found"]),
            pass_number=values["pass_number"],
            levels_done=values["levels_done"],
            finished=values["finished"],
        )
