"""The values of --mechanism: each with its options, its matrix and its noise.

Importing this module imports no NumPy, because flags are made from its entries.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # these import NumPy
    from federated_hh.privacy.dp_ftrl import model_updates, toeplitz


class Limits(NamedTuple):
    """The participation that a run allows a client.

    Attributes:
        num_rounds: T, the run's rounds.
        min_separation: MinS, the rounds strictly between two participations; below T.
        max_participation: MaxP, the largest number of participations.
    """

    num_rounds: int
    min_separation: int
    max_participation: int

    @classmethod
    def of(
        cls, num_rounds: int, min_separation: int, max_participation: int | None
    ) -> "Limits":
        """Returns limits that can be reached.

        Args:
            num_rounds: T.
            min_separation: MinS, of any size.
            max_participation: MaxP, of any size; None for the largest possible.
        """
        from federated_hh.privacy.dp_ftrl import tree_aggregation

        separation = min(min_separation, num_rounds - 1)
        possible = tree_aggregation.largest_participation(num_rounds, separation)
        return cls(num_rounds, separation, min(max_participation or possible, possible))


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """A value of --mechanism.

    Attributes:
        help: A phrase for --help that says which noise it adds.
        make: Returns the plan's mechanism, given the fields of
            `federated_hh.privacy.dp_ftrl.update_noise.AddedNoise`, `restart_rounds`
            and `matrix`.
        matrix: Returns the matrix that correlates the noise, given `Limits` of the
            rounds between two restarts and the mechanism's own options; None for
            uncorrelated noise.
        options: Options that only this mechanism has, with their defaults.
        has_noise: True if it adds noise, and so gives a guarantee.
        can_restart: Whether its noise depends on earlier rounds, and can restart.
    """

    help: str
    make: "Callable[..., model_updates.UpdateMechanism]"
    matrix: "Callable[..., toeplitz.Matrix] | None" = None
    options: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    has_noise: bool = True
    can_restart: bool = True

    def least_noise(
        self,
        epsilon: float,
        delta: float,
        limits: Limits,
        restart_rounds: Sequence[int],
        matrix: "toeplitz.Matrix | None",
        factor: float,
    ) -> float:
        """Returns the least noise multiplier for a wanted guarantee.

        Args:
            epsilon: Wanted epsilon.
            delta: Delta of the guarantee.
            limits: Participation limits of the run.
            restart_rounds: Rounds (from 0) after which the noise restarts.
            matrix: The matrix that correlates the noise.
            factor: Factor on rho of an encoding that lengthens updates, at least 1.
        """
        from federated_hh.privacy.dp_ftrl import noise_calibration, planning

        family = "dp_ftrl" if self.can_restart else "dp_fedavg"
        plan = planning.TrainingPlan(
            mechanism=family if matrix is None else "blt",  # or any other with it
            **limits._asdict(),
            restart_rounds=tuple(restart_rounds),
            matrix=matrix,
        )
        if matrix is not None:
            return noise_calibration.noise_multiplier_of(
                lambda z: factor * plan.rho(z), epsilon, delta
            )
        found = plan.noise_multiplier(epsilon, delta)
        # Without correlation, rho is proportional to 1 / z^2.
        return found * math.sqrt(factor) if factor > 1 else found


def _tree(*, matrix: None, **settings: Any) -> "model_updates.UpdateMechanism":
    """DP-FTRL with tree-aggregated noise (Kairouz et al. 2021)."""
    from federated_hh.privacy.dp_ftrl import update_noise

    return update_noise.TreeNoise(**settings)


def _blt(**settings: Any) -> "model_updates.UpdateMechanism":
    """DP-FTRL with buffered linear Toeplitz noise (McMahan, Xu and Zhang 2024)."""
    from federated_hh.privacy.dp_ftrl import correlated_noise

    return correlated_noise.BltNoise(**settings)


def _blt_matrix(limits: Limits, blt_buffers: int) -> "toeplitz.Matrix":
    from federated_hh.privacy.dp_ftrl import blt

    return blt.optimal(
        limits.num_rounds,
        min_separation=limits.min_separation,
        max_participation=limits.max_participation,
        num_buffers=blt_buffers,
    )


def _banded(**settings: Any) -> "model_updates.UpdateMechanism":
    """DP-FTRL with banded noise (Kalinin and Lampert 2024)."""
    from federated_hh.privacy.dp_ftrl import correlated_noise

    return correlated_noise.BandedNoise(**settings)


def _banded_matrix(limits: Limits, bands: int | None) -> "toeplitz.Matrix":
    from federated_hh.privacy.dp_ftrl import toeplitz

    bands = limits.min_separation + 1 if bands is None else bands
    return toeplitz.SquareRoot(min(bands, limits.num_rounds))


def _independent(
    *, matrix: None, restart_rounds: tuple[int, ...], **settings: Any
) -> "model_updates.UpdateMechanism":
    """DP-FedAvg (McMahan et al. 2018)."""
    from federated_hh.privacy.dp_ftrl import update_noise

    return update_noise.GaussianNoise(**settings)


def _without_noise(
    *, num_rounds: int, clip_norm: float, **unused: Any
) -> "model_updates.UpdateMechanism":
    """FedAvg, without a guarantee."""
    from federated_hh.privacy.dp_ftrl import model_updates

    return model_updates.NoNoise(num_rounds=num_rounds, clip_norm=clip_norm)


BY_NAME: Mapping[str, Mechanism] = {
    "dp_ftrl": Mechanism("noise of a tree", _tree),
    "blt": Mechanism(
        "noise correlated by a matrix of a few buffers",
        _blt,
        matrix=_blt_matrix,
        options={"blt_buffers": 2},
    ),
    "banded": Mechanism(
        "noise correlated by a banded matrix",
        _banded,
        matrix=_banded_matrix,
        options={"bands": None},
    ),
    "dp_fedavg": Mechanism(
        "independent noise in each round", _independent, can_restart=False
    ),
    "fedavg": Mechanism("no noise", _without_noise, has_noise=False, can_restart=False),
}
