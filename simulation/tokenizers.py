"""Cuts text into words: named tokenizers, and the type of a user's own."""

import dataclasses
import functools
import string
from collections.abc import Callable

# Zhu et al. 2020, Section 5, with the underscore that the paper's published
# preprocessing keeps and its text does not mention: user names have it.
TRIEHH_ALPHABET = string.ascii_lowercase + "_@#-;()*:.'/"

WORDS_ALPHABET = string.ascii_lowercase + string.digits + "'-"

_PRINTABLE = "".join(c for c in string.printable if not c.isspace())


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A way to cut text into words.

    Attributes:
        name: Identifies the tokenizer in logs and in the names of prepared populations:
            one that cuts in another way needs another name.
        split: Returns the words of a text in order, without empty ones. They may hold
            characters outside the alphabet: preparing a population counts and drops (or
            refuses) such words.
        alphabet: The characters that words may have.
    """

    name: str
    split: Callable[[str], list[str]]
    alphabet: str

    def __post_init__(self):
        if not self.name:
            raise ValueError(f"name is {self.name!r}; it must not be empty.")
        if not self.alphabet:
            raise ValueError(f"alphabet is {self.alphabet!r}; it must not be empty.")

    def words(self, text: str) -> list[str]:
        """Returns the words of a text that have no character outside the alphabet."""
        characters = set(self.alphabet)
        return [word for word in self.split(text) if characters.issuperset(word)]


# Few distinct tokens make up most of a text. The bound keeps the memory small.
@functools.lru_cache(maxsize=1 << 17)
def _triehh_word(token: str) -> str | None:
    """Returns the word in a lower-cased token, or None if it is not one."""
    word = token.strip(",.;?!")
    return None if len(word) < 3 or word.startswith(("http", "www")) else word


def _triehh_split(text: str) -> list[str]:
    return [word for word in map(_triehh_word, text.lower().split()) if word]


# Typographic marks as a typewriter has them; dashes part words.
_TYPEWRITER = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u2026", "''\"\"-  ")


@functools.lru_cache(maxsize=1 << 17)
def _word(token: str) -> str | None:
    """Returns the word in a lower-cased token, or None if it is not one."""
    word = token.strip(string.punctuation)
    return None if word.startswith(("http:", "https:", "www.")) else word


def _words_split(text: str) -> list[str]:
    tokens = text.lower().translate(_TYPEWRITER).replace("--", " ").split()
    return [word for word in map(_word, tokens) if word]


_TOKENIZERS = {
    "triehh": Tokenizer("triehh", _triehh_split, TRIEHH_ALPHABET),
    "whitespace": Tokenizer("whitespace", str.split, _PRINTABLE),
    "words": Tokenizer("words", _words_split, WORDS_ALPHABET),
}

TOKENIZER_NAMES = tuple(_TOKENIZERS)


def get_tokenizer(name: str) -> Tokenizer:
    """Returns a tokenizer by its name.

    Args:
        name: "words": lower case, all punctuation, brackets and quotes stripped from
            both ends, no links, letters, digits and `'-` only; dashes part words.
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
