"""A population whose clients are drawn where they are asked: its law, on disk.

A client types T words, a number of its own, and has each word of the common law a
Poisson number of times, independently, with a mean proportional to T. No column has a
row a client, so that 10^8 clients need no disk. A `GeneratedWords` directory holds

    ends.bin        float64 [num_words]  mean count of the words up to each, for a
                                         client that types one word
    typed_ends.bin  float64 [most]       probability that T is at most 1, 2, ...
    words.arrow     the words, in the order of their spelling
    population.json sizes, seed, origin and fingerprint; written last

`federated_hh.heavy_hitters.generated_clients` draws the clients.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from federated_hh.files import atomic_files
from federated_hh.options import checks
from federated_hh.populations.columns import (
    client_words,
    derived_columns,
    packed_entries,
    raw_columns,
)

_SCHEMA_VERSION = 1
_FLOAT64 = np.dtype("<f8")
_COLUMNS = {"ends": _FLOAT64, "typed_ends": _FLOAT64}
# Groups of clients, and of words, that an expectation is an average over.
_GROUPS, _WORDS_AT_ONCE = 256, 1 << 14


class GeneratedWords(raw_columns.ColumnStore):
    """The law of clients' words, read-only and memory-mapped."""

    dtypes = _COLUMNS
    packing = packed_entries.Packing.wide()

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Self:
        """Opens a directory after checking that it is complete.

        Args:
            directory: Directory that `federated_hh.populations.population.prepare`
                made.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If it has another schema version, or a damaged file.
        """
        directory = os.path.abspath(directory)
        metadata, files = raw_columns.read_metadata(directory, _SCHEMA_VERSION)
        _, words, _, most = raw_columns.sizes_of(
            directory, metadata, ("num_clients", "num_words", "seed", "most_typed")
        )
        columns = {
            "ends": raw_columns.Column(_FLOAT64, words, _check_ends),
            "typed_ends": raw_columns.Column(_FLOAT64, most, _check_ends),
        }
        raw_columns.verify(directory, files, columns, {"word": words})
        return cls(directory, metadata)

    @property
    def num_words(self) -> int:
        """Number of words of the law."""
        return self.metadata["num_words"]

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the law: words, chances, volumes, number of clients, seed."""
        law = (self.metadata["fingerprint"], self.num_clients, self.metadata["seed"])
        return hashlib.sha256(repr(law).encode()).hexdigest()

    @functools.cached_property
    def words(self) -> pa.LargeStringArray:
        """The words by spelling, memory-mapped."""
        return self.strings("word")

    def word(self, word_id: int) -> str:
        """Returns a word by its id in [0, num_words)."""
        allowed = f"in 0..{self.num_words - 1}"
        checks.holds(0 <= word_id < self.num_words, allowed, word_id=word_id)
        return self.words[int(word_id)].as_py()

    @functools.cached_property
    def ends(self) -> np.ndarray:
        """Mean count of the words up to each, a word typed: float64 [num_words]."""
        return self.map("ends")

    @functools.cached_property
    def chances(self) -> np.ndarray:
        """Mean count of each word, a word typed: float64 [num_words]."""
        return np.diff(self.ends, prepend=0.0)

    @functools.cached_property
    def typed_chances(self) -> np.ndarray:
        """Probability that a client types 1, 2, ... words: float64 [most]."""
        return np.diff(self.map("typed_ends"), prepend=0.0)

    @functools.cached_property
    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Typed words of the mean client of each group of clients, and its share."""
        group = np.minimum(self.map("typed_ends") * _GROUPS, _GROUPS - 1).astype(int)
        shares = np.bincount(group, self.typed_chances)
        typed = np.arange(1, len(group) + 1)
        sums = np.bincount(group, self.typed_chances * typed)
        return sums[shares > 0] / shares[shares > 0], shares[shares > 0]

    def occurrences(self) -> np.ndarray:
        """Returns the expected count of each word at all clients: float64 [words]."""
        typed, shares = self._groups
        return self.num_clients * float(typed @ shares) * self.chances

    @functools.cached_property
    def _held(self) -> tuple[np.ndarray, np.ndarray]:
        """Share of clients that have each word; distinct words by group of clients."""
        typed, shares = self._groups
        holders, distinct = [], np.zeros(len(typed))
        for first in range(0, self.num_words, _WORDS_AT_ONCE):
            chances = self.chances[first : first + _WORDS_AT_ONCE]
            held = -np.expm1(-np.outer(chances, typed))
            holders.append(held @ shares)
            distinct += held.sum(axis=0)
        return np.concatenate(holders), distinct

    @property
    def holders(self) -> np.ndarray:
        """Expected number of clients that have each word: float64 [num_words]."""
        return self.num_clients * self._held[0]

    @property
    def num_entries(self) -> int:
        """Expected number of distinct (client, word) pairs, rounded."""
        return round(self.num_clients * float(self._held[0].sum()))

    @property
    def typing_clients(self) -> float:
        """Expected number of clients that have a word."""
        typed, shares = self._groups
        return float(self.num_clients * (-np.expm1(-typed * self.ends[-1]) @ shares))

    def reported_share(self, bound: int) -> float:
        """Returns the share of clients' distinct words that fit into their reports.

        Args:
            bound: Reports of a client. Every client is taken to have the expected
                number of distinct words.
        """
        distinct, shares = self._held[1], self._groups[1]
        return float(np.minimum(distinct, bound) @ shares / (distinct @ shares))

    def derived_column(self, name: str, build: Callable[[], np.ndarray]) -> str:
        """Returns the path of an array computed from the law, built once.

        Args:
            name: As in `client_words.ClientWords.derived_column`; so is `build`.
            build: Computes the array.
        """
        return derived_columns.find_or_build(
            self.directory, self.fingerprint, [name], lambda: [(np.asarray(build()),)]
        )[0]


Words = client_words.ClientWords | GeneratedWords


class LawWriter:
    """Writes the files of a law; made by `new_law`.

    Attributes:
        directory: Temporary directory of the law.
    """

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        # Who reads a law writes none.
        from federated_hh.populations.columns import raw_column_writer

        self._columns = raw_column_writer.RawColumnWriter(directory, _COLUMNS)

    def set_law(
        self, words: Sequence[str], chances: np.ndarray, typed_ends: np.ndarray
    ) -> None:
        """Writes the law.

        Args:
            words: The words, in the order of their spelling.
            chances: float64 [words], at least 0: mean counts, a word typed.
            typed_ends: float64 [most]: probability that a client types at most 1, 2,
                ... words; the last is 1.
        """
        self._columns.write_strings("word", words)
        self._columns.append("ends", np.cumsum(chances))
        self._columns.append("typed_ends", typed_ends)
        self._sizes = {"num_words": len(words), "most_typed": len(typed_ends)}

    def finish(self, client_ids: None, metadata: Mapping[str, Any]) -> None:
        """Writes the metadata, last.

        Args:
            client_ids: None: clients are "0", "1", ...
            metadata: JSON values, "num_clients" and "seed" among them.
        """
        del client_ids
        self._columns.finish(
            {**metadata, **self._sizes, "schema_version": _SCHEMA_VERSION}
        )


@contextlib.contextmanager
def new_law(directory: str | os.PathLike[str]) -> Iterator[LawWriter]:
    """Makes a directory that appears only when it is whole.

    Args:
        directory: Directory to create; it must not exist.

    Yields:
        A writer, to be finished inside the block.
    """
    with atomic_files.new_directory(
        directory, last=raw_columns.METADATA_FILE
    ) as partial:
        yield LawWriter(partial)


def _check_ends(ends: np.ndarray) -> None:
    if not (np.isfinite(ends).all() and ends[0] >= 0 and (np.diff(ends) >= 0).all()):
        raise ValueError("values have to be finite, at least 0 and not to fall")
