"""What text a model was trained on, by hashes, so that it can be compared with other.

A model that private training begins with must not have seen what it is to keep secret.
So a model of `training.pretrain` carries 64-bit hashes of the ids of its clients and of
their long sentences, as token ids of its vocabulary. Short sentences are the same in
any two texts; long ones are not, but for what is quoted and passed on.

Whoever has a record can find out whether a sentence or an id that they think of is in
it: it is for public text.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from simulation import client_text, vocabulary
from training import array_files

# Beside an exported model.
FILE = "trained_on.npz"
# Words of the vocabulary that a sentence has to have.
LEAST_WORDS = 12
_TOKENS_AT_A_TIME = 1 << 21
_ABOUT = "about"
_WHAT = "the record of a model's text"
_MEND = "Export the model again, or remove the file: then nothing is known of its text."


@dataclasses.dataclass(frozen=True)
class Shared:
    """What two texts have in common.

    Attributes:
        is_same: Whether one of the record's is the same population, to the bit.
        ids: Clients of the other text whose id is one of the record's.
        sentences: Its long sentences that are the record's, each as often as it comes.
        writers: How many clients wrote these.
        is_comparable: Whether both have a long sentence.
    """

    is_same: bool
    ids: int
    sentences: int
    writers: int
    is_comparable: bool

    def __bool__(self) -> bool:
        return self.is_same or self.ids > 0 or self.sentences > 0


@dataclasses.dataclass(frozen=True)
class Text:
    """The text of one training.

    Attributes:
        source: Where the text came from, as its user gave it.
        population: The fingerprint of the prepared text.
        num_clients: How many clients the model was trained on.
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
    """What text a model was trained on, by its training and those before it.

    Attributes:
        texts: The texts of each training, the first one first.
        is_whole: Whether all text is in the record: it is not where the first of the
            trainings began with a model that had no record.
        least_words: Known words of the sentences that have a hash.
        ids: uint64, ascending, distinct: hashes of the clients' ids.
        sentences: uint64, ascending, distinct: hashes of their long sentences.
    """

    texts: tuple[Text, ...]
    is_whole: bool
    least_words: int
    ids: np.ndarray
    sentences: np.ndarray

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
            source: What its user calls the text.
        """
        ids = text.client_ids
        is_used = np.zeros(text.num_sentences, bool)
        for client in clients.tolist():
            first, last = text.client_splits[client : client + 2].tolist()
            is_used[first : min(last, first + max_sentences)] = True
        found = [
            hashes[is_long & is_used[first : first + len(hashes)]]
            for first, hashes, is_long in _hashes(text, LEAST_WORDS)
        ]
        num_sentences = int(np.count_nonzero(is_used))
        return cls(
            (Text(source, text.fingerprint, len(clients), num_sentences),),
            True,
            LEAST_WORDS,
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
            # All sentences of both that are so long have a hash.
            least_words=max(first.least_words, self.least_words),
            ids=np.union1d(first.ids, self.ids),
            sentences=np.union1d(first.sentences, self.sentences),
        )

    def shared_with(self, text: client_text.ClientText) -> Shared:
        """Returns what all clients of another text share with the record's.

        Args:
            text: Prepared with the same vocabulary.
        """
        ids = _of_ids(text.client_ids.to_pylist())
        numbers, num_long = [], 0
        for first, hashes, is_long in _hashes(text, self.least_words):
            num_long += int(np.count_nonzero(is_long))
            shared = is_long & _is_in(self.sentences, hashes)
            numbers.append(first + np.flatnonzero(shared))
        sentences = np.concatenate(numbers)
        writers = np.searchsorted(text.client_splits, sentences, side="right")
        return Shared(
            text.fingerprint in [one.population for one in self.texts],
            int(np.count_nonzero(_is_in(self.ids, ids))),
            len(sentences),
            len(np.unique(writers)),
            num_long > 0 and len(self.sentences) > 0,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of all that the record says, in hexadecimal."""
        digest = hashlib.sha256(json.dumps(self._about()).encode())
        for array in (self.ids, self.sentences):
            digest.update(hashlib.sha256(np.asarray(array, "<u8").tobytes()).digest())
        return digest.hexdigest()

    def _about(self) -> dict[str, Any]:
        return {
            "texts": [dataclasses.asdict(one) for one in self.texts],
            "is_whole": self.is_whole,
            "least_words": self.least_words,
        }

    def write(self, folder: str | os.PathLike[str], weights: str) -> None:
        """Writes the record beside an exported model.

        Args:
            folder: The exported model.
            weights: The fingerprint of its weights; see `initial_model.InitialModel`.
        """
        about = self._about() | {"weights": weights}
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        arrays = {_ABOUT: text, "ids": self.ids, "sentences": self.sentences}
        array_files.write(pathlib.Path(folder) / FILE, arrays)

    @classmethod
    def read(cls, folder: str | os.PathLike[str], weights: str) -> Self | None:
        """Returns the record beside an exported model; None where there is none.

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
            about = json.loads(file[_ABOUT].tobytes())
            of = about["weights"]
            record = cls(
                tuple(Text(**one) for one in about["texts"]),
                about["is_whole"],
                about["least_words"],
                file["ids"],
                file["sentences"],
            )
        if of != weights:
            raise ValueError(
                f"{path}, {_WHAT}, is of a model whose weights have the SHA-256 "
                f"{of[:16]}; those of the model beside it have {weights[:16]}. {_MEND}"
            )
        return record


def find(model: str | os.PathLike[str]) -> pathlib.Path | None:
    """Returns where a record is; None where there is none.

    Args:
        model: The exported model, or the directory of its run.
    """
    return array_files.find(model, FILE)


def _of_ids(ids: list[str]) -> np.ndarray:
    """Returns the hashes of ids: uint64 [n]."""
    digests = (hashlib.sha256(one.encode()).digest()[:8] for one in ids)
    return np.frombuffer(b"".join(digests), "<u8")


def _hashes(
    text: client_text.ClientText, least_words: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields, some sentences at a time, where they begin, hashes, and which are long.

    A hash adds up a scrambled number for each token at its place (Zobrist 1970).
    """
    splits = text.sentence_splits
    first = 0
    while first < text.num_sentences:
        most = splits[first] + _TOKENS_AT_A_TIME
        last = max(first + 1, int(np.searchsorted(splits, most, side="right")) - 1)
        starts = (splits[first:last] - splits[first]).astype(np.int64)
        tokens = np.asarray(text.tokens[splits[first] : splits[last]], np.uint64)
        lengths = np.diff(np.append(starts, len(tokens)))
        places = np.arange(len(tokens), dtype=np.uint64)
        places -= np.repeat(starts, lengths).astype(np.uint64)
        hashes = np.add.reduceat(_scrambled((places << np.uint64(32)) | tokens), starts)
        is_known = (tokens != vocabulary.OOV).astype(np.int64)
        yield first, hashes, np.add.reduceat(is_known, starts) >= least_words
        first = last


def _scrambled(numbers: np.ndarray) -> np.ndarray:
    """Returns SplitMix64 of numbers (Steele, Lea and Flood 2014): uint64."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _is_in(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns which values are among others: bool [n]."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return ascending[places] == values
