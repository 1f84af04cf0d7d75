"""The prefixes that a run has learned so far."""

import dataclasses
from typing import Any, Self

import numpy as np

from federated_hh.heavy_hitters import alphabet as alphabet_lib


@dataclasses.dataclass(frozen=True)
class Word:
    """A completed word: a learned prefix whose last symbol is the end symbol.

    Attributes:
        text: The word, without the end symbol.
        level: The level at which the end symbol was learned: its characters + 1.
        votes: The votes for the end symbol at that level.
    """

    text: str
    level: int
    votes: int


@dataclasses.dataclass(frozen=True)
class Level:
    """The learned prefixes of one length.

    Attributes:
        codes: uint16, shape [prefixes, length]; the last symbol may be the end.
        parents: int64, shape [prefixes]: the frontier node, of the level before, that
            each prefix extends.
        votes: int64, shape [prefixes].
    """

    codes: np.ndarray
    parents: np.ndarray
    votes: np.ndarray


@dataclasses.dataclass(frozen=True)
class PrefixTrie:
    """A trie that grows by one level at a time.

    The *nodes* are the root, numbered 0, and the learned prefixes that do not end in
    the end symbol, numbered level by level in the order of their codes. The
    *frontier* is the nodes of the last level, the prefixes that may still grow. A
    *candidate* is a frontier node with one more symbol; the candidate of the f-th
    frontier node and symbol s has the index f * alphabet.num_symbols + s.

    Attributes:
        alphabet: Alphabet of the prefixes.
        levels: The learned prefixes by length; levels[i] holds those of length i + 1.
    """

    alphabet: alphabet_lib.Alphabet
    levels: tuple[Level, ...] = ()

    @property
    def depth(self) -> int:
        """The length of the longest prefixes asked for so far."""
        return len(self.levels)

    def frontier(self) -> np.ndarray:
        """Returns the prefixes that may grow: uint16, shape [frontier, depth]."""
        if not self.levels:
            return np.zeros((1, 0), alphabet_lib.CODE_DTYPE)
        codes = self.levels[-1].codes
        return codes[codes[:, -1] != self.alphabet.end]

    @property
    def num_candidates(self) -> int:
        """The number of candidates of the next level."""
        return len(self.frontier()) * self.alphabet.num_symbols

    def extend(self, candidates: np.ndarray, votes: np.ndarray) -> Self:
        """Returns the trie with one more level.

        Args:
            candidates: The candidates to keep: int, shape [kept], distinct, each in
                [0, num_candidates).
            votes: Their votes: int, shape [kept].

        Raises:
            ValueError: If the shapes differ, or a candidate is out of range or twice.
        """
        candidates = np.asarray(candidates, np.int64)
        votes = np.asarray(votes, np.int64)
        if candidates.shape != votes.shape or candidates.ndim != 1:
            raise ValueError(
                f"candidates have the shape {candidates.shape}, votes {votes.shape}; "
                "both have to be [kept]"
            )
        order = np.argsort(candidates)
        candidates, votes = candidates[order], votes[order]
        if candidates.size and not (
            candidates[0] >= 0 and candidates[-1] < self.num_candidates
        ):
            raise ValueError(
                f"candidates are from {candidates[0]} to {candidates[-1]}; they have "
                f"to be in [0, {self.num_candidates})"
            )
        if np.any(np.diff(candidates) == 0):
            raise ValueError("candidates has a duplicate; they have to differ")
        parents, symbols = np.divmod(candidates, self.alphabet.num_symbols)
        codes = np.concatenate(
            [self.frontier()[parents], symbols[:, None]], axis=1
        ).astype(alphabet_lib.CODE_DTYPE)
        level = Level(codes, parents, votes)
        return dataclasses.replace(self, levels=(*self.levels, level))

    def transitions(self) -> tuple[np.ndarray, int]:
        """Returns the trie as a table that a client can walk.

        Returns:
            The table: int32, shape [nodes, alphabet.size], the node that a node and a
            character lead to, or -1. And the number of the first frontier node.
        """
        first, width = 0, 1
        tables = []
        for level in self.levels:
            table = np.full((width, self.alphabet.size), -1, np.int32)
            grows = level.codes[:, -1] != self.alphabet.end
            first, width = first + width, np.count_nonzero(grows)
            numbers = first + np.arange(width)
            table[level.parents[grows], level.codes[grows, -1]] = numbers
            tables.append(table)
        tables.append(np.full((width, self.alphabet.size), -1, np.int32))
        return np.concatenate(tables), first

    def candidates_of(self, codes: np.ndarray) -> np.ndarray:
        """Returns the candidate that each word would vote for.

        Args:
            codes: Rows of `Alphabet.encode`: uint16, shape [words, more than depth].

        Returns:
            int64, shape [words]: the index of the candidate that the word begins
            with, or -1 for a word whose first symbols were not learned or that ends
            before the next symbol.
        """
        table, first = self.transitions()
        nodes = np.zeros(len(codes), np.int64)
        for position in range(self.depth):
            symbols = codes[:, position].astype(np.int64)
            goes_on = (nodes >= 0) & (symbols < self.alphabet.size)
            nodes = np.where(goes_on, table[nodes, np.where(goes_on, symbols, 0)], -1)
        symbols = codes[:, self.depth].astype(np.int64)
        votes = (nodes >= 0) & (symbols <= self.alphabet.end)
        candidates = (nodes - first) * self.alphabet.num_symbols + symbols
        return np.where(votes, candidates, -1)

    def words(self) -> list[Word]:
        """Returns the completed words, by level, then in the order of their codes."""
        return [
            Word(self.alphabet.decode(codes), i + 1, int(votes))
            for i, level in enumerate(self.levels)
            for codes, votes in zip(level.codes, level.votes, strict=True)
            if codes[-1] == self.alphabet.end
        ]

    def to_json(self) -> list[Any]:
        """Returns the levels as values that JSON can hold; see `from_json`."""
        return [
            {
                "codes": level.codes.tolist(),
                "parents": level.parents.tolist(),
                "votes": level.votes.tolist(),
            }
            for level in self.levels
        ]

    @classmethod
    def from_json(cls, alphabet: alphabet_lib.Alphabet, levels: list[Any]) -> Self:
        """Returns the trie whose `to_json` gave `levels`."""
        return cls(
            alphabet,
            tuple(
                Level(
                    np.array(level["codes"], alphabet_lib.CODE_DTYPE).reshape(
                        -1, i + 1
                    ),
                    np.array(level["parents"], np.int64),
                    np.array(level["votes"], np.int64),
                )
                for i, level in enumerate(levels)
            ),
        )
