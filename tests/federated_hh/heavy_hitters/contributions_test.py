"""Tests of what devices report on: against plain Python, and the samplers' laws."""

import collections
import itertools
import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions, trie
from federated_hh.populations.columns import client_words
from federated_hh.randomness import streams

_GREEDY = contributions.ItemSampler.GREEDY
_RANDOM = contributions.ItemSampler.RANDOM
_ABC = alphabet_lib.Alphabet("abc")
_LETTERS = alphabet_lib.Alphabet("abcdefgh")
_LENGTH = 5

_CLIENTS = st.lists(
    st.dictionaries(
        st.text(alphabet="abc", min_size=1, max_size=6), st.integers(1, 4), max_size=12
    ),
    min_size=1,
    max_size=12,
)


def reference_items(words, candidates, known=frozenset()):
    """Returns how often a device has each candidate, in plain Python.

    Args:
        words: The device's words with counts.
        candidates: The candidates' spellings; a completed word ends in "$".
        known: Words that are not reported on.
    """
    items = collections.Counter()
    for word, count in words.items():
        if word in known:
            continue
        for length in range(1, len(word) + 2):
            prefix = (word + "$")[:length]
            if prefix in candidates:
                items[prefix] += count
    return items


class ContributionsTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = self.enterContext(tempfile.TemporaryDirectory())

    def mapped(self, clients):
        parent = tempfile.mkdtemp(dir=self.scratch)
        population = client_words.ClientWords.from_rows(
            os.path.join(parent, "population"),
            [(str(i), words.items()) for i, words in enumerate(clients)],
        )
        return contributions.MappedItems(population)


class Level:
    """A trie grown by choosing candidates, and what its candidates are called."""

    def __init__(self, alphabet, choices=()):
        self.alphabet = alphabet
        self.trie = trie.PrefixTrie(alphabet)
        for choice in choices:
            kept = np.array([c for c in choice if c < self.trie.num_candidates], int)
            self.trie = self.trie.extend(kept, np.zeros_like(kept))
        symbols = alphabet.characters + "$"
        self.names = [
            "".join(symbols[c] for c in codes) + symbol
            for codes in self.trie.frontier()
            for symbol in symbols
        ]

    def candidates_of(self, mapped):
        codes = self.alphabet.encode(mapped.population.words, _LENGTH)
        return self.trie.candidates_of(codes).astype(np.int32)

    def items(self, mapped, sampler, clients, bound, seed, known=()):
        candidates = self.candidates_of(mapped)
        words = np.array(mapped.population.words.to_pylist())
        candidates[np.isin(words, list(known))] = -1
        items = mapped.items_of_block(
            sampler, np.array(clients, np.int64), candidates, bound, seed
        )
        return [self.names[item] for item in items.numpy()]


class EqualityTest(ContributionsTestCase):
    @settings(derandomize=True, max_examples=30, deadline=None)
    @given(
        _CLIENTS,
        st.lists(st.sets(st.integers(0, 15), max_size=8), max_size=3),
        st.integers(1, 6),
        st.sampled_from([_GREEDY, _RANDOM]),
        st.sets(st.text(alphabet="abc", min_size=1, max_size=4), max_size=20),
        st.booleans(),
    )
    def test_equals_plain_python(self, clients, choices, bound, sampler, known, wide):
        level = Level(_ABC, choices)
        # A count that needs entries of eight bytes, of a client that is not asked.
        mapped = self.mapped([*clients, {"c": 2**31 - 1}] if wide else clients)
        self.assertEqual(mapped.population.entries.itemsize, 8 if wide else 4)
        total = collections.Counter()
        for number, words in enumerate(clients):
            held = reference_items(words, set(level.names), known)
            seed = streams.stateless_seed(number, "device")
            items = level.items(mapped, sampler, [number], bound, seed, known)
            self.assertLen(items, min(bound, len(held)))
            self.assertLen(set(items), len(items))
            self.assertLessEqual(set(items), set(held))
            if sampler is _GREEDY:
                self.assertEqual(
                    sorted((held[item] for item in items), reverse=True),
                    sorted(held.values(), reverse=True)[:bound],
                )
            total.update(held.keys())
        everyone = list(range(len(clients)))
        seed = streams.stateless_seed(0, "block")
        items = level.items(mapped, sampler, everyone, 100, seed, known)
        self.assertEqual(collections.Counter(items), total)
        items = level.items(mapped, sampler, everyone, bound, seed, known)
        of_each = [len(reference_items(c, set(level.names), known)) for c in clients]
        self.assertLen(items, sum(min(bound, held) for held in of_each))
        self.assertLessEqual(collections.Counter(items), total)

    @parameterized.parameters(_GREEDY, _RANDOM)
    def test_a_known_word_does_not_part_those_around_it(self, sampler):
        mapped = self.mapped([{"aaa": 2, "aab": 9, "aac": 2, "aba": 3}])
        level = Level(_ABC, [[0, 1, 2]])  # candidates of two symbols
        seed = streams.stateless_seed(1)
        items = level.items(mapped, sampler, [0], 9, seed, ["aab"])
        self.assertCountEqual(items, ["aa", "ab"])
        most_often = level.items(mapped, _GREEDY, [0], 1, seed, ["aab"])
        self.assertEqual(most_often, ["aa"])

    def test_a_block_is_any_clients_in_any_order(self):
        clients = [{"a": 1}, {}, {"b": 1}, {"c": 1}, {}]
        mapped = self.mapped(clients)
        level = Level(_ABC)
        seed = streams.stateless_seed(0, "block")
        for chosen, expected in (
            ([3, 0], ["c", "a"]),
            ([1, 4], []),
            ([], []),
            ([4, 2, 1], ["b"]),
        ):
            items = level.items(mapped, _GREEDY, chosen, 1, seed)
            self.assertEqual(items, expected)

    @parameterized.parameters(([],), ([{}, {}, {}],))
    def test_population_without_words(self, clients):
        mapped = self.mapped(clients)
        items = Level(_ABC).items(
            mapped,
            _RANDOM,
            range(len(clients)),
            3,
            streams.stateless_seed(0, "block"),
        )
        self.assertEqual(items, [])

    def test_many_clients_with_counts_of_31_bits(self):
        rng = np.random.default_rng(5)
        words = ["".join(w) for w in itertools.product("abc", repeat=4)]
        counts = rng.integers(1, 2**31, 81).tolist()
        clients = [
            {words[i]: counts[i] for i in rng.permutation(81)[:n].tolist()}
            for n in rng.integers(0, 6, 10_000)
        ]
        mapped = self.mapped(clients)
        level = Level(_ABC, [range(16), range(64), range(256)])
        seed = streams.stateless_seed(0, "block")
        for number in [0, 4095, 4096, 4097, 8191, 8192, 9999]:
            held = reference_items(clients[number], set(level.names))
            for bound in range(1, 4):
                items = level.items(mapped, _GREEDY, [number], bound, seed)
                expected = [item for item, _ in held.most_common(bound)]
                self.assertCountEqual(items, expected)
        items = level.items(mapped, _GREEDY, range(10_000), 100, seed)
        expected = collections.Counter(w for client in clients for w in client)
        self.assertEqual(collections.Counter(items), expected)


class GreedyTest(ContributionsTestCase):
    def test_counts_of_a_shared_prefix_add_up(self):
        # No word with a is as frequent as b, but all of them together are.
        mapped = self.mapped([{"ab": 2, "aca": 2, "a": 1, "bc": 4, "c": 3}])
        seed = streams.stateless_seed(1, "test")
        items = Level(_ABC).items(mapped, _GREEDY, [0], 1, seed)
        self.assertEqual(items, ["a"])
        items = Level(_ABC).items(mapped, _GREEDY, [0], 2, seed)
        self.assertCountEqual(items, ["a", "b"])
        # One level on they are three items again, and b is the most frequent one.
        below = Level(_ABC, [range(3)])
        items = below.items(mapped, _GREEDY, [0], 1, seed)
        self.assertEqual(items, ["bc"])

    def test_words_that_are_no_candidates_do_not_count(self):
        # By spelling, ba stands between the two; b was not learned.
        mapped = self.mapped([{"ab": 1, "ba": 100, "ca": 2, "cb": 1}])
        level = Level(_ABC, [[0, 2]])
        seed = streams.stateless_seed(1, "test")
        self.assertEqual(level.items(mapped, _GREEDY, [0], 1, seed), ["ca"])

    def test_large_counts_are_told_apart(self):
        clients = [{"a": 10**9, "b": 10**9 + 1, "c": 10**9 - 1}] * 64
        items = Level(_ABC).items(
            self.mapped(clients), _GREEDY, range(64), 1, streams.stateless_seed(1, "t")
        )
        self.assertEqual(collections.Counter(items), {"b": 64})

    def test_ties_are_uniform(self):
        # 30,000 devices that all have a, and one of the equal b, c and d.
        # Chi-square with 2 degrees of freedom, false-alarm rate 1e-6; the same with
        # room for two of three.
        n = 30_000
        words = {"a": 5, "b": 3, "c": 2, "ca": 1, "d": 3, "e": 1, "f": 1}
        mapped = self.mapped([words] * n)
        for bound in (2, 3):
            items = Level(_LETTERS).items(
                mapped, _GREEDY, range(n), bound, streams.stateless_seed(bound, "t")
            )
            counts = collections.Counter(items)
            self.assertEqual(set(counts), set("abcd"))
            self.assertEqual(counts["a"], n)
            chosen = bound - 1
            statistic = sum((counts[i] - n * chosen / 3) ** 2 for i in "bcd")
            # The variance of one count is n p (1 - p), and counts add up to a sum.
            p = chosen / 3
            statistic *= (3 - 1) / 3 / (n * p * (1 - p))
            self.assertGreater(stats.chi2.sf(statistic, 2), 1e-6)


class RandomTest(ContributionsTestCase):
    @parameterized.parameters((5, 2), (3, 2), (6, 1), (5, 4))
    def test_subsets_are_uniform_whatever_the_counts(self, held, bound):
        # One device draws 4,000 times; chi-square over all subsets of its items,
        # false-alarm rate 1e-6.
        n = 4_000
        words = {c: 10**i for i, c in enumerate("abcdefgh"[:held])}
        mapped = self.mapped([words])
        candidates = Level(_LETTERS).candidates_of(mapped)
        one = tf.zeros([1], tf.int64)

        @tf.function
        def draw(all_seeds):
            return tf.map_fn(
                lambda seed: tf.ensure_shape(
                    mapped.items_of_block(_RANDOM, one, candidates, bound, seed),
                    [bound],
                ),
                all_seeds,
                fn_output_signature=tf.int32,
            )

        random = np.random.default_rng(held * 10 + bound)
        subsets = draw(random.integers(-(2**31), 2**31, (n, 2)).astype(np.int32))
        counts = collections.Counter(
            tuple(sorted(row)) for row in subsets.numpy().tolist()
        )
        everything = list(itertools.combinations(range(held), bound))
        self.assertLessEqual(set(counts), set(everything))
        observed = [counts[subset] for subset in everything]
        self.assertGreater(stats.chisquare(observed).pvalue, 1e-6)

    def test_devices_of_a_block_draw_on_their_own(self):
        # 20,000 devices with 5 items and 20,000 with 8, of which they choose 2. If
        # devices shared draws the counts would vary far more. For devices with m
        # items the counts have (m - 1) degrees of freedom; false-alarm rate 1e-6.
        n = 20_000
        five = {c: i + 1 for i, c in enumerate("abcde")}
        eight = {c + "a": 1 for c in "abcdefgh"}
        level = Level(_LETTERS, [range(8)])
        mapped = self.mapped([five, eight] * n)
        items = level.items(
            mapped, _RANDOM, range(2 * n), 2, streams.stateless_seed(1, "block")
        )
        counts = collections.Counter(items)
        self.assertEqual(counts.total(), 4 * n)
        for names in ([c + "$" for c in "abcde"], [c + "a" for c in "abcdefgh"]):
            m = len(names)
            p = 2 / m
            statistic = sum((counts[name] - n * p) ** 2 for name in names)
            statistic *= (m - 1) / m / (n * p * (1 - p))
            self.assertGreater(stats.chi2.sf(statistic, m - 1), 1e-6)
            self.assertGreater(stats.chi2.cdf(statistic, m - 1), 1e-6)

    def test_the_same_seed_gives_the_same_items(self):
        mapped = self.mapped([{c: 1 for c in "abcdefgh"}] * 50)
        draws = [
            Level(_LETTERS).items(
                mapped, _RANDOM, range(50), 3, streams.stateless_seed(number, "t")
            )
            for number in (1, 1, 2)
        ]
        self.assertEqual(draws[0], draws[1])
        self.assertNotEqual(draws[0], draws[2])


if __name__ == "__main__":
    absltest.main()
