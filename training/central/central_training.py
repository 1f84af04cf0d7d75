"""Central training: gradient steps on sentences of all clients, mixed.

It learns from public text before private training begins (Xu et al. 2023, Section 2.3),
and is a baseline of private training. It runs on the engine, with some steps per round,
so it can be killed and resumed.
"""

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from federated_hh.options import checks
from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text
from federated_hh.privacy.dp_ftrl import central_training as central_plan
from federated_hh.randomness import identities, streams
from federated_hh.rounds import algorithm, checkpoints, run, samplers
from federated_hh.runtime.worker import startup
from training.federated import dp_ftrl, model_average, server_optimizers
from training.models import central_evaluation, metric_names
from training.models import model as model_lib
from training.text import examples, windows

Weights = collections.OrderedDict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class CentralState:
    """The state of central training between rounds.

    Attributes:
        steps: Steps done.
        weights: The model, by name: float32.
        mean: Adam's mean of gradients, like the weights.
        mean_square: Its mean of their squares, likewise.
        average: The average of the models so far; None where none is kept.
    """

    steps: int
    weights: Weights
    mean: Weights
    mean_square: Weights
    average: Weights | None = None

    @property
    def model(self) -> Weights:
        """The model that is evaluated and exported."""
        return self.weights if self.average is None else self.average


class Sentences:
    """The sentences of clients in a random order for each epoch, without an end."""

    def __init__(
        self,
        text: client_text.ClientText,
        clients: np.ndarray,
        limits: examples.ClientLimits,
        seed: int,
    ):
        """Lists the sentences.

        Args:
            text: All clients' sentences.
            clients: int64 [n], at least one: whose sentences.
            limits: Limits on a client's text, and the sentences of a batch.
            seed: The seed of the order.

        Raises:
            ValueError: If there is none.
        """
        self._text, self._limits, self._seed = text, limits, seed
        self._all, _ = text.used_sentences(clients, limits.max_sentences)
        if not len(self._all):
            raise ValueError(
                "no training client has a sentence; lower --num_held_out_clients."
            )
        self._order = functools.lru_cache(maxsize=2)(self._order_of)

    @property
    def batch_size(self) -> int:
        """Sentences of a batch."""
        return self._limits.batch_size

    def __len__(self) -> int:
        return len(self._all)

    def batch(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns inputs and targets of a batch; see `examples.Batch`.

        Args:
            number: Its number, from 0. Batches are full: one may be of two epochs.
        """
        size = self.batch_size
        places = np.arange(number * size, (number + 1) * size)
        epochs, places = np.divmod(places, len(self))
        chosen = [
            self._all[self._order(epoch)[places[epochs == epoch]]]
            for epoch in np.unique(epochs).tolist()
        ]
        return self._rows(np.concatenate(chosen))

    def _order_of(self, epoch: int) -> np.ndarray:
        return streams.generator(self._seed, "epoch", epoch).permutation(len(self))

    def _rows(self, sentences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        most = self._limits.max_words
        splits = self._text.sentence_splits
        starts, ends = (splits[sentences + more][:, np.newaxis] for more in (0, 1))
        places = starts + np.arange(most + 1)
        is_word = (places < ends) & (places < starts + most)
        words = self._text.tokens[np.where(is_word, places, 0)]
        # A cut sentence has no end.
        rest = np.where(places == ends, vocabulary.EOS, vocabulary.PAD)
        targets = np.where(is_word, words, rest).astype(np.int32)
        inputs = np.full_like(targets, vocabulary.BOS)
        inputs[:, 1:] = targets[:, :-1]
        inputs[targets == vocabulary.PAD] = vocabulary.PAD
        return inputs, targets


@identities.identity("training.central_training.CentralTraining")
class CentralTraining(algorithm.Algorithm[CentralState, CentralState]):
    """Adam on batches of sentences of all clients."""

    def __init__(
        self,
        network: model_lib.LanguageModel,
        sentences: Sentences,
        weights: Mapping[str, np.ndarray],
        *,
        identity: Mapping[str, Any],
        num_clients: int,
        num_steps: int,
        steps_per_round: int,
        learning_rate: float = 1e-3,
        average: model_average.ModelAverage | None = None,
    ):
        """Makes the algorithm.

        Args:
            network: The model.
            sentences: The training sentences.
            weights: The model to begin with, by name.
            identity: The sentences' identity, as JSON can hold it.
            num_clients: Number of their clients.
            num_steps: The number of steps of the whole training, at least 1.
            steps_per_round: Steps per round, at least 1: the most that a kill loses.
            learning_rate: The learning rate of Adam, above 0.
            average: The average of the steps' models; None for the last one.

        Raises:
            ValueError: If a number is out of range.
        """
        checks.integer(least=1, num_steps=num_steps, steps_per_round=steps_per_round)
        # Kingma and Ba 2015, with the epsilon of Keras.
        self._adam = server_optimizers.Adam(learning_rate, 0.9, 0.999, 1e-7)
        self.plan = central_plan.plan_of(samplers.Everybody(num_clients))
        self.max_rounds = -(-num_steps // steps_per_round)
        self._network, self._sentences = network, sentences
        self._first = collections.OrderedDict(
            (name, np.asarray(part, np.float32)) for name, part in weights.items()
        )
        self._identity, self._average = identity, average
        self._num_steps, self._steps_per_round = num_steps, steps_per_round
        self._step = tf.function(self._one_step)
        self._moved = tf.function(model_average.moved)

    def describe(self) -> Mapping[str, Any]:
        """Returns the facts that the weights depend on."""
        return {
            **self._identity,
            **self._adam.describe(),
            "begins_with": checkpoints.digest(self._first).hex(),
            "num_steps": self._num_steps,
            "steps_per_round": self._steps_per_round,
            "arithmetic": startup.arithmetic() | self._network.arithmetic(),
            **({} if self._average is None else self._average.describe()),
        }

    def initialize(self, repeat: int) -> CentralState:
        """Returns the state before the first step."""
        del repeat
        zeros = collections.OrderedDict(
            (name, np.zeros_like(part)) for name, part in self._first.items()
        )
        average = None if self._average is None else self._first
        return CentralState(0, self._first, zeros, zeros, average)

    def next_query(self, state: CentralState) -> algorithm.Query[CentralState] | None:
        """Returns the next steps; None after the last one."""
        if state.steps == self._num_steps:
            return None
        return algorithm.Query(functools.partial(self._train, state))

    def worker(self):
        """Returns a context without a worker: the steps are taken in this process."""
        return contextlib.nullcontext()

    def _train(
        self, state: CentralState, cohort: np.ndarray, stream: streams.Stream
    ) -> CentralState:
        """Returns the state after the steps of a round."""
        del cohort, stream
        last = min(state.steps + self._steps_per_round, self._num_steps)
        averages = () if state.average is None else (state.average,)
        parts = [
            tf.nest.map_structure(tf.constant, part)
            for part in (state.weights, state.mean, state.mean_square, *averages)
        ]
        for number in range(state.steps, last):
            batch = examples.Batch(*map(tf.constant, self._sentences.batch(number)))
            stepped = self._step(*parts[:3], tf.constant(number, tf.float32), batch)
            if self._average is not None:
                share = tf.constant(self._average.share(number))
                stepped = (*stepped, self._moved(parts[3], stepped[0], share))
            parts = list(stepped)
        found = [
            collections.OrderedDict((n, tensor.numpy()) for n, tensor in part.items())
            for part in parts
        ]
        if not all(np.all(np.isfinite(weight)) for weight in found[0].values()):
            raise dp_ftrl.NonFiniteModelError(
                f"step {last}: the model is no longer finite; lower the learning "
                f"rate. The model after step {state.steps} is kept."
            )
        return CentralState(last, *found)

    def _one_step(self, weights, mean, mean_square, number, batch):
        """Returns the weights and Adam's state after a step."""
        gradients = self._network.gradients(list(weights.values()), batch)
        optimizer = self._adam.build()
        # Identity without weights: the settings only.
        state = optimizer.initialize(collections.OrderedDict())
        state |= dict(step=number, accumulator=mean, preconditioner=mean_square)
        named = collections.OrderedDict(zip(weights, gradients, strict=True))
        following, weights = optimizer.next(state, weights, named)
        return weights, following["accumulator"], following["preconditioner"]

    def update(
        self, state: CentralState, released: CentralState
    ) -> tuple[CentralState, Mapping[str, float | int]]:
        """Copies the steps' results."""
        del state
        epochs = released.steps * self._sentences.batch_size / len(self._sentences)
        return released, {"steps": released.steps, "epochs": epochs}

    def progress(self, row: Mapping[str, float | int]) -> str:
        """Returns a round's line in the log."""
        text = f"{row['steps']:,} steps, {row['epochs']:.3g} epochs"
        if np.isfinite(row.get("held_out_loss", np.nan)):
            held_out = {n: row[f"held_out_{n}"] for n in metric_names.LABELS}
            text += f"; held-out clients: {metric_names.text(held_out)}"
        return text


class Evaluation:
    """Observes how good the model is on held-out clients."""

    def __init__(
        self,
        network: model_lib.LanguageModel,
        held_out_text: windows.Windows,
        length: int,
        every: int,
    ):
        """Prepares the evaluation.

        Args:
            network: The model.
            held_out_text: The positions of the held-out clients.
            length: Steps of a sentence: its most words and its end.
            every: Steps between evaluations, at least 1: after the first round that
                reaches a multiple of it, and after the last one.
        """
        weights = network.initial_weights(0)
        self._variables = [tf.Variable(part) for part in weights.values()]
        self._every = every
        self._evaluation = central_evaluation.CentralEvaluation(
            lambda batch: network.scores(
                [part.read_value() for part in self._variables], batch
            ),
            held_out_text,
            length,
        )

    def __call__(self, observed: run.Observed[CentralState]) -> dict[str, float]:
        """Returns the metrics after a round; NaN where it has no evaluation."""
        before, after = (
            state.steps // self._every for state in (observed.before, observed.state)
        )
        found: Mapping[str, float] = dict.fromkeys(metric_names.LABELS, float("nan"))
        if observed.is_last or after > before:
            found = self.metrics(observed.state.model)
        return {f"held_out_{name}": value for name, value in found.items()}

    def metrics(self, weights: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        """Returns the metrics of weights."""
        for variable, part in zip(self._variables, weights.values(), strict=True):
            variable.assign(part)
        return self._evaluation.metrics()
