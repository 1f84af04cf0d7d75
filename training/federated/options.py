"""The settings of a training run, from which flags, plan and server follow.

Every number has an upper bound: beyond it a setting means nothing, or ends in an
overflow.
"""

import dataclasses
import functools
from typing import Any

from federated_hh.options.fields import CHOSEN, REQUIRED, OptionError, check, option
from training.federated import mechanisms, server_optimizers
from training.models.model_options import LARGEST_COUNT, LARGEST_RATE, ModelOptions

_DEFAULT_NOISE_MULTIPLIER = 7.0
# Less noise guarantees nothing: at 1e-3, one participation has an epsilon of 500,000.
# Accounting divides by its square, which is far above the smallest float.
_LEAST_NOISE = 1e-3
# More noise would leave no room for sums in 64 bits.
LARGEST_NOISE_MULTIPLIER = 2.0**20
# Settings that need --adaptive_clip. A default of None follows from the report goal.
_ADAPTIVE = {
    "target_quantile": 0.5,
    "clip_learning_rate": 0.2,
    "clipped_count_stddev": None,
    "first_restart": 128,
    "restart_period": 1024,
}
# Options of a topic in --help.
_privacy_option = functools.partial(option, group="Privacy")
_rounds_option = functools.partial(option, group="Clients and rounds")
_learning_option = functools.partial(option, group="How the model learns")
_kept_option = functools.partial(option, group="Evaluation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(ModelOptions):
    """The settings of a training run, but for its clients and their text.

    Raises:
        OptionError: If an option is not allowed, or options do not go together.
    """

    mechanism: str = _privacy_option(
        "dp_ftrl",
        "Noise on the sums of updates: "
        + "; ".join(f"{name}, {kind.help}" for name, kind in mechanisms.BY_NAME.items())
        + ". A matrix halves the noise of a tree. It is made for --num_rounds, "
        "--max_participation and --min_separation (by default what --timer_hours "
        "makes of it); the guarantee of any other participation is accounted, too.",
        choices=tuple(mechanisms.BY_NAME),
    )
    blt_buffers: int | None = _privacy_option(
        None,
        "Largest number of vectors in the state of --mechanism=blt; 2 by default.",
        least=1,
        most=4,
        why="a fifth is of no use",
    )
    bands: int | None = _privacy_option(
        None,
        "With --mechanism=banded: rounds that share noise; its state is a vector for "
        "each but one. By default MinS + 1.",
        least=1,
        most=LARGEST_COUNT,
    )
    cohort_size: int = _rounds_option(
        REQUIRED,
        "Clients in the sum of a round: the report goal (m). The program chooses it, "
        "--num_rounds, --clip_norm and the model's size by the population where they "
        "are not given.",
        least=1,
        most=2**29 - 1,
        why="the secure sum has 62 bits, and an update takes 33",
        marks=CHOSEN,
    )
    num_rounds: int = _rounds_option(
        100,
        "Rounds (T).",
        least=1,
        most=100_000,
        why="some fifty times the longest run of Xu et al. 2023",
        marks=CHOSEN,
    )
    noise_multiplier: float | None = _privacy_option(
        None,
        "z of the guarantee; 7 by default. Not used by fedavg.",
        least=_LEAST_NOISE,
        most=LARGEST_NOISE_MULTIPLIER,
        why="less guarantees nothing, and more does not fit into 64 bits",
    )
    epsilon: float | None = _privacy_option(
        None,
        "Instead of --noise_multiplier: the wanted epsilon at --delta. Takes the "
        "least noise for it. Without --min_separation clients take part as seldom as "
        "the population allows.",
        above=0,
        most=1000,
    )
    allow_useless_noise: bool = _privacy_option(
        False, "Run even if the noise drowns what clients can teach the model."
    )
    allow_unknown_words: bool = option(
        False, "Run even if the vocabulary has fewer than half of the typed words."
    )
    clip_norm: float | None = _privacy_option(
        None,
        "Clip norm C, or C^0 with --adaptive_clip. fedavg: may be unset.",
        least=1e-15,
        most=1e15,
        why="squares and sums of updates have to be float32's",
        marks=CHOSEN,
    )
    update_encoding: str = option(
        "exact",
        "Encoding of clipped updates. exact: integers of 64 bits, with no visible "
        "rounding. rotated: small integers, rotated and rounded at random for secure "
        "aggregation (Xu et al. 2023, Algorithm 2), 22 bits a parameter for 6,500 "
        "clients; the guarantee counts the norm that rounding adds.",
        choices=("exact", "rotated"),
    )
    rounding_scale: float | None = option(
        None,
        "With --update_encoding=rotated: the factor s on updates before they are "
        "rounded to integers. A larger one takes more bits, and rounding costs less. "
        "By default a coordinate of a clipped update is about 10.",
        least=1e-15,
        most=1e30,
        why="more than an integer of 64 bits holds",
    )
    client_learning_rate: float = _learning_option(
        0.5,
        "The learning rate of clients' SGD (eta_c).",
        above=0,
        most=LARGEST_RATE,
    )
    client_epochs: int = _learning_option(
        1,
        "Passes of a client over its sentences.",
        least=1,
        most=10_000,
    )
    over_selection: float = _rounds_option(
        1.0,
        "Clients selected for each client of the report goal.",
        least=1,
        most=1000,
    )
    drop_out: float = _rounds_option(
        0.0,
        "Probability that a selected client does not report.",
        least=0,
        below=1,
    )
    timer_hours: int = _rounds_option(
        24,
        "Simulated time until a client may be selected again.",
        least=0,
        most=10 * 365 * 24,
        unit="hours",
    )
    round_minutes: int = _rounds_option(
        10,
        "Simulated length of a round.",
        least=1,
        most=7 * 24 * 60,
        unit="minutes",
    )
    min_separation: int | None = _rounds_option(
        None,
        "Enforced MinS: rounds strictly between two participations of a client. By "
        "default the most that the population allows with --epsilon, else measured.",
        least=0,
        most=LARGEST_COUNT,
    )
    max_participation: int | None = _rounds_option(
        None,
        "Enforced MaxP. By default it is measured.",
        least=1,
        most=LARGEST_COUNT,
    )
    diurnal: bool = _rounds_option(
        True,
        "Clients are available while they charge and are idle, mostly at night. "
        "Otherwise always.",
    )
    delta: float = _privacy_option(
        1e-10,
        "Delta of the guarantee.",
        above=0,
        below=1,
    )
    evaluate_every: int = _kept_option(
        10,
        "Rounds between evaluations on held-out clients.",
        least=1,
        most=LARGEST_COUNT,
    )
    checkpoint_every: int = _kept_option(
        10,
        "Rounds between checkpoints.",
        least=1,
        most=LARGEST_COUNT,
    )
    num_blocks: int = _kept_option(
        4,
        "Number of TFF client values that a cohort is cut into: as many cores train at "
        "once, and memory grows with them.",
        least=1,
        most=10_000,
        why="each costs a quarter of a millisecond and more",
    )
    server_learning_rate: float = _learning_option(
        1.0,
        "The learning rate of the server (eta_s).",
        above=0,
        most=LARGEST_RATE,
    )
    server_optimizer: str = _learning_option(
        "sgdm",
        "The server's step along the noisy mean of updates: gradient descent with "
        "momentum (Algorithm 1), Adam, or Yogi.",
        choices=tuple(server_optimizers.BY_NAME),
    )
    momentum: float | None = _learning_option(
        None,
        "The momentum of --server_optimizer=sgdm (beta); 0.9 by default.",
        least=0,
        below=1,
    )
    server_beta1: float | None = _learning_option(
        None,
        "With --server_optimizer=adam and yogi: decay of the mean of updates; 0.9 by "
        "default.",
        least=0,
        below=1,
    )
    server_beta2: float | None = _learning_option(
        None,
        "With --server_optimizer=adam and yogi: decay of the mean of their squares; "
        "0.99 by default.",
        least=0,
        below=1,
    )
    server_epsilon: float | None = _learning_option(
        None,
        "With --server_optimizer=adam and yogi: added to the root of that mean; 0.001 "
        "by default.",
        least=1e-15,
        most=LARGEST_RATE,
    )
    model_average: float | None = _learning_option(
        None,
        "Evaluates and exports an exponential moving average of the rounds' models "
        "with this decay (0.98: over some 50 rounds) instead of the last model, from "
        "which clients continue. It costs no privacy.",
        above=0,
        below=1,
    )
    adaptive_clip: bool = _privacy_option(
        False,
        "Estimate the clip norm as a quantile of the updates' norms (Algorithm 1). "
        "With dp_ftrl, blt and banded it changes after rounds 128 + 1024 i, or "
        "--first_restart and so on.",
    )
    target_quantile: float | None = _privacy_option(
        None,
        "The quantile that --adaptive_clip aims at (gamma); 0.5 by default.",
        above=0,
        below=1,
    )
    clip_learning_rate: float | None = _privacy_option(
        None,
        "The learning rate of --adaptive_clip (eta_gamma); 0.2 by default.",
        above=0,
        most=LARGEST_RATE,
    )
    clipped_count_stddev: float | None = _privacy_option(
        None,
        "Noise on the clipped counts (sigma_b) of --adaptive_clip. By default a "
        "twentieth of the report goal. Has to be above half of the "
        "noise multiplier.",
        least=_LEAST_NOISE,
        most=2.0**30,
    )
    first_restart: int | None = _privacy_option(
        None,
        "Round of the first restart with --adaptive_clip; 128 by default.",
        least=0,
        most=LARGEST_COUNT,
    )
    restart_period: int | None = _privacy_option(
        None,
        "Rounds between restarts with --adaptive_clip; 1,024 by default.",
        least=1,
        most=LARGEST_COUNT,
    )

    def __post_init__(self):
        check(self)
        self._check_beginning()
        self._check_taken_by("server_optimizer", server_optimizers.BY_NAME)
        self._check_taken_by("mechanism", mechanisms.BY_NAME)
        self._check_noise()
        self._check_encoding()
        self._check_adaptive()

    def _check_taken_by(self, choice: str, kinds: Any) -> None:
        """Refuses a setting that the chosen kind does not have.

        Args:
            choice: The option that chooses.
            kinds: The choices by name, each with `options`.
        """
        chosen = kinds[getattr(self, choice)]
        for name in dict.fromkeys(n for kind in kinds.values() for n in kind.options):
            if getattr(self, name) is None or name in chosen.options:
                continue
            takers = [key for key, kind in kinds.items() if name in kind.options]
            raise OptionError(
                self,
                f"{{{name}=}} does not apply to {{{choice}=}}, only to "
                f"{' and '.join(takers)}; leave one of them out",
            )

    def _check_noise(self) -> None:
        if self.is_private and self.clip_norm is None:
            raise OptionError(self, "{mechanism=} needs {clip_norm}")
        if self.epsilon is None:
            return
        if not self.is_private:
            raise OptionError(
                self,
                "{epsilon=} is given, but {mechanism=} adds no noise; choose another "
                "mechanism, or leave {epsilon} out",
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
                    self,
                    "{rounding_scale=} does not apply to {update_encoding=}; "
                    "leave one of them out",
                )
            return
        if self.clip_norm is None:
            raise OptionError(self, "{update_encoding=} needs {clip_norm}")
        if self.adaptive_clip:
            raise OptionError(
                self,
                "{adaptive_clip=} is given, but {update_encoding=} has a fixed clip "
                "norm; leave one of them out",
            )

    def _check_adaptive(self) -> None:
        """Checks the settings of an adaptive clip norm."""
        given = [name for name in _ADAPTIVE if getattr(self, name) is not None]
        if not self.adaptive_clip:
            for name in given:
                raise OptionError(
                    self,
                    f"{{{name}=}} is a setting of {{adaptive_clip}}, without which the "
                    "clip norm is fixed; give both, or neither",
                )
        if not (self.adaptive_clip and self.is_private):
            return
        for name in ("first_restart", "restart_period"):
            if name in given and not self.kind.can_restart:
                raise OptionError(
                    self,
                    f"{{{name}=}}, but {{mechanism=}} has no noise that restarts; "
                    "leave it out, or choose another mechanism",
                )
        if self.epsilon is None:
            self.check_count_noise(self.given_noise, "a lower {noise_multiplier}")

    def check_count_noise(self, noise_multiplier: float, instead: str) -> None:
        """Refuses noise on counts that alone would spend the guarantee.

        Args:
            noise_multiplier: z of the guarantee.
            instead: The alternative to more noise on counts.
        """
        stddev = self.adaptive_setting("clipped_count_stddev")
        if noise_multiplier >= 2 * stddev:
            raise OptionError(
                self,
                "{adaptive_clip}: the noise on the clipped counts is {stddev:g}, and "
                "has to be above {half:g}, half of the noise multiplier, as it alone "
                "would spend the guarantee; give more by {clipped_count_stddev} (a "
                "twentieth of {cohort_size} by default), or " + instead,
                stddev=stddev,
                half=noise_multiplier / 2,
            )

    def adaptive_setting(self, name: str) -> Any:
        """Returns a setting of --adaptive_clip, or its default."""
        given = getattr(self, name)
        if given is None and name == "clipped_count_stddev":
            return self.cohort_size / 20
        return _ADAPTIVE[name] if given is None else given

    @property
    def kind(self) -> mechanisms.Mechanism:
        """The mechanism that `mechanism` names."""
        return mechanisms.BY_NAME[self.mechanism]

    @property
    def given_noise(self) -> float:
        """Z where no epsilon is given."""
        given = self.noise_multiplier
        return _DEFAULT_NOISE_MULTIPLIER if given is None else given

    @property
    def is_private(self) -> bool:
        """Whether the mechanism adds noise."""
        return self.kind.has_noise

    def optimizer(self) -> server_optimizers.ServerOptimizer:
        """Returns the server's optimizer."""
        kind = server_optimizers.BY_NAME[self.server_optimizer]
        given = {key: getattr(self, name) for name, key in kind.options.items()}
        given = {key: value for key, value in given.items() if value is not None}
        return kind(self.server_learning_rate, **given)
