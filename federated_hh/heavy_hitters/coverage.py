"""Coverage: the share of clients' contributions that found words make up.

Sun et al. 2024, Section 4: "the total number of user contributions in the discovered
set of words divided by the total number of user contributions in the entire target
set", estimated by a counting task within a group of users. Here a simulation knows the
whole population's counts too, and so the true coverage.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from federated_hh.heavy_hitters import generated_clients
from federated_hh.populations.columns import client_words, generated_words
from federated_hh.populations.languages import hangul
from federated_hh.randomness import streams

_ENTRIES_AT_ONCE = 1 << 24
_CLIENTS_AT_ONCE = 1 << 20


@dataclasses.dataclass(frozen=True)
class WordTotals:
    """The total contributions of a population's clients.

    Attributes:
        contributions: int64, shape [words]: how often each word was typed.
        holders: int64, shape [words]: how many clients have it. Of generated clients
            both are expectations, float64.
        index: Each word's place in the population's words.
    """

    contributions: np.ndarray
    holders: np.ndarray
    index: dict[str, int]

    @classmethod
    def of(cls, population: generated_words.Words) -> "WordTotals":
        """Counts a population's words; the counts are cached next to it."""
        index = {word: i for i, word in enumerate(population.words.to_pylist())}
        if isinstance(population, generated_words.GeneratedWords):
            return cls(population.occurrences(), population.holders, index)

        def count() -> np.ndarray:
            totals = np.zeros([2, population.num_words], np.int64)
            for entries in _slices(population.num_entries):
                words = population.word_ids[entries]
                counts = population.counts[entries]
                # Sums of integers below 2^53 are exact in float64.
                typed = np.bincount(words, counts, population.num_words)
                totals[0] += typed.astype(np.int64)
                totals[1] += np.bincount(words, minlength=population.num_words)
            return totals

        path = population.derived_column("word_totals", count)
        totals = np.fromfile(path, np.int64).reshape(2, population.num_words)
        return cls(totals[0], totals[1], index)

    def places(self, words: Iterable[str]) -> np.ndarray:
        """Returns each word's place: int64, -1 for a word that nobody has.

        Of generated clients, that is one that less than one client has on average.
        """
        places = np.array([self.index.get(word, -1) for word in words], np.int64)
        # The word table may hold words that no client has.
        absent = (places < 0) | (np.append(self.holders, 0)[places] < 1)
        return np.where(absent, -1, places)

    def coverage(self, words: Iterable[str]) -> float:
        """Returns the true coverage of distinct words, in [0, 1].

        Args:
            words: The words found; those that nobody has cover nothing.

        Returns:
            nan where nothing was contributed.
        """
        places = self.places(words)
        found = int(self.contributions[places[places >= 0]].sum())
        every = int(self.contributions.sum())
        return found / every if every else math.nan

    def of_length(self, least: int) -> "WordTotals":
        """Returns the contributions of words of so many characters or more.

        Args:
            least: Shorter words are taken for never contributed; their holders stay.
                A Hangul syllable counts as its two or three letters.
        """
        spelled = map(hangul.letters, self.index)
        lengths = np.fromiter(map(len, spelled), np.int64, len(self.index))
        counted = np.where(lengths >= least, self.contributions, 0)
        return dataclasses.replace(self, contributions=counted)


@dataclasses.dataclass(frozen=True)
class CoverageEstimate:
    """The counting task's estimate of coverage.

    Attributes:
        coverage: In [0, 1].
        standard_error: The standard error of the coverage, as clients are a random
            sample and the words are given; 0 for a single client.
        num_clients: Clients that counted.
        contributions: Their total contributions.
    """

    coverage: float
    standard_error: float
    num_clients: int
    contributions: int


class CountingTask:
    """Counts a group of clients' contributions (Sun et al. 2024, Section 4).

    The counts are exact and carry no local privacy: the task measures an algorithm on
    words that are already known, and is not part of its output.

    Attributes:
        clients: The group: int64, shape [clients], distinct.
    """

    def __init__(
        self,
        population: generated_words.Words,
        clients: np.ndarray,
        counted: np.ndarray | None = None,
    ):
        """Stores a group of clients.

        Args:
            population: The population.
            clients: Indices into it: int64, distinct; a random sample of clients, for
                the standard error to mean anything.
            counted: The words that count, whether found or not: bool, shape [words];
                None for all.

        Raises:
            ValueError: If there is no client, or one that does not exist.
        """
        if not clients.size:
            raise ValueError("clients is empty; the counting task needs at least one")
        if not 0 <= clients.min() <= clients.max() < population.num_clients:
            raise ValueError(
                f"clients are from {clients.min()} to {clients.max()}; they have to be "
                f"in [0, {population.num_clients})"
            )
        self.clients = np.sort(clients)
        self._population = population
        self._counted = counted

    def estimates(
        self, word_sets: Sequence[np.ndarray], population_size: int | None = None
    ) -> list[CoverageEstimate]:
        """Estimates the coverage of each of several sets of words.

        Args:
            word_sets: For each set the places of its words in the population's words.
            population_size: Clients that the group was drawn from, for the finite
                population correction; None for the whole population.

        Returns:
            An estimate a set: the ratio of two sums over the clients, with the
            standard error of a ratio estimator (Cochran 1977, Section 6.4); nan where
            the group contributed nothing.
        """
        population = self._population
        is_found = np.zeros([len(word_sets), population.num_words], bool)
        for row, words in zip(is_found, word_sets, strict=True):
            row[words] = True
        size = population.num_clients if population_size is None else population_size
        every, found = self._counts(is_found)
        return [_ratio(row, every, size) for row in found]

    def _counts(self, is_found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns clients' counts of all words, and of the words of each set.

        Args:
            is_found: bool, shape [sets, words].
        """
        population = self._population
        if isinstance(population, generated_words.GeneratedWords):
            return self._drawn_counts(population, is_found)
        every = np.zeros(len(self.clients), np.int64)
        found = np.zeros([len(is_found), len(self.clients)], np.int64)
        for part in self._parts(population):
            rows = population.rows(self.clients[part])
            words, counts = rows.word_ids, rows.counts
            ends = np.cumsum(rows.row_lengths)
            if self._counted is not None:
                counts *= self._counted[words]
            every[part] = _sums(counts, ends)
            for row, mask in zip(found, is_found, strict=True):
                row[part] = _sums(np.where(mask[words], counts, 0), ends)
        return every, found

    def _drawn_counts(
        self, population: generated_words.GeneratedWords, is_found: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draws clients' counts of words that are in the same sets; see `_counts`.

        They are Poisson, as those of single words are. The group takes part in nothing
        else, so that no other draw of its words has to agree.
        """
        chances = population.chances
        if self._counted is not None:
            chances = np.where(self._counted, chances, 0.0)
        kinds, kind = np.unique(is_found, axis=1, return_inverse=True)
        means = np.bincount(kind.ravel(), chances, kinds.shape[1])
        # Of all words, and of the words of each set.
        sums = np.vstack([np.ones_like(kinds[:1]), kinds]).astype(np.int64)
        found = np.zeros([len(sums), len(self.clients)], np.int64)
        random = streams.generator(population.metadata["seed"], "counted words")
        for first in range(0, len(self.clients), _CLIENTS_AT_ONCE):
            some = slice(first, first + _CLIENTS_AT_ONCE)
            typed = generated_clients.typed_by(population, self.clients[some])
            found[:, some] = sums @ random.poisson(np.outer(means, typed))
        return found[0], found[1:]

    def _parts(self, population: client_words.ClientWords) -> Iterator[slice]:
        """Yields slices of the clients that fit in memory."""
        lengths = np.diff(population.row_splits)[self.clients]
        group = np.cumsum(lengths) // _ENTRIES_AT_ONCE
        cuts = np.flatnonzero(np.diff(group)) + 1
        edges = [0, *cuts.tolist(), len(self.clients)]
        for first, last in itertools.pairwise(edges):
            yield slice(first, last)


def _slices(size: int) -> Iterator[slice]:
    for first in range(0, size, _ENTRIES_AT_ONCE):
        yield slice(first, min(first + _ENTRIES_AT_ONCE, size))


def _sums(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Returns the sum of each run of values; `ends` says where the runs end."""
    totals = np.concatenate([[0], np.cumsum(values)])[ends]
    return np.diff(totals, prepend=0)


def _ratio(
    found: np.ndarray, every: np.ndarray, population_size: int
) -> CoverageEstimate:
    total = int(every.sum())
    if not total:
        return CoverageEstimate(math.nan, math.nan, len(every), 0)
    ratio = int(found.sum()) / total
    size = len(every)
    error = 0.0
    if size > 1:
        residuals = float(np.square(found - ratio * every).sum())
        share_left = max(0.0, 1 - size / population_size)
        error = math.sqrt(share_left * residuals * size / (size - 1)) / total
    return CoverageEstimate(ratio, error, size, total)
