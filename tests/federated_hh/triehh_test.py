"""Tests of TrieHH against plain Python, exact laws and the paper's example."""

import collections
import json
import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from federated_hh import alphabet as alphabet_lib
from federated_hh import selection as selection_lib
from federated_hh import triehh
from privacy import triehh as triehh_privacy
from randomness import seeds
from simulation import client_words, runtime

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

    def process(self, population, alphabet=_ABC, **overrides):
        options = {
            "cohort_size": population.num_clients,
            "threshold": 1,
            "max_length": 4,
            "word_selection": _MOST_FREQUENT,
            "noise_key": 1,
            "num_blocks": 3,
        }
        options.update(overrides)
        parameters = triehh_privacy.TrieHHParameters(
            population_size=population.num_clients,
            cohort_size=options.pop("cohort_size"),
            threshold=options.pop("threshold"),
            max_length=options.pop("max_length"),
        )
        return triehh.build_triehh_process(population, parameters, alphabet, **options)


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
        options |= {"cohort_size": size, "noise_key": seed}
        process = self.process(population, num_blocks=4, **options)
        one_by_one = self.process(population, num_blocks=n, **options)
        cohorts = process.cohorts()
        words = [max(c, key=c.get) if c else None for c in clients]

        state, learned = process.initialize(), set()
        while not state.finished:
            cohort = cohorts.cohort(state.round_number)
            level = state.round_number + 1
            expected, learned = reference_round(
                words, cohort, learned, level, threshold
            )
            votes = process.collect_votes(state, cohort)
            self.assertEqual(votes_by_prefix(state.trie, votes), dict(expected))
            np.testing.assert_array_equal(
                one_by_one.collect_votes(state, cohort), votes
            )
            state = process.update(state, votes).state
            self.assertEqual(learned_prefixes(state.trie), learned)

    @settings(derandomize=True, max_examples=10, deadline=None)
    @given(_CLIENTS, st.integers(0, 10**6))
    def test_random_words_do_not_depend_on_the_blocks(self, clients, seed):
        population = self.population(clients)
        votes = [
            self.process(
                population,
                word_selection=_BY_FREQUENCY,
                noise_key=seed,
                num_blocks=num_blocks,
            )
            for num_blocks in (1, 3, population.num_clients)
        ]
        cohort = np.arange(population.num_clients)
        votes = [p.collect_votes(p.initialize(), cohort) for p in votes]
        np.testing.assert_array_equal(votes[0], votes[1])
        np.testing.assert_array_equal(votes[0], votes[2])
        self.assertEqual(votes[0].sum(), sum(1 for c in clients if c))


class SelectionTest(TrieHHTestCase):
    def test_most_frequent_word_and_the_first_of_equals(self):
        population = self.population([{"a": 1, "b": 3, "c": 3}, {"c": 1, "a": 1}])
        process = self.process(population)
        votes = process.collect_votes(process.initialize(), np.arange(2))
        np.testing.assert_array_equal(votes, [0, 1, 1, 0])

    def test_by_frequency_follows_the_local_frequencies(self):
        # 30,000 clients that hold a, b and c 1, 2 and 5 times; chi-square with a
        # false-alarm rate of 1e-6, for two rounds.
        n = 30_000
        population = self.population([{"a": 1, "c": 5, "b": 2}] * n)
        process = self.process(population, word_selection=_BY_FREQUENCY)
        cohort = np.arange(n)
        state = process.initialize()
        votes = process.collect_votes(state, cohort)[:3]
        expected = n * np.array([1, 2, 5]) / 8
        self.assertGreater(stats.chisquare(votes, expected).pvalue, 1e-6)
        other = process.collect_votes(process.initialize(stream=1), cohort)[:3]
        self.assertGreater(stats.chisquare(other, expected).pvalue, 1e-6)
        self.assertFalse(np.array_equal(votes, other))

    def test_words_are_drawn_anew_each_round(self):
        # Every client has aa, ab, ba and bb. A client that drew once would vote in
        # round 2 as in round 1; drawing anew, the pairs are independent.
        n = 4_000
        population = self.population([{"aa": 1, "ab": 1, "ba": 1, "bb": 1}] * n)
        process = self.process(population, word_selection=_BY_FREQUENCY)
        output = process.next(process.initialize(), np.arange(n))
        votes = process.collect_votes(output.state, np.arange(n))
        votes = votes.reshape(-1, _ABC.num_symbols)[:2, :2]
        first = [int(v) for v in output.state.trie.levels[0].votes]
        self.assertEqual(sum(first), n)
        self.assertEqual(votes.sum(), n)
        self.assertNotEqual(votes.sum(axis=1).tolist(), first)
        expected = np.full(4, n / 4)
        self.assertGreater(stats.chisquare(votes.ravel(), expected).pvalue, 1e-6)

    def test_bits_of_a_place_do_not_depend_on_the_block(self):
        seed = seeds.stateless_seed(3, "test")
        whole = selection_lib.random_bits(seed, np.int64(0), np.int32(1000))
        parts = [
            selection_lib.random_bits(seed, np.int64(first), np.int32(count))
            for first, count in ((0, 1), (1, 6), (7, 993))
        ]
        np.testing.assert_array_equal(tf.concat(parts, axis=0), whole)
        self.assertLen(set(whole.numpy().tolist()), 1000)


class StreamsTest(TrieHHTestCase):
    """What cohorts and drawn words are a function of."""

    def setUp(self):
        super().setUp()
        self.clients = [{"ab": 1, "ba": 1} for _ in range(600)]
        self.first = self.build()

    def build(self, clients=None, **changes):
        options = {"cohort_size": 200, "threshold": 3, "max_length": 4}
        options |= {"word_selection": _BY_FREQUENCY} | changes
        return self.process(self.population(clients or self.clients), **options)

    def others(self):
        one_more = [{"ab": 2, "ba": 1}, *self.clients[1:]]
        return {
            "threshold": self.build(threshold=4),
            "maximum length": self.build(max_length=5),
            "alphabet": self.build(alphabet=alphabet_lib.Alphabet("abcd")),
            "key": self.build(noise_key=2),
            "large key": self.build(noise_key=1 + 2**64),
            "one client's count": self.build(one_more),
            "word selection": self.build(word_selection=_MOST_FREQUENT),
        }

    def test_cohorts_of_other_runs_are_independent(self):
        # Two cohorts of 200 of 600 share 66.7 clients on average, with a standard
        # deviation of 6.7: five of them, for 21 comparisons; false alarms 1e-5.
        for name, other in self.others().items():
            for number in range(3):
                with self.subTest(f"{name}, round {number}"):
                    mine, theirs = (
                        process.cohorts().cohort(number)
                        for process in (self.first, other)
                    )
                    shared = len(np.intersect1d(mine, theirs))
                    self.assertBetween(shared, 66.7 - 34, 66.7 + 34)

    def test_drawn_words_of_other_runs_are_independent(self):
        others = self.others()
        del others["word selection"], others["alphabet"]
        everybody = np.arange(600)

        def votes(process):
            # One client a time would be slow: eight groups tell draws apart.
            state = process.initialize()
            return [
                process.collect_votes(state, group).tolist()
                for group in np.split(everybody, 8)
            ]

        mine = votes(self.first)
        self.assertEqual(votes(self.build()), mine)
        for name, other in others.items():
            with self.subTest(name):
                self.assertNotEqual(votes(other), mine)

    def test_the_same_run_has_the_same_cohorts(self):
        for again in (self.build(), self.build(num_blocks=7)):
            for stream in (0, 1):
                np.testing.assert_array_equal(
                    again.cohorts(stream).cohort(2),
                    self.first.cohorts(stream).cohort(2),
                )
        self.assertFalse(
            np.array_equal(
                self.first.cohorts(0).cohort(2), self.first.cohorts(1).cohort(2)
            )
        )


class DiscoveryTest(TrieHHTestCase):
    """How often words are found, against exact laws.

    Votes are counted in plain Python, which `EqualityTest` holds equal to those of the
    TFF computation, so that thousands of runs take seconds.
    """

    RUNS = 10_000

    def found(self, process, words):
        """Counts in how many runs each word is found, and each run's words."""
        times = collections.Counter()
        for run in range(self.RUNS):
            cohorts = process.cohorts(stream=run)
            state = process.initialize(stream=run)
            while not state.finished:
                votes = self.votes(state, words[cohorts.cohort(state.round_number)])
                state = process.update(state, votes).state
            times.update(word.text for word in state.trie.words())
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
        process = self.process(
            population,
            alphabet_lib.Alphabet("abcdefghijklmnopqrstuvwxyz"),
            cohort_size=10,
            threshold=2,
            max_length=6,
        )
        found = self.found(process, np.array(_FIGURE_1))
        self.assertEqual(set(found), {"star", "sun", "moon"})
        s, three, four = (stats.hypergeom.sf(1, 20, w, 10) for w in (7, 3, 4))
        self.assert_rate(found["star"], s * three**4)
        self.assert_rate(found["sun"], s * four**3)
        self.assert_rate(found["moon"], four**5)

    def test_single_path_has_exactly_the_rate_of_proposition_1(self):
        # 8 of 30 devices hold "ab", alone with its letters.
        words = ["ab"] * 8 + ["c"] * 22
        process = self.process(
            self.population([{word: 1} for word in words]),
            cohort_size=12,
            threshold=3,
            max_length=3,
        )
        rate = triehh_privacy.worst_case_discovery_rate(8, process.parameters)
        self.assertBetween(rate, 0.3, 0.5)
        self.assert_rate(self.found(process, np.array(words))["ab"], rate)


class SecureSumTest(TrieHHTestCase):
    def test_votes_are_summed_by_a_secure_sum(self):
        # It knows how many devices a block has, and refuses more votes than that: a
        # plain sum takes them.
        process = self.process(self.population([{"a": 1}] * 6), num_blocks=3)
        state = process.initialize()

        def blocks(size):
            return [
                collections.OrderedDict(clients=np.arange(size), first_place=0),
                collections.OrderedDict(clients=np.arange(1), first_place=2),
            ]

        self.assertEqual(process.sum_of_votes(state, blocks(2))[0], 3)
        with self.assertRaisesRegex(runtime.SecureSumError, "above its bound"):
            process.sum_of_votes(state, blocks(3))


class RunTest(TrieHHTestCase):
    def run_once(self, process, stream=0):
        cohorts = process.cohorts(stream)
        state, rounds = process.initialize(stream), []
        while not state.finished:
            output = process.next(state, cohorts.cohort(state.round_number))
            state = output.state
            rounds.append(output.metrics)
        return state, rounds

    def test_figure_1(self):
        # 20 devices, cohorts of 10, threshold 2. What one device alone holds is
        # never learned.
        population = self.population([{word: 1} for word in _FIGURE_1])
        alphabet = alphabet_lib.Alphabet("abcdefghijklmnopqrstuvwxyz")
        process = self.process(
            population, alphabet, cohort_size=10, threshold=2, max_length=6
        )
        seen = set()
        for stream in range(40):
            state, rounds = self.run_once(process, stream)
            words = {word.text: word for word in state.trie.words()}
            seen |= set(words)
            for word in words.values():
                self.assertEqual(word.level, len(word.text) + 1)
                self.assertGreaterEqual(word.votes, 2)
            self.assertLessEqual(len(rounds), 6)
            if len(rounds) < 6:
                self.assertEqual(rounds[-1].released["prefixes_kept"], 0)
        self.assertEqual(seen, {"star", "sun", "moon"})

    def test_ends_at_the_maximum_length(self):
        population = self.population([{"aaaa": 1}, {"aab": 1}])
        state, rounds = self.run_once(self.process(population, max_length=3))
        self.assertLen(rounds, 3)
        self.assertEqual(state.trie.words(), [])
        self.assertEqual(learned_prefixes(state.trie), {"a", "aa", "aaa", "aab"})
        self.assertEqual(
            rounds[-1].released,
            {"round": 3, "candidates": 4, "prefixes_kept": 2, "words_completed": 0},
        )
        simulator = dict(rounds[-1].simulator)
        self.assertGreater(simulator.pop("seconds"), 0)
        self.assertEqual(simulator, {"votes_received": 2, "candidates_with_votes": 2})

    def test_state_survives_json_between_rounds(self):
        clients = [{"abc": 2, "ab": 1}, {"ab": 3}, {"cab": 1, "abc": 1}] * 5
        process = self.process(
            self.population(clients), threshold=2, word_selection=_BY_FREQUENCY
        )
        cohort = np.arange(15)
        straight = process.initialize(stream=4)
        stopped = process.initialize(stream=4)
        while not straight.finished:
            straight = process.next(straight, cohort).state
            values = json.loads(json.dumps(stopped.to_json()))
            stopped = triehh.TrieHHState.from_json(_ABC, values)
            stopped = process.next(stopped, cohort).state
        self.assertEqual(stopped.to_json(), straight.to_json())


class BadArgumentsTest(TrieHHTestCase):
    @parameterized.parameters(
        ([0, 1], "shape"), ([0, 1, 1], "twice"), ([0, 1, 3], r"\[0, 3\)")
    )
    def test_cohort(self, cohort, message):
        process = self.process(self.population([{"a": 1}] * 3))
        with self.assertRaisesRegex(ValueError, message):
            process.next(process.initialize(), np.array(cohort))

    def test_finished_run(self):
        process = self.process(self.population([{"a": 1}] * 2), max_length=1)
        state = process.next(process.initialize(), np.arange(2)).state
        self.assertTrue(state.finished)
        with self.assertRaisesRegex(ValueError, "finished"):
            process.next(state, np.arange(2))

    def test_word_outside_the_alphabet(self):
        with self.assertRaisesRegex(ValueError, "'xyz' has 'x'"):
            self.process(self.population([{"xyz": 1}, {"a": 1}]))

    def test_parameters_for_another_population(self):
        parameters = triehh_privacy.TrieHHParameters(5, 2, 2, 3)
        with self.assertRaisesRegex(ValueError, "5 clients"):
            triehh.build_triehh_process(
                self.population([{"a": 1}]), parameters, _ABC, noise_key=1
            )

    @parameterized.parameters(-1, 2**128)
    def test_noise_key(self, key):
        with self.assertRaisesRegex(ValueError, r"noise_key .* \[0, 2\^128\)"):
            self.process(self.population([{"a": 1}] * 2), noise_key=key)

    def test_no_blocks(self):
        with self.assertRaisesRegex(ValueError, "num_blocks is 0"):
            self.process(self.population([{"a": 1}] * 2), num_blocks=0)


if __name__ == "__main__":
    absltest.main()
