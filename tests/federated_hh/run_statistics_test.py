"""Tests of the program of interactive statistics as a user runs it."""

import json
import pathlib

import pandas as pd
from absl.testing import absltest

from federated_hh.files import tables
from tests import ROOT, forked_programs

_FIGURE_4 = ROOT / "configs/statistics_figure4.json"
_SMALL = (
    "--num_clients=3000",
    "--mean_words_per_client=10",
    "--num_tokens=30",
    "--context_words=30",
    "--epsilon=2",
    "--ngram_words=2",
)


def _run(*flags):
    return forked_programs.run("federated_hh.run_statistics", *flags)


class RunStatisticsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        self.cache = f"--population_cache={self.scratch / 'cache'}"

    def test_from_flags_to_report(self):
        path = self.scratch / "run"
        done = _run(
            *_SMALL,
            self.cache,
            f"--output_dir={path}",
            "--cohorts=everybody",
            "--show_device_log=7",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        found = tables.read(path / "ngrams.csv")
        self.assertEqual(
            found.columns.tolist(), ["words", "ngram", "estimate", "stderr", "share"]
        )
        self.assertIn("the", found["ngram"].tolist())
        self.assertEqual(set(found["words"]), {1, 2})
        against = tables.read(path / "simulator" / "ngrams.csv")
        # An estimate counts devices that report an n-gram, so no more than hold it.
        ones = against[against["words"] == 1]
        self.assertTrue(
            (ones["estimate"] < ones["true_holders"] + 5 * ones["stderr"]).all()
        )
        metrics = pd.read_csv(path / "metrics.csv")
        self.assertEqual(metrics["reports"].tolist(), [3000, 3000])
        self.assertEqual(metrics["aggregate_epsilon"].tolist(), [1.0, 1.0])
        log = tables.read(path / "simulator" / "device_log.csv")
        self.assertEqual(log["outcome"].tolist(), ["answered", "answered"])
        self.assertEqual(log["device"].tolist(), [7, 7])
        self.assertEqual(log["minimum_cohort"].tolist(), [*metrics["minimum_cohort"]])
        self.assertIn("The log of device 7", done.stdout)
        privacy = json.loads((path / "privacy.json").read_text())
        self.assertEqual(privacy["guarantees"][0]["epsilon"], 2.0)
        self.assertAlmostEqual(privacy["guarantees"][0]["delta"], 2e-6)
        local = sum(metrics["local_epsilon"])
        self.assertAlmostEqual(privacy["guarantees"][1]["epsilon"], local)
        page = (path / "report.html").read_text()
        for text in ("Queries", "Log of device 7", "True counts"):
            self.assertIn(text, page)

    def test_two_servers_add_up_who_stays(self):
        path = self.scratch / "shared"
        done = _run(
            *_SMALL,
            self.cache,
            f"--output_dir={path}",
            "--cohorts=everybody",
            "--aggregation=two_servers",
            "--drop_out=0.05",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        metrics = pd.read_csv(path / "metrics.csv")
        total = metrics["reports"] + metrics["refused"]
        self.assertEqual(total.tolist(), [3000, 3000])
        # Six standard deviations of 150.
        self.assertTrue((metrics["refused"] - 150).abs().lt(72).all())
        self.assertIn("the", tables.read(path / "ngrams.csv")["ngram"].tolist())
        privacy = json.loads((path / "privacy.json").read_text())
        self.assertIn("do not collude", " ".join(privacy["assumptions"]))

    def test_analyses_leave_tables_and_plots(self):
        for analysis, files in (
            ("joint", ("pairs.csv", "pairs.png", "ngrams.csv", "simulator/pairs.csv")),
            (
                "distribution",
                ("buckets.csv", "quantiles.csv", "simulator/distribution.png"),
            ),
        ):
            path = self.scratch / analysis
            done = _run(
                *_SMALL,
                self.cache,
                f"--output_dir={path}",
                f"--analysis={analysis}",
                "--devices=vectorised",
                "--epsilon=8",
                "--false_positives=50",
                "--distribution_queries=2",
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            for name in files:
                self.assertTrue((path / name).exists(), name)
            page = (path / "report.html").read_text()
            self.assertIn("cohort aggregate epsilon at most", page)

    def test_recipes_are_asked_as_they_are(self):
        good = json.loads(_FIGURE_4.read_text())
        good["privacyBudget"] = {
            "localEpsilon": 2,
            "cohortAggregateEpsilon": 0.5,
            "minimumCohort": 2000,
        }
        # More than there are devices; about what may be asked twice.
        too_few = {
            "query": "select ngrams from KeyboardNGrams",
            "dataTypeContent": {"ngrams": good["dataTypeContent"]["ngrams"]},
            "privacyBudget": {**good["privacyBudget"], "minimumCohort": 5000},
        }
        changes = (
            ({}, "answered"),
            ({"version": "0"}, "no device answered: devices do not know the version"),
            ({"query": "select * from KeyboardNGrams"}, "not in the approved class"),
            ({}, "check 2"),
            (too_few, "fewer reports than the minimum cohort"),
            (too_few, "check 1"),
        )
        files = []
        for i, (change, _) in enumerate(changes):
            files.append(self.scratch / f"recipe_{i}.json")
            files[-1].write_text(json.dumps(good | change))
        path = self.scratch / "own"
        done = _run(
            *_SMALL,
            self.cache,
            f"--output_dir={path}",
            "--analysis=joint",
            "--cohorts=everybody",
            "--epsilon=4",
            "--ask_refused",
            f"--recipe={','.join(map(str, files))}",
        )
        # All were asked; the first without an answer is the error.
        self.assertEqual(done.returncode, 1)
        last = done.stderr.splitlines()[-1]
        self.assertIn(f"{files[1]}: no device answered: devices do not know", last)
        outcomes = tables.read(path / "recipes.csv")["outcome"].tolist()
        self.assertLen(outcomes, len(changes))
        for outcome, (_, expected) in zip(outcomes, changes, strict=True):
            self.assertIn(expected, outcome)
        # The refused ones cost nothing: the first, and the one with too few reports.
        privacy = json.loads((path / "privacy.json").read_text())
        self.assertEqual(privacy["guarantees"][0]["epsilon"], 1.0)
        self.assertEqual(privacy["guarantees"][1]["epsilon"], 4.0)
        self.assertLen(tables.read(path / "histogram_1.csv"), 272)
        self.assertTrue((path / "histogram_1.png").exists())

    def table(self):
        """Writes a table of 400 users, and a question to them."""
        cities = [*["Oslo"] * 6, *["New York"] * 3, ""]
        rows = [f"u{i};{20 + i % 50};{cities[i % 10]}" for i in range(400)]
        table = self.scratch / "survey.csv"
        table.write_text("user;age;city\n" + "\n".join(rows) + "\n")
        recipe = json.loads(_FIGURE_4.read_text()) | {
            "AnalysisIdentifier": "org.example.insights.device-table",
            "query": "select city from DeviceTable",
            "cohorts": [],
            "dataTypeContent": {
                "city": {"dataType": "TextType", "values": ["Oslo", "New York", "X"]}
            },
        }
        del recipe["privacyBudget"]
        return table, recipe

    def ask(self, recipe, *flags):
        file = self.scratch / "question.json"
        file.write_text(json.dumps(recipe))
        return _run(f"--recipe={file}", self.cache, *flags)

    def test_a_question_of_ones_own(self):
        table, recipe = self.table()
        for devices in ("real", "vectorised"):
            path = self.scratch / devices
            done = self.ask(
                recipe,
                f"--table={table}",
                f"--devices={devices}",
                "--epsilon=4",
                f"--output_dir={path}",
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            histogram = tables.read(path / "histogram_1.csv").set_index("city")
            for city, share in (("Oslo", 0.6), ("New York", 0.3), ("(other)", 0.1)):
                row = histogram.loc[city]
                self.assertLess(
                    abs(row["share"] - share), 5 * row["stderr"] / row["estimate"]
                )
            self.assertRegex(done.stdout, r"largest first: Oslo \([0-9.]+%\), New York")
            self.assertIn("Most helpful change", done.stdout)
            self.assertIn("400 devices, 400 a query", done.stderr)
            # The rows are somebody's.
            self.assertEqual(done.stderr.count("The noise key: SHA-256"), 1)
            before = done.stderr.partition("The noise key: SHA-256")[0]
            self.assertIn("400 a query", before)
        policy = self.scratch / "policy.json"
        printed = _run(f"--table={table}", "--print_policy", self.cache)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertNotIn("The noise key: SHA-256", printed.stderr)
        fields = json.loads(printed.stdout)
        del fields["columns"]["city"]
        fields["AnalysisIdentifier"] = "com.example.survey"
        policy.write_text(json.dumps(fields))
        both = (f"--table={table}", f"--policy={policy}")
        done = self.ask(recipe, *both, f"--output_dir={self.scratch / 'none'}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("insights.device-table is not approved", done.stderr)
        self.assertIn("com.example.survey and the columns age (INTEGER)", done.stderr)
        recipe["AnalysisIdentifier"] = "com.example.survey"
        done = self.ask(recipe, *both, f"--output_dir={self.scratch / 'none'}")
        self.assertIn("no such column: city", done.stderr)
        bucketed = {"dataType": "BucketedType", "boundaries": [0, 45]}
        recipe |= {
            "query": "select max(age) as age from DeviceTable",
            "dataTypeContent": {"age": bucketed},
        }
        path = self.scratch / "policy"
        done = self.ask(recipe, *both, f"--output_dir={path}")
        self.assertEqual(done.returncode, 0, done.stderr)
        # Two questions of a policy that allows one report go to disjoint cohorts.
        file = self.scratch / "question.json"
        done = _run(
            *(f"--recipe={file},{file}", *both),
            f"--output_dir={self.scratch / 'twice'}",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("200 a query (--cohorts=disjoint)", done.stderr)
        done = self.ask(recipe, *both, "--devices=vectorised")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'select ... from DeviceTable'", done.stderr)

    def test_cells_of_another_type_are_refused_before_anything_is_asked(self):
        table, recipe = self.table()
        text = table.read_text().replace(";25;", ";25,5;").replace(";2", ";2,")
        table.write_text(text)
        bucketed = {"dataType": "BucketedType", "boundaries": [0, 45]}
        texts = {"dataType": "TextType", "values": ["21"]}
        path = self.scratch / "none"
        for where, content, message in (
            ("", bucketed, "age has texts .*as line 2 has '2,0'.* comma as a point"),
            (" where city = 'Oslo'", bucketed, "BucketedType counts numbers"),
            (" where age > 25", texts, "compares it with a number.*comma as a point;"),
            ("", texts, None),
        ):
            recipe["query"] = f"select age from DeviceTable{where}"
            recipe["dataTypeContent"] = {"age": content}
            done = self.ask(recipe, f"--table={table}", f"--output_dir={path}")
            self.assertEqual(done.returncode, 2 if message else 0, done.stderr)
            if message:
                self.assertRegex(done.stderr.splitlines()[-1], message)
                self.assertFalse(path.exists())
                self.assertNotIn("The noise key: SHA-256", done.stderr)
            self.assertIn("age is TEXT, as it has numbers with a comma", done.stderr)
        # What a query computes of a text may be a number.
        recipe["query"] = "select length(age) as age from DeviceTable"
        recipe["dataTypeContent"] = {"age": bucketed}
        path = self.scratch / "length"
        done = self.ask(recipe, f"--table={table}", f"--output_dir={path}")
        self.assertEqual(done.returncode, 0, done.stderr)
        table, recipe = self.table()
        recipe |= {
            "query": "select age from DeviceTable",
            "dataTypeContent": {"age": texts},
        }
        done = self.ask(recipe, f"--table={table}", "--output_dir=/none")
        self.assertEqual(done.returncode, 2)
        self.assertIn("age has numbers (INTEGER), and TextType", done.stderr)

    def test_refusals_come_before_the_population(self):
        recipe = json.loads(_FIGURE_4.read_text())
        path = self.scratch / "refused"
        flags = ("--num_clients=3000", f"--output_dir={path}")
        for changes, message in (
            ({}, "keyboard-ngrams-age is not approved"),
            ({"version": "7"}, "version 7 of recipes is not known"),
        ):
            done = self.ask(recipe | changes, *flags)
            self.assertEqual(done.returncode, 2)
            last = done.stderr.splitlines()[-1]
            self.assertIn(message, last)
            self.assertIn("columns ngrams (TEXT) of the table KeyboardNGrams", last)
            self.assertFalse(path.exists())
            self.assertFalse((self.scratch / "cache").exists())
        done = self.ask(recipe, *flags, "--ask_refused", *_SMALL)
        self.assertEqual(done.returncode, 1)
        self.assertIn("No sum will be released", done.stderr)
        self.assertNotIn("A value is found", done.stderr)
        self.assertIn("Privacy: epsilon 0 at delta 0", done.stdout)
        privacy = json.loads((path / "privacy.json").read_text())
        spent = [(g["epsilon"], g["delta"]) for g in privacy["guarantees"]]
        self.assertEqual(spent, [(0, 0), (0, 0)])

    def test_files_that_are_no_recipes_are_one_line(self):
        figure = json.loads(_FIGURE_4.read_text())
        content = figure["dataTypeContent"]
        bad = self.scratch / "bad.json"
        for change, message in (
            ({"age": {**content["age"], "boundaries": [20, 40, 30]}}, "age.boundaries"),
            ({"ngrams": {**content["ngrams"], "tokens": ["a"]}}, "not in tokens"),
        ):
            bad.write_text(
                json.dumps({**figure, "dataTypeContent": {**content, **change}})
            )
            done = _run(f"--recipe={bad}", f"--output_dir={self.scratch / 'none'}")
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr.splitlines()[-1], f"{bad}: .*{message}")
        done = _run("--recipe=/no/such", f"--output_dir={self.scratch / 'none'}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("/no/such: No such file", done.stderr.splitlines()[-1])

    def test_bad_flags_are_one_line(self):
        for flags, message in (
            (("--epsilon=0.0000001",), "--epsilon"),
            (("--strategy=static", "--num_tokens=300"), "cells at once"),
            (("--show_device_log=1", "--devices=vectorised"), "--show_device_log"),
            (("--aggregation=two_servers", "--devices=vectorised"), "--devices=real"),
            (("--drop_out=0.1",), "--aggregation=two_servers"),
            (("--aggregation=two_servers", "--drop_out=1"), "--drop_out"),
            ((*_SMALL, self.cache, "--show_device_log=3000"), "--show_device_log"),
            (("--num_clients=30", self.cache), "30 devices cannot answer"),
            (("--table=x.csv",), "needs --recipe"),
            (("--policy=/no/such",), "/no/such: No such file"),
            (("--policy=x", "--epsilon=2"), "does not go with --policy"),
            (
                (f"--recipe={_FIGURE_4}", "--table=x.csv", "--population=y.csv"),
                "--population=",
            ),
            (
                (
                    *_SMALL,
                    self.cache,
                    "--analysis=joint",
                    "--local_epsilon=4",
                    f"--recipe={_FIGURE_4}",
                ),
                "minimumCohort is 19,000, and a query is asked of",
            ),
        ):
            done = _run(*flags, f"--output_dir={self.scratch / 'bad'}")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(message, done.stderr.splitlines()[-1])


if __name__ == "__main__":
    absltest.main()
