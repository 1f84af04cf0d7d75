"""A record of a model's training text as hashes, for comparison with other text.

An initial model of private training must not have seen the private text. So a model of
`training.pretrain` carries 64-bit hashes of its clients' ids and of their sequences of
consecutive words, as token ids of its vocabulary. Any two texts share short sequences;
they share a dozen consecutive words only if text is quoted or passed on.

A run with such an initial model keeps its record. Private training only marks it as
incomplete, because its clients' text is not public.

Whoever has a record can test whether given words or an id are in it, so records are for
public text only.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from typing import Any, Self

import numpy as np

from federated_hh.files import array_files, json_files
from federated_hh.populations.columns import client_text
from training.text import text_windows

# Next to an exported model.
FILE = "trained_on.npz"
# Words of the vocabulary in a row.
NUM_WORDS = 12
_ABOUT = "about"
_WHAT = "the record of a model's text"
_MEND = (
    "Train the model again with this version, or remove the file: then nothing is "
    "known of its text."
)

_TEXT = json_files.object_of(
    {
        "source": json_files.TEXT,
        "population": json_files.TEXT,
        "num_clients": json_files.SIZE,
        "num_sentences": json_files.SIZE,
    }
)
_SCHEMA = json_files.object_of(
    {
        "weights": json_files.TEXT,
        "num_words": {"const": NUM_WORDS},
        "texts": {"type": "array", "items": _TEXT},
        "is_whole": {"type": "boolean"},
    }
)


@dataclasses.dataclass(frozen=True)
class Shared:
    """The common parts of two texts.

    Attributes:
        is_same: Whether one of the record's populations is the same, to the bit.
        ids: Clients of the other text whose id is one of the record's.
        sentences: Its sentences with a word sequence in the record, counted with
            repetitions.
        writers: Number of clients who wrote these.
        compared: Its sentences with enough known words; 0 if the record has none.
    """

    is_same: bool
    ids: int
    sentences: int
    writers: int
    compared: int

    def __bool__(self) -> bool:
        return self.is_same or self.ids > 0 or self.sentences > 0


@dataclasses.dataclass(frozen=True)
class Text:
    """The text of one training.

    Attributes:
        source: The source of the text, as its user gave it.
        population: The fingerprint of the prepared text.
        num_clients: Number of clients that the model was trained on.
        num_sentences: Their sentences that it was trained on.
    """

    source: str
    population: str
    num_clients: int
    num_sentences: int

    def __str__(self) -> str:
        return (
            f"{self.num_sentences:,} sentences of {self.num_clients:,} clients of "
            f"{self.source}"
        )


@dataclasses.dataclass(frozen=True)
class TextRecord:
    """A model's training texts, of its own training and earlier ones.

    Attributes:
        texts: The texts of each training, the first one first.
        is_whole: Whether all text is in the record; False if a training was private, or
            its initial model had no record.
        ids: uint64, ascending, distinct: hashes of the clients' ids, in small letters.
        windows: uint64, ascending, distinct: see `text_windows.hashes`.
    """

    texts: tuple[Text, ...]
    is_whole: bool
    ids: np.ndarray
    windows: np.ndarray

    @classmethod
    def of(
        cls,
        text: client_text.ClientText,
        clients: np.ndarray,
        max_sentences: int,
        source: str,
    ) -> Self:
        """Returns the record of the text of clients.

        Args:
            text: All clients' sentences.
            clients: int64 [n], ascending: whose text the model is made of.
            max_sentences: The first sentences of a client that are used.
            source: The user's name of the text.
        """
        ids = text.client_ids
        is_used = np.zeros(text.num_sentences, bool)
        is_used[text.used_sentences(clients, max_sentences)[0]] = True
        found = [np.zeros(0, np.uint64)]
        for sentences, windows in text_windows.hashes(text, NUM_WORDS):
            found.append(np.unique(windows[is_used[sentences]]))
        num_sentences = int(np.count_nonzero(is_used))
        return cls(
            (Text(source, text.fingerprint, len(clients), num_sentences),),
            True,
            np.unique(_of_ids([ids[i].as_py() for i in clients.tolist()])),
            np.unique(np.concatenate(found)),
        )

    def after(self, first: Self | None) -> Self:
        """Returns the record of a training that began with a model.

        Args:
            first: The record of that model; None where it has none.
        """
        if first is None:
            return dataclasses.replace(self, is_whole=False)
        return dataclasses.replace(
            self,
            texts=first.texts + self.texts,
            is_whole=first.is_whole and self.is_whole,
            ids=np.union1d(first.ids, self.ids),
            windows=np.union1d(first.windows, self.windows),
        )

    def passed_on(self) -> Self:
        """Returns the record of a model that began with this one's in private training.

        The text of that training is not in it.
        """
        return dataclasses.replace(self, is_whole=False)

    def shared_with(self, text: client_text.ClientText) -> Shared:
        """Returns the text that clients of another text share with the record's.

        Args:
            text: Prepared with the same vocabulary.
        """
        ids, sentences, compared = self._found_in(text)
        return Shared(
            text.fingerprint in [one.population for one in self.texts],
            len(ids),
            len(sentences),
            len(np.unique(_writers(text, sentences))),
            compared if len(self.windows) else 0,
        )

    def sharing_clients(self, text: client_text.ClientText) -> np.ndarray:
        """Returns the clients of another text who share an id or a sentence.

        Args:
            text: Prepared with the same vocabulary.

        Returns:
            int64, ascending, distinct.
        """
        ids, sentences, _ = self._found_in(text)
        return np.union1d(ids, _writers(text, sentences))

    def _found_in(
        self, text: client_text.ClientText
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """Returns clients by id, sentences by words, and how many have enough words."""
        ids = _of_ids(text.client_ids.to_pylist())
        numbers, compared = [np.zeros(0, np.int64)], 0
        for sentences, windows in text_windows.hashes(text, NUM_WORDS):
            compared += len(np.unique(sentences))
            is_shared = text_windows.is_in(self.windows, windows)
            numbers.append(np.unique(sentences[is_shared]))
        clients = np.flatnonzero(text_windows.is_in(self.ids, ids))
        return clients, np.concatenate(numbers), compared

    @property
    def digest(self) -> str:
        """SHA-256 of the record's contents, in hexadecimal."""
        digest = hashlib.sha256(json.dumps(self._about()).encode())
        for array in (self.ids, self.windows):
            digest.update(hashlib.sha256(np.asarray(array, "<u8").tobytes()).digest())
        return digest.hexdigest()

    def _about(self) -> dict[str, Any]:
        return {
            "texts": [dataclasses.asdict(one) for one in self.texts],
            "is_whole": self.is_whole,
            "num_words": NUM_WORDS,
        }

    def write(self, folder: str | os.PathLike[str], weights: str) -> None:
        """Writes the record next to an exported model.

        Args:
            folder: The exported model.
            weights: The fingerprint of its weights; see `initial_model.InitialModel`.
        """
        about = self._about() | {"weights": weights}
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        arrays = {_ABOUT: text, "ids": self.ids, "windows": self.windows}
        array_files.write(pathlib.Path(folder) / FILE, arrays)

    @classmethod
    def read(cls, folder: str | os.PathLike[str], weights: str) -> Self | None:
        """Returns the record next to an exported model; None if there is none.

        Args:
            folder: The exported model, or the directory of its run.
            weights: The fingerprint of its weights.

        Raises:
            ValueError: If it is damaged, or of a model with other weights.
        """
        path = find(folder)
        if path is None:
            return None
        with array_files.reading(path, _WHAT, _MEND) as file:
            about = json_files.parse(file[_ABOUT].tobytes(), _SCHEMA)
            of = about["weights"]
            record = cls(
                tuple(Text(**one) for one in about["texts"]),
                about["is_whole"],
                file["ids"],
                file["windows"],
            )
        if of != weights:
            raise ValueError(
                f"{path}, {_WHAT}, is of a model whose weights have the SHA-256 "
                f"{of[:16]}; those of the model next to it have {weights[:16]}. {_MEND}"
            )
        return record


def find(model: str | os.PathLike[str]) -> pathlib.Path | None:
    """Returns the path of a record; None if there is none.

    Args:
        model: The exported model, or the directory of its run.
    """
    return array_files.find(model, FILE)


def _writers(text: client_text.ClientText, sentences: np.ndarray) -> np.ndarray:
    """Returns the clients of sentences: int64 [n]."""
    return np.searchsorted(text.client_splits, sentences, side="right") - 1


def _of_ids(ids: list[str]) -> np.ndarray:
    """Returns the hashes of ids: uint64 [n]."""
    digests = (hashlib.sha256(one.casefold().encode()).digest()[:8] for one in ids)
    return np.frombuffer(b"".join(digests), "<u8")
