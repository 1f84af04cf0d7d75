"""The words that a language model knows, and their token ids."""

import collections
import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from federated_hh.options import checks
from federated_hh.populations.languages import languages, sentence_tokenizers
from federated_hh.populations.languages import words as words_lib
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import opening, sentences, unspaced_text

PAD, OOV, BOS, EOS = range(4)
# The first lines of a vocabulary file, in the order of their ids.
SPECIAL_TOKENS = ("<pad>", "<oov>", "<bos>", "<eos>")


class Vocabulary:
    """Words with token ids: padding, out-of-vocabulary, begin, end, then the words.

    Attributes:
        words: The words, the most frequent first if known.
        language: The code of their language, which has their public frequencies.
    """

    def __init__(self, words: Sequence[str], language: str = languages.DEFAULT):
        """Makes a vocabulary.

        Args:
            words: One or more, distinct, without white space, none a special token; in
                any normal form.
            language: The code of their language.

        Raises:
            ValueError: If they are not so.
        """
        self.words = tuple(map(words_lib.in_normal_form, words))
        self.language = language
        if not self.words:
            raise ValueError("words is empty; it has to have at least one word.")
        self._ids = {word: i for i, word in enumerate(self.words, len(SPECIAL_TOKENS))}
        if len(self._ids) < len(self.words):
            counts = collections.Counter(self.words)
            raise ValueError(f"words has {counts.most_common(1)[0][0]!r} twice.")
        for word in self.words:
            if word in SPECIAL_TOKENS or not word or word.split() != [word]:
                raise ValueError(
                    f"words has {word!r}; its words must have no white space and be "
                    f"none of {', '.join(SPECIAL_TOKENS)}."
                )

    @property
    def num_tokens(self) -> int:
        """Number of token ids: the words and the special tokens."""
        return len(SPECIAL_TOKENS) + len(self.words)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the words, in hexadecimal."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def encode(self, words: Iterable[str]) -> list[int]:
        """Returns the token ids of words; `OOV` for unknown ones."""
        return [self._ids.get(word, OOV) for word in words]

    def token(self, token_id: int) -> str:
        """Returns the word, or the special token, of an id in [0, num_tokens)."""
        if not 0 <= token_id < self.num_tokens:
            raise ValueError(
                f"token_id is {token_id}; it has to be in 0..{self.num_tokens - 1}."
            )
        if token_id < len(SPECIAL_TOKENS):
            return SPECIAL_TOKENS[token_id]
        return self.words[token_id - len(SPECIAL_TOKENS)]

    def to_text(self) -> str:
        """Returns the contents of the vocabulary's file, one token a line."""
        return "".join(f"{token}\n" for token in (*SPECIAL_TOKENS, *self.words))

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], language: str = languages.DEFAULT
    ) -> Self:
        """Reads a vocabulary file: one token a line, the special ones first.

        Args:
            path: A UTF-8 file; .gz, .xz and .zst are decompressed.
            language: The code of the words' language.

        Raises:
            ValueError: If it lacks the special tokens, or a line is not a word.
            PopulationError: If it cannot be read.
        """
        tokens = []
        with opening.open_text(str(path), "utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if opening.has_undecodable(line):
                    raise ValueError(
                        f"{path}:{number}: the line is not UTF-8; a vocabulary has to "
                        "be UTF-8."
                    )
                tokens.append(line.rstrip("\r\n"))
        size = len(SPECIAL_TOKENS)
        if tuple(tokens[:size]) != SPECIAL_TOKENS:
            raise ValueError(
                f"{path}: the first {size} lines are {tokens[:size]}; a vocabulary "
                f"has to begin with the lines {', '.join(SPECIAL_TOKENS)}, followed "
                "by one word per line. Put them first."
            )
        try:
            return cls(tokens[size:], language)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @classmethod
    def of_language(cls, size: int, language: str = languages.DEFAULT) -> Self:
        """Returns the most frequent words of a language's public text.

        Args:
            size: Number of words, in 1..100000.
            language: The language's code.

        Returns:
            The top words of the language's list (which sums up Wikipedia, subtitles,
            news, books and the web) that a keyboard's sentence tokenizer leaves whole.

        Raises:
            ValueError: If the list has fewer.
        """
        checks.integer(size=size, least=1, most=100_000)
        split = sentence_tokenizers.get_sentence_tokenizer("keyboard").split
        words = []
        for word, _ in languages.whole_words(language, split):
            words.append(word)
            if len(words) == size:
                return cls(words, language)
        raise ValueError(
            f"--vocabulary_size={size}: wordfreq's list of "
            f"{languages.get(language).name} has {len(words):,} words; give at most so "
            "many."
        )

    @classmethod
    def from_public_text(
        cls,
        options: population_options.PopulationOptions,
        tokenizer: sentence_tokenizers.SentenceTokenizer,
        size: int,
    ) -> Self:
        """Returns the most frequent words of public text files.

        No client's data may be in these files: no guarantee of the training covers a
        vocabulary counted on private text.

        Args:
            options: The files, their format, columns and language; the user's column is
                not used and need not be there. Of a name that ends in .txt, each line
                is a text.
            tokenizer: Cuts text into sentences of words.
            size: Number of words, at least 1. Of equally frequent words, the first in
                the text is taken.

        Raises:
            ValueError: If the text has fewer distinct words.
            PopulationError: If it cannot be read.
        """
        checks.integer(size=size, least=1)
        counts: collections.Counter[str] = collections.Counter()
        unspaced = unspaced_text.UnspacedText(tokenizer.needs_blanks)
        for text in _texts(options):
            unspaced.add([text])
            for words in tokenizer.split(text):
                counts.update(words)
        unspaced.check()
        if len(counts) < size:
            raise ValueError(
                f"{options.source} has {len(counts):,} distinct words, fewer than the "
                f"vocabulary's {size:,}; ask for a smaller vocabulary, or give more "
                "text."
            )
        return cls([word for word, _ in counts.most_common(size)], options.language)


def _texts(options: population_options.PopulationOptions) -> Iterator[str]:
    """Yields the texts of public files."""
    stem, _ = opening.split_compression(options.source)
    if stem.lower().endswith(".txt") and options.format == "auto":
        with opening.open_text(options.source, options.encoding) as lines:
            yield from lines
        return
    without_users = dataclasses.replace(options, user_column=options.text_column)
    batches, _ = sentences.open_files(without_users)
    for rows in batches:
        yield from rows.contents
