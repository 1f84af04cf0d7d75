"""Tests of populations of several files, patterns and directories."""

import os
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
from absl.testing import absltest, parameterized

from federated_hh.files import verified_files
from federated_hh.populations import client_sentences, vocabulary
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import sources
from tests.federated_hh.populations.readers import files_test_case

_HEADER = "user,text\n"


class SourcesTest(files_test_case.FilesTestCase):
    def setUp(self):
        super().setUp()
        self.write("b.csv", _HEADER + "bob,star\nann,sun\n")
        # Another order of columns, and rows of the same users.
        self.write("a.csv", "text,user\nsun moon,ann\n")
        self.both = {"ann": [("sun", 2), ("moon", 1)], "bob": [("star", 1)]}

    def _names(self, source, **options):
        options = population_options.PopulationOptions(source=str(source), **options)
        return [os.path.basename(path) for path in sources.files_of(options)]

    @parameterized.parameters("{}/a.csv,{}/b.csv", "{}/*.csv", "{}", "{}/a.csv, {}/b*")
    def test_several(self, source):
        source = source.replace("{}", str(self.directory))
        self.assertEqual(self._names(source), ["a.csv", "b.csv"])
        self.assertEqual(self.words_of(source), self.both)
        (kept,) = (self.directory / "cache").iterdir()
        text = client_sentences.prepare(
            population_options.PopulationOptions(source=source),
            vocabulary.Vocabulary(["sun", "moon", "star"]),
            sentence_tokenizers.get_sentence_tokenizer("keyboard"),
            self.directory / "sentences",
        )
        ids = text.client_ids.to_pylist()
        self.assertEqual(ids, ["ann", "bob"])
        self.assertEqual(text.client(0), [[4, 5], [4]])
        self.assertTrue(
            kept.name.startswith(("a-", "b-", "csv-", "population-", "tmp"))
        )

    def test_the_order_is_the_users_and_in_a_pattern_that_of_names(self):
        self.assertEqual(
            self._names(f"{self.directory}/b.csv,{self.directory}/a.csv"),
            ["b.csv", "a.csv"],
        )
        below = self.directory / "deep" / "er"
        below.mkdir(parents=True)
        (below / "c.csv").write_text(_HEADER)
        self.assertEqual(self._names(self.directory), ["a.csv", "b.csv"])
        found = self._names(f"{self.directory}/**/*.csv")
        self.assertEqual(found, ["a.csv", "b.csv", "c.csv"])

    def test_names_with_commas_and_brackets_are_names(self):
        odd = self.write("x,[1].csv", _HEADER + "ann,sun\n")
        self.assertEqual(self._names(odd), ["x,[1].csv"])
        self.assertEqual(self.words_of(odd), {"ann": [("sun", 1)]})

    def test_a_directory_may_have_other_files(self):
        self.write("README.md", "about")
        self.write(".hidden.csv", "x")
        self.write("_SUCCESS", "")
        self.assertEqual(self._names(self.directory), ["a.csv", "b.csv"])
        self.write("c.dat", "x")
        found = self._names(self.directory, format="csv")
        self.assertEqual(found, ["README.md", "a.csv", "b.csv", "c.dat"])

    def test_compressions_may_differ(self):
        whole = (self.directory / "b.csv").read_bytes()
        (self.directory / "b.csv").unlink()
        self.write("b.csv.xz", files_test_case.COMPRESS[".xz"](whole))
        self.assertEqual(self.words_of(f"{self.directory}/*.csv*"), self.both)

    def test_parquet(self):
        for name, users in (("a", ["ann"]), ("b", ["bob", "ann"])):
            table = pa.table({"user": users, "text": ["sun"] * len(users)})
            pq.write_table(table, self.directory / f"{name}.parquet")
        self.assertEqual(
            self.words_of(f"{self.directory}/*.parquet"),
            {"ann": [("sun", 2)], "bob": [("sun", 1)]},
        )

    def test_bad_rows_are_of_all_files_together(self):
        self.write("a.csv", _HEADER + "ann\nann,sun\n")
        self.write("b.csv", _HEADER + "bob,sun\nbob\n")
        report = self.read(f"{self.directory}/*.csv").metadata["bad_rows"]
        self.assertEqual(report["count"], 2)
        places = [
            (pathlib.Path(row["file"]).name, row["line"]) for row in report["rows"]
        ]
        self.assertEqual(places, [("a.csv", 2), ("b.csv", 3)])
        with self.assertRaisesRegex(
            verified_files.PopulationError,
            "2 files has more than 1 bad rows .*a.csv:2: 1 fields .*b.csv:3: 1 fields",
        ):
            self.read(f"{self.directory}/*.csv", max_bad_rows=1)

    def test_a_file_that_changes_makes_another_population(self):
        first = self.read(f"{self.directory}/*.csv")
        again = self.read(f"{self.directory}/*.csv")
        self.assertEqual(first.directory, again.directory)
        os.utime(self.directory / "b.csv", ns=(1, 1))
        other = self.read(f"{self.directory}/*.csv")
        self.assertNotEqual(first.directory, other.directory)
        self.assertEqual(first.fingerprint, other.fingerprint)

    def test_what_is_refused(self):
        where = self.directory
        empty = where / "empty"
        empty.mkdir()
        (empty / "notes.txt").write_text("x")
        (where / "link.csv").symlink_to(where / "a.csv")
        self.write("c.jsonl", "{}\n")
        self.write("README", "")
        for source, regex in (
            (f"{where}/*.tsv", r"no file matches the pattern .*\*.tsv"),
            (f"{where}/none/*/x?.csv", f"no file matches .*looked in {where}/none"),
            (empty, "no file of a known format .*it has notes.txt"),
            (where / "none.csv", "there is no file .*none.csv"),
            (f"{where}/a.csv,{where}/none.csv", "there is no file .*none.csv"),
            (f"{where}/a.csv,{where}/c.jsonl", "a.csv is csv .*c.jsonl is jsonl"),
            (where, "twice"),  # by the link
            (
                f"{where}/a.csv,{where}/[ab].csv",
                "a.csv is named twice, by .*a.csv' and",
            ),
            (f"{where}/a.csv,{where}/../{where.name}/a.csv", "is named twice"),
            (f"{where}/R*", "README: the name does not show the format"),
        ):
            with self.subTest(source=source):
                self.assert_refused(source, regex)


if __name__ == "__main__":
    absltest.main()
