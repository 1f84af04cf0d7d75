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

from federated_hh import alphabet as alphabet_lib
from federated_hh import contributions, oov_real_text, oov_report, oov_studies
from randomness import noise_keys
from simulation import (
    population,
    population_options,
    run_directory,
    tables,
)

_KEY = noise_keys.NoiseKey.of_seed(1)
_GREEDY = contributions.ItemSampler.GREEDY
_STUDY = oov_studies.Study(
    "A small study",
    (
        oov_studies.Setting("private", 10.0, _GREEDY, 2, 1_000_000, 0.5),
        oov_studies.Setting("open", math.inf, _GREEDY, 1, 2_000_000),
    ),
)


class _InterruptedError(Exception):
    pass


class OovStudiesTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.scratch = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.options = oov_studies.Options(
            scale=1e-4,
            num_repeats=2,
            seed=5,
            max_depth=1,
            max_prefixes=30,
            contribution_bound=5,
            characters=string.printable,
        )
        cls.population = population.prepare(
            population_options.PopulationOptions(
                tokenizer="whitespace",
                num_clients=cls.options.num_clients,
                mean_words_per_client=8,
            ),
            os.path.join(cls.scratch, "cache"),
        )

    def directory(self, name, resume=False):
        path = os.path.join(self.scratch, name)
        if resume:
            return run_directory.RunDirectory.resume(
                path, program="t", facts={}, noise_key=_KEY
            )
        return run_directory.RunDirectory.create(
            path, program="t", flags=(), facts={}, noise_key=_KEY
        )

    def runner(self, directory):
        return oov_studies.StudyRunner(_STUDY, self.options, self.population, directory)

    def test_runs_tables_and_resumption(self):
        with self.directory("whole") as directory:
            first, last = list(self.runner(directory).run())
        runs, levels = last.runs, last.levels
        pd.testing.assert_frame_equal(first.runs, runs[runs["repeat"] == 0])
        pd.testing.assert_frame_equal(first.levels, levels[levels["repeat"] == 0])
        self.assertEqual(levels["setting"].tolist(), runs["setting"].tolist())
        self.assertEqual(levels["pass_number"].tolist(), runs["pass_number"].tolist())
        self.assertAlmostEqual(
            runs["seconds"].iloc[0],
            levels["seconds"].iloc[:2].sum(),
        )
        self.assertEqual(runs["setting"].tolist(), ["private", "private", "open"] * 2)
        self.assertEqual(runs["clients_per_level"].tolist(), [100, 100, 200] * 2)
        self.assertEqual(runs["pass_number"].tolist(), [1, 2, 1] * 2)
        # Without noise every word found is one.
        is_open = runs["setting"] == "open"
        self.assertTrue((runs["words_found"] == runs["words_real"])[is_open].all())
        self.assertTrue((runs["words_real"] > 0)[is_open].all())
        self.check_interrupted(runs)
        self.check_summary(last)

    def check_interrupted(self, expected):
        save = run_directory.RunDirectory.save_checkpoint
        # After a level, after the last one of a setting, after the setting.
        for number in (1, 2, 3):
            calls = itertools.count(1)

            def save_and_fail(directory, state, calls=calls, number=number):
                save(directory, state)
                if next(calls) == number:
                    raise _InterruptedError

            name = f"cut_{number}"
            with (
                self.directory(name) as directory,
                mock.patch.object(
                    run_directory.RunDirectory, "save_checkpoint", save_and_fail
                ),
                self.assertRaises(_InterruptedError),
            ):
                list(self.runner(directory).run())
            part = pathlib.Path(self.scratch, name, "private_repeat_1")
            record = part / "simulator" / "rounds.jsonl"
            before = record.read_text().splitlines()
            self.assertLen(before, min(number, 2))
            with self.directory(name, resume=True) as directory:
                *_, results = self.runner(directory).run()
            pd.testing.assert_frame_equal(
                results.runs.drop(columns="seconds"), expected.drop(columns="seconds")
            )
            # The levels done are not asked again.
            after = record.read_text().splitlines()
            self.assertLen(after, 2)
            self.assertEqual(after[: len(before)], before)

    def check_summary(self, results):
        runs = results.runs
        summary = oov_report.summarize(runs).set_index("setting")
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
        files = oov_report.files_of("T", results, summary.reset_index(), ["a note"])
        table = files["table.md"].decode()
        self.assertIn(f"| {row['coverage']:.2%} ± {half:.2%} |", table)
        self.assertIn("50.0%", table)
        self.assertIn("* a note", table)
        self.assertTrue(files["coverage.png"].startswith(b"\x89PNG"))

    def test_settings_of_the_paper(self):
        parameters = {
            name: [
                oov_studies.Options(
                    1.0, 1, 1, 15, 10_000, 60, string.printable
                ).parameters(setting)
                for setting in study.settings
            ]
            for name, study in oov_studies.STUDIES.items()
        }
        self.assertEqual(
            {p.clients_needed for p in parameters["oov_table1"]}, {15_000_000}
        )
        self.assertEqual(
            [p.epsilon for p in parameters["oov_figure1"]],
            [2, 4, 6, 8, 10, 12, math.inf],
        )
        self.assertEqual(parameters["oov_production"][0].num_passes, 2)

    def test_parts_keep_who_took_part_in_other_repeats_apart(self):
        with self.directory("parts") as directory:
            list(self.runner(directory).run())
            paths = sorted(directory.path.glob("*/simulator/rounds.jsonl"))
        self.assertEqual(
            [path.parts[-3] for path in paths],
            ["open_repeat_1", "open_repeat_2", "private_repeat_1", "private_repeat_2"],
        )
        lines = [line for path in paths for line in path.read_text().splitlines()]
        self.assertLen({json.loads(line)["cohort"] for line in lines}, 6)

    def test_a_setting_that_cannot_be_run_is_refused_before_the_first_is(self):
        one_pass, two_passes = oov_studies.STUDIES["oov_table1"].settings[1:]
        options = oov_studies.Options(1.1e-5, 1, 1, 15, 10, 60, string.printable)
        options.check(oov_studies.Study("", (one_pass,)), options.num_clients)
        study = oov_studies.Study("", (one_pass, two_passes))
        message = r"'random, two passes' at scale 1.1e-05: .* 2 passes need 180"
        with self.assertRaisesRegex(ValueError, message):
            options.check(study, options.num_clients)
        # At a size that is fitting, but with clients who have no words and left.
        options = dataclasses.replace(self.options, scale=1.034e-4, max_depth=15)
        options.check(study, options.num_clients)
        with self.directory("refused") as directory:
            runner = oov_studies.StudyRunner(study, options, self.population, directory)
            with self.assertRaisesRegex(ValueError, "the population has 1,5"):
                next(runner.run())
            self.assertEmpty([*directory.path.glob("*_repeat_*")])

    def test_production_privacy_beside_the_papers(self):
        # The independent values of the notes: 0.1755 at s = 10,101; k = 49 for
        # s = 1,000,001 and no k by Lemma 1.
        options = oov_studies.Options(1.0, 1, 1, 15, 10_000, 60, string.printable)
        files = oov_report.privacy_files(
            options.parameters(oov_studies.STUDIES["oov_production"].settings[0]),
            alphabet_lib.Alphabet(options.characters),
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
        ({"scale": 0.0}, "scale"),
        ({"scale": 1.1}, "scale"),
        ({"num_repeats": 0}, "num"),
    )
    def test_bad_options(self, changes, message):
        values = {"scale": 1.0, "num_repeats": 1, **changes}
        with self.assertRaisesRegex(ValueError, message):
            oov_studies.Options(
                **values,
                seed=1,
                max_depth=1,
                max_prefixes=1,
                contribution_bound=1,
                characters="a",
            )


class RealTextTest(absltest.TestCase):
    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(path, "wt") as file:
            file.write(text)

    def test_unknown_words_of_several_files_are_found(self):
        data = pathlib.Path(self.create_tempdir().full_path) / "data"
        self.write(data / "word-lists/american-english-huge.txt.xz", "Hello\nworld\n")
        for part in range(2):
            posts = [
                json.dumps({"user": f"{part}_{user}", "text": "Hello brb @you world"})
                for user in range(40)
            ]
            path = data / f"blog-authorship/posts-0{part}-of-16.jsonl.xz"
            self.write(path, "".join(f"{post}\n" for post in posts))
        for name in ("ubuntu-irc/messages", "sentiment140-partial/tweets"):
            rows = "".join(f"u{i},hello lol\n" for i in range(60))
            self.write(data / f"{name}.csv.xz", f"user,text\n{rows}")
        cache = data / "cache"
        with (
            run_directory.RunDirectory.create(
                data / "run", program="t", flags=(), facts={}, noise_key=_KEY
            ) as directory,
        ):
            clients = oov_real_text.populations(str(data), cache)
            results, words = oov_real_text.RealTextRunner(
                clients, directory, num_repeats=1, seed=1, max_depth=3
            ).run()
        blogs = clients["blogs"]
        self.assertEqual(blogs.num_clients, 80)
        runs, levels = results.runs, results.levels
        guaranteed = oov_real_text.statements(clients, levels, max_depth=3, delta=1e-6)
        notes = oov_real_text.notes(clients, guaranteed)
        self.assertLen(notes, 3)
        self.assertStartsWith(notes[0], "blogs: 80 clients with 1 distinct unknown")
        self.assertEqual(guaranteed["blogs"].guarantees[0].epsilon, 10.0)
        self.assertEqual(guaranteed["blogs"].basis, "realised")
        candidates = levels["candidates"][levels["setting"] == "blogs, epsilon 10"]
        self.assertEqual(
            guaranteed["blogs"].parameters["domain_sizes (s)"],
            ", ".join(str(number + 1) for number in candidates),
        )
        self.assertEqual(
            runs["max_prefixes"].tolist(), [300] * 2 + [120] * 2 + [60] * 2
        )
        self.assertEqual(blogs.words.to_pylist(), ["brb"])
        self.assertEqual((runs["coverage"] == 1).tolist(), [True] * 6)
        without_noise = words[words["epsilon"] == math.inf]
        self.assertEqual(without_noise["word"].tolist(), ["brb", "lol", "lol"])
        self.assertIn("*brb*", oov_real_text.words_to_markdown(words, 3))


if __name__ == "__main__":
    absltest.main()
