"""Tests of TrieHH's report: what was found, beside the ground truth."""

import dataclasses
import os

import numpy as np
from absl.testing import absltest

from federated_hh.heavy_hitters import alphabet, selection
from federated_hh.heavy_hitters.triehh import algorithm as triehh
from federated_hh.heavy_hitters.triehh import report as triehh_report
from federated_hh.populations.columns import client_words
from federated_hh.privacy import written_statement
from federated_hh.privacy.triehh import detection as triehh_detection
from federated_hh.privacy.triehh import guarantees as triehh_privacy
from federated_hh.privacy.triehh import wanted_detection as detection
from federated_hh.randomness import noise_keys
from federated_hh.rounds import run
from federated_hh.run_directory import directory as run_directory

_KEY = noise_keys.NoiseKey.of_seed(5)
_REPEATS = 3
_CLIENTS = 60
_COHORT = 40
# 30 clients hold "ab", 20 "abcabc" (too long for the maximum length), 10 "c".
_WORDS = ["ab"] * 30 + ["abcabc"] * 20 + ["c"] * 10


class ReportTestCase(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = self.create_tempdir().full_path
        population = client_words.ClientWords.from_rows(
            os.path.join(self.scratch, "population"),
            [(str(i), [(word, 1)]) for i, word in enumerate(_WORDS)],
        )
        self.parameters = triehh_privacy.TrieHHParameters(_CLIENTS, _COHORT, 4, 4)
        self.process = triehh.TrieHH(
            population,
            triehh.plan_of(self.parameters, selection.WordSelection.MOST_FREQUENT),
            alphabet.Alphabet("abc"),
        )

    def create(self, name):
        directory = run_directory.RunDirectory.create(
            os.path.join(self.scratch, name),
            program="p",
            flags=(),
            facts={},
            noise_key=_KEY,
        )
        self.addCleanup(directory.close)
        return directory

    def run_in(self, directory):
        observers = [triehh.vote_metrics]
        return run.run(
            self.process, directory, seed=1, repeats=_REPEATS, observers=observers
        )


class ReportTest(ReportTestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create("run")
        self.outcome = self.run_in(self.directory)
        self.repeats = [state.trie.words() for state in self.outcome.states]
        self.results = triehh_report.evaluate(self.process, self.repeats, max_k=3)

    def test_heavy_hitters_beside_the_ground_truth(self):
        words = self.results.heavy_hitters
        self.assertEqual(set(words["word"]), {"ab", "c"})
        for row in words.itertuples():
            count, rank = {"ab": (30, 1), "c": (10, 3)}[row.word]
            self.assertEqual((row.true_count, row.true_rank), (count, rank))
            self.assertEqual(row.round, len(row.word) + 1)
            found = {w.text: w.votes for w in self.repeats[row.repeat]}
            self.assertEqual(row.votes, found[row.word])
        for repeat, group in words.groupby("repeat"):
            self.assertLen(group, len(self.repeats[repeat]))
            self.assertTrue(group["votes"].is_monotonic_decreasing)

    def test_discovery_beside_the_worst_case(self):
        table = self.results.discovery.set_index("word")
        self.assertEqual(
            table["true_count"].to_dict(), {"ab": 30, "abcabc": 20, "c": 10}
        )
        self.assertEqual(
            table["fits"].to_dict(), {"ab": True, "abcabc": False, "c": True}
        )
        for word, row in table.iterrows():
            found = [word in {w.text for w in words} for words in self.repeats]
            self.assertAlmostEqual(row["discovery_rate"], np.mean(found))
            self.assertAlmostEqual(
                row["worst_case_rate"],
                triehh_privacy.worst_case_discovery_rate(
                    int(row["true_count"]), self.parameters
                ),
            )

    def test_privacy_is_not_blamed_where_all_was_found(self):
        held = self.results.discovery
        for words, expected in (
            (held["word"], True),
            (held[held["fits"]]["word"], True),
            (held["word"].iloc[1:], False),
        ):
            results = dataclasses.replace(self.results, found=[frozenset(words)])
            self.assertEqual(triehh_report._is_all(results), expected)

    def test_recall_counts_words_too_long_as_missed(self):
        recall = self.results.scores.set_index("k")["recall"]
        found = [{w.text for w in words} for words in self.repeats]
        self.assertAlmostEqual(recall[1], np.mean(["ab" in f for f in found]))
        self.assertAlmostEqual(recall[2], np.mean(["ab" in f for f in found]) / 2)

    def test_page_has_words_scores_and_statement(self):
        statement = self.process.plan.statement(self.outcome.record, 1e-9)
        self.assertEqual(statement.basis, "realised")
        law = triehh_detection.TrieHHDetection(self.parameters)
        findable = detection.rows(triehh_detection.alternatives(law, None, {}))
        summary = triehh_report.write(
            *(self.directory, self.process, self.results, statement, findable),
            lambda characters: detection.Alternative("longer", None),
        )
        self.assertStartsWith(summary.advice, "Every word of the clients")
        page = (self.directory.path / "report.html").read_text()
        for expected in (
            ">ab<",
            "60 clients",
            "no guarantee at delta",
            "data:image/png",
        ):
            self.assertIn(expected, page)
        with self.subTest("what is released first, plots before tables of truth"):
            places = [
                page.index(text)
                for text in (
                    "<h2>Words found",
                    "The simulator's knowledge",
                    "<img",
                    "true rank</th>",
                )
            ]
            self.assertEqual(places, sorted(places))
        written = (self.directory.path / "privacy.json").read_text()
        self.assertEqual(
            written_statement.read(written).to_json(),
            statement.to_json(),
        )


if __name__ == "__main__":
    absltest.main()
