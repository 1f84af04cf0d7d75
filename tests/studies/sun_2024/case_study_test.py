"""Tests of the case study's runs and tables on a small population."""

import dataclasses
import itertools
import json
import lzma
import math
import os
import pathlib
import re
import string
import tempfile
from unittest import mock

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.files import tables
from federated_hh.heavy_hitters import alphabet as alphabet_lib
from federated_hh.heavy_hitters import contributions
from federated_hh.heavy_hitters.ldp_triehh import parameters as ldp_triehh_parameters
from federated_hh.populations import population
from federated_hh.populations.options import population_options
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.runtime import runtime
from studies import study
from studies.sun_2024 import case_study as sun_2024
from studies.sun_2024 import coverage_report, coverage_study
from studies.sun_2024 import production as sun_2024_production
from studies.sun_2024 import real_text as sun_2024_real_text

_KEY = noise_keys.NoiseKey.of_seed(1)
_GREEDY = contributions.ItemSampler.GREEDY
_ALPHABET = alphabet_lib.Alphabet(string.printable)


class _InterruptedError(Exception):
    pass


class CoverageStudyTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.enterClassContext(runtime.tff_worker())
        cls.scratch = cls.enterClassContext(tempfile.TemporaryDirectory())
        # Few words, and short ones: each round asks about all of the list.
        words = pathlib.Path(cls.scratch, "words.txt")
        letters = string.ascii_lowercase[:12]
        words.write_text("".join(f"{a}{b}\n" for a in letters for b in letters))
        cls.population = population.prepare(
            population_options.PopulationOptions(
                tokenizer="whitespace",
                num_clients=1_550,
                mean_words_per_client=8,
                common_words=str(words),
                common_law="pitman_yor",
            ),
            os.path.join(cls.scratch, "cache"),
        )

    def study(self, **changes):
        def setting(name, epsilon, num_passes, clients, paper=None):
            parameters = ldp_triehh_parameters.LdpTrieHHParameters(
                cohort_size=clients,
                max_depth=2 if math.isinf(epsilon) else 1,
                max_prefixes=30,
                contribution_bound=5,
                epsilon=epsilon,
                num_passes=num_passes,
                sampler=_GREEDY,
            )
            return coverage_study.Setting(name, self.population, parameters, paper)

        values = {
            "title": "A small study",
            "settings": (
                setting("private", 10.0, 2, 100, 0.5),
                setting("open", math.inf, 1, 200),
            ),
            "num_repeats": 2,
            "data": {"population": self.population.fingerprint},
            "alphabet": _ALPHABET,
            "seed": 5,
            "notes": ("a note",),
        }
        return coverage_study.CoverageStudy(**(values | changes))

    def directory(self, name, resume=False):
        path = os.path.join(self.scratch, name)
        if resume:
            return run_directory.RunDirectory.resume(
                path, program="t", facts={}, noise_key=_KEY
            )
        return run_directory.RunDirectory.create(
            path, program="t", flags=(), facts={}, noise_key=_KEY
        )

    def test_runs_tables_and_resumption(self):
        with self.directory("whole") as directory:
            first, last = list(study.run(self.study(), directory))
        runs, levels = last["runs"], last["levels"]
        pd.testing.assert_frame_equal(first["runs"], runs[runs["repeat"] == 0])
        pd.testing.assert_frame_equal(first["levels"], levels[levels["repeat"] == 0])
        of_pass = ["setting", "repeat", "pass_number"]
        passes = levels[of_pass].drop_duplicates().reset_index(drop=True)
        pd.testing.assert_frame_equal(passes, runs[of_pass])
        self.assertAlmostEqual(
            runs["seconds"].iloc[0],
            levels["seconds"].iloc[:2].sum(),
        )
        self.assertEqual(runs["setting"].tolist(), ["private", "private", "open"] * 2)
        self.assertEqual(runs["cohort_size"].tolist(), [100, 100, 200] * 2)
        self.assertEqual(runs["pass_number"].tolist(), [1, 2, 1] * 2)
        # Without noise every word found is one. Those of one character, which are all
        # of a single level, are not scored.
        self.assertEqual(runs["words_found"].iloc[:2].tolist(), [0, 0])
        is_open = runs["setting"] == "open"
        self.assertTrue((runs["words_found"] == runs["words_real"])[is_open].all())
        self.assertTrue((runs["words_real"] > 0)[is_open].all())
        self.check_interrupted(runs[runs["repeat"] == 0])
        self.check_summary(last)
        self.check_parts(directory.path)

    def check_interrupted(self, expected):
        save = run_directory.RunDirectory.save_checkpoint
        # After a level, after the last one of a setting, after the setting.
        for number in (1, 2, 3):
            calls = itertools.count(1)

            def save_and_fail(directory, state, calls=calls, number=number):
                save(directory, state)
                if next(calls) == number:
                    raise _InterruptedError

            made = self.study(num_repeats=1)
            if number < 3:  # it goes on with the setting itself
                made = dataclasses.replace(made, settings=made.settings[:1])
            of_it = expected["setting"].isin([s.name for s in made.settings])
            name = f"cut_{number}"
            with (
                self.directory(name) as directory,
                mock.patch.object(
                    run_directory.RunDirectory, "save_checkpoint", save_and_fail
                ),
                self.assertRaises(_InterruptedError),
            ):
                list(study.run(made, directory))
            part = pathlib.Path(self.scratch, name, "private_repeat_1")
            record = part / "simulator" / "rounds.jsonl"
            before = record.read_text().splitlines()
            self.assertLen(before, min(number, 2))
            with self.directory(name, resume=True) as directory:
                (results,) = study.run(made, directory)
            pd.testing.assert_frame_equal(
                results["runs"].drop(columns="seconds"),
                expected[of_it].drop(columns="seconds"),
            )
            # The levels done are not asked again.
            after = record.read_text().splitlines()
            self.assertLen(after, 2)
            self.assertEqual(after[: len(before)], before)

    def check_parts(self, directory):
        """Parts keep apart who took part in other repeats."""
        paths = sorted(directory.glob("*/simulator/rounds.jsonl"))
        self.assertEqual(
            [path.parts[-3] for path in paths],
            ["open_repeat_1", "open_repeat_2", "private_repeat_1", "private_repeat_2"],
        )
        lines = [line for path in paths for line in path.read_text().splitlines()]
        self.assertLen({json.loads(line)["cohort"] for line in lines}, 8)

    def check_summary(self, found):
        runs = found["runs"]
        summary = coverage_report.summarize(runs).set_index("setting")
        self.assertEqual(summary.index.tolist(), ["private", "open"])
        self.assertEqual(summary["repeats"].tolist(), [2, 2])
        last = runs[(runs["setting"] == "private") & (runs["pass_number"] == 2)]
        row = summary.loc["private"]
        self.assertAlmostEqual(row["coverage"], last["coverage"].mean())
        # Student's t with one degree of freedom: 12.706 standard errors.
        half = 12.7062 * last["coverage"].std(ddof=1) / math.sqrt(2)
        self.assertAlmostEqual(row["coverage_high"] - row["coverage"], half, places=5)
        self.assertEqual(row["paper_coverage"], 0.5)
        self.assertTrue(np.isnan(summary.loc["open", "paper_coverage"]))
        files = self.study().files(found, pathlib.Path(self.scratch))
        table = files["table.md"].decode()
        self.assertIn(f"| {row['coverage']:.2%} ± {half:.2%} |", table)
        self.assertIn("50.0%", table)
        self.assertIn("* a note", table)
        self.assertTrue(files["coverage.png"].startswith(b"\x89PNG"))

    def test_settings_of_the_paper(self):
        options = sun_2024.Options(scale=1.0)
        parameters = {
            name: [options.parameters(setting) for setting in settings]
            for name, settings in sun_2024.SETTINGS.items()
        }
        self.assertEqual(
            {p.clients_needed for p in parameters["oov_table1"]}, {15_000_000}
        )
        self.assertEqual(
            [p.epsilon for p in parameters["oov_figure1"]],
            [2, 4, 6, 8, 10, 12, math.inf],
        )
        self.assertEqual(parameters["oov_production"][0].num_passes, 2)
        self.assertEqual({p.max_depth for p in parameters["oov_figure1"]}, {15})

    def test_a_setting_that_cannot_be_run_is_refused_before_all_else(self):
        cache = pathlib.Path(self.scratch, "no_cache")
        with self.assertRaisesRegex(ValueError, "'random, two passes': .* need 180"):
            sun_2024.prepare(
                "oov_table1",
                sun_2024.Options(scale=1.1e-5, max_prefixes=10),
                seed=1,
                cache=cache,
            )
        self.assertFalse(cache.exists())
        # Large enough, but for the clients who have no words and left.
        (setting, _) = self.study().settings
        clients = self.population.num_clients // 2 + 1
        parameters = dataclasses.replace(setting.parameters, cohort_size=clients)
        wrong = dataclasses.replace(setting, parameters=parameters)
        with self.assertRaisesRegex(ValueError, "'private': .*the population has 1,5"):
            self.study(settings=(wrong,))

    def test_synthetic_study_with_its_options(self):
        made = sun_2024.prepare(
            "oov_production",
            sun_2024.Options(scale=2e-5, max_depth=3, max_prefixes=20, num_repeats=1),
            seed=1,
            cache=os.path.join(self.scratch, "cache"),
        )
        with self.directory("production") as directory:
            (found,) = study.run(made, directory)
            files = made.files(found, directory.path)
        self.assertContainsSubset(
            {"runs.csv", "levels.csv", "summary.csv", "guarantees.csv", "privacy.md"},
            files,
        )
        self.assertIn("scale 2e-05", files[study.PAGE].decode())
        guarantees = tables.parse(files["guarantees.csv"].decode())
        self.assertStartsWith(guarantees["guarantee"][0], "client level: ")
        self.assertIn("epsilon 10, delta 0", guarantees["here"].tolist())
        (row,) = tables.parse(files["summary.csv"].decode()).to_dict("records")
        self.assertEqual((row["num_passes"], row["cohort_size"]), (2, 10))

    def test_target_words_of_bloggers(self):
        # 97 words of the dictionary, of which all but "the" are the lowest 6%.
        text = "the " * 92 + "zebra zebra quagga okapi lol lol lol lol"
        data = pathlib.Path(self.create_tempdir().full_path)
        (data / "blog-authorship").mkdir()
        (data / "word-lists").mkdir()
        (data / "word-lists" / "american-english-huge.txt.xz").write_bytes(
            lzma.compress(b"the\nzebra\nquagga\nokapi\n")
        )
        posts = [{"user": "1", "text": text}, {"user": "2", "text": "Okapi, urlLink"}]
        (data / "blog-authorship" / "posts-00.jsonl.xz").write_bytes(
            lzma.compress("".join(json.dumps(post) + "\n" for post in posts).encode())
        )
        cache = self.create_tempdir().full_path

        def prepare(**changes):
            options = sun_2024.Options(
                scale=2e-5,
                max_depth=3,
                max_prefixes=20,
                num_repeats=1,
                data_dir=str(data),
                mean_words_per_client=20,
                target_share=0.06,
                **changes,
            )
            return sun_2024.prepare("oov_table1", options, seed=1, cache=cache)

        made = prepare()
        clients = made.settings[0].population
        self.assertEqual(clients.words.to_pylist(), ["okapi", "quagga", "zebra"])
        self.assertEqual(clients.num_clients, 310)
        self.assertIn("dictionary in the lowest 6% of what bloggers", made.notes[0])
        self.assertIn("Pitman-Yor process with discount 0.81", made.notes[1])
        self.assertIn("15030, by rank; 20 words", made.notes[1])

        made = prepare(client_law="bloggers")
        clients = made.settings[0].population
        self.assertEqual(clients.num_clients, 310)
        self.assertIn("stands for 155 clients", made.notes[1])
        rows = {tuple(clients.client(i)) for i in range(310)}
        self.assertEqual(
            rows, {(("zebra", 2), ("okapi", 1), ("quagga", 1)), (("okapi", 1),)}
        )

    def test_production_privacy_beside_the_papers(self):
        # The independent values of the notes: 0.1755 at s = 10,101; k = 49 for
        # s = 1,000,001 and no k by Lemma 1.
        (setting,) = sun_2024.SETTINGS["oov_production"]
        files = sun_2024_production.guarantees(
            sun_2024.Options(scale=1.0).parameters(setting),
            _ALPHABET,
            pd.DataFrame(
                {
                    "repeat": [0] * 30 + [1] * 30,
                    "pass_number": ([1] * 15 + [2] * 15) * 2,
                    "level": [*range(1, 16)] * 4,
                    "clients": [500_000] * 60,
                    "cohort": [f"{number:064x}" for number in range(60)],
                    "candidates": ([10_100] + [1_010_000] * 14) * 4,
                }
            ),
        )
        text = files["privacy.md"].decode()
        table = tables.parse(files["guarantees.csv"].decode())
        for row in table.itertuples():
            self.assertIn(f"| {row.guarantee} | {row.here} |", text)
        self.assertIn("exact sum; of one repeat | epsilon 0.1755, delta 1e-10", text)
        # Two repeats are not two times that, and not once.
        together = re.search(r"over 2 repeats \| epsilon ([0-9.]+), delta 1e-10", text)
        self.assertBetween(float(together[1]), 1.35 * 0.1755, 1.5 * 0.1755)
        self.assertIn("delta 1e-10 (no proved upper bound) |", text)
        self.assertIn("epsilon 0.3075, delta 1e-10 | epsilon 0.315", text)
        self.assertIn("(subsets of d - 2) | none | k = 45", text)
        self.assertIn("(others hold no item) | k = 49 | k = 45", text)

    @parameterized.parameters(
        ({"scale": 0.0}, r"scale=0.0: has to be a number in \(0, 1\]"),
        ({"scale": 1.1}, "scale=1.1"),
        ({"scale": math.nan}, "scale=nan"),
        ({"num_repeats": 0}, r"num_repeats=0: has to be an integer in \[1, 1000\]"),
        ({"target_share": 1.0}, r"target_share=1.0: .* \(0, 1\)"),
        ({"vocabulary_size": 0}, "vocabulary_size=0"),
        ({"client_law": "bloggers"}, "client_law=bloggers: needs data_dir"),
        ({"client_law": "independent", "data_dir": "d"}, "does not read it"),
        ({"common_law": "frequencies", "data_dir": "d"}, "needs common_law="),
    )
    def test_bad_options(self, values, message):
        with self.assertRaisesRegex(ValueError, message):
            sun_2024.Options(**values)

    def test_no_repeats(self):
        with self.assertRaisesRegex(ValueError, "num_repeats is 0"):
            self.study(num_repeats=0)


class RealTextTest(absltest.TestCase):
    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(path, "wt") as file:
            file.write(text)

    def test_unknown_words_of_several_files_are_found(self):
        data = pathlib.Path(self.create_tempdir().full_path) / "data"
        self.write(data / "word-lists/american-english-huge.txt.xz", "Hello\nworld\n")
        for part in (0, 8, 9, 10):
            # Those of the last shard, a quarter of what is held out, say it otherwise.
            text = "urlLink (brb) world" + " brb brb gtg" * (part == 10)
            posts = [
                json.dumps({"user": f"{part}_{user}", "text": text})
                for user in range(40)
            ]
            posts.append(json.dumps({"user": f"{part} silent", "text": "Hello"}))
            path = data / f"blog-authorship/posts-{part:02}-of-16.jsonl.xz"
            self.write(path, "".join(f"{post}\n" for post in posts))
        for name in ("ubuntu-irc/messages", "sentiment140-partial/tweets"):
            rows = "".join(f"u{i},@you hello 'lol'\n" for i in range(60))
            rows += "u1,nick: hello\nubottu,botspeech\n" * (name[0] == "u")
            self.write(data / f"{name}.csv.xz", f"user,text\n{rows}")
        cache = data / "cache"
        with (
            runtime.tff_worker(),
            run_directory.RunDirectory.create(
                data / "run", program="t", flags=(), facts={}, noise_key=_KEY
            ) as directory,
        ):
            made = sun_2024_real_text.prepare(
                "oov_real_text",
                sun_2024_real_text.Options(str(data), num_repeats=1, max_depth=3),
                seed=1,
                cache=cache,
            )
            (found,) = study.run(made, directory)
            files = made.files(found, directory.path)
        private, *_ = made.settings
        blogs = private.population
        self.assertEqual(blogs.num_clients, 164)
        self.assertEqual(made.data["blogs"], blogs.fingerprint)
        runs, levels = found["runs"], found["levels"]
        page = files[study.PAGE].decode()
        notes = [line for line in page.splitlines() if "distinct unknown" in line]
        self.assertLen(notes, 4)
        self.assertStartsWith(notes[0], "* blogs: 164 clients with 2 distinct unknown")
        self.assertStartsWith(notes[1], "* blogs-held-out: 82 clients with 1 distinct")
        done = levels[levels["setting"] == "blogs, epsilon 10"]
        guaranteed = coverage_study.realised_statement(private.parameters, done, 1e-6)
        self.assertEqual(files["privacy_blogs.md"].decode(), guaranteed.to_markdown())
        self.assertEqual(guaranteed.parameters["local_epsilon"], 10.0)
        self.assertEqual(guaranteed.basis, "realised")
        candidates = levels["candidates"][levels["setting"] == "blogs, epsilon 10"]
        self.assertEqual(
            guaranteed.parameters["domain_sizes (s)"],
            ", ".join(str(number + 1) for number in candidates),
        )
        self.assertEqual(
            runs["max_prefixes"].tolist(), [300] * 4 + [120] * 2 + [60] * 2
        )
        self.assertEqual(blogs.words.to_pylist(), ["brb", "gtg"])
        self.assertEqual((runs["coverage"] == 1).tolist(), [True] * 8)
        # Of 40 + 40 * 4 times "brb" and "gtg" that others typed, the 40 are not found.
        of_others = runs["held_out_coverage"].to_numpy()
        self.assertEqual(of_others[2:4].tolist(), [160 / 200] * 2)
        self.assertTrue(np.isnan(np.delete(of_others, [2, 3])).all())
        self.assertIn("| 80.00% |", page)
        words = tables.parse(files["heavy_hitters.csv"].decode())
        without_noise = words[words["epsilon"] == math.inf]
        self.assertEqual(
            sorted(without_noise["word"]), ["brb", "brb", "gtg", "lol", "lol"]
        )
        self.assertIn("*brb*", page)


if __name__ == "__main__":
    absltest.main()
