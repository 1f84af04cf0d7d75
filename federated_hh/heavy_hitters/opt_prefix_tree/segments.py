"""The segments of symbols by which OptPrefixTree extends its prefixes."""

import dataclasses
import functools

import numpy as np


@dataclasses.dataclass(frozen=True)
class Segment:
    """Strings of symbols by which a round extends its prefixes, as numbers.

    A string is `length` characters, or fewer and the end of the word. They are numbered
    in the order of their symbols, the end the last of these.

    Attributes:
        num_characters: Characters of the alphabet; the end has this number.
        length: Symbols of the longest string, at least 1.
        is_last: Whether the last symbol of a string has to be the end.
    """

    num_characters: int
    length: int
    is_last: bool

    @functools.cached_property
    def _sizes(self) -> list[int]:
        """Strings of 0, 1, ... further symbols."""
        sizes = [0 if self.is_last else 1]
        for _ in range(self.length):
            sizes.append(self.num_characters * sizes[-1] + 1)
        return sizes

    @property
    def size(self) -> int:
        """The number of strings."""
        return self._sizes[-1]

    def numbers(self, codes: np.ndarray) -> np.ndarray:
        """Returns the number of each row of symbols, or -1 where it is no string.

        Args:
            codes: uint16, shape [rows, length], from `Alphabet.encode`.
        """
        numbers = np.zeros(len(codes), np.int64)
        goes_on = np.ones(len(codes), bool)
        for symbols, size in zip(codes.T, self._sizes[-2::-1], strict=True):
            symbols = symbols.astype(np.int64)
            numbers[goes_on] += symbols[goes_on] * size
            goes_on &= symbols != self.num_characters
        if self.is_last:
            numbers[goes_on] = -1
        return numbers

    def codes(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the symbols of strings: uint16, shape [strings, length].

        What comes after an end is the end again.
        """
        left = np.array(numbers, np.int64)
        codes = np.full((len(left), self.length), self.num_characters, np.uint16)
        goes_on = np.ones(len(left), bool)
        for column, size in enumerate(self._sizes[-2::-1]):
            symbols = np.full(len(left), self.num_characters)
            if size:
                symbols = np.minimum(left // size, self.num_characters)
            codes[goes_on, column] = symbols[goes_on]
            left = left - symbols * size
            goes_on &= symbols < self.num_characters
        return codes
