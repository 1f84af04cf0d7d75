"""Tests of synthetic sentences against their law.

Seeds are fixed. Chi-square tests pool what is expected fewer than 5 times, and fail
with p < 1e-7; means have to be within six standard errors (false alarms 2e-9).
"""

import pathlib

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.files import verified_files
from federated_hh.populations.columns import client_text
from federated_hh.populations.languages import languages, sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.synthetic import synthetic_sentences as lib

_KEYBOARD = sentence_tokenizers.get_sentence_tokenizer("keyboard")


def small_language(seed=3, num_words=40, **options):
    values = dict(
        mean_sentence_words=5.0, context_strength=0.6, num_followers=3, context_words=12
    )
    frequencies = 1 / np.arange(1, num_words + 1)
    words = [f"w{i}" for i in range(num_words)]
    options = population_options.LanguageOptions(**values | options)
    return lib.SyntheticLanguage(words, frequencies, options, seed)


def transition_matrix(language):
    """The law of the next word in each row, as the module's documentation says it."""
    size, strength = len(language.words), language.options.context_strength
    law = np.tile(language.frequencies, (size, 1))
    for word, followers in enumerate(language.followers):
        law[word] *= 1 - strength
        for rank, follower in enumerate(followers, 1):
            total = sum(1 / j for j in range(1, len(followers) + 1))
            law[word, follower] += strength / rank / total
    return law


def chi_square(counts, law):
    """Returns the statistic and the degrees of freedom of one row of counts."""
    expected = law * counts.sum()
    order = np.argsort(-expected)
    expected, counts = expected[order], counts[order]
    full = int(np.sum(expected >= 5))
    if full < len(expected):  # the rest becomes one cell, with the smallest full one
        cut = max(full - 1, 0)
        expected = np.append(expected[:cut], expected[cut:].sum())
        counts = np.append(counts[:cut], counts[cut:].sum())
    statistic = np.sum((counts - expected) ** 2 / expected)
    return statistic, len(expected) - 1


class SyntheticLanguageTest(parameterized.TestCase):
    @parameterized.parameters(0.0, 0.6, 1.0)
    def test_words_follow_each_other_by_the_law(self, strength):
        language = small_language(context_strength=strength)
        random = np.random.default_rng(1)
        lengths = language.draw_lengths(random, 60_000)
        words = language.draw_sentences(random, lengths)
        size = len(language.words)
        starts = np.cumsum(lengths) - lengths
        firsts = np.bincount(words[starts], minlength=size)
        is_next = np.ones(len(words), bool)
        is_next[starts] = False
        pairs = np.zeros((size, size), np.int64)
        places = np.flatnonzero(is_next)
        np.add.at(pairs, (words[places - 1], words[places]), 1)
        law = transition_matrix(language)
        np.testing.assert_array_equal(pairs[law == 0], 0)
        found = [chi_square(firsts, language.frequencies)]
        found += [chi_square(*row) for row in zip(pairs, law, strict=True)]
        statistic, freedom = np.sum(found, axis=0)
        self.assertGreater(freedom, 300)
        self.assertGreater(stats.chi2.sf(statistic, freedom), 1e-7)
        # The test sees a law that is a little wrong.
        if strength == 0.6:
            wrong = transition_matrix(small_language(context_strength=0.55))
            wrong = [chi_square(*row) for row in zip(pairs, wrong, strict=True)]
            self.assertLess(stats.chi2.sf(*np.sum(wrong, axis=0)), 1e-7)

    def test_lengths_are_geometric(self):
        language = small_language(mean_sentence_words=3.5)
        lengths = language.draw_lengths(np.random.default_rng(2), 50_000)
        counts = np.bincount(lengths, minlength=200)[1:]
        law = stats.geom.pmf(np.arange(1, len(counts) + 1), 1 / 3.5)
        statistic, freedom = chi_square(counts, law)
        self.assertGreater(stats.chi2.sf(statistic, freedom), 1e-7)
        one = small_language(mean_sentence_words=1.0)
        np.testing.assert_array_equal(one.draw_lengths(np.random.default_rng(0), 9), 1)
        self.assertEmpty(language.draw_sentences(np.random.default_rng(0), lengths[:0]))

    def test_followers_are_drawn_from_the_frequencies(self):
        language = small_language(
            num_words=2000, context_words=2000, num_followers=20, seed=5
        )
        counts = np.bincount(language.followers.ravel(), minlength=2000)
        statistic, freedom = chi_square(counts, language.frequencies)
        self.assertGreater(stats.chi2.sf(statistic, freedom), 1e-7)
        other = small_language(
            num_words=2000, context_words=2000, num_followers=20, seed=6
        )
        self.assertFalse(np.array_equal(language.followers, other.followers))

    def test_english(self):
        language = lib.SyntheticLanguage.of_words(
            population_options.LanguageOptions(), 0, _KEYBOARD
        )
        self.assertEqual(language.words[:3], ("the", "to", "and"))
        self.assertEqual(language.followers.shape, (1000, 4))
        expected = languages.words()
        ratio = language.frequencies[:500] / [expected[w] for w in language.words[:500]]
        np.testing.assert_allclose(ratio, ratio[0], rtol=1e-3)
        self.assertGreater(len(language.words), 300_000)
        text = " ".join(language.words[:2000]) + ". " + " ".join(language.words[2000:])
        self.assertEqual(
            _KEYBOARD.split(text), [[*language.words[:2000]], [*language.words[2000:]]]
        )

    @parameterized.parameters(
        (dict(mean_sentence_words=0.5), "mean_sentence_words=0.5: has to be"),
        (dict(context_strength=1.1), "context_strength=1.1: has to be"),
        (dict(context_strength=float("nan")), "context_strength=nan: has to be"),
        (dict(num_followers=0), "num_followers=0: has to be"),
        (dict(context_words=0), "context_words=0: has to be"),
        (dict(context_words=41), r"context_words is 41; it has to be in 1\.\.40"),
    )
    def test_bad_options(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            small_language(**options)


class BuildTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def _build(self, name, language=None, encode=None, **options):
        values = dict(num_clients=3000, mean_words_per_client=30.0, seed=1)
        language = language or small_language()
        (self.directory / name).mkdir()
        lib.build(
            self.directory / name,
            population_options.PopulationOptions(**values | options),
            language,
            encode or (lambda words: list(range(len(words)))),
            {},
        )
        return client_text.ClientText.open(self.directory / name)

    def test_the_mean_number_of_words_is_exact(self):
        text = self._build("a", num_clients=100_000)
        self.assertEqual(text.num_clients, 100_000)
        words = np.diff(text.sentence_splits[text.client_splits])
        error = np.std(words) / np.sqrt(len(words))
        self.assertLess(abs(np.mean(words) - 30.0), 6 * error)
        self.assertGreater(np.diff(text.client_splits).max(), 20)
        same = self._build("b", words_per_client_sigma=0.0, num_clients=10)
        np.testing.assert_array_equal(np.diff(same.client_splits), 6)
        self.assertEqual(same.client_ids.to_pylist()[-1], "9")

    def test_the_sentences_are_those_of_the_seed(self):
        first = self._build("a")
        again = self._build("b")
        self.assertEqual(first.fingerprint, again.fingerprint)
        other = self._build("c", seed=2)
        self.assertNotEqual(first.fingerprint, other.fingerprint)
        # Chunks of clients: their draws differ.
        half = len(first.tokens) // 2
        self.assertFalse(np.array_equal(first.tokens[:half], first.tokens[-half:]))
        # A vocabulary changes names, not words.
        named = self._build("d", encode=lambda words: [7 + i for i in range(40)])
        np.testing.assert_array_equal(named.tokens, first.tokens + 7)
        np.testing.assert_array_equal(named.sentence_splits, first.sentence_splits)

    def test_chunks(self):
        options = dict(
            num_clients=40_000, mean_words_per_client=50.0, words_per_client_sigma=0.0
        )
        text = self._build("a", **options)
        tokens = text.tokens[: 100 * 50]
        for first in (10_486, 20_972, 31_458):  # where a chunk begins
            start = int(text.sentence_splits[text.client_splits[first]])
            found = text.tokens[start : start + len(tokens)]
            self.assertFalse(np.array_equal(found, tokens))

    @parameterized.parameters(
        (
            dict(mean_words_per_client=5.0),
            "1 sentences per client; that has to be above",
        ),
        (
            dict(mean_words_per_client=7.0, words_per_client_sigma=0.0),
            "makes 1.4 sentences per client; that has to be a whole number",
        ),
        (
            dict(mean_words_per_client=2.0, words_per_client_sigma=0.0),
            "makes 0.4 sentences per client; that has to be a whole number from 1",
        ),
    )
    def test_too_few_words_for_sentences(self, options, regex):
        with self.assertRaisesRegex(verified_files.PopulationError, regex):
            self._build("a", **options)


if __name__ == "__main__":
    absltest.main()
