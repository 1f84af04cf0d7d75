"""A population of clients' sentences, as columns on disk.

A `ClientText` directory holds raw little-endian arrays, which NumPy and TensorFlow map
into memory without reading or copying them:

    tokens.bin            int32 [num_tokens]         a word's id in the vocabulary
    sentence_splits.bin   int64 [num_sentences + 1]  sentence i's tokens are
                                                     sentence_splits[i:i + 2]
    client_splits.bin     int64 [num_clients + 1]    client i's sentences are
                                                     client_splits[i:i + 2]
    client_ids.arrow      the clients' names
    population.json       sizes, origin and fingerprint; written last

A client's sentences are in the order of its data. A client may have none; a sentence
has at least one token. Beginning, end and padding are not stored.
"""

import contextlib
import functools
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from federated_hh.files import atomic_files
from federated_hh.populations.columns import raw_column_writer, raw_columns

SCHEMA_VERSION = 2
COLUMNS: dict[str, np.dtype] = {
    "tokens": np.dtype("<i4"),
    "sentence_splits": np.dtype("<i8"),
    "client_splits": np.dtype("<i8"),
}


class ClientText(raw_columns.ColumnStore):
    """The sentences of many clients, read-only and memory-mapped.

    Open one with `ClientText.open`, or make a small one with `from_rows`.

    Attributes:
        dtypes: See base class.
    """

    dtypes = COLUMNS

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Self:
        """Opens a directory after checking that it is complete.

        Args:
            directory: Directory that `write` or `from_rows` made.

        Raises:
            FileNotFoundError: If there is none at `directory`.
            ValueError: If it is damaged, or holds something else.
        """
        directory = os.path.abspath(directory)
        metadata, files = raw_columns.read_metadata(
            directory, SCHEMA_VERSION, "sentences"
        )
        if metadata.get("contents") != "sentences":
            raise ValueError(f"{directory}/population.json: it holds no sentences.")
        clients, sentences, tokens = raw_columns.sizes_of(
            directory, metadata, ("num_clients", "num_sentences", "num_tokens")
        )
        int32, int64 = COLUMNS["tokens"], COLUMNS["client_splits"]
        raw_columns.verify(
            directory,
            files,
            columns={
                "tokens": raw_columns.Column(
                    int32, tokens, raw_columns.Values(0, 2**31 - 1)
                ),
                "sentence_splits": raw_columns.Column(
                    int64,
                    sentences + 1,
                    raw_columns.Splits(sentences, tokens, least=1),
                ),
                "client_splits": raw_columns.Column(
                    int64,
                    clients + 1,
                    raw_columns.Splits(clients, sentences, least=0),
                ),
            },
            strings={"client_id": clients},
        )
        return cls(directory, metadata)

    @classmethod
    def from_rows(
        cls,
        directory: str | os.PathLike[str],
        rows: Iterable[tuple[str, Sequence[Sequence[int]]]],
        metadata: Mapping[str, Any] | None = None,
    ) -> Self:
        """Writes and opens a small population given in Python.

        Args:
            directory: Directory to create; it must not exist.
            rows: For each client its id, distinct, and its sentences as token ids.
            metadata: JSON values stored with the sizes.

        Raises:
            ValueError: On a repeated client id, a sentence without tokens, or a token
                outside int32 or below 0.
            FileExistsError: If `directory` exists.
        """
        rows = list(rows)
        ids = [client_id for client_id, _ in rows]
        if len(set(ids)) < len(ids):
            raise ValueError("rows: a client id is a duplicate; ids have to differ.")
        with (
            new_text(directory) as partial,
            contextlib.closing(ClientTextWriter(partial)) as writer,
        ):
            for _, sentences in rows:
                writer.append(
                    np.array([t for s in sentences for t in s], np.int64),
                    np.array([len(s) for s in sentences], np.int64),
                    np.array([len(sentences)], np.int64),
                )
            writer.finish(ids, {"empty_clients": "keep", **(metadata or {})})
        return cls.open(directory)

    @property
    def num_sentences(self) -> int:
        """Number of sentences."""
        return self.metadata["num_sentences"]

    @property
    def num_tokens(self) -> int:
        """Number of tokens: words of all sentences."""
        return self.metadata["num_tokens"]

    @property
    def keeps_empty_clients(self) -> bool:
        """Whether clients without sentences are kept; False if unknown."""
        return self.metadata.get("empty_clients") == "keep"

    @functools.cached_property
    def tokens(self) -> np.ndarray:
        """All tokens: int32 [num_tokens], memory-mapped."""
        return self.map("tokens")

    @functools.cached_property
    def sentence_splits(self) -> np.ndarray:
        """Start of each sentence's tokens: int64 [num_sentences + 1]."""
        return self.map("sentence_splits")

    @functools.cached_property
    def client_splits(self) -> np.ndarray:
        """Start of each client's sentences: int64 [num_clients + 1]."""
        return self.map("client_splits")

    @functools.cached_property
    def client_ids(self) -> pa.LargeStringArray:
        """The clients' ids, memory-mapped."""
        return self.strings("client_id")

    @property
    def people(self) -> "ClientText":
        """The text of the people whose sentences the clients have: this one."""
        return self

    def people_of(self, clients: np.ndarray) -> np.ndarray:
        """Returns the people whose sentences clients have: ascending and distinct.

        Args:
            clients: int64 [n], ascending and distinct: indices into the population.
        """
        return clients

    @property
    def about(self) -> str:
        """A guarantee's meaning for the people, if they are not the clients."""
        return ""

    def share_of(self, token: int) -> float:
        """Returns a token's share of all tokens; 0 without any."""
        return float((self.tokens == token).mean()) if self.num_tokens else 0.0

    def client(self, index: int) -> list[list[int]]:
        """Returns a client's sentences.

        Args:
            index: The client, in [0, num_clients).

        Returns:
            Its sentences, each a list of token ids.
        """
        self.check_index(index)
        numbers, _ = self.used_sentences(np.array([index]), np.iinfo(np.int64).max)
        splits = self.sentence_splits
        return [
            self.tokens[splits[number] : splits[number + 1]].tolist()
            for number in numbers.tolist()
        ]

    def used_sentences(
        self, clients: np.ndarray, max_sentences: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the sentences of clients that are used, one client after the other.

        Args:
            clients: int64 [n], indices into the population.
            max_sentences: The first sentences of a client that are used.

        Returns:
            int64: indices of the sentences, and [n] how many each client has of them.
        """
        firsts = self.client_splits[clients]
        counts = np.minimum(self.client_splits[clients + 1] - firsts, max_sentences)
        return raw_columns.ranges(firsts, counts), counts


def new_text(
    directory: str | os.PathLike[str],
) -> contextlib.AbstractContextManager[pathlib.Path]:
    """Makes a directory of sentences that appears only when it is whole.

    Args:
        directory: Directory to create; it must not exist.

    Returns:
        A context that yields where a `ClientTextWriter` has to write and finish. It
        raises `FileExistsError` if `directory` exists, and `ValueError` if no writer
        was finished.
    """
    return atomic_files.new_directory(directory, last=raw_columns.METADATA_FILE)


class ClientTextWriter:
    """Writes the files of a `ClientText` into an existing directory."""

    def __init__(self, directory: pathlib.Path):
        self._columns = raw_column_writer.RawColumnWriter(directory, COLUMNS)
        self._num_clients = self._num_sentences = self._num_tokens = 0
        for name in ("sentence_splits", "client_splits"):
            self._columns.append(name, np.zeros(1, np.int64))

    def append(
        self,
        tokens: np.ndarray,
        sentence_lengths: np.ndarray,
        client_lengths: np.ndarray,
    ) -> None:
        """Appends clients.

        Args:
            tokens: Integers [tokens], in [0, 2**31).
            sentence_lengths: Integers [sentences], at least 1: the tokens of each.
            client_lengths: Integers [clients], at least 0: the sentences of each.

        Raises:
            ValueError: If the lengths do not add up or a value is out of range.
        """
        for name, lengths, parts, least in (
            ("sentence_lengths", sentence_lengths, tokens, 1),
            ("client_lengths", client_lengths, sentence_lengths, 0),
        ):
            if lengths.size and lengths.min() < least:
                raise ValueError(
                    f"{name} has {lengths.min()}; it has to be at least {least}."
                )
            if lengths.sum() != len(parts):
                raise ValueError(
                    f"{name} add up to {lengths.sum()}; they have to add up to "
                    f"{len(parts)}."
                )
        if tokens.size and not 0 <= tokens.min() <= tokens.max() < 2**31:
            raise ValueError(
                f"tokens lie in {tokens.min()}..{tokens.max()}; they have to be in "
                f"0..{2**31 - 1}."
            )
        self._columns.append("tokens", tokens)
        ends = self._num_tokens + np.cumsum(sentence_lengths, dtype=np.int64)
        self._columns.append("sentence_splits", ends)
        ends = self._num_sentences + np.cumsum(client_lengths, dtype=np.int64)
        self._columns.append("client_splits", ends)
        self._num_tokens += len(tokens)
        self._num_sentences += len(sentence_lengths)
        self._num_clients += len(client_lengths)

    def finish(self, client_ids: Sequence[str], metadata: Mapping[str, Any]) -> None:
        """Writes the client ids and, last, the metadata.

        Args:
            client_ids: One a client.
            metadata: JSON values stored with the sizes: "empty_clients", which is
                "keep" or "drop", and others.
        """
        if len(client_ids) != self._num_clients:
            raise ValueError(
                f"{len(client_ids)} client ids for {self._num_clients} clients; give "
                "one id per client."
            )
        self._columns.write_strings("client_id", client_ids)
        self._columns.finish(
            dict(
                metadata,
                schema_version=SCHEMA_VERSION,
                contents="sentences",
                num_clients=self._num_clients,
                num_sentences=self._num_sentences,
                num_tokens=self._num_tokens,
            )
        )

    def close(self) -> None:
        """Closes the column files; also done by `finish`."""
        self._columns.close()
