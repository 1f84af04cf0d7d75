"""Writes the files of a population of words; `client_words` describes them."""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from federated_hh.files import atomic_files
from federated_hh.populations.columns import (
    arrow_text,
    canonical_rows,
    packed_entries,
    raw_column_writer,
    raw_columns,
)

MAX_COUNT = packed_entries.MAX_COUNT


class ColumnWriter:
    """Writes the files of a population; made by `new_population`.

    Write its words first (`set_words`), then its clients (`append_rows`), then call
    `finish`.

    Attributes:
        directory: The temporary directory of the population, free for scratch files
            that are removed before `finish`.
    """

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        self._num_clients = 0
        self._num_entries = 0
        self._num_words = 0
        self._packing: packed_entries.Packing | None = None
        self._columns = raw_column_writer.RawColumnWriter(
            directory, packed_entries.COLUMNS
        )
        self._columns.append("row_splits", np.zeros(1, np.int64))

    def set_words(self, words: Sequence[str] | pa.Array) -> None:
        """Writes the word table.

        Args:
            words: The distinct words, in the order of their spelling (`str`'s own).

        Raises:
            ValueError: If they are not.
        """
        if self._packing is not None:
            raise ValueError("the words have already been written; write them once.")
        spelled = arrow_text.column(words)
        if not pc.all(pc.less(spelled[:-1], spelled[1:])).as_py() and len(words) > 1:
            raise ValueError(
                "words are not distinct or not sorted; they have to be both."
            )
        self._columns.write_strings("word", spelled)
        self._num_words = len(words)
        self._packing = packed_entries.Packing.of(len(words))
        self._columns.add(packed_entries.ENTRIES, self._packing.dtype)

    def append_rows(self, rows: packed_entries.Rows) -> None:
        """Appends clients.

        Args:
            rows: Their words, as indices into the words; counts are in 1..2**31-1.

        Raises:
            ValueError: If the lengths do not add up, a value is out of range, the
                words of a client do not ascend, or there are no words yet.
        """
        if self._packing is None:
            raise ValueError(
                "the clients come before the words; write the words first."
            )
        word_ids, counts, row_lengths = rows.word_ids, rows.counts, rows.row_lengths
        row_ends = self._num_entries + np.cumsum(row_lengths, dtype=np.int64)
        added = int(row_ends[-1]) - self._num_entries if len(row_ends) else 0
        if not len(word_ids) == len(counts) == added:
            raise ValueError(
                f"{len(word_ids)} word ids and {len(counts)} counts for rows of "
                f"{added} entries in all."
            )
        if len(rows.favorites) != len(row_lengths):
            raise ValueError(
                f"{len(rows.favorites)} favorites for {len(row_lengths)} rows."
            )
        if (row_lengths < 0).any() or (word_ids < 0).any():
            raise ValueError("word_ids and row_lengths have to be at least 0.")
        if added and not 1 <= counts.min() <= counts.max() <= MAX_COUNT:
            raise ValueError(
                f"counts lie in {counts.min()}..{counts.max()}; they have to be in "
                f"1..{MAX_COUNT}."
            )
        if added:
            if word_ids.max() >= self._num_words:
                raise ValueError(
                    f"word id {word_ids.max()} for a table of {self._num_words} words."
                )
            ascends = word_ids[1:] > word_ids[:-1]
            between = np.cumsum(row_lengths)[:-1] - 1  # the last entry of each row
            ascends[between[(between >= 0) & (between < len(ascends))]] = True
            if not ascends.all():
                raise ValueError(
                    "word_ids do not increase within a row; sort each row and merge "
                    "duplicates."
                )
            if counts.max() > self._packing.max_count:
                self._widen(self._packing)
            self._columns.append(
                packed_entries.ENTRIES, self._packing.pack(word_ids, counts)
            )
        self._columns.append("row_splits", row_ends)
        self._columns.append("favorites", rows.favorites)
        self._num_clients += len(row_lengths)
        self._num_entries += added

    def _widen(self, narrow: packed_entries.Packing) -> None:
        """Packs the written entries again, so that every count fits."""
        wide = packed_entries.Packing.wide()
        self._columns.convert(
            packed_entries.ENTRIES,
            wide.dtype,
            lambda entries: wide.pack(narrow.word_ids(entries), narrow.counts(entries)),
        )
        self._packing = wide

    def finish(
        self,
        client_ids: Sequence[str] | pa.Array | None,
        metadata: Mapping[str, Any],
    ) -> None:
        """Writes the client ids and, last, the metadata.

        Args:
            client_ids: One id a client; None for "0", "1", ...
            metadata: JSON values stored with the sizes: origin, rows left out.

        Raises:
            ValueError: If there are no words, or not as many ids as clients.
        """
        self.close()
        if self._packing is None:
            raise ValueError("no words were written; write them before closing.")
        if client_ids is not None and len(client_ids) != self._num_clients:
            raise ValueError(
                f"{len(client_ids)} client ids for {self._num_clients} clients; give "
                "one id per client."
            )
        if client_ids is not None:
            self._columns.write_strings("client_id", client_ids)
        self._columns.finish(
            dict(
                metadata,
                schema_version=packed_entries.SCHEMA_VERSION,
                num_clients=self._num_clients,
                num_words=self._num_words,
                num_entries=self._num_entries,
                entry_bytes=self._packing.dtype.itemsize,
                count_bits=self._packing.count_bits,
            )
        )

    def close(self) -> None:
        """Closes the column files; also done by `finish`."""
        self._columns.close()


@contextlib.contextmanager
def new_population(directory: str | os.PathLike[str]) -> Iterator[ColumnWriter]:
    """Makes a population directory that appears only when it is whole.

    Args:
        directory: Directory to create; it must not exist.

    Yields:
        A writer, to be finished (`ColumnWriter.finish`) inside the block.

    Raises:
        FileExistsError: If `directory` exists, possibly made by another process while
            this one waited for its turn.
        ValueError: If the writer was not finished.
    """
    with (
        atomic_files.new_directory(
            directory, last=raw_columns.METADATA_FILE
        ) as partial,
        contextlib.closing(ColumnWriter(partial)) as writer,
    ):
        yield writer


def write_columns(
    directory: str | os.PathLike[str],
    chunks: Iterable[packed_entries.Rows],
    words: Sequence[str] | pa.Array,
    client_ids: Sequence[str] | pa.Array | None,
    metadata: Mapping[str, Any],
) -> None:
    """Writes a population directory from chunks of clients.

    Args:
        directory: Directory to create; it must not exist.
        chunks: Rows, as in `ColumnWriter.append_rows`.
        words: The distinct words, in the order of their spelling.
        client_ids: One id a client; None for "0", "1", ...
        metadata: JSON values kept in `population.json`.
    """
    with new_population(directory) as writer:
        writer.set_words(words)
        for rows in chunks:
            writer.append_rows(rows)
        writer.finish(client_ids, metadata)


def write_rows(
    directory: str | os.PathLike[str],
    rows: Iterable[tuple[str, Iterable[tuple[str, int]]]],
) -> None:
    """Writes a small population given in Python; see `ClientWords.from_rows`."""
    ids: dict[str, int] = {}
    found: dict[str, int] = {}
    flat: list[tuple[int, int, int]] = []
    for client_id, words in rows:
        if client_id in ids:
            raise ValueError(
                f"rows: client id {client_id!r} is a duplicate; ids have to differ."
            )
        ids[client_id] = len(ids)
        for word, count in words:
            if count < 1:
                raise ValueError(
                    f"rows: count of {word!r} at client {client_id!r} is "
                    f"{count}; it has to be in 1..{MAX_COUNT}."
                )
            flat.append((ids[client_id], found.setdefault(word, len(found)), count))
    spelled = sorted(found)
    places = {word: place for place, word in enumerate(spelled)}
    id_of_word = np.array([places[word] for word in found], np.int64)
    clients, occurrences, counts = np.array(flat, np.int64).reshape(-1, 3).T
    write_columns(
        directory,
        [canonical_rows.rows(clients, id_of_word[occurrences], counts, len(ids))],
        words=spelled,
        client_ids=list(ids),
        metadata={"source": {"kind": "rows"}},
    )
