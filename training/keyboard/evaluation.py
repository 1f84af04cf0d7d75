"""A model evaluated as a keyboard would use it, on sentences of simulated users.

Three uses, as in Xu et al. 2023: next-word prediction (`user`), Smart Compose
(`compose`), and rescoring while a word is typed (`typing_model`). Each docstring names
the paper's live metric that a number represents. It is one evaluation of a released
model, by the simulator, on sentences as written: suggestions do not change the text.
"""

import collections
import dataclasses
from collections.abc import Mapping

import numpy as np
import pandas as pd

from federated_hh.populations import vocabulary as vocabulary_lib
from training.keyboard import compose as keyboard_compose
from training.keyboard import options as keyboard_options
from training.keyboard import predictions as keyboard_predictions
from training.keyboard import target_positions as keyboard_places
from training.keyboard import typing_model as keyboard_typing
from training.keyboard import user as keyboard_user
from training.models import metric_names

_CONFIDENCE = 0.95
_SAMPLES_AT_A_TIME = 100
# Numerator and denominator of each metric; see `metric_names.KEYBOARD_LABELS`.
_RATIOS: Mapping[str, tuple[str, str]] = {
    "loss": ("loss", "places"),
    "top1_in_vocabulary": ("top1_in_vocabulary", "word_places"),
    "one_suggestion": ("one_suggestion", "word_places"),
    "three_suggestions": ("three_suggestions", "word_places"),
    "picked_rate": ("picks", "words"),
    "keystrokes_saved": ("keystrokes_saved", "keystrokes"),
    "trigger_rate": ("triggers", "words"),
    "compose_accuracy": ("compose_right", "offers"),
    "compose_picked_rate": ("compose_picks", "offers"),
    "word_modified_before": ("modified_before", "typed"),
    "word_modified_after": ("modified_after", "typed"),
    "word_modified_of_all_before": ("modified_of_all_before", "words"),
    "word_modified_of_all_after": ("modified_of_all_after", "words"),
}
assert list(_RATIOS) == list(metric_names.KEYBOARD_LABELS)


@dataclasses.dataclass(frozen=True)
class Scores:
    """Each client's part of the metrics of a model.

    Attributes:
        sums: Sums by name: float64 [clients].
    """

    sums: Mapping[str, np.ndarray]

    def metrics(self) -> collections.OrderedDict[str, float]:
        """Returns the metrics over all clients; NaN of no text."""
        totals = {name: values.sum() for name, values in self.sums.items()}
        return collections.OrderedDict(
            (name, float(_ratio(totals[top], totals[bottom])))
            for name, (top, bottom) in _RATIOS.items()
        )

    def intervals(
        self, rng: np.random.Generator, num_resamples: int
    ) -> dict[str, tuple[float, float]]:
        """Returns a 95% interval of each metric, by the bootstrap over clients.

        As many clients are drawn as there are, with replacement, each with all of its
        text, because one person's texts are alike. The ends are quantiles of the
        resamples' metrics.

        Args:
            rng: Draws the clients.
            num_resamples: Number of resamples, at least 1.

        Returns:
            By metric the lower and the upper end; NaN for a single client, or if a
            metric is NaN.
        """
        names = list(self.sums)
        table = np.stack([self.sums[name] for name in names], axis=1)
        number = len(table)
        if number < 2:
            return dict.fromkeys(_RATIOS, (float("nan"), float("nan")))
        share = np.full(number, 1 / number)
        parts = []
        for first in range(0, num_resamples, _SAMPLES_AT_A_TIME):
            size = min(_SAMPLES_AT_A_TIME, num_resamples - first)
            parts.append(rng.multinomial(number, share, size) @ table)
        resampled = dict(zip(names, np.concatenate(parts).T, strict=True))
        tail = (1 - _CONFIDENCE) / 2
        found = {}
        for name, (top, bottom) in _RATIOS.items():
            ratios = _ratio(resampled[top], resampled[bottom])
            known = ratios[~np.isnan(ratios)]
            ends = np.quantile(known, [tail, 1 - tail]) if len(known) else [np.nan] * 2
            found[name] = (float(ends[0]), float(ends[1]))
        return found


def _ratio(top: np.ndarray | float, bottom: np.ndarray | float) -> np.ndarray:
    top, bottom = np.asarray(top, float), np.asarray(bottom, float)
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The evaluation of a model.

    Attributes:
        scores: Each client's part of the metrics.
        threshold: The threshold of Smart Compose; None where none has the wanted picked
            rate, so that it is never triggered.
        curve: A row a threshold of Smart Compose: `threshold`, `trigger_rate`,
            `compose_accuracy`, `compose_picked_rate`, and the mean `words` of an offer.
    """

    scores: Scores
    threshold: float | None
    curve: pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Task:
    """The evaluation of all models: the same sentences and touches.

    Attributes:
        places: The positions of the held-out clients' sentences.
        typist: Types and decodes.
        typed: The typed words, and the decoder's candidates.
        user: Picks what is right.
        compose: The settings of Smart Compose.
    """

    places: keyboard_places.Places
    typist: keyboard_typing.TouchTypist
    typed: keyboard_typing.TypedWords
    user: keyboard_user.SimulatedUser
    compose: keyboard_options.ComposeOptions

    @classmethod
    def of(
        cls,
        places: keyboard_places.Places,
        typist: keyboard_typing.TouchTypist,
        user: keyboard_user.SimulatedUser,
        compose: keyboard_options.ComposeOptions,
        seed: int,
    ) -> "Task":
        """Types the held-out clients' words.

        Args:
            places: With as many following tokens as a continuation has words, but one.
            typist: Types them.
            user: Picks what is right.
            compose: The settings of Smart Compose.
            seed: The seed of the touches.
        """
        typed = typist.type_words(places.targets, places.held_out[places.clients], seed)
        return cls(places, typist, typed, user, compose)

    def counts(self) -> dict[str, int]:
        """Returns the size of the evaluation."""
        places = self.places
        known = int(places.is_known.sum())
        return {
            "held-out clients": len(places.held_out),
            "sentences": len(places.inputs),
            "words": int(places.is_typed.sum()),
            "words of the vocabulary": known,
            "words typed": len(self.typed.places),
            "words left out, without keys": known - len(self.typed.places),
            "words typed that the decoder proposes": int(self.typed.is_proposed.sum()),
        }

    def evaluate(self, predictor: keyboard_predictions.Predictor) -> Evaluation:
        """Returns the evaluation of a model.

        Args:
            predictor: The model, of the typist's vocabulary.
        """
        places, typed = self.places, self.typed
        wanted = np.zeros(
            (len(places.targets), typed.candidates.shape[1]), dtype=np.int32
        )
        wanted[typed.places] = typed.candidates
        found = predictor.predict(places, wanted)
        continued = keyboard_compose.continuations(
            predictor, places, found, self.compose
        )
        threshold = self._threshold(continued)
        composed = continued.sums(
            np.inf if threshold is None else threshold, self.user, places
        )
        sums = {
            **self._next_word(predictor.vocabulary, found),
            **composed,
            **self._modified(found),
        }
        return Evaluation(Scores(sums), threshold, self._curve(continued))

    def _next_word(
        self,
        vocabulary: vocabulary_lib.Vocabulary,
        found: keyboard_predictions.Predictions,
    ) -> dict[str, np.ndarray]:
        """Returns each client's sums of next-word prediction."""
        places = self.places
        hits = found.suggestions == places.targets[:, np.newaxis]
        known = places.is_known
        special = [0] * len(vocabulary_lib.SPECIAL_TOKENS)
        sizes = np.array([*special, *map(len, vocabulary.words)])
        values = {
            "loss": found.losses,
            "places": np.ones(len(known)),
            "words": places.is_typed,
            "word_places": known,
            "top1_in_vocabulary": known & (found.best == places.targets),
            "one_suggestion": hits[:, 0],
            "three_suggestions": hits.any(axis=1),
            **keyboard_user.next_word_sums(
                self.user, hits.any(axis=1), sizes[places.targets]
            ),
        }
        return {name: places.sums(value) for name, value in values.items()}

    def _modified(
        self, found: keyboard_predictions.Predictions
    ) -> dict[str, np.ndarray]:
        """Returns each client's sums of words that have to be modified."""
        places, typed = self.places, self.typed
        after = self.typist.is_modified(
            typed, places.targets, found.candidates[typed.places]
        )
        sums = {
            "typed": places.sums(np.ones(len(typed.places)), typed.places),
            "modified_before": places.sums(~typed.is_first, typed.places),
            "modified_after": places.sums(after, typed.places),
        }
        others = places.sums(places.is_typed) - sums["typed"]
        return sums | {
            "modified_of_all_before": sums["modified_before"] + others,
            "modified_of_all_after": sums["modified_after"] + others,
        }

    def _threshold(self, found: keyboard_compose.Continuations) -> float | None:
        wanted = self.compose.compose_picked_rate
        if wanted is None:
            return self.compose.threshold
        return keyboard_compose.threshold_for(
            found, wanted, self.user, self.places, self.compose
        )

    def _curve(self, found: keyboard_compose.Continuations) -> pd.DataFrame:
        words = int(self.places.is_typed.sum())
        rows = []
        for threshold in keyboard_compose.thresholds(self.compose):
            sums = found.sums(threshold, self.user, self.places)
            totals = {name: float(value.sum()) for name, value in sums.items()}
            triggers, offers = totals["triggers"], totals["offers"]

            def each(total: float, offers: float = offers) -> float:
                return total / offers if offers else float("nan")

            rows.append(
                {
                    "threshold": threshold,
                    "trigger_rate": triggers / words if words else float("nan"),
                    "compose_accuracy": each(totals["compose_right"]),
                    "compose_picked_rate": each(totals["compose_picks"]),
                    "words": each(totals["compose_words"]),
                }
            )
        return pd.DataFrame(rows)
