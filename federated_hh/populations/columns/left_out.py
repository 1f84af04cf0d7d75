"""Words that a population lost to its alphabet, and the flag that keeps them."""

import dataclasses
import shlex
import unicodedata
from collections.abc import Sequence
from typing import Self

from federated_hh.populations.columns import client_words

_NUM_NAMED = 10


def remedy(alphabet: str, missing: Sequence[str]) -> str:
    """Returns a sentence that names the missing letters and the flag that has them.

    Args:
        alphabet: The characters that words may have.
        missing: Other characters of words, the most frequent first; empty where they
            were not counted.
    """
    shown = [character for character in missing if character.isprintable()]
    # Letters, marks on them and numbers come before signs.
    letters = [each for each in shown if unicodedata.category(each)[0] in "LMN"]
    letters = (letters or shown)[:_NUM_NAMED]
    if not letters:
        return "--alphabet says which characters words may have."
    value = alphabet + "".join(letters)
    if not value.isalnum():
        # In double quotes an apostrophe, which most alphabets have, needs no others.
        is_plain = not any(character in '"$`\\!' for character in value)
        value = f'"{value}"' if is_plain else shlex.quote(value)
    # Some programs refuse other words once they are given an alphabet.
    rest = " --out_of_alphabet=drop" * (len(letters) < len(missing))
    which = "most of them" if rest else "them"
    return f"They have {' '.join(letters)}; --alphabet={value}{rest} keeps {which}."


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """The typed words that have a character outside the alphabet.

    Attributes:
        count: Number of them.
        share: Their share of all typed words, in [0, 1].
        remedy: See `remedy`.
    """

    count: int
    share: float
    remedy: str

    @classmethod
    def of(cls, population: client_words.ClientWords) -> Self | None:
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
        return cls(count, count / typed, remedy(metadata["alphabet"], list(missing)))

    def __str__(self) -> str:
        return (
            f"{100 * self.share:.2g}% of all typed words ({self.count:,}) have a "
            f"character outside the alphabet and are left out. {self.remedy}"
        )
