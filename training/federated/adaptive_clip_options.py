"""What a training run is asked for of a clip norm that adapts."""

import dataclasses
from typing import TYPE_CHECKING, Any

from federated_hh.options.fields import OptionError, option
from training.models import option_limits

if TYPE_CHECKING:  # it imports NumPy
    from federated_hh.privacy.dp_ftrl.update_noise import AdaptiveClip

# Of --adaptive_clip, without which none of them is of use. What is None follows from
# the report goal.
_DEFAULTS = {
    "target_quantile": 0.5,
    "clip_learning_rate": 0.2,
    "clipped_count_stddev": None,
    "first_restart": 128,
    "restart_period": 1024,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveClipOptions:
    """Whether and how the clip norm adapts.

    A part of `training_options.TrainingOptions`, which checks it.
    """

    adaptive_clip: bool = option(
        False,
        "Estimate the clip norm as a quantile of the updates' norms (Algorithm 1). "
        "With dp_ftrl, blt and banded it changes after rounds 128 + 1024 i, or "
        "--first_restart and so on.",
        group="Privacy",
    )
    target_quantile: float | None = option(
        None,
        "The quantile that --adaptive_clip aims at (gamma); 0.5 by default.",
        above=0,
        below=1,
        group="Privacy",
    )
    clip_learning_rate: float | None = option(
        None,
        "The learning rate of --adaptive_clip (eta_gamma); 0.2 by default.",
        above=0,
        most=option_limits.LARGEST_RATE,
        group="Privacy",
    )
    clipped_count_stddev: float | None = option(
        None,
        "Noise on the clipped counts (sigma_b) of --adaptive_clip. By default a "
        "twentieth of the report goal. Has to be above half of the "
        "noise multiplier.",
        least=option_limits.LEAST_NOISE,
        most=2.0**30,
        group="Privacy",
    )
    first_restart: int | None = option(
        None,
        "Round of the first restart with --adaptive_clip; 128 by default.",
        least=0,
        most=option_limits.LARGEST_COUNT,
        group="Privacy",
    )
    restart_period: int | None = option(
        None,
        "Rounds between restarts with --adaptive_clip; 1,024 by default.",
        least=1,
        most=option_limits.LARGEST_COUNT,
        group="Privacy",
    )

    def _check_adaptive_settings(self) -> None:
        """Refuses settings of a clip norm that adapts where it is fixed."""
        if self.adaptive_clip:
            return
        for name in _DEFAULTS:
            if getattr(self, name) is not None:
                raise OptionError(
                    self,
                    f"{{{name}=}} is a setting of {{adaptive_clip}}, without which the "
                    "clip norm is fixed; give both, or neither",
                )

    def _check_count_noise(
        self, noise_multiplier: float, cohort_size: int, instead: str
    ) -> None:
        """Refuses noise on counts that alone would spend the guarantee.

        Args:
            noise_multiplier: z of the guarantee.
            cohort_size: The report goal.
            instead: What else may be given, besides more noise on counts.
        """
        stddev = self._count_stddev(cohort_size)
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

    def _count_stddev(self, cohort_size: int) -> float:
        given = self.clipped_count_stddev
        return cohort_size / 20 if given is None else given

    def _given_or_default(self, name: str) -> Any:
        given = getattr(self, name)
        return _DEFAULTS[name] if given is None else given

    def clip_estimate(self, cohort_size: int) -> "AdaptiveClip | None":
        """Returns how the clip norm is estimated; None where it is fixed.

        Args:
            cohort_size: The report goal.
        """
        from federated_hh.privacy.dp_ftrl import update_noise

        if not self.adaptive_clip:
            return None
        return update_noise.AdaptiveClip(
            self._count_stddev(cohort_size),
            self._given_or_default("target_quantile"),
            self._given_or_default("clip_learning_rate"),
        )

    def restarts(self, num_rounds: int) -> tuple[int, ...]:
        """Returns the rounds (from 0) after which noise starts anew and the norm moves.

        Args:
            num_rounds: Of the run.
        """
        from federated_hh.privacy.dp_ftrl import tree_aggregation

        if not self.adaptive_clip:
            return ()
        return tree_aggregation.restart_schedule(
            num_rounds,
            self._given_or_default("first_restart"),
            self._given_or_default("restart_period"),
        )
