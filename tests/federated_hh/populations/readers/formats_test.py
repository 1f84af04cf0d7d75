"""Tests of file formats: each gives the population of a CSV file of the same rows."""

import json
import pathlib

import h5py
import pyarrow as pa
import pyarrow.parquet as pq
from absl.testing import absltest, parameterized

from federated_hh.files import verified_files
from federated_hh.populations import population

_ROWS = [
    ("ann", "see you"),
    ("ann", "naïve don't, you know"),
    ("bob", "hallo und tschüss"),
]
_TABLE = pa.table(
    {"user": [u for u, _ in _ROWS], "text": [t.split() for _, t in _ROWS]}
)
_LETTERS = "abcdefghijklmnopqrstuvwxyzïü'"


def _leaf(entries):
    data = {u: {"x": [], "y": []} for u, _ in _ROWS}
    for (user, _), entry in zip(_ROWS, entries, strict=True):
        data[user]["x"].append(entry)
    return json.dumps({"users": list(data), "num_samples": [2, 1], "user_data": data})


def _write_arrow(path, opened):
    with opened(str(path), _TABLE.schema) as file:
        file.write_table(_TABLE)


def _write_hugging_face(folder):
    folder.mkdir(parents=True)
    _write_arrow(folder / "data-00000-of-00001.arrow", pa.ipc.new_stream)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


class FormatsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        lines = [f'{user},"{text}"\n' for user, text in _ROWS]
        (self.folder / "a.csv").write_text("".join(["user,text\n", *lines]))

    def population(self, name, **options):
        options = {"alphabet": _LETTERS, "max_bad_rows": 0} | options
        return population.prepare(
            population.PopulationOptions(source=str(self.folder / name), **options),
            self.folder / "cache",
        )

    def write(self, name):
        """Writes the rows in the way that a name stands for."""
        path = self.folder / name
        objects = [{"user": user, "text": text} for user, text in _ROWS]
        if name == "lists.jsonl":
            rows = [{"user": user, "text": text.split()} for user, text in _ROWS]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif name == "objects.json":
            path.write_text(json.dumps(objects))
        elif name == "leaf.json":
            path.write_text(_leaf([text for _, text in _ROWS]))
        elif name == "nested.json":
            # Sentiment140 has lists of fields, Reddit lists of lists of tokens.
            path.write_text(_leaf([["7", [t.split(), []]] for _, t in _ROWS]))
        elif name == "lists.parquet":
            pq.write_table(_TABLE, path)
        elif name == "file.arrow":
            _write_arrow(path, pa.ipc.new_file)
        elif name == "stream.arrow":
            _write_arrow(path, pa.ipc.new_stream)
        elif name == "saved":
            _write_hugging_face(path)
        elif name == "splits":
            _write_hugging_face(path / "train")
            _write_hugging_face(path / "test")
            (path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
        elif name == "tff.h5":
            with h5py.File(path, "w") as file:
                for user in ("ann", "bob"):
                    texts = [text.encode() for u, text in _ROWS if u == user]
                    file.create_dataset(f"examples/{user}/snippets", data=texts)

    @parameterized.parameters(
        ("lists.jsonl", {}),
        ("objects.json", {}),
        ("leaf.json", {"text_column": "x"}),
        ("nested.json", {"text_column": "x.1"}),
        ("lists.parquet", {}),
        ("file.arrow", {}),
        ("stream.arrow", {}),
        ("saved", {}),
        ("splits", {"split": "train"}),
        ("tff.h5", {"text_column": "snippets"}),
    )
    def test_the_fingerprint_is_that_of_a_csv_file(self, name, options):
        self.write(name)
        found = self.population(name, **options)
        self.assertEqual(found.fingerprint, self.population("a.csv").fingerprint)
        self.assertEqual(found.client(0)[0], ("you", 2))

    def test_all_splits_are_read_where_none_is_named(self):
        self.write("splits")
        self.assertEqual(self.population("splits").client(0)[0], ("you", 4))

    @parameterized.parameters(
        ("leaf.json", {}, "no list 'text' .*fields are: x, y"),
        ("leaf.json", {"text_column": "x.1"}, "no item 1"),
        ("nested.json", {"text_column": "y"}, "population is empty"),
        ("leaf.json", {"text_column": "x", "user_column": "who"}, "its own users"),
        ("objects.json", {"text_column": "body"}, "no field 'body'"),
        ("file.arrow", {"split": "train"}, "no part of a Hugging Face"),
        ("splits", {"split": "dev"}, "has the splits train, test"),
        ("tff.h5", {}, "no feature 'text' .*features are: snippets"),
        ("tff.h5", {"user_column": "who"}, "users are the file's clients"),
        ("lists.parquet", {"word_column": "text"}, "must hold text"),
    )
    def test_what_they_do_not_have(self, name, options, regex):
        self.write(name)
        with self.assertRaisesRegex(verified_files.PopulationError, regex):
            self.population(name, **options)

    @parameterized.parameters(
        ("a.json", b'{"user": "ann"}\n{"user": "bob"}\n', "population_format=jsonl"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b"null", "value of type NoneType"),
        ("a.json", b'[1, "x", null]', "object was expected, not int"),
        ("a.json", b'[{"user": "a", "text": [["x"], [1]]}]', "has the token 1"),
        ("a.json", b'["\xff"]', "try --encoding=cp1252"),
        ("a.json", b'{"user_data": {"ann": null}}', "its fields are: none"),
        ("a.arrow", b"ARROW1 and no more", "cannot be read as Arrow"),
        ("a.arrow", b"", "cannot be read as Arrow"),
        ("a.h5", b"not HDF5", "cannot be read as HDF5"),
    )
    def test_damaged_files(self, name, contents, regex):
        (self.folder / name).write_bytes(contents)
        with self.assertRaisesRegex(verified_files.PopulationError, regex):
            self.population(name)

    def test_a_data_set_without_its_files(self):
        self.write("saved")
        (self.folder / "saved" / "data-00000-of-00001.arrow").unlink()
        with self.assertRaisesRegex(verified_files.PopulationError, "is not there"):
            self.population("saved")


class UsersTest(absltest.TestCase):
    def test_ids_that_fall_together_are_told_and_joined_on_request(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        users = ["7", "7.0", "ann ", "ann", "Ann", "B\u200b", "B", "é", "e\u0301"]
        users += ["1.50", "x.0", "\u200b"]
        rows = "".join(f"{user},hi\n" for user in users)
        (folder / "a.csv").write_text(f"user,text\n{rows}")
        options = population.PopulationOptions(source=str(folder / "a.csv"))
        with self.assertLogs(level="WARNING") as logs:
            apart = population.prepare(options, folder / "cache")
        self.assertEqual(apart.num_clients, len(users))
        self.assertRegex(
            logs.output[-1], "4 users have ids .*'7' and '7.0'; 'ann' and 'ann '"
        )
        options = population.PopulationOptions(
            source=str(folder / "a.csv"), normalize_users=True
        )
        with self.assertNoLogs(level="WARNING"):
            joined = population.prepare(options, folder / "cache")
        self.assertEqual(
            [str(user) for user in joined.client_ids],
            ["7", "ann", "Ann", "B", "é", "1.50", "x.0", "\u200b"],
        )


if __name__ == "__main__":
    absltest.main()
