"""Samplers of cohorts: uniform, without a client in common, or everybody."""

import dataclasses
import functools

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan
from federated_hh.randomness import identities, streams


class ClientTakesPartTwiceError(RuntimeError):
    """A client takes part more often than its sampler allows."""


@dataclasses.dataclass(frozen=True)
class _Cohorts:
    """Fields and checks of samplers with a fixed cohort size.

    Attributes:
        num_clients: Clients of the population.
        cohort_size: Clients of a round, in [1, num_clients].
    """

    num_clients: int
    cohort_size: int

    def __post_init__(self):
        limits = f"from 1 to the population's {self.num_clients:,} clients"
        is_possible = 1 <= self.cohort_size <= self.num_clients
        checks.holds(is_possible, limits, cohort_size=self.cohort_size)


@identities.identity("UniformCohorts", "num_clients cohort_size")
@dataclasses.dataclass(frozen=True)
class UniformCohorts(_Cohorts, plan.Sampler[None]):
    """Cohorts that are uniform samples without replacement of all clients.

    Each round draws from the whole population again, so a client may take part in
    several rounds (Zhu et al. 2020, Algorithm 1). Sampling protects only from people
    who do not know the cohort: it is drawn from the noise key.
    """

    sampling = plan.Sampling.UNIFORM
    is_secret = True

    def initialize(self) -> None:
        """Returns None: the sampler is stateless."""

    def draw(self, state: None, number: int, stream: streams.Stream) -> plan.Draw[None]:
        """Draws a cohort; see `federated_hh.privacy.plan.Sampler`."""
        random = stream.generator("cohort", number)
        clients = random.choice(
            self.num_clients, self.cohort_size, replace=False, shuffle=False
        )
        # The order of a sample means nothing, and ascending indices are read faster.
        return plan.Draw(np.sort(clients.astype(np.int64)), state)

    def limits(self, num_rounds: int) -> plan.Limits:
        """Returns limits that any participation is within."""
        return plan.Limits(num_rounds, 0)


@dataclasses.dataclass(frozen=True)
class Participants:
    """The participants of a repeat.

    Attributes:
        took_part: Whether each client took part: bool [num_clients].
        cohorts: Number of cohorts so far.
    """

    took_part: np.ndarray
    cohorts: int


@identities.identity("DisjointCohorts", "num_clients cohort_size")
@dataclasses.dataclass(frozen=True)
class DisjointCohorts(_Cohorts, plan.Sampler[Participants]):
    """Cohorts without a client in common.

    The population is put into one random order, and the cohorts are consecutive
    slices of it: each is a uniform sample without replacement of the clients that did
    not take part before (Sun et al. 2024, Algorithm 2).
    """

    sampling = plan.Sampling.DISJOINT
    is_secret = False

    def initialize(self) -> Participants:
        """Returns the state before anybody took part."""
        return Participants(np.zeros(self.num_clients, bool), 0)

    def draw(
        self, state: Participants, number: int, stream: streams.Stream
    ) -> plan.Draw[Participants]:
        """Draws a cohort; see `federated_hh.privacy.plan.Sampler`.

        Raises:
            ValueError: If there are too few clients left.
            ClientTakesPartTwiceError: If one of them took part before.
        """
        first = number * self.cohort_size
        if first + self.cohort_size > self.num_clients:
            raise ValueError(
                f"round {number + 1}: {number + 1:,} disjoint cohorts of "
                f"{self.cohort_size:,} clients need {first + self.cohort_size:,} "
                f"clients; the population has {self.num_clients:,}. Lower the cohort "
                "size or the number of rounds"
            )
        order = _order(self.num_clients, stream)
        cohort = np.sort(order[first : first + self.cohort_size])
        twice = cohort[state.took_part[cohort]]
        if twice.size or state.cohorts != number:
            raise ClientTakesPartTwiceError(
                f"round {number + 1}: {state.cohorts} cohorts took part before, with "
                f"{twice.size:,} of this round's clients; each client may take part "
                "once"
            )
        took_part = state.took_part.copy()
        took_part[cohort] = True
        return plan.Draw(cohort, Participants(took_part, number + 1))

    def rest(self, num_cohorts: int, stream: streams.Stream) -> np.ndarray:
        """Returns the clients outside the first cohorts: int64, ascending."""
        order = _order(self.num_clients, stream)
        return np.sort(order[num_cohorts * self.cohort_size :])

    def limits(self, num_rounds: int) -> plan.Limits:
        """Returns the limits of one participation."""
        return plan.Limits(1, num_rounds - 1)


@identities.identity("Everybody", "num_clients")
@dataclasses.dataclass(frozen=True)
class Everybody(plan.Sampler[None]):
    """All clients in every round.

    Attributes:
        num_clients: Clients of the population, at least 1.
    """

    num_clients: int

    sampling = plan.Sampling.LIMITED
    is_secret = False

    def __post_init__(self):
        checks.integer(least=1, num_clients=self.num_clients)

    @property
    def cohort_size(self) -> int:  # type: ignore[override]
        """Clients of a round: all."""
        return self.num_clients

    def initialize(self) -> None:
        """Returns None: the sampler is stateless."""

    def draw(self, state: None, number: int, stream: streams.Stream) -> plan.Draw[None]:
        """Draws a cohort; see `federated_hh.privacy.plan.Sampler`."""
        del number, stream
        return plan.Draw(np.arange(self.num_clients), state)

    def limits(self, num_rounds: int) -> plan.Limits:
        """Returns the limits of a participation in each round."""
        return plan.Limits(num_rounds, 0)


@functools.lru_cache(maxsize=1)
def _order(num_clients: int, stream: streams.Stream) -> np.ndarray:
    order = stream.generator("order of clients").permutation(num_clients)
    order.flags.writeable = False
    return order
