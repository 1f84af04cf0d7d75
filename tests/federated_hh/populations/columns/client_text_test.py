"""Tests of sentences as columns on disk."""

import os
import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.populations.columns import client_text, client_words

_ROWS = [("ann", [[4, 1, 5], [6]]), ("bob", [[2**31 - 1, 0]])]


class ClientTextTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)

    def _write(self, rows):
        return client_text.ClientText.from_rows(self.directory / "a", rows)

    def test_what_is_written_is_read(self):
        text = self._write(_ROWS)
        self.assertEqual(
            (text.num_clients, text.num_sentences, text.num_tokens), (2, 3, 6)
        )
        self.assertEqual([text.client(0), text.client(1)], [s for _, s in _ROWS])
        self.assertEqual(text.client_ids.to_pylist(), ["ann", "bob"])
        for name, dtype in (("tokens", "<i4"), ("client_splits", "<i8")):
            raw = np.fromfile(text.column_path(name), dtype)
            np.testing.assert_array_equal(raw, getattr(text, name))
        again = client_text.ClientText.from_rows(self.directory / "b", _ROWS)
        self.assertEqual(text.fingerprint, again.fingerprint)
        # As it was before clients without sentences could be kept.
        self.assertStartsWith(text.fingerprint, "8931e4967fa2a42028fde63ff62ab5fd")

    def test_clients_without_sentences(self):
        rows = [("a", []), *_ROWS, ("b", []), ("c", [])]
        text = self._write(rows)
        found = [text.client(i) for i in range(text.num_clients)]
        self.assertEqual(found, [sentences for _, sentences in rows])
        self.assertEqual(text.client_splits.tolist(), [0, 0, 2, 3, 3, 3])
        self.assertTrue(text.keeps_empty_clients)
        unknown = client_text.ClientText(text.directory, {"num_clients": 5})
        self.assertFalse(unknown.keeps_empty_clients)

    @parameterized.parameters(
        ([("a", [[1]]), ("a", [[1]])], "is a duplicate"),
        ([("a", [[1], []])], "sentence_lengths has 0"),
        ([("a", [[-1]])], r"lie in -1..-1"),
        ([("a", [[2**31]])], "to be in"),
    )
    def test_bad_rows(self, rows, regex):
        with self.assertRaisesRegex(ValueError, regex):
            self._write(rows)
        self.assertEmpty(os.listdir(self.directory))

    def test_bad_directories(self):
        text = self._write(_ROWS)
        for index in (-1, 2):
            with self.assertRaisesRegex(ValueError, "to be in 0..1"):
                text.client(index)
        with self.assertRaisesRegex(ValueError, "'words'; it has to be one of"):
            text.column_path("words")
        words = client_words.ClientWords.from_rows(
            self.directory / "w", [("ann", [("sun", 1)])]
        )
        with self.assertRaisesRegex(ValueError, "holds clients' words, not sentences"):
            client_text.ClientText.open(words.directory)
        os.truncate(text.column_path("tokens"), 4)
        with self.assertRaisesRegex(ValueError, "has 4 bytes, 24 bytes were written"):
            client_text.ClientText.open(text.directory)
        with self.assertRaises(FileExistsError):
            self._write(_ROWS)


if __name__ == "__main__":
    absltest.main()
