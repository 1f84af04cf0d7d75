"""The average of the rounds' models, which may be better than the last one.

With large steps and noise each round's model is off the rounds' limit, as each step's
does in central training. An exponential moving average of them (De et al. 2022,
"Unlocking High-Accuracy Differentially Private Image Classification through Scale") is
a function of released models, so it costs no privacy. Clients continue from the last
model, and train as they would without it.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from federated_hh.options import checks

Weights = collections.OrderedDict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ModelAverage:
    """An exponential moving average of models.

    Attributes:
        decay: Share of the average that a round keeps, in (0, 1): about 1 / (1 - decay)
            rounds are averaged. It is (1 + t) / (10 + t) after t rounds, if that is
            less, so the first weights soon lose their influence.
    """

    decay: float

    def __post_init__(self):
        checks.holds(0 < self.decay < 1, "in (0, 1)", decay=self.decay)

    @classmethod
    def of(cls, decay: float | None) -> "ModelAverage | None":
        """Returns the average with a decay; None for the last model, without one."""
        return None if decay is None else cls(decay)

    def describe(self) -> Mapping[str, Any]:
        """Returns its part of a run's identity."""
        return {"model_average": self.decay}

    def share(self, num_before: int) -> np.float32:
        """Returns the share of a new model in the average.

        Args:
            num_before: t, the models before it, but for the first weights.
        """
        return np.float32(1 - min(self.decay, (1 + num_before) / (10 + num_before)))

    def following(self, average: Weights, weights: Weights, num_before: int) -> Weights:
        """Returns the average after a round.

        Args:
            average: The average so far, by name: float32; at first the first weights.
            weights: The model that the round left.
            num_before: t, the rounds before.
        """
        return moved(average, weights, self.share(num_before))


def moved(average: Mapping[str, Any], weights: Mapping[str, Any], share: Any):
    """Returns an average that has taken on a share of a model; arrays or tensors."""
    return collections.OrderedDict(
        (name, part + share * (weights[name] - part)) for name, part in average.items()
    )
