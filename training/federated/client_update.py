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
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from federated_hh.options import checks
from federated_hh.populations import vocabulary
from federated_hh.privacy.dp_ftrl import model_updates, rotated_updates
from federated_hh.randomness import identities, streams
from federated_hh.rounds import block_round, checkpoints, client_bytes, masked_sums
from federated_hh.runtime import compiled
from federated_hh.runtime.worker import startup
from training.federated import rotated_sums, update_sums
from training.models import evaluation
from training.models import model as model_lib
from training.text import examples

# The worker keeps a block's sum until the round ends, and trains blocks side by side.
_DEFAULT_NUM_BLOCKS = 4


# The encoding of updates, of their sum, and of the server's result.
Encoding: TypeAlias = (
    update_sums.SecureSums | update_sums.PlainSums | rotated_sums.RotatedSums
)

# Nothing is drawn: the seeds of blocks are not used.
_NOTHING_RANDOM = streams.Stream(0)


@identities.identity("LocalTraining", "learning_rate num_epochs")
@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """The settings of local training.

    Attributes:
        learning_rate: The learning rate of the client's SGD, above 0.
        num_epochs: Passes over its sentences, at least 1.
    """

    learning_rate: float
    num_epochs: int = 1

    def __post_init__(self):
        checks.positive(learning_rate=self.learning_rate)
        checks.integer(least=1, num_epochs=self.num_epochs)


class FederatedRounds:
    """A model's rounds over a population: training, and evaluation.

    Needs a TFF execution context that can run secure sums, such as
    `federated_hh.runtime.runtime.tff_worker()`.

    Attributes:
        model: The model.
        mapped: The clients' sentences.
        training: The settings of local training.
    """

    def __init__(
        self,
        model: model_lib.LanguageModel,
        mapped: examples.MappedText,
        training: LocalTraining,
        num_blocks: int = _DEFAULT_NUM_BLOCKS,
        masking: masked_sums.MaskedSums | None = None,
    ):
        """Makes the computations.

        Args:
            model: The model.
            mapped: The clients' sentences.
            training: The settings of local training.
            num_blocks: Number of TFF client values per cohort. Secure sums do not
                depend on it; plain sums do in their last bits.
            masking: Masks of updates; None for sums in the clear.

        Raises:
            ValueError: If `num_blocks` is below 1, or the text has token ids that the
                model does not know.
        """
        checks.integer(least=1, num_blocks=num_blocks)
        largest = int(mapped.text.tokens.max())
        if largest >= model.num_tokens:
            raise ValueError(
                f"the text has the token id {largest}; the model's ids are below "
                f"{model.num_tokens}. Prepare the text with the model's vocabulary."
            )
        self.model = model
        self.mapped = mapped
        self.training = training
        self._num_blocks = num_blocks
        self._shapes = {
            name: part.shape for name, part in model.initial_weights(0).items()
        }
        self._masking = masking
        self._secure_sums = update_sums.SecureSums(model.num_parameters())
        self._plain_sums = update_sums.PlainSums()
        self._rotated_sums: dict[
            rotated_updates.RotatedUpdate, rotated_sums.RotatedSums
        ] = {}
        self._rounds: dict[Any, block_round.BlockRound] = {}

    def describe(self) -> dict[str, Any]:
        """Returns the facts that a round's sums depend on, besides weights and clients.

        The model is in it by its sizes and first weights; how it computes is not.
        """
        weights = self.model.initial_weights(0)
        return {
            "num_tokens": self.model.num_tokens,
            "weights": {name: list(part.shape) for name, part in weights.items()},
            "first_weights": checkpoints.digest(weights).hex(),
            "population": self.mapped.text.fingerprint,
            "limits": identities.settings(self.mapped.limits),
            "training": identities.settings(self.training),
            "arithmetic": startup.arithmetic() | self.model.arithmetic(),
            **(self._masking.describe() if self._masking else {}),
        }

    def check_masking(
        self,
        cohort_size: int,
        clip_norm: float,
        rotated: rotated_updates.RotatedUpdate | None = None,
    ) -> None:
        """Makes sure before a run that its updates can be masked, where they are to be.

        Raises:
            ValueError: See `MaskedSums.check`; or if nothing clips the updates.
        """
        if self._masking is None:
            return
        if clip_norm == math.inf:
            raise ValueError(
                "secure_sum is 'masked': updates that are not clipped have no bound, "
                "and cannot be masked; give a clip norm"
            )
        # The update's own numbers, and two counts; two more for rotated updates.
        size = self.model.num_parameters() + 2
        largest = self._secure_sums.largest["delta"]
        if rotated is not None:
            size, largest = rotated.dimension + 4, 2 * rotated.largest_coordinate
        self._masking.check(cohort_size, size, largest)

    def train(
        self,
        weights: Mapping[str, np.ndarray],
        clients: np.ndarray,
        clip_norm: float,
        tracked_norm: float,
        stream: streams.Stream = _NOTHING_RANDOM,
        rotated: rotated_updates.RotatedUpdate | None = None,
    ) -> model_updates.UpdateSum:
        """Trains clients and sums their messages, by one TFF computation.

        Args:
            weights: The global model.
            clients: int64 [n], at least one: indices into the population.
            clip_norm: L2 norm to which an update is clipped; above 0. If it is
                infinite, nothing bounds an update, and the sum is a plain one; else it
                is a secure sum, to which a client adds at most `clip_norm`.
            tracked_norm: The norm that the quantile bit compares with; above 0.
            stream: The stream of the round; clients of rotated updates draw from it.
            rotated: Encoding of a clipped update; None for exact integers.

        Raises:
            ValueError: If there is no client, one is not in the population, the secure
                sum is for fewer clients, or rotated updates have no stream.
        """
        if rotated is not None and stream is _NOTHING_RANDOM:
            raise ValueError(
                "stream is missing; rotated updates need the round's stream: with "
                "the same signs in every round, errors would not average out."
            )
        encoding = self._encoding(clip_norm, rotated)
        encoding.check(len(clients))
        of_encoding = encoding.message(stream)
        message = {
            "weights": list(weights.values()),
            "clip_norm": np.float64(clip_norm),
            "tracked_norm": np.float64(tracked_norm),
            **of_encoding,
        }
        largest = {**encoding.largest, "num_below": 1, "num_non_finite": 1}
        work = functools.partial(self._train_block, encoding)
        answer = self._ask(
            encoding, work, largest, message, clients, stream, self._masking
        )
        return encoding.update_sum(
            answer.sums, self._shapes, len(clients), answer.num_summed, of_encoding
        )

    def client_bytes(
        self,
        num_clients: int,
        clip_norm: float,
        rotated: rotated_updates.RotatedUpdate | None = None,
    ) -> client_bytes.ClientBytes:
        """Returns a client's bytes in the last round: the model, and its update.

        Not counted in a sum without masks: its two counts, or four, of a few bytes.

        Args:
            num_clients: Size of the cohort.
            clip_norm: See `train`.
            rotated: See `train`.
        """
        size = self.model.num_parameters()
        asked = 4 * size  # float32
        if rotated is not None:
            asked += client_bytes.of_bits(rotated.dimension)  # signs
        if self._masking is not None:
            return self._masking.client_bytes(asked)
        if rotated is not None:
            return client_bytes.ClientBytes(asked, rotated.num_bytes)
        update = 4 * size
        if clip_norm < math.inf:
            largest = self._secure_sums.largest["delta"]
            update = client_bytes.of_vector(size, largest, num_clients)
        return client_bytes.ClientBytes(asked, update)

    def _encoding(
        self, clip_norm: float, rotated: rotated_updates.RotatedUpdate | None
    ) -> Encoding:
        if rotated is not None:
            if rotated not in self._rotated_sums:
                self._rotated_sums[rotated] = rotated_sums.RotatedSums(rotated)
            return self._rotated_sums[rotated]
        return self._secure_sums if clip_norm < math.inf else self._plain_sums

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
        answer = self._ask(
            None, self._evaluate_block, largest, message, clients, _NOTHING_RANDOM
        )
        return evaluation.metrics_of_sums(answer.sums)

    def _ask(self, kind, work, largest, message, clients, stream, masking=None):
        """Returns the clients' answers to a kind of work."""
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
                work, largest, block_size=size, masking=masking
            )
        return self._rounds[kind, size].ask(message, clients, stream)

    def _train_block(self, encoding: Encoding, message, block):
        """Trains a block's clients one after the other; returns their sums."""
        clients = block["clients"]
        start = list(message["weights"])
        told = encoding.told(message)
        zero = tf.constant(0, tf.int64)

        def one_client(number, total, below, non_finite):
            delta = self._local_update(start, clients[number])
            norm = update_sums.norm_of(delta)
            finite = tf.math.is_finite(norm)
            place = block["first_place"] + tf.cast(number, tf.int64)
            total = tf.cond(
                finite,
                lambda: compiled.compiled(encoding.add)(
                    list(total), delta, norm, {**told, "place": place}
                ),
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
            (tf.constant(0), encoding.begin(start), zero, zero),
            parallel_iterations=1,
        )
        sent = encoding.sent(total, tf.size(clients))
        return collections.OrderedDict(sent, num_below=below, num_non_finite=non_finite)

    def _local_update(
        self, start: Sequence[tf.Tensor], client: tf.Tensor
    ) -> list[tf.Tensor]:
        """Returns what a client's SGD adds to the weights: float64."""
        with compiled.reading():
            first, count = self.mapped.sentences_of(client)
        num_batches = self.mapped.num_batches(count)
        num_steps = num_batches * self.training.num_epochs

        def step(number, weights, _):
            batch = self._batch(first, count, number % num_batches)
            gradients = compiled.compiled(self.model.gradients)(list(weights), batch)
            # A Keras model's have no shapes while the graph is built.
            moved = [
                tf.ensure_shape(-self.training.learning_rate * gradient, weight.shape)
                for gradient, weight in zip(gradients, weights, strict=True)
            ]
            # The last step's weights are not needed: no gradient follows.
            weights = tf.cond(
                number + 1 < num_steps,
                lambda: update_sums.sum_of(weights, moved),
                lambda: list(weights),
            )
            return number + 1, weights, moved

        _, weights, moved = tf.while_loop(
            lambda number, *_: number < num_steps,
            step,
            (tf.constant(0, tf.int64), list(start), list(start)),
            parallel_iterations=1,
        )
        update = tf.switch_case(
            tf.cast(tf.minimum(num_steps, 2), tf.int32),
            [
                lambda: [tf.zeros_like(part) for part in start],
                lambda: list(moved),
                lambda: update_sums.sum_of(
                    update_sums.difference(weights, start), moved
                ),
            ],
        )
        return [tf.cast(part, tf.float64) for part in update]

    def _batch(self, first, count, number) -> examples.Batch:
        """Returns a batch of a client, with `--xla` of as many rows as any other."""
        with compiled.reading():
            return examples.Batch(
                *(
                    compiled.padded(part, self.mapped.limits.batch_size, vocabulary.PAD)
                    for part in self.mapped.batch(first, count, number)
                )
            )

    def _evaluate_block(self, message, block):
        """Returns the sums of `evaluation.SUMS` over a block's clients."""
        weights, clients = list(message["weights"]), block["clients"]

        def one_client(number, sums):
            with compiled.reading():
                first, count = self.mapped.sentences_of(clients[number])

            def one_batch(number, sums):
                batch = self._batch(first, count, number)
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
