"""Tests of a state's files: what they hold, what memory they take, damage."""

import hashlib
import pathlib
import tracemalloc

import numpy as np
from absl.testing import absltest

from federated_hh.rounds import checkpoints
from federated_hh.run_directory import files as run_files

_SIZE = 4_000_000


class CheckpointsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = run_files.RunFiles(pathlib.Path(self.create_tempdir().full_path))
        values = np.random.default_rng(1).integers(0, 2**62, _SIZE)
        self.value = {"round": 3, "nodes": [values, values.astype(np.float64)]}

    def peak_of(self, call):
        """Returns what a call returns, and the most bytes that it held."""
        tracemalloc.start()
        try:
            found = call()
            return found, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def test_arrays_are_in_memory_once(self):
        num_bytes = 2 * 8 * _SIZE
        saved, peak = self.peak_of(
            lambda: checkpoints.write(self.folder, "state.npz", self.value)
        )
        # NumPy writes 16 MiB at once.
        self.assertLess(peak, 17 << 20)
        (tree, arrays), peak = self.peak_of(
            lambda: checkpoints.read(self.folder.path, saved)
        )
        self.assertBetween(peak, num_bytes, 1.2 * num_bytes)
        self.assertEqual(tree["round"], 3)
        for name, expected in zip(tree["nodes"], self.value["nodes"], strict=True):
            np.testing.assert_array_equal(arrays[name], expected)
            self.assertEqual(arrays[name].dtype, expected.dtype)

    def test_what_is_kept_elsewhere_is_in_memory_one_at_a_time(self):
        num_bytes = 8 * _SIZE
        saved = checkpoints.write(self.folder, "state.npz", self.value)
        seen = []

        def keep(path, array):
            seen.append((path, array.sum()))
            return array[:1].copy()

        (_, arrays), peak = self.peak_of(
            lambda: checkpoints.read(self.folder.path, saved, keep)
        )
        self.assertBetween(peak, num_bytes, 1.3 * num_bytes)
        expected = [
            (f"nodes/{number}", array.sum())
            for number, array in enumerate(self.value["nodes"])
        ]
        self.assertCountEqual(seen, expected)
        self.assertEqual([array.size for array in arrays.values()], [1, 1])

    def test_digests_differ_by_types_shapes_and_places(self):
        values = [
            {"a": np.zeros(4, np.int64)},
            {"a": np.zeros(4)},
            {"a": np.zeros((2, 2), np.int64)},
            {"b": np.zeros(4, np.int64)},
            {"a": np.zeros(2, np.int64), "b": np.zeros(2, np.int64)},
            {"a": np.zeros(3, np.int64), "b": np.zeros(1, np.int64)},
        ]
        self.assertLen(set(map(checkpoints.digest, values)), len(values))

    def test_the_hash_is_of_the_bytes_on_disk(self):
        saved = checkpoints.write(self.folder, "state.npz", self.value)
        contents = (self.folder.path / "state.npz").read_bytes()
        self.assertEqual(saved["sha256"], hashlib.sha256(contents).hexdigest())

    def test_damaged(self):
        saved = checkpoints.write(self.folder, "state.npz", self.value)
        path = self.folder.path / "state.npz"
        contents = bytearray(path.read_bytes())
        contents[5000] ^= 1
        path.write_bytes(contents)
        with self.assertRaisesRegex(run_files.RunDirectoryError, "its SHA-256 is not"):
            checkpoints.read(self.folder.path, saved)
        # A file that is none of NumPy's, whose hash is right.
        path.write_bytes(b"text")
        saved["sha256"] = hashlib.sha256(b"text").hexdigest()
        with self.assertRaisesRegex(run_files.RunDirectoryError, "is damaged: "):
            checkpoints.read(self.folder.path, saved)
        path.unlink()
        with self.assertRaisesRegex(run_files.RunDirectoryError, "cannot be read: No"):
            checkpoints.read(self.folder.path, saved)


if __name__ == "__main__":
    absltest.main()
