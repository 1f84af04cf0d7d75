"""Federated DP-FTRL (Xu et al. 2023, Algorithm 1), DP-FedAvg and FedAvg.

In each round the clients of a cohort train the global model and send clipped updates;
the plan's mechanism adds noise to their sum, and the server takes a step (with
momentum, or another of `server_optimizers`):

    algorithm = DpFtrl(rounds, parameters.plan(sampler), weights)
    outcome = run.run(algorithm, directory, seed=1)

The noise, its trees and restarts, and the adaptive clip norm belong to the mechanism:
see `federated_hh.privacy.dp_ftrl.update_noise`. The state follows from noisy sums
alone.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from federated_hh.files import freed_memory, installation
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.dp_ftrl import model_updates, rotated_updates
from federated_hh.randomness import identities, streams
from federated_hh.rounds import algorithm, checkpoints, run
from training.federated import (
    client_update,
    model_average,
    rotated_sums,
    server_optimizers,
)
from training.models import metric_names

Weights = collections.OrderedDict[str, np.ndarray]


class NonFiniteModelError(RuntimeError):
    """A step would make the global model infinite or NaN."""

    exit_code = installation.NOT_FINITE


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """The server's state between rounds.

    Attributes:
        round_number: Rounds done.
        weights: The global model that clients train, by name: float32.
        optimizer: The state of the server's optimizer, such as its momentum.
        clip_norm: C_theta, to which the next round's updates are clipped.
        tracked_norm: C^t, the current estimate with an adaptive clip norm; otherwise
            the clip norm.
        average: The average of the models so far; None if none is kept.
    """

    round_number: int
    weights: Weights
    optimizer: server_optimizers.State
    clip_norm: float
    tracked_norm: float
    average: Weights | None = None

    @property
    def model(self) -> Weights:
        """The model that is evaluated and exported."""
        return self.weights if self.average is None else self.average


def update_metrics(observed: run.Observed[TrainingState]) -> dict[str, int]:
    """Observes how many clients' updates were not finite, or could not be encoded."""
    found = {"non_finite_clients": observed.total.num_non_finite}
    if isinstance(observed.total, rotated_sums.RotatedSum):
        found["bounded_clients"] = observed.total.num_bounded
        found["unrounded_clients"] = observed.total.num_unrounded
    return found


@identities.identity("training.dp_ftrl.DpFtrl")
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
        plan: plan_lib.Plan[Any, model_updates.Update, model_updates.UpdateMechanism],
        weights: Mapping[str, np.ndarray],
        *,
        clients: np.ndarray | None = None,
        optimizer: server_optimizers.ServerOptimizer | None = None,
        average: model_average.ModelAverage | None = None,
    ):
        """Makes the algorithm.

        Args:
            rounds: The clients' side.
            plan: The plan, and with it the guarantee; see
                `federated_hh.privacy.dp_ftrl.plan.plan_of`. The text says whether
                clients without sentences are in the population.
            weights: The model to begin with, by name.
            clients: The training clients: int64, distinct indices into the population;
                None for all.
            optimizer: The server's optimizer; None for `Sgdm()`.
            average: The average of the rounds' models; None for the last one.

        Raises:
            ValueError: If the plan is for another number of clients or of parameters,
                or the weights are not those of the model.
        """
        if clients is None:
            clients = np.arange(rounds.mapped.text.num_clients)
        if plan.sampler.num_clients != len(clients):
            raise ValueError(
                f"num_clients is {plan.sampler.num_clients}; it has to be "
                f"{len(clients)}, the number of training clients."
            )
        self.rounds = rounds
        kept = rounds.mapped.text.keeps_empty_clients
        sent = dataclasses.replace(plan.contribution, population_has_empty_clients=kept)
        self.plan = dataclasses.replace(plan, contribution=sent)
        self.clients = clients
        self.max_rounds = plan.mechanism.num_rounds
        self._optimizer = optimizer or server_optimizers.Sgdm()
        self._average = average
        self._first = self._checked(weights)
        self._rotated = self._rotated_update()
        rounds.check_masking(
            plan.sampler.cohort_size, plan.mechanism.clip_norm, self._rotated
        )

    def _rotated_update(self) -> rotated_updates.RotatedUpdate | None:
        """Returns the rotated encoding; None for another one."""
        found = self.plan.contribution
        if not isinstance(found, rotated_updates.RotatedUpdate):
            return None
        size = sum(part.size for part in self._first.values())
        if found.num_values != size:
            raise ValueError(
                f"num_values is {found.num_values:,}; it has to be {size:,}, the "
                "parameters of the model."
            )
        return found

    def _checked(self, weights: Mapping[str, np.ndarray]) -> Weights:
        template = self.rounds.model.initial_weights(0)
        shapes = {name: array.shape for name, array in template.items()}
        given = {name: np.shape(array) for name, array in weights.items()}
        if given != shapes:
            raise ValueError(
                f"weights has the shapes {given}; they have to be the model's, "
                f"{shapes}."
            )
        return collections.OrderedDict(
            (name, np.array(weights[name], np.float32)) for name in template
        )

    def describe(self) -> Mapping[str, Any]:
        """Returns the facts that a sum of updates depends on, besides the plan."""
        return {
            **self.rounds.describe(),
            "begins_with": checkpoints.digest(self._first).hex(),
            "clients": checkpoints.digest(self.clients).hex(),
            **self._optimizer.describe(),
            **({} if self._average is None else self._average.describe()),
        }

    def initialize(self, repeat: int) -> TrainingState:
        """Returns the state before the first round: the weights to begin with."""
        del repeat
        remembered = self._optimizer.initial_state(self._first)
        clip_norm = self.plan.mechanism.clip_norm
        average = None if self._average is None else self._first
        return TrainingState(0, self._first, remembered, clip_norm, clip_norm, average)

    def next_query(
        self, state: TrainingState
    ) -> algorithm.Query[model_updates.UpdateSum] | None:
        """Returns the question for updates of the global model."""
        if state.round_number == self.max_rounds:
            return None
        return algorithm.Query(
            functools.partial(self._collect, state),
            {"clip_norm": state.clip_norm},
            functools.partial(
                self.rounds.client_bytes,
                self.plan.sampler.cohort_size,
                state.clip_norm,
                self._rotated,
            ),
        )

    def _collect(
        self, state: TrainingState, cohort: np.ndarray, stream: streams.Stream
    ) -> model_updates.UpdateSum:
        """Returns the sum of a cohort's updates."""
        freed_memory.return_freed()  # of the last round's step and evaluation
        sums = self.rounds.train(
            state.weights,
            self.clients[cohort],
            state.clip_norm,
            state.tracked_norm,
            stream,
            self._rotated,
        )
        freed_memory.return_freed()  # of messages, each as large as the model
        if sums.num_non_finite == sums.num_summed:
            raise NonFiniteModelError(
                f"round {state.round_number}: no client's update is finite; lower the "
                "learning rates. The model before the round is kept."
            )
        return sums

    def update(
        self, state: TrainingState, released: model_updates.ReleasedUpdate
    ) -> tuple[TrainingState, Mapping[str, float | int]]:
        """Applies the optimizer's step along the released update.

        Raises:
            NonFiniteModelError: If the step would spoil the model.
        """
        goal = released.num_clients
        mean = collections.OrderedDict(
            (name, released.total[name] / np.float32(goal)) for name in state.weights
        )
        remembered, weights = self._optimizer.step(state.optimizer, state.weights, mean)
        average = state.average
        if self._average is not None and average is not None:
            average = self._average.following(average, weights, state.round_number)
        arrays = (*weights.values(), *remembered.values(), *(average or {}).values())
        if not all(np.all(np.isfinite(array)) for array in arrays):
            raise NonFiniteModelError(
                f"round {state.round_number}: the model would no longer be finite; "
                "lower the server's learning rate or the noise. The model before the "
                "round is kept."
            )
        following = TrainingState(
            state.round_number + 1,
            weights,
            remembered,
            released.clip_norm,
            released.tracked_norm,
            average,
        )
        return following, {
            "update_norm": _norm(released.total) / goal,
            **self.plan.contribution.metrics(),
        }

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns a round's line in the log."""
        text = (
            f"clip norm {row['clip_norm']:.3g}, norm of the noisy mean update "
            f"{row['update_norm']:.3g}, epsilon so far {row['epsilon']:.3g}"
        )
        if math.isfinite(row.get("held_out_loss", math.nan)):
            held_out = {n: row[f"held_out_{n}"] for n in metric_names.LABELS}
            text += f"; held-out clients: {metric_names.text(held_out)}"
        return text


def _norm(parts: Mapping[str, np.ndarray]) -> float:
    squares = (np.sum(np.square(part, dtype=np.float64)) for part in parts.values())
    return math.sqrt(sum(squares))
