"""Fonts with the letters of a figure, in any script.

Matplotlib's own font lacks Chinese, Japanese, Korean and Devanagari, for example. An
installed font that has the letters is used; words that none has are numbered.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib import figure as figure_lib
    from matplotlib import text as text_lib

# Fonts that draw a box or nothing for a letter.
_NO_LETTERS = re.compile("last ?resort|color|blank", re.IGNORECASE)
_WORD = re.compile(r"[^\s,;:]+")
_REGULAR = ("400", "normal")
# Has no shape, and makes a line begin at the left.
_LEFT_TO_RIGHT = "\u200e"


def make_readable(figure: "figure_lib.Figure") -> dict[str, str]:
    """Has a figure's words drawn by fonts that have their letters.

    Words with a letter that no installed font has are replaced by numbers.

    Returns:
        The replaced words by their numbers, such as {"#1": "東京"}.
    """
    from matplotlib import text as text_lib

    numbers: dict[str, str] = {}
    for axis in itertools.chain(*((a.xaxis, a.yaxis) for a in figure.axes)):
        labels = axis.get_majorticklabels()
        given = [label.get_text() for label in labels]
        readable = [_readable(label, numbers) for label in labels]
        if given != readable:  # an axis writes its labels again when it is drawn
            axis.set_ticks(axis.get_majorticklocs(), readable)
    for each in figure.findobj(text_lib.Text):
        assert isinstance(each, text_lib.Text)
        each.set_text(_readable(each, numbers))
    return {number: word for word, number in numbers.items()}


def _readable(text: "text_lib.Text", numbers: dict[str, str]) -> str:
    """Sets a text's fonts, and returns it with its undrawable words numbered."""
    from matplotlib import cbook, font_manager

    written = text.get_text()
    if written.isascii() or (text.get_parse_math() and cbook.is_math_text(written)):
        return written
    font = font_manager.findfont(text.get_fontproperties())
    families, missing = _families(frozenset(_missing(written, font)))
    if families:
        text.set_fontfamily([*dict.fromkeys([*text.get_fontfamily(), *families])])
    if missing:
        written = _WORD.sub(functools.partial(_numbered, missing, numbers), written)
    if any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in written):
        written = _LEFT_TO_RIGHT + written.lstrip(_LEFT_TO_RIGHT)
    return written


def _numbered(
    missing: frozenset[str], numbers: dict[str, str], word: re.Match[str]
) -> str:
    """Returns a word, or its number if letters of it are missing."""
    if missing.isdisjoint(word[0]):
        return word[0]
    return numbers.setdefault(word[0], f"#{len(numbers) + 1}")


def _missing(letters: Iterable[str], font: str) -> set[str]:
    """Returns the letters that a font file does not have."""
    from matplotlib import font_manager

    known = font_manager.get_font(font).get_charmap()
    return {x for x in letters if ord(x) not in known and not x.isspace()}


@functools.lru_cache(maxsize=256)
def _families(letters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Returns installed families with some letters, and the letters that none has."""
    families = []
    for name, path in _installed() if letters else ():
        missing = frozenset(_missing(letters, path))
        if missing != letters:
            families.append(name)
        letters = missing
        if not letters:
            break
    return tuple(families), letters


@functools.cache
def _installed() -> list[tuple[str, str]]:
    """Returns name and file of each installed family, plain sans-serif ones first."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    # Matplotlib lists fonts once and for all; others may be installed later.
    for path in {*font_manager.findSystemFonts()} - {e.fname for e in manager.ttflist}:
        try:
            manager.addfont(path)
        except (OSError, RuntimeError, NotImplementedError):  # none that can be drawn
            continue
    ranked = sorted(
        manager.ttflist,
        key=lambda entry: (
            entry.style != "normal",
            str(entry.weight) not in _REGULAR,
            "Sans" not in entry.name,
            entry.name,
            entry.fname,
        ),
    )
    files = {entry.name: entry.fname for entry in reversed(ranked)}
    names = dict.fromkeys(entry.name for entry in ranked)
    return [(name, files[name]) for name in names if not _NO_LETTERS.search(name)]
