"""Tests of records of text: what is shared, and what is not."""

import dataclasses
import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest

from federated_hh.populations.columns import client_text
from training.text import text_record

_LONG = text_record.NUM_WORDS


def sentence(number, length=_LONG):
    """Returns a sentence that is like no other of another number or length."""
    return [4 + number, *range(10, 9 + length)]


class TextRecordTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)

    def text(self, name, rows):
        return client_text.ClientText.from_rows(self.scratch / name, rows.items())

    def test_what_is_shared(self):
        public = {
            "a": [sentence(1), sentence(2), [4, 5]],
            "b": [sentence(3, 15)],
            "held out": [sentence(4)],
        }
        record = text_record.TextRecord.of(
            self.text("public", public), np.array([0, 1]), 2, "public.csv"
        )
        self.assertEqual(record.texts[0].num_clients, 2)
        self.assertEqual(record.texts[0].num_sentences, 3)
        self.assertLen(record.windows, 2 + 4)
        private = {
            "b": [[4, 5], sentence(9)],
            "c": [sentence(3, 15), sentence(7, 11), sentence(1)],
            "d": [sentence(1)[::-1], sentence(1), sentence(4)],
            "held out": [sentence(8)],
        }
        found = record.shared_with(self.text("private", private))
        expected = text_record.Shared(
            is_same=False, ids=1, sentences=3, writers=2, compared=7
        )
        self.assertEqual(found, expected)
        self.assertTrue(found)
        nothing = {"x": [sentence(9)], "y": [[4, 5]]}
        found = record.shared_with(self.text("nothing", nothing))
        self.assertEqual(found, text_record.Shared(False, 0, 0, 0, 1))
        self.assertFalse(found)
        same = record.shared_with(self.text("public2", public))
        self.assertEqual(same, text_record.Shared(True, 2, 3, 2, 4))
        short = record.shared_with(self.text("short", {"x": [[4, 5]]}))
        self.assertEqual(short.compared, 0)

    def test_words_that_are_not_known_do_not_make_a_sentence_long(self):
        unknown = [1] * _LONG
        one = self.text("one", {"a": [[4, *unknown], [*sentence(1), 1]]})
        record = text_record.TextRecord.of(one, np.array([0]), 9, "one")
        self.assertLen(record.windows, 1)

    def test_ids_of_another_case(self):
        one = self.text("one", {"Ann": [[4]]})
        record = text_record.TextRecord.of(one, np.arange(1), 9, "one")
        self.assertEqual(record.shared_with(self.text("two", {"ann": [[5]]})).ids, 1)

    def test_what_private_training_passes_on(self):
        one = self.text("one", {"a": [sentence(1)]})
        first = text_record.TextRecord.of(one, np.arange(1), 9, "one")
        record = first.passed_on()
        self.assertFalse(record.is_whole)
        self.assertNotEqual(record.digest, first.digest)
        self.assertEqual(record.shared_with(one), first.shared_with(one))

    def test_a_record_of_other_hashes(self):
        record = text_record.TextRecord.of(
            self.text("a", {"a": [sentence(1)]}), np.arange(1), 9, "a"
        )
        with mock.patch.object(text_record, "NUM_WORDS", 9):
            record.write(self.scratch, "w")
        with self.assertRaisesRegex(ValueError, "num_words is 9.*[Tt]rain the model"):
            text_record.TextRecord.read(self.scratch, "w")

    def test_a_model_that_began_with_another(self):
        records, everybody = [], np.arange(1)
        for number, name in enumerate(("a", "b", "c")):
            text = self.text(name, {name: [sentence(number), sentence(9)]})
            records.append(text_record.TextRecord.of(text, everybody, 9, name))
        folder = self.scratch / "model"
        folder.mkdir()
        records[2].after(records[1].after(records[0])).write(folder, "w")
        last = text_record.TextRecord.read(folder, "w")
        self.assertTrue(last.is_whole)
        self.assertEqual([one.source for one in last.texts], ["a", "b", "c"])
        found = last.shared_with(self.text("of a", {"a": [sentence(7)]}))
        self.assertEqual(found.ids, 1)
        found = last.shared_with(self.text("of b", {"x": [sentence(1)]}))
        self.assertEqual((found.ids, found.sentences), (0, 1))
        found = last.shared_with(
            self.text("a again", {"a": [sentence(0), sentence(9)]})
        )
        self.assertTrue(found.is_same)
        # The first has no record: no later one knows all.
        last = records[2].after(records[1].after(None))
        self.assertFalse(last.is_whole)
        self.assertLen(last.texts, 2)

    def test_files(self):
        text = self.text("public", {"a": [sentence(1)], "b": [[4]]})
        record = text_record.TextRecord.of(text, np.array([0, 1]), 2, "public.csv")
        folder = self.scratch / "run" / "model"
        folder.mkdir(parents=True)
        self.assertIsNone(text_record.TextRecord.read(folder, "w"))
        record.write(folder, "w")
        for path in (folder, folder.parent):
            found = text_record.TextRecord.read(path, "w")
            expected = text_record.Text("public.csv", text.fingerprint, 2, 2)
            self.assertEqual(found.texts, (expected,))
            self.assertTrue(found.is_whole)
            self.assertEqual(found.digest, record.digest)
        with self.assertRaisesRegex(
            ValueError, "trained_on.npz.* is of .* w; .* other"
        ):
            text_record.TextRecord.read(folder, "other")
        for changes in (
            {"is_whole": False},
            {"texts": ()},
            {"ids": record.ids[1:]},
            {"windows": record.windows[1:]},
        ):
            changed = dataclasses.replace(record, **changes)
            self.assertNotEqual(changed.digest, record.digest)
            np.testing.assert_array_equal(found.ids, record.ids)
            np.testing.assert_array_equal(found.windows, record.windows)
        (folder / text_record.FILE).write_bytes(b"PK no zip")
        with self.assertRaisesRegex(ValueError, "trained_on.npz.* cannot be read"):
            text_record.TextRecord.read(folder, "w")


if __name__ == "__main__":
    absltest.main()
