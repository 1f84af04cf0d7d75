"""Cuts text into sentences of words, for language models."""

import dataclasses
import re
from collections.abc import Callable

from federated_hh.files import freed_memory

# Where a sentence ends: after ".", "!", "?" or "…" and closing quotes or brackets, if
# white space follows; and at the end of a line.
_SENTENCE_END = re.compile("(?<=[.!?…])[\"'”’)\\]]*\\s+|\\s*[\r\n]\\s*")
# Letters and digits of any script, with apostrophes and marks inside.
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_NOT_TYPED = ("http://", "https://", "www.", "@")


@dataclasses.dataclass(frozen=True)
class SentenceTokenizer:
    """A way to cut text into sentences, and these into words.

    Attributes:
        name: Identifies it in the names of prepared data: one that cuts in another way
            needs another name.
        split: Returns the sentences of a text in order, each a list of its words, none
            of them empty.
    """

    name: str
    split: Callable[[str], list[list[str]]]

    def __post_init__(self):
        if not self.name:
            raise ValueError(f"name is {self.name!r}; it must not be empty.")


# Few distinct tokens make up most of a text. The bound keeps the memory small.
@freed_memory.cached(maxsize=1 << 17)
def _words_of_token(token: str) -> tuple[str, ...]:
    if token.startswith(_NOT_TYPED):
        return ()
    return tuple(word.replace("’", "'") for word in _WORD.findall(token))


def _keyboard_split(text: str) -> list[list[str]]:
    sentences = []
    for part in _SENTENCE_END.split(text.lower()):
        words = [word for token in part.split() for word in _words_of_token(token)]
        if words:
            sentences.append(words)
    return sentences


_TOKENIZERS = {"keyboard": SentenceTokenizer("keyboard", _keyboard_split)}

SENTENCE_TOKENIZER_NAMES = tuple(_TOKENIZERS)


def get_sentence_tokenizer(name: str) -> SentenceTokenizer:
    """Returns a sentence tokenizer by its name.

    Args:
        name: "keyboard": lower case; a sentence ends at the end of a line, and after
            ".", "!", "?" or "…" followed by white space; a word is letters and digits
            of any script with apostrophes inside ("don't"); links and "@mentions" are
            left out.

    Raises:
        ValueError: If there is no such tokenizer.
    """
    if name not in _TOKENIZERS:
        raise ValueError(
            f"sentence_tokenizer is {name!r}; it has to be one of "
            f"{', '.join(SENTENCE_TOKENIZER_NAMES)}."
        )
    return _TOKENIZERS[name]
