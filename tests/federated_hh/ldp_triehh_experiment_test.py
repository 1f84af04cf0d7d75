"""Tests of interrupted LDP TrieHH experiments, and of their tables."""

import os
import pathlib
import tempfile
from unittest import mock

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh import alphabet as alphabet_lib
from federated_hh import (
    contributions,
    ldp_triehh,
    ldp_triehh_experiment,
    ldp_triehh_parameters,
    ldp_triehh_results,
)
from randomness import noise_keys
from simulation import client_words, run_directory, runtime, software

_KEY = noise_keys.NoiseKey.of_seed(1)
_WHO = "simulator/participation.csv"
_PROGRAM = "tests"
_REPEATS = 2
_SEED = 3
_LEVELS = 4  # of a repeat


class _InterruptedError(Exception):
    pass


class ExperimentTest(parameterized.TestCase):
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
        cls.parameters = ldp_triehh_parameters.LdpTrieHHParameters(
            clients_per_level=60,
            max_depth=2,
            max_prefixes=5,
            contribution_bound=3,
            epsilon=5.0,
            num_passes=2,
            sampler=contributions.ItemSampler.RANDOM,
        )

        cls.whole = pathlib.Path(scratch) / "whole"
        cls.found = cls.run_in(cls.whole)

    @classmethod
    def make_process(cls, repeat, seed=_SEED, fail_at=None):
        """Returns the process of a repeat; one that fails at a level, if asked to."""
        process = ldp_triehh.build_ldp_triehh_process(
            cls.population,
            cls.parameters,
            alphabet_lib.Alphabet("abc"),
            seed=ldp_triehh_experiment.seed_of_repeat(seed, repeat),
            noise_key=ldp_triehh_experiment.key_of_repeat(3, repeat),
        )
        run_level = process.next

        def next_level(state, cohort):
            if repeat * _LEVELS + state.levels_done == fail_at:
                raise _InterruptedError
            return run_level(state, cohort)

        process.next = next_level
        return process

    @classmethod
    def run_in(cls, path, *, resume=False, seed=_SEED, fail_at=None):
        """Returns what was found, or None where the experiment was interrupted."""
        if resume:
            directory = run_directory.RunDirectory.resume(
                path, program=_PROGRAM, facts={}, noise_key=_KEY
            )
        else:
            directory = run_directory.RunDirectory.create(
                path, program=_PROGRAM, flags=(), facts={}, noise_key=_KEY
            )
        with directory:
            try:
                return ldp_triehh_experiment.LdpTrieHHExperiment(
                    lambda repeat: cls.make_process(repeat, seed, fail_at),
                    directory,
                    _REPEATS,
                ).run()
            except _InterruptedError:
                return None

    def cohorts(self):
        return [
            ldp_triehh_results.cohorts_of_repeat(
                self.population, self.parameters, _SEED, repeat
            )
            for repeat in range(_REPEATS)
        ]

    def path(self):
        return pathlib.Path(self.create_tempdir().full_path) / "run"

    def test_interrupted_at_any_level_it_ends_the_same(self):
        self.assertLen(self.found, _REPEATS)
        self.assertNotEqual(self.found[0], self.found[1])
        path = self.path()
        for level in range(_REPEATS * _LEVELS):
            self.assertIsNone(self.run_in(path, resume=level > 0, fail_at=level))
            # The clients of the level that failed are written down already.
            self.assertLen(pd.read_csv(path / _WHO), level + 1)
        self.assertEqual(self.run_in(path, resume=True), self.found)
        self.assertEqual(
            (path / _WHO).read_bytes(),
            (self.whole / _WHO).read_bytes(),
        )
        metrics = [
            pd.read_csv(p / "simulator" / "metrics.csv") for p in (self.whole, path)
        ]
        self.assertLen(metrics[0], _REPEATS * _LEVELS)
        pd.testing.assert_frame_equal(
            *[m.drop(columns=m.filter(like="seconds").columns) for m in metrics]
        )

    @parameterized.named_parameters(
        ("level_done", 0, "digest"),
        ("level_cut_off", 2, "digest"),
        ("another_size", 1, "clients"),
    )
    def test_other_participants_are_refused(self, row, column):
        path = self.path()
        self.assertIsNone(self.run_in(path, fail_at=2))
        table = pd.read_csv(path / _WHO)
        table.loc[row, column] = "0" * 64 if column == "digest" else 59
        table.to_csv(path / _WHO, index=False)
        with self.assertRaisesRegex(
            ldp_triehh_experiment.ParticipationError, "participation.csv"
        ):
            self.run_in(path, resume=True, fail_at=2)

    def test_a_level_cut_off_is_not_asked_again_by_other_packages(self):
        path = self.path()
        self.assertIsNone(self.run_in(path, fail_at=2))
        versions = software.package_versions() | {"numpy": "1.0"}
        with (
            mock.patch.object(software, "package_versions", return_value=versions),
            self.assertRaisesRegex(
                ldp_triehh_experiment.ParticipationError, "asked by other versions"
            ),
        ):
            self.run_in(path, resume=True)

    def test_a_level_cut_off_is_not_asked_again_by_other_code(self):
        # Begun by one version, which another continued: the last level is its.
        path = self.path()
        self.assertIsNone(self.run_in(path, fail_at=1))
        # As if it had been killed after the checkpoint of level 1.
        table = pd.read_csv(path / _WHO)
        table[:1].to_csv(path / _WHO, index=False)
        with mock.patch.object(software, "sources_digest", return_value="other"):
            self.assertIsNone(self.run_in(path, resume=True, fail_at=2))
            asked_by = pd.read_csv(path / _WHO)["software"]
            self.assertEqual(asked_by.nunique(), 2)
        with self.assertRaisesRegex(
            ldp_triehh_experiment.ParticipationError, "asked by other versions"
        ):
            self.run_in(path, resume=True)
        with mock.patch.object(software, "sources_digest", return_value="other"):
            self.assertEqual(self.run_in(path, resume=True), self.found)

    def test_a_lost_record_is_refused(self):
        path = self.path()
        self.assertIsNone(self.run_in(path, fail_at=2))
        (path / _WHO).unlink()
        with self.assertRaisesRegex(
            ldp_triehh_experiment.ParticipationError, "not certain"
        ):
            self.run_in(path, resume=True)

    @parameterized.parameters(0, 2)
    def test_another_seed_would_ask_clients_twice(self, fail_at):
        path = self.path()
        self.assertIsNone(self.run_in(path, fail_at=fail_at))
        with self.assertRaisesRegex(
            ldp_triehh_experiment.ParticipationError, "could take part twice"
        ):
            self.run_in(path, resume=True, seed=_SEED + 1)

    def test_counting_group_took_part_in_nothing(self):
        for repeat in range(2):
            process = self.make_process(repeat)
            cohorts = ldp_triehh_results.cohorts_of_repeat(
                self.population, self.parameters, _SEED, repeat
            )
            self.assertEqual(cohorts, process.cohorts)
            asked = [cohorts.cohort(level) for level in range(_LEVELS)]
            everybody = ldp_triehh_results.counting_group(cohorts, None)
            some = ldp_triehh_results.counting_group(cohorts, 100)
            np.testing.assert_array_equal(
                np.sort(np.concatenate([*asked, everybody])), np.arange(400)
            )
            self.assertLen(np.unique(some), 100)
            self.assertContainsSubset(some.tolist(), everybody.tolist())
        with self.assertRaisesRegex(ValueError, "needs 401 clients.* has 400"):
            ldp_triehh_results.counting_group(cohorts, 161)

    def test_tables_against_a_count_by_hand(self):
        results = ldp_triehh_results.evaluate(
            self.population,
            self.parameters,
            self.found,
            self.cohorts(),
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
                covered = sum(typed.get(word, 0) for word in until["word"])
                share = covered / sum(typed.values())
                self.assertEqual(row["words_found"], len(until))
                self.assertEqual(row["words_real"], until["real"].sum())
                self.assertAlmostEqual(row["coverage"], share)
                # Six standard errors: false alarms below 1e-8 for each of four.
                self.assertLess(
                    abs(row["estimated_coverage"] - share), 6 * row["standard_error"]
                )
                last = results.levels.query(
                    "repeat == @repeat and pass_number == @number and level == 2"
                ).iloc[0]
                self.assertAlmostEqual(last["coverage"], share)
        means = results.repeats.groupby("pass_number")["coverage"].mean()
        np.testing.assert_allclose(results.coverage["coverage"], means)
        self.assertTrue((results.coverage["coverage_low"] <= means.to_numpy()).all())

    def test_without_counting_clients_there_is_no_estimate(self):
        results = ldp_triehh_results.evaluate(
            self.population,
            self.parameters,
            self.found,
            self.cohorts(),
            counting_clients=0,
        )
        self.assertTrue(results.repeats["estimated_coverage"].isna().all())


if __name__ == "__main__":
    absltest.main()
