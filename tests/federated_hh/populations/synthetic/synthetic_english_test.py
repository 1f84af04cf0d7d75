"""Tests of the law of the synthetic population.

Statistics are compared with fixed seeds; each comparison with a chi-square or binomial
law has a false-alarm rate of 1e-7, so the file's is below 1e-5.
"""

import collections
import math
import re

import numpy as np
import wordfreq
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from federated_hh.files import freed_memory, verified_files
from federated_hh.populations.columns import client_words, column_writer
from federated_hh.populations.languages import languages, tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import kept_words, word_table
from federated_hh.populations.synthetic import (
    alias_table,
    common_law,
    pitman_yor,
    synthetic_english,
)

_FALSE_ALARM = 1e-7


def _chi_square_p(observed, probabilities):
    """Returns the p-value of a chi-square test; small cells go into the largest."""
    observed = np.asarray(observed, float)
    expected = np.asarray(probabilities, float) * observed.sum()
    cell = np.where(expected < 10, expected.argmax(), np.arange(len(expected)))
    observed, expected = np.bincount(cell, observed), np.bincount(cell, expected)
    observed, expected = observed[expected > 0], expected[expected > 0]
    statistic = ((observed - expected) ** 2 / expected).sum()
    return stats.chi2.sf(statistic, len(observed) - 1)


def _table(alphabet=tokenizers.TRIEHH_ALPHABET, known=frozenset(), refuse=False):
    return word_table.WordTable(alphabet, known, refuse)


class AliasTableTest(parameterized.TestCase):
    @settings(derandomize=True, deadline=None, max_examples=300)
    @given(st.lists(st.floats(0, 1e6), min_size=1, max_size=70).filter(any))
    def test_the_law_of_a_draw_is_the_weights(self, weights):
        table = alias_table.AliasTable(np.array(weights))
        got = table.probabilities()
        np.testing.assert_allclose(
            got[: len(weights)], np.array(weights) / math.fsum(weights), atol=1e-11
        )
        self.assertEqual(got[len(weights) :].sum(), 0)
        self.assertEqual(got.min() >= 0, True)

    def test_draws_have_that_law(self):
        weights = 1.0 / np.arange(1, 1001)
        table = alias_table.AliasTable(weights)
        draws = table.draw(np.random.default_rng(1), 1_000_000)
        observed = np.bincount(draws, minlength=1000)
        self.assertGreater(
            _chi_square_p(observed, weights / weights.sum()), _FALSE_ALARM
        )

    @parameterized.parameters([[]], [[0.0, 0.0]], [[1.0, -1.0]], [[np.nan, 1.0]])
    def test_bad_weights(self, weights):
        with self.assertRaises(ValueError):
            alias_table.AliasTable(np.array(weights))


class WordsPerClientTest(parameterized.TestCase):
    @parameterized.parameters(
        (20.0, 1.0), (1.01, 0.5), (2.5, 0.01), (500.0, 2.0), (10_000.0, 3.0)
    )
    def test_mean_and_law(self, mean, sigma):
        law = synthetic_english.WordsPerClient(mean, sigma)
        top = synthetic_english.MAX_WORDS_PER_CLIENT
        cumulative = np.array([law.probability_at_most(k) for k in range(top + 1)])
        mass = np.diff(cumulative)
        self.assertAlmostEqual(mass.sum(), 1.0)
        self.assertAlmostEqual(
            (mass * np.arange(1, top + 1)).sum(), mean, delta=1e-6 * mean
        )
        draws = law.draw(np.random.default_rng(2), 200_000)
        observed = np.bincount(draws, minlength=top + 1)[1:]
        self.assertGreater(_chi_square_p(observed, mass), _FALSE_ALARM)

    def test_law_by_the_formula(self):
        law = synthetic_english.WordsPerClient(20.0, 1.0)
        # P(T <= k) = Phi((ln k - mu) / sigma) at one k fixes mu, and so all others.
        mu = -stats.norm.ppf(law.probability_at_most(1))
        for k in (2, 10, 1000):
            self.assertAlmostEqual(
                law.probability_at_most(k), stats.norm.cdf(math.log(k) - mu)
            )

    def test_without_spread_everyone_types_the_mean(self):
        law = synthetic_english.WordsPerClient(7, 0.0)
        draws = law.draw(np.random.default_rng(0), 100)
        self.assertEqual(set(draws.tolist()), {7})
        self.assertEqual(law.probability_at_most(6), 0)
        self.assertEqual(law.probability_at_most(7), 1)


class WordListTest(absltest.TestCase):
    def test_numbers_are_no_words_of_english(self):
        listed = wordfreq.get_frequency_dict("en", "large")
        words = languages.words()
        left_out = listed.keys() - words.keys()
        self.assertContainsSubset(["00", "0000", "0,000", "0.0", "00th"], left_out)
        self.assertContainsSubset(["1", "mp3", "4th", "o'clock", "the"], words)
        digits = re.compile("[0-9]{2}|[0-9][.,]")
        self.assertEqual(left_out, {word for word in listed if digits.search(word)})
        self.assertEqual({w: listed[w] for w in words}, dict(words))
        self.assertEqual(list(words)[:3], ["the", "to", "and"])

    def test_lists_are_kept_until_data_are_prepared(self):
        wordfreq.get_frequency_dict("en", "large")
        words = languages.words()
        self.assertIs(languages.words(), words)
        freed_memory.forget()
        self.assertIsNot(languages.words(), words)
        self.assertEqual(languages.words(), words)
        # The package itself keeps nothing.
        for kept in (wordfreq.get_frequency_dict, wordfreq.get_frequency_list):
            self.assertEqual(kept.cache_info().currsize, 0)


class TrendsTest(parameterized.TestCase):
    def test_chances_are_the_mixture(self):
        weights = np.array([5.0, 3.0, 1.0, 1.0])
        trends = common_law.Trends(share=0.4, num_words=2, exponent=1.0, seed=3)
        excess = np.sort(trends.mix(weights) - 0.6 * weights / 10)
        # The first word in fashion has 2/3 of the share, the second 1/3.
        np.testing.assert_allclose(excess, [0, 0, 0.4 / 3, 0.8 / 3], atol=1e-15)

    def test_without_a_share_the_weights_stay_as_they_are(self):
        weights = np.array([5.0, 3.0])
        np.testing.assert_array_equal(common_law.Trends().mix(weights), weights)

    def test_all_words_are_in_fashion_where_there_are_fewer(self):
        trends = common_law.Trends(share=0.5, num_words=9)
        np.testing.assert_allclose(trends.mix(np.array([3.0, 1.0])), [0.625, 0.375])

    def test_every_word_can_be_the_first_in_fashion(self):
        first = [
            common_law.Trends(0.5, 1, 1.0, seed).mix(np.ones(4)).argmax()
            for seed in range(400)
        ]
        observed = np.bincount(first, minlength=4)
        self.assertGreater(_chi_square_p(observed, np.full(4, 0.25)), _FALSE_ALARM)


class SyntheticEnglishTest(parameterized.TestCase):
    def _build(self, tokenizer="triehh", table=None, threads=None, **options):
        options = population_options.PopulationOptions(**options)
        if isinstance(tokenizer, str):
            tokenizer = tokenizers.get_tokenizer(tokenizer)
        table = table or _table(tokenizer.alphabet)
        directory = self.create_tempdir().full_path + "/population"
        with column_writer.new_population(directory) as writer:
            metadata = synthetic_english.build(
                writer, options, tokenizer, table, threads=threads
            )
            writer.finish(metadata.pop("client_ids"), metadata)
        return client_words.ClientWords.open(directory)

    def test_words_have_their_real_frequencies(self):
        known = frozenset(["the", "and", "you"])
        table = _table(known=known)
        population = self._build(table=table, num_clients=50_000, seed=3)
        tokenizer = tokenizers.get_tokenizer("triehh")
        weights = collections.Counter()
        dropped = collections.Counter()
        for typed, frequency in languages.words().items():
            words = tokenizer.split(typed)
            if not words:
                dropped["tokenizer"] += frequency
            elif not set(words[0]) <= set(tokenizer.alphabet):
                dropped["out_of_alphabet"] += frequency
            elif words[0] in known:
                dropped["known"] += frequency
            else:
                weights[words[0]] += frequency
        words = population.words.to_pylist()
        self.assertEqual(set(words), set(weights))
        observed = np.bincount(
            population.word_ids, population.counts, minlength=len(words)
        )
        # Everything typed, kept or dropped for whatever reason, is one multinomial.
        total = sum(weights.values()) + sum(dropped.values())
        reasons = ["tokenizer", "out_of_alphabet", "known"]
        observed = np.append(
            observed, [population.metadata["dropped_words"][r] for r in reasons]
        )
        probabilities = [weights[w] for w in words] + [dropped[r] for r in reasons]
        p_value = _chi_square_p(observed, np.array(probabilities) / total)
        self.assertGreater(p_value, _FALSE_ALARM)

    def test_words_in_fashion_have_their_share(self):
        population = self._build(
            num_clients=20_000, seed=8, trending_share=0.4, trending_words=3
        )
        plain = self._build(num_clients=20_000, seed=8)
        shares = []
        for built in (population, plain):
            held = np.bincount(built.word_ids, built.counts, built.num_words)
            shares.append(
                dict(zip(built.words.to_pylist(), held / held.sum(), strict=True))
            )
        gained = collections.Counter(
            {word: share - 0.6 * shares[1][word] for word, share in shares[0].items()}
        )
        (_, most), (_, second), (_, third), (_, fourth) = gained.most_common(4)
        parts = np.arange(1, 4) ** -0.5
        expected = 0.4 * parts / parts.sum()
        # Shares of some 300,000 words: five standard deviations are below 0.005.
        np.testing.assert_allclose([most, second, third], expected, atol=5e-3)
        self.assertLess(fourth, 5e-3)

    def test_words_are_independent_of_the_client_and_its_length(self):
        # "the" among the words of a client of n kept words is binomial(n, p).
        population = self._build(num_clients=100_000, seed=4)
        self._check_canonical(population, 5_000)
        rows = np.repeat(
            np.arange(population.num_clients), np.diff(population.row_splits)
        )
        lengths = np.bincount(rows, population.counts).astype(int)
        the = population.words.to_pylist().index("the")
        is_the = population.word_ids[:] == the
        held = np.zeros(population.num_clients, int)
        held[rows[is_the]] = population.counts[is_the]
        p = held.sum() / lengths.sum()
        for low, high in ((1, 4), (5, 9), (10, 19), (20, 39)):
            chosen = (lengths >= low) & (lengths <= high)
            for count in (0, 1, 2):
                # Expected number of clients with that count, given all lengths.
                chance = stats.binom.pmf(count, lengths[chosen], p)
                deviation = (held[chosen] == count).sum() - chance.sum()
                spread = math.sqrt((chance * (1 - chance)).sum())
                # Normal to far below the bound: expected numbers are above 30 here.
                if chance.sum() > 30:
                    self.assertLess(abs(deviation), 5.6 * spread, (low, count))

    def test_number_of_kept_words_is_that_of_the_law_thinned(self):
        population = self._build(
            num_clients=100_000,
            seed=5,
            mean_words_per_client=4,
            words_per_client_sigma=0.7,
            empty_clients="keep",
        )
        law = synthetic_english.WordsPerClient(4, 0.7)
        kept = kept_words.KeptWords.of(
            tokenizers.get_tokenizer("triehh"), _table(), languages.words()
        )
        typing = synthetic_english.Typing(kept, common_law.CommonLaw())
        top = 200
        mass = np.diff([law.probability_at_most(k) for k in range(top + 1)])
        kept_law = sum(
            share * stats.binom.pmf(np.arange(top + 1), typed, typing.keep_probability)
            for typed, share in enumerate(mass, 1)
        )
        rows = np.repeat(np.arange(100_000), np.diff(population.row_splits))
        kept = np.bincount(rows, population.counts, minlength=100_000).astype(int)
        observed = np.bincount(kept, minlength=top + 1)
        self.assertGreater(_chi_square_p(observed, kept_law), _FALSE_ALARM)
        self.assertEqual(population.metadata["clients_without_words"], observed[0])

    def test_ties_are_in_order_of_typing_not_of_rank(self):
        # Of two words with one occurrence each, either is the favorite with chance 1/2.
        population = self._build(
            tokenizer="whitespace",
            num_clients=40_000,
            seed=6,
            mean_words_per_client=2,
            words_per_client_sigma=0,
        )
        splits = population.row_splits[:-1]
        two = np.diff(population.row_splits) == 2
        ordered = (population.favorites == population.word_ids[splits])[two]
        p_value = stats.binomtest(int(ordered.sum()), len(ordered)).pvalue
        self.assertGreater(p_value, _FALSE_ALARM)

    def _check_canonical(self, population, num_clients):
        for i in range(num_clients):
            words, counts = zip(*population.client(i), strict=True)
            self.assertLen(set(words), len(words))
            self.assertEqual(list(counts), sorted(counts, reverse=True))

    def test_seed_decides_whatever_the_number_of_threads(self):
        one = self._build(threads=1, num_clients=30_000, seed=8)
        three = self._build(threads=3, num_clients=30_000, seed=8)
        other = self._build(num_clients=1_000, seed=9)
        self.assertEqual(one.fingerprint, three.fingerprint)
        self.assertNotEqual(one.word_ids[:100].tolist(), other.word_ids[:100].tolist())

    def test_empty_clients_are_dropped_and_counted(self):
        kept = self._build(num_clients=20_001, empty_clients="keep")
        dropped = self._build(num_clients=20_001)
        without = dropped.metadata["clients_without_words"]
        self.assertGreater(without, 0)
        self.assertEqual(kept.num_clients, 20_001)
        self.assertEqual(dropped.num_clients, 20_001 - without)
        self.assertTrue((np.diff(dropped.row_splits) > 0).all())
        np.testing.assert_array_equal(kept.entries, dropped.entries)
        # Chunks of 8,192 clients have random numbers of their own.
        splits = kept.row_splits
        starts = [kept.word_ids[splits[i] :][:50].tolist() for i in (0, 8192, 16384)]
        self.assertLen({tuple(words) for words in starts}, 3)

    def test_a_tokenizer_that_cuts_a_word_into_several(self):
        def letters(text):
            return [c for c in text if c != "e"]

        tokenizer = tokenizers.Tokenizer("letters", letters, "abcdfgh")
        population = self._build(tokenizer=tokenizer, num_clients=20_000, seed=10)
        weights = collections.Counter()
        for typed, frequency in languages.words().items():
            for letter in tokenizer.words(typed):
                weights[letter] += frequency
        observed = collections.Counter(
            dict(
                zip(
                    population.words.to_pylist(),
                    np.bincount(population.word_ids, population.counts),
                    strict=True,
                )
            )
        )
        self.assertEqual(set(observed), set("abcdfgh"))
        # Letters of a word come together, which widens the spread of a count over the
        # multinomial one, by less than a factor of 2: so 12 spreads are beyond 1e-7.
        total, typed = sum(weights.values()), sum(observed.values())
        for letter, weight in weights.items():
            p = weight / total
            spread = math.sqrt(typed * p * (1 - p))
            self.assertLess(abs(observed[letter] - typed * p), 12 * spread)

    def test_words_of_a_client_with_habits(self):
        # Of two words typed, the second is the first again with chance (1 - d)/(1 + a),
        # and else drawn from the common law, which may give the same.
        path = self.create_tempfile(content="b\t3\na\t6\nthe end\t1\n").full_path
        population = self._build(
            tokenizer="whitespace",
            num_clients=60_000,
            mean_words_per_client=2,
            words_per_client_sigma=0,
            client_law="pitman_yor",
            client_discount=0.4,
            client_concentration=1.5,
            common_words=path,
        )
        words = population.words.to_pylist()
        self.assertEqual(words, ["a", "b", "end", "the"])
        again = 0.6 / 2.5
        law = {"a": 0.6, "b": 0.3, "the end": 0.1}
        chances = collections.Counter()
        for first, p in law.items():
            for second, q in law.items():
                held = collections.Counter(f"{first} {second}".split())
                chance = p * ((1 - again) * q + again * (first == second))
                (favorite, _), *_ = held.most_common(1)
                row = sorted(
                    held.items(), key=lambda item: (-item[1], item[0] != favorite, item)
                )
                chances[tuple(row)] += chance
        seen = collections.Counter(
            tuple(population.client(i)) for i in range(population.num_clients)
        )
        self.assertLessEqual(set(seen), set(chances))
        p_value = _chi_square_p([seen[key] for key in chances], list(chances.values()))
        self.assertGreater(p_value, _FALSE_ALARM)

    def test_numbers_of_words_from_a_file(self):
        path = self.create_tempfile(content="1\n7\n7\n300\n").full_path
        population = self._build(
            tokenizer="whitespace",
            table=_table(tokenizers.get_tokenizer("whitespace").alphabet),
            num_clients=20_000,
            words_per_client=path,
            common_words=self.create_tempfile(content="a\t3\nb\t1\n").full_path,
        )
        rows = np.repeat(np.arange(20_000), np.diff(population.row_splits))
        words = np.bincount(rows, population.counts).astype(int)
        values, times = np.unique(words, return_counts=True)
        self.assertEqual(values.tolist(), [1, 7, 300])
        self.assertGreater(_chi_square_p(times, [0.25, 0.5, 0.25]), _FALSE_ALARM)
        for content, message in (
            ("3\n0\n", "2: '0' is not a number of words; it has to be in 1..100000"),
            ("1.5\n", "1: '1.5' is not a number"),
            ("", "has no numbers"),
        ):
            path = self.create_tempfile(content=content).full_path
            with self.assertRaisesRegex(verified_files.PopulationError, message):
                self._build(words_per_client=path)

    def test_common_law_by_rank(self):
        # Words without counts: their order is that of the law's masses.
        words = [f"{a}{b}{c}" for a in "abcdef" for b in "abcdef" for c in "abcdef"]
        path = self.create_tempfile(content="\n".join(["x", *words])).full_path
        population = self._build(
            num_clients=50_000,
            common_words=path,
            common_law="pitman_yor",
            common_discount=0.2,
            common_concentration=40.0,
        )
        self.assertEqual(population.words.to_pylist(), words)
        self.assertEqual(population.metadata["clients_without_words"], 0)
        masses, beyond = pitman_yor.expected_masses(0.2, 40.0, len(words))
        self.assertEqual(population.metadata["common_law_beyond_list"], beyond)
        observed = np.bincount(population.word_ids, population.counts)
        p_value = _chi_square_p(observed, masses / masses.sum())
        self.assertGreater(p_value, _FALSE_ALARM)

    @parameterized.parameters(
        ("a\t1\na\t1\n", {}, "2: the word 'a' comes twice"),
        ("a\t2\nb\n", {}, "2: the word has no count"),
        ("a\t0\n", {}, "1: the word has no count"),
        ("a\n\n", {"common_law": "pitman_yor"}, "2: there is no word"),
        ("", {"common_law": "pitman_yor"}, "has no words"),
    )
    def test_bad_lists(self, content, options, message):
        path = self.create_tempfile(content=content).full_path
        with self.assertRaisesRegex(verified_files.PopulationError, message):
            self._build(common_words=path, **options)

    def test_nothing_left(self):
        with self.assertRaisesRegex(
            verified_files.PopulationError, "no word of the word"
        ):
            self._build(table=_table("☃"), num_clients=10)

    def test_refused_words_are_named(self):
        table = _table("abcdefghijklmnopqrstuvwxyz", refuse=True)
        with self.assertRaisesRegex(
            verified_files.PopulationError,
            r"outside the alphabet.*\(entry \d+ of the word list\)",
        ):
            self._build(table=table, num_clients=10)


if __name__ == "__main__":
    absltest.main()
