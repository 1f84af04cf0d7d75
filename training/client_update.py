"""Client side of federated training: local SGD, the clip, and the quantile bit.

The function ClientUpdate of Xu et al. 2023, Algorithm 1, and the secure sum over a
round's clients, as one TFF computation. A TFF client value is a block of clients, which
are trained and encoded one after the other and independently; a block of one is a
client.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from privacy import model_updates
from randomness import streams
from rounds import block_round, codec
from simulation import startup
from training import evaluation, examples, update_sums
from training import model as model_lib

# The worker keeps a block's sum until the round ends, and trains blocks side by side.
_DEFAULT_NUM_BLOCKS = 4


# Training and evaluation draw nothing: the seeds of blocks are not used.
_NOTHING_RANDOM = streams.Stream(0)


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """How a client trains.

    Attributes:
        learning_rate: Of the client's SGD, above 0.
        num_epochs: How often it goes through its sentences, at least 1.
    """

    learning_rate: float
    num_epochs: int = 1

    def __post_init__(self):
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(
                f"learning_rate is {self.learning_rate}; it has to be above 0 and "
                "finite."
            )
        if self.num_epochs < 1:
            raise ValueError(
                f"num_epochs is {self.num_epochs}; it has to be at least 1."
            )


class FederatedRounds:
    """A model's rounds over a population: training, and evaluation.

    Needs a TFF execution context that can run secure sums, such as
    `simulation.runtime.tff_worker()`.

    Attributes:
        model: The model.
        mapped: The clients' sentences.
        training: How a client trains.
    """

    def __init__(
        self,
        model: model_lib.LanguageModel,
        mapped: examples.MappedText,
        training: LocalTraining,
        num_blocks: int = _DEFAULT_NUM_BLOCKS,
    ):
        """Makes the computations.

        Args:
            model: The model.
            mapped: The clients' sentences.
            training: How a client trains.
            num_blocks: Into how many TFF client values a cohort is cut. Secure sums do
                not depend on it, plain ones do in their last bits.

        Raises:
            ValueError: If `num_blocks` is below 1, or the text has token ids that the
                model does not know.
        """
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; it has to be at least 1.")
        largest = int(mapped.text.tokens.max())
        if largest >= model.num_tokens:
            raise ValueError(
                f"the text has the token id {largest}, the model knows ids below "
                f"{model.num_tokens}; prepare it with the model's vocabulary."
            )
        self.model = model
        self.mapped = mapped
        self.training = training
        self._num_blocks = num_blocks
        self._names = list(model.initial_weights(0))
        self._secure_sums = update_sums.SecureSums(model.num_parameters())
        self._plain_sums = update_sums.PlainSums()
        self._rounds: dict[Any, block_round.BlockRound] = {}

    def describe(self) -> dict[str, Any]:
        """Returns what a round's sums depend on, beside weights and clients.

        The model is in it by its sizes and first weights; how it computes is not.
        """
        weights = self.model.initial_weights(0)
        return {
            "num_tokens": self.model.num_tokens,
            "weights": {name: list(part.shape) for name, part in weights.items()},
            "first_weights": codec.digest(weights).hex(),
            "population": self.mapped.text.fingerprint,
            "limits": dataclasses.asdict(self.mapped.limits),
            "training": dataclasses.asdict(self.training),
            "arithmetic": startup.arithmetic(),
        }

    def train(
        self,
        weights: Mapping[str, np.ndarray],
        clients: np.ndarray,
        clip_norm: float,
        tracked_norm: float,
        stream: streams.Stream = _NOTHING_RANDOM,
    ) -> model_updates.UpdateSum:
        """Trains clients and sums up what they send, by one TFF computation.

        Args:
            weights: The global model.
            clients: int64 [n], at least one: indices into the population.
            clip_norm: L2 norm to which an update is clipped; above 0. If it is
                infinite, nothing bounds an update, and the sum is a plain one; else it
                is a secure sum, to which a client adds at most `clip_norm`.
            tracked_norm: The norm that the quantile bit compares with; above 0.
            stream: Of the round; no client draws anything.

        Raises:
            ValueError: If there is no client, or one is not in the population, or the
                secure sum cannot hold so many.
        """
        encoding: update_sums.SecureSums | update_sums.PlainSums = (
            self._secure_sums if clip_norm < math.inf else self._plain_sums
        )
        encoding.check(len(clients))
        message = {
            "weights": list(weights.values()),
            "clip_norm": np.float64(clip_norm),
            "tracked_norm": np.float64(tracked_norm),
        }
        largest = {"delta": encoding.largest, "num_below": 1, "num_non_finite": 1}
        work = functools.partial(self._train_block, encoding)
        sums = self._ask(type(encoding), work, largest, message, clients, stream)
        parts = collections.OrderedDict(
            (name, encoding.centred(part, len(clients)))
            for name, part in zip(self._names, sums["delta"], strict=True)
        )
        return model_updates.UpdateSum(
            parts, len(clients), int(sums["num_below"]), int(sums["num_non_finite"])
        )

    def evaluate(
        self, weights: Mapping[str, np.ndarray], clients: np.ndarray
    ) -> collections.OrderedDict[str, float]:
        """Returns the metrics of a model on clients' text, by one TFF computation.

        Args:
            weights: The model.
            clients: int64 [n], at least one: clients that are held out.

        Returns:
            See `evaluation.metrics_of_sums`.
        """
        message = {"weights": list(weights.values())}
        largest = dict.fromkeys(evaluation.SUMS)
        sums = self._ask(
            None, self._evaluate_block, largest, message, clients, _NOTHING_RANDOM
        )
        return evaluation.metrics_of_sums(sums)

    def _ask(self, kind, work, largest, message, clients, stream):
        """Returns the sums of a kind of work over clients."""
        if not clients.size:
            raise ValueError("clients is empty; it has to have at least one.")
        population = self.mapped.text.num_clients
        if clients.min() < 0 or clients.max() >= population:
            raise ValueError(
                f"clients has {clients.min()} to {clients.max()}; it has to be in "
                f"[0, {population})."
            )
        size = block_round.block_size_of(clients.size, self._num_blocks)
        if (kind, size) not in self._rounds:
            self._rounds[kind, size] = block_round.BlockRound(
                work, largest, block_size=size
            )
        return self._rounds[kind, size](message, clients, stream)

    def _train_block(self, encoding, message, block):
        """Trains a block's clients one after the other; returns their sums."""
        clients = block["clients"]
        start = list(message["weights"])
        zero = tf.constant(0, tf.int64)

        def one_client(number, total, below, non_finite):
            weights = self._local_training(start, clients[number])
            delta = update_sums.difference(weights, start)
            norm = update_sums.norm_of(delta)
            finite = tf.math.is_finite(norm)
            total = tf.cond(
                finite,
                lambda: encoding.add(total, delta, norm, message["clip_norm"]),
                lambda: list(total),
            )
            bit = finite & (norm <= message["tracked_norm"])
            return (
                number + 1,
                total,
                below + tf.cast(bit, tf.int64),
                non_finite + tf.cast(~finite, tf.int64),
            )

        _, total, below, non_finite = tf.while_loop(
            lambda number, *_: number < tf.size(clients),
            one_client,
            (
                tf.constant(0),
                [tf.zeros_like(w, encoding.dtype) for w in start],
                zero,
                zero,
            ),
            parallel_iterations=1,
        )
        sent = [encoding.shifted(part, tf.size(clients)) for part in total]
        return collections.OrderedDict(
            delta=sent, num_below=below, num_non_finite=non_finite
        )

    def _local_training(
        self, start: Sequence[tf.Tensor], client: tf.Tensor
    ) -> list[tf.Tensor]:
        """Returns a client's weights after its SGD."""
        first, count = self.mapped.sentences_of(client)
        num_batches = self.mapped.num_batches(count)

        def step(number, weights):
            batch = self.mapped.batch(first, count, number % num_batches)
            gradients = self.model.gradients(weights, batch)
            rate = self.training.learning_rate
            return number + 1, [
                weight - rate * gradient
                for weight, gradient in zip(weights, gradients, strict=True)
            ]

        last = num_batches * self.training.num_epochs
        _, weights = tf.while_loop(
            lambda number, _: number < last,
            step,
            (tf.constant(0, tf.int64), list(start)),
            parallel_iterations=1,
        )
        return weights

    def _evaluate_block(self, message, block):
        """Returns the sums of `evaluation.SUMS` over a block's clients."""
        weights, clients = list(message["weights"]), block["clients"]

        def one_client(number, sums):
            first, count = self.mapped.sentences_of(clients[number])

            def one_batch(number, sums):
                batch = self.mapped.batch(first, count, number)
                added = evaluation.sums_of_batch(*self.model.scores(weights, batch))
                return number + 1, [
                    sum_ + part for sum_, part in zip(sums, added.values(), strict=True)
                ]

            _, sums = tf.while_loop(
                lambda number, _: number < self.mapped.num_batches(count),
                one_batch,
                (tf.constant(0, tf.int64), sums),
                parallel_iterations=1,
            )
            return number + 1, sums

        zeros = [tf.constant(0, tf.float64) for _ in evaluation.SUMS]
        _, sums = tf.while_loop(
            lambda number, _: number < tf.size(clients),
            one_client,
            (tf.constant(0), zeros),
            parallel_iterations=1,
        )
        return collections.OrderedDict(zip(evaluation.SUMS, sums, strict=True))
