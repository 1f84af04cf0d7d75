"""Hashes of consecutive words, for comparing texts."""

from collections.abc import Iterator

import numpy as np

from federated_hh.populations import vocabulary
from federated_hh.populations.columns import client_text

_TOKENS_AT_A_TIME = 1 << 21
# Odd: it has an inverse.
_BASE = 0x9E3779B97F4A7C15


def hashes(
    text: client_text.ClientText, num_words: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields, some sentences at a time, all windows of consecutive known words.

    A window begins and ends with a known word of one sentence. Unknown words may be in
    between, and count as equal. So two sentences share a window if they have these
    words, whatever precedes and follows. The hash of a window with the tokens t_0, t_1,
    ... is that of Karp and Rabin (1987), the sum of scrambled(t_i) B^i modulo 2^64,
    scrambled.

    Args:
        text: The sentences.
        num_words: Known words of a window.

    Yields:
        int64 [n], ascending: the number of the window's sentence; and uint64 [n]: the
        window's hash.
    """
    splits = text.sentence_splits
    first = 0
    while first < text.num_sentences:
        most = splits[first] + _TOKENS_AT_A_TIME
        last = max(first + 1, int(np.searchsorted(splits, most, side="right")) - 1)
        lengths = np.diff(splits[first : last + 1].astype(np.int64))
        tokens = np.asarray(text.tokens[splits[first] : splits[last]], np.uint64)
        sentences = np.repeat(np.arange(first, last), lengths)
        known = np.flatnonzero(tokens != vocabulary.OOV)
        begin = known[: max(0, len(known) - num_words + 1)]
        end = known[num_words - 1 :]
        is_of_one = sentences[begin] == sentences[end]
        begin, end = begin[is_of_one], end[is_of_one]
        powers = _powers(_BASE, len(tokens))
        before = np.zeros(len(tokens) + 1, np.uint64)
        np.cumsum(_scrambled(tokens) * powers, out=before[1:])
        inverse = _powers(pow(_BASE, -1, 1 << 64), len(tokens))
        sums = (before[end + 1] - before[begin]) * inverse[begin]
        yield sentences[begin], _scrambled(sums)
        first = last


def is_in(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns whether each value is among others: bool [n]."""
    if not len(ascending):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return ascending[places] == values


def _powers(base: int, count: int) -> np.ndarray:
    """Returns the first powers of a number modulo 2^64: uint64 [count]."""
    factors = np.full(count, base, np.uint64)
    factors[:1] = 1
    return np.cumprod(factors)


def _scrambled(numbers: np.ndarray) -> np.ndarray:
    """Returns SplitMix64 of numbers (Steele, Lea and Flood 2014): uint64."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
