"""Planning of a training run: participation limits, noise and guarantee beforehand.

plan = planning.TrainingPlan.of_population(
    "blt", num_clients=5_000_000, cohort_size=6_500, num_rounds=1_000
)
plan.noise_multiplier(epsilon=8.0, delta=1e-10)
"""

import dataclasses
import functools
import math
from typing import Self

from federated_hh.options import checks
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    noise_calibration,
    toeplitz,
    tree_aggregation,
)

MECHANISMS = ("dp_ftrl", "blt", "banded", "dp_fedavg")
# The search for a matrix looks at all rounds many hundred times.
_MOST_ROUNDS = 100_000
_MOST_CLIENTS = 10**12


class TooFewClientsError(ValueError):
    """The population is smaller than a round needs."""


def limits_of_population(
    num_clients: int,
    cohort_size: int,
    num_rounds: int,
    *,
    num_picked: int | None = None,
    available_share: float = 1.0,
    max_participation: int | None = None,
) -> plan_lib.Limits:
    """Returns the limits under which a client takes part as seldom as possible.

    In every round enough clients remain whom the limits admit, whoever took part
    before: at most `min_separation` cohorts are waiting, and the others are as many as
    the round needs.

    Args:
        num_clients: Number of training clients, n.
        cohort_size: Clients in a round's sum, m.
        num_rounds: Rounds T.
        num_picked: Clients picked for a round; None for `cohort_size`.
        available_share: Share of the clients that a round can count on being
            available, in (0, 1].
        max_participation: A MaxP that is wanted; None for the least possible.

    Raises:
        ValueError: An argument is outside its range.
        TooFewClientsError: The clients are too few for a round.
    """
    checks.integer(num_clients=num_clients, least=1, most=_MOST_CLIENTS)
    checks.integer(cohort_size=cohort_size, num_rounds=num_rounds, least=1)
    checks.fraction(available_share=available_share)
    picked = cohort_size if num_picked is None else num_picked
    room = num_clients - math.ceil(picked / available_share)
    if room < 0:
        raise TooFewClientsError(
            f"num_clients is {num_clients:,}; it has to be at least "
            f"{num_clients - room:,} for rounds of {cohort_size:,} clients: raise it, "
            "or lower cohort_size"
        )
    separation = min(num_rounds - 1, room // cohort_size)
    possible = tree_aggregation.largest_participation(num_rounds, separation)
    if max_participation is None or max_participation >= possible:
        return plan_lib.Limits(possible, separation)
    # Clients without a remaining participation, in addition to waiting ones.
    done = -(-(num_rounds - 1) * cohort_size // max_participation)
    separation = max(0, min(num_rounds - 1, (room - done) // cohort_size))
    return plan_lib.Limits(max_participation, separation)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training run as far as its guarantee and its noise depend on it.

    Attributes:
        mechanism: One of `MECHANISMS`.
        num_rounds: Rounds T.
        min_separation: Enforced MinS, rounds strictly between two participations.
        max_participation: Enforced MaxP; None for what MinS allows.
        restart_rounds: Rounds (from 0, increasing) after which the noise restarts.
        matrix: The matrix that correlates the noise; None for the mechanism's best.
        num_buffers: Most buffers of the best BLT, 1 to 4.
    """

    mechanism: str
    num_rounds: int
    min_separation: int = 0
    max_participation: int | None = None
    restart_rounds: tuple[int, ...] = ()
    matrix: toeplitz.Matrix | None = None
    num_buffers: int = 2

    def __post_init__(self):
        checks.holds(
            self.mechanism in MECHANISMS,
            f"one of {', '.join(MECHANISMS)}",
            mechanism=self.mechanism,
        )
        most = tree_aggregation.largest_participation(
            self.num_rounds, self.min_separation
        )
        if self.max_participation is None:
            object.__setattr__(self, "max_participation", most)
        why = "what MinS allows"
        checks.integer(1, most, why, max_participation=self.max_participation)
        if self.matrix is None and self.mechanism in ("blt", "banded"):
            object.__setattr__(self, "matrix", self._best_matrix())

    @classmethod
    def of_population(
        cls, mechanism: str, *, num_clients: int, cohort_size: int, num_rounds: int
    ) -> Self:
        """Returns the plan whose clients take part as seldom as possible.

        Args:
            mechanism: One of `MECHANISMS`.
            num_clients: Number of training clients, n.
            cohort_size: Clients in a round's sum, m.
            num_rounds: Rounds T.

        Raises:
            ValueError: An argument is outside its range.
        """
        limits = limits_of_population(num_clients, cohort_size, num_rounds)
        return cls(
            mechanism=mechanism,
            num_rounds=num_rounds,
            min_separation=limits.min_separation,
            max_participation=limits.max_participation,
        )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rounds from restart to restart."""
        return tree_aggregation.tree_lengths(self.num_rounds, self.restart_rounds)

    @functools.cached_property
    def square_sensitivity(self) -> float:
        """Squared sensitivity for clip norm 1, in the worst case."""
        most = self.max_participation
        assert most is not None  # the constructor sets it
        if self.matrix is not None:
            return toeplitz.square_sensitivity_of_blocks(
                self.matrix, self.lengths, most, self.min_separation
            )
        if self.mechanism == "dp_fedavg":
            return most
        return tree_aggregation.TreeAggregation(
            noise_multiplier=1.0,
            num_rounds=self.num_rounds,
            min_separation=self.min_separation,
            max_participation=most,
            restart_rounds=self.restart_rounds,
        ).square_sum

    @functools.cached_property
    def prefix_error(self) -> float:
        """Standard deviation of the noise on the worst prefix sum, for z C = 1."""
        if self.matrix is not None:
            errors = (toeplitz.largest_error(self.matrix, n) for n in self.lengths)
            return math.sqrt(sum(error**2 for error in errors))
        if self.mechanism == "dp_fedavg":
            return math.sqrt(self.num_rounds)
        return tree_aggregation.largest_error(self.lengths)

    def rho(self, noise_multiplier: float) -> float:
        """Returns the zCDP for zero-out of a client.

        Args:
            noise_multiplier: z, the noise's standard deviation over the clip norm.
        """
        if self.matrix is None:
            return tree_aggregation.zcdp(int(self.square_sensitivity), noise_multiplier)
        checks.positive(noise_multiplier=noise_multiplier)
        slack = correlated_noise.numeric_slack(self.matrix, self.num_rounds)
        return correlated_noise.zcdp(self.square_sensitivity, noise_multiplier, slack)

    def noise_multiplier(self, epsilon: float, delta: float) -> float:
        """Returns the least z for a wanted guarantee; see `noise_calibration`.

        Args:
            epsilon: Wanted epsilon, in (0, 1000].
            delta: Wanted delta, in (0, 1).
        """
        return noise_calibration.noise_multiplier_of(self.rho, epsilon, delta)

    def _best_matrix(self) -> toeplitz.Matrix:
        block = max(self.lengths)
        checks.integer(num_rounds=block, least=1, most=_MOST_ROUNDS)
        if self.mechanism == "banded":
            return toeplitz.SquareRoot(min(self.min_separation + 1, block))
        assert self.max_participation is not None  # the constructor sets it
        return blt.optimal(
            block,
            min_separation=self.min_separation,
            max_participation=self.max_participation,
            num_buffers=self.num_buffers,
        )
