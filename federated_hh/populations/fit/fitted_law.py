"""A fit of clients with habits to a population, and simulations of it.

Two levels: a client's words are a Pitman-Yor process over a common law, which is one
draw of another Pitman-Yor process. The likelihoods of both are those of partitions, if
one takes each distinct word of a client for one draw from the common law. It may be
several, if two draws gave the same word. So both are fitted again to populations
simulated from the fit, whose clients type as many words as those of the data, and the
parameters are adjusted until the fits agree (indirect inference; Gourieroux, Monfort
and Renault 1993).
"""

import dataclasses

import numpy as np
from scipy import optimize

from federated_hh.populations import population_numbers
from federated_hh.populations.columns import canonical_rows
from federated_hh.populations.fit import partition_fit
from federated_hh.populations.options import population_options
from federated_hh.populations.synthetic import pitman_yor, synthetic_english

_ROUNDS = 3
_WORDS_PER_CHUNK = 1 << 20
_LEAST_DISCOUNT, _MOST_DISCOUNT = 1e-6, 0.999


@dataclasses.dataclass(frozen=True)
class Law:
    """A law of clients' words.

    Attributes:
        mean_words: The mean number of words of a client.
        words_sigma: Standard deviation of the logarithm of that number, unrounded.
        discount: The discount of a client's process.
        concentration: The concentration of a client's process.
        common_discount: The discount of the common law.
        common_concentration: The concentration of the common law.
    """

    mean_words: float
    words_sigma: float
    discount: float
    concentration: float
    common_discount: float
    common_concentration: float

    def draw(
        self, rng: np.random.Generator, num_clients: int
    ) -> population_numbers.Rows:
        """Draws a population; words are numbered as the common process gives them."""
        law = synthetic_english.WordsPerClient(self.mean_words, self.words_sigma)
        return self.draw_words(rng, law.draw(rng, num_clients))

    def draw_words(
        self, rng: np.random.Generator, lengths: np.ndarray
    ) -> population_numbers.Rows:
        """Draws a population of clients who type so many words.

        Args:
            rng: Source of randomness.
            lengths: Integers [clients], at least 1.
        """
        num_clients = len(lengths)
        # Clients' words with counts, in chunks of clients.
        owners_of, counts_of = [], []
        chunk = np.cumsum(lengths) // _WORDS_PER_CHUNK
        starts = np.flatnonzero(np.diff(chunk, prepend=-1))
        for low, high in zip(starts, [*starts[1:], num_clients], strict=True):
            of = np.repeat(np.arange(low, high), lengths[low:high])
            is_new, often = pitman_yor.seat(
                rng, lengths[low:high], self.discount, self.concentration
            )
            owners_of.append(of[is_new])
            counts_of.append(often)
        owners, times = np.concatenate(owners_of), np.concatenate(counts_of)
        first, often = pitman_yor.seat(
            rng,
            np.array([len(owners)]),
            self.common_discount,
            self.common_concentration,
        )
        # Given the counts, the order is uniform.
        words = rng.permutation(np.repeat(np.arange(len(first)), often))
        rows = canonical_rows.rows(owners, words, times, num_clients)
        splits = np.append(0, np.cumsum(rows.row_lengths))
        return population_numbers.Rows(rows.word_ids, rows.counts, splits)


@dataclasses.dataclass(frozen=True)
class Fit:
    """A law that was fitted.

    Attributes:
        law: The law.
        errors: Standard errors by the law's attributes.
        simulated: Populations drawn from the law, as large as the fitted one.
        own: The clients' processes, fitted before the correction.
        common: The common process, likewise.
    """

    law: Law
    errors: dict[str, float]
    simulated: list[population_numbers.Rows]
    own: partition_fit.PitmanYorFit
    common: partition_fit.PitmanYorFit


def _fits(
    rows: population_numbers.Rows,
) -> tuple[partition_fit.PitmanYorFit, partition_fit.PitmanYorFit]:
    """Returns the fits of the clients' words, and of how clients share words."""
    holders = rows.holders()
    holders = holders[holders > 0]
    return (
        partition_fit.fit(rows.counts, rows.row_splits),
        partition_fit.fit(holders, np.array([0, len(holders)])),
    )


def words_law(mean: float, sd_of_logarithm: float) -> float:
    """Returns the spread of the unrounded numbers of words.

    Args:
        mean: The mean of the numbers, which are rounded up; at least 1.
        sd_of_logarithm: The standard deviation of the logarithm of the rounded numbers.

    Returns:
        The sigma for which the rounded numbers have both, or the nearest one; 0 if all
        numbers are the same.
    """
    if sd_of_logarithm == 0:
        return 0.0
    numbers = np.unique(
        np.geomspace(1, synthetic_english.MAX_WORDS_PER_CLIENT, 4_000).astype(int)
    )
    logs = np.log(numbers)

    def excess(sigma: float) -> float:
        law = synthetic_english.WordsPerClient(mean, sigma)
        at_most = np.array([law.probability_at_most(int(k)) for k in numbers])
        mass = np.diff(at_most, prepend=0.0)
        first = mass @ logs
        return float(np.sqrt(mass @ (logs - first) ** 2)) - sd_of_logarithm

    # At a small mean a large sigma makes nearly all numbers 1: the smallest one it is.
    grid = np.geomspace(0.05, 3.0, 16)
    found = []
    for sigma in grid:
        found.append(excess(sigma))
        if found[-1] >= 0 and len(found) > 1:
            low = grid[len(found) - 2]
            return float(optimize.brentq(excess, low, sigma, xtol=1e-4))
    return float(grid[np.argmax(found)])


def fit(
    rows: population_numbers.Rows,
    rng: np.random.Generator,
    num_simulations: int,
    *,
    own_lengths: bool,
) -> Fit:
    """Fits the law to a population.

    Args:
        rows: Clients' words; each client has at least one.
        rng: The generator of the simulated populations.
        num_simulations: Simulations of each step; their errors add to the fit's
            by a factor of sqrt(1 + 1 / num_simulations).
        own_lengths: Whether clients of the simulated populations have the word counts
            of uniformly drawn clients of `rows`; otherwise a log-normal number.

    Raises:
        ValueError: If nothing can be fitted: no client has two words, no two share one.
    """
    numbers = population_numbers.Numbers(rows).values()
    lengths = np.bincount(rows.owners(), rows.counts).astype(np.int64)
    mean = numbers["words of a client, mean"]
    sigma = words_law(mean, numbers["words of a client, sd of the logarithm"])
    own, common = _fits(rows)
    wanted = _coordinates(own, common)
    point = wanted
    seeds = rng.integers(0, 2**63, num_simulations)
    for _ in range(_ROUNDS):
        law = _law(mean, sigma, point)
        looks = [
            _fits(law.draw_words(np.random.default_rng(seed), lengths))
            for seed in seeds
        ]
        got = np.mean([_coordinates(*found) for found in looks], axis=0)
        point = point + wanted - got
    law = _law(mean, sigma, point)
    simulated = []
    for seed in seeds:
        drawn = np.random.default_rng(seed)
        if own_lengths:
            lengths_drawn = drawn.choice(lengths, len(lengths))
            simulated.append(law.draw_words(drawn, lengths_drawn))
        else:
            simulated.append(law.draw(drawn, len(lengths)))
    more = np.sqrt(1 + 1 / num_simulations)
    errors = [error * more for error in (*own.errors, *common.errors)]
    names = (
        "discount",
        "concentration",
        "common_discount",
        "common_concentration",
    )
    return Fit(law, dict(zip(names, errors, strict=True)), simulated, own, common)


def _coordinates(
    own: partition_fit.PitmanYorFit, common: partition_fit.PitmanYorFit
) -> np.ndarray:
    """Returns both fits as a point that may be moved: d and log(a + d) of each."""
    return np.array(
        [
            value
            for found in (own, common)
            for value in (
                found.discount,
                np.log(found.concentration + found.discount),
            )
        ]
    )


def _law(mean: float, sigma: float, point: np.ndarray) -> Law:
    discounts = np.clip(point[[0, 2]], _LEAST_DISCOUNT, _MOST_DISCOUNT).tolist()
    # Without repetition no concentration is large enough: the largest is as good.
    highest = np.log(population_options.MAX_CONCENTRATION)
    spare = np.exp(np.minimum(point[[1, 3]], highest)).tolist()
    return Law(
        mean_words=mean,
        words_sigma=sigma,
        discount=discounts[0],
        concentration=spare[0] - discounts[0],
        common_discount=discounts[1],
        common_concentration=spare[1] - discounts[1],
    )
