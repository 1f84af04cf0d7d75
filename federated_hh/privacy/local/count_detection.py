"""Detection of a value by a noisy count: one-hot reports of disjoint cohorts."""

import dataclasses
import math

from scipy import special

from federated_hh.privacy import guarantee, searches
from federated_hh.privacy.local import ldp_triehh_detection
from federated_hh.privacy.shuffle import amplification as shuffling

# By randomizer: the share of a replacement's epsilon that is its parameter.
_PARAMETER = {
    shuffling.Randomizer.ASYMMETRIC_ONE_HOT: 1.0,
    shuffling.Randomizer.SYMMETRIC_ONE_HOT: 0.5,
}


@dataclasses.dataclass(frozen=True)
class CountDetection:
    """Counts that an analyst gets from equal parts of a population, one a query.

    Attributes:
        population: Number of clients.
        num_queries: Number of queries, each to a cohort of its own.
        reports: The clients' reports.
        spent: Central guarantee of a client, who is asked once.
    """

    population: int
    num_queries: int
    reports: shuffling.Reports
    spent: guarantee.Guarantee

    @classmethod
    def within(
        cls,
        *,
        population: int,
        num_queries: int,
        epsilon: float,
        delta: float,
        local_epsilon: float,
        randomizer: str,
    ) -> "CountDetection":
        """Returns the counts with the least noise that a budget allows.

        Args:
            population: Number of clients.
            num_queries: Number of queries, at least 1.
            epsilon: Largest central epsilon of a client, in (0, 100].
            delta: Delta of the central guarantee, in (0, 1).
            local_epsilon: Largest local epsilon of a report, for replacement.
            randomizer: "asymmetric_one_hot" or "symmetric_one_hot".

        Raises:
            ValueError: An argument is outside its range.
        """
        kind = shuffling.Randomizer(randomizer)
        if kind not in _PARAMETER:
            names = " or ".join(known.value for known in _PARAMETER)
            raise ValueError(f"randomizer is {randomizer}; devices send {names}")
        cohort = population // num_queries
        if cohort < 2:
            raise ValueError(
                f"population is {population:,}; it has to be at least "
                f"{2 * num_queries:,}, two clients for each query"
            )

        def counts(local: float) -> "CountDetection":
            reports = shuffling.Reports(randomizer=kind, local_epsilon=local)
            spent = shuffling.amplify(reports, num_reports=cohort, delta=delta)
            return cls(population, num_queries, reports, spent)

        found = counts(local_epsilon * _PARAMETER[kind])
        if found.spent.epsilon <= epsilon:
            return found
        local = shuffling.largest_local_epsilon(
            kind, epsilon=epsilon, delta=delta, num_reports=cohort
        )
        return counts(local)

    @property
    def cohort_size(self) -> int:
        """Clients that a query asks."""
        return self.population // self.num_queries

    @property
    def standard_error(self) -> float:
        """Standard error of the estimate of an empty cell, in clients."""
        own, other = self._probabilities
        return math.sqrt(self.cohort_size * other * (1 - other)) / (own - other)

    def holders_needed(self, rate: float, min_standard_errors: float) -> int | None:
        """Returns the clients that must hold a value so that its count stands out.

        Every holder that is asked reports the value; its count is taken as normal.

        Args:
            rate: Wanted probability, in (0, 1).
            min_standard_errors: Standard errors of an empty cell that a count exceeds.

        Returns:
            Holders among the whole population; None where all are too few.
        """
        own, other = self._probabilities
        quantile = float(special.ndtri(rate))
        least = min_standard_errors * self.standard_error

        def stands_out(holders: int) -> bool:
            asked = holders / self.num_queries
            noise = min(asked, self.cohort_size) * own * (1 - own)
            noise += max(0.0, self.cohort_size - asked) * other * (1 - other)
            chosen = asked * (1 - 1 / self.num_queries) * (own - other) ** 2
            spread = math.sqrt(noise + chosen) / (own - other)
            return asked - quantile * spread >= least

        return searches.first_true(stands_out, 1, self.population)

    @property
    def _probabilities(self) -> tuple[float, float]:
        """Probabilities that a report speaks for its own value, and for another."""
        law = ldp_triehh_detection.probabilities_of(
            self.reports.randomizer.value, self.reports.local_epsilon
        )
        return law(2)
