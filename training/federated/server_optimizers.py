"""The server's step along a round's released update: SGD with momentum, Adam or Yogi.

The steps are those of `tff.learning.optimizers`, for the gradient that is minus the
mean of the updates (Reddi et al. 2021, "Adaptive Federated Optimization"). They follow
the noise, so they are part of a run's identity, but not of its plan.

Importing this module imports no NumPy and no TensorFlow, because flags are made from
its entries.
"""

import abc
import collections
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from federated_hh.options import checks
from federated_hh.randomness import identities

if TYPE_CHECKING:
    import numpy as np
    import tensorflow_federated as tff

Weights = collections.OrderedDict[str, "np.ndarray"]
# An optimizer's state by name: "accumulator/output_bias", "step".
State = collections.OrderedDict[str, "np.ndarray"]


@dataclasses.dataclass(frozen=True)
class ServerOptimizer(abc.ABC):
    """An optimizer of the server.

    Attributes:
        options: Options that set a kind's fields, by name.
        learning_rate: eta_s, above 0.
    """

    options: ClassVar[Mapping[str, str]]

    learning_rate: float = 1.0

    def __post_init__(self):
        checks.positive(learning_rate=self.learning_rate)

    @abc.abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Returns its part of a run's identity, as JSON can hold it."""

    @abc.abstractmethod
    def build(self) -> "tff.learning.optimizers.Optimizer":
        """Returns TFF's optimizer."""

    def initial_state(self, weights: Weights) -> State:
        """Returns the state before the first step.

        Args:
            weights: The model's, by name: float32.
        """
        return _without_settings(self.build(), self.build().initialize(weights))

    def step(
        self, state: State, weights: Weights, update: Weights
    ) -> tuple[State, Weights]:
        """Returns the state and the weights after a step.

        Args:
            state: State, from `initial_state` or the last step.
            weights: The model's, by name: float32.
            update: The mean of the clients' updates, like the weights.
        """
        import tensorflow as tf  # it takes seconds

        optimizer = self.build()
        # Of no weights: the settings, and keys for the arrays of the state.
        given = optimizer.initialize(collections.OrderedDict())
        for path, array in state.items():
            name, _, weight = path.partition("/")
            if weight:
                given[name][weight] = tf.convert_to_tensor(array)
            else:
                given[name] = int(array)
        following, stepped = optimizer.next(
            given,
            tf.nest.map_structure(tf.convert_to_tensor, weights),
            collections.OrderedDict(
                (name, tf.convert_to_tensor(-part)) for name, part in update.items()
            ),
        )
        new = collections.OrderedDict((n, part.numpy()) for n, part in stepped.items())
        return _without_settings(optimizer, following), new


@dataclasses.dataclass(frozen=True)
class Sgdm(ServerOptimizer):
    """Gradient descent with momentum, as in Algorithm 1 of Xu et al. 2023.

    Attributes:
        momentum: beta, in [0, 1).
    """

    options: ClassVar[Mapping[str, str]] = {"momentum": "momentum"}

    momentum: float = 0.9

    def __post_init__(self):
        super().__post_init__()
        _check_decay("momentum", self.momentum)

    def describe(self) -> Mapping[str, Any]:
        """See base class."""
        return {"learning_rate": self.learning_rate, "momentum": self.momentum}

    def build(self) -> "tff.learning.optimizers.Optimizer":
        """See base class."""
        import tensorflow_federated as tff

        return tff.learning.optimizers.build_sgdm(self.learning_rate, self.momentum)


@identities.identity("Adam", "learning_rate beta1 beta2 epsilon")
@dataclasses.dataclass(frozen=True)
class Adam(ServerOptimizer):
    """Adam, as FedAdam of Reddi et al. 2021, with that paper's defaults.

    Attributes:
        beta1: Decay of the mean of gradients, in [0, 1).
        beta2: Decay of the mean of their squares, in [0, 1).
        epsilon: Term added to the root of that mean; above 0.
    """

    name: ClassVar[str] = "adam"
    options: ClassVar[Mapping[str, str]] = {
        "server_beta1": "beta1",
        "server_beta2": "beta2",
        "server_epsilon": "epsilon",
    }

    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3

    def __post_init__(self):
        super().__post_init__()
        _check_decay("beta1", self.beta1)
        _check_decay("beta2", self.beta2)
        checks.positive(epsilon=self.epsilon)

    def describe(self) -> Mapping[str, Any]:
        """See base class."""
        return {"server_optimizer": self.name, **identities.settings(self)}

    def build(self) -> "tff.learning.optimizers.Optimizer":
        """See base class."""
        import tensorflow_federated as tff

        return tff.learning.optimizers.build_adam(*dataclasses.astuple(self))


@identities.identity("Yogi", "learning_rate beta1 beta2 epsilon")
@dataclasses.dataclass(frozen=True)
class Yogi(Adam):
    """Yogi, as FedYogi of Reddi et al. 2021: its mean of squares falls slowly."""

    name: ClassVar[str] = "yogi"

    def build(self) -> "tff.learning.optimizers.Optimizer":
        """See base class."""
        import tensorflow_federated as tff

        return tff.learning.optimizers.build_yogi(*dataclasses.astuple(self))


# The values of --server_optimizer.
BY_NAME: Mapping[str, type[ServerOptimizer]] = {
    "sgdm": Sgdm,
    "adam": Adam,
    "yogi": Yogi,
}


def _without_settings(
    optimizer: "tff.learning.optimizers.Optimizer", state: Mapping[str, Any]
) -> State:
    """Returns the part of TFF's state that changes from step to step."""
    import numpy as np

    flat = collections.OrderedDict()
    for name in state.keys() - optimizer.get_hparams(state).keys():
        if isinstance(state[name], int):
            flat[name] = np.array(state[name], np.int64)
            continue
        for weight, part in state[name].items():
            flat[f"{name}/{weight}"] = np.asarray(part)
    return collections.OrderedDict(sorted(flat.items()))


def _check_decay(name: str, value: float) -> None:
    checks.holds(0 <= value < 1, "in [0, 1)", **{name: value})
