"""Languages: their words with public frequencies, and alphabets made from these.

`languages.json` has a line for each language. The words are those of the wordfreq
package's largest list for it. wordfreq folds case, which takes German's ß and Greek's
final ς away; "respelled" has the patterns that bring them back.
"""

import collections
import dataclasses
import functools
import json
import math
import pathlib
import re
import types
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping

from federated_hh.files import freed_memory
from federated_hh.populations.languages import hangul, tokenizers
from federated_hh.populations.languages import words as words_lib

DEFAULT = "en"
# Value of --language that takes the language of the population's text.
AUTO = "auto"
# Letters are in the alphabet until they cover this share of the tokens.
_COVERED = 0.999
# wordfreq has all numbers of as many digits as one entry: "0000" is a year.
_NUMBER = re.compile("[0-9][0-9.,]")
# The zero-width joiners, which Persian and the scripts of India write inside words.
_ZERO_WIDTH = "\u200c\u200d"
# First words of the Unicode names of characters that go with every script.
_EVERY_SCRIPT = ("COMBINING", "ZERO")
# A text is in the language whose list has at least this share of its words.
_SEEN = 0.2
_RARE = 1e-8  # frequency of a word that a list lacks


@dataclasses.dataclass(frozen=True)
class Language:
    """A language as `languages.json` has it.

    Attributes:
        code: ISO 639 code.
        name: English name.
        script: First word of its letters' Unicode names.
        layout: Its built-in keyboard layout; None if there is none.
        letters: Letters that people type and wordfreq's list lacks.
        joiners: Signs inside words, besides the apostrophe and the hyphen.
        respelled: Replacements in the words of the list, by pattern.
        note: Peculiarity of its list, for the user; empty if there is none.
        refused: Reason for its refusal; empty if it is supported.
    """

    code: str
    name: str
    script: str
    layout: str | None = None
    letters: str = ""
    joiners: str = ""
    respelled: Mapping[str, str] = dataclasses.field(default_factory=dict)
    note: str = ""
    refused: str = ""

    @property
    def has_large_list(self) -> bool:
        """Whether wordfreq has words of it down to one in 100 million."""
        import wordfreq

        return self.code in wordfreq.available_languages("large")

    @property
    def remarks(self) -> str:
        """A sentence or two on a small or unusual list; empty if there is none."""
        told = []
        if not self.has_large_list:
            told.append(
                f"wordfreq has only a small list of {self.name}: "
                f"{len(words(self.code)):,} words."
            )
        return " ".join([*told, *([f"{self.note}."] if self.note else [])])


@functools.cache
def _all() -> Mapping[str, Language]:
    path = pathlib.Path(__file__).with_name("languages.json")
    listed = json.loads(path.read_text(encoding="utf-8"))
    return {code: Language(code, **about) for code, about in listed.items()}


def codes() -> list[str]:
    """Returns the codes of the supported languages."""
    return [code for code, language in _all().items() if not language.refused]


def get(code: str) -> Language:
    """Returns a language by its code.

    Raises:
        ValueError: If it is not supported, with the reason or the languages that are.
    """
    language = _all().get(code)
    if language is None or language.refused:
        why = "is not a language"
        if language is not None:
            why = (
                f"{language.name} {language.refused}; for your own text leave it out, "
                "and give --segmenter=icu and --alphabet or --vocabulary=text:FILE"
            )
        raise ValueError(f"{why}; it has to be one of {', '.join(codes())}")
    return language


def frequencies(code: str) -> dict[str, float]:
    """Returns wordfreq's largest list of a language: shares of words and numbers."""
    import wordfreq  # here: it takes a while to import

    found = wordfreq.get_frequency_dict(code, wordlist="best")
    # The package would keep its lists, some 40 MB, for as long as the program runs.
    wordfreq.get_frequency_dict.cache_clear()
    wordfreq.get_frequency_list.cache_clear()
    for pattern, spelling in get(code).respelled.items():
        replace = re.compile(pattern).sub
        respelled: dict[str, float] = {}
        for word, share in found.items():
            word = replace(spelling, word)
            respelled[word] = respelled.get(word, 0.0) + share
        found = respelled
    return found


@freed_memory.cached(maxsize=2)
def words(code: str = DEFAULT) -> Mapping[str, float]:
    """Returns the words of a language with frequencies, the most frequent first.

    They are those of wordfreq's list but for its classes of numbers, such as `0000` for
    all of four digits, which nobody types. Of other languages' lists, words with
    letters of another script and entries that are no word of text are left out.
    """
    return types.MappingProxyType(_words_of(code, frequencies(code)))


def _words_of(code: str, listed: Mapping[str, float]) -> dict[str, float]:
    """Returns those of a language's entries that `words` has."""
    chosen = {word: n for word, n in listed.items() if not _NUMBER.search(word)}
    if code != DEFAULT:
        foreign = {
            each
            for each in set().union(*chosen)
            if _is_letter(each) and not _is_of(each, get(code).script)
        }
        cut = words_lib.cut()
        chosen = {
            word: n
            for word, n in chosen.items()
            if foreign.isdisjoint(word) and cut(word) == (word,)
        }
    return chosen


def whole_words(
    code: str, split: Callable[[str], list[list[str]]]
) -> Iterator[tuple[str, float]]:
    """Yields the words that a model can learn, with frequencies, as `words` has them.

    Args:
        code: The language.
        split: Cuts text into sentences of words; it leaves each of the words whole.
    """
    for word, frequency in words(code).items():
        # English words with marks are of other languages.
        is_borrowed = code == DEFAULT and words_lib.has_marks(word)
        if split(word) == [[word]] and not is_borrowed:
            yield word, frequency


@functools.lru_cache(maxsize=4)
def letters(code: str) -> str:
    """Returns a language's letters, marks and signs inside words, by code point.

    They are the fewest most frequent ones that 99.9% of the tokens of its list are made
    of, and the letters that the list lacks.
    """
    language = get(code)
    spelled = {hangul.letters(word): n for word, n in words(code).items()}
    weights: dict[str, float] = {}
    for word, share in spelled.items():
        for each in set(word):
            weights[each] = weights.get(each, 0.0) + share
    ranked = sorted(filter(_is_letter, weights), key=lambda each: -weights[each])
    place = {each: number for number, each in enumerate(ranked)}
    needed = [0.0] * len(ranked)  # the tokens that each rank completes
    for word, share in spelled.items():
        ranks = [place[each] for each in word if each in place]
        if ranks:
            needed[max(ranks)] += share
    total, covered, size = math.fsum(needed), 0.0, 0
    while covered < _COVERED * total:
        covered += needed[size]
        size += 1
    return "".join(sorted({*ranked[:size], *language.letters, *language.joiners}))


def alphabet(code: str, of_tokenizer: str) -> str:
    """Returns the characters of a language's words.

    Args:
        code: The language.
        of_tokenizer: The tokenizer's alphabet, which English has. Another language has
            its own letters in place of the Latin ones, with capitals if those have.
    """
    if code == DEFAULT:
        return of_tokenizer
    own = letters(code)
    if any(map(str.isupper, of_tokenizer)):
        capitals = (words_lib.upper(each, code) for each in own)
        own += "".join(each for each in capitals if len(each) == 1)
    signs = "".join(each for each in of_tokenizer if not each.isalpha())
    return "".join(dict.fromkeys(own + signs))


def seen_in(texts: Iterable[str]) -> tuple[str, float]:
    """Returns the language of texts, and the share of their words that its list has.

    Of the languages in the texts' script it is the one whose word frequencies make the
    texts likeliest.

    Args:
        texts: Some of a population's.

    Raises:
        ValueError: If it is none of the supported languages.
    """
    split = tokenizers.get_tokenizer(tokenizers.DEFAULT).split
    counts = collections.Counter(word for text in texts for word in split(text))
    scripts: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        scripts.update({_script(word[0]): count} if _is_letter(word[0]) else {})
    best, likeliest, share = "", -math.inf, 0.0
    script = scripts.most_common(1)[0][0] if scripts else ""
    own = {code: each for code in codes() if (each := get(code)).script == script}
    total = sum(counts.values())
    for code in own:
        every = frequencies(code)
        listed = _words_of(code, {w: every[w] for w in counts if w in every})
        score = sum(n * math.log(listed.get(w, _RARE)) for w, n in counts.items())
        if score > likeliest:
            known = sum(n for word, n in counts.items() if word in listed)
            best, likeliest, share = code, score, known / total
    if not best or (share < _SEEN and len(own) > 1):
        raise ValueError(
            f"the text is in none of the languages {', '.join(codes())}, as far as its "
            "first words show; name the nearest one, or give --alphabet and "
            "--vocabulary"
        )
    return best, share


def _script(character: str) -> str:
    return unicodedata.name(character, "").partition(" ")[0]


def _is_of(letter: str, script: str) -> bool:
    return _script(letter) in (script, *_EVERY_SCRIPT)


def _is_letter(character: str) -> bool:
    """Returns whether it is a letter, a mark on one, or joins letters unseen."""
    return unicodedata.category(character)[0] in "LM" or character in _ZERO_WIDTH
