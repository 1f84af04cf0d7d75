"""Brings each client's words together, in memory or, when there are many, on disk."""

import array
import pathlib
from collections.abc import Iterator

import numpy as np

from simulation import atomic_files, canonical_rows

# About 60 bytes each while they are sorted.
ENTRIES_IN_MEMORY = 1 << 22

_ENTRY = np.dtype([("client", "<i4"), ("word", "<i4"), ("count", "<i8")])


class Grouper:
    """Groups a stream of (client, words) by client.

    An external merge sort: whenever enough words have come, they are grouped by client
    and written as a *run*, sorted by client; at the end, ranges of clients are merged
    across all runs. Needs memory for `entries_in_memory` words and for the number of
    words of each client.
    """

    def __init__(
        self, directory: pathlib.Path, entries_in_memory: int = ENTRIES_IN_MEMORY
    ):
        """Starts with no words.

        Args:
            directory: Where runs are written; they are removed by `rows`.
            entries_in_memory: After how many words a run is written, at least 1.
        """
        self._directory = directory
        self._entries_in_memory = entries_in_memory
        self._runs: list[np.ndarray] = []
        self._paths: list[pathlib.Path] = []
        self._start_buffers()

    def _start_buffers(self) -> None:
        self._words = array.array("i")
        self._row_clients = array.array("i")
        self._row_lengths = array.array("q")
        self._row_counts = array.array("q")

    def add(self, client: int, words: list[int], count: int = 1) -> None:
        """Adds words to a client.

        Args:
            client: From 0.
            words: Ids from 0, in order.
            count: How often each occurs, at least 1.
        """
        if not words:
            return
        self._words.extend(words)
        self._row_clients.append(client)
        self._row_lengths.append(len(words))
        self._row_counts.append(count)
        if len(self._words) >= self._entries_in_memory:
            self._end_run(spill=True)

    @property
    def num_runs(self) -> int:
        """Number of runs that are on disk."""
        return len(self._paths)

    def rows(
        self, num_clients: int, id_of_word: np.ndarray | None = None
    ) -> Iterator[canonical_rows.Rows]:
        """Yields the rows of all clients and removes the runs.

        Args:
            num_clients: Above every client added.
            id_of_word: Integers [words]: what the words added are called in the rows;
                None for the same.

        Yields:
            Consecutive clients from 0.
        """
        self._end_run(spill=False)
        # How many entries of the runs belong to the clients before each.
        ends = np.zeros(num_clients + 1, np.int64)
        for run in self._runs:
            ends[1:] += np.bincount(run["client"], minlength=num_clients)
        np.cumsum(ends, out=ends)
        low = 0
        while low < num_clients:
            limit = ends[low] + self._entries_in_memory
            high = int(np.searchsorted(ends, limit, side="right")) - 1
            high = max(high, low + 1)  # one client may be larger than the limit
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
            start, end = np.searchsorted(run["client"], [low, high])
            parts.append(run[start:end])
        # In the order of the runs, a client's entries are in order of appearance.
        entries = np.concatenate(parts) if parts else np.zeros(0, _ENTRY)
        words = entries["word"]
        if id_of_word is not None:
            words = id_of_word[words]
        return canonical_rows.rows(
            entries["client"] - low, words, entries["count"], high - low
        )

    def _end_run(self, spill: bool) -> None:
        if not self._words:
            return
        lengths = np.frombuffer(self._row_lengths, np.int64)
        clients = np.repeat(np.frombuffer(self._row_clients, np.int32), lengths)
        counts = np.repeat(np.frombuffer(self._row_counts, np.int64), lengths)
        words = np.frombuffer(self._words, np.int32)
        columns = canonical_rows.by_appearance(clients, words, counts)
        run = np.empty(len(columns[0]), _ENTRY)
        run["client"], run["word"], run["count"] = columns
        self._start_buffers()
        if spill:
            path = self._directory / f"run-{len(self._paths)}.tmp"
            self._paths.append(path)
            with atomic_files.naming(path), path.open("wb") as file:
                file.write(run.view(np.uint8).data)
            run = np.memmap(path, _ENTRY, mode="r")
        self._runs.append(run)
