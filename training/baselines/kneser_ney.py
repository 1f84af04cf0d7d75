"""The modified Kneser-Ney trigram: the best model made of counts alone.

Each count c is reduced by a discount: D1 if it is 1, D2 if it is 2 and D3 if it is
more. The mass freed in a context h goes to tokens by the shorter context's
probabilities:

    P(t | h) = (c(h t) - D(c(h t))) / c(h) + free(h) * P(t | h without its first token)

Shorter contexts count not a token's occurrences but the number of different tokens
before it (Kneser and Ney 1995): a word that only ever follows one other word has a
count of 1. The form and the discounts are those of Chen and Goodman, "An empirical
study of smoothing techniques for language modeling" (1998), without tuned parameters.
N-grams that begin a sentence have nothing before them and keep their own counts, as in
KenLM (Heafield et al. 2013). Below them all tokens are equally likely.
"""

import dataclasses
from collections.abc import Iterable
from typing import Self

import numpy as np

from federated_hh.populations import vocabulary
from training.baselines import ngrams
from training.models import metric_names

# Discounts for too few counts, as in KenLM.
_USUAL_DISCOUNTS = (0.5, 1.0, 1.5)
# Tokens that never follow anything.
_NEVER_FOLLOW = [vocabulary.PAD, vocabulary.BOS]
_NEVER = 1e-30


@dataclasses.dataclass(frozen=True)
class Discounted(ngrams.OnTop):
    """An n-gram model with discounted counts, which leave mass for unseen tokens.

    Attributes:
        discounts: float64 [4]: discounts of counts of 0, 1, 2, and more.
        free: float64 [distinct contexts]: the share of each that it leaves to `lower`.
    """

    discounts: np.ndarray
    free: np.ndarray

    @classmethod
    def of(cls, order: int, lower: ngrams.Model, counts: ngrams.Counts) -> Self:
        """Returns the model with the discounts of its counts.

        Args:
            order: N, at least 2.
            lower: The model of order n - 1.
            counts: Those that are discounted; none is 0.
        """
        discounts = discounts_of(counts.counts)
        taken = discounts[np.minimum(counts.counts, 3)]
        firsts = np.searchsorted(counts.keys, counts.contexts * counts.num_tokens)
        free = np.add.reduceat(taken, firsts) if len(firsts) else taken
        return cls(order, lower, counts, discounts, free / counts.totals)

    def probability(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """See `ngrams.Model.probability`."""
        totals = self.counts.total(contexts)
        counts = self.counts.count(contexts, tokens)
        left = counts - self.discounts[np.minimum(counts, 3)]
        free = ngrams.values_at(self.counts.contexts, self.free, contexts)
        free = np.where(totals > 0, free, 1.0)
        lower = self.lower.probability(self.shorter(contexts), tokens)
        return left / np.maximum(totals, 1) + free * lower


def discounts_of(counts: np.ndarray) -> np.ndarray:
    """Returns the discounts of counts of 0, 1, 2, and more: float64 [4].

    They are estimated from how many n-grams were seen once, twice, three and four
    times, by the equation of Chen and Goodman's section 4; or, where too few were seen
    for that to be above 0, the usual ones. None is more than its count.

    Args:
        counts: Integers [n].
    """
    once, twice, thrice, four = (np.count_nonzero(counts == c) for c in (1, 2, 3, 4))
    if min(once, twice, thrice) > 0:
        share = once / (once + 2 * twice)
        found = (
            1 - 2 * share * twice / once,
            2 - 3 * share * thrice / twice,
            3 - 4 * share * four / thrice,
        )
        if min(found) > 0:
            return np.array([0.0, *found])
    return np.array([0.0, *_USUAL_DISCOUNTS])


def trigram(bigrams: ngrams.Counts, trigrams: ngrams.Counts) -> Discounted:
    """Returns the trigram of a text.

    Args:
        bigrams: Counts of its bigrams.
        trigrams: Counts of its trigrams; those of a sentence's first word have
            padding in front.
    """
    size = bigrams.num_tokens
    begins = trigrams.keys // size**2 == vocabulary.PAD
    whole = ngrams.Counts.of_keys(
        size, trigrams.keys[~begins], trigrams.counts[~begins]
    )
    # The number of different tokens before each pair of tokens.
    pairs, different = np.unique(whole.keys % size**2, return_counts=True)
    is_first = bigrams.keys // size == vocabulary.BOS
    keys = np.concatenate([bigrams.keys[is_first], pairs])
    counts = np.concatenate([bigrams.counts[is_first], different])
    order = np.argsort(keys)
    of_pairs = ngrams.Counts.of_keys(size, keys[order], counts[order])
    lower = Discounted.of(2, _unigram(bigrams), of_pairs)
    return Discounted.of(3, lower, whole)


def _unigram(bigrams: ngrams.Counts) -> ngrams.Unigram:
    """Returns the unigram by the number of different tokens before each token."""
    size = bigrams.num_tokens
    counts = np.bincount(bigrams.keys % size, minlength=size)
    discounts = discounts_of(counts)
    taken = discounts[np.minimum(counts, 3)]
    total = counts.sum()
    free = taken.sum() / total if total else 1.0
    found = (counts - taken) / max(total, 1) + free / (size - len(_NEVER_FOLLOW))
    found[_NEVER_FOLLOW] = _NEVER
    return ngrams.Unigram(found)


def by_name(interpolated: Iterable[ngrams.Model]) -> dict[str, ngrams.Model]:
    """Returns the n-gram models of a text, by their names in reports.

    Args:
        interpolated: Its unigram, bigram and trigram, from `ngrams.interpolated`.
    """
    unigram, bigram, trigram_of_text = interpolated
    assert isinstance(bigram, ngrams.Interpolated)
    assert isinstance(trigram_of_text, ngrams.Interpolated)
    kneser_ney = trigram(bigram.counts, trigram_of_text.counts)
    models = (unigram, bigram, trigram_of_text, kneser_ney)
    return dict(zip(metric_names.NGRAMS, models, strict=True))
