"""A model's predictions at the positions of sentences, batch by batch."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from federated_hh.populations import vocabulary as vocabulary_lib
from training.keyboard import model as keyboard_model
from training.keyboard import target_positions as keyboard_places
from training.models import evaluation

_SENTENCES_AT_A_TIME = 32


@dataclasses.dataclass(frozen=True)
class Predictions:
    """A model's predictions at each position.

    Attributes:
        losses: Floats [places]: the target's cross entropy, in nats.
        best: Integers [places]: the token with the highest score.
        suggestions: Integers [places, 3]: words, the likeliest first; -1 where there
            are fewer.
        confidence: Floats [places]: the first suggestion's probability among all
            tokens.
        candidates: Floats [places, k]: the log-probabilities of given tokens.
    """

    losses: np.ndarray
    best: np.ndarray
    suggestions: np.ndarray
    confidence: np.ndarray
    candidates: np.ndarray


class Predictor(Protocol):
    """A predictor of next words."""

    @property
    def vocabulary(self) -> vocabulary_lib.Vocabulary:
        """Gives words their token ids."""

    def predict(
        self, places: keyboard_places.Places, candidates: np.ndarray
    ) -> Predictions:
        """Returns the predictions at all positions.

        Args:
            places: The positions.
            candidates: int32 [places, k]: token ids whose log-probabilities are wanted.
        """

    def next_words(
        self, contexts: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the likeliest next words of contexts.

        Args:
            contexts: Token ids, at least one each; a sentence's first one is its
                beginning.

        Returns:
            Integers [contexts]: token ids of words; and float64 [contexts]: their
            probabilities among all tokens.
        """


@dataclasses.dataclass(frozen=True)
class NetworkPredictor:
    """A trained model as a `Predictor`.

    Attributes:
        model: It looks at least at as many tokens as the sentences have; of a
            longer context it sees the end.
    """

    model: keyboard_model.KeyboardModel

    @property
    def vocabulary(self) -> vocabulary_lib.Vocabulary:
        """The model's."""
        return self.model.vocabulary

    def predict(
        self, places: keyboard_places.Places, candidates: np.ndarray
    ) -> Predictions:
        """See `Predictor.predict`."""
        width, k = places.inputs.shape[1], candidates.shape[1]

        @tf.function(
            input_signature=[
                tf.TensorSpec([_SENTENCES_AT_A_TIME, self.model.length], tf.int32),
                tf.TensorSpec([None, 2], tf.int32),
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, k], tf.int32),
            ]
        )
        def of_batch(tokens, at, targets, wanted):
            logits = self.model.logits_at(tokens, at)
            suggested = evaluation.suggestions(logits)
            log_probabilities = tf.nn.log_softmax(logits)

            def of(token_ids):
                return tf.gather(log_probabilities, token_ids, batch_dims=1)

            return (
                -of(targets[:, tf.newaxis])[:, 0],
                tf.argmax(logits, axis=-1, output_type=tf.int32),
                suggested,
                tf.exp(of(suggested[:, :1])[:, 0]),
                of(wanted),
            )

        parts: list[Sequence[np.ndarray]] = []
        for first in range(0, len(places.inputs), _SENTENCES_AT_A_TIME):
            some = slice(
                *np.searchsorted(places.rows, [first, first + _SENTENCES_AT_A_TIME])
            )
            tokens = np.zeros((_SENTENCES_AT_A_TIME, self.model.length), np.int32)
            sentences = places.inputs[first : first + _SENTENCES_AT_A_TIME]
            tokens[: len(sentences), :width] = sentences
            at = np.stack([places.rows[some] - first, places.columns[some]], axis=1)
            found = of_batch(
                tokens, at.astype(np.int32), places.targets[some], candidates[some]
            )
            parts.append([part.numpy() for part in found])
        return Predictions(
            *(np.concatenate(column) for column in zip(*parts, strict=True))
        )

    def next_words(
        self, contexts: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `Predictor.next_words`."""
        lengths = np.array([min(len(c), self.model.length) for c in contexts], np.int64)
        tokens = np.full(
            (len(contexts), self.model.length), vocabulary_lib.PAD, np.int32
        )
        for row, context in zip(tokens, contexts, strict=True):
            row[: min(len(context), self.model.length)] = context[-self.model.length :]
        # Many sentences begin alike.
        rows, back = np.unique(
            np.column_stack([lengths, tokens]).astype(np.int32),
            axis=0,
            return_inverse=True,
        )
        back = back.reshape(-1)

        @tf.function(
            input_signature=[
                tf.TensorSpec([_SENTENCES_AT_A_TIME, self.model.length], tf.int32),
                tf.TensorSpec([None, 2], tf.int32),
            ]
        )
        def of_batch(batch, at):
            logits = self.model.logits_at(batch, at)
            best = evaluation.suggestions(logits)[:, :1]
            probabilities = tf.nn.softmax(logits)
            return best[:, 0], tf.gather(probabilities, best, batch_dims=1)[:, 0]

        words = np.zeros(len(rows), np.int32)
        confidence = np.zeros(len(rows))
        for first in range(0, len(rows), _SENTENCES_AT_A_TIME):
            some = rows[first : first + _SENTENCES_AT_A_TIME]
            batch = np.zeros((_SENTENCES_AT_A_TIME, self.model.length), np.int32)
            batch[: len(some)] = some[:, 1:]
            at = np.stack([np.arange(len(some)), some[:, 0] - 1], axis=1)
            found = of_batch(batch, at.astype(np.int32))
            words[first : first + len(some)] = found[0].numpy()
            confidence[first : first + len(some)] = found[1].numpy()
        return words[back], confidence[back]
