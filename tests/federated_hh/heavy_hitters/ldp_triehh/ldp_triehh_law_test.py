"""Tests of LDP TrieHH against the laws of its reports, and of who takes part."""

import dataclasses
import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.heavy_hitters.ldp_triehh.parameters import Aggregation, ReportSampling
from federated_hh.rounds import samplers, steps
from tests.federated_hh.heavy_hitters.ldp_triehh import ldp_triehh_test_case as case


class LawTest(case.LdpTrieHHTestCase):
    def test_everyone_sends_as_many_reports(self):
        # 100 reports over 90 candidates and "no item" with epsilon 0.1 have 44 items
        # each, and no client has more than 4 of the 5 items it reports on. What is
        # missing from 100 times 44 is what the reports said of "no item", binomial
        # where nobody has an item; one report too few would shift it by 44, or 9
        # standard deviations. Two-sided test, false-alarm rate 1e-6.
        rng = np.random.default_rng(7)
        algorithm = self.algorithm(
            self.population([{}] * 20),
            case.NINE,
            contribution_bound=5,
            epsilon=0.1,
            report_sampling=ReportSampling.PER_REPORT,
        )
        randomizer = algorithm.parameters.randomizer(90)
        self.assertEqual(randomizer.subset_size, 44)
        votes = case.Level(algorithm).votes()
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
            case.NINE,
            contribution_bound=5,
            epsilon=40.0,
            report_sampling=ReportSampling.PER_REPORT,
        )
        votes = case.Level(algorithm).votes()
        expected = case.reference_votes(clients, range(20), set("abcdefghi"), 1, ())
        names = case.names_of_candidates(algorithm.initialize(0).trie)
        self.assertEqual(
            {n: v for n, v in zip(names, votes.tolist(), strict=True) if v},
            dict(expected),
        )

    def test_a_word_of_an_earlier_pass_is_not_found_again(self):
        # Nobody votes for it in the second pass, but noise may.
        population = self.population([{"a": 1}] * 6)
        algorithm = self.algorithm(population, cohort_size=3, num_passes=2)
        level = case.Level(algorithm)
        state = level.release(level.sums()).progress.state
        self.assertEqual([word.text for word in state.found], ["a"])
        self.assertEqual(state.pass_number, 2)
        names = case.names_of_candidates(state.trie)
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
            case.NINE,
            contribution_bound=4,
            epsilon=2.0,
            report_sampling=report_sampling,
        )
        names = case.names_of_candidates(algorithm.initialize(0).trie)
        level = case.Level(algorithm)
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
        level = case.Level(algorithm)
        sums = level.sums()
        z = {"a": [], "b": []}
        for repeat in range(runs):
            output = level.release(sums, repeat).progress
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


class ParticipationTest(case.LdpTrieHHTestCase):
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
                "sampler": case.RANDOM,
                "contribution_bound": 3,
            }
            | overrides,
        )

    def test_nobody_takes_part_twice(self):
        algorithm = self.small()
        place, levels = case.run(algorithm)
        self.assertLen(levels, 4)
        self.assertEqual(place.sampler_state.took_part.sum(), 80)
        rest = algorithm.plan.sampler.rest(4, steps.public_stream(1, 0))
        np.testing.assert_array_equal(
            rest, np.flatnonzero(~place.sampler_state.took_part)
        )
        by_hand = case.steps_of(algorithm)
        again = dataclasses.replace(place, rounds=0)
        with self.assertRaises(samplers.ClientTakesPartTwiceError):
            by_hand.draw(again)

    def test_seeds_differ(self):
        algorithm = self.small(max_depth=1, num_passes=1)
        first, second = (case.run(algorithm, seed=seed)[0] for seed in (1, 2))
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
            votes.append(case.Level(algorithm).votes())
        changed = np.abs(votes[0] - votes[1])
        self.assertGreater(np.count_nonzero(changed), 5)
        self.assertGreater(changed.max(), 2)

    def test_every_argument_changes_the_noise_and_none_the_cohorts(self):
        first = self.small(max_depth=1, num_passes=1)
        nobody = np.zeros(first.initialize(0).trie.num_candidates, np.int64)
        cohort = case.Level(first).drawn.cohort
        votes = [case.Level(first).release(nobody).released]
        for changes in (
            {"epsilon": 3.0 + 1e-9},
            {"sampler": case.GREEDY},
            {"max_prefixes": 11},
            {"num_blocks": 2},
            {"key": 2},
            {"key": 1 + 2**127},
            {"aggregation": Aggregation.EPHEMERAL},
            {"population": self.population([*self.clients[1:], self.clients[0]])},
        ):
            key = changes.pop("key", 1)
            other = self.small(**{"max_depth": 1, "num_passes": 1} | changes)
            np.testing.assert_array_equal(case.Level(other).drawn.cohort, cohort)
            votes.append(case.Level(other, key=key).release(nobody).released)
        # Of other cohorts, too: their sums are others.
        by_hand = case.steps_of(first, seed=2)
        place = by_hand.begin()
        drawn = by_hand.draw(place)
        query = first.next_query(place.state)
        votes.append(by_hand.update(place, query, drawn, nobody).released)
        self.assertLen(np.unique(votes, axis=0), len(votes))


if __name__ == "__main__":
    absltest.main()
