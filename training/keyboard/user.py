"""A simulated user who picks a keyboard's suggestions."""

import dataclasses

import numpy as np

from training.keyboard import options as keyboard_options


@dataclasses.dataclass(frozen=True)
class SimulatedUser:
    """A user who picks the next word with some probability if it is shown.

    Counts are exact expectations over the user's picks, so they have no sampling error
    and need no seed.

    Attributes:
        options: The user's attention.
    """

    options: keyboard_options.UserOptions

    def picks(self, characters: np.ndarray) -> np.ndarray:
        """Returns the probability that the user picks a right, shown suggestion.

        Args:
            characters: Integers: number of characters that the pick saves.

        Returns:
            float64, of the same shape.
        """
        return np.where(
            np.asarray(characters) <= self.options.quick_letters,
            self.options.quick_attention,
            self.options.attention,
        ).astype(np.float64)


def next_word_sums(
    user: SimulatedUser, is_shown: np.ndarray, characters: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns each typed word's part of the sums of next-word prediction.

    The *picked rate* represents the paper's Picked Rate (PRate), "the ratio of picked
    candidates among the NWP predictions": there is a prediction for every typed word,
    including those outside the vocabulary, which are never shown. That of right
    candidates shown, the paper's Accuracy (Acc), "the ratio of candidates matching the
    final committed words", is `three_suggestions`, of the words of the vocabulary.

    Words per minute (WPM) have no counterpart, because typing speed is not simulated.
    *Keystrokes saved* are the nearest: the share of taps (each word's characters and a
    blank) that picks save, where a pick is one tap.

    Args:
        user: Picks.
        is_shown: bool [words]: whether the word is of the vocabulary, and among those
            suggested.
        characters: Integers [words]: its characters; 0 for a word outside the
            vocabulary, whose keystrokes are unknown and not counted.

    Returns:
        float64 [words], by name: `picks` expected, `keystrokes_saved`, `keystrokes`.
    """
    picks = np.where(is_shown, user.picks(characters), 0.0)
    return {
        "picks": picks,
        "keystrokes_saved": picks * characters,
        "keystrokes": np.where(characters > 0, characters + 1.0, 0.0),
    }
