"""Interpolated n-grams counted on text, the baseline that a model has to beat.

The probability of a token t after a context h of n - 1 tokens is

    P(t | h) = w * count(h t) / count(h) + (1 - w) * P(t | h without its first token),

where w depends on the count of h, and is 0 for an unseen h (Jelinek and Mercer 1980).
Below the bigram are token frequencies with one count added to each. The weights are
those that best predict some clients' text from the others' counts (deleted
interpolation); the final counts are of all clients.

The counts are exact and have no noise: no guarantee covers anything made here.
"""

import abc
import collections
import dataclasses
from collections.abc import Iterator
from typing import Protocol, Self

import numpy as np

from federated_hh.populations import vocabulary
from federated_hh.populations.columns import raw_columns
from training.models import evaluation
from training.text import windows as windows_lib

_SPECIAL = len(vocabulary.SPECIAL_TOKENS)
_NUM_SUGGESTIONS = 3
# Half an octave of the context's count each; the last one is for all larger counts.
_NUM_BUCKETS = 32
# Of the interval that has a weight.
_HALVINGS = 24
# The count of padding, which never follows anything.
_NEVER = 1e-30


class Model(Protocol):
    """A model that gives tokens a probability, given the tokens before."""

    def probability(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Returns the probabilities of tokens: float64 [n].

        Args:
            contexts: int64 [n]; see `windows.Windows.contexts`.
            tokens: Integers [n].
        """

    def best(self, contexts: np.ndarray) -> np.ndarray:
        """Returns the likeliest token, and the three likeliest words: int64 [n, 4].

        Of equally likely ones, the lower id is first.

        Args:
            contexts: int64 [n], ascending, distinct.
        """

    @property
    def order(self) -> int:
        """N: how many tokens there are in an n-gram."""


@dataclasses.dataclass(frozen=True)
class Unigram:
    """Words by frequency alone.

    Attributes:
        probabilities: float64 [num_tokens].
    """

    probabilities: np.ndarray
    order = 1

    @classmethod
    def of_counts(cls, counts: np.ndarray) -> Self:
        """Returns the frequencies of counted tokens, one count added to each.

        Args:
            counts: Integers [num_tokens].
        """
        more = counts + 1.0
        more[vocabulary.PAD] = _NEVER
        return cls(more / more.sum())

    def probability(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """See `Model.probability`."""
        del contexts
        return self.probabilities[tokens]

    def best(self, contexts: np.ndarray) -> np.ndarray:
        """See `Model.best`."""
        words = np.argsort(-self.probabilities[_SPECIAL:], kind="stable") + _SPECIAL
        found = np.full(1 + _NUM_SUGGESTIONS, -1)
        found[0] = np.argmax(self.probabilities)
        found[1 : 1 + len(words)] = words[:_NUM_SUGGESTIONS]
        return np.tile(found, (len(contexts), 1))


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of n-grams and their contexts.

    Attributes:
        num_tokens: Size of the vocabulary with its special tokens.
        keys: int64 [distinct n-grams], ascending: context * num_tokens + token.
        counts: int64, of each.
        contexts: int64 [distinct contexts], ascending.
        totals: int64, of each.
    """

    num_tokens: int
    keys: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray

    @classmethod
    def of(cls, places: windows_lib.Windows, order: int) -> Self:
        """Counts the n-grams at positions."""
        every = places.contexts(order) * places.num_tokens + places.targets
        return cls.of_keys(places.num_tokens, *np.unique(every, return_counts=True))

    @classmethod
    def of_keys(cls, num_tokens: int, keys: np.ndarray, counts: np.ndarray) -> Self:
        """Returns the counts of n-grams; see the attributes."""
        contexts, firsts = np.unique(keys // num_tokens, return_index=True)
        totals = np.add.reduceat(counts, firsts) if len(firsts) else counts[:0]
        return cls(num_tokens, keys, counts, contexts, totals)

    def without(self, others: "Counts") -> "Counts":
        """Returns the counts less some others."""
        counts, totals = self.counts.copy(), self.totals.copy()
        counts[np.searchsorted(self.keys, others.keys)] -= others.counts
        totals[np.searchsorted(self.contexts, others.contexts)] -= others.totals
        return dataclasses.replace(self, counts=counts, totals=totals)

    def count(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Returns the counts of n-grams: int64 [n]."""
        return values_at(self.keys, self.counts, contexts * self.num_tokens + tokens)

    def total(self, contexts: np.ndarray) -> np.ndarray:
        """Returns the counts of contexts: int64 [n]."""
        return values_at(self.contexts, self.totals, contexts)


@dataclasses.dataclass(frozen=True)
class OnTop(abc.ABC):
    """An n-gram model on top of one that looks at a token less.

    Tokens that were never seen after a context keep the order that the lower model has
    them in, and those that were seen do not fall behind them for it: so the likeliest
    are among the seen ones and the lower model's likeliest.

    Attributes:
        order: N, at least 2.
        lower: The model of order n - 1.
        counts: The counts of the n-grams.
    """

    order: int
    lower: Model
    counts: Counts

    @abc.abstractmethod
    def probability(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """See `Model.probability`."""

    def shorter(self, contexts: np.ndarray) -> np.ndarray:
        """Returns contexts without their first token."""
        return contexts % self.counts.num_tokens ** (self.order - 2)

    def best(self, contexts: np.ndarray) -> np.ndarray:
        """See `Model.best`."""
        size = self.counts.num_tokens
        shorter, inverse = np.unique(self.shorter(contexts), return_inverse=True)
        # Of tokens that were never seen here, those of the lower model are in front.
        lower = self.lower.best(shorter)[inverse]
        numbers = np.arange(len(contexts))[:, np.newaxis]
        firsts, lasts = (
            np.searchsorted(self.counts.keys, (contexts + more) * size)
            for more in (0, 1)
        )
        seen = raw_columns.ranges(firsts, lasts - firsts)
        of_context = np.repeat(numbers[:, 0], lasts - firsts)
        rivals = np.unique(
            np.concatenate(
                [
                    of_context * size + self.counts.keys[seen] % size,
                    (numbers * size + lower)[lower >= 0],
                ]
            )
        )
        rows, tokens = rivals // size, rivals % size
        scores = self.probability(contexts[rows], tokens)
        starts = np.searchsorted(rows, numbers[:, 0])
        found = np.full((len(contexts), 1 + _NUM_SUGGESTIONS), -1)
        found[:, 0] = tokens[_first_of_largest(scores, starts)]
        scores[tokens < _SPECIAL] = -1
        for column in range(1, 1 + _NUM_SUGGESTIONS):
            largest = _first_of_largest(scores, starts)
            found[:, column] = np.where(scores[largest] < 0, -1, tokens[largest])
            scores[largest] = -1
        return found


@dataclasses.dataclass(frozen=True)
class Interpolated(OnTop):
    """An n-gram model that weights counts by their context's count.

    Attributes:
        weights: float64 [buckets], in [0, 1): w by the bucket of the context's count.
    """

    weights: np.ndarray

    @classmethod
    def fitted(
        cls, order: int, lower: Model, counts: Counts, places: windows_lib.Windows
    ) -> Self:
        """Returns the model with the weights that predict the targets best.

        Each weight is that of the largest likelihood, where expectation maximization
        would end, with Laplace's rule: as if the counts had been right once more, and
        the lower model once more. So it is never 1, and 1/2 in a bucket without
        positions.

        Args:
            order: N, at least 2.
            lower: The model of order n - 1.
            counts: The counts of the n-grams.
            places: The places of other clients than were counted.
        """
        unfitted = cls(order, lower, counts, np.zeros(_NUM_BUCKETS))
        share, below, buckets = unfitted._parts(places.contexts(order), places.targets)
        gain = share - below
        least, most = np.zeros(_NUM_BUCKETS), np.ones(_NUM_BUCKETS)
        for _ in range(_HALVINGS):
            weights = (least + most) / 2
            slopes = gain / (below + weights[buckets] * gain)
            slope = np.bincount(buckets, slopes, minlength=_NUM_BUCKETS)
            # The likelihood's logarithm is concave in each weight.
            is_above = slope + 1 / weights - 1 / (1 - weights) < 0
            least, most = (
                np.where(is_above, least, weights),
                np.where(is_above, weights, most),
            )
        weights = (least + most) / 2
        weights[0] = 0  # of contexts that were never seen
        return dataclasses.replace(unfitted, weights=weights)

    def _parts(
        self, contexts: np.ndarray, tokens: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the share of the counts, the lower model's, and the bucket."""
        totals = self.counts.total(contexts)
        share = self.counts.count(contexts, tokens) / np.maximum(totals, 1)
        lower = self.lower.probability(self.shorter(contexts), tokens)
        return share, lower, _buckets(totals)

    def probability(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """See `Model.probability`."""
        share, lower, buckets = self._parts(contexts, tokens)
        weights = self.weights[buckets]
        return weights * share + (1 - weights) * lower


def metrics(
    model: Model, places: windows_lib.Windows
) -> collections.OrderedDict[str, float]:
    """Returns a model's metrics at positions, as of models of training.

    Args:
        model: The model.
        places: The places of the held-out clients.

    Returns:
        See `evaluation.metrics_of_sums`.
    """
    return evaluation.metrics_of_sums(sums(model, places))


def sums(model: Model, places: windows_lib.Windows) -> dict[str, float]:
    """Returns sums over positions, by the names of `evaluation.SUMS`.

    Args:
        model: The model.
        places: The places of the held-out clients.
    """
    contexts, targets = places.contexts(model.order), places.targets
    distinct, inverse = np.unique(contexts, return_inverse=True)
    hits = model.best(distinct)[inverse] == targets[:, np.newaxis]
    is_word = targets >= _SPECIAL
    return {
        "loss": -float(np.log(model.probability(contexts, targets)).sum()),
        "places": len(targets),
        "word_places": np.count_nonzero(is_word),
        "top1_in_vocabulary": np.count_nonzero(hits[:, 0] & is_word),
        "one_suggestion": np.count_nonzero(hits[:, 1]),
        "three_suggestions": np.count_nonzero(hits[:, 1:]),
    }


def interpolated(
    counted: windows_lib.Windows, held_back: windows_lib.Windows
) -> Iterator[Model]:
    """Yields the unigram, the bigram and the trigram of a text.

    Args:
        counted: All places that are counted.
        held_back: Positions of some of the clients, which are also in `counted`: the
            weights are fitted to them with the other clients' counts.
    """
    sizes = np.bincount(counted.targets, minlength=counted.num_tokens)
    held_sizes = np.bincount(held_back.targets, minlength=counted.num_tokens)
    # Counts of all clients, and of those not held back.
    model: Model = Unigram.of_counts(sizes)
    rest: Model = Unigram.of_counts(sizes - held_sizes)
    yield model
    for order in range(2, windows_lib.WIDTH + 1):
        counts = Counts.of(counted, order)
        of_rest = counts.without(Counts.of(held_back, order))
        fitted = Interpolated.fitted(order, rest, of_rest, held_back)
        model, rest = Interpolated(order, model, counts, fitted.weights), fitted
        yield model


def values_at(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the values of keys, 0 of those that are not there."""
    if not len(keys):
        return np.zeros(len(wanted), values.dtype)
    found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[found] == wanted, values[found], 0)


def _buckets(totals: np.ndarray) -> np.ndarray:
    """Returns the bucket of each count: 0 of 0, 1 of 1, then two an octave."""
    halves = np.floor(2 * np.log2(np.maximum(totals, 1))).astype(np.int64)
    return np.where(totals > 0, np.minimum(1 + halves, _NUM_BUCKETS - 1), 0)


def _first_of_largest(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns the position of the first largest value of each group.

    Args:
        values: float64 [n], the groups one after the other.
        starts: int64 [groups]: where each begins; none is empty.
    """
    largest = np.maximum.reduceat(values, starts)
    sizes = np.diff(np.append(starts, len(values)))
    candidates = np.flatnonzero(values == np.repeat(largest, sizes))
    return candidates[np.searchsorted(candidates, starts)]
