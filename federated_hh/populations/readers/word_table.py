"""The distinct words of a population, and which words are left out of it."""

import collections
import itertools
import os
from collections.abc import Set
from typing import Any

import numpy as np

from federated_hh.files import verified_files
from federated_hh.populations.columns import left_out
from federated_hh.populations.languages import hangul, languages
from federated_hh.populations.languages import words as words_lib
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import opening

# Codes of dropped words, instead of an id.
KNOWN = -1
OUT_OF_ALPHABET = -2
NOT_LISTED = -3
REASONS = {
    OUT_OF_ALPHABET: "out_of_alphabet",
    KNOWN: "known",
    NOT_LISTED: "not_listed",
}
_MAX_OFFENDERS = 5


def read_dictionary(
    path: str | None, language: str = languages.DEFAULT
) -> frozenset[str]:
    """Reads a dictionary: one word a line, UTF-8, possibly compressed.

    Args:
        path: The file (.gz, .xz and .zst are decompressed), or None for no dictionary,
            or wordfreq:N for the N most frequent words of the language.
        language: The language's code.

    Returns:
        The words, as `languages.words.folded` has them, without white space around.

    Raises:
        PopulationError: If the file cannot be read as UTF-8 text.
    """
    if path is None:
        return frozenset()
    if path.startswith(population_options.WORDFREQ):
        number = int(path.removeprefix(population_options.WORDFREQ))
        return frozenset(itertools.islice(languages.words(language), number))
    words = {words_lib.folded(line, language) for line in read_lines(path)} - {""}
    if not words:
        raise verified_files.PopulationError(f"{path}: the dictionary has no words.")
    return frozenset(words)


def read_lines(path: str) -> list[str]:
    """Reads a dictionary's lines, without white space around.

    Args:
        path: The file (.gz, .xz and .zst are decompressed).

    Raises:
        PopulationError: If the file cannot be read as UTF-8 text.
    """
    path = os.path.expanduser(path)
    found = []
    with opening.open_text(path, "utf-8") as lines:
        try:
            for number, line in enumerate(lines, 1):
                if opening.has_undecodable(line):
                    raise verified_files.PopulationError(
                        f"{path}:{number}: this line is not UTF-8; a dictionary has to "
                        "be UTF-8 text with one word per line."
                    )
                found.append(line.strip())
        except verified_files.PopulationError as error:
            if not isinstance(error.__cause__, UnicodeError):
                raise
            raise verified_files.PopulationError(
                f"{path} is not UTF-8, which a dictionary has to be; convert it, such "
                f"as by iconv -f utf-16 -t utf-8 {path} > dictionary.txt."
            ) from None
    return found


class NotAWordError(ValueError):
    """A tokenizer returned something other than a word.

    Attributes:
        word: Number that it returned.
    """

    def __init__(self, word: Any):
        super().__init__(
            f"the tokenizer returned {word!r}, must return strings that are not empty."
        )
        self.word = word


class WordTable:
    """Gives words their ids, in order of first appearance, and leaves words out.

    Attributes:
        dropped: Number of left-out occurrences, by reason: "out_of_alphabet"
            (looked at first), "known" (in the dictionary, compared in lower case) and
            "not_listed" (where only some words are kept).
    """

    def __init__(
        self,
        alphabet: str,
        known_words: Set[str],
        refuse: bool,
        only_words: Set[str] = frozenset(),
        language: str = languages.DEFAULT,
        keep: bool = False,
    ):
        """Makes an empty table.

        Args:
            alphabet: The characters that words may have; jamo for Hangul.
            known_words: Words that are left out, from `read_dictionary`.
            refuse: Whether a word with another character is an error.
            only_words: Words that are kept alone, likewise; empty for all.
            language: The code of their language.
            keep: Whether words with other characters are kept.
        """
        alphabet = hangul.alphabet(alphabet)
        self._given = alphabet
        self._alphabet = "".join(sorted(set(alphabet)))
        self._characters = frozenset(alphabet)
        self._missing: collections.Counter[str] = collections.Counter()
        self._known_words, self._only_words = known_words, only_words
        self._refuse, self._keep, self._language = refuse, keep, language
        self._codes: dict[str, int] = {}
        self._num_words = 0
        self._offenders: list[str] = []
        self.dropped = {"out_of_alphabet": 0, "known": 0}
        if only_words:
            self.dropped["not_listed"] = 0

    @property
    def missing_characters(self) -> dict[str, int]:
        """Characters outside the alphabet, the most frequent first, with counts.

        A word counts each time that it is looked up, and callers remember some words:
        the counts order the characters and say no more.
        """
        order = sorted(self._missing.items(), key=lambda item: (-item[1], item[0]))
        return dict(order[: left_out.MOST_COUNTED])

    @property
    def remedy(self) -> str:
        """A sentence on the characters that words lack; empty if they lack none."""
        missing = self.missing_characters
        return left_out.remedy(self._given, missing) if missing else ""

    @property
    def refuses(self) -> bool:
        """Whether a word with another character is an error."""
        return self._refuse

    def refuse(self, word: str, place: str) -> None:
        """Records a word with a character outside the alphabet.

        Args:
            word: The word.
            place: Its position.

        Raises:
            PopulationError: If enough were recorded for a message.
        """
        self._offenders.append(f"{word!r} ({place})")
        if len(self._offenders) == _MAX_OFFENDERS:
            self.check_refused()

    def count_dropped(self, codes: np.ndarray, counts: np.ndarray | None) -> None:
        """Counts words that are left out.

        Args:
            codes: The codes of the words: keys of `REASONS`.
            counts: Occurrences of each; None for one.
        """
        for code, reason in REASONS.items():
            left_out = codes == code
            number = left_out.sum() if counts is None else counts[left_out].sum()
            if number:
                self.dropped[reason] += int(number)

    def check_refused(self) -> None:
        """Raises the error about refused words if there were any."""
        if self._offenders:
            raise verified_files.PopulationError(
                "words with a character outside the alphabet "
                f"{self._alphabet!r}: {', '.join(self._offenders)}. "
                "Widen --alphabet, or drop such words with --out_of_alphabet=drop."
            )

    @property
    def num_words(self) -> int:
        """Number of distinct words that are kept."""
        return self._num_words

    def by_spelling(self) -> tuple[list[str], np.ndarray]:
        """Returns the kept words in the order of their spelling.

        Returns:
            The words, and each id's position among them: int64 [num_words].
        """
        words = [word for word, code in self._codes.items() if code >= 0]
        order = sorted(range(len(words)), key=words.__getitem__)
        places = np.empty(len(words), np.int64)
        places[order] = np.arange(len(words))
        return [words[i] for i in order], places

    def code(self, word: str) -> int:
        """Returns a word's id, or one of `REASONS` to leave it out; counts nothing.

        Args:
            word: Not empty.

        Raises:
            NotAWordError: If it is empty or no string.
        """
        code = self._codes.get(word)
        if code is not None:
            return code
        if not word or not isinstance(word, str):
            raise NotAWordError(word)
        spelled = hangul.letters(word)
        if not self._keep and spelled.strip(self._alphabet):
            # Not remembered: there can be very many, each seen once.
            self._missing.update(set(spelled) - self._characters)
            return OUT_OF_ALPHABET
        folded = words_lib.folded(word, self._language)
        if folded in self._known_words:
            code = KNOWN
        elif self._only_words and folded not in self._only_words:
            code = NOT_LISTED
        else:
            code = self._num_words
            self._num_words += 1
        self._codes[word] = code
        return code
