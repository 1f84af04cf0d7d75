"""Smart Compose: a continuation of a few words, if the model is confident.

At each position of a sentence, also after its last word, the continuation is the greedy
choice of the likeliest word, n times; the model's confidence in its first j words is
the product of their probabilities. At a threshold the longest part with at least that
confidence is offered: Smart Compose is triggered if that part has a word or more. After
the last word nothing follows, so an offer there is wrong. (A real keyboard may also
trigger within a word.)

* *Trigger rate* stands for the paper's Trigger Rate, "the ratio of words with SC
  triggered among all committed words, which is an important metric when PRate is
  fixed": the share of all typed words, including unknown ones, at whose position it is
  triggered. The position after the last word belongs to no word, so its offers do not
  count. `threshold_for` finds the threshold for a fixed picked rate.
* *Picked rate of Smart Compose* stands for PRate, "the ratio of picked candidates among
  the SC predictions when it is triggered": of all offers, including those after last
  words, the share that a simulated user picks, who picks right ones.
* *Accuracy of Smart Compose* stands for Acc: of all offers, including those after last
words, the share whose words are all typed next.
"""

import dataclasses

import numpy as np

from training.keyboard import options as keyboard_options
from training.keyboard import predictions as keyboard_predictions
from training.keyboard import target_positions as keyboard_places
from training.keyboard import user as keyboard_user

# Steps of thresholds, in hundredths.
_CURVE_STEP = 5


@dataclasses.dataclass(frozen=True)
class Continuations:
    """Continuations at positions that have one at the lowest threshold.

    Attributes:
        places: int64 [n]: positions.
        confidence: float64 [n, words]: of the first words, falling; 0 for words that
            the model was not asked for.
        is_right: bool [n, words]: whether the first words are all typed next.
        characters: int64 [n, words]: of the first words and the blanks between them.
    """

    places: np.ndarray
    confidence: np.ndarray
    is_right: np.ndarray
    characters: np.ndarray

    def sums(
        self,
        threshold: float,
        user: keyboard_user.SimulatedUser,
        places: keyboard_places.Places,
    ) -> dict[str, np.ndarray]:
        """Returns the offers at a threshold.

        Args:
            threshold: The threshold, at least the lowest one.
            user: Picks what is right.
            places: All places.

        Returns:
            float64 [clients] by name: `offers`; those at the places of words, which are
            `triggers`; the right offers, `compose_right`; the expected number of
            `compose_picks`; and the offers' number of words, `compose_words`.
        """
        words = (self.confidence >= threshold).sum(axis=1)
        rows = np.flatnonzero(words)
        last = words[rows] - 1
        right = self.is_right[rows, last]
        picks = user.picks(self.characters[rows, last]) * right
        at = self.places[rows]
        return {
            "offers": places.sums(np.ones(len(rows)), at),
            "triggers": places.sums(places.is_typed[at], at),
            "compose_right": places.sums(right, at),
            "compose_picks": places.sums(picks, at),
            "compose_words": places.sums(words[rows], at),
        }


def continuations(
    predictor: keyboard_predictions.Predictor,
    places: keyboard_places.Places,
    predictions: keyboard_predictions.Predictions,
    options: keyboard_options.ComposeOptions,
) -> Continuations:
    """Returns a predictor's continuations at positions with enough confidence.

    Args:
        predictor: Goes on.
        places: With as many following tokens as a continuation has words, but one.
        predictions: The predictions of the predictor at the places.
        options: The lowest threshold, and the most words.
    """
    lowest, num_words = options.lowest_threshold, options.compose_words
    at = np.flatnonzero(predictions.confidence >= lowest)
    words = np.zeros((len(at), num_words), np.int32)
    confidence = np.zeros((len(at), num_words))
    words[:, 0] = predictions.suggestions[at, 0]
    confidence[:, 0] = predictions.confidence[at]
    for j in range(1, num_words):
        goes_on = np.flatnonzero(confidence[:, j - 1] >= lowest)
        contexts = [
            np.concatenate([places.inputs[row, : column + 1], said])
            for row, column, said in zip(
                places.rows[at[goes_on]],
                places.columns[at[goes_on]],
                words[goes_on, :j],
                strict=True,
            )
        ]
        words[goes_on, j], next_confidence = predictor.next_words(contexts)
        confidence[goes_on, j] = confidence[goes_on, j - 1] * next_confidence
    right = words == places.following(num_words)[at]
    sizes = np.array([0] * 4 + [len(word) for word in predictor.vocabulary.words])
    characters = np.cumsum(sizes[words] + 1, axis=1) - 1
    return Continuations(
        at, confidence, np.logical_and.accumulate(right, axis=1), characters
    )


def thresholds(options: keyboard_options.ComposeOptions) -> list[float]:
    """Returns the thresholds of the curve, from the lowest one on."""
    first = options.lowest_threshold
    steps = range(_CURVE_STEP, 100, _CURVE_STEP)
    return [first, *(step / 100 for step in steps if step / 100 > first)]


def threshold_for(
    found: Continuations,
    picked_rate: float,
    user: keyboard_user.SimulatedUser,
    places: keyboard_places.Places,
    options: keyboard_options.ComposeOptions,
) -> float | None:
    """Returns the lowest threshold with the wanted picked rate.

    Args:
        found: The model's continuations.
        picked_rate: The wanted rate, in [0, 1].
        user: Picks.
        places: All places.
        options: The lowest threshold.

    Returns:
        A threshold in steps of a hundredth from the lowest one on; None if none of them
        has the picked rate.
    """
    first = options.lowest_threshold
    steps = (step / 100 for step in range(1, 101))
    for threshold in [first, *(step for step in steps if step > first)]:
        sums = found.sums(threshold, user, places)
        offers = sums["offers"].sum()
        if offers and sums["compose_picks"].sum() >= picked_rate * offers:
            return threshold
    return None
