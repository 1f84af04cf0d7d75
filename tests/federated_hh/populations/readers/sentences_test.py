"""Tests of building sentences from files, against plain Python."""

import collections
import contextlib
import json
import pathlib
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow_federated as tff
from absl.testing import absltest, parameterized

from federated_hh.files import verified_files
from federated_hh.populations.columns import client_text
from federated_hh.populations.languages import sentence_tokenizers
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import sentences

_KEYBOARD = sentence_tokenizers.get_sentence_tokenizer("keyboard")
_ROWS = [
    ("ann", "See you. Bye!"),
    ("bob", "..."),
    ("cy", "one two three"),
    ("ann", "Again"),
]


def encode(words):
    return [zlib.crc32(word.encode()) % 1000 for word in words]


def reference(rows, split, empty_clients="drop"):
    """Groups in plain Python."""
    clients = collections.OrderedDict()
    for user, text in rows:
        clients.setdefault(user, []).extend(encode(words) for words in split(text))
    kept = empty_clients == "keep"
    return {user: text for user, text in clients.items() if text or kept}


class SentencesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def _build(self, source, **options):
        target = self.directory / "built"
        target.mkdir()
        options = population_options.PopulationOptions(source=str(source), **options)
        sentences.build_from_files(target, options, _KEYBOARD, encode, {"about": "it"})
        return client_text.ClientText.open(target)

    def _as_dict(self, text):
        ids = text.client_ids.to_pylist()
        return {name: text.client(i) for i, name in enumerate(ids)}

    @parameterized.parameters("csv", "jsonl", "parquet")
    def test_formats(self, kind):
        path = self.directory / f"a.{kind}"
        users, texts = zip(*_ROWS, strict=True)
        if kind == "csv":
            path.write_text("user,text\n" + "".join(f'{u},"{t}"\n' for u, t in _ROWS))
        elif kind == "jsonl":
            lines = [json.dumps({"user": u, "text": t}) + "\n" for u, t in _ROWS]
            path.write_text("".join(lines))
        else:
            pq.write_table(pa.table({"user": users, "text": texts}), path)
        text = self._build(path)
        self.assertEqual(self._as_dict(text), reference(_ROWS, _KEYBOARD.split))
        self.assertEqual(text.metadata["clients_without_sentences"], 1)
        self.assertEqual(text.metadata["bad_rows"], {"count": 0, "rows": []})
        self.assertEqual(text.metadata["about"], "it")
        self.assertNoCommonElements(
            {".tmp"}, {path.suffix for path in (self.directory / "built").iterdir()}
        )

    def test_raw_sentiment140(self):
        path = self.directory / "tweets.csv"
        rows = [("4", "1", "Mon", "NO_QUERY", "ann", "caf\xe9 time. http://x.y @bob")]
        lines = [",".join(f'"{value}"' for value in row) + "\n" for row in rows]
        path.write_bytes("".join(lines).encode("iso-8859-1"))
        text = self._build(
            path,
            encoding="iso-8859-1",
            csv_columns=("polarity", "id", "date", "query", "user", "text"),
        )
        self.assertEqual(self._as_dict(text), {"ann": [encode(["café", "time"])]})

    @parameterized.product(
        entries_in_memory=(1, 3, 1000), empty_clients=("drop", "keep")
    )
    def test_grouping_on_disk(self, entries_in_memory, empty_clients):
        random = np.random.default_rng(3)
        rows = []
        for _ in range(300):
            words = random.integers(0, 50, random.integers(0, 12))
            text = " ".join(f"w{i}{'.' if i % 5 == 0 else ''}" for i in words)
            rows.append((f"u{random.integers(20)}", text))
        for place in (0, 150, 300):
            rows.insert(place, (f"without {place}", "..."))
        directory = self.directory / "built"
        directory.mkdir()
        builder = sentences.SentenceBuilder(directory, encode, entries_in_memory)
        with contextlib.closing(builder):
            for user, text in rows:
                builder.add([user], [_KEYBOARD.split(text)])
            builder.finish({}, empty_clients)
        text = client_text.ClientText.open(directory)
        expected = reference(rows, _KEYBOARD.split, empty_clients)
        self.assertEqual(self._as_dict(text), expected)
        self.assertEqual(text.metadata["clients_without_sentences"], 3)
        self.assertEqual(text.keeps_empty_clients, empty_clients == "keep")

    def test_bad_rows_are_listed(self):
        path = self.directory / "a.jsonl"
        path.write_text('{"user": "a", "text": "b c"}\nnot JSON\n{"user": 1}\n')
        text = self._build(path)
        self.assertEqual(text.metadata["bad_rows"]["count"], 2)
        self.assertEqual(text.metadata["bad_rows"]["rows"][0]["line"], 2)
        self.assertEqual(self._as_dict(text), {"a": [encode(["b", "c"])]})

    @parameterized.parameters(
        ({"source": "synthetic"}, "synthetic population is not a file"),
        ({"word_column": "text"}, "is read as words"),
        ({"format": "word_counts"}, "is read as words"),
        ({"text_column": "tweet"}, "no column 'tweet'"),
        ({"max_bad_rows": 0, "csv_columns": ("user", "text", "n")}, "bad rows"),
        ({}, "no text of its 1 clients has a sentence"),
    )
    def test_bad_input(self, options, regex):
        path = self.directory / "a.csv"
        path.write_text("user,text\nann,?!\n")
        options = {"source": str(path)} | options
        with self.assertRaisesRegex(verified_files.PopulationError, regex):
            self._build(**options)

    def test_client_data(self):
        data = tff.simulation.datasets.TestClientData(
            {
                "ann": {"tokens": ["See you. Bye!", "Again"]},
                "bob": {"tokens": ["?"]},
            }
        )
        text = sentences.from_client_data(
            data, self.directory / "built", encode, _KEYBOARD, text_feature="tokens"
        )
        expected = reference(_ROWS[:1] + _ROWS[3:], _KEYBOARD.split)
        self.assertEqual(self._as_dict(text), expected | {"bob": []})
        self.assertTrue(text.keeps_empty_clients)
        with self.assertRaisesRegex(
            verified_files.PopulationError, "text_feature is 'text'"
        ):
            sentences.from_client_data(
                data, self.directory / "other", encode, _KEYBOARD
            )
        self.assertFalse((self.directory / "other").exists())


if __name__ == "__main__":
    absltest.main()
