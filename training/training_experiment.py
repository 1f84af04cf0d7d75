"""Trains a model round by round, so that a run can be interrupted and continued."""

import collections
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from randomness import seeds
from simulation import array_checkpoints, client_text, run_directory
from simulation import participation_timers as timers
from simulation.round_metrics import RoundMetrics
from training import dp_ftrl, drawn_noise, evaluation, examples
from training.dp_ftrl_parameters import Mechanism
from training.run_participation import Realised

_TABLE = "participation/"


@dataclasses.dataclass(frozen=True)
class Clients:
    """Which clients train, and which only judge.

    Attributes:
        training: int64 [n], ascending: indices into the population.
        held_out: int64 [m], ascending: others.
    """

    training: np.ndarray
    held_out: np.ndarray

    @classmethod
    def split(cls, num_clients: int, num_held_out: int, seed: int) -> "Clients":
        """Draws the clients that are held out, uniformly.

        Args:
            num_clients: Of the population.
            num_held_out: At least 1, and fewer than all.
            seed: The run's seed.
        """
        if not 1 <= num_held_out < num_clients:
            raise ValueError(
                f"num_held_out is {num_held_out}, must be in 1..{num_clients - 1} for "
                f"{num_clients:,} clients."
            )
        order = seeds.generator(seed, "held-out clients").permutation(num_clients)
        return cls(np.sort(order[num_held_out:]), np.sort(order[:num_held_out]))


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What is done besides training.

    Attributes:
        evaluate_every: Rounds between evaluations on held-out clients, at least 1;
            the last round has one too.
        checkpoint_every: Rounds between checkpoints, at least 1.
        keep_checkpoints: How many stay, at least 1.
        delta: Of the epsilon in the metrics, in (0, 1).
    """

    evaluate_every: int = 10
    checkpoint_every: int = 10
    keep_checkpoints: int = 3
    delta: float = 1e-10

    def __post_init__(self):
        for name in ("evaluate_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, must be at least 1."
                )
        if not 0 < self.delta < 1:
            raise ValueError(f"delta is {self.delta}, must be in (0, 1).")


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run ends with.

    Attributes:
        state: The last state, with the trained model.
        participation: The last state of the simulated clients.
    """

    state: dp_ftrl.TrainingState
    participation: timers.ParticipationState


def run_rounds(
    process: dp_ftrl.DpFtrlProcess,
    rule: timers.ParticipationRule,
    clients: Clients,
    directory: run_directory.RunDirectory,
    schedule: Schedule,
    initial_weights: dp_ftrl.Weights | None = None,
) -> Result:
    """Trains until all rounds are done, with checkpoints and a row of metrics a round.

    A directory that has a checkpoint is continued where it stands, with the same
    result as without the interruption: rounds after the checkpoint are computed again
    with the same clients and the same noise, so they tell nobody anything new.

    Args:
        process: What to run.
        rule: How cohorts of `clients.training` come together.
        clients: Who trains and who judges.
        directory: Takes the checkpoints and the metrics.
        schedule: When to evaluate and to save.
        initial_weights: A model to begin with; None for the model's own first weights.
            Not looked at where a checkpoint is continued.

    Raises:
        ValueError: If the rule and the process do not fit, or the checkpoint is of
            another configuration.
        ReportGoalNotMetError: If too few clients can take part in a round.
        NonFiniteModelError: If the model would be spoilt.
    """
    _check(process, rule, clients)
    checkpoint = array_checkpoints.load(directory)
    if checkpoint is None:
        state = process.initialize(initial_weights)
        participation = timers.initial_state(rule)
    else:
        state, participation = _restore(process, rule, checkpoint)
    while state.round_number < rule.num_rounds:
        start = time.perf_counter()
        try:
            following, cohort = timers.next_cohort(rule, participation)
            state, metrics = process.next(state, clients.training[cohort.clients])
        except (timers.ReportGoalNotMetError, dp_ftrl.NonFiniteModelError):
            if state.round_number:
                _save(process, state, participation, directory, schedule)
            raise
        participation = following
        last = state.round_number == rule.num_rounds
        metrics = RoundMetrics(
            {
                **metrics.released,
                # Who took part, which they follow from, is taken to be public.
                **_privacy_metrics(process, participation, schedule.delta),
            },
            {
                **metrics.simulator,
                **_participation_metrics(participation, cohort),
                **_evaluate(process, state, clients, last, schedule),
                "seconds": time.perf_counter() - start,
            },
        )
        directory.add_metrics(state.round_number, metrics)
        logging.info(_progress(rule, metrics.combined()))
        if last or state.round_number % schedule.checkpoint_every == 0:
            _save(process, state, participation, directory, schedule)
    return Result(state, participation)


def _check(process, rule, clients) -> None:
    parameters = process.parameters
    for name in ("report_goal", "num_rounds"):
        if getattr(rule, name) != getattr(parameters, name):
            raise ValueError(
                f"{name} is {getattr(rule, name)} for the clients and "
                f"{getattr(parameters, name)} for the server."
            )
    if rule.num_clients != len(clients.training):
        raise ValueError(
            f"num_clients is {rule.num_clients}, {len(clients.training)} clients train."
        )


def _participation_metrics(
    participation: timers.ParticipationState, cohort: timers.Cohort
) -> dict[str, float]:
    separation = participation.table.min_separation()
    return {
        "simulated_hours": participation.seconds / 3600,
        "waited_hours": cohort.waited_seconds / 3600,
        "failed_attempts": cohort.failed_attempts,
        "max_participation": participation.table.max_participation(),
        "min_separation": float("nan") if separation is None else separation,
    }


def _privacy_metrics(process, participation, delta: float) -> dict[str, float]:
    so_far = Realised(participation.table, participation.round_number)
    rho = so_far.zcdp(process.parameters)
    if process.parameters.mechanism is Mechanism.NONE:
        return {"rho": rho, "epsilon": rho}
    drawn = drawn_noise.zcdp_to_epsilon(rho, delta, participation.round_number)
    return {"rho": rho, "epsilon": drawn.epsilon}


def _evaluate(process, state, clients, last: bool, schedule) -> dict[str, float]:
    if last or state.round_number % schedule.evaluate_every == 0:
        metrics: Mapping[str, float] = process.rounds.evaluate(
            state.weights, clients.held_out
        )
    else:
        metrics = collections.OrderedDict.fromkeys(evaluation.METRICS, float("nan"))
    return {f"held_out_{name}": value for name, value in metrics.items()}


def _save(process, state, participation, directory, schedule) -> None:
    arrays = process.to_arrays(state)
    for name, column in participation.table.to_arrays().items():
        arrays[_TABLE + name] = column
    array_checkpoints.save(
        directory,
        state.round_number,
        {
            "participation": participation.to_json(),
            "configuration": process.configuration,
        },
        arrays,
        schedule.keep_checkpoints,
    )


def _restore(
    process: dp_ftrl.DpFtrlProcess,
    rule: timers.ParticipationRule,
    checkpoint: tuple[Any, dict[str, np.ndarray]],
) -> tuple[dp_ftrl.TrainingState, timers.ParticipationState]:
    values, arrays = checkpoint
    if values.get("configuration") != process.configuration:
        raise ValueError(
            "the checkpoint is of another configuration: flags, data or code gave "
            "other parameters when it was written; begin a new run."
        )
    names = [name for name in arrays if name.startswith(_TABLE)]
    table = {name.removeprefix(_TABLE): arrays.pop(name) for name in names}
    participation = timers.ParticipationState(
        timers.ParticipationTable.from_arrays(table), **values["participation"]
    )
    state = process.from_arrays(arrays)
    if len(participation.table.last_round) != rule.num_clients:
        raise ValueError(
            "the checkpoint is of another configuration: its participation table has "
            f"{len(participation.table.last_round):,} clients, the run "
            f"{rule.num_clients:,}."
        )
    logging.info("Continuing after round %d.", state.round_number)
    return state, participation


def _progress(rule: timers.ParticipationRule, row: Mapping[str, float]) -> str:
    text = (
        f"round {row['round']} of {rule.num_rounds}: clip {row['clip_norm']:.3g}, "
        f"update {row['update_norm']:.3g}, epsilon {row['epsilon']:.3g}"
    )
    if row["held_out_loss"] == row["held_out_loss"]:
        text += (
            f", held-out loss {row['held_out_loss']:.3f}, accuracy "
            f"{row['held_out_accuracy']:.2%}"
        )
    return f"{text} ({row['seconds']:.1f} s)"


def unigram_baseline(
    text: client_text.ClientText,
    clients: Clients,
    limits: examples.ClientLimits,
    num_tokens: int,
) -> Mapping[str, float]:
    """Returns what a model without context reaches on the held-out clients.

    Args:
        text: All clients' sentences.
        clients: Who trains and who judges.
        limits: How much of a client's text is used.
        num_tokens: Size of the vocabulary with its special tokens.
    """
    return evaluation.unigram_metrics(
        examples.targets(text, clients.training, limits),
        examples.targets(text, clients.held_out, limits),
        num_tokens,
    )
