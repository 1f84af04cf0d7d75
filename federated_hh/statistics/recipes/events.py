"""The events of simulated devices: typed n-grams, their times, and owners' ages.

The n-grams are of the population's sentences: one event for each word, the word with
those that follow it in its sentence. The rest is synthetic, nobody's, and drawn from
the public seed:

* An owner's age has the law `AGE_SHARES`, and is the higher the longer the known words
  of the device are on average: the normal scores of both are correlated by
  `AGE_CORRELATION`. So n-grams of long words are typed by older owners.
* The seconds before a word, since the last one, have nothing to do with the words. They
  are log-normal: `PAUSE_SHARE` of them pauses, the others typing, whose median is the
  device's own.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import special

from federated_hh.options import checks
from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.columns import client_text, raw_columns
from federated_hh.randomness import streams
from federated_hh.statistics.recipes import contents, store

STREAM = store.EventStream(
    "KeyboardNGrams",
    {"age": "INTEGER", "ngrams": "TEXT", "seconds": "REAL"},
    retention=90 * 86_400,
)
# Of decades from 10 to 80 years.
AGE_SHARES = (0.10, 0.20, 0.20, 0.17, 0.14, 0.11, 0.08)
_FIRST_AGE = 10
AGE_CORRELATION = 0.5
PAUSE_SHARE = 0.06
# Medians in seconds, and standard deviations of the logarithm: of pauses; of a device's
# median typing; and of its typing.
PAUSE_LAW, DEVICE_LAW, TYPING_SPREAD = (20.0, 1.2), (0.6, 0.3), 0.5
# In `NGramEvents.grams`: no word any more, and a word outside the vocabulary.
NONE, UNKNOWN = -2, -1
# Whose texts are in memory at once.
_EVENTS_AT_ONCE = 2**16
# No recipe can ask about it.
_UNKNOWN_WORD = contents.NULL


@dataclasses.dataclass(frozen=True)
class NGramEvents:
    """The events of all devices of a population.

    Attributes:
        words: The known words, which a recipe may ask about; n-grams are places in
            them.
        grams: int32 [events, n]: words, UNKNOWN or NONE; the first is not NONE, and
            after NONE nothing else comes.
        splits: int64 [devices + 1]: the events of device i are splits[i:i + 2].
        ages: int64 [devices], in years.
        seconds: float32 [events]: before the first word, above 0.
    """

    words: tuple[str, ...]
    grams: np.ndarray
    splits: np.ndarray
    ages: np.ndarray
    seconds: np.ndarray

    @property
    def stream(self) -> store.EventStream:
        """The stream of the events."""
        return STREAM

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.splits) - 1

    @property
    def num_events(self) -> int:
        """Number of events."""
        return len(self.grams)

    @classmethod
    def of(
        cls,
        text: client_text.ClientText,
        vocabulary: vocabulary_lib.Vocabulary,
        length: int,
        seed: int,
    ) -> "NGramEvents":
        """Extracts the n-grams of a population's sentences.

        Args:
            text: The sentences, in the words of `vocabulary`.
            vocabulary: The vocabulary of the text.
            length: Words of an n-gram, at least 1; fewer at the end of a sentence.
            seed: The seed of the ages and seconds.
        """
        checks.holds(length >= 1, "at least 1", length=length)
        tokens = np.asarray(text.tokens)
        special = len(vocabulary_lib.SPECIAL_TOKENS)
        known = tuple(
            word for word in vocabulary.words if word not in contents.RESERVED
        )
        place_of = {word: place for place, word in enumerate(known)}
        places_of = [place_of.get(word, UNKNOWN) for word in vocabulary.words]
        words = np.array([UNKNOWN] * special + places_of, np.int32)[tokens]
        splits = np.asarray(text.sentence_splits)
        # For each word the place where its sentence ends.
        ends = np.repeat(splits[1:], np.diff(splits))
        places = np.arange(len(words))
        grams = np.full((len(words), length), NONE, np.int32)
        for i in range(length):
            has = places + i < ends
            grams[has, i] = words[places[has] + i]
        devices = splits[np.asarray(text.client_splits)]
        ages = _ages(_mean_lengths(words, devices, known), seed)
        return cls(known, grams, devices, ages, _seconds(devices, seed))

    def first(self, most: int) -> "NGramEvents":
        """Returns the same devices with at most so many of their first events each."""
        sizes = np.minimum(np.diff(self.splits), most)
        places = raw_columns.ranges(self.splits[:-1], sizes)
        return dataclasses.replace(
            self,
            grams=self.grams[places],
            splits=np.append(0, np.cumsum(sizes)),
            seconds=self.seconds[places],
        )

    def texts(self, grams: np.ndarray) -> list[str]:
        """Returns n-grams as devices store them: words with blanks between them.

        Args:
            grams: int32 [n-grams, n].
        """
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
                self.texts(self.grams[block]),
                self.seconds[block].tolist(),
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


def _mean_lengths(
    words: np.ndarray, splits: np.ndarray, vocabulary: Sequence[str]
) -> np.ndarray:
    """Returns the mean length of each device's known words: float64 [devices].

    Args:
        words: int32 [words]: places in the vocabulary, or UNKNOWN.
        splits: int64 [devices + 1]: the words of device i are splits[i:i + 2].
        vocabulary: The known words.
    """
    lengths = np.append([len(word) for word in vocabulary], 0)  # UNKNOWN is the last
    sums, counts = (
        np.diff(np.append(0, np.cumsum(values))[splits])
        for values in (lengths[words], words >= 0)
    )
    return sums / np.maximum(counts, 1)


def _ages(mean_lengths: np.ndarray, seed: int) -> np.ndarray:
    """Draws ages, which go with the words' lengths: int64 [devices]."""
    generator = streams.generator(seed, "synthetic ages")
    num = len(mean_lengths)
    ranks = np.empty(num)
    # Equal lengths in a random order.
    ranks[np.lexsort((generator.random(num), mean_lengths))] = np.arange(num)
    scores = AGE_CORRELATION * special.ndtri((ranks + 0.5) / num)
    scores += np.sqrt(1 - AGE_CORRELATION**2) * generator.standard_normal(num)
    ends = np.cumsum(AGE_SHARES)[:-1]
    decades = np.searchsorted(ends, special.ndtr(scores), side="right")
    return _FIRST_AGE + 10 * decades + generator.integers(0, 10, num)


def _seconds(splits: np.ndarray, seed: int) -> np.ndarray:
    """Draws the seconds before each word: float32 [events]."""
    generator = streams.generator(seed, "synthetic seconds")
    num = int(splits[-1])
    median, spread = DEVICE_LAW
    devices = np.log(median) + spread * generator.standard_normal(len(splits) - 1)
    logs = generator.standard_normal(num, np.float32)
    is_pause = generator.random(num, np.float32) < PAUSE_SHARE
    medians = np.repeat(devices.astype(np.float32), np.diff(splits))
    pause_median, pause_spread = PAUSE_LAW
    centers = np.where(is_pause, np.float32(np.log(pause_median)), medians)
    spreads = np.where(is_pause, np.float32(pause_spread), np.float32(TYPING_SPREAD))
    return np.exp(centers + spreads * logs)
