"""Tests of the loop around TrieHH: who is asked when, and what is left of it."""

import os
from unittest import mock

import numpy as np
import pandas as pd
import tensorflow as tf
from absl.testing import absltest

from federated_hh import alphabet, triehh, triehh_experiment, triehh_report
from privacy import realised, triehh_statement
from privacy import statement as statement_lib
from privacy import triehh as triehh_privacy
from randomness import noise_keys
from simulation import client_words, run_directory, run_files, runtime

_KEY = noise_keys.NoiseKey.of_seed(5)
_REPEATS = 3
_CLIENTS = 60
_COHORT = 40
# 30 clients hold "ab", 20 "abcabc" (too long for the maximum length), 10 "c".
_WORDS = ["ab"] * 30 + ["abcabc"] * 20 + ["c"] * 10


class ExperimentTestCase(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())

    def setUp(self):
        super().setUp()
        self.scratch = self.create_tempdir().full_path
        population = client_words.ClientWords.from_rows(
            os.path.join(self.scratch, "population"),
            [(str(i), [(word, 1)]) for i, word in enumerate(_WORDS)],
        )
        self.parameters = triehh_privacy.TrieHHParameters(_CLIENTS, _COHORT, 4, 4)
        self.process = triehh.build_triehh_process(
            population, self.parameters, alphabet.Alphabet("abc"), noise_key=5
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
        return triehh_experiment.run_repeats(
            self.process, directory, num_repeats=_REPEATS
        )

    def steps_in_tensorboard(self, directory):
        folder = directory.simulator.path / "tensorboard"
        steps = []
        for file in sorted(folder.iterdir()):
            for event in tf.compat.v1.train.summary_iterator(str(file)):
                tags = [value.tag for value in event.summary.value]
                steps += [event.step] * tags.count("prefixes_kept")
        return steps


class RunRepeatsTest(ExperimentTestCase):
    def test_every_round_asks_a_fresh_cohort_of_its_own_stream(self):
        calls = []
        step = self.process.next

        def record(state, cohort):
            calls.append((state.stream, state.round_number, cohort))
            return step(state, cohort)

        with mock.patch.object(self.process, "next", side_effect=record):
            outcome = self.run_in(self.create("run"))
        self.assertEqual({stream for stream, _, _ in calls}, set(range(_REPEATS)))
        for stream, round_number, cohort in calls:
            expected = self.process.cohorts(stream).cohort(round_number)
            np.testing.assert_array_equal(cohort, expected)
        self.assertLen({cohort.tobytes() for _, _, cohort in calls}, len(calls))
        # The record is of whom was asked, and makes a statement a realised one.
        self.assertEqual(
            outcome.rounds.rounds,
            tuple(
                realised.Round.of(stream, round_number + 1, cohort)
                for stream, round_number, cohort in calls
            ),
        )
        statement = triehh_statement.triehh_statement(
            self.parameters,
            delta=1e-3,
            redraws_each_round=False,
            rounds=outcome.rounds,
        )
        self.assertEqual(statement.basis, "realised")
        self.assertEqual(statement.realised.rounds, len(calls))

    def test_checkpoint_of_an_older_release_is_refused(self):
        directory = self.create("old")
        self.run_in(directory)
        checkpoint = directory.load_checkpoint()
        del checkpoint["rounds"]
        directory.save_checkpoint(checkpoint)
        with self.assertRaisesRegex(ValueError, "older release"):
            self.run_in(directory)

    def test_killed_before_any_file_of_any_round(self):
        whole = self.create("whole")
        expected = self.run_in(whole)
        names = []
        write = run_files.RunFiles.write_bytes

        def note(directory, name, contents):
            names.append(name)
            write(directory, name, contents)

        noted = self.create("noted")
        with mock.patch.object(run_files.RunFiles, "write_bytes", note):
            self.run_in(noted)
        self.assertEqual(set(names), {"checkpoint.jsonl", "metrics.csv"})
        # The first round, the change from one repeat to the next, the end.
        repeats = pd.read_csv(noted.path / "metrics.csv")["repeat"]
        change = 3 * int((repeats == 0).sum())
        places = {0, 1, change - 1, change, change + 1, len(names) - 2, len(names) - 1}
        for place in sorted(places):
            with self.subTest(f"before write {place}, of {names[place]}"):
                directory = self.create(f"killed_{place}")
                left = iter(range(place))

                def die(directory, name, contents, left=left):
                    if next(left, None) is None:
                        raise InterruptedError
                    write(directory, name, contents)

                with (
                    mock.patch.object(run_files.RunFiles, "write_bytes", die),
                    self.assertRaises(InterruptedError),
                ):
                    self.run_in(directory)
                directory.close()
                again = run_directory.RunDirectory.resume(
                    directory.path, program="p", facts={}, noise_key=_KEY
                )
                with again:
                    self.assertEqual(self.run_in(again), expected)
                    again.complete()
                tables = [
                    pd.read_csv(d.simulator.path / "metrics.csv").drop(
                        columns="seconds"
                    )
                    for d in (whole, again)
                ]
                pd.testing.assert_frame_equal(*tables)
                self.assertEqual(
                    self.steps_in_tensorboard(again), self.steps_in_tensorboard(whole)
                )


class ReportTest(ExperimentTestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create("run")
        self.outcome = self.run_in(self.directory)
        self.repeats = self.outcome.repeats
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

    def test_recall_counts_words_too_long_as_missed(self):
        recall = self.results.scores.set_index("k")["recall"]
        found = [{w.text for w in words} for words in self.repeats]
        self.assertAlmostEqual(recall[1], np.mean(["ab" in f for f in found]))
        self.assertAlmostEqual(recall[2], np.mean(["ab" in f for f in found]) / 2)

    def test_page_has_words_scores_and_statement(self):
        statement = triehh_statement.triehh_statement(
            self.parameters,
            delta=1e-9,
            redraws_each_round=False,
            rounds=self.outcome.rounds,
        )
        triehh_report.write(self.directory, self.process, self.results, statement)
        page = (self.directory.path / "report.html").read_text()
        for expected in (
            ">ab<",
            "60 clients",
            "no guarantee at delta",
            "data:image/png",
        ):
            self.assertIn(expected, page)
        written = (self.directory.path / "privacy.json").read_text()
        self.assertEqual(
            statement_lib.PrivacyStatement.from_json(written).to_json(),
            statement.to_json(),
        )


if __name__ == "__main__":
    absltest.main()
