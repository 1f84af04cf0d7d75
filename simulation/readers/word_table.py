"""The distinct words of a population, and which words are left out of it."""

import os
from collections.abc import Set
from typing import Any

import numpy as np

from simulation import population_options
from simulation.readers import opening

# In place of the id of a word that is left out.
KNOWN = -1
OUT_OF_ALPHABET = -2
NOT_LISTED = -3
REASONS = {
    OUT_OF_ALPHABET: "out_of_alphabet",
    KNOWN: "known",
    NOT_LISTED: "not_listed",
}
_MAX_OFFENDERS = 5


def read_dictionary(path: str | None) -> frozenset[str]:
    """Reads a dictionary: one word a line, UTF-8, possibly compressed.

    Args:
        path: The file (.gz, .xz and .zst are decompressed), or None for no dictionary.

    Returns:
        The words, lower-cased and without surrounding white space.

    Raises:
        PopulationError: If the file cannot be read as UTF-8 text.
    """
    if path is None:
        return frozenset()
    path = os.path.expanduser(path)
    words = set()
    with opening.open_text(path, "utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if opening.has_undecodable(line):
                raise population_options.PopulationError(
                    f"{path}:{number}: a dictionary must be UTF-8 text with one word "
                    "a line; this line is not UTF-8."
                )
            words.add(line.strip().lower())
    words.discard("")
    if not words:
        raise population_options.PopulationError(
            f"{path}: the dictionary has no words."
        )
    return frozenset(words)


class WordTable:
    """Gives words their ids, in order of first appearance, and leaves words out.

    Attributes:
        dropped: How many occurrences were left out, by reason: "out_of_alphabet"
            (looked at first), "known" (in the dictionary, compared in lower case) and
            "not_listed" (where only some words are kept).
    """

    def __init__(
        self,
        alphabet: str,
        known_words: Set[str],
        refuse: bool,
        only_words: Set[str] = frozenset(),
    ):
        """Makes an empty table.

        Args:
            alphabet: The characters that words may have.
            known_words: Lower-cased words that are left out.
            refuse: Whether a word with another character is an error.
            only_words: Lower-cased words that are kept alone; empty for all.
        """
        self._alphabet = frozenset(alphabet)
        self._known_words, self._only_words = known_words, only_words
        self._refuse = refuse
        self._codes: dict[str, int] = {}
        self._num_words = 0
        self._offenders: list[str] = []
        self.dropped = {"out_of_alphabet": 0, "known": 0}
        if only_words:
            self.dropped["not_listed"] = 0

    def encode(self, words: list[str], line: int, count: int = 1) -> list[int]:
        """Returns the ids of the words that are kept.

        Args:
            words: Not empty strings, in order.
            line: Where they stand, for messages; from 1.
            count: How often each occurs there, at least 1.

        Raises:
            PopulationError: If words are refused and enough were seen to show, or one
                is empty or no string.
        """
        codes: list[Any] = list(map(self._codes.get, words))
        if None in codes:
            codes = [
                self.code(word, line) if code is None else code
                for word, code in zip(words, codes, strict=True)
            ]
        if min(codes, default=0) < 0:
            for code in codes:
                if code < 0:
                    self.dropped[REASONS[code]] += count
            codes = [code for code in codes if code >= 0]
        return codes

    def check_refused(self) -> None:
        """Raises the error about refused words if there were any."""
        if self._offenders:
            raise population_options.PopulationError(
                "words with a character outside the alphabet "
                f"{''.join(sorted(self._alphabet))!r}: {', '.join(self._offenders)}. "
                "Widen --alphabet, or drop such words with --out_of_alphabet=drop."
            )

    @property
    def num_words(self) -> int:
        """Number of distinct words that are kept."""
        return self._num_words

    def by_spelling(self) -> tuple[list[str], np.ndarray]:
        """Returns the kept words in the order of their spelling.

        Returns:
            The words, and of each id the word's place among them: int64 [num_words].
        """
        words = [word for word, code in self._codes.items() if code >= 0]
        order = sorted(range(len(words)), key=words.__getitem__)
        places = np.empty(len(words), np.int64)
        places[order] = np.arange(len(words))
        return [words[i] for i in order], places

    def code(self, word: str, line: int) -> int:
        """Returns a word's id, or one of `REASONS` to leave it out; counts nothing.

        Args:
            word: Not empty.
            line: Where it stands, for messages; from 1.
        """
        code = self._codes.get(word)
        if code is not None:
            return code
        if not word or not isinstance(word, str):
            raise population_options.PopulationError(
                f"line {line}: the tokenizer returned {word!r}, must return strings "
                "that are not empty."
            )
        if not self._alphabet.issuperset(word):
            # Not remembered: there can be very many, each seen once.
            if self._refuse:
                self._offenders.append(f"{word!r} (line {line})")
                if len(self._offenders) == _MAX_OFFENDERS:
                    self.check_refused()
            return OUT_OF_ALPHABET
        if word.lower() in self._known_words:
            code = KNOWN
        elif self._only_words and word.lower() not in self._only_words:
            code = NOT_LISTED
        else:
            code = self._num_words
            self._num_words += 1
        self._codes[word] = code
        return code
