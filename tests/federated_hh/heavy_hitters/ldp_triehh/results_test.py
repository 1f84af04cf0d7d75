"""Tests of the tables that LDP TrieHH leaves."""

import dataclasses
import os
import tempfile

import numpy as np
import pandas as pd
from absl.testing import absltest

from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions
from federated_hh.heavy_hitters.ldp_triehh import algorithm as ldp_triehh
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.heavy_hitters.ldp_triehh import results as ldp_triehh_results
from federated_hh.populations.columns import client_words
from federated_hh.randomness import noise_keys
from federated_hh.rounds import steps
from federated_hh.runtime import runtime

_KEY = noise_keys.NoiseKey.of_seed(1)
_REPEATS = 2
_SEED = 5
_LEVELS = 4  # of a repeat


class ResultsTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())
        scratch = cls.enterClassContext(tempfile.TemporaryDirectory())
        random = np.random.default_rng(0)
        words = [a + b for a in "abc" for b in ("", "a", "b", "cc")]
        cls.population = client_words.ClientWords.from_rows(
            os.path.join(scratch, "population"),
            [
                (
                    str(client),
                    [
                        (str(word), int(random.integers(1, 9)))
                        for word in random.choice(words, 4, replace=False)
                    ],
                )
                for client in range(400)
            ],
        )
        parameters = ldp_triehh_parameters.LdpTrieHHParameters(
            cohort_size=60,
            max_depth=2,
            max_prefixes=5,
            contribution_bound=3,
            epsilon=5.0,
            num_passes=2,
            sampler=contributions.ItemSampler.RANDOM,
            min_standard_errors=12.5,
        )
        cls.algorithm = ldp_triehh.LdpTrieHH(
            cls.population, parameters, alphabet_lib.Alphabet("abc")
        )
        by_hand = steps.Steps(cls.algorithm, seed=_SEED, noise_key=_KEY)
        cls.found, cls.asked, rows = [], [], []
        for repeat in range(_REPEATS):
            place, cohorts = by_hand.begin(repeat), []
            while (query := cls.algorithm.next_query(place.state)) is not None:
                drawn = by_hand.draw(place)
                cohorts.append(drawn.cohort)
                total = by_hand.ask(place, query, drawn.cohort)
                done = by_hand.update(place, query, drawn, total)
                rows.append({"repeat": repeat, **done.metrics})
                place = done.progress
            cls.found.append(place.state.found)
            cls.asked.append(cohorts)
        cls.metrics = pd.DataFrame(rows)

    def test_counting_group_took_part_in_nothing(self):
        for repeat, asked in enumerate(self.asked):
            self.assertLen(asked, _LEVELS)
            everybody, some = (
                ldp_triehh_results.counting_group(self.algorithm, _SEED, repeat, count)
                for count in (None, 100)
            )
            np.testing.assert_array_equal(
                np.sort(np.concatenate([*asked, everybody])), np.arange(400)
            )
            self.assertLen(np.unique(some), 100)
            self.assertContainsSubset(some.tolist(), everybody.tolist())
        with self.assertRaisesRegex(ValueError, "needs 401 clients.* has 400"):
            ldp_triehh_results.counting_group(self.algorithm, _SEED, 0, 161)

    def test_tables_against_a_count_by_hand(self):
        results = ldp_triehh_results.evaluate(
            self.algorithm,
            self.found,
            self.metrics,
            _SEED,
            counting_clients=None,
        )
        self.assertEqual(results.counting_clients, 400 - 240)
        typed, holders = {}, {}
        for client in range(400):
            for word, count in self.population.client(client):
                typed[word] = typed.get(word, 0) + count
                holders[word] = holders.get(word, 0) + 1
        for repeat in range(_REPEATS):
            words = results.words[results.words["repeat"] == repeat]
            self.assertCountEqual(
                words["word"], [word.text for word in self.found[repeat]]
            )
            for row in words.itertuples():
                self.assertEqual(row.true_count, typed.get(row.word, 0))
                self.assertEqual(row.real, row.word in typed)
                self.assertAlmostEqual(
                    row.expected_holders, holders.get(row.word, 0) * 60 / 400
                )
            for number in (1, 2):
                until = words[words["pass_number"] <= number]
                row = results.repeats.query(
                    "repeat == @repeat and pass_number == @number"
                ).iloc[0]
                last = results.levels.query(
                    "repeat == @repeat and pass_number == @number and level == 2"
                ).iloc[0]
                self.check_scores(row, last, until, typed)
                self.assertAlmostEqual(
                    row["expected_false"],
                    self.metrics.query(
                        "repeat == @repeat and pass_number <= @number and level == 2"
                    )["expected_false_words"].sum(),
                )
        means = results.repeats.groupby("pass_number")["coverage"].mean()
        np.testing.assert_allclose(results.coverage["coverage"], means)
        self.assertTrue((results.coverage["coverage_low"] <= means.to_numpy()).all())

    def check_scores(self, row, last, words, typed):
        """Words of one character are not scored; strong ones are scored twice."""
        typed = {word: count for word, count in typed.items() if len(word) > 1}
        words = words[words["word"].str.len() > 1]
        strong = words[words["estimate"] >= 12.5 * words["standard_error"]]
        self.assertBetween(len(strong), 1, len(words) - 1)
        scores = "words_found words_real coverage estimated_coverage standard_error"
        of_released = (
            "words_released released_real released_coverage released_estimate "
            "released_standard_error"
        )
        for found, names in ((words, scores), (strong, of_released)):
            size, real, coverage, estimate, error = names.split()
            share = sum(typed.get(word, 0) for word in found["word"])
            share /= sum(typed.values())
            self.assertEqual(row[size], len(found))
            self.assertEqual(row[real], sum(word in typed for word in found["word"]))
            self.assertAlmostEqual(row[coverage], share)
            self.assertAlmostEqual(last[coverage], share)
            # Six standard errors: false alarms below 1e-8 for each of eight.
            self.assertLess(abs(row[estimate] - share), 6 * row[error])

    def test_the_cut_that_leaves_less_than_one_false_word(self):
        low = dataclasses.replace(self.algorithm.parameters, min_standard_errors=0.5)
        needed = ldp_triehh_results.least_standard_errors
        rows = self.metrics.query("level == 2")

        def expected(cut):
            return [
                40 * law.noise_tail(max(row.least_votes_kept, law.least_votes(cut)))
                for row in rows.itertuples()
                for law in [low.vote_law(low.randomizer(row.candidates))]
            ]

        metrics = self.metrics.copy()
        metrics.loc[rows.index, "expected_false_words"] = expected(0.5)
        cut = needed(low, metrics)
        self.assertGreater(cut, 0.5)
        self.assertLess(sum(expected(cut)), _REPEATS)
        self.assertGreaterEqual(sum(expected(round(cut - 0.1, 1))), _REPEATS)
        # A run without noise stays as it is.
        self.assertEqual(needed(low, metrics.assign(expected_false_words=0.0)), 0.5)

    def test_a_word_that_nobody_has_is_not_real(self):
        noise = ldp_triehh.FoundWord("??", 1, 2, 9, 90.0, 1.0)
        results = ldp_triehh_results.evaluate(
            self.algorithm,
            [(noise,)] * _REPEATS,
            self.metrics,
            _SEED,
            counting_clients=0,
        )
        found = results.words
        self.assertEqual([*found["real"], *found["true_count"]], [0, 0] * _REPEATS)
        self.assertEqual(results.levels["words_found"].sum(), _REPEATS)
        self.assertEqual(results.levels["words_real"].sum(), 0)

    def test_without_counting_clients_there_is_no_estimate(self):
        results = ldp_triehh_results.evaluate(
            self.algorithm,
            self.found,
            self.metrics,
            _SEED,
            counting_clients=0,
        )
        self.assertTrue(results.repeats["estimated_coverage"].isna().all())


if __name__ == "__main__":
    absltest.main()
