"""What simulated devices store: n-grams that they typed, and their owners' ages.

The n-grams are of the population's sentences: one event for each word, the word with
those that follow it in its sentence. Ages are synthetic: nobody's, drawn for each
device from one law (`AGE_SHARES`) and the public seed, and have nothing to do with
what it types.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from federated_hh.interactive import store
from randomness import seeds
from simulation import client_text
from simulation import vocabulary as vocabulary_lib

STREAM = store.EventStream(
    "KeyboardNGrams", {"age": "INTEGER", "ngrams": "TEXT"}, retention=90 * 86_400
)
# Of decades from 10 to 80 years.
AGE_SHARES = (0.10, 0.20, 0.20, 0.17, 0.14, 0.11, 0.08)
_FIRST_AGE = 10
# In `NGramEvents.grams`: no word any more, and a word outside the vocabulary.
NONE, UNKNOWN = -2, -1
# Whose texts are in memory at once.
_EVENTS_AT_ONCE = 2**16
_UNKNOWN_WORD = "\N{REPLACEMENT CHARACTER}"


@dataclasses.dataclass(frozen=True)
class NGramEvents:
    """The events of all devices of a population.

    Attributes:
        words: The vocabulary; n-grams are places in it.
        grams: int32 [events, n]: words, UNKNOWN or NONE; the first is not NONE, and
            after NONE nothing else comes.
        splits: int64 [devices + 1]: the events of device i are splits[i:i + 2].
        ages: int64 [devices], in years.
    """

    words: tuple[str, ...]
    grams: np.ndarray
    splits: np.ndarray
    ages: np.ndarray

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.splits) - 1

    @classmethod
    def of(
        cls,
        text: client_text.ClientText,
        vocabulary: vocabulary_lib.Vocabulary,
        length: int,
        seed: int,
    ) -> "NGramEvents":
        """Takes the n-grams from a population's sentences.

        Args:
            text: The sentences, in the words of `vocabulary`.
            vocabulary: Of the text.
            length: Words of an n-gram, at least 1; fewer at the end of a sentence.
            seed: Of the ages.
        """
        if length < 1:
            raise ValueError(f"length is {length}; it has to be at least 1")
        tokens = np.asarray(text.tokens)
        special = len(vocabulary_lib.SPECIAL_TOKENS)
        words = np.where(tokens >= special, tokens - special, UNKNOWN).astype(np.int32)
        splits = np.asarray(text.sentence_splits)
        # For each word the place where its sentence ends.
        ends = np.repeat(splits[1:], np.diff(splits))
        places = np.arange(len(words))
        grams = np.full((len(words), length), NONE, np.int32)
        for i in range(length):
            has = places + i < ends
            grams[has, i] = words[places[has] + i]
        devices = splits[np.asarray(text.client_splits)]
        shares = np.array(AGE_SHARES)
        generator = seeds.generator(seed, "synthetic ages")
        decades = generator.choice(len(shares), text.num_clients, p=shares)
        ages = _FIRST_AGE + 10 * decades + generator.integers(0, 10, text.num_clients)
        return cls(vocabulary.words, grams, devices, ages)

    def text_of(self, gram: Sequence[int]) -> str:
        """Returns an n-gram as a device stores it: words with blanks between them."""
        return " ".join(
            _UNKNOWN_WORD if word == UNKNOWN else self.words[word]
            for word in itertools.takewhile(lambda word: word != NONE, gram)
        )

    def _texts(self, grams: np.ndarray) -> list[str]:
        """Returns what `text_of` does, of many n-grams: int32 [n-grams, n]."""
        words = np.array(["", _UNKNOWN_WORD, *self.words], object)
        spaced = np.array(["", *(f" {word}" for word in words[1:])], object)
        # Places of the words in these, from NONE on.
        texts = words[grams[:, 0] - NONE]
        for column in grams.T[1:]:
            texts += spaced[column - NONE]
        return texts.tolist()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Returns all events as `EventStore.donate` takes them, a second apart."""
        owners = np.repeat(np.arange(self.num_devices), np.diff(self.splits))
        times = np.arange(len(self.grams)) - self.splits[owners]
        for first in range(0, len(self.grams), _EVENTS_AT_ONCE):
            block = slice(first, first + _EVENTS_AT_ONCE)
            yield from zip(
                owners[block].tolist(),
                times[block].tolist(),
                self.ages[owners[block]].tolist(),
                self._texts(self.grams[block]),
                strict=True,
            )

    @property
    def now(self) -> float:
        """A time after all events, in seconds, before any expires."""
        longest = int(np.diff(self.splits).max(initial=0))
        if longest >= STREAM.retention:
            raise ValueError(
                f"a device has {longest:,} events, a second apart; they have to be "
                f"fewer than the {STREAM.retention:,} s that events are kept"
            )
        return float(longest)
