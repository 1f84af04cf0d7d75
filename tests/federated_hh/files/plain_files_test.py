"""Tests that only regular files are read."""

import os
import pathlib
from unittest import mock

from absl.testing import absltest, parameterized

from federated_hh.files import plain_files


class PlainFilesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / "file"

    def test_regular_files(self):
        self.path.write_text("\ufeffé")
        self.assertEqual(plain_files.read_text(self.path), "é")
        self.assertLen(plain_files.read(self.path), 5)

    def test_pipes_devices_and_directories(self):
        os.mkfifo(self.path)  # without a writer `open` waits for ever
        for path, message in (
            (self.path, "a pipe or a device"),
            ("/dev/zero", "a pipe or a device"),
            (self.path.parent, "a directory"),
            (self.path.parent / "none", "No such file"),
        ):
            with self.assertRaises(OSError) as caught:
                plain_files.read(path)
            self.assertIn(message, caught.exception.strerror)

    def test_too_large(self):
        self.path.write_bytes(b"1234")
        with (
            mock.patch.object(plain_files, "_MOST_BYTES", 3),
            self.assertRaisesRegex(OSError, "more than 64 MiB"),
        ):
            plain_files.read(self.path)


if __name__ == "__main__":
    absltest.main()
