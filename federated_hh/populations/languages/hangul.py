"""Hangul syllables as letters: their jamo, of which a syllable has two or three."""

import re
import unicodedata

_SYLLABLES = re.compile("[가-힣]+")
_LETTERS = re.compile("[\u1100-\u11ff가-힣]+")


def letters(text: str) -> str:
    """Returns a text with each Hangul syllable as its jamo; nothing else changes."""
    if text.isascii():
        return text
    return _SYLLABLES.sub(lambda run: unicodedata.normalize("NFD", run[0]), text)


def syllables(text: str) -> str:
    """Returns a text with jamo as the syllables that they make, as people read it."""
    if text.isascii():
        return text
    return _LETTERS.sub(lambda run: unicodedata.normalize("NFC", run[0]), text)


def alphabet(characters: str) -> str:
    """Returns an alphabet with each Hangul syllable's jamo in its place, once each."""
    spelled = letters(characters)
    return characters if spelled == characters else "".join(dict.fromkeys(spelled))
