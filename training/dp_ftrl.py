"""Federated DP-FTRL (Xu et al. 2023, Algorithm 1), DP-FedAvg and FedAvg.

In each round the clients of a cohort train the global model and send clipped updates;
the server sees their sum, adds noise, and takes a step with momentum:

    process = DpFtrlProcess(rounds, parameters, seed=1, noise_key=secrets.randbits(128))
    state = process.initialize()
    with runtime.tff_worker():
        while state.round_number < parameters.num_rounds:
            state, metrics = process.next(state, cohort)

The sum is one of integers, and so is the noise: only what has noise becomes floats. The
state holds noisy sums and what follows from them, and a digest of the sums so far.
"""

import collections
import dataclasses
import hashlib
import math
from typing import NamedTuple

import numpy as np

from randomness import keyed_bits
from simulation.round_metrics import RoundMetrics
from training import client_update
from training import noise as noise_lib
from training.dp_ftrl_parameters import Mechanism, ServerParameters

Weights = collections.OrderedDict[str, np.ndarray]

_LEAST_LOG_NORM = -40.0
# What a client's bit, 1/2 or -1/2, is in the integer sum of counts, to which noise is
# added: so large that rounding the noise to integers does not show.
_COUNT_UNIT = 1 << 20


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
        history: 32 bytes, of which the noise is a function: before the first round a
            digest of the weights, then one of all sums so far, under the noise key.
    """

    round_number: int
    weights: Weights
    momentum: Weights
    clip_norm: float
    tracked_norm: float
    noise: noise_lib.NoiseState | None
    count_noise: noise_lib.NoiseState | None
    history: bytes


class TrainingOutput(NamedTuple):
    """What a round gives.

    Attributes:
        state: The next state.
        metrics: Released: the round, the clip norm in force, the tracked norm after the
            round, the norm of the noisy mean update, and the standard deviation of the
            noise on a coordinate of a tree's node or of the sum. The simulator's: how
            many clients' updates were not finite.
    """

    state: TrainingState
    metrics: RoundMetrics


class DpFtrlProcess:
    """Federated training as an iterative process.

    Attributes:
        rounds: The clients' side.
        parameters: The server's side.
        configuration: A hash of all that decides what the process does, beside the
            first weights and the cohorts: of the two sides, the seed and the key.
    """

    def __init__(
        self,
        rounds: client_update.FederatedRounds,
        parameters: ServerParameters,
        seed: int,
        noise_key: int,
    ):
        """Makes the process.

        Args:
            rounds: The clients' side.
            parameters: The server's side.
            seed: Of the model's own first weights, at least 0; public.
            noise_key: Of the noise, in [0, 2^128); a secret. The noise is a function
                of it, of the configuration, the first weights and all sums of the run:
                runs that differ in anything that changes a sum have independent noise
                from there on. With the same noise over other sums, the difference of
                two runs would have none.

        Raises:
            ValueError: If `noise_key` is out of range, or a noisy sum could leave its
                64 bits.
        """
        self.rounds = rounds
        self.parameters = parameters
        self._noise_key = noise_key
        self._template = rounds.model.initial_weights(seed)
        # Tells that a key is another one, and nothing else about it.
        commitment = keyed_bits.KeyedBits(noise_key, "commitment").bytes(0, 32)
        text = repr((parameters, seed, rounds.describe(), commitment.hex()))
        self.configuration = hashlib.sha256(text.encode()).hexdigest()
        self._noise = self._count_noise = None
        if parameters.mechanism is Mechanism.NONE:
            return
        kind = noise_lib.GaussianNoise
        if parameters.mechanism is Mechanism.TREE:
            kind = noise_lib.TreeNoise
        updates = parameters.report_goal * parameters.num_rounds
        self._noise = kind(
            sum(part.size for part in self._template.values()),
            parameters.delta_noise_multiplier * rounds.sensitivity,
            updates * rounds.sensitivity,
            noise_key,
            *("updates", self.configuration),
        )
        if parameters.adaptive_clip is not None:
            self._count_noise = kind(
                1,
                2 * parameters.adaptive_clip.count_stddev * _COUNT_UNIT,
                updates * _COUNT_UNIT,
                noise_key,
                *("counts", self.configuration),
            )

    def initialize(self, weights: Weights | None = None) -> TrainingState:
        """Returns the state before the first round.

        Args:
            weights: A model to begin with, such as one trained on public text; None
                for the model's own first weights.

        Raises:
            ValueError: If the weights are not those of the model.
        """
        first = self._template
        if weights is not None:
            shapes = {name: array.shape for name, array in first.items()}
            given = {name: np.shape(array) for name, array in weights.items()}
            if given != shapes:
                raise ValueError(f"weights has {given}, the model has {shapes}.")
            first = collections.OrderedDict(
                (name, np.asarray(weights[name], np.float32)) for name in first
            )
        clip_norm = self.parameters.clip_norm
        states = (
            None if noise is None else noise.initial_state()
            for noise in (self._noise, self._count_noise)
        )
        zeros = collections.OrderedDict((k, np.zeros_like(w)) for k, w in first.items())
        history = _digest(first)
        return TrainingState(0, first, zeros, clip_norm, clip_norm, *states, history)

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
        if state.noise is None:
            history, noise, delta = state.history, None, sums.delta
        else:
            history = self._next_history(state, sums)
            delta, noise = self._add_noise(sums, state.noise, history)
        momentum, weights = self._step(state, delta)
        tracked_norm, count_noise = self._track(state, sums, history)
        metrics = RoundMetrics(
            released=collections.OrderedDict(
                round=state.round_number + 1,
                clip_norm=state.clip_norm,
                tracked_norm=tracked_norm,
                update_norm=_norm(delta) / goal,
                noise_stddev=self._stddev(state.clip_norm),
            ),
            simulator={"non_finite_clients": sums.num_non_finite},
        )
        state = TrainingState(
            state.round_number + 1,
            weights,
            momentum,
            state.clip_norm,
            tracked_norm,
            noise,
            count_noise,
            history,
        )
        return TrainingOutput(self._restarted(state), metrics)

    def _step(self, state, delta: Weights) -> tuple[Weights, Weights]:
        """Returns the momentum and the weights after a noisy sum."""
        momentum, weights = collections.OrderedDict(), collections.OrderedDict()
        for name, part in delta.items():
            decayed = np.float32(self.parameters.momentum) * state.momentum[name]
            momentum[name] = decayed + part / np.float32(self.parameters.report_goal)
            step = np.float32(self.parameters.server_learning_rate) * momentum[name]
            weights[name] = state.weights[name] + step
        if not all(np.all(np.isfinite(weight)) for weight in weights.values()):
            raise NonFiniteModelError(
                f"round {state.round_number}: the model would no longer be finite; "
                "lower the server's learning rate or the noise. The model is kept as "
                "it was before the round."
            )
        return momentum, weights

    def _next_history(self, state, sums) -> bytes:
        """Returns the digest of the sums so far.

        Keyed: in a checkpoint, a plain digest would tell who guesses a sum that the
        guess is right.
        """
        about = (state.history, sums.num_below, repr(sums.unit), _digest(sums.total))
        path = ("history", self.configuration, *about)
        return keyed_bits.KeyedBits(self._noise_key, *path).bytes(0, 32)

    def _stddev(self, clip_norm: float) -> float:
        if self.parameters.mechanism is Mechanism.NONE:
            return 0.0
        return self.parameters.delta_noise_multiplier * clip_norm

    def _add_noise(self, sums, noise, history: bytes):
        """Returns a round's sum with noise, as floats, and the noise's next state."""
        flat = np.concatenate([part.reshape(-1) for part in sums.total.values()])
        if flat.dtype != np.int64:
            raise ValueError(
                f"the sum to which noise is added is {flat.dtype}, must be int64: "
                "updates have to be clipped."
            )
        released, noise = self._noise.add(flat, noise, history)
        released = (released * sums.unit).astype(np.float32)
        delta, first = collections.OrderedDict(), 0
        for name, part in sums.total.items():
            delta[name] = released[first : first + part.size].reshape(part.shape)
            first += part.size
        return delta, noise

    def _track(
        self, state, sums, history: bytes
    ) -> tuple[float, noise_lib.NoiseState | None]:
        """Returns the next estimate of the quantile, from a noisy count."""
        adaptive = self.parameters.adaptive_clip
        if adaptive is None:
            return state.tracked_norm, None
        goal = self.parameters.report_goal
        # Each client counts -1/2 or 1/2, so that one more or less, which counts 0,
        # changes the sum by 1/2 (Andrew et al. 2021).
        centred = np.array([(2 * sums.num_below - goal) * _COUNT_UNIT])
        noised, noise = self._count_noise.add(centred, state.count_noise, history)
        share = float(noised[0]) / (2 * _COUNT_UNIT * goal) + 0.5
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
            count_noise = self._count_noise.restart(count_noise)
        # In the sum's integers the noise is the same for every clip norm.
        return dataclasses.replace(
            state,
            clip_norm=clip_norm,
            noise=self._noise.restart(state.noise),
            count_noise=count_noise,
        )

    def to_arrays(self, state: TrainingState) -> dict[str, np.ndarray]:
        """Returns a state as arrays by name; see `from_arrays`."""
        arrays = {
            name: np.asarray(getattr(state, name))
            for name in ("round_number", "clip_norm", "tracked_norm")
        }
        arrays["history"] = np.frombuffer(state.history, np.uint8)
        for kind in ("weights", "momentum"):
            for name, array in getattr(state, kind).items():
                arrays[f"{kind}/{name}"] = array
        for kind, noise in (("noise", self._noise), ("count_noise", self._count_noise)):
            if noise is not None:
                columns = noise.to_arrays(getattr(state, kind))
                arrays |= {f"{kind}/{name}": array for name, array in columns.items()}
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

        def of(kind: str) -> Weights:
            return collections.OrderedDict(
                (name, arrays[f"{kind}/{name}"]) for name in self._template
            )

        def noise_of(kind: str, noise) -> noise_lib.NoiseState | None:
            if noise is None:
                return None
            return noise.from_arrays(
                {
                    name.removeprefix(f"{kind}/"): array
                    for name, array in arrays.items()
                    if name.startswith(f"{kind}/")
                }
            )

        for name, array in self._template.items():
            if arrays[f"weights/{name}"].shape != array.shape:
                raise ValueError(
                    "the checkpoint is of another configuration: its weights "
                    f"{name!r} have the shape {arrays[f'weights/{name}'].shape}, the "
                    f"model's {array.shape}."
                )
        return TrainingState(
            int(arrays["round_number"]),
            of("weights"),
            of("momentum"),
            float(arrays["clip_norm"]),
            float(arrays["tracked_norm"]),
            noise_of("noise", self._noise),
            noise_of("count_noise", self._count_noise),
            arrays["history"].tobytes(),
        )


def _norm(parts: Weights) -> float:
    squares = (np.sum(np.square(part, dtype=np.float64)) for part in parts.values())
    return math.sqrt(sum(squares))


def _digest(parts: Weights) -> bytes:
    """Returns SHA-256 of arrays and of their names."""
    digest = hashlib.sha256()
    for name, part in parts.items():
        digest.update(f"{name} {part.dtype} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part))
    return digest.digest()
