"""Tests of LDP TrieHH's levels against plain Python."""

import dataclasses
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh.parameters import Aggregation, ReportSampling
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.randomizers import one_hot
from federated_hh.runtime import runtime
from federated_hh.runtime.worker import worker_context
from tests.federated_hh.heavy_hitters.ldp_triehh import ldp_triehh_test_case as case


class EqualityTest(case.LdpTrieHHTestCase):
    @settings(derandomize=True, max_examples=12, deadline=None)
    @given(
        case.CLIENTS,
        st.integers(1, 6),
        st.sampled_from([(1, 3), (2, 2), (2, 4), (3, 1), (3, 3)]),
        st.sampled_from([case.GREEDY, case.RANDOM]),
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
        by_hand = case.steps_of(algorithm, seed)
        place, found, number = by_hand.begin(), [], 0
        for pass_number in range(1, num_passes + 1):
            known = {word for word, *_ in found}
            prefixes = set("abc")
            for level in range(1, depth + 1):
                state = place.state
                self.assertEqual((state.pass_number, state.level), (pass_number, level))
                self.assertEqual(case.prefixes_of(state.trie), prefixes)
                query, drawn = algorithm.next_query(state), by_hand.draw(place)
                expected = case.reference_votes(
                    clients, drawn.cohort, prefixes, level, known
                )
                names = case.names_of_candidates(state.trie)
                votes = by_hand.ask(place, query, drawn.cohort)
                self.assertEqual(
                    {n: v for n, v in zip(names, votes.tolist(), strict=True) if v},
                    dict(expected),
                )
                place = by_hand.update(place, query, drawn, votes).progress
                number += 1
                self.assertEqual(place.rounds, number)
                prefixes = (
                    case.reference_kept(expected, max_prefixes) if expected else set()
                )
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

    @parameterized.product(sampler=[case.GREEDY, case.RANDOM], num_blocks=[1, 3, 20])
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
        votes = case.Level(algorithm).votes()
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
            case.Level(
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
        compile_, compiled = worker_context._compile, []

        def recorded(computation):
            compiled.append(computation.to_building_block().compact_representation())
            return compile_(computation)

        patched = mock.patch.object(worker_context, "_compile", recorded)
        with patched, runtime.tff_worker():
            case.Level(algorithm).votes()
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
                votes = case.Level(algorithm, state, np.array([0, 2, 5])).votes()
                self.assertLen(votes, 4)
                if math.isinf(epsilon):
                    self.assertEqual(votes.sum(), 0)
                else:
                    # Reports of 2 of the 4 candidates and "no item".
                    self.assertBetween(votes.sum(), 24, 48)


class LevelsTest(case.LdpTrieHHTestCase):
    def test_first_trie_is_the_alphabet(self):
        state = self.algorithm(self.population([{"a": 1}])).initialize(0)
        self.assertEqual(case.prefixes_of(state.trie), set("abc"))
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
        place, levels = case.run(algorithm)
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
        self.assertEqual(place.sampler_state.took_part.sum(), 30)

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
        place, _ = case.run(algorithm)
        self.assertEqual(
            {word.text: word.pass_number for word in place.state.found},
            {"aa": 1, "bb": 1, "cc": 2, "ab": 2},
        )

    def test_metrics(self):
        algorithm = self.algorithm(self.population([{"ab": 1, "a": 1}, {"ab": 2}]))
        _, [metrics] = case.run(algorithm)
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
            "2 of 12 prefixes kept; 1 word of length 1 found (fewer than 0.1 expected "
            "to be false)",
        )
        row = metrics | {"prefixes_kept": 1547, "expected_false_words": 1.23}
        self.assertRegex(
            algorithm.progress(row | {"words_released": 1200}),
            r"^1,547 of 12 .* kept \(1,\d+ more than --max_prefixes, by ties\); 1,200 "
            r".* \(at most 1.2 expected to be false\)$",
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
        whole = ldp_triehh.LdpTrieHH(
            algorithm.population, every, case.ABC, num_blocks=3
        )
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
            case.NINE,
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


if __name__ == "__main__":
    absltest.main()
