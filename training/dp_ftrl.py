"""Federated DP-FTRL (Xu et al. 2023, Algorithm 1), DP-FedAvg and FedAvg.

In each round the clients of a cohort train the global model and send clipped updates;
the plan's mechanism adds noise to their sum, and the server takes a step with momentum:

    algorithm = DpFtrl(rounds, parameters.plan(sampler), weights)
    outcome = run.run(algorithm, directory, seed=1)

The noise, its trees and restarts, and the clip norm that adapts are the mechanism's:
see `privacy.update_noise`. The state holds what follows from noisy sums alone.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from privacy import model_updates
from privacy import plan as plan_lib
from randomness import streams
from rounds import algorithm, codec, run
from training import client_update, metric_names

Weights = collections.OrderedDict[str, np.ndarray]


class NonFiniteModelError(RuntimeError):
    """A step would make the global model infinite or NaN."""


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """The server's state between rounds.

    Attributes:
        round_number: Rounds done.
        weights: The global model, by name: float32.
        momentum: The momentum buffer, like the weights.
        clip_norm: C_theta, to which the next round's updates are clipped.
        tracked_norm: C^t, the current estimate where the clip adapts; else the clip
            norm.
    """

    round_number: int
    weights: Weights
    momentum: Weights
    clip_norm: float
    tracked_norm: float


def update_metrics(observed: run.Observed[TrainingState]) -> dict[str, int]:
    """Observes how many clients' updates were not finite."""
    return {"non_finite_clients": observed.total.num_non_finite}


class DpFtrl(algorithm.Algorithm[TrainingState, model_updates.UpdateSum]):
    """Federated training with noise on sums of updates.

    Attributes:
        rounds: The clients' side.
        clients: int64 [n]: the indices in the population of the clients that the
            plan's sampler numbers from 0.
    """

    def __init__(
        self,
        rounds: client_update.FederatedRounds,
        plan: plan_lib.Plan[Any, Any, model_updates.UpdateMechanism],
        weights: Mapping[str, np.ndarray],
        *,
        clients: np.ndarray | None = None,
        learning_rate: float = 1.0,
        momentum: float = 0.9,
    ):
        """Makes the algorithm.

        Args:
            rounds: The clients' side.
            plan: What is done, and with it the guarantee; see
                `privacy.training_plan.plan_of`.
            weights: The model to begin with, by name.
            clients: Who may be asked: int64, distinct indices into the population;
                None for all.
            learning_rate: eta_s of the server, above 0.
            momentum: beta, in [0, 1).

        Raises:
            ValueError: If the plan is for another number of clients, the weights are
                not those of the model, or a number is out of range.
        """
        if clients is None:
            clients = np.arange(rounds.mapped.text.num_clients)
        if plan.sampler.num_clients != len(clients):
            raise ValueError(
                f"num_clients is {plan.sampler.num_clients}, {len(clients)} clients "
                "train."
            )
        if not 0 < learning_rate < math.inf:
            raise ValueError(
                f"learning_rate is {learning_rate}; it has to be above 0 and finite."
            )
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum}; it has to be in [0, 1).")
        self.rounds = rounds
        self.plan = plan
        self.clients = clients
        self.max_rounds = plan.mechanism.num_rounds
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._first = self._checked(weights)

    def _checked(self, weights: Mapping[str, np.ndarray]) -> Weights:
        template = self.rounds.model.initial_weights(0)
        shapes = {name: array.shape for name, array in template.items()}
        given = {name: np.shape(array) for name, array in weights.items()}
        if given != shapes:
            raise ValueError(f"weights has {given}, the model has {shapes}.")
        return collections.OrderedDict(
            (name, np.array(weights[name], np.float32)) for name in template
        )

    def describe(self) -> Mapping[str, Any]:
        """Returns what a sum of updates depends on beside the plan."""
        return {
            **self.rounds.describe(),
            "begins_with": codec.digest(self._first).hex(),
            "clients": codec.digest(self.clients).hex(),
            "learning_rate": self._learning_rate,
            "momentum": self._momentum,
        }

    def initialize(self, repeat: int) -> TrainingState:
        """Returns the state before the first round: the weights to begin with."""
        del repeat
        zeros = collections.OrderedDict(
            (name, np.zeros_like(part)) for name, part in self._first.items()
        )
        clip_norm = self.plan.mechanism.clip_norm
        return TrainingState(0, self._first, zeros, clip_norm, clip_norm)

    def next_query(
        self, state: TrainingState
    ) -> algorithm.Query[model_updates.UpdateSum] | None:
        """Returns the question for updates of the global model."""
        if state.round_number == self.max_rounds:
            return None
        return algorithm.Query(
            functools.partial(self._collect, state), {"clip_norm": state.clip_norm}
        )

    def _collect(
        self, state: TrainingState, cohort: np.ndarray, stream: streams.Stream
    ) -> model_updates.UpdateSum:
        """Returns the sum of a cohort's updates."""
        sums = self.rounds.train(
            state.weights,
            self.clients[cohort],
            state.clip_norm,
            state.tracked_norm,
            stream,
        )
        if sums.num_non_finite == len(cohort):
            raise NonFiniteModelError(
                f"round {state.round_number}: no client's update is finite; lower the "
                "learning rates. The model is kept as it was before the round."
            )
        return sums

    def update(
        self, state: TrainingState, released: model_updates.ReleasedUpdate
    ) -> tuple[TrainingState, Mapping[str, float | int]]:
        """Takes a step with momentum along what was released.

        Raises:
            NonFiniteModelError: If the step would spoil the model.
        """
        goal = released.num_clients
        momentum, weights = collections.OrderedDict(), collections.OrderedDict()
        for name, part in released.total.items():
            decayed = np.float32(self._momentum) * state.momentum[name]
            momentum[name] = decayed + part / np.float32(goal)
            step = np.float32(self._learning_rate) * momentum[name]
            weights[name] = state.weights[name] + step
        if not all(np.all(np.isfinite(weight)) for weight in weights.values()):
            raise NonFiniteModelError(
                f"round {state.round_number}: the model would no longer be finite; "
                "lower the server's learning rate or the noise. The model is kept as "
                "it was before the round."
            )
        following = TrainingState(
            state.round_number + 1,
            weights,
            momentum,
            released.clip_norm,
            released.tracked_norm,
        )
        return following, {"update_norm": _norm(released.total) / goal}

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns what the log says of a round."""
        text = (
            f"clip {row['clip_norm']:.3g}, update {row['update_norm']:.3g}, epsilon "
            f"{row['epsilon']:.3g}"
        )
        if math.isfinite(row.get("held_out_loss", math.nan)):
            held_out = {n: row[f"held_out_{n}"] for n in metric_names.LABELS}
            text += f"; held-out clients: {metric_names.text(held_out)}"
        return text


def _norm(parts: Mapping[str, np.ndarray]) -> float:
    squares = (np.sum(np.square(part, dtype=np.float64)) for part in parts.values())
    return math.sqrt(sum(squares))
