"""Tests of n-grams against a dense model, counts by hand, and a language's entropy."""

import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations import vocabulary
from federated_hh.populations.options import population_options
from federated_hh.populations.synthetic import synthetic_sentences
from tests.training import ngram_cases
from tests.training.ngram_cases import places_of, random_sentences
from training.baselines import best_possible, ngrams

_NUM_TOKENS = ngram_cases.NUM_TOKENS
_PAD, _BOS, _EOS = ngram_cases.PAD, ngram_cases.BOS, ngram_cases.EOS


class Dense:
    """Every probability of a small vocabulary, by the definition."""

    def __init__(self, sentences, weights):
        shape = (_NUM_TOKENS,) * 3
        three, two, one = np.zeros(shape), np.zeros(shape[1:]), np.zeros(shape[2:])
        for a, b, c in places_of(sentences).tokens:
            three[a, b, c] += 1
            two[b, c] += 1
            one[c] += 1
        one += 1
        one[_PAD] = 1e-30
        laws = [one / one.sum()]
        for counts, of_counts in zip((two, three), weights, strict=True):
            totals = counts.sum(axis=-1, keepdims=True)
            w = np.zeros_like(totals)
            seen = totals > 0
            # Half an octave each: 1, then from the square root of 2 on, and so on.
            w[seen] = [
                of_counts[1 + sum(t >= 2 ** (k / 2) for k in range(1, 31))]
                for t in totals[seen]
            ]
            shares = np.divide(counts, totals, out=np.zeros_like(counts), where=seen)
            laws.append(w * shares + (1 - w) * laws[-1])
        self.laws = [np.broadcast_to(law, shape) for law in (laws[0], laws[1], laws[2])]

    def metrics(self, order, sentences):
        """Returns the metrics place by place."""
        loss = words = best = best1 = best3 = number = 0
        for a, b, c in places_of(sentences).tokens:
            law = self.laws[order - 1][a, b]
            number += 1
            loss -= math.log(law[c])
            if c < 4:
                continue
            words += 1
            ranked = sorted(range(_NUM_TOKENS), key=lambda t: -law[t])
            of_words = [t for t in ranked if t >= 4]
            best += ranked[0] == c
            best1 += of_words[0] == c
            best3 += c in of_words[:3]
        return [loss / number, best / words, best1 / words, best3 / words]


class NgramsTest(parameterized.TestCase):
    @parameterized.parameters(range(4))
    def test_against_a_dense_model(self, seed):
        sentences, judges = random_sentences(seed, 60), random_sentences(seed + 9, 40)
        models = list(
            ngrams.interpolated(places_of(sentences), places_of(sentences[::7]))
        )
        dense = Dense(sentences, [model.weights for model in models[1:]])
        every = np.arange(_NUM_TOKENS)
        for model, law in zip(models, dense.laws, strict=True):
            for a in range(_NUM_TOKENS):
                for b in range(_NUM_TOKENS):
                    context = [0, b, a * _NUM_TOKENS + b][model.order - 1]
                    found = model.probability(np.full(_NUM_TOKENS, context), every)
                    np.testing.assert_allclose(found, law[a, b], rtol=1e-12)
                    self.assertAlmostEqual(found.sum(), 1.0, places=12)
            found = ngrams.metrics(model, places_of(judges))
            expected = dense.metrics(model.order, judges)
            np.testing.assert_allclose(list(found.values()), expected, rtol=1e-12)

    def test_counted_by_hand(self):
        # Of "5 6", "5 7", "5 6 7": 5 begins all, 6 comes after it twice.
        text = places_of([[5, 6], [5, 7], [5, 6, 7]])
        counts = ngrams.Counts.of(text, 2)
        contexts, tokens = (
            np.array([_BOS, 5, 5, 6, 6, 7, 4]),
            np.array([5, 6, 7, 7, _EOS, _EOS, 4]),
        )
        self.assertEqual(counts.count(contexts, tokens).tolist(), [3, 2, 1, 1, 1, 2, 0])
        self.assertEqual(counts.total(contexts).tolist(), [3, 3, 3, 2, 2, 2, 0])
        three = ngrams.Counts.of(text, 3)
        after = np.array([_BOS * _NUM_TOKENS + 5, 5 * _NUM_TOKENS + 6])
        self.assertEqual(three.total(after).tolist(), [3, 2])
        self.assertEqual(three.count(after, np.array([6, 7])).tolist(), [2, 1])
        rest = counts.without(ngrams.Counts.of(places_of([[5, 7]]), 2))
        self.assertEqual(rest.count(contexts, tokens).tolist(), [2, 2, 0, 1, 1, 1, 0])
        self.assertEqual(rest.total(contexts).tolist(), [2, 2, 2, 2, 2, 1, 0])
        # The unigram: 10 targets, one more for each of the 8 tokens but padding.
        unigram = next(ngrams.interpolated(text, text))
        found = unigram.probability(np.zeros(3, int), np.array([5, _EOS, 4]))
        np.testing.assert_allclose(found, [4 / 18, 4 / 18, 1 / 18])

    @parameterized.parameters(0, 1)
    def test_weights_are_the_likeliest(self, seed):
        sentences = random_sentences(seed, 400)
        held_back = sentences[::5]
        rest = [s for i, s in enumerate(sentences) if i % 5]
        weights = [
            model.weights
            for model in list(
                ngrams.interpolated(places_of(sentences), places_of(held_back))
            )[1:]
        ]

        def loss(changed):
            # Laplace's rule: a success and a failure more in every bucket.
            more = sum(
                math.log(w) + math.log(1 - w) for w in changed[1][1:] if 0 < w < 1
            )
            dense = Dense(rest, changed)
            windows = places_of(held_back).tokens
            logs = np.log(dense.laws[2][tuple(windows.T)])
            return -(logs.sum() + more)

        least = loss(weights)
        self.assertEqual(weights[1][0], 0)
        used = np.flatnonzero((weights[1] > 0) & (weights[1] != 0.5))
        self.assertGreater(len(used), 5)
        for bucket in used:
            for step in (-0.1, 0.1):
                other = weights[1].copy()
                other[bucket] = np.clip(other[bucket] + step, 1e-3, 1 - 1e-3)
                self.assertLess(least, loss([weights[0], other]) + 1e-3)

    def test_few_words_and_nothing_in_common(self):
        # Two words: there is no third suggestion. The judges' contexts are new.
        text = places_of([[4, 4]], num_tokens=6)
        for model in ngrams.interpolated(text, text):
            found = ngrams.metrics(model, places_of([[5, 5]], num_tokens=6))
            self.assertEqual(found["one_suggestion"], 0)
            self.assertEqual(found["three_suggestions"], 1)
            self.assertTrue(math.isfinite(found["loss"]))

    def test_a_language_of_bigrams_is_told_as_well_as_can_be(self):
        options = population_options.LanguageOptions(
            mean_sentence_words=6, context_words=40, num_followers=3
        )
        frequencies = 1 / np.arange(1, 61)
        language = synthetic_sentences.SyntheticLanguage(
            [f"w{i}" for i in range(60)], frequencies, options, seed=5
        )
        words = vocabulary.Vocabulary(language.words[:50])
        tokens = np.array(words.encode(language.words))
        # A sentence as long as its places: nothing is cut.
        best = best_possible.best_possible(language, words, 1000)

        def draw(seed, number):
            random = np.random.default_rng(seed)
            lengths = language.draw_lengths(random, number)
            drawn = tokens[language.draw_sentences(random, lengths)]
            return [p.tolist() for p in np.split(drawn, np.cumsum(lengths)[:-1])]

        losses, hits = {}, {}
        text = draw(1, 30_000)
        counted, held_back, judges = (
            places_of(sentences, words.num_tokens)
            for sentences in (text, text[::10], draw(3, 4_000))
        )
        for model in ngrams.interpolated(counted, held_back):
            found = ngrams.metrics(model, judges)
            losses[model.order] = found["loss"]
            hits[model.order] = found["three_suggestions"]
        # 28,000 places, a standard deviation of about 1.7: a standard error of 0.01.
        entropy = best["loss"]
        self.assertAlmostEqual(losses[2], entropy, delta=0.05)
        self.assertGreater(losses[1], entropy + 0.5)
        expected = best["three_suggestions"]
        self.assertAlmostEqual(hits[2], expected, delta=0.02)


if __name__ == "__main__":
    absltest.main()
