"""Tokenizers that cut text into words: named ones, and the type of custom ones."""

import dataclasses
import string
import unicodedata
from collections.abc import Callable
from typing import Self

# Zhu et al. 2020, Section 5, with the underscore that the paper's published
# preprocessing keeps and its text does not mention: user names have it.
TRIEHH_ALPHABET = string.ascii_lowercase + "_@#-;()*:.'/"

WORDS_ALPHABET = string.ascii_lowercase + string.digits + "'-"

_PRINTABLE = "".join(c for c in string.printable if not c.isspace())


@dataclasses.dataclass(frozen=True)
class TokenRule:
    """Tokenization of many texts at a time, with white space between words.

    Attributes:
        normalize: Given a text, returns the text to cut at white space. The result may
            not depend on text before or after it beyond white space.
        word: Given a text between white space, returns the word in it, or None.
    """

    normalize: Callable[[str], str]
    word: Callable[[str], str | None]

    def split(self, text: str) -> list[str]:
        """Returns the words of a text."""
        return [word for word in map(self.word, self.normalize(text).split()) if word]


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A way to cut text into words.

    Attributes:
        name: Identifies the tokenizer in logs and in the names of prepared populations;
            a changed tokenizer needs another name.
        split: Returns the words of a text in order, without empty ones. They may hold
            characters outside the alphabet: preparing a population counts and drops (or
            refuses) such words.
        alphabet: The characters that words may have.
        rule: The same as a rule on tokens, which is faster; None for none.
    """

    name: str
    split: Callable[[str], list[str]]
    alphabet: str
    rule: TokenRule | None = None

    def __post_init__(self):
        if not self.name:
            raise ValueError(f"name is {self.name!r}; it must not be empty.")
        if not self.alphabet:
            raise ValueError(f"alphabet is {self.alphabet!r}; it must not be empty.")

    @classmethod
    def of_rule(cls, name: str, rule: TokenRule, alphabet: str) -> Self:
        """Returns the tokenizer that a rule makes."""
        return cls(name, rule.split, alphabet, rule)

    def words(self, text: str) -> list[str]:
        """Returns the words of a text that have no character outside the alphabet."""
        characters = set(self.alphabet)
        return [word for word in self.split(text) if characters.issuperset(word)]


# Where no other is asked for.
DEFAULT = "words"


def _triehh_word(token: str) -> str | None:
    """Returns the word in a lower-cased token, or None if it is not one."""
    word = token.strip(",.;?!")
    return None if len(word) < 3 or word.startswith(("http", "www")) else word


# Typographic marks as a typewriter has them; dashes and ellipses part words.
_TYPEWRITER = {
    "\u2018": "'",
    "\u2019": "'",
    "\u2010": "-",
    "\u2011": "-",
    "\u2013": " ",
    "\u2014": " ",
    "\u2026": " ",
}


def _typewritten(text: str) -> str:
    """Returns a text in lower case, with white space where dashes part words."""
    text = text.lower()
    if not text.isascii():
        for mark, typed in _TYPEWRITER.items():
            text = text.replace(mark, typed)
    return text.replace("--", " ").replace("...", " ")


def _word(token: str) -> str | None:
    """Returns the word in a lower-cased token, or None if it is not one."""
    if token.isalnum():
        return token
    first, last = 0, len(token)
    while first < last and not _is_of_word(token[first]):
        first += 1
    while first < last and not _is_of_word(token[last - 1]):
        last -= 1
    word = token[first:last]
    return None if word.startswith(("http:", "https:", "www.")) else word


def _is_of_word(character: str) -> bool:
    """Returns whether it is a letter, a digit or a mark on one, of any script."""
    return character.isalnum() or unicodedata.category(character)[0] == "M"


_TOKENIZERS = {
    tokenizer.name: tokenizer
    for tokenizer in (
        Tokenizer.of_rule("words", TokenRule(_typewritten, _word), WORDS_ALPHABET),
        Tokenizer.of_rule(
            "triehh", TokenRule(str.lower, _triehh_word), TRIEHH_ALPHABET
        ),
        Tokenizer.of_rule("whitespace", TokenRule(str, str), _PRINTABLE),
    )
}

TOKENIZER_NAMES = tuple(_TOKENIZERS)


def get_tokenizer(name: str) -> Tokenizer:
    """Returns a tokenizer by its name.

    Args:
        name: "words": lower case, brackets, quotes and all other punctuation stripped
            from both ends, no links, letters, digits and `'-` only; dashes and ellipses
            part words.
            "triehh": the words of Zhu et al. 2020, Section 5: lower case, `,.;?!`
            stripped from both ends, at least three characters, no links, letters and
            `_@#-;()*:.'/` only. "whitespace": whatever stands between white space,
            printable ASCII only.

    Raises:
        ValueError: If there is no such tokenizer.
    """
    if name not in _TOKENIZERS:
        raise ValueError(
            f"tokenizer is {name!r}; it has to be one of {', '.join(TOKENIZER_NAMES)}."
        )
    return _TOKENIZERS[name]
