"""Tests that damaged files of a population are named, and never used."""

import hashlib
import io
import json
import os
import pathlib
import shutil
import time
import types
from unittest import mock

import numpy as np
import pyarrow as pa
from absl.testing import absltest, parameterized

from federated_hh.files import verified_files
from federated_hh.populations.columns import client_text, client_words, raw_columns

_ROWS = [("ann", [("sun", 2), ("moon", 1)]), ("bob", []), ("cid", [("sea", 7)])]
_TEXT = [("ann", [[0, 1], [2]]), ("bob", [[2**31 - 1]])]
_WORDS_FILES = ("entries.bin", "row_splits.bin", "favorites.bin", "words.arrow")
_TEXT_FILES = ("tokens.bin", "sentence_splits.bin", "client_splits.bin")
_OLD = 3_000_000_000  # ns: longer than a file takes to be believed to be at rest


def _let_files_rest(test):
    """Puts the clock of `verified_files` ahead, for the rest of a test."""
    time.sleep(0.1)  # more than a tick of the file system's clock
    ahead = types.SimpleNamespace(time_ns=lambda: time.time_ns() + _OLD)
    test.enter_context(mock.patch.object(verified_files, "time", ahead))


def _packed(word_ids, counts=None):
    """Returns entries as three words pack them: two bits above 29 of count."""
    counts = [1] * len(word_ids) if counts is None else counts
    pairs = zip(word_ids, counts, strict=True)
    return np.array([w * 2**29 + n for w, n in pairs], np.int32)


def _flip(path):
    contents = bytearray(path.read_bytes())
    contents[len(contents) // 2] ^= 1
    path.write_bytes(contents)


def _lengthen(path):
    path.write_bytes(path.read_bytes() + b"\0" * 8)


def _empty(path):
    path.write_bytes(b"")


_DAMAGES = {
    "flipped": _flip,
    "longer": _lengthen,
    "shorter": lambda path: os.truncate(path, path.stat().st_size - 1),
    "empty": _empty,
    "missing": os.remove,
}


class DamagedFilesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.parent = pathlib.Path(self.create_tempdir().full_path)
        self.words = self.parent / "words"
        self.text = self.parent / "text"

    @parameterized.product(
        name=(*_WORDS_FILES, "client_ids.arrow"), damage=sorted(_DAMAGES)
    )
    def test_words(self, name, damage):
        client_words.ClientWords.from_rows(self.words, _ROWS)
        _DAMAGES[damage](self.words / name)
        with self.assertRaisesRegex(
            verified_files.PopulationError,
            f"{self.words / name} .*remove its directory and prepare it again",
        ):
            client_words.ClientWords.open(self.words)

    @parameterized.product(
        name=(*_TEXT_FILES, "client_ids.arrow"), damage=sorted(_DAMAGES)
    )
    def test_sentences(self, name, damage):
        client_text.ClientText.from_rows(self.text, _TEXT)
        _DAMAGES[damage](self.text / name)
        with self.assertRaisesRegex(
            verified_files.PopulationError,
            f"{self.text / name} .*remove its directory and prepare it again",
        ):
            client_text.ClientText.open(self.text)

    @parameterized.product(name=("one", "two"), damage=sorted(_DAMAGES))
    def test_derived_columns(self, name, damage):
        words = client_words.ClientWords.from_rows(self.words, _ROWS)

        def derive():
            build = lambda: [(np.arange(5), np.arange(7.0))]  # noqa: E731
            return words.derived_columns(["one", "two"], build)

        before = [pathlib.Path(path).read_bytes() for path in derive()]
        path = self.words / "derived" / f"{name}.bin"
        _DAMAGES[damage](path)
        if damage != "missing":
            with self.assertRaisesRegex(
                verified_files.PopulationError, f"{path} .*remove the folder"
            ):
                derive()
            shutil.rmtree(self.words / "derived")
        # Computed again, as it is said.
        after = [pathlib.Path(path).read_bytes() for path in derive()]
        self.assertEqual(before, after)

    @parameterized.parameters(
        "", "[]", "null", '{"size": 40}', '{"size": "40", "sha256": 0}', "[" * 100_000
    )
    def test_record_of_a_derived_column(self, contents):
        words = client_words.ClientWords.from_rows(self.words, _ROWS)
        words.derived_column("one", lambda: np.arange(5))
        record = self.words / "derived" / "one.json"
        record.write_text(contents)
        with self.assertRaisesRegex(
            verified_files.PopulationError, f"{record} is damaged.*remove it"
        ):
            words.derived_column("one", lambda: np.arange(5))

    def test_derived_column_of_another_population(self):
        first = client_words.ClientWords.from_rows(self.words, _ROWS)
        first.derived_column("one", lambda: np.arange(5))
        second = client_words.ClientWords.from_rows(self.parent / "second", _ROWS[:1])
        shutil.copytree(self.words / "derived", self.parent / "second" / "derived")
        with self.assertRaisesRegex(
            verified_files.PopulationError, "belongs to another population"
        ):
            second.derived_column("one", lambda: np.arange(5))

    def test_what_was_read_once_is_not_read_again(self):
        client_words.ClientWords.from_rows(self.words, _ROWS)
        opened = self._files_read()
        # Just written: it may change once more within one tick of the clock.
        self.assertLen(opened, 5)
        self.assertLen(self._files_read(), 5)
        _let_files_rest(self)
        self.assertLen(self._files_read(), 5)
        self.assertEmpty(self._files_read())
        # A change that leaves size and time of modification as they were.
        path = self.words / "entries.bin"
        times = path.stat()
        _flip(path)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        with self.assertRaisesRegex(ValueError, "entries.bin is damaged"):
            client_words.ClientWords.open(self.words)
        _flip(path)
        self.assertEqual(self._files_read(), ["entries.bin"])

    def test_a_copy_is_read(self):
        client_words.ClientWords.from_rows(self.words, _ROWS)
        _let_files_rest(self)
        client_words.ClientWords.open(self.words)
        copy = self.parent / "copy"
        shutil.copytree(self.words, copy)  # with the notes, and the times
        _flip(copy / "entries.bin")
        with self.assertRaisesRegex(ValueError, "copy/entries.bin is damaged"):
            client_words.ClientWords.open(copy)

    @parameterized.parameters("", "[]", "7", '{"entries.bin": 7}', "[" * 100_000)
    def test_notes_that_cannot_be_read_are_not_believed(self, contents):
        client_words.ClientWords.from_rows(self.words, _ROWS)
        (self.words / verified_files.NOTE_FILE).write_text(contents)
        client_words.ClientWords.open(self.words)
        (self.words / verified_files.NOTE_FILE).write_text(contents)
        _flip(self.words / "entries.bin")
        with self.assertRaisesRegex(ValueError, "entries.bin is damaged"):
            client_words.ClientWords.open(self.words)

    def test_notes_are_beside_the_files_and_alone(self):
        client_words.ClientWords.from_rows(self.words, _ROWS)
        self.assertCountEqual(
            os.listdir(self.words),
            [
                *_WORDS_FILES,
                "client_ids.arrow",
                "population.json",
                verified_files.NOTE_FILE,
            ],
        )

    def test_a_disk_that_takes_no_notes(self):
        client_words.ClientWords.from_rows(self.words, _ROWS)
        error = OSError(30, "Read-only file system")
        with mock.patch.object(
            verified_files.tempfile, "NamedTemporaryFile", side_effect=error
        ):
            client_words.ClientWords.open(self.words)

    def _files_read(self):
        opened = []

        def note(path, *args, **kwargs):
            if str(path).endswith((".bin", ".arrow")):
                opened.append(os.path.basename(path))
            return open(path, *args, **kwargs)

        with mock.patch.object(verified_files, "open", note, create=True):
            client_words.ClientWords.open(self.words)
        return sorted(opened)


class HostileColumnsTest(parameterized.TestCase):
    """Columns with right digests, whose numbers would lead a reader astray."""

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path) / "p"

    def _forge(self, name, contents):
        """Replaces a file, with its digest and that of the metadata."""
        path = self.directory / name
        path.write_bytes(contents)
        metadata = json.loads((self.directory / "population.json").read_text())
        files = {
            file: verified_files.WrittenFile.from_json(written)
            for file, written in metadata["files"].items()
        }
        digest = hashlib.sha256(contents).hexdigest()
        files[name] = verified_files.WrittenFile(len(contents), digest)
        raw_columns.write_metadata(self.directory, metadata, files)

    @parameterized.parameters(
        ("row_splits", np.int64([0, 2, 1, 3]), "a row has length -1"),
        ("row_splits", np.int64([0, 2, 2, 4]), "rows start in 0..4"),
        ("row_splits", np.int64([0, 2**62, -(2**63), 3]), "rows start in -9"),
        ("row_splits", np.int64([1, 2, 2, 3]), "the first row starts at 1"),
        ("row_splits", np.int64([0, 2, 2, 2]), "the rows end at 2; they have to be 3"),
        ("entries", _packed([0, 3, 1]), "in 0..3; they have to be in 0..2"),
        ("entries", _packed([0, -1, 1]), r"word ids lie in -1..1"),
        ("entries", _packed([0, 1, 1], [1, 0, 1]), "a count is 0"),
        ("entries", _packed([0, 1]), "entries.bin of 8 bytes for 3 values"),
        ("favorites", np.int32([0, 3, 1]), "in 0..3; they have to be in -1..2"),
        ("favorites", np.int32([0, -2, 1]), r"values lie in -2..1"),
    )
    def test_words(self, name, array, message):
        client_words.ClientWords.from_rows(self.directory, _ROWS)
        self._forge(f"{name}.bin", array.tobytes())
        with self.assertRaisesRegex(verified_files.PopulationError, message):
            client_words.ClientWords.open(self.directory)

    def test_wide_entries(self):
        # Ids that would be those of words if they were cut to 32 bits.
        rows = [("ann", [("sun", 2**31 - 1), ("moon", 1)])]
        for entry, message in (
            (-(2**63) + 1, "word ids lie in -4294967296..1"),
            (2**31 << 31 | 1, "word ids lie in 1..2147483648"),
            (1 << 31, "a count is 0"),
        ):
            client_words.ClientWords.from_rows(self.directory, rows)
            self._forge("entries.bin", np.int64([entry, 1 << 31 | 1]).tobytes())
            with self.assertRaisesRegex(verified_files.PopulationError, message):
                client_words.ClientWords.open(self.directory)
            shutil.rmtree(self.directory)

    @parameterized.parameters(
        (4, 31),
        (4, 28),
        (4, 0),
        (8, 30),
        (8, 62),
        (2, 29),
        (0, 29),
        (4, "29"),
        (4, 2.5),
    )
    def test_packings_that_are_none(self, entry_bytes, count_bits):
        client_words.ClientWords.from_rows(self.directory, _ROWS)
        metadata = json.loads((self.directory / "population.json").read_text())
        files = {
            file: verified_files.WrittenFile.from_json(written)
            for file, written in metadata["files"].items()
        }
        metadata |= {"entry_bytes": entry_bytes, "count_bits": count_bits}
        raw_columns.write_metadata(self.directory, metadata, files)
        with self.assertRaisesRegex(
            verified_files.PopulationError, "population.json is damaged"
        ):
            client_words.ClientWords.open(self.directory)

    @parameterized.parameters(
        ("tokens", np.int32([0, 1, -2, 3]), "values lie in -2..3"),
        ("sentence_splits", np.int64([0, 2, 2, 4]), "a row has length 0"),
        ("client_splits", np.int64([0, 3, 2]), "a row has length -1"),
        ("client_splits", np.int64([0, 4, 3]), "rows start in 0..4"),
    )
    def test_sentences(self, name, array, message):
        client_text.ClientText.from_rows(self.directory, _TEXT)
        self._forge(f"{name}.bin", array.tobytes())
        with self.assertRaisesRegex(verified_files.PopulationError, message):
            client_text.ClientText.open(self.directory)

    @parameterized.parameters(
        (pa.table({"word": pa.array(["a", "b"], pa.large_string())}), "has 2 values"),
        (
            pa.table({"word": pa.array(["a", "b", None], pa.large_string())}),
            "1 of them missing",
        ),
        (pa.table({"word": pa.array([1, 2, 3])}), "type int64"),
        (None, "words.arrow is damaged"),
    )
    def test_strings(self, table, message):
        client_words.ClientWords.from_rows(self.directory, _ROWS)
        contents = b"ARROW1 but nothing else"
        if table is not None:
            sink = io.BytesIO()
            with pa.ipc.new_file(sink, table.schema) as out:
                out.write_table(table)
            contents = sink.getvalue()
        self._forge("words.arrow", contents)
        for _ in range(2):  # and it is not taken for verified afterwards
            with self.assertRaisesRegex(verified_files.PopulationError, message):
                client_words.ClientWords.open(self.directory)
            if table is None:
                _let_files_rest(self)

    def test_checks_over_several_chunks(self):
        rng = np.random.default_rng(1)
        for _ in range(200):
            lengths = rng.integers(0, 4, rng.integers(1, 30))
            splits = np.concatenate(([0], np.cumsum(lengths)))
            whole = raw_columns.Splits(len(lengths), splits[-1], 0)
            parts = raw_columns.Splits(len(lengths), splits[-1], 0)
            bad = splits.copy()
            place = rng.integers(len(bad))
            bad[place] += rng.choice([-1, 1]) * rng.integers(1, 5)
            cut = rng.integers(1, len(splits))
            whole(splits)
            for part in (splits[:cut], splits[cut:]):
                parts(part)
            # By the definition: from 0 to the end, never back.
            is_bad = bad[0] != 0 or bad[-1] != splits[-1] or (np.diff(bad) < 0).any()
            check = raw_columns.Splits(len(lengths), splits[-1], 0)
            found = False
            try:
                for part in (bad[:cut], bad[cut:]):
                    check(part)
            except ValueError:
                found = True
            self.assertEqual(found, is_bad, (splits, bad))


if __name__ == "__main__":
    absltest.main()
