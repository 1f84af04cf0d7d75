"""Sums of model updates, their release, and FedAvg.

Clients send clipped updates, encoded as integers whose L2 norm is at most 2^32, which
stands for the clip norm C, or updates as they are. `update_noise` has the mechanisms
that add noise to the sum.
"""

import abc
import dataclasses
import fractions
import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.randomness import identities, integer_noise, streams

# b: a clipped update's norm is at most 2^b in the integers of the sum.
FRACTION_BITS = 32


@dataclasses.dataclass(frozen=True)
class UpdateSum:
    """The sum of a cohort's updates.

    Attributes:
        parts: By the weights' names: int64 where updates are clipped, in units of
            C / 2^32; else float32.
        num_clients: Clients of the cohort: the mean's divisor.
        num_below: Clients whose update is no longer than the tracked norm.
        num_non_finite: Clients whose update is not finite, and counts as zero.
    """

    parts: Mapping[str, np.ndarray]
    num_clients: int
    num_below: int
    num_non_finite: int

    @property
    def num_summed(self) -> int:
        """The number of clients' updates in the sum."""
        return self.num_clients

    def scaled(self, clip_norm: float) -> dict[str, np.ndarray]:
        """Returns the sum by the weights' names: float32.

        Args:
            clip_norm: C that the clients were told; infinite where none was.
        """
        unit = unit_of(clip_norm)
        return {
            name: (part * unit).astype(np.float32) for name, part in self.parts.items()
        }


@dataclasses.dataclass(frozen=True)
class PartialUpdateSum(UpdateSum):
    """The sum of those of a cohort who did not drop out.

    Attributes:
        num_left: Their number.
    """

    num_left: int

    @property
    def num_summed(self) -> int:
        """The number of clients' updates in the sum."""
        return self.num_left


@identities.identity("Update", without="population_has_empty_clients")
@dataclasses.dataclass(frozen=True)
class Update(plan_lib.Contribution):
    """A client's model update, which nothing bounds.

    Attributes:
        population_has_empty_clients: Whether clients without sentences are in the
            population.
        norm_factor: The most that the L2 norm of what a client moves a sum by is, over
            the clip norm; None where nothing bounds it.
    """

    population_has_empty_clients: bool = dataclasses.field(default=True, kw_only=True)

    @property
    def norm_factor(self) -> fractions.Fraction | None:
        """See the class."""
        return None

    @property
    def rho_factor(self) -> fractions.Fraction:
        """The zCDP cost over that of an update of the clip norm's length."""
        return fractions.Fraction(
            1 if self.norm_factor is None else self.norm_factor**2
        )

    def check(self, cohort_size: int, mechanism: "UpdateMechanism") -> None:
        """Raises `ValueError` where a mechanism does not go with such updates.

        Args:
            cohort_size: Clients of a round.
            mechanism: Mechanism that releases their sum.
        """
        if (self.norm_factor is not None) != math.isfinite(mechanism.clip_norm):
            raise ValueError(
                f"clip_norm is {mechanism.clip_norm}, which does not go with "
                f"{type(self).__name__}."
            )
        mechanism.check_room(math.ceil(cohort_size * (self.norm_factor or 1)))

    def parameters(self) -> dict[str, float | int | str]:
        """Returns the encoding's parameters in statements, by name."""
        return {}

    def metrics(self) -> dict[str, int]:
        """Returns a client's costs of a round, where they are known; released."""
        return {}


@identities.identity("ClippedUpdate", without="population_has_empty_clients")
@dataclasses.dataclass(frozen=True)
class ClippedUpdate(Update):
    """A client's model update, clipped, in integers whose norm is bounded.

    Attributes:
        sensitivity: The most that their L2 norm is.
    """

    sensitivity: ClassVar[int] = 1 << FRACTION_BITS

    @property
    def norm_factor(self) -> fractions.Fraction:
        """See `Update`."""
        return fractions.Fraction(1)


@dataclasses.dataclass(frozen=True)
class ReleasedUpdate:
    """The part of a round that the server sees.

    Attributes:
        total: The sum of the updates, by the weights' names: float32.
        num_clients: The number of clients of the sum.
        clip_norm: C of the next round.
        tracked_norm: C^t, the current estimate where the clip adapts; else C.
    """

    total: Mapping[str, np.ndarray]
    num_clients: int
    clip_norm: float
    tracked_norm: float


@dataclasses.dataclass(frozen=True)
class UpdateState:
    """A mechanism's state between rounds.

    Attributes:
        round_number: Rounds done.
        clip_norm: C, to which the next round's updates are clipped.
        tracked_norm: The current estimate where the clip adapts; else the clip norm.
        noise: Name of the noise on updates.
        count_noise: State of the noise on counts.
    """

    round_number: int
    clip_norm: float
    tracked_norm: float
    noise: integer_noise.NoiseState = dataclasses.field(
        default_factory=integer_noise.NoiseState
    )
    count_noise: integer_noise.NoiseState = dataclasses.field(
        default_factory=integer_noise.NoiseState
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class UpdateMechanism(plan_lib.Mechanism[UpdateState]):
    """Makes releases from sums of updates.

    Attributes:
        num_rounds: T, the rounds of a repeat; at least 1.
        clip_norm: C, or C^0 where it adapts; above 0, infinite only without noise.
        name: A short name, for statements.
        about: Description of the mechanism, for statements.
        planned: Way to compute the cost from limits, for statements.
        realised: Way to compute it from participations.
        verifiability: Ways for others to check the claims.
    """

    num_rounds: int
    clip_norm: float

    name: ClassVar[str]
    about: ClassVar[str]
    planned: ClassVar[str] = "None: there is no noise."
    realised: ClassVar[str] = "None: there is no noise."
    verifiability: ClassVar[str]

    def __post_init__(self):
        checks.holds(self.num_rounds >= 1, "at least 1", num_rounds=self.num_rounds)

    def initialize(self) -> UpdateState:
        """Returns the state before the first round."""
        return UpdateState(0, self.clip_norm, self.clip_norm)

    def check_room(self, cohort_size: int) -> None:
        """Raises `ValueError` where a noisy sum could leave its integers."""

    def parameters(self, num_rounds: int) -> dict[str, float | int | str]:
        """Returns the mechanism's parameters in statements, by name.

        Args:
            num_rounds: Rounds done.
        """
        del num_rounds
        values: dict[str, float | int | str] = {"mechanism": self.name}
        if math.isfinite(self.clip_norm):
            values["first clip norm"] = self.clip_norm
        return values

    @abc.abstractmethod
    def zcdp(self, limits: plan_lib.Limits, num_rounds: int) -> float:
        """Returns rho after some rounds, for zero-out adjacency of one client.

        Args:
            limits: Limits of all participations, cut to what MinS and the rounds
                allow.
            num_rounds: Rounds done, in [1, self.num_rounds].

        Returns:
            rho in the worst case; infinite without noise.
        """

    @abc.abstractmethod
    def observed_zcdp(
        self, clients: np.ndarray, rounds: np.ndarray, num_rounds: int
    ) -> float:
        """Returns rho after some rounds, for those who really took part.

        Args:
            clients: int [participations], which client.
            rounds: int [participations], in which round, from 0.
            num_rounds: Rounds done, in [1, self.num_rounds].

        Returns:
            rho of the client whose participations cost the most; infinite without
            noise.
        """


@identities.identity("NoNoise", "num_rounds clip_norm")
@dataclasses.dataclass(frozen=True, kw_only=True)
class NoNoise(UpdateMechanism):
    """FedAvg: releases the sum unchanged, with no guarantee."""

    name: ClassVar[str] = "fedavg"
    about: ClassVar[str] = "FedAvg: sums without noise (McMahan et al. 2017)"
    verifiability: ClassVar[str] = "There is no claim to check."

    def __post_init__(self):
        super().__post_init__()
        checks.holds(self.clip_norm > 0, "above 0", clip_norm=self.clip_norm)

    def parameters(self, num_rounds: int) -> dict[str, float | int | str]:
        """Returns the mechanism's parameters in statements, by name."""
        return super().parameters(num_rounds) | {"noise multiplier z": 0.0}

    def release(
        self,
        total: UpdateSum,
        state: UpdateState,
        facts: plan_lib.Facts,
        stream: streams.Stream,
    ) -> plan_lib.Release[UpdateState]:
        """Returns `ReleasedUpdate`, of an `UpdateSum`."""
        del facts, stream
        norm = self.clip_norm
        value = ReleasedUpdate(total.scaled(norm), total.num_clients, norm, norm)
        after = dataclasses.replace(state, round_number=state.round_number + 1)
        return plan_lib.Release(value, after, metrics_of(norm, norm, 0.0))

    def zcdp(self, limits: plan_lib.Limits, num_rounds: int) -> float:
        """Returns infinity."""
        return math.inf

    def observed_zcdp(
        self, clients: np.ndarray, rounds: np.ndarray, num_rounds: int
    ) -> float:
        """Returns infinity."""
        return math.inf


def unit_of(clip_norm: float) -> float:
    """Returns the unit of a sum's integers.

    Args:
        clip_norm: C; infinite where updates are not clipped.
    """
    return 1.0 if math.isinf(clip_norm) else clip_norm / ClippedUpdate.sensitivity


def metrics_of(
    clip_norm: float, tracked_norm: float, noise_stddev: float
) -> dict[str, float]:
    """Returns the metrics of a round.

    Args:
        clip_norm: The one in force.
        tracked_norm: The estimate after the round.
        noise_stddev: The standard deviation of the noise on a coordinate of a tree's
            node or of the sum; of correlated noise, before it is correlated.
    """
    return {
        "clip_norm": clip_norm,
        "tracked_norm": tracked_norm,
        "noise_stddev": noise_stddev,
    }
