"""The settings of a training run's server, and the plan that they make."""

import dataclasses
import enum
from typing import Any

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import (
    correlated_noise,
    model_updates,
    rotated_updates,
    toeplitz,
    update_noise,
)
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.privacy.dp_ftrl.update_noise import AdaptiveClip
from federated_hh.rounds import timers
from training.federated import model_average, server_optimizers


class Mechanism(enum.Enum):
    """How noise is added to the sums of rounds."""

    # DP-FTRL: tree-aggregated noise (Kairouz et al. 2021).
    TREE = "dp_ftrl"
    # DP-FedAvg: independent noise in each round (McMahan et al. 2018).
    GAUSSIAN = "dp_fedavg"
    # FedAvg: none, so no guarantee.
    NONE = "fedavg"
    # DP-FTRL with buffered linear Toeplitz noise (McMahan, Xu and Zhang 2024).
    BLT = "blt"
    # DP-FTRL with banded noise (Kalinin and Lampert 2024).
    BANDED = "banded"


_CORRELATED = {
    Mechanism.BLT: correlated_noise.BltNoise,
    Mechanism.BANDED: correlated_noise.BandedNoise,
}
# Whose noise can start anew.
RESTARTED = (Mechanism.TREE, *_CORRELATED)


@dataclasses.dataclass(frozen=True)
class ServerParameters:
    """The server's side of federated training.

    Attributes:
        mechanism: How noise is added.
        cohort_size: m, the clients of a round, by which sums are divided and the noise
            is calibrated; at least 1.
        num_rounds: T, at least 1.
        noise_multiplier: z of the guarantee, above 0; 0 for `Mechanism.NONE`.
        clip_norm: C, or C^0 where it adapts; above 0, infinite only without noise.
        optimizer: How the server steps.
        adaptive_clip: None for a fixed clip norm.
        restart_rounds: Rounds (from 0, increasing) after which the noise starts anew;
            the only ones after which an adaptive clip norm changes. TREE, BLT and
            BANDED only.
        matrix: C, which correlates the noise: of BLT a `blt.Blt`, of BANDED a
            `toeplitz.SquareRoot`.
        rotated: How clipped updates are encoded; None for exact integers.
        average: Of the models that rounds leave; None for the last one.
    """

    mechanism: Mechanism
    cohort_size: int
    num_rounds: int
    noise_multiplier: float
    clip_norm: float
    optimizer: server_optimizers.ServerOptimizer = dataclasses.field(
        default_factory=server_optimizers.Sgdm
    )
    adaptive_clip: AdaptiveClip | None = None
    restart_rounds: tuple[int, ...] = ()
    matrix: toeplitz.Matrix | None = None
    rotated: rotated_updates.RotatedUpdate | None = None
    average: model_average.ModelAverage | None = None

    def __post_init__(self):
        if self.cohort_size < 1:
            raise ValueError(
                f"cohort_size is {self.cohort_size}; it has to be at least 1."
            )
        object.__setattr__(self, "restart_rounds", tuple(self.restart_rounds))
        if self.restart_rounds and self.mechanism not in RESTARTED:
            raise ValueError(
                f"restart_rounds is {self.restart_rounds}, but {self.mechanism.value} "
                "has noise that never starts anew."
            )
        if (self.matrix is not None) != (self.mechanism in _CORRELATED):
            raise ValueError(
                f"matrix is {self.matrix}, which does not go with "
                f"{self.mechanism.value}."
            )
        mechanism = self.update_mechanism()
        if self.rotated is not None:
            self.rotated.check(self.cohort_size, mechanism)

    def update_mechanism(self) -> model_updates.UpdateMechanism:
        """Returns what is released of a round's sum.

        Raises:
            ValueError: If a value is out of range.
        """
        common: dict[str, Any] = {
            "num_rounds": self.num_rounds,
            "clip_norm": self.clip_norm,
        }
        if self.mechanism is Mechanism.NONE:
            self._check_no_noise()
            return model_updates.NoNoise(**common)
        common |= {
            "noise_multiplier": self.noise_multiplier,
            "adaptive_clip": self.adaptive_clip,
        }
        if self.mechanism is Mechanism.GAUSSIAN:
            return update_noise.GaussianNoise(**common)
        common["restart_rounds"] = self.restart_rounds
        if self.mechanism in _CORRELATED:
            return _CORRELATED[self.mechanism](**common, matrix=self.matrix)
        return update_noise.TreeNoise(**common)

    def _check_no_noise(self) -> None:
        if self.noise_multiplier != 0:
            raise ValueError(
                f"noise_multiplier is {self.noise_multiplier}; it has to be 0 for "
                f"{self.mechanism.value}, which adds no noise."
            )
        if self.adaptive_clip is not None:
            raise ValueError(
                f"adaptive_clip is given, but {self.mechanism.value} has no noise "
                "to estimate a norm with; give a fixed clip_norm."
            )

    def plan(
        self, sampler: timers.Timers
    ) -> plan_lib.Plan[Any, Any, model_updates.UpdateMechanism]:
        """Returns the plan of a run.

        Args:
            sampler: How its cohorts come together.

        Raises:
            ValueError: If the sampler is for other rounds or cohorts, or a noisy sum
                could leave its 64 bits.
        """
        for name, mine, other in (
            ("cohort_size", self.cohort_size, sampler.cohort_size),
            ("num_rounds", self.num_rounds, sampler.num_rounds),
        ):
            if mine != other:
                raise ValueError(
                    f"{name} is {other} for the clients and {mine} for the server."
                )
        return training_plan.plan_of(sampler, self.update_mechanism(), self.rotated)
