"""Tests of LDP TrieHH against plain Python and the laws of its reports."""

import collections
import dataclasses
import json
import math
import os
import tempfile
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from federated_hh import alphabet as alphabet_lib
from federated_hh import contributions, ldp_triehh, ldp_triehh_state
from federated_hh.ldp_triehh_parameters import (
    Aggregation,
    LdpTrieHHParameters,
    ReportSampling,
)
from simulation import client_words, participation, runtime

_GREEDY = contributions.ItemSampler.GREEDY
_RANDOM = contributions.ItemSampler.RANDOM
_ABC = alphabet_lib.Alphabet("abc")
_NINE = alphabet_lib.Alphabet("abcdefghi")

_CLIENTS = st.lists(
    st.dictionaries(
        st.text(alphabet="abc", min_size=1, max_size=5), st.integers(1, 5), max_size=6
    ),
    min_size=12,
    max_size=40,
)


def reference_votes(clients, cohort, prefixes, level, known):
    """Algorithm 2, lines 11 to 17, without a bound and without noise.

    Args:
        clients: Each client's words.
        cohort: The clients that take part.
        prefixes: P_{level - 1}.
        level: The level, from 1; votes go to prefixes of level + 1 symbols.
        known: Words that are not voted for.

    Returns:
        The votes by prefix, a completed word with "$" at its end.
    """
    votes = collections.Counter()
    for client in cohort:
        spelled = [word + "$" for word in clients[client] if word not in known]
        votes.update(
            {
                word[: level + 1]
                for word in spelled
                if len(word) > level and word[:level] in prefixes
            }
        )
    return votes


def reference_kept(votes, max_prefixes):
    """Algorithm 2, lines 22 and 23, of the prefixes that somebody has."""
    threshold = sorted(votes.values(), reverse=True)[:max_prefixes]
    return {prefix for prefix, n in votes.items() if n >= threshold[-1]}


class LdpTrieHHTestCase(parameterized.TestCase):
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
        options = {"seed": 1, "noise_key": 1, "num_blocks": 3} | {
            name: overrides.pop(name)
            for name in (
                "seed",
                "noise_key",
                "num_blocks",
                "report_sampling",
                "aggregation",
            )
            if name in overrides
        }
        parameters = {
            "clients_per_level": population.num_clients,
            "max_depth": 1,
            "max_prefixes": 10,
            "contribution_bound": 8,
            "epsilon": math.inf,
            "sampler": _GREEDY,
        } | overrides
        return ldp_triehh.build_ldp_triehh_process(
            population, LdpTrieHHParameters(**parameters), alphabet, **options
        )


def run(process, state=None):
    """Runs all levels that are left; returns the last state and all metrics."""
    state = state or process.initialize()
    levels = []
    while not state.finished:
        output = process.next(state, process.cohorts.cohort(state.levels_done))
        state = output.state
        levels.append(output.metrics.combined())
    return state, levels


def names_of_candidates(trie):
    symbols = trie.alphabet.characters + "$"
    return [
        "".join(symbols[c] for c in codes) + symbol
        for codes in trie.frontier()
        for symbol in symbols
    ]


def prefixes_of(trie):
    symbols = trie.alphabet.characters + "$"
    return {"".join(symbols[c] for c in codes) for codes in trie.levels[-1].codes}


class EqualityTest(LdpTrieHHTestCase):
    @settings(derandomize=True, max_examples=12, deadline=None)
    @given(
        _CLIENTS,
        st.integers(1, 6),
        st.sampled_from([(1, 3), (2, 2), (2, 4), (3, 1), (3, 3)]),
        st.sampled_from([_GREEDY, _RANDOM]),
        st.sampled_from(list(ReportSampling)),
        st.integers(1, 4),
        st.integers(0, 10**6),
    )
    def test_without_noise_equals_plain_python(
        self, clients, max_prefixes, passes, sampler, report_sampling, num_blocks, seed
    ):
        num_passes, depth = passes
        size = len(clients) // (num_passes * depth)
        process = self.process(
            self.population(clients),
            clients_per_level=size,
            max_depth=depth,
            max_prefixes=max_prefixes,
            num_passes=num_passes,
            sampler=sampler,
            report_sampling=report_sampling,
            num_blocks=num_blocks,
            seed=seed,
        )
        state, found, number = process.initialize(), [], 0
        for pass_number in range(1, num_passes + 1):
            known = {word for word, *_ in found}
            prefixes = set("abc")
            for level in range(1, depth + 1):
                self.assertEqual((state.pass_number, state.level), (pass_number, level))
                self.assertEqual(prefixes_of(state.trie), prefixes)
                cohort = process.cohorts.cohort(state.levels_done)
                expected = reference_votes(clients, cohort, prefixes, level, known)
                names = names_of_candidates(state.trie)
                output = process.next(state, cohort)
                votes = process.collect(state, cohort)
                self.assertEqual(
                    {n: v for n, v in zip(names, votes.tolist(), strict=True) if v},
                    dict(expected),
                )
                state, number = output.state, number + 1
                self.assertEqual(state.levels_done, number)
                prefixes = reference_kept(expected, max_prefixes) if expected else set()
                found += sorted(
                    (prefix[:-1], pass_number, level, expected[prefix])
                    for prefix in prefixes
                    if prefix.endswith("$")
                )
                if not any(not prefix.endswith("$") for prefix in prefixes):
                    break
        self.assertTrue(state.finished)
        self.assertCountEqual(
            [(w.text, w.pass_number, w.level, w.votes) for w in state.found], found
        )
        for word in state.found:
            self.assertEqual((word.estimate, word.standard_error), (word.votes, 0))

    @parameterized.product(sampler=[_GREEDY, _RANDOM], num_blocks=[1, 3, 20])
    def test_a_client_votes_for_at_most_the_bound(self, sampler, num_blocks):
        rng = np.random.default_rng(3)
        words = [a + b for a in "abc" for b in ["", *"abc"]]
        clients = [
            {words[i]: 1 for i in rng.permutation(len(words))[:n].tolist()}
            for n in rng.integers(0, 9, 20)
        ]
        process = self.process(
            self.population(clients),
            contribution_bound=3,
            sampler=sampler,
            num_blocks=num_blocks,
        )
        votes = process.collect(process.initialize(), np.arange(20))
        self.assertEqual(votes.sum(), sum(min(3, len(c)) for c in clients))

    @parameterized.parameters(
        (ReportSampling.AGGREGATE, 1.0, 2),
        (ReportSampling.AGGREGATE, math.inf, 2),
        (ReportSampling.PER_REPORT, 1.0, 1),
    )
    def test_secure_sum_equals_ephemeral(self, report_sampling, epsilon, max_depth):
        rng = np.random.default_rng(4)
        clients = [
            {a + b: 1 for a in "abc" for b in "abc" if rng.random() < 0.4}
            for _ in range(60)
        ]
        population = self.population(clients)
        states = [
            run(
                self.process(
                    population,
                    clients_per_level=30,
                    max_depth=max_depth,
                    epsilon=epsilon,
                    report_sampling=report_sampling,
                    aggregation=aggregation,
                )
            )[0]
            for aggregation in Aggregation
        ]
        self.assertEqual(states[0].to_json(), states[1].to_json())

    @parameterized.product(
        aggregation=list(Aggregation), report_sampling=list(ReportSampling)
    )
    def test_which_sum_the_worker_is_given(self, aggregation, report_sampling):
        process = self.process(
            self.population([{"a": 1}] * 6),
            report_sampling=report_sampling,
            aggregation=aggregation,
        )
        compile_, compiled = runtime._compile, []

        def recorded(computation):
            compiled.append(computation.to_building_block().compact_representation())
            return compile_(computation)

        with mock.patch.object(runtime, "_compile", recorded), runtime.tff_worker():
            process.collect(process.initialize(), np.arange(6))
        is_secure = ["federated_secure_sum" in text for text in compiled]
        self.assertEqual(is_secure, [aggregation is Aggregation.SECURE_SUM])

    @parameterized.parameters(([{}] * 6,), ([{"aaaa": 1}] * 6,))
    def test_nobody_has_an_item(self, clients):
        # Without words at all, and with words that a second level never learned.
        population = self.population(clients)
        for report_sampling in ReportSampling:
            for epsilon in (1.0, math.inf):
                process = self.process(
                    population,
                    clients_per_level=3,
                    max_depth=2,
                    epsilon=epsilon,
                    report_sampling=report_sampling,
                )
                state = process.initialize()
                state = dataclasses.replace(
                    state, trie=state.trie.extend(np.array([5]), np.array([1]))
                )
                sums = process.collect(state, np.array([0, 2, 5]))
                votes = process.randomize_sum(state, sums)
                self.assertLen(votes, 4)
                if math.isinf(epsilon):
                    self.assertEqual(votes.sum(), 0)
                else:
                    # Reports of 2 of the 4 candidates and "no item".
                    self.assertBetween(votes.sum(), 24, 48)


class LevelsTest(LdpTrieHHTestCase):
    def test_first_trie_is_the_alphabet(self):
        state = self.process(self.population([{"a": 1}])).initialize()
        self.assertEqual(prefixes_of(state.trie), set("abc"))
        self.assertEqual(state.level, 1)
        self.assertEqual(state.trie.num_candidates, 12)

    def test_fifteen_levels_complete_words_of_fifteen_letters(self):
        words = ["a", "ab", "c" * 14, "b" * 15, "a" * 16]
        process = self.process(
            self.population([{word: 1 for word in words}] * 30),
            clients_per_level=2,
            max_depth=15,
            max_prefixes=20,
        )
        state, levels = run(process)
        self.assertEqual(
            {word.text: word.level for word in state.found},
            {"a": 1, "ab": 2, "c" * 14: 14, "b" * 15: 15},
        )
        self.assertLen(levels, 15)
        self.assertEqual([m["level"] for m in levels], list(range(1, 16)))
        self.assertEqual(state.participated.sum(), 30)

    def test_later_passes_look_for_other_words(self):
        # Two prefixes a level: the two most frequent words, then the next two.
        clients = [{"aa": 1, "bb": 1, "cc": 1, "ab": 1}] * 40
        clients = [
            {w: n for w, n in c.items() if w in ("aa", "bb") or i % 2}
            for i, c in enumerate(clients)
        ]
        process = self.process(
            self.population(clients),
            clients_per_level=10,
            max_depth=2,
            max_prefixes=2,
            num_passes=2,
        )
        state, _ = run(process)
        self.assertEqual(
            {word.text: word.pass_number for word in state.found},
            {"aa": 1, "bb": 1, "cc": 2, "ab": 2},
        )

    def test_metrics(self):
        process = self.process(self.population([{"ab": 1, "a": 1}, {"ab": 2}]))
        _, [metrics] = run(process)
        seconds = {"seconds_clients", "seconds_reports", "seconds_server"}
        self.assertEqual(
            {k: v for k, v in metrics.items() if k not in seconds},
            {
                "pass_number": 1,
                "level": 1,
                "clients": 2,
                "reports": 16,
                "candidates": 12,
                "least_votes_kept": 1,
                "prefixes_kept": 2,
                "words_found": 1,
            },
        )
        self.assertLessEqual(seconds, set(metrics))

    def test_ties_at_the_last_place_are_kept(self):
        process = self.process(self.population([{"a": 1}]), max_prefixes=3)
        votes = np.array([0, 5, 3, 9, 3, 3, 1, 0, 0, 0, 0, 0])
        output = process.update(process.initialize(), votes)
        self.assertEqual(output.metrics.released["least_votes_kept"], 3)
        self.assertEqual(output.metrics.released["prefixes_kept"], 5)
        self.assertEqual(
            {word.text: word.votes for word in output.state.found}, {"a": 9}
        )

    @parameterized.parameters(math.inf, 2.0)
    def test_a_tie_at_no_votes_is_not_kept(self, epsilon):
        process = self.process(
            self.population([{"a": 1}]), max_prefixes=3, epsilon=epsilon
        )
        votes = np.array([0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0])
        output = process.update(process.initialize(), votes)
        self.assertEqual(output.metrics.released["prefixes_kept"], 2)


class LawTest(LdpTrieHHTestCase):
    def test_everyone_sends_as_many_reports(self):
        # 100 reports over 90 candidates and "no item" with epsilon 0.1 have 44 items
        # each, and no client has more than 4 of the 5 items it reports on. What is
        # missing from 100 times 44 is what the reports said of "no item", binomial
        # where nobody has an item; one report too few would shift it by 44, or 9
        # standard deviations. Two-sided test, false-alarm rate 1e-6.
        rng = np.random.default_rng(7)
        process = self.process(
            self.population([{}] * 20),
            _NINE,
            contribution_bound=5,
            epsilon=0.1,
            report_sampling=ReportSampling.PER_REPORT,
        )
        randomizer = process.parameters.randomizer(90)
        self.assertEqual(randomizer.subset_size, 44)
        votes = process.collect(process.initialize(), np.arange(20))
        missing = 100 * 44 - int(votes.sum())
        p = float(randomizer.own_probability)
        self.assertGreater(stats.binomtest(missing, 100, p).pvalue, 1e-6)
        # With epsilon 40 reports are the items themselves, but for a chance of
        # 100 * 90 * e^-40 < 1e-13: as many as are held, the others are "no item".
        words = [a + b for a in "abcdefghi" for b in "abcdefghi"]
        clients = [
            {words[i]: 1 for i in rng.permutation(81)[:n].tolist()}
            for n in rng.integers(0, 5, 20)
        ]
        process = self.process(
            self.population(clients),
            _NINE,
            contribution_bound=5,
            epsilon=40.0,
            report_sampling=ReportSampling.PER_REPORT,
        )
        state = process.initialize()
        votes = process.collect(state, np.arange(20))
        expected = reference_votes(clients, range(20), set("abcdefghi"), 1, ())
        names = names_of_candidates(state.trie)
        self.assertEqual(
            {n: v for n, v in zip(names, votes.tolist(), strict=True) if v},
            dict(expected),
        )

    def test_a_word_of_an_earlier_pass_is_not_found_again(self):
        # Nobody votes for it in the second pass, but noise may.
        population = self.population([{"a": 1}] * 6)
        process = self.process(population, clients_per_level=3, num_passes=2)
        state = process.initialize()
        state = process.next(state, process.cohorts.cohort(0)).state
        self.assertEqual([word.text for word in state.found], ["a"])
        self.assertEqual(state.pass_number, 2)
        names = names_of_candidates(state.trie)
        votes = np.zeros(len(names), np.int64)
        votes[[names.index("a$"), names.index("b$")]] = (3, 2)
        found = process.update(state, votes).state.found
        words = [(word.text, word.pass_number) for word in found if word.votes]
        self.assertEqual(words, [("a", 1), ("b", 2)])

    @parameterized.parameters(*Aggregation)
    def test_votes_are_added_up_as_the_aggregation_says(self, aggregation):
        # Both give the same sums; what differs is which intrinsic the server's code
        # asks for, so that a real runtime keeps single votes from it.
        population = self.population([{"a": 1}] * 4)
        process = self.process(population, aggregation=aggregation)
        level = process._build_level(process.initialize().trie.num_candidates)
        text = str(level.to_building_block())
        secure = aggregation is Aggregation.SECURE_SUM
        self.assertEqual("federated_secure_sum" in text, secure)
        self.assertEqual("federated_sum" in text, not secure)

    @parameterized.parameters(*ReportSampling)
    def test_votes_have_the_law_of_subset_selection(self, report_sampling):
        # Levels over the same 400 clients with B = 4: 1600 reports each. For items
        # that all, a quarter and none of the clients have: the votes summed over the
        # levels are a sum of two binomials, near enough to normal; the squared
        # deviations of the levels are chi-square with as many degrees of freedom. Six
        # two-sided tests at 1e-6: a false alarm in 1e-5 of all changes of the draws.
        # With 1,000 levels a bias of 0.2 standard deviations of a level is found with
        # a probability of 0.9, and a variance off by a factor 1.3; one by one, 100
        # levels take as long, and find 0.62 and 2.3.
        runs = {ReportSampling.AGGREGATE: 1_000, ReportSampling.PER_REPORT: 100}[
            report_sampling
        ]
        n, reports = 400, 1600
        clients = [{"aa": 1} | ({"bb": 1} if i % 4 == 0 else {}) for i in range(n)]
        population = self.population(clients)
        process = self.process(
            population,
            _NINE,
            contribution_bound=4,
            epsilon=2.0,
            report_sampling=report_sampling,
        )
        state = process.initialize()
        names = names_of_candidates(state.trie)
        rows = []
        for number in range(runs):
            # The seeds of a level's draws come from its number.
            level = dataclasses.replace(state, levels_done=number)
            sums = process.collect(level, np.arange(n))
            rows.append(process.randomize_sum(level, sums))
        randomizer = process.parameters.randomizer(90)
        own, other = map(
            float, (randomizer.own_probability, randomizer.other_probability)
        )
        for name, count in (("aa", n), ("bb", n // 4), ("cc", 0)):
            with self.subTest(name):
                drawn = np.array([row[names.index(name)] for row in rows])
                mean = count * own + (reports - count) * other
                variance = count * own * (1 - own)
                variance += (reports - count) * other * (1 - other)
                z = (drawn - mean) / math.sqrt(variance)
                self.assertGreater(
                    2 * stats.norm.sf(abs(z.sum()) / math.sqrt(runs)), 1e-6
                )
                spread = stats.chi2(runs).cdf(np.sum(z**2))
                self.assertBetween(spread, 0.5e-6, 1 - 0.5e-6)

    def test_estimates_are_unbiased_with_the_standard_error_stated(self):
        # A level with 2,000 clients, of whom all have a and 500 have b. The mean of
        # the estimates of 3,000 levels against the truth, and their deviations in
        # units of the error stated, chi-square with 3,000 degrees of freedom:
        # two-sided, each 1e-6, and so a false alarm in 4e-6 of all changes of the
        # draws. A bias of 0.12 standard errors, or an error stated 9% off, is found
        # with a probability of 0.9.
        runs = 3_000
        clients = [{"a": 1} | ({"b": 1} if i < 500 else {}) for i in range(2_000)]
        population = self.population(clients)
        # All 12 candidates are kept, so that no estimate is left out for its value.
        process = self.process(
            population, contribution_bound=3, epsilon=1.0, max_prefixes=12
        )
        state = process.initialize()
        sums = process.collect(state, np.arange(2_000))
        z = {"a": [], "b": []}
        for number in range(runs):
            level = dataclasses.replace(state, levels_done=number)
            output = process.update(level, process.randomize_sum(level, sums))
            for word in output.state.found:
                truth = {"a": 2_000, "b": 500}.get(word.text)
                if truth is not None:
                    self.assertEqual(word.level, 1)
                    deviation = (word.estimate - truth) / word.standard_error
                    z[word.text].append(deviation)
        for text, deviations in z.items():
            with self.subTest(text):
                self.assertLen(deviations, runs)
                mean = abs(np.sum(deviations)) / math.sqrt(runs)
                self.assertGreater(2 * stats.norm.sf(mean), 1e-6)
                spread = stats.chi2(runs).cdf(np.sum(np.square(deviations)))
                self.assertBetween(spread, 0.5e-6, 1 - 0.5e-6)


class ParticipationTest(LdpTrieHHTestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(9)
        words = [a + b for a in "abc" for b in "abc"]
        self.clients = [
            {words[i]: 1 for i in rng.permutation(9)[:4].tolist()} for _ in range(90)
        ]

    def small(self, population=None, **overrides):
        return self.process(
            population or self.population(self.clients),
            **{
                "clients_per_level": 20,
                "max_depth": 2,
                "num_passes": 2,
                "epsilon": 3.0,
                "sampler": _RANDOM,
                "contribution_bound": 3,
            }
            | overrides,
        )

    def test_nobody_takes_part_twice(self):
        process = self.small()
        first = process.cohorts.cohort(0)
        state = process.next(process.initialize(), first).state
        self.assertEqual(np.flatnonzero(state.participated).tolist(), first.tolist())
        for cohort in (first, np.append(process.cohorts.cohort(1)[1:], first[3])):
            with self.assertRaises(participation.ClientTakesPartTwiceError):
                process.next(state, cohort)
        twice = process.cohorts.cohort(1)
        twice[0] = twice[1]
        with self.assertRaises(participation.ClientTakesPartTwiceError):
            process.next(state, twice)
        state, _ = run(process, state)
        self.assertEqual(state.participated.sum(), 80)
        self.assertLen(process.cohorts.rest(), 10)
        self.assertFalse(state.participated[process.cohorts.rest()].any())

    @parameterized.parameters(
        (ReportSampling.AGGREGATE, 2), (ReportSampling.PER_REPORT, 1)
    )
    def test_resumed_run_equals_a_straight_one(self, report_sampling, max_depth):
        options = {"report_sampling": report_sampling, "max_depth": max_depth}
        straight = stopped = self.small(**options).initialize()
        while not straight.finished:
            process = self.small(**options)
            cohort = process.cohorts.cohort(straight.levels_done)
            straight = process.next(straight, cohort).state
            stopped = process.next(stopped, cohort).state
            # What a new program would know of this one.
            values = json.loads(json.dumps(stopped.to_json()))
            participated = ldp_triehh.participated_after(
                process.cohorts, values["levels_done"]
            )
            stopped = ldp_triehh_state.LdpTrieHHState.from_json(
                _ABC, values, participated
            )
            self.assertEqual(stopped.to_json(), straight.to_json())
            np.testing.assert_array_equal(stopped.participated, straight.participated)
            if not stopped.finished:
                with self.assertRaises(participation.ClientTakesPartTwiceError):
                    process.next(stopped, cohort)

    def test_seeds_differ(self):
        states = [
            run(self.small(seed=seed, max_depth=1, num_passes=1))[0] for seed in (1, 2)
        ]
        self.assertNotEqual(states[0].to_json(), states[1].to_json())

    @parameterized.parameters(*ReportSampling)
    def test_neighbours_have_noise_of_their_own(self, report_sampling):
        # With the same noise the votes of two runs of one seed would differ by the
        # exchanged item alone: in two candidates, by one vote.
        neighbour = [dict(words) for words in self.clients]
        gone = min(neighbour[7])
        new = next(a + b for a in "abc" for b in "abc" if a + b not in neighbour[7])
        del neighbour[7][gone]
        neighbour[7][new] = 1
        votes = []
        for clients in (self.clients, neighbour):
            process = self.small(
                population=self.population(clients),
                clients_per_level=90,
                max_depth=1,
                num_passes=1,
                contribution_bound=4,
                report_sampling=report_sampling,
            )
            state = process.initialize()
            sums = process.collect(state, process.cohorts.cohort(0))
            votes.append(process.randomize_sum(state, sums))
        changed = np.abs(votes[0] - votes[1])
        self.assertGreater(np.count_nonzero(changed), 5)
        self.assertGreater(changed.max(), 2)

    def test_every_argument_changes_the_noise_and_none_the_cohorts(self):
        first = self.small(max_depth=1, num_passes=1)
        state = first.initialize()
        nobody = np.zeros(first.initialize().trie.num_candidates, np.int64)
        votes = [first.randomize_sum(state, nobody)]
        for changes in (
            {"epsilon": 3.0 + 1e-9},
            {"sampler": _GREEDY},
            {"max_prefixes": 11},
            {"num_blocks": 2},
            {"noise_key": 2},
            {"noise_key": 1 + 2**127},
            {"population": self.population([*self.clients[1:], self.clients[0]])},
        ):
            other = self.small(**{"max_depth": 1, "num_passes": 1} | changes)
            np.testing.assert_array_equal(
                other.cohorts.cohort(0), first.cohorts.cohort(0)
            )
            votes.append(other.randomize_sum(state, nobody))
        # Of other cohorts, too: their sums are others.
        other = self.small(max_depth=1, num_passes=1, seed=2)
        votes.append(other.randomize_sum(state, nobody))
        self.assertLen(np.unique(votes, axis=0), len(votes))


class BadArgumentsTest(LdpTrieHHTestCase):
    @parameterized.parameters(
        ("epsilon", 0.0),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("epsilon", -math.inf),
        ("epsilon", 41.0),
        ("max_prefixes", 0),
        ("contribution_bound", 0),
        ("contribution_bound", 2.5),
        ("clients_per_level", 0),
        ("max_depth", 0),
        ("num_passes", -1),
    )
    def test_parameters(self, name, value):
        with self.assertRaisesRegex(ValueError, f"{name}.*{value}"):
            self.process(self.population([{"a": 1}]), **{name: value})

    def test_too_few_clients(self):
        population = self.population([{"a": 1}] * 100)
        with self.assertRaisesRegex(ValueError, "need 120 clients.* has 100"):
            self.process(population, clients_per_level=20, max_depth=3, num_passes=2)
        self.process(population, clients_per_level=20, max_depth=5)

    def test_padding_beyond_the_integers(self):
        population = self.population([{"a": 1}] * 4)
        options = {"num_blocks": 1, "report_sampling": ReportSampling.PER_REPORT}
        with self.assertRaisesRegex(ValueError, r"contribution_bound.*more blocks"):
            self.process(population, contribution_bound=2**29, epsilon=1.0, **options)
        options["num_blocks"] = 2
        self.process(population, contribution_bound=2**29, epsilon=1.0, **options)
        with self.assertRaisesRegex(ValueError, "contribution_bound.*a sum can count"):
            self.process(population, contribution_bound=2**60, epsilon=1.0)

    def test_too_many_candidates(self):
        population = self.population([{"a": 1}])
        with self.assertRaisesRegex(ValueError, "at most 2,147,483,646"):
            self.process(
                population, max_depth=1, max_prefixes=1, alphabet=_wide(46_341)
            )
        # With so many characters each level alone is large, and ties make it larger.
        ties = np.ones(1_400 * 1_401, np.int64)
        process = self.process(
            self.population([{"a": 1}] * 2),
            max_prefixes=1,
            alphabet=_wide(1_400),
            max_depth=2,
            clients_per_level=1,
        )
        with self.assertRaisesRegex(ValueError, "1,961,400 prefixes.*ties"):
            process.update(process.initialize(), ties)
        # After the last level there is no next one to be too large.
        process = self.process(population, max_prefixes=1, alphabet=_wide(1_400))
        self.assertTrue(process.update(process.initialize(), ties).state.finished)
        # Whether max_prefixes is too large depends on the levels that there are.
        self.process(population, max_prefixes=10**9, max_depth=1)
        with self.assertRaisesRegex(ValueError, "1,000,000,000 prefixes"):
            self.process(
                self.population([{"a": 1}] * 20),
                max_prefixes=10**9,
                max_depth=20,
                clients_per_level=1,
            )

    def test_epsilon_too_small_for_the_domain(self):
        with self.assertRaisesRegex(ValueError, "epsilon is 1e-20"):
            self.process(self.population([{"a": 1}]), epsilon=1e-20)

    def test_word_outside_the_alphabet(self):
        with self.assertRaisesRegex(ValueError, "'xyz' has 'x'"):
            self.process(self.population([{"xyz": 1}]))

    def test_no_blocks(self):
        with self.assertRaisesRegex(ValueError, "num_blocks is 0"):
            self.process(self.population([{"a": 1}]), num_blocks=0)

    def test_cohort_and_finished_run(self):
        process = self.process(self.population([{"a": 1}] * 3))
        state = process.initialize()
        with self.assertRaisesRegex(ValueError, r"shape \(2,\).*\[3\]"):
            process.next(state, np.arange(2))
        with self.assertRaisesRegex(ValueError, r"\[0, 3\)"):
            process.next(state, np.array([0, 1, 3]))
        state = process.next(state, np.arange(3)).state
        with self.assertRaisesRegex(ValueError, "finished"):
            process.next(state, np.arange(3))


def _wide(size):
    """Returns an alphabet of so many characters, "a" the first of them."""
    return alphabet_lib.Alphabet("a" + "".join(map(chr, range(0x4E00, 0x4DFF + size))))


if __name__ == "__main__":
    absltest.main()
