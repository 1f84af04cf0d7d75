"""Tests that the numbers in the documents' tables are those of the results."""

import functools
import pathlib
import re
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from scripts import document_tables
from scripts.tables import quality_files, quality_results, render
from studies.xu_2023 import quality_report as xu_2023_quality_report
from tests import ROOT
from training.models import metric_names

# What `quality_files.differences` has of a pair of models.
_COMPARED = ("label", "size", "seeds", "loss", "one_suggestion")
# Some tables are computed for seconds: once for all tests.
_TABLES = {name: functools.cache(make) for name, make in document_tables.TABLES.items()}


class DocumentsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(document_tables.TABLES, _TABLES))

    def test_every_table_is_what_its_file_says(self):
        for document in document_tables.documents():
            with self.subTest(document.name):
                text = document.read_text()
                self.assertEqual(document_tables.renewed(text), text)
                self.assertEqual(document_tables.without_mark(text), [])

    def test_what_is_not_measured_has_no_results(self):
        reasons = {
            name.removeprefix("not measured: ")
            for document in document_tables.documents()
            for name, _, _ in document_tables.marked_tables(document.read_text())
            if name and name not in document_tables.TABLES
        }
        allowed = {"an overview", "options", "commands and commits", "links"}
        allowed |= {"definitions", "a comparison of features"}
        self.assertLessEqual(reasons, allowed)

    def test_documents_are_all_pages(self):
        pages = {page.relative_to(ROOT) for page in document_tables.documents()}
        expected = {page.relative_to(ROOT) for page in ROOT.glob("docs/**/*.md")}
        expected |= {pathlib.Path("README.md"), pathlib.Path("results/README.md")}
        self.assertEqual(pages, expected)

    def test_every_table_of_results_is_shown(self):
        text = "".join(path.read_text() for path in document_tables.documents())
        for name in document_tables.TABLES:
            self.assertIn(f"<!-- table {name} -->", text)


class QualityFilesTest(absltest.TestCase):
    def test_runs_of_a_seed_are_put_together_where_they_agree(self):
        results = pathlib.Path(self.create_tempdir().full_path)
        rows = {
            "seed_1": "bigram,5.0,0.2\nfedavg,4.0,0.25\n",
            "seed_1_dp_ftrl": "dp_ftrl,4.5,0.125\nbigram,5.0,0.2\n",
            "seed_2": "fedavg,3.0,0.25\nbigram,6.0,0.2\n",
        }
        for folder, text in rows.items():
            path = results / "xu_quality_paper_size" / folder / "judged.csv"
            path.parent.mkdir(parents=True)
            path.write_text(f"model,loss,one_suggestion\n{text}")
        with mock.patch.object(quality_results, "RESULTS", results):
            (row,) = quality_files.differences("xu_quality_paper_size").to_dict(
                "records"
            )
            self.assertEqual(
                [row[name] for name in _COMPARED],
                ["DP-FTRL less FedAvg", "670 units", 1, 0.5, -0.125],
            )
            # The judges of a seed have the same n-grams beside models of any size.
            trigram = metric_names.TRIGRAM
            larger = results / "xu_quality_paper_size/seed_1/judged.csv"
            larger.write_text(f"{larger.read_text()}{trigram},4.5,0.25\n")
            other = results / "xu_quality/seed_1/judged.csv"
            other.parent.mkdir(parents=True)
            counted = f"{trigram},4.5,0.25\n{metric_names.KNESER_NEY},4.25,0.5\n"
            # The last bit of a sum of logarithms may be another on another machine.
            counted = counted.replace("4.5,", "4.500000000000001,")
            other.write_text(f"model,loss,one_suggestion\n{counted}fedavg,3.5,0.5\n")
            seeds = quality_results.judged_by_seed("xu_quality_paper_size")
            self.assertEqual(seeds[1]["loss"][metric_names.KNESER_NEY], 4.25)
            self.assertEqual(seeds[1]["loss"]["fedavg"], 4.0)
            above = xu_2023_quality_report.ABOVE_KNESER_NEY
            self.assertEqual(seeds[1][above]["fedavg"], -0.25)
            text = other.read_text().replace("4.500000000000001,", "4.5000000001,")
            other.write_text(text)
            with self.assertRaisesRegex(ValueError, "two losses of one model of seed"):
                quality_files.models("xu_quality_paper_size")
            other.unlink()
            path = results / "xu_quality_paper_size/seed_1/judged.csv"
            path.write_text(path.read_text().replace("bigram,5.0", "bigram,5.1"))
            with self.assertRaisesRegex(ValueError, "two losses of one model of seed"):
                quality_files.differences("xu_quality_paper_size")

    def test_runs_at_another_rate_have_names_of_their_own(self):
        results = pathlib.Path(self.create_tempdir().full_path)
        trigram = metric_names.TRIGRAM
        rows = {
            "xu_quality_paper_size/seed_1": "dp_fedavg,99.0\ndp_ftrl,4.5\n",
            "xu_quality_dp_fedavg/seed_1": "dp_fedavg,5.0\n",
            "xu_quality_dp_fedavg/seed_1_pretrained": "dp_fedavg_pretrained,4.75\n",
            "xu_quality/seed_1": "dp_fedavg,6.0\n",
        }
        for folder, text in rows.items():
            (results / folder).mkdir(parents=True)
            counted = f"model,loss\n{text}{trigram},4.0\n"
            (results / folder / "judged.csv").write_text(counted)
            rounds = "setting,round,held_out_loss\n" + text.replace(",", ",400,")
            (results / folder / "runs.csv").write_text(rounds)
        with mock.patch.object(quality_results, "RESULTS", results):
            judged = quality_results.judged_by_seed("xu_quality_paper_size")[1]
            smaller = quality_results.judged_by_seed("xu_quality")[1]
            rounds = quality_results.rounds_by_seed("xu_quality_paper_size")[1]
        self.assertEqual(
            judged["loss"].to_dict(),
            {
                "dp_fedavg": 99.0,
                "dp_ftrl": 4.5,
                "dp_fedavg_rate_1": 5.0,
                "dp_fedavg_pretrained_rate_1": 4.75,
                trigram: 4.0,
            },
        )
        self.assertEqual(smaller["loss"].to_dict(), {"dp_fedavg": 6.0, trigram: 4.0})
        at_end = rounds.set_index("setting")["held_out_loss"].to_dict()
        self.assertEqual(at_end, judged["loss"].drop(trigram).to_dict())

    def test_regret_is_of_the_law_at_the_places_of_a_seed(self):
        results = pathlib.Path(self.create_tempdir().full_path)
        law = metric_names.BEST_POSSIBLE
        rows = {
            # Two repeats, of seeds 6 and 7, by older code with a regret of its own.
            "seed_6": "central,0,5.0,9.0\ntrigram,0,4.5,9.0\n"
            "central,1,7.0,9.0\ntrigram,1,6.5,9.0\n",
            # The same model, trained on another machine.
            "seed_6_law": f"central,0,5.0000000001,\n{law},0,4.0,\n",
            "seed_7_law": f"trigram,0,6.5,\n{law},0,6.0,\n",
        }
        for folder, text in rows.items():
            path = results / "xu_quality_synthetic" / folder / "judged.csv"
            path.parent.mkdir(parents=True)
            text = text.replace("trigram", metric_names.TRIGRAM).replace(
                "\n", ",1,1,1\n"
            )
            names = "one_suggestion,three_suggestions,picked_rate"
            path.write_text(f"model,repeat,loss,regret,{names}\n{text}")
        with mock.patch.object(quality_results, "RESULTS", results):
            found = quality_files.models("xu_quality_synthetic").set_index("label")
        self.assertEqual(found["seeds"].tolist(), [2, 2, 2])
        np.testing.assert_allclose(found["regret_half"], 0, atol=1e-9)
        regrets = found["regret"].round(9).to_dict()
        expected = {"trained centrally": 1.0, metric_names.TRIGRAM: 0.5, law: 0.0}
        self.assertEqual(regrets, expected)
        # What is counted is the same on each machine.
        path = results / "xu_quality_synthetic/seed_7_law/judged.csv"
        path.write_text(path.read_text().replace(",6.5,", ",6.5000000001,"))
        with (
            mock.patch.object(quality_results, "RESULTS", results),
            self.assertRaisesRegex(ValueError, "two losses of one model of seed 7"),
        ):
            quality_files.models("xu_quality_synthetic")

    def test_models_are_compared_seed_by_seed(self):
        # Judges differ far more from seed to seed than models do; and one of the
        # seeds lacks the model of more rounds.
        results = pathlib.Path(self.create_tempdir().full_path)
        for seed, loss, noise in ((1, 4.0, 0.5), (2, 9.0, 0.5), (3, 6.0, 0.5)):
            rows = [("fedavg", loss, 0.25), ("dp_ftrl", loss + noise, 0.125)]
            if seed < 3:
                rows.append(("fedavg_plateau", loss - seed, 0.25))
            folder = results / "xu_quality" / f"seed_{seed}"
            folder.mkdir(parents=True)
            text = "\n".join(",".join(map(str, row)) for row in rows)
            (folder / "judged.csv").write_text(f"model,loss,one_suggestion\n{text}\n")
        with mock.patch.object(quality_results, "RESULTS", results):
            found = quality_files.differences("xu_quality")
        self.assertEqual(
            found[[*_COMPARED]].to_numpy().tolist(),
            [
                ["DP-FTRL less FedAvg", "256 units", 3, 0.5, -0.125],
                ["FedAvg, three times the rounds less FedAvg", "256 units", 2, -1.5, 0],
            ],
        )
        # Of -1 and -2: half the difference times 12.706, Student's t of one.
        np.testing.assert_allclose(found["loss_half"], [0, 6.353], atol=1e-3)


class EntriesTest(absltest.TestCase):
    def test_an_entry_has_rows_of_its_own(self):
        results = pathlib.Path(self.create_tempdir().full_path)
        (results / "study").mkdir()
        values = (
            "line,here,paper,seconds\na,0.5,0.75,30\nb,9.0,9.0,60\na,1.0,1.125,60\n"
        )
        (results / "study" / "runs.csv").write_text(values)
        data = results / "tables.toml"
        data.write_text("""
            [made]
            header = "item | paper | here | match | command"
            [[made.entries]]
            rows = "study/runs"
            where = {line = ["a"]}
            compared = [["here", "paper"]]
            cells = ["an item", "{paper:g}", "{here:g}", "within {apart:g}", "a study"]
            time = "study/runs"
            [[made.entries]]
            cells = ["another", "a curve", "a curve", "yes", "another"]
            time = "1 s"
        """)
        with (
            mock.patch.object(render, "RESULTS", results),
            mock.patch.object(render, "_DATA", [data]),
        ):
            _, _, *lines = render.declared({})["made"]()
        self.assertEqual(
            lines,
            [
                "| an item | 0.75, 1.125 | 0.5, 1 | within 0.25 | a study, 2.5 min |",
                "| another | a curve | a curve | yes | another, 1 s |",
            ],
        )


class MarksTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(document_tables.TABLES, _TABLES))

    @parameterized.parameters(*document_tables.TABLES)
    def test_a_changed_number_is_found(self, name):
        table = document_tables.TABLES[name]()
        text = "\n".join([f"<!-- table {name} -->", "", *table, "", "The end.", ""])
        self.assertEqual(document_tables.renewed(text), text)
        # A mark that no table follows yet gets one.
        lone = f"<!-- table {name} -->\n\nThe end.\n"
        self.assertEqual(document_tables.renewed(lone), text)
        # The last digit of the last row that has one.
        last = max(i for i, line in enumerate(table) if re.search(r"\d", line))
        place = max(m.start() for m in re.finditer(r"\d", table[last]))
        digit = str((int(table[last][place]) + 1) % 10)
        wrong = table[last][:place] + digit + table[last][place + 1 :]
        changed = text.replace(table[last], wrong)
        self.assertNotEqual(changed, text)
        self.assertEqual(document_tables.renewed(changed), text)

    def test_tables_without_a_mark(self):
        text = "| a |\n|---|\n| b |\n\n| a |\n|---|\n| 1 |\n\n```\n| 2 |\n```\n"
        self.assertEqual(document_tables.without_mark(text), [5])
        marked = text.replace("\n\n|", "\n\n<!-- table not measured: why -->\n\n|")
        self.assertEqual(document_tables.without_mark(marked), [])
        self.assertEqual(document_tables.renewed(marked), marked)

    def test_mark_that_means_nothing(self):
        with self.assertRaisesRegex(ValueError, "line 2: no table is called 'other'"):
            document_tables.renewed("<!-- table other -->\n\n| 1 |\n|---|\n")


if __name__ == "__main__":
    absltest.main()
