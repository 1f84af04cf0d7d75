"""Tests of TrieHH against plain Python, exact laws and the paper's example."""

import collections
import dataclasses
import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import selection as selection_lib
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.populations.columns import client_words
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import steps
from federated_hh.runtime import runtime

_MOST_FREQUENT = selection_lib.WordSelection.MOST_FREQUENT
_BY_FREQUENCY = selection_lib.WordSelection.BY_FREQUENCY
_ABC = alphabet_lib.Alphabet("abc")

# Figure 1 of Zhu et al. 2020: 20 devices.
_FIGURE_1 = ["star"] * 3 + ["sun"] * 4 + ["moon"] * 4
_FIGURE_1 += ["apple", "bird", "cat", "dog", "egg", "fish", "goat", "hat", "ice"]


def reference_round(words, cohort, learned, level, threshold):
    """Algorithm 2 in plain Python.

    Args:
        words: Each client's word, or None.
        cohort: The clients that take part.
        learned: The prefixes learned so far; a completed word ends in "$".
        level: The length of the prefixes to vote for.
        threshold: Votes that a prefix needs.

    Returns:
        The votes by prefix, and the prefixes learned with those of this level.
    """
    candidates = collections.Counter()
    for client in cohort:
        if words[client] is None:
            continue
        sequence = words[client] + "$"
        if len(sequence) >= level and (level == 1 or sequence[: level - 1] in learned):
            candidates[sequence[:level]] += 1
    kept = {p for p, votes in candidates.items() if votes >= threshold}
    return candidates, learned | kept


class TrieHHTestCase(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())
        cls.scratch = cls.enterClassContext(tempfile.TemporaryDirectory())

    def population(self, clients):
        """Writes clients given as {word: count}."""
        parent = tempfile.mkdtemp(dir=self.scratch)
        return client_words.ClientWords.from_rows(
            os.path.join(parent, "population"),
            [(str(i), words.items()) for i, words in enumerate(clients)],
        )

    def algorithm(self, population, alphabet=_ABC, **overrides):
        options = {
            "cohort_size": population.num_clients,
            "threshold": 1,
            "max_length": 4,
            "word_selection": _MOST_FREQUENT,
            "num_blocks": 3,
        }
        options.update(overrides)
        parameters = triehh_privacy.TrieHHParameters(
            population_size=population.num_clients,
            cohort_size=options.pop("cohort_size"),
            threshold=options.pop("threshold"),
            max_length=options.pop("max_length"),
        )
        plan = triehh.plan_of(parameters, options.pop("word_selection"))
        return triehh.TrieHH(population, plan, alphabet, **options)


def steps_of(algorithm, key=1):
    noise_key = noise_keys.NoiseKey(key, is_secret=False)
    return steps.Steps(algorithm, seed=0, noise_key=noise_key)


def votes_of(algorithm, cohort=None, key=1, repeat=0, rounds=1):
    """Returns the votes of a round, of a cohort or of the sampler's."""
    by_hand = steps_of(algorithm, key)
    place = by_hand.begin(repeat)
    for _ in range(rounds):
        query = algorithm.next_query(place.state)
        drawn = by_hand.draw(place)
        votes = by_hand.ask(place, query, drawn.cohort if cohort is None else cohort)
        before, place = place, by_hand.update(place, query, drawn, votes).progress
    return before, votes


def learned_prefixes(trie):
    symbols = trie.alphabet.characters + "$"
    return {
        "".join(symbols[c] for c in codes)
        for level in trie.levels
        for codes in level.codes
    }


def votes_by_prefix(trie, votes):
    symbols = trie.alphabet.characters + "$"
    prefixes = [
        "".join(symbols[c] for c in codes) + symbol
        for codes in trie.frontier()
        for symbol in symbols
    ]
    return {p: v for p, v in zip(prefixes, votes.tolist(), strict=True) if v}


_CLIENTS = st.lists(
    st.dictionaries(
        st.text(alphabet="abc", min_size=1, max_size=6), st.integers(1, 5), max_size=4
    ),
    min_size=2,
    max_size=30,
).filter(lambda clients: any(clients))


class EqualityTest(TrieHHTestCase):
    @settings(derandomize=True, max_examples=20, deadline=None)
    @given(_CLIENTS, st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**6))
    def test_equals_plain_python_and_one_client_blocks(
        self, clients, threshold, max_length, seed
    ):
        population = self.population(clients)
        n = population.num_clients
        size = (n + 1) // 2
        options = {"threshold": threshold, "max_length": max_length}
        options |= {"cohort_size": size}
        algorithm = self.algorithm(population, num_blocks=4, **options)
        one_by_one = self.algorithm(population, num_blocks=n, **options)
        words = [max(c, key=c.get) if c else None for c in clients]
        by_hand = steps_of(algorithm, seed)
        place, learned = by_hand.begin(), set()
        while (query := algorithm.next_query(place.state)) is not None:
            drawn = by_hand.draw(place)
            expected, learned = reference_round(
                words, drawn.cohort, learned, place.rounds + 1, threshold
            )
            votes = by_hand.ask(place, query, drawn.cohort)
            self.assertEqual(votes_by_prefix(place.state.trie, votes), dict(expected))
            again = one_by_one.next_query(place.state)
            np.testing.assert_array_equal(
                by_hand.ask(place, again, drawn.cohort), votes
            )
            place = by_hand.update(place, query, drawn, votes).progress
            self.assertEqual(learned_prefixes(place.state.trie), learned)

    @settings(derandomize=True, max_examples=10, deadline=None)
    @given(_CLIENTS, st.integers(0, 10**6))
    def test_random_words_do_not_depend_on_the_blocks(self, clients, seed):
        population = self.population(clients)
        algorithms = [
            self.algorithm(
                population, word_selection=_BY_FREQUENCY, num_blocks=num_blocks
            )
            for num_blocks in (1, 3, population.num_clients)
        ]
        votes = [votes_of(algorithm, key=seed)[1] for algorithm in algorithms]
        np.testing.assert_array_equal(votes[0], votes[1])
        np.testing.assert_array_equal(votes[0], votes[2])
        self.assertEqual(votes[0].sum(), sum(1 for c in clients if c))


class SelectionTest(TrieHHTestCase):
    def test_most_frequent_word_and_the_first_of_equals(self):
        population = self.population([{"a": 1, "b": 3, "c": 3}, {"c": 1, "a": 1}])
        _, votes = votes_of(self.algorithm(population))
        np.testing.assert_array_equal(votes, [0, 1, 1, 0])

    @parameterized.parameters(1, 2**28)  # entries of four and of eight bytes
    def test_by_frequency_follows_the_local_frequencies(self, times):
        # 30,000 clients that hold a, b and c in the ratio 1, 2 and 5; chi-square with
        # a false-alarm rate of 1e-6, for two rounds.
        n = 30_000
        words = {"a": times, "c": 5 * times, "b": 2 * times}
        population = self.population([words] * n)
        self.assertEqual(population.entries.itemsize, 4 if times == 1 else 8)
        algorithm = self.algorithm(population, word_selection=_BY_FREQUENCY)
        votes = votes_of(algorithm)[1][:3]
        expected = n * np.array([1, 2, 5]) / 8
        self.assertGreater(stats.chisquare(votes, expected).pvalue, 1e-6)
        other = votes_of(algorithm, repeat=1)[1][:3]
        self.assertGreater(stats.chisquare(other, expected).pvalue, 1e-6)
        self.assertFalse(np.array_equal(votes, other))

    def test_clients_without_words_draw_none(self):
        for clients in ([{}, {"a": 1}, {}, {"b": 1}, {}], [{}, {}]):
            population = self.population(clients)
            words = selection_lib.MappedPopulation(population).select(
                _BY_FREQUENCY,
                np.arange(len(clients))[::-1].astype(np.int64),
                np.arange(len(clients), dtype=np.uint64),
            )
            expected = [-1, 1, -1, 0, -1] if len(clients) == 5 else [-1, -1]
            self.assertEqual(words.numpy().tolist(), expected)

    def test_words_are_drawn_anew_each_round(self):
        # Every client has aa, ab, ba and bb. A client that drew once would vote in
        # round 2 as in round 1; drawing anew, the pairs are independent.
        n = 4_000
        population = self.population([{"aa": 1, "ab": 1, "ba": 1, "bb": 1}] * n)
        algorithm = self.algorithm(population, word_selection=_BY_FREQUENCY)
        before, votes = votes_of(algorithm, rounds=2)
        votes = votes.reshape(-1, _ABC.num_symbols)[:2, :2]
        first = [int(v) for v in before.state.trie.levels[0].votes]
        self.assertEqual(sum(first), n)
        self.assertEqual(votes.sum(), n)
        self.assertNotEqual(votes.sum(axis=1).tolist(), first)
        expected = np.full(4, n / 4)
        self.assertGreater(stats.chisquare(votes.ravel(), expected).pvalue, 1e-6)

    def test_bits_of_a_place_do_not_depend_on_the_block(self):
        seed = streams.stateless_seed(3, "test")
        whole = selection_lib.random_bits(seed, np.int64(0), np.int32(1000))
        parts = [
            selection_lib.random_bits(seed, np.int64(first), np.int32(count))
            for first, count in ((0, 1), (1, 6), (7, 993))
        ]
        np.testing.assert_array_equal(tf.concat(parts, axis=0), whole)
        self.assertLen(set(whole.numpy().tolist()), 1000)


class StreamsTest(TrieHHTestCase):
    """Cohorts and drawn words, as functions of key and data."""

    def setUp(self):
        super().setUp()
        self.clients = [{"ab": 1, "ba": 1} for _ in range(600)]
        self.first = self.build()

    def build(self, clients=None, **changes):
        options = {"cohort_size": 200, "threshold": 3, "max_length": 4}
        options |= {"word_selection": _BY_FREQUENCY} | changes
        return self.algorithm(self.population(clients or self.clients), **options)

    def others(self):
        """Yields other runs: a name, the algorithm and the key."""
        one_more = [{"ab": 2, "ba": 1}, *self.clients[1:]]
        yield "threshold", self.build(threshold=4), 1
        yield "maximum length", self.build(max_length=5), 1
        yield "alphabet", self.build(alphabet=alphabet_lib.Alphabet("abcd")), 1
        yield "one client's count", self.build(one_more), 1
        yield "word selection", self.build(word_selection=_MOST_FREQUENT), 1
        yield "key", self.first, 2
        yield "large key", self.first, 1 + 2**64

    def cohort(self, algorithm, key=1, repeat=0, rounds=0):
        by_hand = steps_of(algorithm, key)
        place = dataclasses.replace(by_hand.begin(repeat), rounds=rounds)
        return by_hand.draw(place).cohort

    def test_cohorts_of_other_runs_are_independent(self):
        # Two cohorts of 200 of 600 share 66.7 clients on average, with a standard
        # deviation of 6.7: five of them, for 21 comparisons; false alarms 1e-5.
        for name, other, key in self.others():
            for number in range(3):
                with self.subTest(f"{name}, round {number}"):
                    shared = np.intersect1d(
                        self.cohort(self.first, rounds=number),
                        self.cohort(other, key, rounds=number),
                    )
                    self.assertBetween(len(shared), 66.7 - 34, 66.7 + 34)

    def test_drawn_words_of_other_runs_are_independent(self):
        # One client a time would be slow: three groups tell draws apart.
        groups = np.split(np.arange(600), 3)

        def votes(algorithm, key=1):
            return [votes_of(algorithm, group, key)[1].tolist() for group in groups]

        mine = votes(self.first)
        self.assertEqual(votes(self.build()), mine)
        for name, other, key in self.others():
            if name not in ("word selection", "alphabet"):
                with self.subTest(name):
                    self.assertNotEqual(votes(other, key), mine)

    def test_the_same_run_has_the_same_cohorts(self):
        for again in (self.build(), self.build(num_blocks=7)):
            for repeat in (0, 1):
                np.testing.assert_array_equal(
                    self.cohort(again, repeat=repeat, rounds=2),
                    self.cohort(self.first, repeat=repeat, rounds=2),
                )
        self.assertFalse(
            np.array_equal(self.cohort(self.first), self.cohort(self.first, repeat=1))
        )


class DiscoveryTest(TrieHHTestCase):
    """Frequencies of found words, against exact laws.

    Votes are counted in plain Python, which `EqualityTest` holds equal to those of the
    TFF computation, so that thousands of runs take seconds.
    """

    RUNS = 10_000

    def found(self, algorithm, words):
        """Counts in how many runs each word is found, and each run's words."""
        times = collections.Counter()
        by_hand = steps_of(algorithm)
        for run in range(self.RUNS):
            place = by_hand.begin(run)
            while (query := algorithm.next_query(place.state)) is not None:
                drawn = by_hand.draw(place)
                votes = self.votes(place.state, words[drawn.cohort])
                place = by_hand.update(place, query, drawn, votes).progress
            times.update(word.text for word in place.state.trie.words())
        return times

    def votes(self, state, words):
        votes = np.zeros(state.trie.num_candidates, np.int64)
        symbols = state.trie.alphabet.characters + "$"
        places = {
            "".join(symbols[c] for c in codes): i * len(symbols)
            for i, codes in enumerate(state.trie.frontier())
        }
        level = state.round_number
        for word in words:
            sequence = f"{word}$"
            if len(sequence) > level and sequence[:level] in places:
                votes[places[sequence[:level]] + symbols.index(sequence[level])] += 1
        return votes

    def assert_rate(self, times, rate):
        """Two-sided, false alarms 1e-6: passes within 5 standard deviations."""
        self.assertGreater(stats.binomtest(times, self.RUNS, rate).pvalue, 1e-6)

    def test_figure_1_has_its_exact_rates(self):
        # Cohorts of 10 of 20 devices, threshold 2. Each prefix of a word is kept
        # independently, with the chance that its holders have: "s" has 7, the other
        # prefixes of star, sun and moon as many as the word. A standard error is 0.5%.
        population = self.population([{word: 1} for word in _FIGURE_1])
        algorithm = self.algorithm(
            population,
            alphabet_lib.Alphabet("abcdefghijklmnopqrstuvwxyz"),
            cohort_size=10,
            threshold=2,
            max_length=6,
        )
        found = self.found(algorithm, np.array(_FIGURE_1))
        self.assertEqual(set(found), {"star", "sun", "moon"})
        s, three, four = (stats.hypergeom.sf(1, 20, w, 10) for w in (7, 3, 4))
        self.assert_rate(found["star"], s * three**4)
        self.assert_rate(found["sun"], s * four**3)
        self.assert_rate(found["moon"], four**5)

    def test_single_path_has_exactly_the_rate_of_proposition_1(self):
        # 8 of 30 devices hold "ab", alone with its letters.
        words = ["ab"] * 8 + ["c"] * 22
        algorithm = self.algorithm(
            self.population([{word: 1} for word in words]),
            cohort_size=12,
            threshold=3,
            max_length=3,
        )
        rate = triehh_privacy.worst_case_discovery_rate(8, algorithm.parameters)
        self.assertBetween(rate, 0.3, 0.5)
        self.assert_rate(self.found(algorithm, np.array(words))["ab"], rate)


class RunTest(TrieHHTestCase):
    def run_once(self, algorithm, repeat=0):
        by_hand, rounds = steps_of(algorithm), []
        place = by_hand.begin(repeat)
        while (query := algorithm.next_query(place.state)) is not None:
            drawn = by_hand.draw(place)
            votes = by_hand.ask(place, query, drawn.cohort)
            step = by_hand.update(place, query, drawn, votes)
            place = step.progress
            rounds.append(step.metrics)
        return place.state, rounds

    def test_figure_1(self):
        # 20 devices, cohorts of 10, threshold 2. What one device alone holds is
        # never learned.
        population = self.population([{word: 1} for word in _FIGURE_1])
        alphabet = alphabet_lib.Alphabet("abcdefghijklmnopqrstuvwxyz")
        algorithm = self.algorithm(
            population, alphabet, cohort_size=10, threshold=2, max_length=6
        )
        seen = set()
        for repeat in range(40):
            state, rounds = self.run_once(algorithm, repeat)
            words = {word.text: word for word in state.trie.words()}
            seen |= set(words)
            for word in words.values():
                self.assertEqual(word.level, len(word.text) + 1)
                self.assertGreaterEqual(word.votes, 2)
            self.assertLessEqual(len(rounds), 6)
            if len(rounds) < 6:
                self.assertEqual(rounds[-1]["prefixes_kept"], 0)
        self.assertEqual(seen, {"star", "sun", "moon"})

    def test_ends_at_the_maximum_length(self):
        population = self.population([{"aaaa": 1}, {"aab": 1}])
        algorithm = self.algorithm(population, max_length=3)
        state, rounds = self.run_once(algorithm)
        self.assertLen(rounds, 3)
        self.assertRegex(
            algorithm.progress({**rounds[-1], "votes_received": 2}),
            r"^2 clients voted; 2 of 4 prefixes have \d+ votes or more; 0 words so",
        )
        self.assertEqual(
            algorithm.progress({**rounds[-1], "candidates": 0}),
            "no prefix to extend; 0 words so far",
        )
        self.assertEqual(state.trie.words(), [])
        self.assertEqual(learned_prefixes(state.trie), {"a", "aa", "aaa", "aab"})
        self.assertEqual(
            rounds[-1], {"candidates": 4, "prefixes_kept": 2, "words_completed": 0}
        )


class BadArgumentsTest(TrieHHTestCase):
    @parameterized.parameters(
        ([0, 1], "shape"), ([0, 1, 1], "duplicate"), ([0, 1, 3], r"\[0, 3\)")
    )
    def test_cohort(self, cohort, message):
        algorithm = self.algorithm(self.population([{"a": 1}] * 3))
        with self.assertRaisesRegex(ValueError, message):
            votes_of(algorithm, np.array(cohort))

    def test_word_outside_the_alphabet(self):
        with self.assertRaisesRegex(ValueError, "'xyz' has 'x'"):
            self.algorithm(self.population([{"xyz": 1}, {"a": 1}]))

    def test_parameters_for_another_population(self):
        parameters = triehh_privacy.TrieHHParameters(5, 2, 2, 3)
        with self.assertRaisesRegex(ValueError, "5 clients"):
            plan = triehh.plan_of(parameters, _MOST_FREQUENT)
            triehh.TrieHH(self.population([{"a": 1}]), plan, _ABC)

    def test_no_blocks(self):
        with self.assertRaisesRegex(ValueError, "num_blocks is 0"):
            self.algorithm(self.population([{"a": 1}] * 2), num_blocks=0)


if __name__ == "__main__":
    absltest.main()
