"""N-grams on a keyboard: what a model has to beat to be worth its training."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from simulation import vocabulary as vocabulary_lib
from training import keyboard_places, keyboard_predictions, ngrams, windows


@dataclasses.dataclass(frozen=True)
class NGramPredictor:
    """An n-gram model as a `keyboard_predictions.Predictor`.

    Attributes:
        model: The n-grams.
        vocabulary: Gives words their token ids.
    """

    model: ngrams.Model
    vocabulary: vocabulary_lib.Vocabulary

    def predict(
        self, places: keyboard_places.Places, candidates: np.ndarray
    ) -> keyboard_predictions.Predictions:
        """See `keyboard_predictions.Predictor.predict`."""
        rows, columns = places.rows, places.columns
        before = places.inputs[rows, np.maximum(columns - 1, 0)]
        before = np.where(columns > 0, before, vocabulary_lib.PAD)
        contexts = self._contexts(before, places.inputs[rows, columns])
        best = self._best(contexts)
        wide = np.repeat(contexts, candidates.shape[1])
        wanted = self.model.probability(wide, candidates.ravel())
        return keyboard_predictions.Predictions(
            losses=-np.log(self.model.probability(contexts, places.targets)),
            best=best[:, 0],
            suggestions=best[:, 1:],
            confidence=self.model.probability(contexts, best[:, 1]),
            candidates=np.log(wanted).reshape(candidates.shape),
        )

    def next_words(
        self, contexts: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """See `keyboard_predictions.Predictor.next_words`."""
        pad = vocabulary_lib.PAD
        before = np.array([c[-2] if len(c) > 1 else pad for c in contexts], np.int64)
        numbers = self._contexts(before, np.array([c[-1] for c in contexts], np.int64))
        words = self._best(numbers)[:, 1]
        return words, self.model.probability(numbers, words)

    def _contexts(self, before: np.ndarray, last: np.ndarray) -> np.ndarray:
        tokens = np.column_stack([before, last, np.zeros_like(last)])
        seen = windows.Windows(tokens, self.vocabulary.num_tokens)
        return seen.contexts(self.model.order)

    def _best(self, contexts: np.ndarray) -> np.ndarray:
        distinct, inverse = np.unique(contexts, return_inverse=True)
        return self.model.best(distinct)[inverse]
