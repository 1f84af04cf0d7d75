"""Cuts text into sentences of words, for language models."""

import dataclasses
import functools
import re
from collections.abc import Callable

from federated_hh.files import freed_memory
from federated_hh.populations.languages import words

# Where a sentence ends: after ".", "!", "?" or "…" and closing quotes or brackets, if
# white space follows; and at the end of a line.
_LATIN_END = re.compile("(?<=[.!?…])[\"'”’)\\]]*\\s+|\\s*[\r\n]\\s*")
# The same with the marks of all scripts; after some no white space is typed.
_SENTENCE_END = re.compile(
    "(?<=[.!?…؟۔।॥։።。！？｡])[\"'”’»)\\]」』]*\\s+|(?<=[。！？｡])[”’)」』]*|"
    "\\s*[\r\n]\\s*"
)


@dataclasses.dataclass(frozen=True)
class SentenceTokenizer:
    """A way to cut text into sentences, and these into words.

    Attributes:
        name: Identifies it in the names of prepared data: one that cuts in another way
            needs another name.
        split: Returns the sentences of a text in order, each a list of its words, none
            of them empty.
        needs_blanks: True if text in scripts without blanks is refused.
    """

    name: str
    split: Callable[[str], list[list[str]]]
    needs_blanks: bool = False

    def __post_init__(self):
        if not self.name:
            raise ValueError(f"name is {self.name!r}; it must not be empty.")


@functools.lru_cache(maxsize=4)
def _keyboard(options: words.WordOptions) -> SentenceTokenizer:
    """Returns the tokenizer "keyboard"."""
    # Few distinct tokens make up most of a text. The bound keeps the memory small.
    words_of = freed_memory.cached(maxsize=1 << 17)(words.cut(options))
    lower: Callable[[str], str] = str
    if options.case == "lower":
        lower = words.lower(options.language)

    def split(text: str) -> list[list[str]]:
        text = lower(text)
        ends = _LATIN_END if text.isascii() else _SENTENCE_END
        sentences = []
        for part in ends.split(text):
            found = [word for token in part.split() for word in words_of(token)]
            if found:
                sentences.append(found)
        return sentences

    changed = "".join(f" {name}={value}" for name, value in options.changed().items())
    return SentenceTokenizer(
        f"keyboard{changed}", split, needs_blanks=options.segmenter == "none"
    )


SENTENCE_TOKENIZER_NAMES = ("keyboard",)


def get_sentence_tokenizer(
    name: str, options: words.WordOptions = words.DEFAULT
) -> SentenceTokenizer:
    """Returns a sentence tokenizer by its name.

    Args:
        name: "keyboard": a sentence ends at the end of a line, and after ".", "!", "?",
            "…" or its script's like followed by white space; words are those of
            `languages.words`.
        options: Options of words.

    Raises:
        ValueError: If there is no such tokenizer.
    """
    if name not in SENTENCE_TOKENIZER_NAMES:
        raise ValueError(
            f"sentence_tokenizer is {name!r}; it has to be one of "
            f"{', '.join(SENTENCE_TOKENIZER_NAMES)}."
        )
    return _keyboard(options.word_options)
