"""Checks of what columns may hold, so that hostile ones do no harm to who reads them.

A check is made for one reading of a file, and called with its contents in chunks.
"""

import numpy as np

from federated_hh.populations.columns import packed_entries


class Values:
    """Checks that all values of a column lie in a range."""

    def __init__(self, dtype: np.dtype, low: int, high: int):
        """Starts a check.

        Args:
            dtype: The dtype of the column.
            low: The least value allowed.
            high: The largest.
        """
        self._dtype, self._low, self._high = dtype, low, high

    def __call__(self, chunk: memoryview) -> None:
        """Checks the next values; raises `ValueError` if one lies outside."""
        array = np.frombuffer(chunk, self._dtype)
        if array.min() < self._low or array.max() > self._high:
            raise ValueError(
                f"values lie in {array.min()}..{array.max()}; they have to be in "
                f"{self._low}..{self._high}"
            )


class Entries:
    """Checks that all entries have a word that there is, and a count."""

    def __init__(self, packing: packed_entries.Packing, num_words: int):
        """Starts a check.

        Args:
            packing: Packing of the entries.
            num_words: Number of words.
        """
        self._packing, self._num_words = packing, num_words

    def __call__(self, chunk: memoryview) -> None:
        """Checks the next entries; raises `ValueError` if one is wrong."""
        entries = np.frombuffer(chunk, self._packing.dtype)
        self._packing.check(entries, self._num_words)


class Splits:
    """Checks a column that says where rows start, and last where they end."""

    def __init__(self, dtype: np.dtype, rows: int, end: int, least: int):
        """Starts a check.

        Args:
            dtype: The dtype of the column.
            rows: Number of rows.
            end: End of the last row; the first starts at 0.
            least: The least length of a row.
        """
        self._dtype, self._rows, self._end, self._least = dtype, rows, end, least
        self._seen = 0
        self._before: int | None = None

    def __call__(self, chunk: memoryview) -> None:
        """Checks the next values; raises `ValueError` if they make no rows."""
        array = np.frombuffer(chunk, self._dtype)
        # Before differences are taken, which could overflow.
        if array.min() < 0 or array.max() > self._end:
            raise ValueError(
                f"rows start in {array.min()}..{array.max()}; they have to be in "
                f"0..{self._end}"
            )
        if self._before is None and array[0] != 0:
            raise ValueError(f"the first row starts at {array[0]}; it has to be 0")
        before = (
            array[:1] - self._least
            if self._before is None
            else np.array([self._before], self._dtype)
        )
        shortest = np.diff(array, prepend=before).min()
        if shortest < self._least:
            raise ValueError(
                f"a row has length {shortest}; it has to be at least {self._least}"
            )
        self._before = int(array[-1])
        self._seen += len(array)
        if self._seen == self._rows + 1 and self._before != self._end:
            raise ValueError(
                f"the rows end at {self._before}; they have to be {self._end}"
            )
