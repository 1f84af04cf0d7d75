"""Who takes part in a round."""

import dataclasses
import functools

import numpy as np

from randomness import seeds


@dataclasses.dataclass(frozen=True)
class UniformCohorts:
    """Cohorts of a fixed size, each a uniform sample without replacement.

    Each round draws from the whole population anew, so a client may take part in
    several rounds (Zhu et al. 2020, Algorithm 1).

    Attributes:
        population_size: Clients in the population.
        cohort_size: Clients in a cohort, in [1, population_size].
        noise_key: The run's secret, at least 0, where a guarantee rests on the
            sampling.
        stream: What else the cohorts are a function of: words, and numbers at least
            0. Samples of two streams are independent.
    """

    population_size: int
    cohort_size: int
    noise_key: int
    stream: tuple[str | int, ...] = ()

    def __post_init__(self):
        if not 1 <= self.cohort_size <= self.population_size:
            raise ValueError(
                f"cohort_size is {self.cohort_size}; it has to be from 1 to the "
                f"population's {self.population_size:,} clients"
            )

    def cohort(self, round_number: int) -> np.ndarray:
        """Returns the cohort of a round.

        Args:
            round_number: The round, at least 0.

        Returns:
            The clients' indices: int64, shape [cohort_size], ascending, distinct.
        """
        random = seeds.generator(self.noise_key, "cohort", *self.stream, round_number)
        clients = random.choice(
            self.population_size, self.cohort_size, replace=False, shuffle=False
        )
        # The order of a sample means nothing, and ascending indices are read faster.
        return np.sort(clients.astype(np.int64))


class ClientTakesPartTwiceError(RuntimeError):
    """A client of a cohort took part before, where each may do so once."""


@dataclasses.dataclass(frozen=True)
class DisjointCohorts:
    """Cohorts of a fixed size without a client in common.

    The population is put into one random order, and the cohorts are consecutive
    slices of it: each is a uniform sample without replacement of the clients that did
    not take part before.

    Attributes:
        population_size: Clients in the population.
        cohort_size: Clients in a cohort, at least 1.
        num_cohorts: How many cohorts there are, at least 1.
        seed: The run's seed.
    """

    population_size: int
    cohort_size: int
    num_cohorts: int
    seed: int

    def __post_init__(self):
        for name in ("cohort_size", "num_cohorts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; at least 1 needed")
        needed = self.cohort_size * self.num_cohorts
        if needed > self.population_size:
            raise ValueError(
                f"{self.num_cohorts:,} cohorts of {self.cohort_size:,} clients, none "
                f"in two of them, need {needed:,} clients; the population has "
                f"{self.population_size:,}"
            )

    @functools.cached_property
    def _order(self) -> np.ndarray:
        random = seeds.generator(self.seed, "order of clients")
        return random.permutation(self.population_size)

    def cohort(self, number: int) -> np.ndarray:
        """Returns a cohort.

        Args:
            number: In [0, num_cohorts).

        Returns:
            The clients' indices: int64, shape [cohort_size], ascending, distinct.

        Raises:
            ValueError: If there is no such cohort.
        """
        if not 0 <= number < self.num_cohorts:
            raise ValueError(
                f"cohort {number} does not exist; there are {self.num_cohorts}"
            )
        first = number * self.cohort_size
        return np.sort(self._order[first : first + self.cohort_size])

    def rest(self) -> np.ndarray:
        """Returns the clients of no cohort: int64, ascending."""
        return np.sort(self._order[self.num_cohorts * self.cohort_size :])


def mark_participants(participated: np.ndarray, cohort: np.ndarray) -> np.ndarray:
    """Returns who has taken part, once a cohort has.

    Args:
        participated: bool, shape [clients]: who took part before.
        cohort: The clients that take part now: int64, shape [cohort].

    Returns:
        bool, shape [clients]; `participated` is left as it is.

    Raises:
        ClientTakesPartTwiceError: If a client of the cohort took part before, or is
            in the cohort twice.
        ValueError: If a client does not exist.
    """
    if cohort.size and not (cohort.min() >= 0 and cohort.max() < participated.size):
        raise ValueError(
            f"cohort has clients from {cohort.min()} to {cohort.max()}; they have to "
            f"be in [0, {participated.size})"
        )
    before = cohort[participated[cohort]]
    if before.size:
        raise ClientTakesPartTwiceError(
            f"{before.size:,} clients of the cohort took part before, {before[0]} for "
            "one"
        )
    marked = participated.copy()
    marked[cohort] = True
    if np.count_nonzero(marked) - np.count_nonzero(participated) != cohort.size:
        raise ClientTakesPartTwiceError("a client is in the cohort twice")
    return marked
