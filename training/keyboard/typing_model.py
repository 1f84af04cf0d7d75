"""Simulated typing on a touch screen, and its decoder's proposals.

A typist aims at the center of each key of a word, and touches a point with a Gaussian
error. The decoder knows the layout, the error's size and the word frequencies; it
proposes words with as many keys as touches. A language model may then re-rank
them (on-the-fly rescoring, OTF).
"""

import dataclasses

import numpy as np

from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.randomness import streams
from training.keyboard import layout as keyboard_layout
from training.keyboard import options as keyboard_options

# Likelihoods that are computed at a time, of 8 bytes each.
_CELLS_AT_A_TIME = 1 << 22
_FIRST_WORD = len(vocabulary_lib.SPECIAL_TOKENS)


@dataclasses.dataclass(frozen=True)
class TypedWords:
    """Typed words, and the decoder's proposals for them.

    Attributes:
        places: int64 [typed]: which of the words these are, ascending.
        candidates: int32 [typed, k]: token ids, the likeliest first; 0, which is not a
            word, if there are fewer.
        touches: float64 [typed, k]: the candidates' log-likelihoods of the touches, up
            to a constant per position; -inf without a candidate.
        is_first: bool [typed]: whether the first candidate is the word that was typed.
        is_proposed: bool [typed]: whether any candidate is.
    """

    places: np.ndarray
    candidates: np.ndarray
    touches: np.ndarray
    is_first: np.ndarray
    is_proposed: np.ndarray


class TouchTypist:
    """Types words of a vocabulary, and decodes the touches by a prior.

    Attributes:
        can_type: bool [num_tokens]: which tokens are words that can be typed.
    """

    def __init__(
        self,
        vocabulary: vocabulary_lib.Vocabulary,
        layout: keyboard_layout.KeyboardLayout,
        options: keyboard_options.TouchOptions,
        log_prior: np.ndarray,
    ):
        """Finds the words that can be typed.

        Args:
            vocabulary: The model's.
            layout: The keys.
            options: The typist's exactness and the decoder's settings.
            log_prior: float64 [num_tokens]: log-probabilities of tokens without
                context.

        Raises:
            ValueError: If the prior is not of the vocabulary's size; if a word has a
                character without a key, unless the options leave such words out; or if
                none is left.
        """
        if np.shape(log_prior) != (vocabulary.num_tokens,):
            raise ValueError(
                f"log_prior has the shape {np.shape(log_prior)}; it has to be "
                f"({vocabulary.num_tokens},), one number per token."
            )
        if options.unkeyed_words == "refuse":
            layout.check_has(vocabulary.words)
        self._options = options
        self._log_prior = np.asarray(log_prior, np.float64)
        self.can_type = np.zeros(vocabulary.num_tokens, bool)
        by_length: dict[int, tuple[list[int], list[np.ndarray]]] = {}
        for token, word in enumerate(vocabulary.words, _FIRST_WORD):
            if layout.can_type(word):
                self.can_type[token] = True
                keys = layout.centers_of(word)
                tokens, centers = by_length.setdefault(len(keys), ([], []))
                tokens.append(token)
                centers.append(keys.ravel())
        if not by_length:
            raise ValueError(
                f"the layout {layout.name} can type no word of the vocabulary; give "
                "another --layout."
            )
        self._of_length = {
            length: (np.array(tokens), np.array(centers))
            for length, (tokens, centers) in by_length.items()
        }

    def type_words(
        self, tokens: np.ndarray, clients: np.ndarray, seed: int
    ) -> TypedWords:
        """Types words, and proposes candidates for each.

        Args:
            tokens: int [words], token ids; those that are not words, or cannot be
                typed, are left out.
            clients: int64 [words], ascending: the client of each. A client's touches
                depend on the seed, the client, and the client's words before.
            seed: The seed, at least 0.
        """
        places = np.flatnonzero(self.can_type[tokens])
        wanted = np.asarray(tokens)[places]
        lengths = np.zeros(len(self.can_type), np.int64)
        for length, (words, _) in self._of_length.items():
            lengths[words] = length
        count = lengths[wanted]
        errors = self._errors(count, np.asarray(clients)[places], seed)
        starts = np.cumsum(count) - count
        k = self._options.num_candidates
        candidates = np.zeros((len(places), k), np.int32)
        touches = np.full((len(places), k), -np.inf)
        for length in np.unique(count).tolist():
            rows = np.flatnonzero(count == length)
            hits = errors[starts[rows, np.newaxis] + np.arange(length)]
            self._decode(length, wanted, rows, hits, candidates, touches)
        right = candidates == wanted[:, np.newaxis]
        return TypedWords(places, candidates, touches, right[:, 0], right.any(axis=1))

    def _errors(self, count: np.ndarray, clients: np.ndarray, seed: int) -> np.ndarray:
        """Returns the errors of all touches: float64 [touches, 2]."""
        owners, totals = np.unique(np.repeat(clients, count), return_counts=True)
        parts = [
            streams.generator(seed, "touches", owner).standard_normal((total, 2))
            for owner, total in zip(owners.tolist(), totals.tolist(), strict=True)
        ]
        return self._options.touch_stddev * np.concatenate([np.zeros((0, 2)), *parts])

    def _decode(self, length, wanted, rows, errors, candidates, touches) -> None:
        """Fills in the candidates of words of one length."""
        words, centers = self._of_length[length]
        place_of = np.zeros(len(self.can_type), np.int64)
        place_of[words] = np.arange(len(words))
        prior = self._log_prior[words]
        k = min(self._options.num_candidates, len(words))
        scale = 2 * self._options.touch_stddev**2
        at_once = max(1, _CELLS_AT_A_TIME // len(words))
        for first in range(0, len(rows), at_once):
            some = rows[first : first + at_once]
            aimed = centers[place_of[wanted[some]]]
            hits = aimed + errors[first : first + at_once].reshape(len(some), -1)
            # |hit - center|^2, up to |hit|^2, which is the same for all words.
            likelihoods = (2 * hits @ centers.T - (centers**2).sum(axis=1)) / scale
            scores = likelihoods + prior
            best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            best.sort(axis=1)  # of equal scores, the more frequent token's first
            order = np.argsort(
                -np.take_along_axis(scores, best, axis=1), axis=1, kind="stable"
            )
            best = np.take_along_axis(best, order, axis=1)
            candidates[some, :k] = words[best]
            touches[some, :k] = np.take_along_axis(likelihoods, best, axis=1)

    def is_modified(
        self, typed: TypedWords, tokens: np.ndarray, log_probabilities: np.ndarray
    ) -> np.ndarray:
        """Returns the words to modify after the model re-ranks.

        Their share represents the paper's live Word Modified Ratio (WMR), "the ratio of
        words being modified during typing or after committed; improvement is shown by
        reduction": here a word has to be modified if the first candidate is another
        one. Simulated users do not delete or rephrase.

        The paper's ratio covers all words. This one covers the typed words: known words
        that the layout has keys for. The others, whose letters are unknown or cannot be
        typed, are in neither its numerator nor its denominator. `evaluation` also has
        the ratio of all words, in which each of the others counts as modified, as no
        decoder proposes it.

        Args:
            typed: The typed words.
            tokens: Tokens as for `type_words`.
            log_probabilities: float [typed, k]: the model's, of the candidates given
                the context.

        Returns:
            bool [typed].
        """
        weight = self._options.model_weight
        prior = self._log_prior[typed.candidates]
        scores = typed.touches + weight * log_probabilities + (1 - weight) * prior
        # Without a candidate, the likelihood is -inf, whatever the model's score.
        scores[np.isneginf(typed.touches)] = -np.inf
        first = np.argmax(scores, axis=1)
        chosen = np.take_along_axis(typed.candidates, first[:, np.newaxis], axis=1)
        return chosen[:, 0] != np.asarray(tokens)[typed.places]
