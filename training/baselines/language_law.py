"""The distribution of synthetic sentences as a model: an exact n-gram of order 2.

If every word with followers is in the vocabulary, the law of the next token depends
only on the token before, so no model of token ids predicts the language better.
"""

import dataclasses
from typing import Self

import numpy as np
from scipy import sparse

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.synthetic import synthetic_sentences

_FIRST_WORD = len(vocabulary_lib.SPECIAL_TOKENS)
_NUM_SUGGESTIONS = 3
_ROWS_AT_A_TIME = 128
# Probability of impossible tokens, instead of 0, which has no logarithm.
_NEVER = 1e-30


@dataclasses.dataclass(frozen=True)
class LanguageLaw:
    """The next token of a language, by token ids; an `ngrams.Model`.

    Attributes:
        end_probability: Probability that a sentence ends after a word.
        context_strength: The probability that a word with followers is followed by one.
        frequencies: Frequencies of words drawn independently: float64
            [num_tokens].
        followers: Float64 [num_tokens, num_tokens]: in the row of a token with
            followers their weights, which add up to 1; other rows are empty.
    """

    end_probability: float
    context_strength: float
    frequencies: np.ndarray
    followers: sparse.csr_matrix
    order = 2

    @classmethod
    def of(
        cls,
        language: synthetic_sentences.SyntheticLanguage,
        vocabulary: vocabulary_lib.Vocabulary,
    ) -> Self | None:
        """Returns the law; None if a word with followers is outside the vocabulary.

        Args:
            language: The language.
            vocabulary: Gives its words their token ids.
        """
        tokens = np.array(vocabulary.encode(language.words))
        with_followers = tokens[: len(language.followers)]
        if np.any(with_followers == vocabulary_lib.OOV):
            return None
        size = vocabulary.num_tokens
        weights = np.tile(language.follower_weights, len(with_followers))
        rows = np.repeat(with_followers, language.followers.shape[1])
        # Weights of repeated followers, and of words outside the vocabulary, add up.
        followers = sparse.csr_matrix(
            (weights, (rows, tokens[language.followers].ravel())), (size, size)
        )
        return cls(
            language.end_probability,
            language.options.context_strength,
            np.bincount(tokens, language.frequencies, size),
            followers,
        )

    def probability(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """See `ngrams.Model.probability`; 1e-30 for tokens that never follow."""
        if not len(tokens):  # SciPy returns a matrix
            return np.zeros(0)
        chosen = np.asarray(self.followers[contexts, tokens]).ravel()
        goes_on, by_frequency = self._shares(contexts)
        words = by_frequency * self.frequencies[tokens]
        words += self.context_strength * chosen
        is_end = tokens == vocabulary_lib.EOS
        law = np.where(is_end, 1 - goes_on, goes_on * words)
        return np.maximum(law, _NEVER)

    def best(self, contexts: np.ndarray) -> np.ndarray:
        """See `ngrams.Model.best`."""
        found = np.full((len(contexts), 1 + _NUM_SUGGESTIONS), -1)
        number = min(_NUM_SUGGESTIONS, len(self.frequencies) - _FIRST_WORD)
        for first in range(0, len(contexts), _ROWS_AT_A_TIME):
            some = contexts[first : first + _ROWS_AT_A_TIME]
            law = self._rows(some)
            rows = slice(first, first + len(some))
            found[rows, 0] = law.argmax(axis=1)
            likeliest = np.argsort(-law[:, _FIRST_WORD:], axis=1, kind="stable")
            found[rows, 1 : 1 + number] = likeliest[:, :number] + _FIRST_WORD
        return found

    def _rows(self, contexts: np.ndarray) -> np.ndarray:
        """Returns the next token's law after given ones: float64 [n, num_tokens]."""
        goes_on, by_frequency = self._shares(contexts)
        law = by_frequency[:, np.newaxis] * self.frequencies
        law += self.context_strength * self.followers[contexts].toarray()
        law *= goes_on[:, np.newaxis]
        law[:, vocabulary_lib.EOS] = 1 - goes_on
        return law

    def _shares(self, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns that a word follows, and that it is then drawn by frequency alone."""
        # A sentence does not end before its first word.
        is_first = contexts == vocabulary_lib.BOS
        goes_on = np.where(is_first, 1.0, 1 - self.end_probability)
        has_followers = np.diff(self.followers.indptr)[contexts] > 0
        return goes_on, np.where(has_followers, 1 - self.context_strength, 1.0)
