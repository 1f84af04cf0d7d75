"""Words that are never released, though an algorithm finds them.

The list is applied on the server, to released words: this costs no privacy and changes
no guarantee. It hides no prefix, and the metrics count denied words. Imports nothing
heavy, so that flags can be parsed.
"""

import dataclasses
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from federated_hh.options.fields import OptionError, check, option
from federated_hh.populations.languages import languages
from federated_hh.populations.options import population_options

if TYPE_CHECKING:
    import pandas as pd


class _Found(Protocol):
    @property
    def text(self) -> str:
        """The word."""


W = TypeVar("W", bound=_Found)


@dataclasses.dataclass(frozen=True)
class DenyOptions:
    """Options of words that are never released."""

    deny_words: str | None = option(
        None,
        "File of words (one a line, UTF-8; also .gz, .xz, .zst) that are left out of "
        "the released words, in any case and with any invisible characters. It is "
        "applied after the guarantee and costs nothing; scores are of the words that "
        "are left. Not hidden: prefixes that clients are asked about, counts of found "
        "words, and the simulator's files. SFP does not release its fragments then.",
    )

    def __post_init__(self):
        check(self)
        if self.deny_words is not None and (
            not self.deny_words.strip()
            or self.deny_words.startswith(population_options.WORDFREQ)
        ):
            raise OptionError(
                self,
                "{deny_words=}: has to be a file with one word a line; give one, or "
                "leave {deny_words} out",
            )


@dataclasses.dataclass(frozen=True)
class DenyList:
    """The words of a deny list.

    Attributes:
        words: The words, as `languages.words.appearance` has them; empty without a
            list.
        language: The code of their language.
    """

    words: frozenset[str] = frozenset()
    language: str = languages.DEFAULT

    @classmethod
    def read(cls, options: DenyOptions, language: str) -> Self:
        """Reads the list that options name.

        Args:
            options: The options.
            language: The code of the population's language.

        Raises:
            OptionError: If the file has no words.
            PopulationError: If the file cannot be read as UTF-8 text.
        """
        if options.deny_words is None:
            return cls()
        from federated_hh.populations.languages import words as words_lib
        from federated_hh.populations.readers import word_table

        lines = word_table.read_lines(options.deny_words)
        words = {words_lib.appearance(line, language) for line in lines} - {""}
        if not words:
            raise OptionError(
                options,
                "{deny_words=}: the file has no words; give one word a line, or leave "
                "{deny_words} out",
            )
        return cls(frozenset(words), language)

    def facts(self) -> dict[str, Any]:
        """Returns the facts that a resumed run shares with its start."""
        if not self.words:
            return {}
        listed = "\n".join(sorted(self.words))
        return {"deny_words": hashlib.sha256(listed.encode()).hexdigest()}

    def allows(self, words: Iterable[str]) -> list[bool]:
        """Returns whether each word may be released."""
        if not self.words:
            return [True for _ in words]
        from federated_hh.populations.languages import words as words_lib

        return [words_lib.appearance(w, self.language) not in self.words for w in words]

    def allowed(self, found: Sequence[W]) -> tuple[W, ...]:
        """Returns the found words that may be released."""
        allows = self.allows(word.text for word in found)
        return tuple(itertools.compress(found, allows))

    def allowed_rows(
        self, tables: "Mapping[str, pd.DataFrame]"
    ) -> "dict[str, pd.DataFrame]":
        """Returns tables without the rows whose `word` is on the list."""
        return {
            name: table.loc[self.allows(table["word"])] if "word" in table else table
            for name, table in tables.items()
        }

    def released(
        self, tables: "Mapping[str, pd.DataFrame]"
    ) -> "dict[str, pd.DataFrame]":
        """Returns the released part of an algorithm's results.

        With a list, tables of words are all that is released: others, such as SFP's
        fragments, could spell a denied word.
        """
        found = self.allowed_rows(tables)
        of_words = {name: table for name, table in found.items() if "word" in table}
        return of_words if self.words and of_words else found

    def told(self, found: Iterable[str]) -> str:
        """Returns a sentence on the words left out; empty without a list.

        Args:
            found: The words that the repeats found; each counts once.
        """
        if not self.words:
            return ""
        denied = self.allows(set(found)).count(False)
        words = "1 found word is" if denied == 1 else f"{denied:,} found words are"
        return f"{words} on the deny list and left out, in the scores too."


NOTHING = DenyList()


def nothing(is_denied: bool) -> str:
    """Returns a sentence on a run that releases no word.

    Args:
        is_denied: Whether words were found, all of which are on the deny list.
    """
    return "Every found word is denied." if is_denied else "No word was found."
