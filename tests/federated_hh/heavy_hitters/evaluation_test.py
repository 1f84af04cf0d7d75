"""Tests of scores against the ground truth."""

import os

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.heavy_hitters import evaluation, selection
from federated_hh.populations.columns import client_words

_MOST_FREQUENT = selection.WordSelection.MOST_FREQUENT
_BY_FREQUENCY = selection.WordSelection.BY_FREQUENCY


def _truth(*counts):
    counts = np.array(counts, float)
    order = np.argsort(-counts, kind="stable")
    return evaluation.GroundTruth(counts, order[counts[order] > 0])


class GroundTruthTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.population = client_words.ClientWords.from_rows(
            os.path.join(self.create_tempdir().full_path, "population"),
            [
                ("u", [("b", 3), ("a", 1)]),
                ("v", []),
                ("w", [("c", 1), ("a", 1)]),
                ("x", [("b", 2)]),
                ("y", []),
            ],
        )
        self.words = self.population.words.to_pylist()

    def test_single_word_setting_counts_each_clients_first_word(self):
        truth = evaluation.GroundTruth.of(self.population, _MOST_FREQUENT)
        self.assertEqual(
            dict(zip(self.words, truth.counts, strict=True)), {"b": 2, "a": 0, "c": 1}
        )
        self.assertEqual([self.words[i] for i in truth.order], ["b", "c"])

    def test_multi_word_setting_adds_local_frequencies(self):
        truth = evaluation.GroundTruth.of(self.population, _BY_FREQUENCY)
        self.assertEqual(
            dict(zip(self.words, truth.counts, strict=True)),
            {"b": 1.75, "a": 0.75, "c": 0.5},
        )
        self.assertEqual([self.words[i] for i in truth.order], ["b", "a", "c"])

    def test_equal_counts_are_in_the_order_of_the_table(self):
        # Hundreds of ties, as a sort that keeps no order keeps that of a few.
        words = [f"w{i * 7919 % 997}" for i in range(997)]
        counts = [3 if i % 5 else 1 for i in range(997)]
        rows = [("u", [("first", 1)])]
        rows += [
            (f"{word} {client}", [(word, 1)])
            for word, count in zip(words, counts, strict=True)
            for client in range(count)
        ]
        population = client_words.ClientWords.from_rows(
            os.path.join(self.create_tempdir().full_path, "ties"), rows
        )
        for selection_ in (_MOST_FREQUENT, _BY_FREQUENCY):
            truth = evaluation.GroundTruth.of(population, selection_)
            of_three = np.flatnonzero(truth.counts == 3)
            of_one = np.flatnonzero(truth.counts == 1)
            self.assertLen(of_three, 797)
            np.testing.assert_array_equal(
                truth.order, np.concatenate([of_three, of_one])
            )


class ScoresTest(parameterized.TestCase):
    def test_by_hand(self):
        # True order 0, 1, 2, 3. Found by votes: 1, 0, 3, and one that is not real.
        truth = _truth(40, 30, 20, 10, 0)
        scores = evaluation.scores_at_k([1, 0, 3, -1], truth, [1, 2, 3, 10])
        expected = pd.DataFrame(
            {
                "k": [1, 2, 3, 10],
                "precision": [0.75] * 4,
                "recall": [1, 1, 2 / 3, 3 / 4],
                "precision_at_k": [0, 1, 2 / 3, 3 / 4],
                "recall_at_k": [0, 1, 2 / 3, 3 / 4],
                "f1_at_k": [0, 1, 2 / 3, 3 / 4],
            }
        )
        pd.testing.assert_frame_equal(
            scores[expected.columns], expected, check_dtype=False
        )
        np.testing.assert_allclose(
            scores["f1"], 2 * 0.75 * expected["recall"] / (0.75 + expected["recall"])
        )

    def test_word_without_count_is_not_real(self):
        scores = evaluation.scores_at_k([4, 0], _truth(4, 3, 2, 1, 0), [5])
        self.assertEqual(scores["precision"][0], 0.5)

    def test_nothing_found(self):
        scores = evaluation.scores_at_k([], _truth(4, 3), [1])
        self.assertEqual(scores["recall"][0], 0)
        self.assertEqual(scores["f1"][0], 0)
        self.assertTrue(np.isnan(scores["precision"][0]))


class IntervalTest(absltest.TestCase):
    def test_student_t_over_repeats(self):
        repeats = [
            pd.DataFrame({"k": [1, 2], "recall": [value, 0.5]})
            for value in (0.1, 0.4, 0.7)
        ]
        table = evaluation.mean_and_interval(repeats, "k")
        # Standard deviation 0.3, t quantile of 2 degrees of freedom 4.302653.
        half = 4.302652729911275 * 0.3 / np.sqrt(3)
        np.testing.assert_allclose(table["recall"], [0.4, 0.5])
        np.testing.assert_allclose(table["recall_low"], [0.4 - half, 0.5])
        np.testing.assert_allclose(table["recall_high"], [0.4 + half, 0.5])

    def test_one_repeat_has_no_interval(self):
        table = evaluation.mean_and_interval(
            [pd.DataFrame({"k": [1], "recall": [0.5]})], "k"
        )
        self.assertEqual(table["recall"][0], 0.5)
        self.assertTrue(np.isnan(table["recall_low"][0]))

    def test_repeats_without_a_value_do_not_count(self):
        repeats = [pd.DataFrame({"k": [1], "p": [v]}) for v in (np.nan, 0.2, 0.4)]
        table = evaluation.mean_and_interval(repeats, "k")
        self.assertAlmostEqual(table["p"][0], 0.3)
        empty = evaluation.mean_and_interval(repeats[:1], "k")
        self.assertTrue(np.isnan(empty["p"][0]))


class DiscoveryTest(absltest.TestCase):
    def test_share_of_repeats(self):
        table = evaluation.discovery_rates(
            [[0, 2], [0, -1], [0]], _truth(9, 0, 5, 7), 10
        )
        self.assertEqual(table["word_id"].tolist(), [0, 3, 2])
        self.assertEqual(table["true_rank"].tolist(), [1, 2, 3])
        np.testing.assert_allclose(table["discovery_rate"], [1, 0, 1 / 3])


if __name__ == "__main__":
    absltest.main()
