"""Cuts many texts into words at a time, and gives the words their numbers."""

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from federated_hh.files import verified_files
from federated_hh.populations.languages import tokenizers
from federated_hh.populations.languages import words as words_lib
from federated_hh.populations.readers import opening, word_table

# Codes that are not words: a token without a word, and the end of a text. Those from
# the last one down stand for several words.
_NO_WORD, _END, _SEVERAL = -100, -101, -102
_END_TOKEN = "\0"
# Between texts. White space on both sides keeps them apart.
_BETWEEN = f" {_END_TOKEN} "
# White space as `str.split` has it.
_OTHER_WHITE_SPACE = (
    "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
_IS_SPACE = np.zeros(256, bool)
_IS_SPACE[list(b"\t\n\v\f\r\x1c\x1d\x1e\x1f ")] = True
# Most tokens of a text are among few distinct ones; the others are seen once each.
_MAX_REMEMBERED = 1 << 18


class _Codes(dict):
    """The code of each token, found when it is first asked for."""

    def __init__(self, find: Callable[[str], int]):
        """Starts with none.

        Args:
            find: Returns the code of a token.
        """
        super().__init__()
        self._find = find

    def __missing__(self, token: str) -> int:
        code = self._find(token)
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        self[token] = code
        return code

    def of(self, tokens: pa.LargeStringArray) -> np.ndarray:
        """Returns the codes of tokens; white space follows all but the last.

        Args:
            tokens: As `_tokens` has them.

        Returns:
            int32 [tokens].
        """
        # Many tokens have few distinct values, and Python handles only these. They are
        # adjacent; a final token without white space is also the last of them.
        encoded = tokens.dictionary_encode()
        distinct = _text_of(encoded.dictionary).split()
        found = map(self.__getitem__, distinct)
        codes = np.fromiter(found, np.int32, len(encoded.dictionary))
        return codes[np.frombuffer(encoded.indices.buffers()[1], np.int32)]


class WordCodes:
    """Gives the words of texts their codes: ids, or why they are left out."""

    def __init__(
        self, table: word_table.WordTable, tokenizer: tokenizers.Tokenizer | None
    ):
        """Starts with no texts.

        Args:
            table: Names and filters the words.
            tokenizer: Cuts texts into words; None where each text is a word.
        """
        self._table = table
        self._split = tokenizer.split if tokenizer else None
        self._rule = tokenizer.rule if tokenizer else None
        if self._rule is not None:
            self._codes = _Codes(functools.partial(self._code_of, self._rule))
        self._several: list[list[int]] = []

    def of(
        self, texts: Sequence[str], place: Callable[[int], str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the codes of the words of texts.

        Args:
            texts: Cut into words, in order.
            place: Returns the position of one of them, for messages.

        Returns:
            int32 [words]: ids, or keys of `word_table.REASONS`; and int64 [texts]:
            number of words of each text.

        Raises:
            PopulationError: If enough words were refused for a message, or the
                tokenizer returned something other than words.
        """
        if not len(texts):
            return np.zeros(0, np.int32), np.zeros(0, np.int64)
        if self._rule is not None:
            joined = _BETWEEN.join(texts)
            if joined.count(_END_TOKEN) == len(texts) - 1 and (
                not opening.has_undecodable(joined)
            ):
                return self._of_joined(self._rule, joined, len(texts), place)
        return self._of_each(texts, place)

    def _of_joined(
        self,
        rule: tokenizers.TokenRule,
        joined: str,
        num_texts: int,
        place: Callable[[int], str],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the codes of texts separated by `_END_TOKEN`."""
        if len(self._several) >= _MAX_REMEMBERED:
            self._several.clear()
            self._codes.clear()
        tokens = _tokens(rule.normalize(joined))
        codes = self._codes.of(tokens)
        texts = np.cumsum(codes == _END)
        if self._table.refuses:
            seen = (codes == word_table.OUT_OF_ALPHABET) | (codes <= _SEVERAL)
            for at in np.flatnonzero(seen).tolist():
                self._refuse(rule, tokens[at], int(codes[at]), place, int(texts[at]))
        if (are_several := codes <= _SEVERAL).any():
            lists = [self._several[_SEVERAL - c] for c in codes[are_several].tolist()]
            lengths = np.ones(len(codes), np.int64)
            lengths[are_several] = list(map(len, lists))
            codes, texts, are_several = (
                np.repeat(each, lengths) for each in (codes, texts, are_several)
            )
            codes[are_several] = list(itertools.chain.from_iterable(lists))
        is_word = codes > _NO_WORD
        return codes[is_word], np.bincount(texts[is_word], minlength=num_texts)

    def _code_of(self, rule: tokenizers.TokenRule, token: str) -> int:
        """Returns the code of a token."""
        if token == _END_TOKEN:
            return _END
        codes = [self._table.code(word) for word in rule.words(token)]
        if len(codes) < 2:
            return codes[0] if codes else _NO_WORD
        self._several.append(codes)
        return _SEVERAL - len(self._several) + 1

    def _refuse(
        self,
        rule: tokenizers.TokenRule,
        token: pa.LargeStringScalar,
        code: int,
        place: Callable[[int], str],
        text: int,
    ) -> None:
        """Records the words of a token that are outside the alphabet."""
        codes = self._several[_SEVERAL - code] if code <= _SEVERAL else [code]
        if word_table.OUT_OF_ALPHABET in codes:
            words = rule.words(token.as_py().rstrip())
            for word, each in zip(words, codes, strict=True):
                if each == word_table.OUT_OF_ALPHABET:
                    self._table.refuse(word, place(text))

    def _of_each(
        self, texts: Sequence[str], place: Callable[[int], str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the codes of texts that are cut one by one."""
        words = [words_lib.in_normal_form(text) for text in texts]
        lengths = np.ones(len(texts), np.int64)
        if self._split is not None:
            cut = list(map(self._split, texts))
            words = list(itertools.chain.from_iterable(cut))
            lengths = np.fromiter(map(len, cut), np.int64, len(cut))
        try:
            codes = np.fromiter(map(self._table.code, words), np.int32, len(words))
        except word_table.NotAWordError as error:
            at = next(i for i, word in enumerate(words) if word is error.word)
            text = int(np.searchsorted(np.cumsum(lengths), at, side="right"))
            raise verified_files.PopulationError(f"{place(text)}: {error}") from None
        if self._table.refuses:
            ends = np.cumsum(lengths)
            for at in np.flatnonzero(codes == word_table.OUT_OF_ALPHABET).tolist():
                text = int(np.searchsorted(ends, at, side="right"))
                self._table.refuse(words[at], place(text))
        return codes, lengths


def _text_of(strings: pa.LargeStringArray) -> str:
    """Returns all strings, joined."""
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, np.int64)[strings.offset :][: len(strings) + 1]
    return bytes(data[ends[0] : ends[-1]]).decode()


def _tokens(text: str) -> pa.LargeStringArray:
    """Returns the texts between white space, each with the white space after it.

    Args:
        text: Cut as `str.split` does; it begins where a token or white space does.
    """
    if not text.isascii():
        for character in _OTHER_WHITE_SPACE:
            text = text.replace(character, " ")
    data = np.frombuffer(text.encode(), np.uint8)
    is_space = _IS_SPACE[data]
    starts = np.flatnonzero(is_space[:-1] > is_space[1:]) + 1
    if len(data) and not is_space[0]:
        starts = np.append(0, starts)
    # Each extends to the start of the next one, so no text is copied.
    return pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(np.append(starts, len(data))), pa.py_buffer(data)
    )
