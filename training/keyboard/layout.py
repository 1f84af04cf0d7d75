"""The positions of a keyboard's keys."""

import functools
import json
import os
import pathlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from federated_hh.files import json_files, plain_files
from federated_hh.populations.languages import hangul, languages

# A position beyond this, or key distances this many times larger or smaller than a
# telephone's, are in another unit.
_FARTHEST = 1000
_OF_A_WIDTH = 4


class KeyboardLayout:
    """The centers of keys, in widths of a key.

    A letter with marks without its own key has the plain letter's key, as on
    telephones, where it is typed by a long press: "é" is on "e". A mark of its own
    takes no key. Another script's digits are on 0 to 9. A Hangul syllable is typed by
    the keys of its letters.

    Attributes:
        name: Its name in reports.
    """

    def __init__(
        self,
        name: str,
        centers: Mapping[str, Sequence[float]],
        typed: Mapping[str, str] | None = None,
    ):
        """Makes a layout.

        Args:
            name: Its name in reports and errors.
            centers: Center of each character's key, x and y in widths of a key,
                y downwards; at least one key.
            typed: The keys, one or more, of characters without a key.

        Raises:
            ValueError: If a key is not one character, or its position not two numbers
                from -1000 to 1000.
        """
        self.name = name
        if not centers:
            raise ValueError(f"{name}: it has no key; a layout needs at least one.")
        self._typed = dict(typed or {})
        self._centers: dict[str, tuple[float, float]] = {}
        for character, center in centers.items():
            if len(character) != 1:
                raise ValueError(
                    f"{name}: the key {character!r} has {len(character)} characters; "
                    "it has to have one."
                )
            self._centers[character] = _point(name, character, center)

    @classmethod
    def built_in(cls, name: str = "qwerty") -> Self:
        """Returns a layout of `layouts.json`.

        It has a layout's rows from the top: where the center of the first key is, the
        keys, and those that shift or a long press gives, with a blank for none. A key
        is one wide and one high; rows are staggered as on a telephone's keyboard.

        Args:
            name: Its name, one of `names()`.
        """
        found = _built_in()[name]
        centers = {
            key: (first + column, row)
            for row, (first, *levels) in enumerate(found["rows"])
            for keys in levels
            for column, key in enumerate(keys)
            if key != " "
        }
        return cls(name.upper(), centers, found.get("typed"))

    @classmethod
    def of(cls, given: str | None, language: str) -> Self:
        """Returns the layout that a user gives, or that a language has.

        Args:
            given: Name of a built-in layout, or path of a file; None for the
                language's.
            language: The language's code.

        Raises:
            ValueError: See `read`; or if no layout of the language is built in.
        """
        name = given or languages.get(language).layout
        if name is None:
            raise ValueError(
                f"--language={language} has no built-in layout; give --layout, a file "
                f"or one of {', '.join(names())}"
            )
        return cls.built_in(name) if name in names() else cls.read(name)

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
            pairs = json_files.parse(plain_files.read(path), json_files.OBJECT)
        except OSError as error:
            raise ValueError(
                f"layout is {path}, which cannot be read: {error.strerror}; {shape}."
            ) from error
        except json_files.JsonError as error:
            raise ValueError(f"layout is {path}; {shape} ({error}).") from error
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
        return self._keys(character) is not None

    def centers_of(self, word: str) -> np.ndarray:
        """Returns the positions of a word's keys.

        Args:
            word: Its characters.

        Returns:
            float64 [keys, 2]: a key for each character, or more for Hangul.

        Raises:
            ValueError: If a character has no key; the message names it.
        """
        points = []
        for character in word:
            keys = self._keys(character)
            if keys is None:
                raise ValueError(
                    f"the layout {self.name} has no key for {character!r} of the word "
                    f"{word!r}."
                )
            points += [self._centers[key] for key in keys]
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

    def _keys(self, character: str) -> str | None:
        """Returns the keys of a character; None if it has none."""
        if character in self._centers:
            return character
        if character in self._typed:
            return self._typed[character]
        parts = unicodedata.normalize("NFD", character)
        if hangul.letters(character) != character:
            found = [self._keys(part) for part in parts]
            return None if None in found else "".join(map(str, found))
        if unicodedata.name(character, "").startswith("HANGUL "):
            # A letter that begins a syllable, or ends it, is on one key.
            sound = unicodedata.name(character).rpartition(" ")[2]
            letter = unicodedata.lookup(f"HANGUL LETTER {sound}")
            return self._keys(letter) if letter != character else None
        plain = [part for part in parts if not unicodedata.combining(part)]
        if not plain:
            return ""  # a mark, with the letter before it
        if character.isdecimal():
            plain = [str(unicodedata.decimal(character))]
        if len(plain) == 1 and plain[0] in self._centers:
            return plain[0]
        return None


@functools.cache
def _built_in() -> Mapping[str, Any]:
    path = pathlib.Path(__file__).with_name("layouts.json")
    return json.loads(path.read_text(encoding="utf-8"))


def names() -> list[str]:
    """Returns the names of the built-in layouts."""
    return list(_built_in())


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
