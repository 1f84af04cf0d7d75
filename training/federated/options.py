"""What a training run is asked for; `training.run_training` has the flags.

Every number has an upper bound: beyond it a setting means nothing, or cannot be
counted, and would end in an overflow or never.
"""

import dataclasses
import math
from typing import TYPE_CHECKING

from federated_hh.options.fields import REQUIRED, OptionError, check, option
from training.federated import adaptive_clip_options, server_optimizer_options
from training.models import model_options, option_limits

if TYPE_CHECKING:  # these import NumPy
    from federated_hh.privacy.dp_ftrl import toeplitz
    from federated_hh.privacy.dp_ftrl.rotated_updates import RotatedUpdate
    from federated_hh.rounds.timers import Timers
    from training.federated.dp_ftrl_parameters import ServerParameters

_DEFAULT_NOISE_MULTIPLIER = 7.0
_DEFAULT_BLT_BUFFERS = 2
# More noise would leave no room for sums in 64 bits.
_LARGEST_NOISE_MULTIPLIER = 2.0**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(
    model_options.ModelOptions,
    server_optimizer_options.ServerOptimizerOptions,
    adaptive_clip_options.AdaptiveClipOptions,
):
    """What a training run is asked for, but for its clients and their text.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    mechanism: str = option(
        "dp_ftrl",
        "Noise of a tree; correlated by a matrix of few buffers, or by a banded one, "
        "which have about half of it; independent; or none. The matrix is made for "
        "--num_rounds, --max_participation and --min_separation, or where that is "
        "unset for what --timer_hours makes of it; any other run is accounted as it "
        "was.",
        choices=("dp_ftrl", "blt", "banded", "dp_fedavg", "fedavg"),
        group="Privacy",
    )
    blt_buffers: int | None = option(
        None,
        "Vectors that the noise of --mechanism=blt remembers, at most; 2 by default.",
        least=1,
        most=4,
        why="a fifth is of no use",
        group="Privacy",
    )
    bands: int | None = option(
        None,
        "With --mechanism=banded: rounds that have noise in common; it remembers a "
        "vector for each but one. Unset: MinS + 1.",
        least=1,
        most=option_limits.LARGEST_COUNT,
        group="Privacy",
    )
    cohort_size: int = option(
        REQUIRED,
        "Clients whose updates a round sums up: the report goal (m).",
        least=1,
        most=2**29 - 1,
        why="the secure sum has 62 bits, and an update takes 33",
        group="Clients and rounds",
    )
    num_rounds: int = option(
        100,
        "Rounds (T).",
        least=1,
        most=100_000,
        why="some fifty times the longest run of Xu et al. 2023",
        group="Clients and rounds",
    )
    noise_multiplier: float | None = option(
        None,
        "z of the guarantee; 7 by default. Not used by fedavg.",
        least=option_limits.LEAST_NOISE,
        most=_LARGEST_NOISE_MULTIPLIER,
        why="less guarantees nothing, and more does not fit into 64 bits",
        group="Privacy",
    )
    epsilon: float | None = option(
        None,
        "Instead of --noise_multiplier: the wanted epsilon at --delta. Takes the "
        "least noise with which the worst participation that --num_rounds, "
        "--min_separation and --max_participation allow is within it.",
        above=0,
        most=1000,
        group="Privacy",
    )
    clip_norm: float | None = option(
        None,
        "Clip norm C, or C^0 with --adaptive_clip. fedavg: may be unset.",
        least=1e-15,
        most=1e15,
        why="squares and sums of updates have to be float32's",
        group="Privacy",
    )
    update_encoding: str = option(
        "exact",
        "How clipped updates are written: as integers of 64 bits that no rounding "
        "shows in; or rotated and rounded at random to small integers, as secure "
        "aggregation takes them (Xu et al. 2023, Algorithm 2): 22 bits a parameter for "
        "6,500 clients, and the guarantee counts the norm that rounding adds.",
        choices=("exact", "rotated"),
    )
    rounding_scale: float | None = option(
        None,
        "With --update_encoding=rotated: the factor s before updates are rounded to "
        "integers; more of it takes more bits, and rounding costs less. Unset: with "
        "which a coordinate of a clipped update is about 10.",
        least=1e-15,
        most=1e30,
        why="more than an integer of 64 bits holds",
    )
    client_learning_rate: float = option(
        0.5,
        "The learning rate of clients' SGD (eta_c).",
        above=0,
        most=option_limits.LARGEST_RATE,
        group="How the model learns",
    )
    client_epochs: int = option(
        1,
        "How often a client goes through its sentences.",
        least=1,
        most=10_000,
        group="How the model learns",
    )
    over_selection: float = option(
        1.0,
        "Clients asked to take part, for each that is needed.",
        least=1,
        most=1000,
        group="Clients and rounds",
    )
    drop_out: float = option(
        0.0,
        "Probability that a client that is asked does not report.",
        least=0,
        below=1,
        group="Clients and rounds",
    )
    timer_hours: int = option(
        24,
        "Simulated time until a client may be asked again.",
        least=0,
        most=10 * 365 * 24,
        unit="hours",
        group="Clients and rounds",
    )
    round_minutes: int = option(
        10,
        "Simulated time that a round takes.",
        least=1,
        most=7 * 24 * 60,
        unit="minutes",
        group="Clients and rounds",
    )
    min_separation: int | None = option(
        None,
        "MinS that is enforced: rounds strictly between two of a client. Unset: "
        "measured.",
        least=0,
        most=option_limits.LARGEST_COUNT,
        group="Clients and rounds",
    )
    max_participation: int | None = option(
        None,
        "MaxP that is enforced. Unset: measured.",
        least=1,
        most=option_limits.LARGEST_COUNT,
        group="Clients and rounds",
    )
    diurnal: bool = option(
        True,
        "Clients are there while they charge and are idle, mostly at night. Else "
        "always.",
        group="Clients and rounds",
    )
    delta: float = option(
        1e-10,
        "Delta of the guarantee.",
        above=0,
        below=1,
        group="Privacy",
    )
    evaluate_every: int = option(
        10,
        "Rounds between evaluations on held-out clients.",
        least=1,
        most=option_limits.LARGEST_COUNT,
        group="What is measured and kept",
    )
    checkpoint_every: int = option(
        10,
        "Rounds between checkpoints.",
        least=1,
        most=option_limits.LARGEST_COUNT,
        group="What is measured and kept",
    )
    num_blocks: int = option(
        4,
        "Into how many TFF client values a cohort is cut: as many cores train at once, "
        "and memory grows with them.",
        least=1,
        most=10_000,
        why="each costs a quarter of a millisecond and more",
        group="What is measured and kept",
    )

    def __post_init__(self):
        check(self)
        self._check_beginning()
        self._check_optimizer()
        if self.is_private and self.clip_norm is None:
            raise OptionError(self, "{mechanism=} needs {clip_norm}")
        self._check_encoding()
        self._check_settings_of_others()
        self._check_adaptive()
        if self.epsilon is None:
            return
        if not self.is_private:
            raise OptionError(
                self,
                "{epsilon=}, but {mechanism=} adds no noise; take another mechanism, "
                "or leave {epsilon} out",
            )
        if self.noise_multiplier is not None:
            raise OptionError(
                self,
                "{epsilon=} and {noise_multiplier=}: give one of them, the other "
                "follows",
            )

    def _check_encoding(self) -> None:
        if self.update_encoding != "rotated":
            if self.rounding_scale is not None:
                raise OptionError(
                    self, "{rounding_scale=} is no setting of {update_encoding=}"
                )
            return
        if self.clip_norm is None:
            raise OptionError(self, "{update_encoding=} needs {clip_norm}")
        if self.adaptive_clip:
            raise OptionError(
                self,
                "{adaptive_clip=}, but {update_encoding=} has a fixed clip norm; leave "
                "one of them out",
            )

    def _check_settings_of_others(self) -> None:
        """Refuses what only another mechanism has."""
        for name in ("first_restart", "restart_period"):
            given = getattr(self, name) is not None and self.adaptive_clip
            if given and self.mechanism == "dp_fedavg":
                raise OptionError(
                    self,
                    f"{{{name}=}}, but {{mechanism=}} has no noise that starts anew; "
                    "leave it out, or take another mechanism",
                )
        for name, mechanism in (("bands", "banded"), ("blt_buffers", "blt")):
            if getattr(self, name) is not None and self.mechanism != mechanism:
                raise OptionError(
                    self,
                    f"{{{name}=}} is no setting of {{mechanism=}}, but of {mechanism}",
                )

    def _check_adaptive(self) -> None:
        self._check_adaptive_settings()
        if self.adaptive_clip and self.is_private and self.epsilon is None:
            noise = self._given_noise()
            other = "a lower {noise_multiplier}"
            self._check_count_noise(noise, self.cohort_size, other)

    def _given_noise(self) -> float:
        given = self.noise_multiplier
        return _DEFAULT_NOISE_MULTIPLIER if given is None else given

    @property
    def num_blt_buffers(self) -> int:
        """Vectors that the noise of blt remembers, at most."""
        given = self.blt_buffers
        return _DEFAULT_BLT_BUFFERS if given is None else given

    @property
    def is_private(self) -> bool:
        """Whether the mechanism adds noise."""
        return self.mechanism != "fedavg"

    def server_parameters(self, num_values: int | None = None) -> "ServerParameters":
        """Returns the server's side, its noise solved for where an epsilon is given.

        Args:
            num_values: The model's parameters, where updates are rotated.

        Raises:
            ValueError: If the options do not fit.
        """
        from training.federated import dp_ftrl_parameters as lib
        from training.federated import model_average, noise_settings

        mechanism = lib.Mechanism(self.mechanism)
        restarts: tuple[int, ...] = ()
        if mechanism in lib.RESTARTED:
            restarts = self.restarts(self.num_rounds)
        matrix = noise_settings.matrix_of(self, restarts)
        rotated = noise_settings.rotated_update(self, num_values)
        return lib.ServerParameters(
            mechanism=mechanism,
            cohort_size=self.cohort_size,
            num_rounds=self.num_rounds,
            noise_multiplier=self._noise_multiplier(restarts, matrix, rotated),
            clip_norm=math.inf if self.clip_norm is None else self.clip_norm,
            optimizer=self.optimizer(),
            adaptive_clip=self.clip_estimate(self.cohort_size),
            restart_rounds=restarts,
            matrix=matrix,
            rotated=rotated,
            average=model_average.ModelAverage.of(self.model_average),
        )

    def _noise_multiplier(
        self,
        restart_rounds: tuple[int, ...],
        matrix: "toeplitz.Matrix | None",
        rotated: "RotatedUpdate | None",
    ) -> float:
        """Returns z: the one that is given, or the least one for the wanted epsilon."""
        from training.federated import noise_settings

        if not self.is_private:
            return 0.0
        if self.epsilon is None:
            return self._given_noise()
        found = noise_settings.least_noise_multiplier(
            self, restart_rounds, matrix, rotated
        )
        if found > _LARGEST_NOISE_MULTIPLIER:
            raise OptionError(
                self,
                "{epsilon=} needs a noise multiplier of {found:.3g}, above the "
                "largest, {largest:g}; raise {epsilon}, or lower {num_rounds} or "
                "{max_participation}",
                found=found,
                largest=_LARGEST_NOISE_MULTIPLIER,
            )
        if self.adaptive_clip:
            other = "a larger {epsilon}"
            self._check_count_noise(found, self.cohort_size, other)
        return found

    def participation_rule(self, num_clients: int) -> "Timers":
        """Returns how the clients of a round come together.

        Args:
            num_clients: Who train.

        Raises:
            ValueError: If the options do not fit the number of clients.
        """
        from federated_hh.rounds import timers

        try:
            return timers.Timers(
                num_clients=num_clients,
                cohort_size=self.cohort_size,
                num_rounds=self.num_rounds,
                over_selection=self.over_selection,
                drop_out=self.drop_out,
                timer_hours=self.timer_hours,
                round_minutes=self.round_minutes,
                min_separation=self.min_separation,
                max_participation=self.max_participation,
                availability=timers.DiurnalAvailability() if self.diurnal else None,
            )
        except ValueError as error:
            raise ValueError(
                f"{str(error).removesuffix('.')}; {self.num_held_out_clients:,} others "
                "are held out (--num_held_out_clients)."
            ) from error
