"""Tests of files of arrays: damaged ones, and ones that are not written to the end."""

import io
import json
import pathlib

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.files import array_files
from federated_hh.populations import vocabulary
from training.baselines import ngram_files
from training.text import text_record


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(3))
    return buffer.getvalue()


def _npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _about(value) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


class ArrayFilesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    @parameterized.named_parameters(
        ("empty", b""),
        ("cut", _npz(ids=np.arange(99))[:200]),
        ("no_zip", b"PK no zip"),
        ("one_array", _npy()),
        ("other_arrays", _npz(ids=np.arange(3))),
        ("a_list", _npz(about=_about([1]), probabilities=np.arange(2))),
        ("no_weights", _npz(about=_about({"texts": []}), num_tokens=np.arange(2))),
    )
    def test_damaged(self, contents):
        def read_record():
            return text_record.TextRecord.read(self.folder, "w")

        def read_ngrams():
            return ngram_files.read(self.folder, vocabulary.Vocabulary(["a"]))

        for file, read, mend in (
            (text_record.FILE, read_record, "Train the model again"),
            (ngram_files.FILE, read_ngrams, "Export the model"),
        ):
            (self.folder / file).write_bytes(contents)
            with self.assertRaisesRegex(
                ValueError, f"{file}, .* cannot be read: .*{mend}"
            ):
                read()

    def test_whole_or_not_there(self):
        path = self.folder / "a.npz"
        array_files.write(path, {"a": np.arange(3)})

        class Breaks:
            def __array__(self, *arguments, **named):
                raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            array_files.write(path, {"a": np.arange(9), "b": Breaks()})
        with array_files.reading(path, "what", "mend") as file:
            np.testing.assert_array_equal(file["a"], np.arange(3))
        self.assertEqual([p.name for p in self.folder.iterdir()], ["a.npz"])


if __name__ == "__main__":
    absltest.main()
