"""What a training run is asked for of the server's steps."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from federated_hh.options.fields import OptionError, option
from training.models import option_limits

if TYPE_CHECKING:  # it imports NumPy
    from training.federated.server_optimizers import ServerOptimizer

# Of each server optimizer: its own settings by the options' names.
_OF_ADAM = {
    "server_beta1": "beta1",
    "server_beta2": "beta2",
    "server_epsilon": "epsilon",
}
_SETTINGS_OF: Mapping[str, Mapping[str, str]] = {
    "sgdm": {"momentum": "momentum"},
    "adam": _OF_ADAM,
    "yogi": _OF_ADAM,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptimizerOptions:
    """How the server steps.

    A part of `training_options.TrainingOptions`, which checks it.
    """

    server_learning_rate: float = option(
        1.0,
        "The learning rate of the server (eta_s).",
        above=0,
        most=option_limits.LARGEST_RATE,
        group="How the model learns",
    )
    server_optimizer: str = option(
        "sgdm",
        "How the server steps along the noisy mean of updates: gradient descent with "
        "momentum (Algorithm 1), Adam, or Yogi.",
        choices=("sgdm", "adam", "yogi"),
        group="How the model learns",
    )
    momentum: float | None = option(
        None,
        "The momentum of --server_optimizer=sgdm (beta); 0.9 by default.",
        least=0,
        below=1,
        group="How the model learns",
    )
    server_beta1: float | None = option(
        None,
        "With --server_optimizer=adam and yogi: decay of the mean of updates; 0.9 by "
        "default.",
        least=0,
        below=1,
        group="How the model learns",
    )
    server_beta2: float | None = option(
        None,
        "With --server_optimizer=adam and yogi: decay of the mean of their squares; "
        "0.99 by default.",
        least=0,
        below=1,
        group="How the model learns",
    )
    server_epsilon: float | None = option(
        None,
        "With --server_optimizer=adam and yogi: added to the root of that mean; 0.001 "
        "by default.",
        least=1e-15,
        most=option_limits.LARGEST_RATE,
        group="How the model learns",
    )

    model_average: float | None = option(
        None,
        "Judges and leaves an exponential moving average of the models of all rounds, "
        "with this decay (0.98: of some 50 rounds), instead of the last one, which "
        "clients go on from. It costs no privacy.",
        above=0,
        below=1,
        group="How the model learns",
    )

    def optimizer(self) -> "ServerOptimizer":
        """Returns how the server steps; what is not given has its default."""
        from training.federated import server_optimizers

        settings = {
            key: getattr(self, name)
            for name, key in _SETTINGS_OF[self.server_optimizer].items()
            if getattr(self, name) is not None
        }
        kind = server_optimizers.BY_NAME[self.server_optimizer]
        return kind(self.server_learning_rate, **settings)

    def _check_optimizer(self) -> None:
        own = _SETTINGS_OF[self.server_optimizer]
        for name in ("momentum", *_OF_ADAM):
            if getattr(self, name) is not None and name not in own:
                raise OptionError(
                    self,
                    f"{{{name}=}} is no setting of {{server_optimizer=}}; leave it "
                    "out, or take another optimizer",
                )
