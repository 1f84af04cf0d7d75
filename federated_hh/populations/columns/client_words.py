"""A population of clients' words, as columns on disk.

A `ClientWords` directory holds raw little-endian arrays, which NumPy and TensorFlow
map into memory without reading or copying them:

    entries.bin      int32 or int64 [num_entries]
                                              a word of a client, as an index into the
                                              words, and how often the client has it;
                                              see `packed_entries`
    row_splits.bin   int64 [num_clients + 1]  client i's entries are
                                              row_splits[i]:row_splits[i + 1]
    favorites.bin    int32 [num_clients]      the word a client has most often, or -1
    words.arrow      the distinct words, one large_string column "word"
    client_ids.arrow the clients' names; absent where they are "0", "1", ...
    population.json  sizes, how entries are packed, origin and fingerprint; written
                     last

The words are in the order of their spelling (that of Python's strings), and so are a
client's words, so words with a common prefix are adjacent. Of a client's equally
frequent words, the favorite is the first in its data.
"""

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from federated_hh.options import checks
from federated_hh.populations.columns import (
    derived_columns,
    packed_entries,
    raw_columns,
)

_INT32, _INT64 = np.dtype("<i4"), np.dtype("<i8")
_ENTRIES_AT_ONCE = 1 << 24


class ClientWords(raw_columns.ColumnStore):
    """The words of many clients, read-only and memory-mapped.

    Open one with `ClientWords.open`, or make a small one with `from_rows`.
    """

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Self:
        """Opens a population directory after checking that it is complete.

        Args:
            directory: Directory that `column_writer.write_columns`, `from_rows` or
                `federated_hh.populations.population.prepare` made.

        Returns:
            The population.

        Raises:
            FileNotFoundError: If there is no population at `directory`.
            ValueError: If it has another schema version, or a damaged file, which the
                message names. Files are read once; see `verified_files`.
        """
        directory = os.path.abspath(directory)
        metadata, files = raw_columns.read_metadata(
            directory, packed_entries.SCHEMA_VERSION
        )
        clients, words, entries = raw_columns.sizes_of(
            directory, metadata, ("num_clients", "num_words", "num_entries")
        )
        packing = _packing_of(directory, metadata)
        raw_columns.verify(
            directory,
            files,
            columns={
                packed_entries.ENTRIES: raw_columns.Column(
                    packing.dtype,
                    entries,
                    functools.partial(packing.check, num_words=words),
                ),
                "row_splits": raw_columns.Column(
                    _INT64,
                    clients + 1,
                    raw_columns.Splits(clients, entries, least=0),
                ),
                "favorites": raw_columns.Column(
                    _INT32, clients, raw_columns.Values(-1, words - 1)
                ),
            },
            strings={"word": words, "client_id": clients},
            optional=["client_id"],
        )
        return cls(directory, metadata)

    @classmethod
    def from_rows(
        cls,
        directory: str | os.PathLike[str],
        rows: Iterable[tuple[str, Iterable[tuple[str, int]]]],
    ) -> Self:
        """Writes and opens a small population given in Python.

        Args:
            directory: Directory to create; it must not exist.
            rows: For each client its id, distinct, and its words with counts in
                1..2**31-1. The counts of a repeated word are added. A client may have
                no words.

        Returns:
            The population, its clients in order of first appearance.

        Raises:
            ValueError: On a repeated client id or a count out of range.
            FileExistsError: If `directory` exists.
        """
        # Most processes only read populations.
        from federated_hh.populations.columns import column_writer

        column_writer.write_rows(directory, rows)
        return cls.open(directory)

    @property
    def num_words(self) -> int:
        """Number of distinct words in the word table."""
        return self.metadata["num_words"]

    @property
    def num_entries(self) -> int:
        """Number of distinct (client, word) pairs."""
        return self.metadata["num_entries"]

    @functools.cached_property
    def packing(self) -> packed_entries.Packing:
        """The packing of a word and its count as an entry."""
        return _packing_of(self.directory, self.metadata)

    @property
    def dtypes(self) -> Mapping[str, np.dtype]:
        """Dtypes of the raw columns, by name; see base class."""
        return {packed_entries.ENTRIES: self.packing.dtype} | packed_entries.COLUMNS

    @functools.cached_property
    def entries(self) -> np.ndarray:
        """Words with their counts, packed: [num_entries], memory-mapped."""
        return self.map(packed_entries.ENTRIES)

    @functools.cached_property
    def word_ids(self) -> packed_entries.Unpacked:
        """Word of each entry: int32 [num_entries], unpacked where it is read."""
        return packed_entries.Unpacked(self.entries, self.packing.word_ids)

    @functools.cached_property
    def counts(self) -> packed_entries.Unpacked:
        """Count of each entry: int32 [num_entries], at least 1, likewise."""
        return packed_entries.Unpacked(self.entries, self.packing.counts)

    @functools.cached_property
    def row_splits(self) -> np.ndarray:
        """Start of each client's entries: int64 [num_clients + 1]."""
        return self.map("row_splits")

    @functools.cached_property
    def favorites(self) -> np.ndarray:
        """Each client's most frequent word: int32 [num_clients], -1 for none."""
        return self.map("favorites")

    @functools.cached_property
    def words(self) -> pa.LargeStringArray:
        """The distinct words by spelling, memory-mapped; not all may be held."""
        return self.strings("word")

    @functools.cached_property
    def client_ids(self) -> pa.LargeStringArray | None:
        """The clients' ids, memory-mapped; None if they are "0", "1", ..."""
        has_ids = "client_ids.arrow" in self.metadata["files"]
        return self.strings("client_id") if has_ids else None

    def word(self, word_id: int) -> str:
        """Returns a word by its id in [0, num_words)."""
        allowed = f"in 0..{self.num_words - 1}"
        checks.holds(0 <= word_id < self.num_words, allowed, word_id=word_id)
        return self.words[int(word_id)].as_py()

    def client_id(self, index: int) -> str:
        """Returns the id of the client at `index` in [0, num_clients)."""
        self.check_index(index)
        ids = self.client_ids
        return str(index) if ids is None else ids[int(index)].as_py()

    def client(self, index: int) -> list[tuple[str, int]]:
        """Returns a client's words with counts.

        Args:
            index: The client, in [0, num_clients).

        Returns:
            Words and counts: the favorite, then the most frequent first, of equally
            frequent ones by spelling.
        """
        self.check_index(index)
        row = slice(*self.row_splits[index : index + 2].tolist())
        ids, counts = self.word_ids[row], self.counts[row]
        order = np.lexsort((ids, ids != self.favorites[index], -counts))
        words = self.words.take(pa.array(ids[order])).to_pylist()
        return list(zip(words, counts[order].tolist(), strict=True))

    def occurrences(self) -> np.ndarray:
        """Returns the count of each word at all clients: int64 [num_words]."""
        return self._occurrences

    @functools.cached_property
    def _occurrences(self) -> np.ndarray:
        totals = np.zeros(self.num_words, np.int64)
        for first in range(0, self.num_entries, _ENTRIES_AT_ONCE):
            entries = self.entries[first : first + _ENTRIES_AT_ONCE]
            words, counts = self.packing.word_ids(entries), self.packing.counts(entries)
            # Sums of integers below 2^53 are exact in float64.
            totals += np.bincount(words, counts, self.num_words).astype(np.int64)
        totals.setflags(write=False)
        return totals

    def reported_share(self, bound: int) -> float:
        """Returns the share of clients' distinct words that fit into their reports.

        Args:
            bound: Reports of a client.
        """
        held = np.diff(self.row_splits)
        reported = np.minimum(held, bound)
        return max(1, int(reported.sum())) / max(1, int(held.sum()))

    def rows(self, clients: np.ndarray) -> packed_entries.Rows:
        """Returns the words of some clients.

        Args:
            clients: Integers [chosen] in [0, num_clients), in the order wanted.
        """
        starts = self.row_splits[clients]
        lengths = self.row_splits[clients + 1] - starts
        entries = self.entries[raw_columns.ranges(starts, lengths)]
        return packed_entries.Rows(
            self.packing.word_ids(entries).astype(np.int64),
            self.packing.counts(entries).astype(np.int64),
            lengths,
            self.favorites[clients].astype(np.int64),
        )

    def derived_column(self, name: str, build: Callable[[], np.ndarray]) -> str:
        """Returns the path of an array computed from the population, built once.

        Args:
            name: Name, as in `derived_columns`.
            build: Computes the array; called only if no earlier run has kept it.

        Returns:
            Absolute path of a raw little-endian file in C order.
        """
        return self.derived_columns([name], lambda: [(np.asarray(build()),)])[0]

    def derived_columns(
        self,
        names: Sequence[str],
        build: Callable[[], Iterable[Sequence[np.ndarray]]],
    ) -> list[str]:
        """Returns the paths of arrays computed piece by piece, together, built once.

        Safe with several processes at once: the first builds, the others wait.

        Args:
            names: Texts of letters, digits, "_", "-" and "."; have to say
                everything that the arrays depend on besides the population.
            build: Gives, in their order, the pieces of all arrays, so that they need
                not fit in memory; called only if no earlier run has kept the arrays.

        Returns:
            Absolute paths of raw little-endian files in C order.

        Raises:
            PopulationError: If one cannot be written, as on a full disk, or is damaged;
                the message names it.
        """
        return derived_columns.find_or_build(
            self.directory, self.fingerprint, names, build
        )


def _packing_of(directory: str, metadata: Mapping[str, Any]) -> packed_entries.Packing:
    names = ("num_words", "entry_bytes", "count_bits")
    num_words, *found = raw_columns.sizes_of(directory, metadata, names)
    packings = (packed_entries.Packing.of(num_words), packed_entries.Packing.wide())
    for packing in packings:
        if found == [packing.dtype.itemsize, packing.count_bits]:
            return packing
    raise raw_columns.damaged(
        directory,
        f"entry_bytes and count_bits are {found}; of {num_words} words they have to be "
        + " or ".join(f"[{p.dtype.itemsize}, {p.count_bits}]" for p in packings),
    )
