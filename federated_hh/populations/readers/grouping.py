"""Brings each client's words together, in memory or, when there are many, on disk."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from federated_hh.files import atomic_files
from federated_hh.populations.columns import canonical_rows

# About 40 bytes each while they are sorted.
ENTRIES_IN_MEMORY = 1 << 22
# Entries that are put in order at a time: few enough for the processor's caches.
_ENTRIES_AT_ONCE = 1 << 17


class _Entries(NamedTuple):
    """Clients' words.

    Attributes:
        clients: int32 [n], the client of each.
        words: int32 [n].
        counts: int64 [n]; None for ones.
    """

    clients: np.ndarray
    words: np.ndarray
    counts: np.ndarray | None

    def at(self, places: slice | np.ndarray) -> "_Entries":
        """Returns some of them."""
        counts = None if self.counts is None else self.counts[places]
        return _Entries(self.clients[places], self.words[places], counts)


class Grouper:
    """Groups a stream of (client, words) by client.

    An external sort: whenever enough words are in memory, they are grouped by client
    and written as a *run*; at the end, ranges of clients are merged from all runs, with
    each client's words in order. Needs memory for `entries_in_memory` words and for the
    number of words of each client.
    """

    def __init__(
        self, directory: pathlib.Path, entries_in_memory: int = ENTRIES_IN_MEMORY
    ):
        """Starts with no words.

        Args:
            directory: Directory of sorted runs; `rows` removes them.
            entries_in_memory: Number of words per run, at least 1.
        """
        self._directory = directory
        self._entries_in_memory = entries_in_memory
        self._runs: list[_Entries] = []  # by ascending client
        self._paths: list[pathlib.Path] = []
        self._parts: list[_Entries] = []
        self._waiting = 0  # words in these

    def add(
        self, clients: np.ndarray, words: np.ndarray, counts: np.ndarray | None = None
    ) -> None:
        """Adds words to clients.

        Args:
            clients: int32 [n], from 0, the client of each word.
            words: int32 [n], ids from 0, in order.
            counts: int64 [n], at least 1; None for ones.
        """
        entries = _Entries(clients, words, counts)
        for low in range(0, len(words), self._entries_in_memory):
            part = entries.at(slice(low, low + self._entries_in_memory))
            self._parts.append(part)
            self._waiting += len(part.words)
            if self._waiting >= self._entries_in_memory:
                self._end_run(spill=True)

    @property
    def num_runs(self) -> int:
        """Number of runs, of which the last may be in memory."""
        return len(self._runs)

    def rows(
        self, num_clients: int, id_of_word: np.ndarray | None = None
    ) -> Iterator[canonical_rows.Rows]:
        """Yields the rows of all clients and removes the runs.

        Args:
            num_clients: Above every client added.
            id_of_word: Integers [words]: ids in the rows of the added words; None for
                the same ids.

        Yields:
            Consecutive clients from 0.
        """
        self._end_run(spill=False)
        # The number of the runs' entries before each client.
        ends = np.zeros(num_clients + 1, np.int64)
        for run in self._runs:
            ends[1:] += np.bincount(run.clients, minlength=num_clients)
        np.cumsum(ends, out=ends)
        at_once = min(self._entries_in_memory, _ENTRIES_AT_ONCE)
        low = 0
        while low < num_clients:
            high = int(np.searchsorted(ends, ends[low] + at_once, side="right")) - 1
            high = max(high, low + 1)  # one client may be larger than that
            yield self._merge(low, high, id_of_word)
            low = high
        self._runs.clear()
        for path in self._paths:
            path.unlink()
        self._paths.clear()

    def _merge(
        self, low: int, high: int, id_of_word: np.ndarray | None
    ) -> canonical_rows.Rows:
        parts = []
        for run in self._runs:
            # Of the same type; otherwise the whole run would be converted first.
            edges = np.array([low, high], run.clients.dtype)
            start, end = np.searchsorted(run.clients, edges)
            if start < end:
                parts.append(run.at(slice(start, end)))
        if not parts:
            nothing = np.zeros(0, np.int64)
            return canonical_rows.rows(nothing, nothing, None, high - low)
        # In the order of the runs, a client's entries are in order of appearance.
        clients, words, counts = _joined(parts)
        if id_of_word is not None:
            words = id_of_word[words]
        return canonical_rows.rows(clients - low, words, counts, high - low)

    def _end_run(self, spill: bool) -> None:
        if not self._waiting:
            return
        run = _joined(self._parts)
        self._parts, self._waiting = [], 0
        order = canonical_rows.grouped_by(run.clients)
        if order is not None:
            run = run.at(order)
        if spill:
            counts = None if run.counts is None else self._spilled(run.counts)
            run = _Entries(self._spilled(run.clients), self._spilled(run.words), counts)
        self._runs.append(run)

    def _spilled(self, part: np.ndarray) -> np.ndarray:
        """Writes an array to a file; returns it mapped."""
        path = self._directory / f"run-{len(self._paths)}.tmp"
        self._paths.append(path)
        with atomic_files.naming(path), path.open("wb") as file:
            file.write(part.view(np.uint8).data)
        return np.memmap(path, part.dtype, mode="r")


def _joined(parts: Sequence[_Entries]) -> _Entries:
    """Returns the entries of parts one after the other."""
    counts = None
    if any(part.counts is not None for part in parts):
        counts = np.concatenate(
            [
                np.ones(len(part.words), np.int64)
                if part.counts is None
                else part.counts
                for part in parts
            ]
        )
    return _Entries(
        np.concatenate([part.clients for part in parts]),
        np.concatenate([part.words for part in parts]),
        counts,
    )
