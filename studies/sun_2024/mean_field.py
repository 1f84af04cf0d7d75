"""The mean-field law of Algorithm 2 of Sun et al. 2024: coverage without clients.

All clients draw from one law of words. A client without habits that types n words
types each word w a Poisson(n q_w) number of times. A client with habits (a Pitman-Yor
process) makes fewer new draws, and repeats each of them: its counts are compound
Poisson. So the candidates of a level that a client holds are independent, and so are
their counts. Of each class of clients, by n, the law of the reported items follows; the
sum of all clients' items is drawn from its mean, each candidate's on its own.
Everything after that is the algorithm itself: Subset Selection's noise, ties, trie,
passes.

What is approximate: the number of a client's items above, or besides, one of them is
taken for normal; a client's items compete by their means, not in one draw; the new
draws of a client with habits are taken at their mean.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable

import numpy as np
from scipy import special

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions, found_words
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as parameters_lib
from federated_hh.heavy_hitters.ldp_triehh import results
from federated_hh.populations.columns import generated_words
from federated_hh.randomness import identities, noise_keys
from federated_hh.rounds import steps

# Candidates of nearly equal mass are one bin.
_BINS_PER_FACTOR_OF_E = 25
# Classes of clients by volume.
_CLASSES = 30
# Standard deviations beyond which a normal number is neglected.
_WIDTH = 8.0
# A word of which a client makes more new draws than this is one that it reports.
_MOST_RATE = 700.0


@dataclasses.dataclass(frozen=True)
class Habits:
    """Repetition of a client's own words: a Pitman-Yor process.

    Attributes:
        discount: Its discount, in [0, 1).
        concentration: Its concentration, above 0.
    """

    discount: float
    concentration: float

    def repeats(self, words: float) -> tuple[float, np.ndarray]:
        """Returns a client's expected new draws, and how often each is typed.

        Args:
            words: Number of words that the client types, at least 1; it is rounded.

        Returns:
            The expected number, and the share of the draws that are typed 1, 2, ...
            times: float64 [words]. Pitman 2006, "Combinatorial stochastic processes",
            equation (3.11) and its sums.
        """
        d, a = self.discount, self.concentration
        n = max(1, round(words))
        m = np.arange(1, n + 1)
        log = (
            *(special.gammaln(n + 1), -special.gammaln(m + 1)),
            *(-special.gammaln(n - m + 1), special.gammaln(m - d)),
            *(-special.gammaln(1 - d), special.gammaln(a + d + n - m)),
            *(-special.gammaln(a + d), special.gammaln(a + 1)),
            -special.gammaln(a + n),
        )
        numbers = np.exp(sum(log))
        return float(numbers.sum()), numbers / numbers.sum()


@dataclasses.dataclass(frozen=True)
class Volumes:
    """Classes of clients by the number of words that they type.

    Attributes:
        means: Mean number of words of a client of each class: float64 [classes].
        shares: Share of the clients in each: float64 [classes], with the sum 1.
        habits: Habits of all clients; None for independent draws.
    """

    means: np.ndarray
    shares: np.ndarray
    habits: Habits | None = None

    @classmethod
    def of(
        cls, population: generated_words.GeneratedWords, habits: Habits | None = None
    ) -> "Volumes":
        """Returns classes of a population's clients, nearly equally large.

        Args:
            population: The population.
            habits: See `Volumes`.
        """
        chances = population.typed_chances
        kind = np.minimum((np.cumsum(chances) * _CLASSES).astype(int), _CLASSES - 1)
        shares = np.bincount(kind, chances)
        typed = np.bincount(kind, chances * np.arange(1, len(kind) + 1))
        some = shares > 0
        # Of what a client types, so much is of the law's words.
        means = typed[some] / shares[some] * population.ends[-1]
        return cls(means, shares[some] / shares.sum(), habits)

    @functools.cached_property
    def draws(self) -> tuple[tuple[float, np.ndarray], ...]:
        """New draws of a client of each class, and the law of how often each counts."""
        if self.habits is None:
            return tuple((mean, np.ones(1)) for mean in self.means)
        return tuple(self.habits.repeats(mean) for mean in self.means)


def reported_shares(
    masses: np.ndarray,
    volumes: Volumes,
    bound: int,
    sampler: contributions.ItemSampler,
) -> np.ndarray:
    """Returns the share of the clients that report each candidate.

    Args:
        masses: The probability of each candidate in one draw: float64 [candidates].
        volumes: The classes of clients.
        bound: The most items of a client (B).
        sampler: Choice of a client with more items.

    Returns:
        float64 [candidates], in [0, 1].
    """
    exists = masses > 0
    if not exists.any():  # every word was found
        return np.zeros(len(masses))
    logs = np.log(masses[exists])
    bins = np.floor(logs * _BINS_PER_FACTOR_OF_E).astype(np.int64)
    _, bin_of, sizes = np.unique(bins, return_inverse=True, return_counts=True)
    means = np.bincount(bin_of, masses[exists]) / sizes
    of = {
        contributions.ItemSampler.GREEDY: _greedy,
        contributions.ItemSampler.RANDOM: _random,
    }[sampler]
    of_bins = sum(
        share * of(draws * means, sizes, bound, repeats)
        for (draws, repeats), share in zip(volumes.draws, volumes.shares, strict=True)
    )
    # Within a bin the share grows with the mass, nearly in proportion.
    shares = np.zeros(len(masses))
    ratio = np.interp(logs, np.log(means), np.log(of_bins) - np.log(means))
    shares[exists] = np.minimum(1, np.exp(logs + ratio))
    return shares


def _normal(mean: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns whole numbers from 0 on, and their probabilities, near a normal law."""
    spread = max(np.sqrt(variance), 1e-9)
    low = max(0, int(mean - _WIDTH * spread))
    numbers = np.arange(low, int(mean + _WIDTH * spread) + 2)
    ends = special.ndtr((numbers + 0.5 - mean) / spread)
    return numbers, np.diff(ends, prepend=0.0)


def _random(
    rates: np.ndarray, sizes: np.ndarray, bound: int, repeats: np.ndarray
) -> np.ndarray:
    """Returns P(a candidate is reported) where all held ones are equally likely.

    Args:
        rates: Mean number of a client's new draws of a candidate: float64 [bins].
        sizes: Candidates of each bin: int64 [bins].
        bound: The most items of a client.
        repeats: P(a new draw counts 1, 2, ...): float64 [largest], with the sum 1.
    """
    del repeats
    held = -np.expm1(-rates)
    mean = float(sizes @ held)
    variance = float(sizes @ (held * (1 - held)))

    def chosen(others: float) -> float:
        numbers, weights = _normal(others, variance)
        return float(weights @ np.minimum(1, bound / (1 + numbers)))

    # A candidate's rivals are all others: fewer by its own probability.
    with_itself, without = chosen(mean), chosen(max(0.0, mean - 1))
    return held * (with_itself + held * (without - with_itself))


def _greedy(
    rates: np.ndarray, sizes: np.ndarray, bound: int, repeats: np.ndarray
) -> np.ndarray:
    """Returns P(a candidate is reported) where the most frequent are; see `_random`.

    Of candidates with equal counts, random ones are reported.
    """
    most = 8
    while True:
        equal = _counts(rates, repeats, most)
        above = np.maximum(0, 1 - np.cumsum(equal, axis=0))
        # A count's candidates above it and equal to it, and the former's variance.
        means, ties = above @ sizes, equal @ sizes
        variances = (above * (1 - above)) @ sizes
        is_sure = means + ties + _WIDTH * np.sqrt(variances + ties) + 1 < bound
        if is_sure[-1]:
            break
        most *= 2
    least_sure = max(1, int(np.argmax(is_sure)))
    reported = above[least_sure - 1].copy()
    spreads = _WIDTH * np.sqrt(variances)
    for count in range(least_sure - 1, 0, -1):
        if means[count] - spreads[count] - 1 > bound:
            break

        def chosen(others: float, count: int = count) -> float:
            numbers, weights = _normal(others, variances[count])
            places = (bound - numbers) / max(ties[count], 1.0)
            return float(weights @ np.clip(places, 0, 1))

        with_itself = chosen(means[count])
        without = chosen(max(0.0, means[count] - 1))
        reported += equal[count] * (
            with_itself + above[count] * (without - with_itself)
        )
    return reported


def _counts(rates: np.ndarray, repeats: np.ndarray, most: int) -> np.ndarray:
    """Returns P(a candidate's count is 0, 1, ..., most): float64 [most + 1, bins].

    By Panjer's recursion for compound Poisson numbers; see `_random`.
    """
    rates = np.minimum(rates, _MOST_RATE)
    weights = np.arange(1, len(repeats) + 1) * repeats
    found = np.zeros((most + 1, len(rates)))
    found[0] = np.exp(-rates)
    for count in range(1, most + 1):
        terms = weights[:count]
        earlier = found[count - len(terms) : count][::-1]
        found[count] = rates / count * (terms @ earlier)
    return found


@identities.identity("studies.sun_2024.MeanField")
class MeanField(ldp_triehh.LdpTrieHH):
    """Algorithm 2 whose clients' items are drawn from their mean-field law."""

    def __init__(
        self,
        population: generated_words.GeneratedWords,
        parameters: parameters_lib.LdpTrieHHParameters,
        alphabet: alphabet_lib.Alphabet,
        habits: Habits | None = None,
    ):
        """See base class; only the population's law is used.

        Args:
            population: The law of words and of volumes.
            parameters: See base class.
            alphabet: See base class.
            habits: Habits of all clients; None for independent draws.
        """
        super().__init__(population, parameters, alphabet)
        self._masses = masses_of(population)
        self._volumes = Volumes.of(population, habits)

    def _collect(self, state, cohort, stream):
        """See base class."""
        candidates = self._candidate_of_word(state)
        known = candidates >= 0
        size = state.trie.num_candidates
        masses = np.bincount(candidates[known], self._masses[known], size)
        shares = reported_shares(
            masses,
            self._volumes,
            self.parameters.contribution_bound,
            self.parameters.sampler,
        )
        random = stream.at("items").generator()
        items = random.binomial(len(cohort), shares)
        # Where all clients have more than B items the sum is fixed.
        excess = items.sum() - self.parameters.reports_per_level
        if excess > 0:
            items -= random.multinomial(excess, items / items.sum())
        return np.maximum(items, 0)

    def worker(self):
        """Returns a context that does nothing: no client computes."""
        return contextlib.nullcontext()


def run(algorithm: MeanField, seed: int) -> ldp_triehh.LdpTrieHHState:
    """Returns the last state of a run in memory.

    Args:
        algorithm: The algorithm.
        seed: Seed of cohorts, items and noise.
    """
    rounds = steps.Steps(
        algorithm, seed=seed, noise_key=noise_keys.NoiseKey.of_seed(seed)
    )
    progress = rounds.begin()
    while (query := algorithm.next_query(progress.state)) is not None:
        drawn = rounds.draw(progress)
        total = rounds.ask(progress, query, drawn.cohort)
        progress = rounds.update(progress, query, drawn, total).progress
    return progress.state


def masses_of(population: generated_words.GeneratedWords) -> np.ndarray:
    """Returns the probability of each word in one draw: float64 [words]."""
    return population.chances / population.ends[-1]


def coverage(
    population: generated_words.GeneratedWords,
    found: Iterable[found_words.FoundWord],
    max_depth: int,
) -> list[float]:
    """Returns the coverage by found words of at most 1, 2, ... letters.

    It is the expected share of all typed words, without those of fewer letters than a
    run is scored on.

    Args:
        population: The clients.
        found: The words found.
        max_depth: The most letters.
    """
    words = population.words.to_pylist()
    mass = {
        word: float(share)
        for word, share in zip(words, masses_of(population), strict=True)
        if len(word) >= results.LEAST_CHARACTERS
    }
    of_length = np.zeros(max_depth + 1)
    for word in {word.text for word in found} & mass.keys():
        of_length[len(word)] += mass[word]
    return (np.cumsum(of_length)[1:] / sum(mass.values())).tolist()
