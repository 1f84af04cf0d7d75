"""Words lost to an alphabet or a length, and the flags that keep them."""

import dataclasses
import shlex
import unicodedata
from collections.abc import Mapping
from typing import Self

import numpy as np

from federated_hh.files import verified_files
from federated_hh.populations.columns import generated_words
from federated_hh.populations.languages import hangul

MOST_COUNTED = 50  # characters: larger scripts need another approach
_NUM_NAMED = 10
# Of all letters that words lack, those that a flag has. The rest is rare, and each
# character makes candidates.
_ENOUGH = 0.999
# Of all typed words; further characters make candidates for the same noise.
_WORTH_A_FLAG = 0.01
# Of all typed words, those that an advised length reaches.
_REACHED = 0.99
# Words are lost to another language, and the guarantee is spent on the rest.
_TOO_MANY = 0.1


def remedy(alphabet: str, missing: Mapping[str, int]) -> str:
    """Returns a sentence that names the missing letters and the flag that has them.

    Args:
        alphabet: The characters that words may have.
        missing: Other characters of words with counts, the most frequent first, at
            most `MOST_COUNTED`; empty where they were not counted.
    """
    # A selector of a character's variant is none without the character.
    shown = [each for each in missing if each.isprintable()]
    shown = [each for each in shown if not "\ufe00" <= each <= "\ufe0f"]
    # Letters, marks on them and numbers come before signs.
    letters = [each for each in shown if unicodedata.category(each)[0] in "LMN"]
    letters = letters or shown
    if not letters:
        return "--alphabet says which characters words may have."
    covered = np.cumsum([missing[each] for each in letters])
    letters = letters[: 1 + int(np.searchsorted(covered, _ENOUGH * covered[-1]))]
    value = alphabet + "".join(letters)
    if not value.isalnum():
        # In double quotes an apostrophe, which most alphabets have, needs no others.
        is_plain = not any(character in '"$`\\!' for character in value)
        value = f'"{value}"' if is_plain else shlex.quote(value)
    # Some programs refuse other words once they are given an alphabet.
    rest = " --out_of_alphabet=drop" * (len(letters) < len(missing))
    which = "most of them" if rest else "them"
    if len(missing) == MOST_COUNTED:
        which = "some of them"
    named = " ".join(letters[:_NUM_NAMED])
    return f"They have {named}; --alphabet={value}{rest} keeps {which}."


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """The typed words that have a character outside the alphabet.

    Attributes:
        count: Number of them.
        share: Their share of all typed words, in [0, 1].
        remedy: See `remedy`, after a blank; empty where few words are lost.
    """

    count: int
    share: float
    remedy: str

    @classmethod
    def of(cls, population: generated_words.Words) -> Self | None:
        """Returns what a population lost; None if it lost nothing.

        Args:
            population: One that was prepared, now or by an earlier version, which did
                not count characters.
        """
        metadata = population.metadata
        dropped = metadata.get("dropped_words", {})
        count = dropped.get("out_of_alphabet", 0)
        if not count:
            return None
        typed = int(population.occurrences().sum()) + sum(dropped.values())
        missing = metadata.get("missing_characters", {})
        told = ""
        if count >= _WORTH_A_FLAG * typed:
            told = " " + remedy(metadata["alphabet"], missing)
        return cls(count, count / typed, told)

    def check(self) -> None:
        """Raises a `PopulationError` if more than a tenth of the words are lost."""
        if self.share > _TOO_MANY:
            raise verified_files.PopulationError(
                f"{self} Or give --language; --out_of_alphabet=drop finds the other "
                "words, and a second run costs its own epsilon."
            )

    def __str__(self) -> str:
        return (
            f"{100 * self.share:.2g}% of all typed words ({self.count:,}) have a "
            f"character outside the alphabet and are left out.{self.remedy}"
        )


@dataclasses.dataclass(frozen=True)
class TooLong:
    """The typed words that are longer than a run can find.

    Attributes:
        share: Their share of the population's typed words, in (0, 1].
        longest: The most characters of a word that can be found. A Hangul syllable has
            two or three.
        enough: The most characters of all but a hundredth of the typed words.
        flag: Name of the flag that limits words.
        added: Symbols that it counts beyond a word's characters.
    """

    share: float
    longest: int
    enough: int
    flag: str
    added: int

    @classmethod
    def of(
        cls,
        population: generated_words.Words,
        longest: int,
        flag: str,
        added: int = 0,
    ) -> Self | None:
        """Returns what a run cannot find for its length; None if that is too little."""
        words = map(hangul.letters, population.words.to_pylist())
        lengths = np.fromiter(map(len, words), np.int64, population.num_words)
        typed = np.bincount(lengths, population.occurrences())
        up_to = np.cumsum(typed) / max(1.0, typed.sum())
        if longest >= len(up_to) or 1 - up_to[longest] < _WORTH_A_FLAG:
            return None
        enough = int(np.searchsorted(up_to, _REACHED))
        return cls(float(1 - up_to[longest]), longest, enough, flag, added)

    def __str__(self) -> str:
        return (
            f"{100 * self.share:.2g}% of the typed words that count have more than "
            f"{self.longest} characters, as only the simulator knows, and cannot be "
            f"found; --{self.flag}={self.enough + self.added} reaches all but 1%."
        )
