"""Tests of OptPrefixTree: its numbering, its choices, and the law of what it asks.

Randomized tests have a false-alarm rate of 1e-6 each.
"""

import itertools
import math
import os

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters.opt_prefix_tree import algorithm as opt_prefix_tree
from federated_hh.heavy_hitters.opt_prefix_tree import options as options_lib
from federated_hh.heavy_hitters.opt_prefix_tree import segments
from federated_hh.options import fields
from federated_hh.populations.columns import client_words
from federated_hh.privacy.guarantee import Unit
from federated_hh.privacy.local import vote_law
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import steps

_FALSE_ALARM = 1e-6
_END = 3


class SegmentTest(parameterized.TestCase):
    @parameterized.parameters(
        *itertools.product((1, 2, 3), (False, True)),
    )
    def test_every_string_has_its_number(self, length, is_last):
        """Strings are listed by hand: all that are words' ends or may go on."""
        listed = []
        for symbols in itertools.product(range(_END + 1), repeat=length):
            ends = [i for i, symbol in enumerate(symbols) if symbol == _END]
            goes_on = not ends and not is_last
            if goes_on or (ends and set(symbols[ends[0] :]) == {_END}):
                listed.append(symbols)
        segment = segments.Segment(_END, length, is_last)
        self.assertEqual(segment.size, len(listed))
        codes = np.array(listed, np.uint16)
        np.testing.assert_array_equal(segment.numbers(codes), np.arange(len(listed)))
        np.testing.assert_array_equal(segment.codes(np.arange(len(listed))), codes)

    def test_a_word_longer_than_the_last_segment_has_no_number(self):
        segment = segments.Segment(_END, 2, True)
        found = segment.numbers(np.array([[0, 1], [0, _END], [_END, 4]], np.uint16))
        self.assertEqual(found[0], -1)
        self.assertTrue((found[1:] >= 0).all())


class AlgorithmTestCase(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = self.create_tempdir().full_path
        self.populations = 0

    def algorithm(self, clients, characters="abc", **options):
        """Returns one over clients, each a list of (word, count)."""
        self.populations += 1
        population = client_words.ClientWords.from_rows(
            os.path.join(self.scratch, str(self.populations)),
            [(str(i), words) for i, words in enumerate(clients)],
        )
        values = {"epsilon": math.inf, "max_depth": 4, "num_rounds": 3}
        return opt_prefix_tree.OptPrefixTree(
            population,
            options_lib.OptPrefixTreeOptions(**values | options),
            alphabet_lib.Alphabet(characters),
            population_has_empty_users=True,
        )

    def run_all(self, algorithm, seed=1):
        """Returns the last state, and each round's candidates, sum and metrics."""
        by_hand = steps.Steps(
            algorithm, seed=seed, noise_key=noise_keys.NoiseKey(seed, is_secret=False)
        )
        progress, rounds = by_hand.begin(), []
        with algorithm.worker():
            while (query := algorithm.next_query(progress.state)) is not None:
                drawn = by_hand.draw(progress)
                total = by_hand.ask(progress, query, drawn.cohort)
                step = by_hand.update(progress, query, drawn, total)
                rounds.append((query.facts["candidates"], total, step.metrics))
                progress = step.progress
        return progress.state, rounds


class FindingTest(AlgorithmTestCase):
    def test_finds_all_words_without_privacy(self):
        words = ["a", "ab", "abc", "cccc", "bca"]
        algorithm = self.algorithm(
            [[(word, 1)] for word in words * 30] + [[]] * 30, num_rounds=2
        )
        state, _ = self.run_all(algorithm)
        self.assertCountEqual([word.text for word in state.found], words)
        table = algorithm.results(state)["heavy_hitters"]
        lengths = dict(zip(table["word"], table["characters"], strict=True))
        self.assertEqual(lengths, {word: len(word) for word in words})

    def test_a_longer_word_is_not_found_as_its_beginning(self):
        algorithm = self.algorithm([[("abcab", 1)]] * 20 + [[("abca", 1)]] * 20)
        state, _ = self.run_all(algorithm)
        self.assertEqual([word.text for word in state.found], ["abca"])

    def test_segments_fill_the_candidates(self):
        """3 characters and the end: 4, 13 and 40 strings of 1, 2 and 3 symbols."""
        clients = [[("aaaa", 1)], [("bbbb", 1)]] * 30
        for most, expected in ((4, [4, 4]), (13, [13, 26]), (40, [40, 26])):
            algorithm = self.algorithm(clients, max_candidates=most, num_rounds=2)
            _, rounds = self.run_all(algorithm)
            self.assertEqual(rounds[0][0], expected[0])
            self.assertLessEqual(rounds[1][0], most)

    def test_no_more_prefixes_go_on_than_candidates_allow(self):
        clients = [[(first + "a" * 3, 1)] for first in "abc"] * 20
        algorithm = self.algorithm(clients, max_candidates=8)
        _, rounds = self.run_all(algorithm)
        self.assertEqual(rounds[0][2]["prefixes_kept"], 2)

    def test_a_second_pass_leaves_out_found_words(self):
        # Of two words every client reports the more frequent, and then the other.
        clients = [[("ab", 5), ("cb", 1)]] * 60
        found = {}
        for passes in (1, 2):
            algorithm = self.algorithm(
                clients,
                num_passes=passes,
                selection="most_frequent",
                num_rounds=2,
            )
            state, rounds = self.run_all(algorithm)
            found[passes] = [word.text for word in state.found]
        self.assertEqual(found[1], ["ab"])
        # The favorite is denied, and the client has no other favorite.
        self.assertEqual(found[2], ["ab"])
        self.assertEqual(int(rounds[-1][1].sum()), 0)
        algorithm = self.algorithm(clients, num_passes=2, num_rounds=2)
        state, _ = self.run_all(algorithm)
        self.assertCountEqual([word.text for word in state.found], ["ab", "cb"])


class LawTest(AlgorithmTestCase):
    @parameterized.parameters(
        ("uniform", (1 / 3, 1 / 3, 1 / 3)),
        ("by_frequency", (0.6, 0.3, 0.1)),
        ("most_frequent", (1.0, 0.0, 0.0)),
    )
    def test_a_client_chooses_by_its_rule(self, selection, law):
        clients = 3000
        algorithm = self.algorithm(
            [[("a", 6), ("b", 3), ("c", 1)]] * clients,
            selection=selection,
            num_rounds=1,
        )
        _, rounds = self.run_all(algorithm)
        votes = rounds[0][1]
        segment = algorithm.segment(algorithm.initialize(0))
        ends = np.full((3, segment.length), _END, np.uint16)
        ends[:, 0] = [0, 1, 2]
        chosen = votes[segment.numbers(ends)]
        self.assertEqual(int(chosen.sum()), clients)
        for number, share in zip(chosen, law, strict=True):
            low, high = stats.binom.interval(1 - _FALSE_ALARM / 3, clients, share)
            self.assertBetween(number, low, high)

    @parameterized.parameters("aggregate", "per_report")
    def test_votes_have_the_law_of_randomized_response(self, report_sampling):
        clients = 4000
        words = [[("a", 1)]] * 3000 + [[]] * 1000
        algorithm = self.algorithm(
            words,
            epsilon=5.0,
            randomizer="k_ary",
            report_sampling=report_sampling,
            num_rounds=1,
            max_depth=1,
        )
        _, ((candidates, votes, _),) = self.run_all(algorithm)
        if report_sampling == "aggregate":  # the sum is of true items
            facts = {"candidates": candidates, "reports": clients}
            reports = algorithm.plan.contribution
            votes = reports.reported(votes, facts, streams.Stream(3))
        # "No item" is a value more.
        lie = 1 / (math.exp(5) + candidates)
        segment = algorithm.segment(algorithm.initialize(0))
        word = np.full((1, segment.length), _END, np.uint16)
        word[0, 0] = 0
        place = int(segment.numbers(word)[0])
        expected = np.full(candidates, clients * lie)
        expected[place] = 3000 * math.exp(5) * lie + 1000 * lie
        deviation = np.sqrt(expected) + 1
        self.assertLess(np.abs((votes - expected) / deviation).max(), 6)

    def test_the_least_votes_are_the_fewest_with_few_false(self):
        algorithm = self.algorithm([[("a", 1)]] * 3, false_share=0.2)
        law = vote_law.VoteLaw(num_reports=1000, own=0.5, other=0.01)
        votes = np.random.default_rng(1).binomial(1000, 0.01, 5000)
        votes[:40] += np.arange(0, 40)
        least = algorithm._least_votes(law, votes)

        def share(bound):
            expected = len(votes) * stats.binom.sf(bound - 1, 1000, 0.01)
            return expected / np.count_nonzero(votes >= bound)

        self.assertLessEqual(share(least), 0.2)
        self.assertGreater(share(least - 1), 0.2)
        # Of noise alone next to nothing is kept.
        noise = np.random.default_rng(2).binomial(1000, 0.01, 5000)
        kept = np.count_nonzero(noise >= algorithm._least_votes(law, noise))
        self.assertLessEqual(kept, 2)
        self.assertEqual(algorithm._least_votes(law, np.zeros(9, np.int64)), 1)

    def test_the_guarantee_is_a_clients_report(self):
        clients = [[("a", 1)]] * 600
        algorithm = self.algorithm(clients, epsilon=2.0)
        stated = algorithm.plan.statement(None, 1e-6)
        self.assertIn("OptPrefixTree with Subset Selection", stated.mechanism)
        # One report of one client: its local epsilon is the client's.
        of_client = [g.epsilon for g in stated.guarantees if g.unit is Unit.CLIENT]
        self.assertEqual(max(of_client), 2.0)
        self.assertLess(min(of_client), 2.0)


class WrongUseTest(AlgorithmTestCase):
    @parameterized.parameters(
        ({"max_candidates": 3}, "max_candidates is 3; the first characters"),
        ({"num_rounds": 11}, "num_rounds is 11 and num_passes 1: 11 rounds need"),
        ({"cohort_size": 5}, "cohort_size is 5: 3 rounds need 15 clients"),
    )
    def test_refused(self, options, message):
        with self.assertRaisesRegex(ValueError, message):
            self.algorithm([[("a", 1)]] * 10, **options)

    @parameterized.parameters(
        ({"epsilon": 0}, "epsilon"),
        ({"selection": "largest"}, "selection"),
        ({"false_share": 1.0}, "false_share"),
    )
    def test_refused_options(self, options, name):
        with self.assertRaisesRegex(fields.OptionError, name):
            options_lib.OptPrefixTreeOptions(**options)

    def test_too_much_noise_for_a_word_of_all_clients(self):
        """Runs confirm it: of words that all clients hold, next to none is found."""
        clients = [[("a", 1)]] * 300
        weak, strong = (self.algorithm(clients, epsilon=e) for e in (0.1, 6.0))
        with self.assertRaisesRegex(
            ValueError, "epsilon=0.1: nothing can be found. .* all 100 clients"
        ):
            weak.check_detection()
        strong.check_detection()
        found = [
            sum(bool(self.run_all(made, seed)[0].found) for seed in range(5))
            for made in (weak, strong)
        ]
        self.assertLessEqual(found[0], 1)
        self.assertGreaterEqual(found[1], 4)

    def test_a_word_outside_the_alphabet(self):
        with self.assertRaisesRegex(ValueError, "not in the alphabet"):
            self.algorithm([[("xyz", 1)]] * 10)


if __name__ == "__main__":
    absltest.main()
