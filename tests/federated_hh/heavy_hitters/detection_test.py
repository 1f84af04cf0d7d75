"""Tests that what can be found is predicted as the algorithms find it."""

import dataclasses
import math
import os
import string
import tempfile
from unittest import mock

import numpy as np
from absl.testing import absltest

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import selection
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.ldp_triehh import privacy as ldp_triehh_privacy
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.heavy_hitters.triehh import report as triehh_report
from federated_hh.populations.columns import client_words
from federated_hh.privacy.local import ldp_triehh_detection, ldp_triehh_settings
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.randomizers import by_name
from federated_hh.randomness import noise_keys
from federated_hh.rounds import steps
from federated_hh.runtime import runtime

_KEY = noise_keys.NoiseKey.of_seed(3)


def states_after(algorithm, repeats):
    """Returns the last state of each of several runs."""
    by_hand = steps.Steps(algorithm, seed=4, noise_key=_KEY)
    states = []
    for repeat in range(repeats):
        place = by_hand.begin(repeat)
        while (query := algorithm.next_query(place.state)) is not None:
            drawn = by_hand.draw(place)
            total = by_hand.ask(place, query, drawn.cohort)
            place = by_hand.update(place, query, drawn, total).progress
        states.append(place.state)
    return states


class NormalVotesTest(absltest.TestCase):
    def test_rates_of_very_many_votes(self):
        detection = ldp_triehh_detection.LdpTrieHHDetection(
            settings=ldp_triehh_settings.LdpTrieHHSettings(
                cohort_size=500_000,
                contribution_bound=2,
                max_depth=4,
                max_prefixes=100,
            ),
            num_clients=3_000_000,
            num_characters=30,
            probabilities=ldp_triehh_detection.probabilities_of("k_ary", 3),
        )
        half = detection.holders_needed(0.5, 2)
        for holders in (half // 2, half, 2 * half):
            exact = detection.rate(holders, 2)
            with mock.patch.object(ldp_triehh_detection, "_NORMAL_FROM", 0):
                self.assertAlmostEqual(detection.rate(holders, 2), exact, delta=0.01)


class DetectionTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())
        cls.scratch = cls.enterClassContext(tempfile.TemporaryDirectory())

    def population(self, holders):
        """Returns clients of one word each, or of none; holders by word."""
        words = [word for word, count in holders.items() for _ in range(count)]
        rows = [(str(i), [(word, 1)] if word else []) for i, word in enumerate(words)]
        return client_words.ClientWords.from_rows(
            os.path.join(tempfile.mkdtemp(dir=self.scratch), "population"), rows
        )

    def check_rates(self, predicted, found):
        """Compares the probabilities of words with the words of each repeat."""
        repeats = len(found)
        for word, rate in predicted.items():
            seen = sum(word in words for words in found) / repeats
            # Five standard deviations of a binomial law, and of a rate of 1/20 where
            # it is less likely: false alarms below 1e-5 for each word.
            spread = max(rate * (1 - rate), 0.05) / repeats
            self.assertLess(abs(seen - rate), 5 * math.sqrt(spread), (word, seen, rate))
        # All words together, whose finds depend on each other.
        sums = [sum(word in words for word in predicted) for words in found]
        error = np.std(sums, ddof=1) / math.sqrt(repeats)
        expected = sum(predicted.values())
        self.assertGreater(error, 0)
        self.assertLess(abs(np.mean(sums) - expected), 5 * error)

    def test_triehh_finds_words_as_often_as_predicted(self):
        holders = {"ab": 25, "abc": 40, "abd": 30, "b": 45, "cde": 60, "cdea": 20}
        holders |= {"e": 35, "fg": 12, "gffff": 50, "": 183}
        population = self.population(holders)
        parameters = triehh_privacy.TrieHHParameters(500, 100, 8, 5)
        algorithm = triehh.TrieHH(
            population,
            triehh.plan_of(parameters, selection.WordSelection.MOST_FREQUENT),
            alphabet_lib.Alphabet("abcdefg"),
        )
        states = states_after(algorithm, 50)
        repeats = [state.trie.words() for state in states]
        table = triehh_report.evaluate(algorithm, repeats, 5).discovery
        rates = dict(zip(table["word"], table["predicted_rate"], strict=True))
        self.assertEqual(rates.pop("gffff"), 0)  # too long to be completed
        self.assertTrue(
            (
                table["predicted_rate"] >= table["worst_case_rate"] * (table["fits"])
            ).all()
        )
        self.assertLen([rate for rate in rates.values() if 0.1 < rate < 0.9], 4)
        self.check_rates(rates, [{word.text for word in words} for words in repeats])

    def test_ldp_triehh_finds_words_as_often_as_predicted(self):
        # No two words share a prefix; 12 of them among 60 places.
        holders = {
            a + b + a: count
            for a, b, count in zip(
                "abcdefghijkl",
                "mnopqrstuvwx",
                (10, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 150),
                strict=True,
            )
        }
        population = self.population({**holders, "": 1200 - sum(holders.values())})
        parameters = ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=400,
            max_depth=3,
            max_prefixes=60,
            contribution_bound=2,
            epsilon=3.0,
        )
        alphabet = alphabet_lib.Alphabet(string.ascii_lowercase)
        algorithm = ldp_triehh.LdpTrieHH(population, parameters, alphabet, num_blocks=1)
        random = np.random.default_rng(8)
        least = parameters.min_standard_errors
        found = []
        for _ in range(150):
            state = self.run_by_hand(algorithm, random)
            found.append({w.text for w in state.found if w.stands_out(least)})
        law = parameters.detection(1200, alphabet)
        rates = {word: law.rate(count, 3) for word, count in holders.items()}
        self.assertGreater(len([r for r in rates.values() if 0.1 < r < 0.9]), 3)
        self.check_rates(rates, found)
        table = ldp_triehh_privacy.what_is_found(algorithm)
        self.assertEqual(table[0]["holders"], law.holders_needed(0.5, 3))
        settings = [row["setting"] for row in table]
        self.assertIn("local epsilon 5", settings)
        self.assertNotIn("cohorts of 400, the largest for these clients", settings)

    def run_by_hand(self, algorithm, random):
        """Runs LDP TrieHH with devices in NumPy: TFF would take a second a level.

        The server, and the reports, are the algorithm's; each client has one word.
        """
        population, parameters = algorithm.population, algorithm.parameters
        codes = algorithm.alphabet.encode(population.words, parameters.max_depth + 1)
        word_of_client = np.full(population.num_clients, -1)
        word_of_client[np.diff(population.row_splits) > 0] = population.word_ids
        cohorts = random.permutation(population.num_clients).reshape(-1, 400)
        state = algorithm.initialize(0)
        for cohort in cohorts:
            size = state.trie.num_candidates
            candidates = np.append(state.trie.candidates_of(codes), -1)
            items = candidates[word_of_client[cohort]]
            histogram = np.bincount(items[items >= 0], minlength=size + 1)
            histogram[-1] = parameters.reports_per_level - histogram.sum()
            seed = int(random.integers(2**60))
            votes = parameters.randomizer(size).sum_of_reports(histogram, seed)
            state, _ = algorithm.update(state, votes[:size])
        return state

    def test_probabilities_are_those_of_the_randomizers(self):
        for name in (
            "subset_selection",
            "k_ary",
            "asymmetric_one_hot",
            "symmetric_one_hot",
        ):
            of_size = ldp_triehh_detection.probabilities_of(name, 2.5)
            for size in (2, 9, 400):
                randomizer = by_name.randomizer(name)(2.5, size)
                own, other = of_size(size)
                self.assertAlmostEqual(own, float(randomizer.own_probability))
                self.assertAlmostEqual(other, float(randomizer.other_probability))

    def test_clients_with_more_words_than_reports(self):
        rows = [(str(i), [(word, 1) for word in "abcd"]) for i in range(30)]
        population = client_words.ClientWords.from_rows(
            os.path.join(tempfile.mkdtemp(dir=self.scratch), "population"), rows
        )
        parameters = ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=10,
            max_depth=1,
            max_prefixes=5,
            contribution_bound=3,
            epsilon=math.inf,
        )
        alphabet = alphabet_lib.Alphabet("abcd")
        tables = [
            ldp_triehh_privacy.what_is_found(
                ldp_triehh.LdpTrieHH(
                    population,
                    dataclasses.replace(parameters, contribution_bound=bound),
                    alphabet,
                )
            )
            for bound in (3, 4)
        ]
        few, all_of_them = (table[0]["holders"] for table in tables)
        self.assertGreater(few, all_of_them)

    def test_a_bound_above_what_clients_hold_is_told(self):
        population = self.population({"ab": 300, "cd": 200, "ef": 400})
        alphabet = alphabet_lib.Alphabet("abcdef")
        for bound, advised in ((60, True), (1, False)):
            parameters = ldp_triehh_parameters.LdpTrieHHParameters(
                cohort_size=300,
                max_depth=2,
                max_prefixes=10,
                contribution_bound=bound,
                epsilon=3.0,
            )
            algorithm = ldp_triehh.LdpTrieHH(population, parameters, alphabet)
            table = ldp_triehh_privacy.what_is_found(algorithm)
            own, *others = [row for row in table if row["probability"] == 0.9]
            told = [row for row in others if "--contribution_bound" in row["setting"]]
            self.assertEqual(bool(told), advised)
            # Clients hold one word each: one report of it is best.
            for row in told:
                self.assertStartsWith(row["setting"], "--contribution_bound=1, ")
                law = dataclasses.replace(parameters, contribution_bound=1)
                law = law.detection(900, alphabet)
                self.assertEqual(row["holders"], law.holders_needed(0.9, 2))
                self.assertLess(row["holders"], own["holders"] or 900)


if __name__ == "__main__":
    absltest.main()
