"""Defines a word, once, for finding, training, dictionaries and keyboards.

A word is a letter or digit of any script with the letters, digits and marks that
follow it. Joiners (ZWJ, ZWNJ) are part of it inside, and so are, unless `WordOptions`
says otherwise, single hyphens and apostrophes between its characters. Everything else
parts words; links, addresses and "@mentions" are none.

Text is in normal form C, with the apostrophes and hyphens of a typewriter and without
invisible characters. `cut` gives each of its words back as exactly one word.
"""

import dataclasses
import functools
import importlib.util
import unicodedata
from collections.abc import Callable, Iterable, Mapping

import regex

from federated_hh.options.fields import OptionError, check, option

# Part of what identifies data cut from files: another cut needs a new version.
VERSION = 1

_option = functools.partial(option, group="What a word is")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordOptions:
    """Options of words, the same for finding and for training."""

    case: str = _option(
        "lower",
        "Case of words: 'lower' makes text lower case, 'keep' leaves it, so that "
        "capitalised words can be found and trained.",
        choices=("lower", "keep"),
    )
    hyphens: str = _option(
        "keep",
        "Hyphens inside a word such as e-mail: 'keep' leaves it one word, 'part' makes "
        "it two.",
        choices=("keep", "part"),
    )
    apostrophes: str = _option(
        "keep",
        "Apostrophes inside a word such as don't, and Hebrew's quotes: 'keep' leaves "
        "it one word, 'part' makes it two.",
        choices=("keep", "part"),
    )
    digits: str = _option(
        "keep",
        "Words with a digit, such as mp3 and 3.14: 'keep' or 'drop' them.",
        choices=("keep", "drop"),
    )
    signs: str = _option(
        "drop",
        "Emoji and signs such as €: 'drop' leaves them out, 'keep' makes each a word.",
        choices=("drop", "keep"),
    )
    segmenter: str = _option(
        "none",
        "Rule that finds words in scripts without blanks (Chinese, Japanese, Thai, "
        "Lao, Khmer, Burmese): 'icu' (ICU's dictionaries; pip install icu4py). With "
        "'none', text that is mostly in such a script is refused.",
        choices=("none", "icu"),
    )
    language: str = _option("en", "Language of the words: it has a rule of case.")

    def __post_init__(self):
        check(self)
        self._check_words()

    @classmethod
    def of(cls, values: Mapping[str, str]) -> "WordOptions":
        """Returns the options that a record has; others are left out.

        Args:
            values: Options, such as a run's flags, by name.
        """
        given = {name: values[name] for name in OPTION_NAMES if name in values}
        if given.get("language") not in _CASED:
            given.pop("language", None)
        return WordOptions(**given)

    def _check_words(self) -> None:
        if self.segmenter == "icu" and importlib.util.find_spec("icu4py") is None:
            raise OptionError(
                self,
                "{segmenter=}: needs the package icu4py, which is not installed; run "
                "'pip install icu4py' in the environment of this program",
            )

    @property
    def word_options(self) -> "WordOptions":
        """These options alone; a language whose case is Unicode's is left out."""
        return WordOptions.of(vars(self))

    def changed(self) -> dict[str, str]:
        """Returns the options that differ from their defaults; ICU with its version."""
        given = vars(self.word_options)
        told = {n: v for n, v in given.items() if v != getattr(WordOptions, n)}
        if "segmenter" in told:
            from importlib import metadata

            told["segmenter"] = f"icu4py {metadata.version('icu4py')}"
        return told


OPTION_NAMES = tuple(field.name for field in dataclasses.fields(WordOptions))
DEFAULT = WordOptions()

# Languages with a case of their own: their capitals, and the small letters of these.
_CASED = {"tr": ("Iİ", "ıi")}
# Marks that a typewriter has in one form. Armenian and Hebrew ones are among them.
_TYPED = str.maketrans("‘’՚׳״‐‑֊", "''''\"---")
# Not seen, so no part of a spelling; and Armenian's signs on a stressed vowel.
_UNSEEN = regex.compile(
    "[\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufe00-\ufe0f\U000e0100-\U000e01ef\u055b\u055c\u055e]+"
)
_INVISIBLE = regex.compile(rf"{_UNSEEN.pattern}|\p{{Default_Ignorable_Code_Point}}+")
# Turkish İ in lower case is an i and a dot, which typed text does not have.
_DOTTED_I = regex.compile("i\u0307+")
# Up to white space, or the end of a sentence that no white space follows.
_REST = "[^\\s。！？｡]*"
# Each begins where it cannot have begun before, so that long tokens take no longer.
_NOT_TYPED = regex.compile(
    rf"(?<![\p{{L}}\p{{N}}])(?:[a-z][a-z0-9+.-]{{0,15}}://|https?:|www\.|@){_REST}"
    rf"|(?<![^\s@。！？｡])[^\s@。！？｡]+@[^\s@.。！？｡]+\.{_REST}",
    regex.IGNORECASE,
)
_LETTER = r"[\p{L}\p{N}](?!\u20e3)"  # a digit on a key is a sign
_MARK = r"[\p{Mn}\p{Mc}]"
_JOINER = "[\u200c\u200d\u180e]"
# A joiner at the end shows the form of a letter after a virama alone.
_RUN = (
    rf"{_LETTER}(?:{_LETTER}|{_MARK}|{_JOINER}+(?={_LETTER}|{_MARK})"
    r"|(?<=\p{ccc=9})\u200d)*"
)
# Skin tones, parts of families and flags follow a sign in its grapheme cluster.
_SIGN = r"[0-9#*]\u20e3|(?=[\p{Extended_Pictographic}\p{So}\p{Sc}\p{Sm}])\X"
# A character of a script without blanks between words.
UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}--\p{P}]",
    regex.V1,
)


def spelled(text: str) -> str:
    """Returns text in normal form C, with the marks of a typewriter."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text.translate(_TYPED))


def has_marks(word: str) -> bool:
    """Returns whether a word in normal form C has a combining mark."""
    return any(unicodedata.category(character)[0] == "M" for character in word)


def in_normal_form(text: str) -> str:
    """Returns text in normal form C; all else is left as it is."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def lower(language: str) -> Callable[[str], str]:
    """Returns the function that puts text of a language into lower case."""
    if language not in _CASED:
        return str.lower
    small = str.maketrans(*_CASED[language])
    return lambda text: in_normal_form(text).translate(small).lower()


def upper(text: str, language: str) -> str:
    """Returns text of a language in upper case."""
    capitals, small = _CASED.get(language, ("", ""))
    return text.translate(str.maketrans(small, capitals)).upper()


def folded(word: str, language: str = DEFAULT.language) -> str:
    """Returns a word as dictionaries compare it: spelled, and in lower case."""
    lowered = lower(language)(spelled(word))
    return lowered if lowered.isascii() else _undotted(lowered)


def appearance(word: str, language: str = DEFAULT.language) -> str:
    """Returns a form that words share if only case or invisible characters differ.

    As Unicode's NFKC_Casefold, with the language's case and a typewriter's marks, and
    without white space around. Full-width letters become usual ones, and ß is ss.
    """
    seen = _INVISIBLE.sub("", unicodedata.normalize("NFKC", word))
    return folded(seen.strip(), language).casefold()


def _undotted(text: str) -> str:
    return unicodedata.normalize("NFC", _DOTTED_I.sub("i", text))


def _word_pattern(options: WordOptions) -> regex.Pattern:
    inner = ["(?<=\\p{N})[.,](?=\\p{N})", "(?<=[lL])·(?=[lL])"]
    if options.hyphens == "keep":
        inner.append("-")
    if options.apostrophes == "keep":
        inner += ["'", '(?<=\\p{Hebrew}\\p{M}*)"(?=\\p{Hebrew})']
    word = rf"{_RUN}(?:(?:{'|'.join(inner)}){_RUN})*"
    return regex.compile(f"{_SIGN}|{word}" if options.signs == "keep" else word)


@functools.lru_cache(maxsize=16)
def cut(options: WordOptions = DEFAULT) -> Callable[[str], tuple[str, ...]]:
    """Returns the function that gives the words of a text without white space.

    Args:
        options: Options of words. With `case="lower"` the text is in lower case.
    """
    find = _word_pattern(options).findall
    segmented = _by_icu if options.segmenter == "icu" else None
    lower, keeps_digits = options.case == "lower", options.digits == "keep"
    # Of letters alone the pattern finds one word; but "\u2139" is a sign too.
    finds_letters = segmented is None and options.signs != "keep"

    def words(token: str) -> tuple[str, ...]:
        if token.isascii():
            if token.isalpha() or (keeps_digits and token.isalnum()):
                return (token,)
        elif (
            finds_letters
            and token.isalpha()
            and unicodedata.is_normalized("NFC", token)
        ):
            return (token,)
        else:
            token = spelled(_UNSEEN.sub("", token))
            if lower:
                token = _undotted(token)
        if "@" in token or ":" in token or "." in token:
            token = _NOT_TYPED.sub(" ", token)
        found: Iterable[str] = find(token)
        if segmented is not None and not token.isascii():
            found = [
                piece
                for word in found
                for part in (segmented(word) if UNSPACED.search(word) else [word])
                for piece in find(part)
            ]
        if not keeps_digits:
            found = [word for word in found if not regex.search(r"\p{N}", word)]
        return tuple(map(_without_last_joiner, found))

    return words


def _without_last_joiner(word: str) -> str:
    """Returns a sign without a joiner behind it; other words end as they are."""
    return word if word[0].isalnum() else word.rstrip("\u200c\u200d")


def _by_icu(text: str) -> list[str]:
    """Returns ICU's words of a text, each of which it leaves whole by itself."""
    from icu4py import breakers

    raw = text.encode("utf-16-le")  # whose units ICU counts
    spans = breakers.WordBreaker(text, "en").segments()
    parts = [raw[2 * low : 2 * high].decode("utf-16-le") for low, high in spans]
    if len(parts) < 2:
        return parts
    return [piece for part in parts for piece in _by_icu(part)]
