"""The distribution of words that all synthetic clients share."""

import dataclasses
from typing import Self

import numpy as np

from federated_hh.populations.options import population_options
from federated_hh.populations.synthetic import pitman_yor
from federated_hh.randomness import streams


@dataclasses.dataclass(frozen=True)
class Trends:
    """Words in fashion, which all clients type more often than in English.

    `num_words` of the words that are kept, a uniform draw by the seed. A word kept is
    with probability `share` one of these, the k-th with a chance proportional to
    k ** -exponent, and else drawn from the frequencies of English.

    Attributes:
        share: In [0, 1).
        num_words: Positive; all words where there are fewer.
        exponent: Nonnegative.
        seed: The seed of the population.
    """

    share: float = 0.0
    num_words: int = 1
    exponent: float = 0.0
    seed: int = 0

    def mix(self, weights: np.ndarray) -> np.ndarray:
        """Returns the law of a word kept.

        Args:
            weights: float64 [n], of the words by English, above 0.

        Returns:
            float64 [n], to which the chances are proportional.
        """
        if self.share == 0:
            return weights
        mixed = (1 - self.share) * weights / weights.sum()
        number = min(self.num_words, len(weights))
        rng = streams.generator(self.seed, "words in fashion")
        places = rng.choice(len(weights), number, replace=False)
        shares = np.arange(1, number + 1, dtype=np.float64) ** -self.exponent
        mixed[places] += self.share * shares / shares.sum()
        return mixed


@dataclasses.dataclass(frozen=True)
class CommonLaw:
    """The probability of each word of a list.

    Attributes:
        pitman_yor: Discount and concentration of the Pitman-Yor law whose expected
            masses the words kept have, by rank; None for the frequencies of the list.
        trends: Words in fashion, if any.
        power: Power of the list's frequencies.
    """

    pitman_yor: tuple[float, float] | None = None
    trends: Trends = Trends()
    power: float = 1.0

    @classmethod
    def of(cls, options: population_options.PopulationOptions) -> Self:
        """Returns the common law of a population's options."""
        ranks = None
        if options.common_law == "pitman_yor":
            ranks = (options.common_discount, options.common_concentration)
        trends = Trends(
            options.trending_share,
            options.trending_words,
            options.trending_exponent,
            options.seed,
        )
        return cls(ranks, trends, options.frequency_power)

    @property
    def is_of_kept_words(self) -> bool:
        """Whether it says how likely words kept are, so that none typed is dropped."""
        return self.pitman_yor is not None

    def of_words(self, frequencies: np.ndarray) -> tuple[np.ndarray, float]:
        """Returns the law of a word kept.

        Args:
            frequencies: float64 [n], of the words kept by the list, above 0.

        Returns:
            float64 [n], to which the chances are proportional; and the share that the
            law has of words beyond the list, for which there are none.
        """
        weights, beyond = frequencies, 0.0
        if self.power != 1:
            # Of the largest as 1: a power of a list's counts may be infinite.
            weights = (frequencies / frequencies.max()) ** self.power
        if self.pitman_yor:
            masses, beyond = pitman_yor.expected_masses(
                *self.pitman_yor, len(frequencies)
            )
            weights = np.empty_like(frequencies)
            weights[np.argsort(-frequencies, kind="stable")] = masses
        return self.trends.mix(weights), beyond
