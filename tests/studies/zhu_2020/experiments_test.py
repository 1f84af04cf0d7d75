"""Tests of the studies of Zhu et al. 2020: budgets, data, tables, and a small run."""

import math
import os
import pathlib
from unittest import mock

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

import studies
from federated_hh.heavy_hitters import alphabet, selection
from federated_hh.populations.columns import client_words
from federated_hh.populations.readers import word_table
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from studies import comparison, study
from studies.zhu_2020 import contestants as zhu_2020_contestants
from studies.zhu_2020 import experiments as zhu_2020
from studies.zhu_2020 import printed as zhu_2020_printed
from studies.zhu_2020 import report as zhu_2020_report
from studies.zhu_2020 import theory as zhu_2020_theory
from tests import ROOT

_KEY = noise_keys.NoiseKey(1, is_secret=False)


def _task(num_clients, epsilon):
    clients = mock.Mock(spec=client_words.ClientWords, num_clients=num_clients)
    return comparison.Task(clients, alphabet.Alphabet("ab"), epsilon, num_clients**-2)


class BudgetsTest(parameterized.TestCase):
    @parameterized.parameters(
        # Printed in Section 5.
        (659_774, 1.0, "4.29"),
        (659_774, 4.0, "4.96"),
        (6_000_000, 1.0, "5.31"),
        (6_000_000, 4.0, "5.99"),
    )
    def test_local_epsilons_of_sfp_are_the_papers(self, clients, epsilon, printed):
        local = zhu_2020_contestants.paper_budget(_task(clients, epsilon))
        self.assertEqual(f"{local:.2f}", printed)
        tighter = zhu_2020_contestants.clones_budget(_task(clients, epsilon))
        self.assertGreater(tighter, local + 3)

    def test_the_populations_are_those_of_the_papers_budgets(self):
        self.assertEqual(zhu_2020._USERS, 659_774)
        self.assertEqual(zhu_2020._OOV_USERS, 6_000_000)


class PrintedTest(absltest.TestCase):
    def test_how_many_of_the_top_50_fit_is_the_papers_recall(self):
        # TrieHH completes words of up to nine characters in ten rounds: at epsilon 4 it
        # finds all of those, and recall at 50 is 0.76 (Table 2).
        words = list(zhu_2020_printed.frequencies())
        fit = [word for word in words[:50] if len(word) <= 9]
        self.assertEqual(len(fit) / 50, zhu_2020_report.PAPER_TABLE_2["TrieHH", 4.0][0])
        self.assertLen(words, 100)
        self.assertEqual(words[0], "dont")

    def test_the_rest_is_rarer_and_makes_up_one(self):
        scratch = self.create_tempdir().full_path
        tail = [(f"{'abc'[i % 3]}{i}x", 5_000 - i) for i in range(4_000)]
        population = client_words.ClientWords.from_rows(
            os.path.join(scratch, "words"), [("a", [("dont", 10**6), *tail])]
        )
        counts = zhu_2020_printed.counts_with_tail(population)
        total = sum(counts.values())
        self.assertAlmostEqual(total / 1e9, 1, 5)
        printed = zhu_2020_printed.frequencies()
        for word, share in printed.items():
            self.assertAlmostEqual(counts.pop(word) / 1e9, share, 9)
        # The 100 most frequent others are not in it.
        self.assertLen(counts, 3_900)
        self.assertLessEqual(max(counts.values()) / 1e9, min(printed.values()))
        path = zhu_2020_printed.counts_file(population, scratch)
        lines = pathlib.Path(path).read_text().splitlines()
        self.assertEqual(lines[0], "all\tdont\t11741000")
        self.assertEqual(zhu_2020_printed.counts_file(population, scratch), path)


class DataTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = self.create_tempdir().full_path
        self.enter_context(mock.patch.object(zhu_2020, "_SYNTHETIC_CLIENTS", 3_000))

    def population(self, name, **options):
        return zhu_2020.population_of(name, zhu_2020.Options(**options), self.scratch)

    def raw(self):
        path = os.path.join(self.scratch, "raw.csv")
        with open(path, "w", encoding="iso-8859-1") as file:
            for i, text in enumerate(["hello caf\xe9 hello", "world lol", "lol lol"]):
                file.write(f'"0","{i}","d","NO_QUERY","u{i}","{text}"\n')
        return path

    def test_the_raw_file_is_taken_as_it_is(self):
        data, users, clients = self.population("zhu_figure4", sentiment140=self.raw())
        self.assertEqual(data, "Sentiment140, the raw file")
        self.assertIs(users, clients)
        words = [dict(clients.client(i)) for i in range(3)]
        self.assertEqual(words, [{"hello": 2}, {"world": 1, "lol": 1}, {"lol": 2}])

    def test_unknown_words_are_drawn_by_frequency(self):
        known = os.path.join(self.scratch, "known.txt")
        with open(known, "w") as file:
            file.write("hello\nworld\n")
        data, _, clients = self.population(
            "zhu_table2",
            sentiment140=self.raw(),
            dictionary=known,
            resample_clients=50,
        )
        self.assertIn("the raw file; 50 words drawn", data)
        self.assertEqual([clients.client(i) for i in range(50)], [[("lol", 1)]] * 50)

    def test_unknown_words_of_the_raw_file_need_a_dictionary(self):
        with self.assertRaisesRegex(ValueError, "unknown words need a dictionary"):
            self.population("zhu_table2", sentiment140=self.raw())

    def test_without_data_it_is_synthetic_english(self):
        data, _, clients = self.population("zhu_figure6", resample_clients=700)
        self.assertEqual(
            data,
            "synthetic English; 700 users with all their words drawn from their "
            "frequencies",
        )
        self.assertEqual(clients.num_clients, 700)
        self.assertGreater(clients.num_entries, 2_000)

    def test_part_of_the_tweets(self):
        shared = ROOT.parent / "shared" / "data"
        if not (shared / "sentiment140-partial").exists():
            self.skipTest("the data set sentiment140-partial is not there")
        data, users, clients = self.population(
            "zhu_table2", data_dir=str(shared), resample_clients=1_000
        )
        self.assertIn("57,198 of its tweets; 1,000 words", data)
        self.assertGreater(users.num_clients, 30_000)
        known = word_table.read_dictionary(
            str(shared / "word-lists" / "american-english-huge.txt.xz")
        )
        self.assertTrue(known.isdisjoint(clients.words.to_pylist()))


class SmallRunTest(absltest.TestCase):
    def test_settings(self):
        own = comparison.contestant("examples.known_words:KnownWords")
        settings = zhu_2020._settings("zhu_table2", zhu_2020.Options(), (own,))
        names = [setting.name for setting in settings]
        self.assertLen(names, 12)
        self.assertEqual(names[0], "TrieHH, epsilon 1")
        self.assertEqual(names[-1], "KnownWords, epsilon 4")
        self.assertEqual({setting.num_runs for setting in settings}, {5})
        settings = zhu_2020._settings("zhu_figure4", zhu_2020.Options(), ())
        runs = {setting.name: setting.num_runs for setting in settings}
        self.assertEqual(runs["TrieHH, epsilon 2"], 40)
        self.assertEqual(runs["SFP, epsilon 4"], 5)

    def test_two_algorithms(self):
        scratch = self.create_tempdir().full_path
        chosen = (zhu_2020_contestants.TRIEHH, zhu_2020_contestants.SFP)
        settings = tuple(comparison.Setting(one, 4.0, 2) for one in chosen)
        with (
            mock.patch.object(zhu_2020, "_SYNTHETIC_CLIENTS", 20_000),
            mock.patch.object(zhu_2020, "_settings", return_value=settings),
        ):
            small = zhu_2020.prepare(
                "zhu_figure4",
                zhu_2020.Options(resample_clients=200_000),
                seed=1,
                cache=scratch,
            )
        with run_directory.RunDirectory.create(
            os.path.join(scratch, "run"),
            program="t",
            flags=(),
            facts={},
            noise_key=_KEY,
        ) as directory:
            (tables,) = list(study.run(small, directory))
        runs = tables["runs"]
        self.assertEqual(
            runs["line"].tolist(), ["TrieHH"] * 2 + ["SFP, T = 20", "SFP, T = 80"] * 2
        )
        self.assertEqual(set(runs.loc[runs["line"] == "TrieHH", "precision"]), {1.0})
        files = small.files(tables, pathlib.Path(scratch))
        tables_ = {"runs.csv", "scores.csv", "summary.csv", "discovery.csv"}
        pictures = {"figure3.png", "figure4.png"}
        self.assertEqual(set(files), tables_ | pictures | {"table.md"})
        page = files["table.md"].decode()
        # The paper's numbers stand beside ours.
        self.assertRegex(page, r"\| TrieHH \| 4 \|  \|.*\| near 1 \| 1.000 \|  \|")
        self.assertIn("Data: synthetic English; 200,000 most frequent words", page)
        summary = pd.read_csv(pathlib.Path(self._write(files, "summary.csv")))
        page = zhu_2020_report.to_markdown("zhu_table2", "Table 2", summary, "made up")
        self.assertRegex(page, r"\| TrieHH \| 4 \|  \|.*\| 0\.76 \|.*\| 1 \|")
        self.assertRegex(page, r"\| SFP, T = 80 \| 4 \|.*\| 0\.325 \|.*\| 0\.456 \|")
        shares = pd.read_csv(pathlib.Path(self._write(files, "scores.csv")))
        for end in ("", "_low", "_high"):
            self.assertTrue(shares[f"recall{end}"].dropna().between(0, 1).all())

    def _write(self, files, name):
        path = self.create_tempfile(name).full_path
        pathlib.Path(path).write_bytes(files[name])
        return path


class ReportTest(absltest.TestCase):
    def discovery(self):
        return pd.DataFrame(
            {
                "line": ["TrieHH"] * 4,
                "contestant": ["TrieHH"] * 4,
                "variant": [""] * 4,
                "epsilon": [1.0] * 4,
                "characters": [3, 4, 12, 5],
                "share": [0.1, 0.099, 0.1, 0.001],
                "runs": [10] * 4,
                "found_in_run": ["1" * 10, "1" * 9 + "0", "0" * 10, "0001000000"],
                "worst_case": [0.9, 0.8, 0.9, 0.05],
            }
        )

    def test_discovery_rates_of_words_of_like_frequency(self):
        table = zhu_2020_report.binned(self.discovery()).set_index("words")
        # The word of 12 characters is left out.
        self.assertEqual(sorted(table.index), [1, 2])
        self.assertEqual(table.loc[2, "discovery_rate"], 19 / 20)
        self.assertAlmostEqual(table.loc[2, "worst_case"], 0.85)
        self.assertEqual(table.loc[1, "discovery_rate"], 0.1)
        self.assertBetween(table.loc[1, "discovery_rate_low"], 0, 0.1)
        # Runs are the draws: 9 of 10 found both words, one found one of them.
        shares = [1.0] * 9 + [0.5]
        error = np.std(shares, ddof=1) / np.sqrt(10)
        self.assertBetween(
            table.loc[2, "discovery_rate_low"], 0.95 - 6 * error, 0.95 - 2 * error
        )

    def test_no_interval_where_runs_agree(self):
        discovery = self.discovery()
        discovery["found_in_run"] = "1" * 10
        table = zhu_2020_report.binned(discovery)
        self.assertTrue(table["discovery_rate_low"].isna().all())

    def test_plots_are_made(self):
        plot = zhu_2020_report.plot_discovery(zhu_2020_report.binned(self.discovery()))
        self.assertTrue(plot.startswith(b"\x89PNG"))


class TheoryTest(absltest.TestCase):
    def test_the_smallest_population_is_nearly_so(self):
        found = zhu_2020_theory.smallest_tight_population(0.05, 4.0, 30_000)

        def rate(n):
            parameters = triehh_solver.solve_parameters(
                population_size=n, max_length=10, epsilon=4.0, delta=n**-2
            )
            holders = math.floor(0.05 * n)
            return triehh.worst_case_discovery_rate(holders, parameters)

        self.assertGreaterEqual(rate(found), 0.9)
        self.assertLess(rate(int(found / 1.03)), 0.9)

    def test_files(self):
        rows = [
            {
                "setting": "epsilon 1",
                "repeat": 0,
                "epsilon": 1.0,
                "frequency": f,
                "clients_corollary1": n,
                "clients_tight": n // 2,
            }
            for f, n in ((1e-4, 10**7), (1e-2, 10**5))
        ]
        options = zhu_2020_theory.Options(num_frequencies=2)
        study = zhu_2020_theory.prepare("", options, seed=1, cache="")
        made = study.files({"figure2": pd.DataFrame(rows)}, None)
        page = made["table.md"].decode()
        self.assertEqual(page.count("| yes |"), 12)
        self.assertNotIn("| no |", page)
        self.assertIn("| 1 | 0.0001 | 10,000,000 | 5,000,000 |", page)
        self.assertTrue(made["figure2.png"].startswith(b"\x89PNG"))


class OptionsTest(absltest.TestCase):
    def test_all_studies_are_known(self):
        names = {name for name in studies.MODULES if name.startswith("zhu_")}
        self.assertEqual(names, {*zhu_2020.TITLES, "zhu_theory"})

    def test_bad_options(self):
        with self.assertRaisesRegex(ValueError, "resample_clients=-1"):
            zhu_2020.Options(resample_clients=-1)
        np.testing.assert_allclose(
            zhu_2020_theory.Options(num_frequencies=3).frequencies, [1e-4, 1e-3, 1e-2]
        )
        self.assertEqual(
            selection.WordSelection.MOST_FREQUENT,
            comparison.Task(mock.Mock(), mock.Mock(), 1.0, 0.1).word_selection,
        )


if __name__ == "__main__":
    absltest.main()
