"""The positions of a keyboard's keys."""

import json
import os
import pathlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

# Rows from the top: their keys, and where the center of the first one is. A key is one
# wide and one high; rows are staggered as on a telephone's English keyboard.
_QWERTY_ROWS = (
    (0.0, "1234567890"),
    (0.0, "qwertyuiop"),
    (0.5, "asdfghjkl'"),
    (1.5, "zxcvbnm"),
)
# A position beyond this, or key distances this many times larger or smaller than a
# telephone's, are in another unit.
_FARTHEST = 1000
_OF_A_WIDTH = 4


class KeyboardLayout:
    """The centers of keys, in widths of a key.

    A letter with marks without its own key has the plain letter's key, as on
    telephones, where it is typed by a long press: "é" is on "e".

    Attributes:
        name: Its name in reports.
    """

    def __init__(self, name: str, centers: Mapping[str, Sequence[float]]):
        """Makes a layout.

        Args:
            name: Its name in reports and errors.
            centers: Center of each character's key, x and y in widths of a key,
                y downwards; at least one key.

        Raises:
            ValueError: If a key is not one character, or its position not two numbers
                from -1000 to 1000.
        """
        self.name = name
        if not centers:
            raise ValueError(f"{name}: it has no key; a layout needs at least one.")
        self._centers: dict[str, tuple[float, float]] = {}
        for character, center in centers.items():
            if len(character) != 1:
                raise ValueError(
                    f"{name}: the key {character!r} has {len(character)} characters; "
                    "it has to have one."
                )
            self._centers[character] = _point(name, character, center)

    @classmethod
    def qwerty(cls) -> Self:
        """Returns the English layout: letters, digits and the apostrophe."""
        return cls(
            "QWERTY",
            {
                key: (first + column, row)
                for row, (first, keys) in enumerate(_QWERTY_ROWS)
                for column, key in enumerate(keys)
            },
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a layout file.

        Args:
            path: JSON in UTF-8: an object from a character to its x and y, such as
                `{"q": [0, 0], "w": [1, 0], "a": [0.5, 1]}`.

        Raises:
            ValueError: If it cannot be read, or is none; the message says how one
                looks.
        """
        shape = 'it has to be JSON such as {"q": [0, 0], "a": [0.5, 1]}'
        try:
            pairs = json.loads(
                pathlib.Path(path).read_bytes().decode(), object_pairs_hook=_unique
            )
        except OSError as error:
            raise ValueError(
                f"layout is {path}, which cannot be read: {error.strerror}; {shape}."
            ) from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"layout is {path}; {shape} ({error}).") from error
        if not isinstance(pairs, dict):
            raise ValueError(f"layout is {path}; {shape}.")
        layout = cls(str(path), pairs)
        layout._check_unit()
        return layout

    def _check_unit(self) -> None:
        """Raises `ValueError` where keys are not about a width apart."""
        points = np.array(list(self._centers.values()))
        if len(points) < 2:
            return
        distances = np.linalg.norm(points[:, None] - points, axis=2)
        nearest = np.median(np.where(distances > 0, distances, np.inf).min(axis=1))
        if not 1 / _OF_A_WIDTH <= nearest <= _OF_A_WIDTH:
            raise ValueError(
                f"{self.name}: the nearest keys are {nearest:.3g} apart; that has to "
                "be about 1, because centers are in key widths, not in pixels."
            )

    def __contains__(self, character: str) -> bool:
        return self._base(character) is not None

    def centers_of(self, word: str) -> np.ndarray:
        """Returns the positions of a word's keys.

        Args:
            word: Its characters.

        Returns:
            float64 [characters, 2].

        Raises:
            ValueError: If a character has no key; the message names it.
        """
        points = []
        for character in word:
            base = self._base(character)
            if base is None:
                raise ValueError(
                    f"the layout {self.name} has no key for {character!r} of the word "
                    f"{word!r}."
                )
            points.append(self._centers[base])
        return np.array(points, np.float64).reshape(-1, 2)

    def check_has(self, words: Iterable[str]) -> None:
        """Raises `ValueError` unless all characters of words have a key.

        Args:
            words: The vocabulary's.
        """
        without = [word for word in words if not self.can_type(word)]
        if without:
            character = next(c for c in without[0] if c not in self)
            raise ValueError(
                f"the layout {self.name} has no key for {character!r} "
                f"(U+{ord(character):04X}) of the word {without[0]!r}; "
                f"{len(without):,} words of the vocabulary cannot be typed with it. "
                "Give a --layout that has the key, or drop such words with "
                "--unkeyed_words=leave_out."
            )

    def can_type(self, word: str) -> bool:
        """Returns whether all characters of a word have a key."""
        return all(character in self for character in word)

    def _base(self, character: str) -> str | None:
        if character in self._centers:
            return character
        parts = unicodedata.normalize("NFD", character)
        plain = [part for part in parts if not unicodedata.combining(part)]
        if len(plain) == 1 and plain[0] in self._centers:
            return plain[0]
        return None


def _point(name: str, character: str, center: Any) -> tuple[float, float]:
    is_point = (
        isinstance(center, Sequence)
        and len(center) == 2
        and all(
            isinstance(part, int | float) and not isinstance(part, bool)
            for part in center
        )
        and all(-_FARTHEST <= part <= _FARTHEST for part in center)
    )
    if not is_point:
        raise ValueError(
            f"{name}: the key {character!r} is at {center!r}; it has to be two "
            f"numbers, x and y, in key widths, at most {_FARTHEST:,}."
        )
    return float(center[0]), float(center[1])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object whose names are different."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is a duplicate; keys have to differ")
    return found
