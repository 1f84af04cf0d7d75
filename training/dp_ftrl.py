"""Federated DP-FTRL (Xu et al. 2023, Algorithm 1), DP-FedAvg and FedAvg.

In each round the clients of a cohort train the global model and send clipped updates;
the server sees their sum, adds noise, and takes a step with momentum:

    process = DpFtrlProcess(rounds, parameters, seed=1)
    state = process.initialize()
    with runtime.tff_worker():
        while state.round_number < parameters.num_rounds:
            state, metrics = process.next(state, cohort)

Noise is added by residuals, so that the state holds noise and noisy sums only.
"""

import collections
import dataclasses
import hashlib
import math
from typing import NamedTuple

import numpy as np

from training import client_update
from training import noise as noise_lib
from training.dp_ftrl_parameters import Mechanism, ServerParameters

Weights = collections.OrderedDict[str, np.ndarray]

_LEAST_LOG_NORM = -40.0


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
        noise: State of the noise on updates; None without noise.
        count_noise: State of the noise on counts; None where the clip is fixed.
    """

    round_number: int
    weights: Weights
    momentum: Weights
    clip_norm: float
    tracked_norm: float
    noise: noise_lib.NoiseState
    count_noise: noise_lib.NoiseState


class TrainingOutput(NamedTuple):
    """What a round gives.

    Attributes:
        state: The next state.
        metrics: By name: the round, the clip norm in force, the tracked norm after the
            round, the norm of the noisy mean update, the standard deviation of the
            noise on a coordinate of a tree's node or of the sum, and how many clients'
            updates were not finite. That last number is exact, without noise.
    """

    state: TrainingState
    metrics: collections.OrderedDict[str, float]


class DpFtrlProcess:
    """Federated training as an iterative process.

    Attributes:
        rounds: The clients' side.
        parameters: The server's side.
        configuration: A hash of the parameters, the seed and `context`.
    """

    def __init__(
        self,
        rounds: client_update.FederatedRounds,
        parameters: ServerParameters,
        seed: int,
        context: str = "",
    ):
        """Makes the process.

        Args:
            rounds: The clients' side.
            parameters: The server's side.
            seed: The run's seed, at least 0: of the first weights and of the noise.
            context: All else that decides the sums: data, model, local training. Two
                runs that differ in it, or in the parameters, have other noise, even
                with one seed: with the same noise over other sums, the difference of
                the two would have none.
        """
        self.rounds = rounds
        self.parameters = parameters
        self._seed = seed
        text = repr((parameters, seed, context))
        self.configuration = hashlib.sha256(text.encode()).hexdigest()
        kind = noise_lib.GaussianNoise
        if parameters.mechanism is Mechanism.TREE:
            kind = noise_lib.TreeNoise
        template = rounds.model.initial_weights(seed)
        self._noise = kind(template, seed, "updates", self.configuration)
        self._count_noise = kind(
            {"count": np.zeros(())}, seed, "counts", self.configuration
        )

    def initialize(self, weights: Weights | None = None) -> TrainingState:
        """Returns the state before the first round.

        Args:
            weights: A model to begin with, such as one trained on public text; None
                for the model's own first weights.

        Raises:
            ValueError: If the weights are not those of the model.
        """
        first = self.rounds.model.initial_weights(self._seed)
        if weights is not None:
            shapes = {name: array.shape for name, array in first.items()}
            given = {name: np.shape(array) for name, array in weights.items()}
            if given != shapes:
                raise ValueError(f"weights has {given}, the model has {shapes}.")
            first = collections.OrderedDict(
                (name, np.asarray(weights[name], np.float32)) for name in first
            )
        clip_norm = self.parameters.clip_norm
        noise = count_noise = None
        if self.parameters.mechanism is not Mechanism.NONE:
            noise = self._noise.initial_state(self._stddev(clip_norm))
        if self.parameters.adaptive_clip is not None:
            count_noise = self._count_noise.initial_state(
                self.parameters.adaptive_clip.count_stddev
            )
        zeros = collections.OrderedDict((k, np.zeros_like(w)) for k, w in first.items())
        return TrainingState(0, first, zeros, clip_norm, clip_norm, noise, count_noise)

    def next(self, state: TrainingState, cohort: np.ndarray) -> TrainingOutput:
        """Runs a round.

        Needs a TFF execution context that can run secure sums, such as
        `simulation.runtime.tff_worker()`.

        Args:
            state: The state after the last round.
            cohort: int64 [report_goal], distinct: whose updates are summed. The
                guarantee holds for participations that keep to MinS and MaxP.

        Raises:
            ValueError: If the run is finished, or the cohort is not one.
            NonFiniteModelError: If the step would spoil the model; `state` is as it
                was.
        """
        if state.round_number >= self.parameters.num_rounds:
            raise ValueError(
                f"the {self.parameters.num_rounds:,} rounds of the run are done."
            )
        goal = self.parameters.report_goal
        if cohort.shape != (goal,) or len(np.unique(cohort)) < goal:
            raise ValueError(
                f"cohort has the shape {cohort.shape} and "
                f"{len(np.unique(cohort))} distinct clients, must have {goal}."
            )
        sums = self.rounds.train(
            state.weights, cohort, state.clip_norm, state.tracked_norm
        )
        return self.update(state, sums)

    def update(
        self, state: TrainingState, sums: client_update.RoundSums
    ) -> TrainingOutput:
        """Returns what the server makes of a round's sums.

        Args:
            state: The state that the clients were told about.
            sums: Of exactly `report_goal` clients.
        """
        goal = self.parameters.report_goal
        if sums.num_clients != goal:
            raise ValueError(f"sums are of {sums.num_clients} clients, not of {goal}.")
        if sums.num_non_finite == goal:
            raise NonFiniteModelError(
                f"round {state.round_number}: no client's update is finite; lower the "
                "learning rates. The model is kept as it was before the round."
            )
        delta, noise = sums.delta, state.noise
        if noise is not None:
            delta, noise = self._noise.add(delta, noise)
        momentum, weights = collections.OrderedDict(), collections.OrderedDict()
        for name, part in delta.items():
            decayed = np.float32(self.parameters.momentum) * state.momentum[name]
            momentum[name] = decayed + part / np.float32(goal)
            step = np.float32(self.parameters.server_learning_rate) * momentum[name]
            weights[name] = state.weights[name] + step
        if not all(np.all(np.isfinite(weight)) for weight in weights.values()):
            raise NonFiniteModelError(
                f"round {state.round_number}: the model would no longer be finite; "
                "lower the server's learning rate or the noise. The model is kept as "
                "it was before the round."
            )
        tracked_norm, count_noise = self._track(state, sums)
        metrics = collections.OrderedDict(
            round=state.round_number + 1,
            clip_norm=state.clip_norm,
            tracked_norm=tracked_norm,
            update_norm=_norm(delta) / goal,
            noise_stddev=self._stddev(state.clip_norm),
            non_finite_clients=sums.num_non_finite,
        )
        state = TrainingState(
            state.round_number + 1,
            weights,
            momentum,
            state.clip_norm,
            tracked_norm,
            noise,
            count_noise,
        )
        return TrainingOutput(self._restarted(state), metrics)

    def _stddev(self, clip_norm: float) -> float:
        if self.parameters.mechanism is Mechanism.NONE:
            return 0.0
        return self.parameters.delta_noise_multiplier * clip_norm

    def _track(self, state, sums) -> tuple[float, noise_lib.NoiseState]:
        """Returns the next estimate of the quantile, from a noisy count."""
        adaptive = self.parameters.adaptive_clip
        if adaptive is None:
            return state.tracked_norm, None
        goal = self.parameters.report_goal
        # Each client counts -1/2 or 1/2, so that one more or less, which counts 0,
        # changes the sum by 1/2 (Andrew et al. 2021).
        centred = {"count": np.float32(sums.num_below - goal / 2)}
        noised, noise = self._count_noise.add(centred, state.count_noise)
        share = float(noised["count"]) / goal + 0.5
        exponent = -adaptive.learning_rate * (share - adaptive.quantile)
        # Beyond these a float32 norm, or its square, is 0 or infinite.
        logarithm = math.log(state.tracked_norm) + exponent
        if not _LEAST_LOG_NORM < logarithm < -_LEAST_LOG_NORM:
            raise NonFiniteModelError(
                f"round {state.round_number}: the tracked norm would become "
                f"exp({logarithm:.4g}); lower the noise of the clip estimation or its "
                "learning rate."
            )
        return state.tracked_norm * math.exp(exponent), noise

    def _restarted(self, state: TrainingState) -> TrainingState:
        """Returns the state with a new tree or clip norm, where it is time for one."""
        adapts = self.parameters.adaptive_clip is not None
        if self.parameters.mechanism is Mechanism.TREE:
            due = state.round_number - 1 in self.parameters.restart_rounds
        else:
            due = adapts  # independent noise can change in every round
        if not due:
            return state
        clip_norm = state.tracked_norm if adapts else state.clip_norm
        count_noise = state.count_noise
        if adapts:
            count_noise = self._count_noise.restart(
                count_noise, self.parameters.adaptive_clip.count_stddev
            )
        return dataclasses.replace(
            state,
            clip_norm=clip_norm,
            noise=self._noise.restart(state.noise, self._stddev(clip_norm)),
            count_noise=count_noise,
        )

    def to_arrays(self, state: TrainingState) -> dict[str, np.ndarray]:
        """Returns a state as arrays by name; see `from_arrays`."""
        arrays = {
            name: np.asarray(getattr(state, name))
            for name in ("round_number", "clip_norm", "tracked_norm")
        }
        for kind in ("weights", "momentum"):
            for name, array in getattr(state, kind).items():
                arrays[f"{kind}/{name}"] = array
        for kind, noise in (("noise", self._noise), ("count_noise", self._count_noise)):
            if getattr(state, kind) is not None:
                for i, array in enumerate(noise.flatten(getattr(state, kind))):
                    arrays[f"{kind}/{i}"] = array
        return arrays

    def from_arrays(self, arrays: dict[str, np.ndarray]) -> TrainingState:
        """Returns the state whose `to_arrays` gave `arrays`.

        Raises:
            ValueError: If they are of a process with other parameters.
        """
        first = self.to_arrays(self.initialize())
        if arrays.keys() != first.keys():
            raise ValueError(
                "the checkpoint is of another configuration: it differs in "
                f"{', '.join(sorted(arrays.keys() ^ first.keys()))}."
            )

        def of(kind: str, like: Weights) -> Weights:
            return collections.OrderedDict((k, arrays[f"{kind}/{k}"]) for k in like)

        def noise_of(kind: str, noise: noise_lib.TreeNoise) -> noise_lib.NoiseState:
            count = sum(name.startswith(f"{kind}/") for name in arrays)
            if not count:
                return None
            return noise.unflatten([arrays[f"{kind}/{i}"] for i in range(count)])

        template = self.rounds.model.initial_weights(self._seed)
        for name, array in template.items():
            if arrays[f"weights/{name}"].shape != array.shape:
                raise ValueError(
                    "the checkpoint is of another configuration: its weights "
                    f"{name!r} have the shape {arrays[f'weights/{name}'].shape}, the "
                    f"model's {array.shape}."
                )
        return TrainingState(
            int(arrays["round_number"]),
            of("weights", template),
            of("momentum", template),
            float(arrays["clip_norm"]),
            float(arrays["tracked_norm"]),
            noise_of("noise", self._noise),
            noise_of("count_noise", self._count_noise),
        )


def _norm(parts: Weights) -> float:
    squares = (np.sum(np.square(part, dtype=np.float64)) for part in parts.values())
    return math.sqrt(sum(squares))
