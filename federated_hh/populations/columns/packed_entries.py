"""The layout of a population of words: packed entries, rows, columns.

An entry is a client's word and its count in one integer: `word_id << count_bits |
count`. It has four bytes where all words and counts of a population fit, which halves
the disk and the memory traffic of a population of millions, and eight otherwise.
"""

import dataclasses
from typing import Self

import numpy as np

SCHEMA_VERSION = 4
ENTRIES = "entries"
# The other columns; the entries' dtype is that of their packing.
COLUMNS: dict[str, np.dtype] = {
    "row_splits": np.dtype("<i8"),
    "favorites": np.dtype("<i4"),
}
MAX_COUNT = int(np.iinfo(np.int32).max)
# Without the sign, which the worker's integers have.
_NARROW_BITS = 31
_WIDE_COUNT_BITS = 31
_NARROW, _WIDE = np.dtype("<i4"), np.dtype("<i8")


@dataclasses.dataclass(frozen=True)
class Packing:
    """The packing of a population's entries.

    Attributes:
        dtype: The dtype of an entry: int32 or int64.
        count_bits: Number of lower bits for the count; those above are the word.
    """

    dtype: np.dtype
    count_bits: int

    @classmethod
    def of(cls, num_words: int) -> Self:
        """Returns the narrowest packing for ids below a number of words.

        Args:
            num_words: Number of distinct words, at most 2^31.
        """
        count_bits = _NARROW_BITS - max(num_words - 1, 1).bit_length()
        if count_bits < 1:
            return cls.wide()
        return cls(_NARROW, count_bits)

    @classmethod
    def wide(cls) -> Self:
        """Returns the packing that takes every word and count."""
        return cls(_WIDE, _WIDE_COUNT_BITS)

    @property
    def max_count(self) -> int:
        """The largest count that an entry takes."""
        return (1 << self.count_bits) - 1

    def pack(self, word_ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Returns entries.

        Args:
            word_ids: Integers that fit.
            counts: Integers in 1..`max_count`, as many.
        """
        entries = word_ids.astype(self.dtype)
        entries <<= self.count_bits
        entries |= counts.astype(self.dtype)
        return entries

    def word_ids(self, entries: np.ndarray) -> np.ndarray:
        """Returns the words of entries: int32."""
        return (entries >> self.count_bits).astype(np.int32, copy=False)

    def counts(self, entries: np.ndarray) -> np.ndarray:
        """Returns the counts of entries: int32."""
        return (entries & self.max_count).astype(np.int32, copy=False)

    def check(self, entries: np.ndarray, num_words: int) -> None:
        """Raises `ValueError` if an entry is out of range for this number of words."""
        words = entries >> self.count_bits  # not yet narrowed, which could hide some
        if words.min() < 0 or words.max() >= num_words:
            raise ValueError(
                f"word ids lie in {words.min()}..{words.max()}; they have to be in "
                f"0..{num_words - 1}"
            )
        if not (entries & self.max_count).min():
            raise ValueError("a count is 0; it has to be at least 1")


class Unpacked:
    """One half of packed entries, as a read-only array that unpacks on access.

    A slice or an index gives an array of NumPy, and so does `np.asarray` of all; a
    comparison is that of all, as with an array.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, entries: np.ndarray, unpack):
        """Stores the packed entries, usually a mapped file.

        Args:
            entries: Shape [entries].
            unpack: `Packing.word_ids` or `Packing.counts` of their packing.
        """
        self._entries, self._unpack = entries, unpack

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, where) -> np.ndarray:
        return self._unpack(np.asarray(self._entries[where]))

    def __eq__(self, other):
        return self[:] == other

    def __ne__(self, other):
        return self[:] != other

    def __array__(self, dtype=None) -> np.ndarray:
        return np.asarray(self[:], dtype)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Clients with their words in canonical order.

    Attributes:
        word_ids: int64 [entries]: ascending within a client.
        counts: int64 [entries]: the client's count of the word.
        row_lengths: int64 [clients].
        favorites: int64 [clients]: the word that the client has most often, of equally
            frequent ones the one that came first; -1 for a client without words.
    """

    word_ids: np.ndarray
    counts: np.ndarray
    row_lengths: np.ndarray
    favorites: np.ndarray

    def without_empty(self) -> "Rows":
        """Returns the clients that have a word."""
        kept = self.row_lengths > 0
        return dataclasses.replace(
            self, row_lengths=self.row_lengths[kept], favorites=self.favorites[kept]
        )
