"""Writes the files of a population of words; `client_words` says what they are."""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simulation import (
    arrow_text,
    atomic_files,
    canonical_rows,
    column_metadata,
    raw_columns,
)

SCHEMA_VERSION = 3
MAX_COUNT = int(np.iinfo(np.int32).max)
WORDS_FILE = "words.arrow"
CLIENT_IDS_FILE = "client_ids.arrow"
COLUMNS: dict[str, np.dtype] = {
    "word_ids": np.dtype("<i4"),
    "counts": np.dtype("<i4"),
    "row_splits": np.dtype("<i8"),
    "favorites": np.dtype("<i4"),
}


class ColumnWriter:
    """Writes the files of a population; made by `new_population`.

    Attributes:
        directory: The temporary directory of the population, free for scratch files
            that are removed before `finish`.
    """

    def __init__(self, directory: pathlib.Path):
        self.directory = directory
        self._num_clients = 0
        self._num_entries = 0
        self._max_word_id = -1
        self._columns = raw_columns.RawColumnWriter(directory, COLUMNS)
        self._columns.append("row_splits", np.zeros(1, np.int64))

    def append_rows(self, rows: canonical_rows.Rows) -> None:
        """Appends clients.

        Args:
            rows: Their words, as indices into the words given to `finish`; counts are
                in 1..2**31-1.

        Raises:
            ValueError: If the lengths do not add up, a value is out of range, or the
                words of a client do not ascend.
        """
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
            self._max_word_id = max(self._max_word_id, int(word_ids.max()))
            ascends = word_ids[1:] > word_ids[:-1]
            between = np.cumsum(row_lengths)[:-1] - 1  # the last entry of each row
            ascends[between[(between >= 0) & (between < len(ascends))]] = True
            if not ascends.all():
                raise ValueError("word_ids have to ascend within each row.")
        self._columns.append("word_ids", word_ids)
        self._columns.append("counts", counts)
        self._columns.append("row_splits", row_ends)
        self._columns.append("favorites", rows.favorites)
        self._num_clients += len(row_lengths)
        self._num_entries += added

    def finish(
        self,
        words: Sequence[str] | pa.Array,
        client_ids: Sequence[str] | pa.Array | None,
        metadata: Mapping[str, Any],
    ) -> None:
        """Writes the word table, the client ids and, last, the metadata.

        Args:
            words: The distinct words, in the order of their spelling (`str`'s own).
            client_ids: One id a client; None for "0", "1", ...
            metadata: JSON values kept beside the sizes: origin, what was left out.
        """
        self.close()
        if client_ids is not None and len(client_ids) != self._num_clients:
            raise ValueError(
                f"{len(client_ids)} client ids for {self._num_clients} clients."
            )
        if self._max_word_id >= len(words):
            raise ValueError(
                f"word id {self._max_word_id} for a table of {len(words)} words."
            )
        spelled = arrow_text.column(words)
        if not pc.all(pc.less(spelled[:-1], spelled[1:])).as_py() and len(words) > 1:
            raise ValueError(
                "words have to be distinct, in the order of their spelling."
            )
        self._columns.write_strings("word", spelled)
        if client_ids is not None:
            self._columns.write_strings("client_id", client_ids)
        self._columns.finish(
            dict(
                metadata,
                schema_version=SCHEMA_VERSION,
                num_clients=self._num_clients,
                num_words=len(words),
                num_entries=self._num_entries,
            )
        )

    def close(self) -> None:
        """Closes the column files; also done by `finish`."""
        self._columns.close()


@contextlib.contextmanager
def new_population(directory: str | os.PathLike[str]) -> Iterator[ColumnWriter]:
    """Makes a population directory that appears only when it is whole.

    Args:
        directory: Where; must not exist.

    Yields:
        A writer, to be finished (`ColumnWriter.finish`) inside the block.

    Raises:
        FileExistsError: If `directory` exists, possibly made by another process while
            this one waited for its turn.
        ValueError: If the writer was not finished.
    """
    with (
        atomic_files.new_directory(
            directory, last=column_metadata.METADATA_FILE
        ) as partial,
        contextlib.closing(ColumnWriter(partial)) as writer,
    ):
        yield writer


def write_columns(
    directory: str | os.PathLike[str],
    chunks: Iterable[canonical_rows.Rows],
    words: Sequence[str] | pa.Array,
    client_ids: Sequence[str] | pa.Array | None,
    metadata: Mapping[str, Any],
) -> None:
    """Writes a population directory from chunks of clients.

    Args:
        directory: Where; must not exist.
        chunks: See `ColumnWriter.append_rows`.
        words: The distinct words, in the order of their spelling.
        client_ids: One id a client; None for "0", "1", ...
        metadata: JSON values kept in `population.json`.
    """
    with new_population(directory) as writer:
        for rows in chunks:
            writer.append_rows(rows)
        writer.finish(words, client_ids, metadata)
