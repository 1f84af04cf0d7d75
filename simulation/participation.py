"""Who takes part in a round."""

import dataclasses

import numpy as np

from simulation import seeds


@dataclasses.dataclass(frozen=True)
class UniformCohorts:
    """Cohorts of a fixed size, each a uniform sample without replacement.

    Each round draws from the whole population anew, so a client may take part in
    several rounds (Zhu et al. 2020, Algorithm 1).

    Attributes:
        population_size: Clients in the population.
        cohort_size: Clients in a cohort, in [1, population_size].
        seed: The run's seed.
        stream: Tells apart the cohorts of several processes of one run.
    """

    population_size: int
    cohort_size: int
    seed: int
    stream: int = 0

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
        random = seeds.generator(self.seed, "cohort", self.stream, round_number)
        clients = random.choice(
            self.population_size, self.cohort_size, replace=False, shuffle=False
        )
        # The order of a sample means nothing, and ascending indices are read faster.
        return np.sort(clients.astype(np.int64))
