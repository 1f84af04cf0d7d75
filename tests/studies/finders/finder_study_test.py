"""Tests of the comparison of finders: rows of small runs, and the page."""

import dataclasses
import json
import math
import pathlib

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.runtime import runtime
from studies.finders import finder_study, finders


def _part(path):
    """Returns the context of a part of a run."""
    return run_directory.begin_or_resume(
        path,
        resume=False,
        program="test",
        flags=(),
        facts={},
        noise_key=noise_keys.NoiseKey.of_seed(5),
    )


def _rows(made, scratch):
    """Returns the rows of all settings."""
    rows = []
    with runtime.tff_worker():
        for number, setting in enumerate(made.settings):
            with _part(scratch / f"part_{number}") as part:
                found = made.run_part(setting, 0, part)["finders"]
            rows += json.loads(json.dumps(found))  # as a checkpoint keeps them
    return rows


class FinderStudyTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        options = finder_study.Options(num_clients=20_000)
        made = finder_study.prepare("finders", options, seed=1, cache=self.scratch)
        # Few prefixes and a large delta: twenty thousand clients find something.
        task = dataclasses.replace(
            made.tasks["synthetic"], delta=1e-3, max_prefixes=100, contribution_bound=5
        )
        settings = [
            s
            for s in made.settings
            if s.epsilon == max(finders.EPSILONS[s.finder.trust])
        ]
        self.study = dataclasses.replace(
            made, tasks={"synthetic": task}, settings=settings
        )
        self.rows = _rows(self.study, self.scratch)

    # One test, as each process that has one of several would make all rows.
    def test_small_runs(self):
        self.check_each_finder_finds_words_that_clients_have()
        with self.subTest("each group states one kind of guarantee"):
            self.check_kinds_of_guarantee()
        with self.subTest("a finder that can find nothing says why"):
            self.check_a_finder_that_can_find_nothing()
        with self.subTest("the page has a table for each trust model"):
            self.check_page()

    def check_each_finder_finds_words_that_clients_have(self):
        clients = self.study.tasks["synthetic"].clients
        words = clients.words.to_pylist()
        typed = dict.fromkeys(words, 0)
        for place, count in zip(clients.word_ids, clients.counts, strict=True):
            typed[words[place]] += int(count)
        every = sum(typed.values())
        for row in self.rows:
            with self.subTest(finder=row["finder"], trust=row["trust"]):
                self.assertEqual(row["note"], "")
                self.assertBetween(row["words_real"], 1, row["words"])
                # No set of so many words has more.
                best = sorted(typed.values(), reverse=True)[: row["words_real"]]
                self.assertBetween(row["coverage"], 1e-9, sum(best) / every)
                self.assertGreaterEqual(row["download_bytes"], 0)
                self.assertGreater(row["upload_bytes"], 0)

    def check_kinds_of_guarantee(self):
        kinds = {}
        for row in self.rows:
            kind = row["unit"], row["adjacency"], row["direction"]
            kinds.setdefault(row["trust"], set()).add(kind)
            self.assertLessEqual(row["stated_epsilon"], row["epsilon"] * (1 + 1e-6))
            self.assertLessEqual(row["stated_delta"], 1e-3)
        self.assertEqual(
            kinds,
            {
                finders.AGGREGATOR: {("client", "emptied", "both")},
                finders.SERVER: {("client", "emptied", "one")},
                finders.SUMS: {("client", "replace_client", "both")},
                finders.NOBODY: {("item", "replace_one_item", "both")},
            },
        )

    def check_a_finder_that_can_find_nothing(self):
        (setting, *_) = self.study.settings
        self.assertEqual(setting.finder.name, "set union")
        setting = dataclasses.replace(setting, epsilon=1e-5)
        with runtime.tff_worker(), _part(self.scratch / "none") as part:
            (row,) = self.study.run_part(setting, 0, part)["finders"]
        self.assertEqual((row["words"], row["coverage"]), (0, 0.0))
        self.assertIn("give a larger epsilon", row["note"])

    def check_page(self):
        table = pd.DataFrame(self.rows).assign(setting="x", repeat=0)
        better = dict(self.rows[0], finder="LUCKY", coverage=0.987, words_real=12_345)
        table = pd.concat([table, pd.DataFrame([better])], ignore_index=True)
        files = self.study.files({"finders": table}, pathlib.Path())
        page = files["table.md"].decode()
        self.assertIn(f"| {finders.AGGREGATOR} | 4 | LUCKY: 12,345, 98.7% |", page)
        for trust in finders.EPSILONS:
            self.assertIn(f"\nTrusted: {trust}. Guarantee: unit ", page)
        self.assertTrue(files["coverage.png"].startswith(b"\x89PNG"))


class OptionsTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"populations": ("blogs", "news")}, "populations=blogs,news: 'news' is none"),
        ({"populations": ("blogs",)}, "populations=blogs: real text needs data_dir"),
    )
    def test_bad_options(self, options, regex):
        with self.assertRaisesRegex(ValueError, regex):
            finder_study.Options(**options)


class HoldersTest(absltest.TestCase):
    def test_where_nine_of_ten_words_are_found(self):
        holders = np.arange(1000, 0, -1)
        rates = np.where(holders > 400, 1.0, 0.5)
        found = np.random.default_rng(0).random(1000) < rates
        self.assertBetween(finders.holders_for(found, holders), 390, 430)
        mixed = np.random.default_rng(1).permutation(1000)
        self.assertEqual(
            finders.holders_for(found[mixed], holders[mixed]),
            finders.holders_for(found, holders),
        )

    def test_no_number_where_even_frequent_words_are_missed(self):
        holders = np.arange(100, 0, -1)
        self.assertTrue(math.isnan(finders.holders_for(holders < 0, holders)))
        self.assertTrue(math.isnan(finders.holders_for(np.ones(9), np.ones(9))))


if __name__ == "__main__":
    absltest.main()
