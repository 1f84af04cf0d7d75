"""N-grams on a keyboard, the baseline that a model has to beat."""

import dataclasses
import filecmp
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from federated_hh.populations import vocabulary as vocabulary_lib
from training.baselines import language_law, ngram_files, ngrams
from training.keyboard import predictions as keyboard_predictions
from training.keyboard import target_positions as keyboard_places
from training.models import finished_runs as keyboard_runs
from training.models import metric_names
from training.text import windows


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


@dataclasses.dataclass(frozen=True)
class LawPredictor(NGramPredictor):
    """The law of a language as a `keyboard_predictions.Predictor`: the best possible.

    Attributes:
        model: The law.
    """

    model: language_law.LanguageLaw

    def predict(
        self, places: keyboard_places.Places, candidates: np.ndarray
    ) -> keyboard_predictions.Predictions:
        """See `keyboard_predictions.Predictor.predict`."""
        found = super().predict(places, candidates)
        # A position after the last used word can only be an end; and a model may score
        # special tokens low, as they do not count for the accuracy.
        is_end = places.columns == places.inputs.shape[1] - 1
        return dataclasses.replace(
            found,
            losses=np.where(is_end, 0.0, found.losses),
            best=found.suggestions[:, 0],
        )


def of_texts(
    models: Mapping[str, str], population: str, vocabulary: vocabulary_lib.Vocabulary
) -> dict[str, NGramPredictor]:
    """Returns the n-grams of other text that are stored with models, by name.

    Those of the population itself and duplicates of other models are left out.

    Args:
        models: The paths of the models, by what reports call them.
        population: The fingerprint of the held-out clients' text.
        vocabulary: The models'.

    Raises:
        ValueError: If a file of n-grams is damaged.
        RunDirectoryError: If the record of a model's run is.
    """
    found: dict[str, NGramPredictor] = {}
    files: list[pathlib.Path] = []
    for name, path in models.items():
        file = ngram_files.find(path)
        if file is None or keyboard_runs.population_of(path) == population:
            continue
        if any(filecmp.cmp(file, other, shallow=False) for other in files):
            continue
        files.append(file)
        for ngram, model in ngram_files.read(path, vocabulary).items():
            predictor = NGramPredictor(model, vocabulary)
            found[f"{ngram}{metric_names.of_text(name)}"] = predictor
    return found
