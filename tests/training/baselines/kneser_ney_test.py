"""Tests of the Kneser-Ney trigram against its definition, and against the other one."""

import collections
import itertools

import numpy as np
from absl.testing import absltest, parameterized

from tests.training import ngram_cases
from training.baselines import kneser_ney, ngrams
from training.models import metric_names

_NUM_TOKENS = ngram_cases.NUM_TOKENS
_PAD, _OOV, _BOS, _EOS = range(4)
_TOKENS = (_OOV, _EOS, *range(4, _NUM_TOKENS))


def by_name(sentences, num_tokens=_NUM_TOKENS):
    """Returns the n-grams of sentences of token ids."""
    places = ngram_cases.places_of(sentences, num_tokens)
    return kneser_ney.by_name(ngrams.interpolated(places, places))


def discounts(counts):
    """Returns what is taken off counts, by Chen and Goodman's equation (26)."""
    n = collections.Counter(counts)
    found = {0: 0.0, 1: 0.5, 2: 1.0, 3: 1.5}
    if n[1] and n[2] and n[3]:
        y = n[1] / (n[1] + 2 * n[2])
        wanted = {c: c - (c + 1) * y * n[c + 1] / n[c] for c in (1, 2, 3)}
        if all(0 < wanted[c] <= c for c in wanted):
            found.update(wanted)
    return lambda count: found[min(count, 3)]


class Written:
    """The model as it is defined, with sets of what was seen instead of arrays."""

    def __init__(self, sentences):
        self.trigrams, self.bigrams = collections.Counter(), collections.Counter()
        before_pair = collections.defaultdict(set)
        before_token = collections.defaultdict(set)
        for sentence in sentences:
            tokens = [_BOS, *sentence, _EOS]
            for first, second in itertools.pairwise(tokens):
                before_token[second].add(first)
                self.bigrams[first, second] += first == _BOS
            for some in zip(tokens, tokens[1:], tokens[2:], strict=False):
                self.trigrams[some] += 1
                before_pair[some[1:]].add(some[0])
        self.bigrams = +self.bigrams
        self.bigrams.update({pair: len(b) for pair, b in before_pair.items()})
        self.tokens = {token: len(before) for token, before in before_token.items()}

    def probability(self, *tokens):
        """Returns how likely the last token is after the others."""
        if not tokens[:-1]:
            counts, lower = self.tokens, 1 / len(_TOKENS)
        else:
            counts = self.bigrams if len(tokens) == 2 else self.trigrams
            lower = self.probability(*tokens[1:])
        discount = discounts(counts.values())
        after = {
            token: counts.get((*tokens[:-1], token) if len(tokens) > 1 else token, 0)
            for token in _TOKENS
        }
        total = sum(after.values())
        if not total:
            return lower
        free = sum(map(discount, after.values())) / total
        count = after[tokens[-1]]
        return (count - discount(count)) / total + free * lower


class KneserNeyTest(parameterized.TestCase):
    # Of few sentences, some counts are too few to tell the discounts; of many, none.
    @parameterized.parameters((0, 12), (1, 60), (2, 2000))
    def test_against_the_definition(self, seed, number):
        sentences = ngram_cases.random_sentences(seed, number)
        model = by_name(sentences)[metric_names.KNESER_NEY]
        written = Written(sentences)
        for before, last in [(_PAD, _BOS), *np.ndindex(_NUM_TOKENS, _NUM_TOKENS)]:
            if last in (_PAD, _EOS) or (before in (_PAD, _EOS) and last != _BOS):
                continue
            context = before * _NUM_TOKENS + last
            found = model.probability(np.full(len(_TOKENS), context), np.array(_TOKENS))
            self.assertAlmostEqual(found.sum(), 1.0, places=12)
            never = model.probability(np.full(2, context), np.array([_PAD, _BOS]))
            self.assertLess(never.max(), 1e-20)
            known = (last,) if last == _BOS else (before, last)
            for token, probability in zip(_TOKENS, found, strict=True):
                self.assertAlmostEqual(
                    probability, written.probability(*known, token), places=12
                )

    def test_discounts(self):
        # Seen once 40, twice 20, three times 10, four times 5: y is 1/2.
        counts = np.repeat([1, 2, 3, 4, 90], [40, 20, 10, 5, 7])
        np.testing.assert_allclose(
            kneser_ney.discounts_of(counts), [0, 0.5, 2 - 3 / 4, 3 - 4 / 4]
        )
        for too_few in (
            [],
            [1, 1, 2, 4],  # none three times
            np.repeat([1, 2, 3], [9, 2, 9]),  # so many three times: below 0
            np.repeat([1, 2, 3, 4], [6, 3, 4, 1]),  # 0: nothing for what is new
        ):
            np.testing.assert_array_equal(
                kneser_ney.discounts_of(np.array(too_few, int)), [0, 0.5, 1, 1.5]
            )

    def test_a_word_that_follows_one_other_is_left_to_it(self):
        # Kneser and Ney's example: Francisco is frequent, and only after San.
        san, francisco, glass, one, other = range(4, 9)
        sentences = [[san, francisco]] * 50
        sentences += [[one, glass], [other, glass], [glass], [one, other], [other]]
        models = by_name(sentences)
        law = {
            name: models[name].probability(
                np.full(2, one * _NUM_TOKENS + glass), np.array([francisco, glass])
            )
            for name in (metric_names.TRIGRAM, metric_names.KNESER_NEY)
        }
        of_francisco, of_glass = law[metric_names.TRIGRAM]
        self.assertGreater(of_francisco, of_glass)
        of_francisco, of_glass = law[metric_names.KNESER_NEY]
        self.assertGreater(of_glass, 1.5 * of_francisco)

    @parameterized.parameters(range(3))
    def test_the_likeliest(self, seed):
        sentences = ngram_cases.random_sentences(seed, 40)
        model = by_name(sentences)[metric_names.KNESER_NEY]
        contexts = np.arange(_NUM_TOKENS**2)
        for context, best in zip(contexts, model.best(contexts), strict=True):
            law = model.probability(
                np.full(_NUM_TOKENS, context), np.arange(_NUM_TOKENS)
            )
            ranked = sorted(range(_NUM_TOKENS), key=lambda token: -law[token])
            words = [token for token in ranked if token >= 4]
            self.assertEqual(best.tolist(), [ranked[0], *words[:3]])

    def test_no_text_and_few_words(self):
        model = by_name([], num_tokens=6)[metric_names.KNESER_NEY]
        found = model.probability(np.array([_BOS] * 4), np.array([_OOV, _EOS, 4, 5]))
        np.testing.assert_allclose(found, 0.25)
        model = by_name([[4, 4]], num_tokens=6)[metric_names.KNESER_NEY]
        judges = ngram_cases.places_of([[5, 5]], num_tokens=6)
        self.assertEqual(ngrams.metrics(model, judges)["three_suggestions"], 1)

    def test_fewer_nats_than_the_interpolated_one_on_text_like_language(self):
        # Followers of a word are many and rare: what discounts are for.
        random = np.random.default_rng(0)
        ranks = 1 / np.arange(1, 301)
        law = random.permuted(np.tile(ranks, (300, 1)), axis=1) ** 1.5 * ranks**0.5
        law /= law.sum(axis=1, keepdims=True)

        def draw(number):
            words = np.zeros((number, 8), int)
            for column in range(1, 8):
                cumulated = law[words[:, column - 1]].cumsum(axis=1)
                words[:, column] = (cumulated < random.random((number, 1))).sum(axis=1)
            return [row.clip(0, 299) + 4 for row in words]

        text, judging = draw(1500), draw(500)
        counted, held_back, judges = (
            ngram_cases.places_of([s.tolist() for s in some], 304)
            for some in (text, text[::10], judging)
        )
        models = kneser_ney.by_name(ngrams.interpolated(counted, held_back))
        losses = {name: ngrams.metrics(m, judges)["loss"] for name, m in models.items()}
        self.assertLess(
            losses[metric_names.KNESER_NEY], losses[metric_names.TRIGRAM] - 0.05
        )


if __name__ == "__main__":
    absltest.main()
