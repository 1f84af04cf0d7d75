"""The best possible scores on synthetic sentences, from their distribution.

A model sees token ids: a word outside the vocabulary has the unknown word's id. If
every word with followers is in the vocabulary, the ids contain all information about
the next word, and the figures here are those of the best possible predictor. Otherwise
they are bounds: no model can do better, because each position is evaluated as if the
word before were known.
"""

import collections
import dataclasses

import numpy as np
from scipy import special

from federated_hh.options import checks
from federated_hh.populations import vocabulary as vocabulary_lib
from federated_hh.populations.synthetic import synthetic_sentences
from training.baselines import language_law, ngrams
from training.models import evaluation
from training.text import windows

_ROWS_AT_A_TIME = 128
_FIRST_WORD = len(vocabulary_lib.SPECIAL_TOKENS)


@dataclasses.dataclass(frozen=True)
class _Words:
    """The expected scores of a next word, given the word before.

    Attributes:
        entropy: The entropy of the next token, in nats: float64, as the others.
        known: Probability that it is a word of the vocabulary.
        best: Probability of the likeliest word.
        best3: Probability of the three likeliest words.
    """

    entropy: np.ndarray
    known: np.ndarray
    best: np.ndarray
    best3: np.ndarray

    @classmethod
    def of(cls, laws: np.ndarray) -> "_Words":
        """Returns the scores of laws of the next token: float64 [rows, num_tokens]."""
        words = np.sort(laws[:, _FIRST_WORD:], axis=1)[:, ::-1]
        return cls(
            special.entr(laws).sum(axis=1),
            words.sum(axis=1),
            words[:, 0],
            words[:, :3].sum(axis=1),
        )


def best_possible(
    language: synthetic_sentences.SyntheticLanguage,
    vocabulary: vocabulary_lib.Vocabulary,
    max_words: int,
) -> collections.OrderedDict[str, float]:
    """Computes scores that no model can beat on average on a language's sentences.

    Args:
        language: The language.
        vocabulary: Gives its words their token ids.
        max_words: The first words of a sentence that are used, at least 1; a longer
            sentence has no end.

    Returns:
        The expectations over the law of sentences, named as by
        `evaluation.metrics_of_sums`. They are bounds if `language_law.LanguageLaw` has
        no law of token ids.

    Raises:
        ValueError: If `max_words` is below 1.
    """
    checks.integer(least=1, max_words=max_words)
    tokens = np.array(vocabulary.encode(language.words))
    anything = np.bincount(tokens, language.frequencies, vocabulary.num_tokens)
    without_context = _Words.of(anything[np.newaxis])
    with_context = _after_words_with_followers(language, tokens, anything)
    going_on = 1 - language.end_probability
    end = float(special.entr([going_on, 1 - going_on]).sum())
    sums = collections.OrderedDict.fromkeys(evaluation.SUMS, 0.0)
    # The law of the word at a position, among words with followers.
    first = language.frequencies[: language.options.context_words]
    before = np.zeros_like(first)
    reached = 1.0
    for place in range(max_words):
        # A sentence does not end before its first word.
        goes_on = 1.0 if place == 0 else going_on
        rest = 1 - before.sum()
        expected = {
            field.name: float(
                before @ getattr(with_context, field.name)
                + rest * getattr(without_context, field.name)[0]
            )
            for field in dataclasses.fields(_Words)
        }
        loss = goes_on * expected["entropy"] + (end if place else 0.0)
        sums["loss"] += reached * loss
        sums["places"] += reached
        sums["word_places"] += reached * goes_on * expected["known"]
        for name, hits in (("one_suggestion", "best"), ("three_suggestions", "best3")):
            sums[name] += reached * goes_on * expected[hits]
        reached *= goes_on
        before = _next_law(language, before)
    # The end after the last used word costs nothing: it is the only possible target.
    sums["places"] += reached * language.end_probability
    # A model may score special tokens low, as they do not count for the accuracy.
    sums["top1_in_vocabulary"] = sums["one_suggestion"]
    return evaluation.metrics_of_sums(sums)


def at_places(
    law: language_law.LanguageLaw, places: windows.Windows, max_words: int
) -> collections.OrderedDict[str, float]:
    """Returns the scores of the best possible predictor at positions of a text.

    On average, over texts of the language, no model reaches more.

    Args:
        law: The law of the text.
        places: The evaluated places.
        max_words: The first words of a sentence that are used; a longer sentence has no
            end, so where there is a place after that many, it is one.

    Returns:
        See `evaluation.metrics_of_sums`.
    """
    is_end = places.columns == max_words
    uncertain = windows.Windows(places.tokens[~is_end], places.num_tokens)
    sums = ngrams.sums(law, uncertain)
    sums["places"] += np.count_nonzero(is_end)
    # A model may score special tokens low, as they do not count for the accuracy.
    sums["top1_in_vocabulary"] = sums["one_suggestion"]
    return evaluation.metrics_of_sums(sums)


def _after_words_with_followers(language, tokens, anything) -> _Words:
    strength = language.options.context_strength
    weights = strength * language.follower_weights
    parts = []
    for first in range(0, len(language.followers), _ROWS_AT_A_TIME):
        followers = language.followers[first : first + _ROWS_AT_A_TIME]
        laws = np.tile((1 - strength) * anything, (len(followers), 1))
        rows = np.arange(len(followers))[:, np.newaxis]
        np.add.at(laws, (rows, tokens[followers]), weights)
        parts.append(_Words.of(laws))
    return _Words(
        *(
            np.concatenate([getattr(part, field.name) for part in parts])
            for field in dataclasses.fields(_Words)
        )
    )


def _next_law(
    language: synthetic_sentences.SyntheticLanguage, law: np.ndarray
) -> np.ndarray:
    """Returns the next word's law from the last one's, of words with followers."""
    strength, size = language.options.context_strength, len(law)
    mass = (law[:, np.newaxis] * language.follower_weights).ravel()
    chosen = np.bincount(language.followers.ravel(), mass, size)[:size]
    first = language.frequencies[:size]
    return (1 - strength * law.sum()) * first + strength * chosen
