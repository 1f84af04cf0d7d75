"""Simulated clients who have the sentences of real people, drawn with replacement.

Each client is one of the people, all equally likely, and has some of that person's
sentences: in random order, up to the first one that would exceed a number of words, but
one sentence at least. Clients are independent of each other.

A `ResampledText` directory holds no text, only which sentences of the people's text
(`client_text`) a client has:

    people.bin         int32 [num_clients]      each client's person
    client_splits.bin  int64 [num_clients + 1]  client i has the sentences
                                                sentences[client_splits[i:i + 2]]
    sentences.bin      int32 [n]                indices into the people's sentences
"""

import contextlib
import functools
import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pyarrow as pa

from federated_hh.files import progress
from federated_hh.populations.columns import (
    client_text,
    raw_column_writer,
    raw_columns,
)

SCHEMA_VERSION = 1
COLUMNS: dict[str, np.dtype] = {
    "people": np.dtype("<i4"),
    "client_splits": np.dtype("<i8"),
    "sentences": np.dtype("<i4"),
}
_CONTENTS = "resampled sentences"
_CLIENTS_AT_ONCE = 1 << 12


class ResampledText(client_text.ClientText):
    """The sentences of simulated clients, each of whom has some of one person's.

    Attributes:
        dtypes: See base class.
    """

    dtypes = client_text.COLUMNS | COLUMNS

    def __init__(
        self,
        directory: str,
        metadata: Mapping[str, Any],
        people: client_text.ClientText,
    ):
        super().__init__(directory, metadata)
        self._people = people

    @classmethod
    def open_with(
        cls, directory: str | os.PathLike[str], people: client_text.ClientText
    ) -> Self:
        """Opens a directory after checking that it is complete.

        Args:
            directory: Directory that `draw` filled.
            people: The text that it was drawn from.

        Raises:
            FileNotFoundError: If there is none at `directory`.
            ValueError: If it is damaged, or holds something else.
        """
        directory = os.path.abspath(directory)
        metadata, files = raw_columns.read_metadata(
            directory, SCHEMA_VERSION, _CONTENTS
        )
        if metadata.get("contents") != _CONTENTS:
            raise ValueError(f"{directory}/population.json: it holds no {_CONTENTS}.")
        clients, drawn = raw_columns.sizes_of(
            directory, metadata, ("num_clients", "num_drawn")
        )
        int32, int64 = COLUMNS["people"], COLUMNS["client_splits"]
        persons = raw_columns.Values(0, people.num_clients - 1)
        sentences = raw_columns.Values(0, people.num_sentences - 1)
        splits = raw_columns.Splits(clients, drawn, least=0)
        columns = {
            "people": raw_columns.Column(int32, clients, persons),
            "client_splits": raw_columns.Column(int64, clients + 1, splits),
            "sentences": raw_columns.Column(int32, drawn, sentences),
        }
        raw_columns.verify(directory, files, columns, strings={})
        return cls(directory, metadata, people)

    @property
    def people(self) -> client_text.ClientText:
        """The text of the people whose sentences the clients have."""
        return self._people

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the people's text, and of which of it clients have."""
        both = self._people.fingerprint + super().fingerprint
        return hashlib.sha256(both.encode()).hexdigest()

    def column_path(self, name: str) -> str:
        """Returns the absolute path of a raw column file, maybe of the people's."""
        if name in COLUMNS:
            return super().column_path(name)
        return self._people.column_path(name)

    @functools.cached_property
    def sentences(self) -> np.ndarray:
        """The sentences that clients have, one client after the other."""
        return self.map("sentences")

    @functools.cached_property
    def person_of(self) -> np.ndarray:
        """Each client's person: int32 [num_clients], indices into `people`."""
        return self.map("people")

    @functools.cached_property
    def client_ids(self) -> pa.LargeStringArray:
        """The ids of the clients' persons."""
        return self._people.client_ids.take(pa.array(self.person_of))

    def used_sentences(
        self, clients: np.ndarray, max_sentences: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the sentences of clients that are used; see base class."""
        places, counts = super().used_sentences(clients, max_sentences)
        return self.sentences[places].astype(np.int64), counts

    def people_of(self, clients: np.ndarray) -> np.ndarray:
        """Returns the people whose sentences clients have; see base class."""
        return np.unique(self.person_of[clients]).astype(np.int64)

    @property
    def about(self) -> str:
        """Meaning of a guarantee for the people, in words."""
        people = self._people.num_clients
        times = np.bincount(self.person_of, minlength=people)
        return (
            f"Simulated clients: each of the {self.num_clients:,} has a random part of "
            f"the text of one of {people:,} people, drawn with replacement. A person "
            f"stands for {times.mean():,.1f} clients on average and {times.max():,} at "
            "most, so the guarantee is for a simulated client and says nothing about "
            "the people."
        )


def draw(
    directory: pathlib.Path,
    people: client_text.ClientText,
    *,
    num_clients: int,
    max_words: int,
    seed: int,
    metadata: Mapping[str, Any],
) -> None:
    """Draws simulated clients, and writes which sentences they have.

    Args:
        directory: An existing directory, empty.
        people: The text of the people who are drawn.
        num_clients: Number of clients, at least 1.
        max_words: Largest number of words of a client's sentences, except where the
            first one has more.
        seed: Seed, at least 0.
        metadata: JSON values stored with the sizes.
    """
    random = np.random.default_rng(np.random.SeedSequence(seed))
    splits = np.asarray(people.client_splits)
    words = np.diff(people.sentence_splits)
    drawn = 0
    columns = raw_column_writer.RawColumnWriter(directory, COLUMNS)
    bar = progress.Progress("Drawing clients", num_clients, "clients")
    with contextlib.closing(columns), bar:
        columns.append("client_splits", np.zeros(1, np.int64))
        for done in range(0, num_clients, _CLIENTS_AT_ONCE):
            size = min(_CLIENTS_AT_ONCE, num_clients - done)
            persons = random.integers(people.num_clients, size=size)
            found = []
            for person in persons.tolist():
                order = splits[person] + random.permutation(
                    splits[person + 1] - splits[person]
                )
                fitting = np.searchsorted(words[order].cumsum(), max_words, "right")
                found.append(order[: max(1, int(fitting))])
            ends = drawn + np.cumsum([len(one) for one in found])
            drawn = int(ends[-1])
            columns.append("people", persons)
            columns.append("client_splits", ends)
            columns.append("sentences", np.concatenate(found))
            bar.set(done + size)
        columns.finish(
            dict(
                metadata,
                schema_version=SCHEMA_VERSION,
                contents=_CONTENTS,
                empty_clients="keep" if people.keeps_empty_clients else "drop",
                num_clients=num_clients,
                num_drawn=drawn,
                num_sentences=people.num_sentences,
                num_tokens=people.num_tokens,
            )
        )
