"""Characters as codes, words as rows of codes of a fixed width."""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from federated_hh.options import checks
from federated_hh.populations.languages import hangul

CODE_DTYPE = np.uint16
_SYMBOLS_AT_ONCE = 1 << 22


@dataclasses.dataclass(frozen=True)
class Alphabet:
    """The characters of words, and an end-of-word symbol.

    Character i of `characters` has the code i. The end symbol is not a character, so no
    word can contain it by accident. With Hangul's letters (jamo) in it, a word's
    syllables are their letters, and show as syllables again.

    Attributes:
        characters: The distinct characters, in the order of their codes.
    """

    characters: str

    def __post_init__(self):
        repeated = {c for c in self.characters if self.characters.count(c) > 1}
        if repeated:
            raise ValueError(
                f"alphabet repeats {''.join(sorted(repeated))!r}; its characters have "
                "to differ"
            )
        if not 1 <= len(self.characters) <= np.iinfo(CODE_DTYPE).max - 2:
            raise ValueError(
                f"alphabet has {len(self.characters)} characters; it needs 1 to "
                f"{np.iinfo(CODE_DTYPE).max - 2}"
            )
        if "\0" in self.characters:
            raise ValueError(
                "alphabet has the NUL character, which words cannot contain; leave "
                "it out"
            )

    @property
    def size(self) -> int:
        """The number of characters, the end symbol not counted."""
        return len(self.characters)

    @property
    def end(self) -> int:
        """The code of the end symbol."""
        return self.size

    @property
    def num_symbols(self) -> int:
        """The number of symbols that may follow a prefix: characters and the end."""
        return self.size + 1

    @property
    def padding(self) -> int:
        """The code that fills a row behind the end symbol."""
        return self.size + 1

    @functools.cached_property
    def _has_jamo(self) -> bool:
        return any("\u1100" <= each <= "\u11ff" for each in self.characters)

    def spelled(self, word: str) -> str:
        """Returns a word's characters in this alphabet: with jamo for syllables."""
        return hangul.letters(word) if self._has_jamo else word

    @property
    def fingerprint(self) -> str:
        """Identifies the alphabet in file names: 16 hexadecimal digits."""
        return hashlib.sha256(self.characters.encode()).hexdigest()[:16]

    def num_bytes(self, prefixes: np.ndarray) -> int:
        """Returns the bytes of the alphabet and of prefixes, each a line of UTF-8.

        Args:
            prefixes: Codes of characters, shape [prefixes, length].
        """
        sizes = np.array([len(character.encode()) for character in self.characters])
        return int(sizes.sum() + 1 + sizes[prefixes].sum() + len(prefixes))

    def encode(self, words: Sequence[str] | pa.Array, length: int) -> np.ndarray:
        """Returns the first `length` symbols of words.

        Args:
            words: The words, without end symbols.
            length: Symbols in a row, at least 1.

        Returns:
            uint16, shape [len(words), length]: the codes of the characters, then the
            end symbol and padding. A word of `length` or more characters fills its
            row, without an end symbol.

        Raises:
            ValueError: If a word has a character outside the alphabet among its
                first `length`, or if `length` is below 1.
        """
        checks.holds(length >= 1, "at least 1", length=length)
        if isinstance(words, pa.Array | pa.ChunkedArray):
            words = words.to_pylist()
        if self._has_jamo:
            words = list(map(self.spelled, words))
        code_of_point = np.full(0x110000, self.padding + 1, np.uint32)
        code_of_point[0] = self.padding
        code_of_point[[ord(c) for c in self.characters]] = np.arange(self.size)
        codes = np.empty((len(words), length), CODE_DTYPE)
        # In pieces: each symbol takes four bytes, and then eight, on the way.
        step = max(1, _SYMBOLS_AT_ONCE // length)
        for first in range(0, len(words), step):
            piece = words[first : first + step]
            codes[first : first + step] = self._encode(piece, length, code_of_point)
        return codes

    def _encode(
        self, words: Sequence[str], length: int, code_of_point: np.ndarray
    ) -> np.ndarray:
        # NumPy cuts longer words, and fills shorter ones with NULs.
        points = np.array(words, dtype=f"U{length}").view(np.uint32)
        points = points.reshape(len(words), length)
        codes = code_of_point[points]
        foreign = codes > self.padding
        foreign[:, :-1] |= (points[:, :-1] == 0) & (points[:, 1:] != 0)
        if foreign.any():
            row, column = np.argwhere(foreign)[0]
            raise ValueError(
                f"the word {words[row]!r} has {words[row][column]!r}, which is not in "
                "the alphabet; prepare the population with this alphabet"
            )
        lengths = np.count_nonzero(points, axis=1)
        ended = np.flatnonzero(lengths < length)
        codes[ended, lengths[ended]] = self.end
        return codes

    def decode(self, codes: np.ndarray) -> str:
        """Returns the characters of one row, up to the end symbol if it has one."""
        characters = []
        for code in codes.tolist():
            if code >= self.size:
                break
            characters.append(self.characters[code])
        return hangul.syllables("".join(characters))
