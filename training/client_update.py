"""Client side of federated training: local SGD, the clip, and the quantile bit.

The function ClientUpdate of Xu et al. 2023, Algorithm 1, and the secure sum over a
round's clients, as one TFF computation. A TFF client value is a block of clients, which
are trained and encoded one after the other and independently; a block of one is a
client.
"""

import collections
import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from training import evaluation, examples, update_sums
from training import model as model_lib

# The worker keeps a block's sum until the round ends, and trains blocks side by side.
_DEFAULT_NUM_BLOCKS = 8


_Encoding = update_sums.SecureSums | update_sums.PlainSums


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
                f"learning_rate is {self.learning_rate}, must be above 0 and finite."
            )
        if self.num_epochs < 1:
            raise ValueError(f"num_epochs is {self.num_epochs}, must be at least 1.")


@dataclasses.dataclass(frozen=True)
class RoundSums:
    """What a round's secure sum tells the server.

    Attributes:
        total: The sum of the clipped updates, by the weights' names, in units of
            `unit`: int64; float32 where nothing bounds an update.
        unit: What a 1 of `total` stands for.
        num_clients: How many clients were summed.
        num_below: How many had an update no longer than the tracked norm.
        num_non_finite: How many had an update that is not finite, and counts as zero.
    """

    total: collections.OrderedDict[str, np.ndarray]
    unit: float
    num_clients: int
    num_below: int
    num_non_finite: int

    @property
    def delta(self) -> collections.OrderedDict[str, np.ndarray]:
        """The sum of the clipped updates, by the weights' names: float32."""
        return collections.OrderedDict(
            (name, (part * self.unit).astype(np.float32))
            for name, part in self.total.items()
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
            raise ValueError(f"num_blocks is {num_blocks}, must be at least 1.")
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
        weights = model.initial_weights(0)
        self._names = list(weights)
        self._secure_sums = update_sums.SecureSums(model.num_parameters())
        self._plain_sums = update_sums.PlainSums()
        self._weights_type = [
            tff.TensorType(np.float32, weight.shape) for weight in weights.values()
        ]
        self._computations: dict[tuple[str, int], Callable[..., Any]] = {}

    @property
    def sensitivity(self) -> int:
        """The L2 norm of what a client adds to `RoundSums.total` at most."""
        return 1 << self._secure_sums.fraction_bits

    def describe(self) -> str:
        """Returns what a round's sums depend on, beside weights and clients: JSON.

        The model is in it by its sizes and first weights; how it computes is not.
        """
        digest = hashlib.sha256()
        weights = self.model.initial_weights(0)
        for part in weights.values():
            digest.update(np.ascontiguousarray(part))
        return json.dumps(
            {
                "num_tokens": self.model.num_tokens,
                "weights": {name: part.shape for name, part in weights.items()},
                "first_weights": digest.hexdigest(),
                "text": self.mapped.text.fingerprint,
                "limits": dataclasses.asdict(self.mapped.limits),
                "training": dataclasses.asdict(self.training),
                "sensitivity": self.sensitivity,
            },
            sort_keys=True,
        )

    def train(
        self,
        weights: collections.OrderedDict[str, np.ndarray],
        clients: np.ndarray,
        clip_norm: float,
        tracked_norm: float,
    ) -> RoundSums:
        """Trains clients and sums up what they send, by one TFF computation.

        Args:
            weights: The global model.
            clients: int64 [n], at least one: indices into the population.
            clip_norm: L2 norm to which an update is clipped; above 0. If it is
                infinite, nothing bounds an update, and the sum is a plain one; else it
                is a secure sum, to which a client adds at most `clip_norm`.
            tracked_norm: The norm that the quantile bit compares with; above 0.

        Raises:
            ValueError: If there is no client, or one is not in the population, or the
                secure sum cannot hold so many.
        """
        encoding = self._secure_sums if clip_norm < math.inf else self._plain_sums
        encoding.check(len(clients))
        sums = self._run(encoding, weights, clients, clip_norm, tracked_norm)
        total = collections.OrderedDict(
            (name, encoding.centred(part, len(clients)))
            for name, part in zip(self._names, sums["delta"], strict=True)
        )
        return RoundSums(
            total,
            encoding.unit(clip_norm),
            len(clients),
            int(sums["num_below"]),
            int(sums["num_non_finite"]),
        )

    def evaluate(
        self,
        weights: collections.OrderedDict[str, np.ndarray],
        clients: np.ndarray,
    ) -> collections.OrderedDict[str, float]:
        """Returns the metrics of a model on clients' text, by one TFF computation.

        Args:
            weights: The model.
            clients: int64 [n], at least one: clients that are held out.

        Returns:
            See `evaluation.metrics_of_sums`.
        """
        sums = self._run(None, weights, clients, 1.0, 1.0)
        return evaluation.metrics_of_sums(sums)

    def _run(self, encoding, weights, clients, clip_norm, tracked_norm):
        """Trains clients, or evaluates on them where there is no encoding."""
        if not clients.size:
            raise ValueError("clients is empty, must have at least one.")
        population = self.mapped.text.num_clients
        if clients.min() < 0 or clients.max() >= population:
            raise ValueError(
                f"clients has {clients.min()} to {clients.max()}, must be in "
                f"[0, {population})."
            )
        size = math.ceil(clients.size / self._num_blocks)
        key = (type(encoding), size)
        if key not in self._computations:
            if encoding is None:
                self._computations[key] = self._build_evaluation()
            else:
                self._computations[key] = self._build_training(encoding, size)
        message = collections.OrderedDict(
            weights=list(weights.values()),
            clip_norm=np.float64(clip_norm),
            tracked_norm=np.float64(tracked_norm),
        )
        blocks = [
            clients[first : first + size].astype(np.int64)
            for first in range(0, clients.size, size)
        ]
        return self._computations[key](message, blocks)

    def _types(self):
        message = tff.to_type(
            collections.OrderedDict(
                weights=self._weights_type,
                clip_norm=np.float64,
                tracked_norm=np.float64,
            )
        )
        return message, tff.TensorType(np.int64, [None])

    def _build_training(
        self, encoding: _Encoding, most_clients: int
    ) -> Callable[..., Any]:
        message_type, block_type = self._types()

        @tff.tensorflow.computation(message_type, block_type)
        def train_block(message, block):
            return self._train_block(encoding, message, block)

        @tff.federated_computation(
            tff.FederatedType(message_type, tff.SERVER),
            tff.FederatedType(block_type, tff.CLIENTS),
        )
        def train(message, blocks):
            results = tff.federated_map(
                train_block, (tff.federated_broadcast(message), blocks)
            )
            return tff.federated_zip(
                collections.OrderedDict(
                    delta=encoding.sum(results.delta, most_clients),
                    num_below=tff.federated_secure_sum(results.num_below, most_clients),
                    num_non_finite=tff.federated_secure_sum(
                        results.num_non_finite, most_clients
                    ),
                )
            )

        return train

    def _build_evaluation(self) -> Callable[..., Any]:
        message_type, block_type = self._types()

        @tff.tensorflow.computation(message_type, block_type)
        def evaluate_block(message, block):
            return self._evaluate_block(message["weights"], block)

        @tff.federated_computation(
            tff.FederatedType(message_type, tff.SERVER),
            tff.FederatedType(block_type, tff.CLIENTS),
        )
        def evaluate(message, blocks):
            return tff.federated_sum(
                tff.federated_map(
                    evaluate_block, (tff.federated_broadcast(message), blocks)
                )
            )

        return evaluate

    def _train_block(self, encoding, message, block):
        """Trains a block's clients one after the other; returns their sums."""
        start = list(message["weights"])
        zero = tf.constant(0, tf.int64)

        def one_client(number, total, below, non_finite):
            weights = self._local_training(start, block[number])
            delta = [
                after - before for after, before in zip(weights, start, strict=True)
            ]
            norm = update_sums.norm_of(delta)
            sent = encoding.encode(delta, norm, message["clip_norm"])
            total = [sum_ + part for sum_, part in zip(total, sent, strict=True)]
            finite = tf.math.is_finite(norm)
            bit = finite & (norm <= message["tracked_norm"])
            return (
                number + 1,
                total,
                below + tf.cast(bit, tf.int64),
                non_finite + tf.cast(~finite, tf.int64),
            )

        _, total, below, non_finite = tf.while_loop(
            lambda number, *_: number < tf.size(block),
            one_client,
            (
                tf.constant(0),
                [tf.zeros_like(w, encoding.dtype) for w in start],
                zero,
                zero,
            ),
            parallel_iterations=1,
        )
        return collections.OrderedDict(
            delta=total, num_below=below, num_non_finite=non_finite
        )

    def _local_training(
        self, start: Sequence[tf.Tensor], client: tf.Tensor
    ) -> list[tf.Tensor]:
        """Returns a client's weights after its SGD."""
        first, count = self.mapped.sentences_of(client)
        num_batches = self.mapped.num_batches(count)

        def step(number, weights):
            inputs, targets = self.mapped.batch(first, count, number % num_batches)
            with tf.GradientTape() as tape:
                tape.watch(weights)
                loss = evaluation.mean_loss(self.model.logits(weights, inputs), targets)
            gradients = tape.gradient(
                loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            rate = self.training.learning_rate
            return number + 1, [
                weight - rate * tf.convert_to_tensor(gradient)
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

    def _evaluate_block(self, weights, block):
        """Returns the sums of `evaluation.SUMS` over a block's clients."""
        weights = list(weights)

        def one_client(number, sums):
            first, count = self.mapped.sentences_of(block[number])

            def one_batch(batch, sums):
                inputs, targets = self.mapped.batch(first, count, batch)
                logits = self.model.logits(weights, inputs)
                added = evaluation.sums_of_batch(logits, targets)
                return batch + 1, [
                    sum_ + part for sum_, part in zip(sums, added.values(), strict=True)
                ]

            _, sums = tf.while_loop(
                lambda batch, _: batch < self.mapped.num_batches(count),
                one_batch,
                (tf.constant(0, tf.int64), sums),
                parallel_iterations=1,
            )
            return number + 1, sums

        zeros = [tf.constant(0, tf.float64) for _ in evaluation.SUMS]
        _, sums = tf.while_loop(
            lambda number, _: number < tf.size(block),
            one_client,
            (tf.constant(0), zeros),
            parallel_iterations=1,
        )
        return collections.OrderedDict(zip(evaluation.SUMS, sums, strict=True))
