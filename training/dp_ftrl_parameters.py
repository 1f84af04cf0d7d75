"""What a training run is made of on the server, and the guarantee that follows.

One value holds the mechanism, its noise, the clip and the report goal; the process
takes all of them from it, and so does the accounting.
"""

import dataclasses
import enum
import math

import numpy as np

from privacy import noise_calibration, tree_aggregation

_LEAST_CLIP_NORM = 1e-15


class Mechanism(enum.Enum):
    """How noise is added to the sums of rounds."""

    # DP-FTRL: tree-aggregated noise (Kairouz et al. 2021).
    TREE = "dp_ftrl"
    # DP-FedAvg: independent noise in each round (McMahan et al. 2018).
    GAUSSIAN = "dp_fedavg"
    # FedAvg: none, so no guarantee.
    NONE = "fedavg"


@dataclasses.dataclass(frozen=True)
class AdaptiveClip:
    """Quantile-based clip estimation (Andrew et al. 2021; Xu et al. 2023, Algorithm 1).

    Attributes:
        count_stddev: sigma_b, noise on the number of clients below the norm; above 0.
            The paper takes a twentieth of the report goal.
        quantile: gamma, the share of updates that are to be left unclipped; in (0, 1).
        learning_rate: eta_gamma, of the norm's logarithm; above 0.
    """

    count_stddev: float
    quantile: float = 0.5
    learning_rate: float = 0.2

    def __post_init__(self):
        for name in ("count_stddev", "learning_rate"):
            _positive(name, getattr(self, name))
        if not 0 < self.quantile < 1:
            raise ValueError(f"quantile is {self.quantile}, must be in (0, 1).")


@dataclasses.dataclass(frozen=True)
class ServerParameters:
    """The server's side of federated training.

    Attributes:
        mechanism: How noise is added.
        report_goal: m, the clients of a round, by which sums are divided and the noise
            is calibrated; at least 1.
        num_rounds: T, at least 1.
        noise_multiplier: z of the guarantee, above 0; 0 for `Mechanism.NONE`.
        clip_norm: C, or C^0 where it adapts; above 0, infinite only without noise.
        server_learning_rate: eta_s, above 0.
        momentum: beta, in [0, 1).
        adaptive_clip: None for a fixed clip norm.
        restart_rounds: Rounds (from 0, increasing) after which the tree starts anew;
            the only ones after which an adaptive clip norm changes. TREE only.
    """

    mechanism: Mechanism
    report_goal: int
    num_rounds: int
    noise_multiplier: float
    clip_norm: float
    server_learning_rate: float = 1.0
    momentum: float = 0.9
    adaptive_clip: AdaptiveClip | None = None
    restart_rounds: tuple[int, ...] = ()

    def __post_init__(self):
        for name in ("report_goal", "num_rounds"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, must be at least 1."
                )
        _positive("server_learning_rate", self.server_learning_rate)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum is {self.momentum}, must be in [0, 1).")
        object.__setattr__(self, "restart_rounds", tuple(self.restart_rounds))
        tree_aggregation.tree_lengths(self.num_rounds, self.restart_rounds)
        if self.restart_rounds and self.mechanism is not Mechanism.TREE:
            raise ValueError(
                f"restart_rounds is {self.restart_rounds}, but {self.mechanism.value} "
                "has no tree."
            )
        self._check_noise()

    def _check_noise(self) -> None:
        if self.mechanism is Mechanism.NONE:
            if self.noise_multiplier != 0:
                raise ValueError(
                    f"noise_multiplier is {self.noise_multiplier}, must be 0 for "
                    f"{self.mechanism.value}, which adds no noise."
                )
            if self.adaptive_clip is not None:
                raise ValueError(
                    f"adaptive_clip is given, but {self.mechanism.value} has no noise "
                    "to estimate a norm with; give a fixed clip_norm."
                )
            if not self.clip_norm > 0:
                raise ValueError(f"clip_norm is {self.clip_norm}, must be above 0.")
            return
        _positive("noise_multiplier", self.noise_multiplier)
        _positive("clip_norm", self.clip_norm)
        if self.clip_norm < _LEAST_CLIP_NORM:
            raise ValueError(
                f"clip_norm is {self.clip_norm}, must be at least {_LEAST_CLIP_NORM}: "
                "a float32 holds no squares of less."
            )
        if self.adaptive_clip is not None:
            limit = 2 * self.adaptive_clip.count_stddev
            if self.noise_multiplier >= limit:
                raise ValueError(
                    f"noise_multiplier is {self.noise_multiplier}, must be below "
                    f"{limit:g}, twice the noise of the clip estimation: this part "
                    "alone would spend the guarantee. Raise count_stddev."
                )

    @property
    def delta_noise_multiplier(self) -> float:
        """z_delta, of the noise on the sum of updates (Xu et al. 2023, Theorem 1).

        With the noise on the counts, whose sensitivity is 1/2, it makes one Gaussian
        mechanism of `noise_multiplier`.
        """
        if self.adaptive_clip is None:
            return float(self.noise_multiplier)
        return noise_calibration.delta_noise_multiplier(
            self.noise_multiplier, self.adaptive_clip.count_stddev
        )

    def zcdp(
        self, num_rounds: int, min_separation: int, max_participation: int
    ) -> float:
        """Returns rho after some rounds, for zero-out adjacency of one client.

        Args:
            num_rounds: Rounds done, in [1, self.num_rounds].
            min_separation: MinS: rounds strictly between two participations.
            max_participation: MaxP: participations of a client; what MinS and the
                number of rounds make impossible is cut off.

        Returns:
            rho; infinite for `Mechanism.NONE`.
        """
        if self.mechanism is Mechanism.NONE:
            return math.inf
        separation = min(min_separation, num_rounds - 1)
        possible = tree_aggregation.largest_participation(num_rounds, separation)
        most = min(max_participation, possible)
        if self.mechanism is Mechanism.GAUSSIAN:
            # Each participation is in one noisy sum.
            return tree_aggregation.zcdp(most, self.noise_multiplier)
        return tree_aggregation.TreeAggregation(
            noise_multiplier=self.noise_multiplier,
            num_rounds=num_rounds,
            min_separation=separation,
            max_participation=most,
            restart_rounds=tuple(r for r in self.restart_rounds if r < num_rounds - 1),
        ).rho

    def observed_zcdp(
        self, clients: np.ndarray, rounds: np.ndarray, num_rounds: int
    ) -> float:
        """Returns rho after some rounds, for those who really took part.

        Args:
            clients: int [participations], which client.
            rounds: int [participations], in which round, from 0.
            num_rounds: Rounds done, in [1, self.num_rounds].

        Returns:
            rho, for zero-out adjacency of the client whose participations cost the
            most; infinite for `Mechanism.NONE`.
        """
        if self.mechanism is Mechanism.NONE:
            return math.inf
        observed = dict(
            noise_multiplier=self.noise_multiplier,
            clients=clients,
            rounds=rounds,
            num_rounds=num_rounds,
        )
        if self.mechanism is Mechanism.GAUSSIAN:
            return tree_aggregation.observed_gaussian_zcdp(**observed)
        return tree_aggregation.observed_zcdp(
            **observed, restart_rounds=self.restart_rounds
        )


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}, must be above 0 and finite.")
