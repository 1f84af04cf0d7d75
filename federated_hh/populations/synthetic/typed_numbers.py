"""Numbers of words that clients type, as somebody's clients did."""

import os

import numpy as np

from federated_hh.files import verified_files
from federated_hh.populations.readers import opening

MAX_WORDS_PER_CLIENT = 100_000


class TypedNumbers:
    """The uniform distribution over the entries of a list of numbers.

    Attributes:
        mean: The mean of the list.
    """

    def __init__(self, numbers: np.ndarray):
        """Stores the list.

        Args:
            numbers: Integers [n], at least 1.
        """
        self._numbers = numbers
        self._sorted = np.sort(numbers)
        self.mean = float(numbers.mean())

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Draws independent numbers: int64 [size]."""
        return self._numbers[rng.integers(0, len(self._numbers), size)]

    def probability_at_most(self, count: int) -> float:
        """Returns the share of the list that is at most `count`."""
        place = np.searchsorted(self._sorted, count, side="right")
        return float(place / len(self._sorted))


def read(path: str) -> TypedNumbers:
    """Reads a list of numbers.

    Args:
        path: Path of a file with one whole number per line, from 1 to
            `MAX_WORDS_PER_CLIENT`; possibly compressed (.gz, .xz, .zst).

    Raises:
        PopulationError: If the file cannot be read, or a line is not such a number.
    """
    path = os.path.expanduser(path)
    numbers = []
    with opening.open_text(path, "utf-8") as lines:
        for place, line in enumerate(lines, 1):
            text = line.strip()
            number = int(text) if text.isascii() and text.isdigit() else 0
            if not 1 <= number <= MAX_WORDS_PER_CLIENT:
                raise verified_files.PopulationError(
                    f"{path}:{place}: {text!r:.40} is not a number of words; it has "
                    f"to be in 1..{MAX_WORDS_PER_CLIENT}."
                )
            numbers.append(number)
    if not numbers:
        raise verified_files.PopulationError(
            f"{path}: the file has no numbers; it needs one per line."
        )
    return TypedNumbers(np.array(numbers))
