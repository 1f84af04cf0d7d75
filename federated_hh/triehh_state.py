"""What TrieHH knows between two rounds, and what a round gives."""

import dataclasses
from typing import Any, Self

from federated_hh import alphabet as alphabet_lib
from federated_hh import trie as trie_lib
from simulation import round_metrics


@dataclasses.dataclass(frozen=True)
class TrieHHState:
    """The server's state between rounds.

    Attributes:
        trie: What was learned.
        round_number: Rounds done.
        finished: Whether the last round added no prefix, or was the last allowed.
        stream: The repeat of the run, which has cohorts and drawn words of its own.
    """

    trie: trie_lib.PrefixTrie
    round_number: int = 0
    finished: bool = False
    stream: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the state as values that JSON can hold; see `from_json`."""
        return {
            "levels": self.trie.to_json(),
            "round_number": self.round_number,
            "finished": self.finished,
            "stream": self.stream,
        }

    @classmethod
    def from_json(cls, alphabet: alphabet_lib.Alphabet, values: dict[str, Any]) -> Self:
        """Returns the state whose `to_json` gave `values`."""
        trie = trie_lib.PrefixTrie.from_json(alphabet, values["levels"])
        return cls(trie, values["round_number"], values["finished"], values["stream"])


@dataclasses.dataclass(frozen=True)
class TrieHHOutput:
    """What a round gives.

    Attributes:
        state: The next state.
        metrics: Released: the round, how many candidates the trie had, prefixes kept,
            words completed. The simulator's: how many votes came, for how many
            candidates, and from `TrieHHProcess.next` the seconds that it took.
    """

    state: TrieHHState
    metrics: round_metrics.RoundMetrics
