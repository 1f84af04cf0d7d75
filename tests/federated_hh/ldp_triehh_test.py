"""Tests of LDP TrieHH against plain Python and the laws of its reports."""

import collections
import dataclasses
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
from federated_hh import contributions, ldp_triehh
from federated_hh.ldp_triehh_parameters import (
    Aggregation,
    LdpTrieHHParameters,
    ReportSampling,
)
from federated_hh.randomizers import by_name, k_ary, local_randomizer, one_hot
from privacy import local_reports_plan
from randomness import noise_keys
from rounds import samplers, steps
from simulation import client_words, runtime

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

    def algorithm(self, population, alphabet=_ABC, **overrides):
        options = {"num_blocks": 3} | {
            name: overrides.pop(name)
            for name in ("num_blocks", "report_sampling", "aggregation")
            if name in overrides
        }
        parameters = {
            "cohort_size": population.num_clients,
            "max_depth": 1,
            "max_prefixes": 10,
            "contribution_bound": 8,
            "epsilon": math.inf,
            "sampler": _GREEDY,
        } | overrides
        return ldp_triehh.LdpTrieHH(
            population, LdpTrieHHParameters(**parameters), alphabet, **options
        )


def steps_of(algorithm, seed=1, key=1):
    noise_key = noise_keys.NoiseKey(key, is_secret=False)
    return steps.Steps(algorithm, seed=seed, noise_key=noise_key)


def run(algorithm, seed=1, key=1):
    """Runs all levels; returns where it ends, and all metrics."""
    by_hand, levels = steps_of(algorithm, seed, key), []
    place = by_hand.begin()
    while (query := algorithm.next_query(place.state)) is not None:
        drawn = by_hand.draw(place)
        total = by_hand.ask(place, query, drawn.cohort)
        step = by_hand.update(place, query, drawn, total)
        place = step.place
        levels.append(step.metrics)
    return place, levels


class Level:
    """A level that is run again and again, of the same clients."""

    def __init__(self, algorithm, state=None, cohort=None, key=1):
        self.by_hand = steps_of(algorithm, key=key)
        self.state = state or algorithm.initialize(0)
        self.query = algorithm.next_query(self.state)
        self.drawn = self.by_hand.draw(self.by_hand.begin())
        if cohort is not None:
            self.drawn = dataclasses.replace(self.drawn, cohort=cohort)

    def place(self, repeat):
        """Returns where a repeat begins: each has random numbers of its own."""
        return dataclasses.replace(self.by_hand.begin(repeat), state=self.state)

    def sums(self, repeat=0):
        """Returns what the clients' computations add up to."""
        return self.by_hand.ask(self.place(repeat), self.query, self.drawn.cohort)

    def release(self, sums, repeat=0):
        """Returns the votes that are released of that, and what they lead to."""
        return self.by_hand.update(self.place(repeat), self.query, self.drawn, sums)

    def votes(self, repeat=0):
        return self.release(self.sums(repeat), repeat).released


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
        algorithm = self.algorithm(
            self.population(clients),
            cohort_size=size,
            max_depth=depth,
            max_prefixes=max_prefixes,
            num_passes=num_passes,
            sampler=sampler,
            report_sampling=report_sampling,
            num_blocks=num_blocks,
        )
        by_hand = steps_of(algorithm, seed)
        place, found, number = by_hand.begin(), [], 0
        for pass_number in range(1, num_passes + 1):
            known = {word for word, *_ in found}
            prefixes = set("abc")
            for level in range(1, depth + 1):
                state = place.state
                self.assertEqual((state.pass_number, state.level), (pass_number, level))
                self.assertEqual(prefixes_of(state.trie), prefixes)
                query, drawn = algorithm.next_query(state), by_hand.draw(place)
                expected = reference_votes(
                    clients, drawn.cohort, prefixes, level, known
                )
                names = names_of_candidates(state.trie)
                votes = by_hand.ask(place, query, drawn.cohort)
                self.assertEqual(
                    {n: v for n, v in zip(names, votes.tolist(), strict=True) if v},
                    dict(expected),
                )
                place = by_hand.update(place, query, drawn, votes).place
                number += 1
                self.assertEqual(place.rounds, number)
                prefixes = reference_kept(expected, max_prefixes) if expected else set()
                found += sorted(
                    (prefix[:-1], pass_number, level, expected[prefix])
                    for prefix in prefixes
                    if prefix.endswith("$")
                )
                if not any(not prefix.endswith("$") for prefix in prefixes):
                    break
        state = place.state
        self.assertTrue(state.finished)
        self.assertIsNone(algorithm.next_query(state))
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
        algorithm = self.algorithm(
            self.population(clients),
            contribution_bound=3,
            sampler=sampler,
            num_blocks=num_blocks,
        )
        votes = Level(algorithm).votes()
        self.assertEqual(votes.sum(), sum(min(3, len(c)) for c in clients))

    @parameterized.parameters(
        (ReportSampling.AGGREGATE, 1.0),
        (ReportSampling.AGGREGATE, math.inf),
        (ReportSampling.PER_REPORT, 1.0),
    )
    def test_secure_sum_equals_ephemeral(self, report_sampling, epsilon):
        rng = np.random.default_rng(4)
        clients = [
            {a + b: 1 for a in "abc" for b in "abc" if rng.random() < 0.4}
            for _ in range(60)
        ]
        population = self.population(clients)
        levels = [
            Level(
                self.algorithm(
                    population,
                    cohort_size=30,
                    epsilon=epsilon,
                    report_sampling=report_sampling,
                    aggregation=aggregation,
                )
            )
            for aggregation in Aggregation
        ]
        # Their random numbers differ, as their plans do: the sums of true items do not.
        if math.isinf(epsilon) or report_sampling is ReportSampling.AGGREGATE:
            np.testing.assert_array_equal(levels[0].sums(), levels[1].sums())
        else:
            for level in levels:
                # Reports of 4 of the 12 candidates and "no item".
                self.assertBetween(level.sums().sum(), 30 * 8 * 3, 30 * 8 * 4)

    @parameterized.product(
        aggregation=list(Aggregation), report_sampling=list(ReportSampling)
    )
    def test_which_sum_the_worker_is_given(self, aggregation, report_sampling):
        algorithm = self.algorithm(
            self.population([{"a": 1}] * 6),
            report_sampling=report_sampling,
            aggregation=aggregation,
        )
        compile_, compiled = runtime._compile, []

        def recorded(computation):
            compiled.append(computation.to_building_block().compact_representation())
            return compile_(computation)

        with mock.patch.object(runtime, "_compile", recorded), runtime.tff_worker():
            Level(algorithm).votes()
        is_secure = ["federated_secure_sum" in text for text in compiled]
        in_the_open = ["federated_sum" in text for text in compiled]
        self.assertEqual(is_secure, [aggregation is Aggregation.SECURE_SUM])
        self.assertEqual(in_the_open, [aggregation is Aggregation.EPHEMERAL])

    @parameterized.parameters(([{}] * 6,), ([{"aaaa": 1}] * 6,))
    def test_nobody_has_an_item(self, clients):
        # Without words at all, and with words that a second level never learned.
        population = self.population(clients)
        for report_sampling in ReportSampling:
            for epsilon in (1.0, math.inf):
                algorithm = self.algorithm(
                    population,
                    cohort_size=3,
                    max_depth=2,
                    epsilon=epsilon,
                    report_sampling=report_sampling,
                )
                state = algorithm.initialize(0)
                state = dataclasses.replace(
                    state, trie=state.trie.extend(np.array([5]), np.array([1]))
                )
                votes = Level(algorithm, state, np.array([0, 2, 5])).votes()
                self.assertLen(votes, 4)
                if math.isinf(epsilon):
                    self.assertEqual(votes.sum(), 0)
                else:
                    # Reports of 2 of the 4 candidates and "no item".
                    self.assertBetween(votes.sum(), 24, 48)


class LevelsTest(LdpTrieHHTestCase):
    def test_first_trie_is_the_alphabet(self):
        state = self.algorithm(self.population([{"a": 1}])).initialize(0)
        self.assertEqual(prefixes_of(state.trie), set("abc"))
        self.assertEqual(state.level, 1)
        self.assertEqual(state.trie.num_candidates, 12)

    def test_fifteen_levels_complete_words_of_fifteen_letters(self):
        words = ["a", "ab", "c" * 14, "b" * 15, "a" * 16]
        algorithm = self.algorithm(
            self.population([{word: 1 for word in words}] * 30),
            cohort_size=2,
            max_depth=15,
            max_prefixes=20,
        )
        place, levels = run(algorithm)
        self.assertEqual(
            {word.text: word.level for word in place.state.found},
            {"a": 1, "ab": 2, "c" * 14: 14, "b" * 15: 15},
        )
        table = algorithm.results(place.state)["heavy_hitters"]
        self.assertEqual(
            dict(zip(table["word"], table["level"], strict=True)),
            {"a": 1, "ab": 2, "c" * 14: 14, "b" * 15: 15},
        )
        self.assertEqual(table["estimate"].tolist(), [2.0] * 4)
        self.assertLen(levels, 15)
        self.assertEqual([m["level"] for m in levels], list(range(1, 16)))
        self.assertEqual(place.places.took_part.sum(), 30)

    def test_later_passes_look_for_other_words(self):
        # Two prefixes a level: the two most frequent words, then the next two.
        clients = [{"aa": 1, "bb": 1, "cc": 1, "ab": 1}] * 40
        clients = [
            {w: n for w, n in c.items() if w in ("aa", "bb") or i % 2}
            for i, c in enumerate(clients)
        ]
        algorithm = self.algorithm(
            self.population(clients),
            cohort_size=10,
            max_depth=2,
            max_prefixes=2,
            num_passes=2,
        )
        place, _ = run(algorithm)
        self.assertEqual(
            {word.text: word.pass_number for word in place.state.found},
            {"aa": 1, "bb": 1, "cc": 2, "ab": 2},
        )

    def test_metrics(self):
        algorithm = self.algorithm(self.population([{"ab": 1, "a": 1}, {"ab": 2}]))
        _, [metrics] = run(algorithm)
        self.assertEqual(
            metrics,
            {
                "pass_number": 1,
                "level": 1,
                "clients": 2,
                "reports": 16,
                "candidates": 12,
                "least_votes_kept": 1,
                "prefixes_kept": 2,
                "words_found": 1,
                "prefixes_in_noise": 0,
                "words_released": 1,
                "expected_false_words": 0.0,
                "noise_standard_deviation": 0.0,
                "least_estimate_kept": 1.0,
            },
        )
        self.assertEqual(
            algorithm.progress(metrics),
            "pass 1 of 1, level 1 of 1: 2 of 12 candidates kept, 1 words found, 1 "
            "released, at most 0.0 of them expected to be noise",
        )

    def test_metrics_say_how_strong_the_noise_is(self):
        # 40 reports over 12 candidates and "no item", by the formulas of Wang et al.
        # 2017 for a symmetric encoding: q (1 - q) / (p - q)^2 a report.
        algorithm = self.algorithm(
            self.population([{"a": 1}] * 10),
            contribution_bound=4,
            epsilon=1.0,
            make_randomizer=one_hot.SymmetricOneHotEncoding,
        )
        votes = np.array([30] * 5 + [9] * 7)
        _, metrics = algorithm.update(algorithm.initialize(0), votes)
        p = math.e / (1 + math.e)
        deviation = math.sqrt(40 * p * (1 - p)) / (2 * p - 1)
        self.assertAlmostEqual(metrics["noise_standard_deviation"], deviation)
        estimate = (metrics["least_votes_kept"] - 40 * (1 - p)) / (2 * p - 1)
        self.assertAlmostEqual(metrics["least_estimate_kept"], estimate)

    def test_words_inside_the_noise_are_not_released(self):
        # The estimate of the weakest word is 2 of its standard errors by the formulas
        # of Wang et al. 2017, of the next one 4.
        algorithm = self.algorithm(
            self.population([{"a": 1}] * 100),
            cohort_size=100,
            contribution_bound=4,
            epsilon=1.0,
            make_randomizer=one_hot.SymmetricOneHotEncoding,
        )
        p = math.e / (1 + math.e)

        def votes_of(errors):
            # Own and other reports have the same variance in this encoding.
            return 400 * (1 - p) + errors * math.sqrt(400 * p * (1 - p))

        votes = np.zeros(12, np.int64)
        votes[[3, 7, 11]] = [round(votes_of(e)) for e in (2, 4, 9)]
        votes[2] = round(votes_of(2.5))
        state, metrics = algorithm.update(algorithm.initialize(0), votes)
        self.assertEqual({word.text for word in state.found}, set("abc"))
        released = algorithm.results(state)["heavy_hitters"]
        self.assertEqual(released["word"].tolist(), ["c", "b"])
        self.assertEqual(metrics["words_found"], 3)
        self.assertEqual(metrics["words_released"], 2)
        self.assertEqual(metrics["prefixes_kept"], 4)
        self.assertEqual(metrics["prefixes_in_noise"], 2)
        # Three candidates for a word, each with a binomial number of votes.
        cut = math.ceil(votes_of(3))
        tail = sum(
            math.comb(400, v) * (1 - p) ** v * p ** (400 - v) for v in range(cut, 401)
        )
        self.assertAlmostEqual(metrics["expected_false_words"], 3 * tail)
        every = dataclasses.replace(algorithm.parameters, min_standard_errors=0.0)
        whole = ldp_triehh.LdpTrieHH(algorithm.population, every, _ABC, num_blocks=3)
        _, metrics = whole.update(whole.initialize(0), votes)
        self.assertEqual(metrics["words_released"], 3)
        self.assertEqual(metrics["prefixes_in_noise"], 2)
        self.assertLen(whole.results(state)["heavy_hitters"], 3)

    def test_expected_false_words_are_those_of_runs_without_words(self):
        # Nobody holds anything, so that all that is found is noise: 3 passes of 4
        # levels. What is known from earlier passes is not found again.
        clients = [{"a" * 9: 1}] * 1200
        algorithm = self.algorithm(
            self.population(clients),
            _NINE,
            cohort_size=100,
            max_depth=4,
            max_prefixes=60,
            contribution_bound=3,
            num_passes=3,
            epsilon=2.0,
            min_standard_errors=1.5,
        )
        random = np.random.default_rng(5)
        expected, seen = [], []
        for _ in range(40):
            state = algorithm.initialize(0)
            while (query := algorithm.next_query(state)) is not None:
                size = query.facts[local_reports_plan.CANDIDATES]
                randomizer = algorithm.parameters.randomizer(size)
                histogram = np.zeros(size + 1, np.int64)
                histogram[-1] = 300
                votes = randomizer.sum_of_reports(histogram, int(random.integers(1e9)))
                state, metrics = algorithm.update(state, votes[:size])
                expected.append(metrics["expected_false_words"])
                seen.append(metrics["words_released"])
        # The sum of independent, rare events is nearly Poisson, whose variance is its
        # mean: six standard deviations, a false alarm below 1e-8.
        self.assertGreater(sum(expected), 400)
        self.assertLess(abs(sum(seen) - sum(expected)), 6 * math.sqrt(sum(expected)))

    def test_ties_at_the_last_place_are_kept(self):
        algorithm = self.algorithm(self.population([{"a": 1}]), max_prefixes=3)
        votes = np.array([0, 5, 3, 9, 3, 3, 1, 0, 0, 0, 0, 0])
        state, metrics = algorithm.update(algorithm.initialize(0), votes)
        self.assertEqual(metrics["least_votes_kept"], 3)
        self.assertEqual(metrics["prefixes_kept"], 5)
        self.assertEqual({word.text: word.votes for word in state.found}, {"a": 9})

    @parameterized.parameters(math.inf, 2.0)
    def test_a_tie_at_no_votes_is_not_kept(self, epsilon):
        algorithm = self.algorithm(
            self.population([{"a": 1}]), max_prefixes=3, epsilon=epsilon
        )
        votes = np.array([0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0])
        _, metrics = algorithm.update(algorithm.initialize(0), votes)
        self.assertEqual(metrics["prefixes_kept"], 2)


class LawTest(LdpTrieHHTestCase):
    def test_everyone_sends_as_many_reports(self):
        # 100 reports over 90 candidates and "no item" with epsilon 0.1 have 44 items
        # each, and no client has more than 4 of the 5 items it reports on. What is
        # missing from 100 times 44 is what the reports said of "no item", binomial
        # where nobody has an item; one report too few would shift it by 44, or 9
        # standard deviations. Two-sided test, false-alarm rate 1e-6.
        rng = np.random.default_rng(7)
        algorithm = self.algorithm(
            self.population([{}] * 20),
            _NINE,
            contribution_bound=5,
            epsilon=0.1,
            report_sampling=ReportSampling.PER_REPORT,
        )
        randomizer = algorithm.parameters.randomizer(90)
        self.assertEqual(randomizer.subset_size, 44)
        votes = Level(algorithm).votes()
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
        algorithm = self.algorithm(
            self.population(clients),
            _NINE,
            contribution_bound=5,
            epsilon=40.0,
            report_sampling=ReportSampling.PER_REPORT,
        )
        votes = Level(algorithm).votes()
        expected = reference_votes(clients, range(20), set("abcdefghi"), 1, ())
        names = names_of_candidates(algorithm.initialize(0).trie)
        self.assertEqual(
            {n: v for n, v in zip(names, votes.tolist(), strict=True) if v},
            dict(expected),
        )

    def test_a_word_of_an_earlier_pass_is_not_found_again(self):
        # Nobody votes for it in the second pass, but noise may.
        population = self.population([{"a": 1}] * 6)
        algorithm = self.algorithm(population, cohort_size=3, num_passes=2)
        level = Level(algorithm)
        state = level.release(level.sums()).place.state
        self.assertEqual([word.text for word in state.found], ["a"])
        self.assertEqual(state.pass_number, 2)
        names = names_of_candidates(state.trie)
        votes = np.zeros(len(names), np.int64)
        votes[[names.index("a$"), names.index("b$")]] = (3, 2)
        found = algorithm.update(state, votes)[0].found
        words = [(word.text, word.pass_number) for word in found if word.votes]
        self.assertEqual(words, [("a", 1), ("b", 2)])

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
        algorithm = self.algorithm(
            population,
            _NINE,
            contribution_bound=4,
            epsilon=2.0,
            report_sampling=report_sampling,
        )
        names = names_of_candidates(algorithm.initialize(0).trie)
        level = Level(algorithm)
        rows = [level.votes(repeat) for repeat in range(runs)]
        randomizer = algorithm.parameters.randomizer(90)
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
        algorithm = self.algorithm(
            population, contribution_bound=3, epsilon=1.0, max_prefixes=12
        )
        level = Level(algorithm)
        sums = level.sums()
        z = {"a": [], "b": []}
        for repeat in range(runs):
            output = level.release(sums, repeat).place
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
        return self.algorithm(
            population or self.population(self.clients),
            **{
                "cohort_size": 20,
                "max_depth": 2,
                "num_passes": 2,
                "epsilon": 3.0,
                "sampler": _RANDOM,
                "contribution_bound": 3,
            }
            | overrides,
        )

    def test_nobody_takes_part_twice(self):
        algorithm = self.small()
        place, levels = run(algorithm)
        self.assertLen(levels, 4)
        self.assertEqual(place.places.took_part.sum(), 80)
        rest = algorithm.plan.sampler.rest(4, steps.public_stream(1, 0))
        np.testing.assert_array_equal(rest, np.flatnonzero(~place.places.took_part))
        by_hand = steps_of(algorithm)
        again = dataclasses.replace(place, rounds=0)
        with self.assertRaises(samplers.ClientTakesPartTwiceError):
            by_hand.draw(again)

    def test_seeds_differ(self):
        algorithm = self.small(max_depth=1, num_passes=1)
        first, second = (run(algorithm, seed=seed)[0] for seed in (1, 2))
        self.assertNotEqual(first.state.found, second.state.found)

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
            algorithm = self.small(
                population=self.population(clients),
                cohort_size=90,
                max_depth=1,
                num_passes=1,
                contribution_bound=4,
                report_sampling=report_sampling,
            )
            votes.append(Level(algorithm).votes())
        changed = np.abs(votes[0] - votes[1])
        self.assertGreater(np.count_nonzero(changed), 5)
        self.assertGreater(changed.max(), 2)

    def test_every_argument_changes_the_noise_and_none_the_cohorts(self):
        first = self.small(max_depth=1, num_passes=1)
        nobody = np.zeros(first.initialize(0).trie.num_candidates, np.int64)
        cohort = Level(first).drawn.cohort
        votes = [Level(first).release(nobody).released]
        for changes in (
            {"epsilon": 3.0 + 1e-9},
            {"sampler": _GREEDY},
            {"max_prefixes": 11},
            {"num_blocks": 2},
            {"key": 2},
            {"key": 1 + 2**127},
            {"aggregation": Aggregation.EPHEMERAL},
            {"population": self.population([*self.clients[1:], self.clients[0]])},
        ):
            key = changes.pop("key", 1)
            other = self.small(**{"max_depth": 1, "num_passes": 1} | changes)
            np.testing.assert_array_equal(Level(other).drawn.cohort, cohort)
            votes.append(Level(other, key=key).release(nobody).released)
        # Of other cohorts, too: their sums are others.
        by_hand = steps_of(first, seed=2)
        place = by_hand.begin()
        drawn = by_hand.draw(place)
        query = first.next_query(place.state)
        votes.append(by_hand.update(place, query, drawn, nobody).released)
        self.assertLen(np.unique(votes, axis=0), len(votes))


class _MirroredResponse(k_ary.KAryRandomizedResponse):
    """A randomizer of a user's, with only what the interface asks for."""

    _sum_of_reports = local_randomizer.LocalRandomizer._sum_of_reports


class _DearInLargeDomains(one_hot.AsymmetricOneHotEncoding):
    @property
    def guarantee(self):
        epsilon = self.epsilon * (2 if self.domain_size > 13 else 1)
        return dataclasses.replace(super().guarantee, replacement_epsilon=epsilon)


class RandomizersTest(LdpTrieHHTestCase):
    @parameterized.product(
        make_randomizer=[*by_name.NAMES.values(), _MirroredResponse],
        report_sampling=list(ReportSampling),
    )
    def test_votes_have_the_randomizers_law(self, make_randomizer, report_sampling):
        # 2,000 reports of epsilon 3; "ab" is held by 500 of 1,000 clients, "ba" by
        # nobody. Votes are sums of two binomials, near enough to normal: two-sided
        # tests at 1e-6, of which a dozen are made.
        clients = [{"aa": 1} | ({"ab": 1} if i % 2 else {}) for i in range(1_000)]
        algorithm = self.algorithm(
            self.population(clients),
            contribution_bound=2,
            epsilon=3.0,
            make_randomizer=make_randomizer,
            report_sampling=report_sampling,
        )
        votes = Level(algorithm).votes()
        names = names_of_candidates(algorithm.initialize(0).trie)
        chances = {
            by_name.NAMES["k_ary"]: (1 / (1 + 12 * math.exp(-3)), None),
            _MirroredResponse: (1 / (1 + 12 * math.exp(-3)), None),
            by_name.NAMES["symmetric_one_hot"]: (
                1 / (1 + math.exp(-3)),
                1 / (1 + math.exp(3)),
            ),
            by_name.NAMES["asymmetric_one_hot"]: (0.5, 1 / (1 + math.exp(3))),
            # In one of 1,024 cases two items have one cell.
            by_name.NAMES["count_mean_sketch"]: (
                1 / (1 + math.exp(-1.5)),
                1 / (1 + math.exp(1.5)) * 1023 / 1024 + 1 / (1 + math.exp(-1.5)) / 1024,
            ),
            # One of 13 items: ceil(13 / (e^3 + 1)).
            by_name.NAMES["subset_selection"]: (1 / (1 + 12 * math.exp(-3)), None),
        }
        own, other = chances[make_randomizer]
        other = (1 - own) / 12 if other is None else other
        for name, count in (("ab", 500), ("ba", 0)):
            mean = count * own + (2_000 - count) * other
            variance = count * own * (1 - own)
            variance += (2_000 - count) * other * (1 - other)
            z = (votes[names.index(name)] - mean) / math.sqrt(variance)
            self.assertGreater(2 * stats.norm.sf(abs(z)), 1e-6, name)

    def test_words_are_found_from_any_randomizers_reports(self):
        # With epsilon 8 the weakest word stands out by more than ten deviations.
        population = self.population([{"ab": 1, "c": 1}] * 1_200)
        for make_randomizer in by_name.NAMES.values():
            algorithm = self.algorithm(
                population,
                cohort_size=600,
                max_depth=2,
                max_prefixes=3,
                contribution_bound=2,
                epsilon=8.0,
                make_randomizer=make_randomizer,
            )
            found = {word.text for word in run(algorithm)[0].state.found}
            self.assertContainsSubset({"ab", "c"}, found, make_randomizer)

    def test_the_plan_says_what_is_known_of_the_randomizer(self):
        population = self.population([{"a": 1}] * 4)
        for name, make_randomizer in by_name.NAMES.items():
            reports = self.algorithm(
                population, epsilon=2.0, make_randomizer=make_randomizer
            ).plan.contribution
            self.assertIsInstance(reports, local_reports_plan.LocalReports)
            factor = 2 if name == "symmetric_one_hot" else 1
            self.assertEqual(reports.replacement_epsilon, factor * 2.0)
            self.assertEqual(reports.name is None, name == "subset_selection")

    def test_a_randomizer_that_costs_more_than_planned_is_refused(self):
        algorithm = self.algorithm(
            self.population([{"a": 1}] * 4),
            max_prefixes=100,
            cohort_size=2,
            max_depth=2,
            epsilon=2.0,
            make_randomizer=_DearInLargeDomains,
        )
        state, _ = algorithm.update(algorithm.initialize(0), np.ones(12, np.int64))
        with self.assertRaisesRegex(ValueError, "36 candidates .* 4; the plan has 2"):
            algorithm.next_query(state)

    @parameterized.parameters(
        ("hadamard", "it has to be one of subset_selection"),
        ("no.such.module:Class", "has to be module:Class"),
        ("federated_hh.randomizers.k_ary:Other", "has to be module:Class"),
        ("fractions:Fraction", "which is not a local randomizer"),
        (
            "federated_hh.randomizers.local_randomizer:LocalRandomizer",
            "leaves no method of it open",
        ),
    )
    def test_names_of_randomizers(self, name, message):
        with self.assertRaisesRegex(ValueError, message):
            by_name.randomizer(name)


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
        ("cohort_size", 0),
        ("max_depth", 0),
        ("num_passes", -1),
    )
    def test_parameters(self, name, value):
        with self.assertRaisesRegex(ValueError, f"{name}.*{value}"):
            self.algorithm(self.population([{"a": 1}]), **{name: value})

    def test_too_few_clients(self):
        population = self.population([{"a": 1}] * 100)
        with self.assertRaisesRegex(ValueError, "need 120 clients.* has 100"):
            self.algorithm(population, cohort_size=20, max_depth=3, num_passes=2)
        self.algorithm(population, cohort_size=20, max_depth=5)

    def test_padding_beyond_the_integers(self):
        population = self.population([{"a": 1}] * 4)
        options = {"num_blocks": 1, "report_sampling": ReportSampling.PER_REPORT}
        with self.assertRaisesRegex(ValueError, r"contribution_bound.*more blocks"):
            self.algorithm(population, contribution_bound=2**29, epsilon=1.0, **options)
        options["num_blocks"] = 2
        self.algorithm(population, contribution_bound=2**29, epsilon=1.0, **options)
        with self.assertRaisesRegex(ValueError, "contribution_bound.*a sum can count"):
            self.algorithm(population, contribution_bound=2**60, epsilon=1.0)

    def test_too_many_candidates(self):
        population = self.population([{"a": 1}])
        with self.assertRaisesRegex(ValueError, "at most 2,147,483,646"):
            self.algorithm(
                population, max_depth=1, max_prefixes=1, alphabet=_wide(46_341)
            )
        # With so many characters each level alone is large, and ties make it larger.
        ties = np.ones(1_400 * 1_401, np.int64)
        algorithm = self.algorithm(
            self.population([{"a": 1}] * 2),
            max_prefixes=1,
            alphabet=_wide(1_400),
            max_depth=2,
            cohort_size=1,
        )
        with self.assertRaisesRegex(ValueError, "1,961,400 prefixes.*ties"):
            algorithm.update(algorithm.initialize(0), ties)
        # After the last level there is no next one to be too large.
        algorithm = self.algorithm(population, max_prefixes=1, alphabet=_wide(1_400))
        self.assertTrue(algorithm.update(algorithm.initialize(0), ties)[0].finished)
        # Whether max_prefixes is too large depends on the levels that there are.
        self.algorithm(population, max_prefixes=10**9, max_depth=1)
        with self.assertRaisesRegex(ValueError, "1,000,000,000 prefixes"):
            self.algorithm(
                self.population([{"a": 1}] * 20),
                max_prefixes=10**9,
                max_depth=20,
                cohort_size=1,
            )

    def test_epsilon_too_small_for_the_domain(self):
        with self.assertRaisesRegex(ValueError, "epsilon is 1e-20"):
            self.algorithm(self.population([{"a": 1}]), epsilon=1e-20)

    def test_word_outside_the_alphabet(self):
        with self.assertRaisesRegex(ValueError, "'xyz' has 'x'"):
            self.algorithm(self.population([{"xyz": 1}]))

    def test_no_blocks(self):
        with self.assertRaisesRegex(ValueError, "num_blocks is 0"):
            self.algorithm(self.population([{"a": 1}]), num_blocks=0)


def _wide(size):
    """Returns an alphabet of so many characters, "a" the first of them."""
    return alphabet_lib.Alphabet("a" + "".join(map(chr, range(0x4E00, 0x4DFF + size))))


if __name__ == "__main__":
    absltest.main()
