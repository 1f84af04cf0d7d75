"""Tokenizers that cut text into words: named ones, and the type of custom ones."""

import dataclasses
import itertools
import string
import unicodedata
from collections.abc import Callable, Sequence
from typing import Self

from federated_hh.populations.languages import words as words_lib

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
        words: Given a text between white space, returns the words in it.
    """

    normalize: Callable[[str], str]
    words: Callable[[str], Sequence[str]]

    def split(self, text: str) -> list[str]:
        """Returns the words of a text."""
        tokens = self.normalize(text).split()
        return list(itertools.chain.from_iterable(map(self.words, tokens)))


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
        entry_rule: The rule for entries of word lists, if it is another.
        needs_blanks: True if text in scripts without blanks is refused.
    """

    name: str
    split: Callable[[str], list[str]]
    alphabet: str
    rule: TokenRule | None = None
    entry_rule: TokenRule | None = None
    needs_blanks: bool = False

    def __post_init__(self):
        if not self.name:
            raise ValueError(f"name is {self.name!r}; it must not be empty.")
        if not self.alphabet:
            raise ValueError(f"alphabet is {self.alphabet!r}; it must not be empty.")

    @classmethod
    def of_rule(cls, name: str, rule: TokenRule, alphabet: str) -> Self:
        """Returns the tokenizer that a rule makes."""
        return cls(name, rule.split, alphabet, rule)

    @property
    def of_entries(self) -> "Tokenizer":
        """The tokenizer of entries of word lists."""
        if self.entry_rule is None:
            return self
        return Tokenizer.of_rule(self.name, self.entry_rule, self.alphabet)

    def words(self, text: str) -> list[str]:
        """Returns the words of a text that have no character outside the alphabet."""
        characters = set(self.alphabet)
        return [word for word in self.split(text) if characters.issuperset(word)]


# Where no other is asked for.
DEFAULT = "words"


def _triehh_words(token: str) -> tuple[str, ...]:
    """Returns the word in a lower-cased token, if it is one."""
    word = unicodedata.normalize("NFC", token).strip(",.;?!")
    return () if len(word) < 3 or word.startswith(("http", "www")) else (word,)


def _of_triehh(language: str) -> Tokenizer:
    """Returns the tokenizer "triehh"."""
    lowered = TokenRule(words_lib.lower(language), _triehh_words)
    return Tokenizer.of_rule("triehh", lowered, TRIEHH_ALPHABET)


def _printed(token: str) -> tuple[str, ...]:
    return (unicodedata.normalize("NFC", token),)


def _of_words(options: words_lib.WordOptions) -> Tokenizer:
    """Returns the tokenizer "words"."""
    normalize: Callable[[str], str] = str
    if options.case == "lower":
        normalize = words_lib.lower(options.language)
    cut = words_lib.cut(options)

    def entry(token: str) -> tuple[str, ...]:
        # An entry such as u.s is one word, or none of the alphabet: it is not parted.
        return _stripped(words_lib.spelled(token)) or cut(token)

    alphabet = WORDS_ALPHABET
    if options.case == "keep":
        alphabet = string.ascii_uppercase + alphabet
    for option, characters in (
        ("digits", string.digits), ("apostrophes", "'"), ("hyphens", "-"),
    ):  # fmt: skip
        if getattr(options, option) != "keep":
            alphabet = "".join(c for c in alphabet if c not in characters)
    return dataclasses.replace(
        Tokenizer.of_rule("words", TokenRule(normalize, cut), alphabet),
        entry_rule=TokenRule(normalize, entry),
        needs_blanks=options.segmenter == "none",
    )


def _stripped(token: str) -> tuple[str, ...]:
    """Returns a token without what is no letter, digit or mark at its ends."""
    first, last = 0, len(token)
    while first < last and not _is_of_word(token[first]):
        first += 1
    while first < last and not _is_of_word(token[last - 1]):
        last -= 1
    word = token[first:last]
    is_link = word.startswith(("http:", "https:", "www."))
    return () if is_link or not word else (word,)


def _is_of_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"


_TOKENIZERS = {
    "words": _of_words(words_lib.DEFAULT),
    "triehh": _of_triehh(words_lib.DEFAULT.language),
    "whitespace": Tokenizer.of_rule("whitespace", TokenRule(str, _printed), _PRINTABLE),
}

TOKENIZER_NAMES = tuple(_TOKENIZERS)


def get_tokenizer(
    name: str, options: words_lib.WordOptions = words_lib.DEFAULT
) -> Tokenizer:
    """Returns a tokenizer by its name.

    Args:
        name: "words": the words of `languages.words`, in lower case by default; ASCII
            letters, digits and `'-` only. "triehh": the words of Zhu et al. 2020,
            Section 5: lower case, `,.;?!` stripped from both ends, at least three
            characters, no links, letters and `_@#-;()*:.'/` only. "whitespace":
            whatever stands between white space, printable ASCII only.
        options: Options of words, for "words".

    Raises:
        ValueError: If there is no such tokenizer.
    """
    if name not in _TOKENIZERS:
        raise ValueError(
            f"tokenizer is {name!r}; it has to be one of {', '.join(TOKENIZER_NAMES)}."
        )
    if name == "words" and options.changed():
        return _of_words(options.word_options)
    if name == "triehh":
        return _of_triehh(options.language)
    return _TOKENIZERS[name]
