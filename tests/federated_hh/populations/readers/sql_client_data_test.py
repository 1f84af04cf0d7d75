"""Tests of reading TFF's databases, against what TFF itself reads from them."""

import pathlib
import sqlite3
import tempfile
import zlib

import tensorflow_federated as tff
from absl.testing import absltest, parameterized

from federated_hh.files import verified_files
from federated_hh.populations.columns import client_text
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import files, sentences

_KEYBOARD = sentence_tokenizers.get_sentence_tokenizer("keyboard")


def encode(words):
    return [zlib.crc32(word.encode()) % 1000 for word in words]


class SqlClientDataTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Three clients as of Stack Overflow, written by TFF.
        scratch = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.path = pathlib.Path(scratch) / "small.sqlite"
        cls.written = tff.simulation.datasets.stackoverflow.get_synthetic()
        tff.simulation.datasets.save_to_sql_client_data(
            cls.written.client_ids,
            cls.written.create_tf_dataset_for_client,
            str(cls.path),
        )
        with sqlite3.connect(cls.path) as connection:
            connection.execute("UPDATE examples SET split_name = 'train'")
            connection.execute("UPDATE client_metadata SET split_name = 'train'")
            for table in ("examples", "client_metadata"):
                connection.execute(
                    f"UPDATE {table} SET split_name = 'test' "
                    "WHERE client_id = 'synthetic_3'"
                )

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def build(self, path=None, **options):
        target = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
        options = population_options.PopulationOptions(
            source=str(path or self.path), **{"text_column": "tokens"} | options
        )
        sentences.build_from_files(target, options, _KEYBOARD, encode, {})
        return as_dict(client_text.ClientText.open(target))

    def test_it_is_what_tff_reads(self):
        read = tff.simulation.datasets.load_and_parse_sql_client_data(
            str(self.path), self.written.element_type_structure
        )
        text = sentences.from_client_data(
            read, self.directory / "tff", encode, _KEYBOARD, text_feature="tokens"
        )
        expected = as_dict(text)
        self.assertEqual(self.build(), expected)
        self.assertLen(expected, 3)

    def test_a_split(self):
        self.assertEqual(set(self.build(split="test")), {"synthetic_3"})
        title = "iterator pattern in vb . net ( c # would use yield ! )"
        self.assertEqual(
            self.build(split="test", text_column="title")["synthetic_3"][0],
            encode(_KEYBOARD.split(title)[0]),
        )

    @parameterized.parameters(
        (
            dict(split="dev"),
            "no split 'dev' .--population_split.; it has test",
        ),
        (
            dict(text_column="text", max_bad_rows=0),
            "no feature 'text' .*, tokens",
        ),
        (dict(text_column="score", max_bad_rows=0), "feature 'score' holds no text"),
        (dict(user_column="who"), "--user_column=who: the users are the database"),
    )
    def test_what_it_does_not_have(self, options, regex):
        with self.assertRaisesRegex(verified_files.PopulationError, regex):
            self.build(**options)

    def test_words(self):
        def rows(**options):
            options = population_options.PopulationOptions(str(self.path), **options)
            batches, _, _ = files.read_rows(options)
            return [p for b in batches for p in zip(b.users, b.contents, strict=True)]

        found = rows(word_column="type", split="test")
        self.assertEqual(found, [("synthetic_3", "answer")] * 2)
        with self.assertRaisesRegex(
            verified_files.PopulationError, "--count_column=n: .* no counts"
        ):
            rows(word_column="type", count_column="n")

    def test_damaged_files(self):
        other = self.directory / "other.sqlite"
        with sqlite3.connect(other) as connection:
            connection.execute("CREATE TABLE examples (client_id, split_name)")
        for contents, regex in (
            (b"user,text\n" * 200, "cannot be read as a database"),
            (other.read_bytes(), "examples lacks serialized_example_proto"),
        ):
            other.write_bytes(contents)
            with self.assertRaisesRegex(verified_files.PopulationError, regex):
                self.build(other)
        table = self.directory / "a.csv"
        table.write_text("user,tokens\nann,see you\n")
        with self.assertRaisesRegex(verified_files.PopulationError, "no splits"):
            self.build(table, split="train")
        with self.assertRaisesRegex(verified_files.PopulationError, "decompress"):
            compressed = self.directory / "a.sqlite.xz"
            compressed.write_bytes(b"")
            self.build(compressed)

    def test_an_example_that_is_none(self):
        damaged = self.directory / "damaged.sqlite"
        damaged.write_bytes(self.path.read_bytes())
        with sqlite3.connect(damaged) as connection:
            connection.execute(
                "UPDATE examples SET serialized_example_proto = x'ff' WHERE rowid = 1"
            )
        whole, found = self.build(), self.build(damaged, max_bad_rows=1)
        self.assertLess(sum(map(len, found.values())), sum(map(len, whole.values())))
        with self.assertRaises(verified_files.PopulationError):
            self.build(damaged, max_bad_rows=0)


def as_dict(text):
    return {name: text.client(i) for i, name in enumerate(text.client_ids.to_pylist())}


if __name__ == "__main__":
    absltest.main()
