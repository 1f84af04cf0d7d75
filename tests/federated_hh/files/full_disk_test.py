"""Tests that a disk that takes no more is an error that names the file.

A limit on the size of files fails a write as a full disk does, in the real code.
"""

import contextlib
import gc
import os
import pathlib
import resource
from unittest import mock

import numpy as np
from absl.testing import absltest
from test import support

from federated_hh.files import array_files, verified_files
from federated_hh.populations import population
from federated_hh.populations.columns import (
    canonical_rows,
    client_text,
    client_words,
    column_writer,
    raw_column_writer,
    raw_columns,
)
from federated_hh.populations.readers import grouping, sentences
from federated_hh.rounds import checkpoints
from federated_hh.run_directory import files as run_files
from studies import data_parts

_LIMIT = 4096
_MANY = 10_000


@contextlib.contextmanager
def _full_disk(limit=_LIMIT):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class FullDiskTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.parent = pathlib.Path(self.create_tempdir().full_path)

    @contextlib.contextmanager
    def _error_names(self, path, error=OSError):
        with (
            _full_disk(),
            self.assertRaisesRegex(error, "File too large|no space") as e,
        ):
            yield
        self.assertIn(str(path), str(e.exception))

    def test_arrays_say_nothing_further_when_they_are_collected(self):
        folder = run_files.RunFiles(self.parent)
        arrays = {"a": np.ones(_MANY), "b": np.ones(_MANY)}
        with support.catch_unraisable_exception() as ignored:
            with self._error_names(self.parent / "arrays.npz"):
                array_files.write(self.parent / "arrays.npz", arrays)
            with self._error_names(
                self.parent / "state.npz", run_files.RunDirectoryError
            ):
                checkpoints.write(folder, "state.npz", arrays)
            gc.collect()
            self.assertIsNone(ignored.unraisable)
        self.assertEmpty(list(self.parent.iterdir()))

    def test_raw_column(self):
        dtype = np.dtype("<i4")
        writer = raw_column_writer.RawColumnWriter(self.parent, {"entries": dtype})
        with self._error_names(self.parent / "entries.bin"):
            writer.append("entries", np.ones(_MANY))

    def test_strings(self):
        writer = raw_column_writer.RawColumnWriter(self.parent, {})
        with self._error_names(self.parent / "words.arrow"):
            writer.write_strings("word", ["abc" * 10] * _MANY)

    def test_metadata(self):
        with self._error_names(self.parent / "population.json"):
            raw_columns.write_metadata(self.parent, {"a": "b" * _MANY}, {})

    def test_scratch_of_words(self):
        grouper = grouping.Grouper(self.parent, entries_in_memory=_MANY)
        with self._error_names(self.parent / "run-0.tmp"):
            words = np.arange(_MANY, dtype=np.int32)
            grouper.add(np.zeros(_MANY, np.int32), words)

    def test_scratch_of_sentences(self):
        builder = sentences.SentenceBuilder(self.parent, lambda words: [7] * len(words))
        builder.add(["ann"], [[["a"] * _MANY]])
        with self._error_names(self.parent / "tokens-in-file-order.tmp"):
            builder.finish({}, "keep")

    def test_joined_parts(self):
        part = self.parent / "posts.jsonl.xz"
        part.write_bytes(os.urandom(_MANY))
        with self._error_names(self.parent / "blogs-"):
            data_parts.join_parts([part], self.parent, "blogs.jsonl.xz")

    def test_derived_columns(self):
        words = client_words.ClientWords.from_rows(
            self.parent / "p", [("ann", [("sun", 1)])]
        )
        derived = self.parent / "p" / "derived"
        with self._error_names(derived / "one.bin", verified_files.PopulationError):
            words.derived_column("one", lambda: np.ones(_MANY))
        self.assertEmpty(os.listdir(derived))
        words.derived_column("one", lambda: np.ones(_MANY))

    def test_folder_of_derived_columns(self):
        words = client_words.ClientWords.from_rows(
            self.parent / "p", [("ann", [("sun", 1)])]
        )
        (self.parent / "p" / "derived").write_text("")  # in its place
        with self.assertRaisesRegex(
            verified_files.PopulationError, f"{self.parent}/p/derived: "
        ):
            words.derived_column("one", lambda: np.ones(1))

    def test_prepared_population(self):
        cache = self.parent / "cache"
        options = population.PopulationOptions(num_clients=_MANY)
        with self._error_names(cache, verified_files.PopulationError):
            population.prepare(options, cache)
        # What is kept of the word list would not fit either.
        self.assertEqual(os.listdir(cache), ["word-lists"])
        kept = (cache / "word-lists" / "derived").iterdir()
        self.assertEmpty([path for path in kept if path.suffix != ".lock"])

    def test_syncing(self):
        for kind, make in (
            ("words", lambda path: client_words.ClientWords.from_rows(path, [])),
            ("text", lambda path: client_text.ClientText.from_rows(path, [])),
        ):
            error = OSError(5, "Input/output error")
            with (
                mock.patch.object(os, "fsync", side_effect=error),
                self.assertRaisesRegex(OSError, f"{self.parent}/.{kind}.partial"),
            ):
                make(self.parent / kind)
            self.assertEmpty(os.listdir(self.parent))

    def test_unfinished_population(self):
        with (
            self.assertRaisesRegex(ValueError, "is incomplete"),
            column_writer.new_population(self.parent / "p") as writer,
        ):
            one = np.ones(1, np.int64)
            writer.set_words(["a", "b"])
            writer.append_rows(canonical_rows.Rows(one, one, one, one))
        with (
            self.assertRaisesRegex(ValueError, "is incomplete"),
            client_text.new_text(self.parent / "t") as partial,
        ):
            client_text.ClientTextWriter(partial).close()
        self.assertEmpty(os.listdir(self.parent))


if __name__ == "__main__":
    absltest.main()
