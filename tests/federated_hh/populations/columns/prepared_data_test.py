"""Tests of data sets that come in parts, joined to one file."""

import lzma
import os
import pathlib

from absl.testing import absltest

from federated_hh.files import verified_files
from studies import data_parts


class JoinPartsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        self.cache = self.folder / "cache"

    def _parts(self, folder: str, *texts: str) -> list[pathlib.Path]:
        (self.folder / folder).mkdir()
        for number, text in enumerate(texts):
            path = self.folder / folder / f"posts-{number}.jsonl.xz"
            path.write_bytes(lzma.compress(text.encode()))
        return data_parts.parts_of(self.folder, f"{folder}/posts-*.jsonl.xz")

    def _joined(self, *parts: pathlib.Path) -> pathlib.Path:
        return data_parts.join_parts(parts, self.cache, "posts.jsonl.xz")

    def test_lines_of_all_parts_in_order(self):
        joined = self._joined(*self._parts("data", "one\ntwo\n", "three\n"))
        self.assertEqual(lzma.decompress(joined.read_bytes()), b"one\ntwo\nthree\n")
        self.assertRegex(joined.name, r"^posts-[0-9a-f]{16}\.jsonl\.xz$")

    def test_a_copy_elsewhere_and_of_another_time_is_the_same_file(self):
        joined = self._joined(*self._parts("data", "one\n", "two\n"))
        before = joined.stat()
        copies = self._parts("copy", "one\n", "two\n")
        for copy in copies:
            os.utime(copy, (1, 1))
        self.assertEqual(self._joined(*copies), joined)
        self.assertEqual(joined.stat().st_mtime_ns, before.st_mtime_ns)
        self.assertLen(list(self.cache.glob("*.xz")), 1)

    def test_an_edit_that_keeps_size_and_time_is_another_file(self):
        parts = self._parts("data", "one\n", "two\n")
        joined = self._joined(*parts)
        held = parts[1].stat()
        edited = bytearray(parts[1].read_bytes())
        edited[-20] ^= 1
        parts[1].write_bytes(edited)
        os.utime(parts[1], ns=(held.st_atime_ns, held.st_mtime_ns))
        self.assertEqual(parts[1].stat().st_size, held.st_size)
        self.assertNotEqual(self._joined(*parts), joined)

    def test_another_order_is_another_file(self):
        one, two = self._parts("data", "one\n", "two\n")
        self.assertNotEqual(self._joined(one, two), self._joined(two, one))

    def test_a_missing_part_is_named(self):
        [one] = self._parts("data", "one\n")
        lost = one.with_name("lost.jsonl.xz")
        with self.assertRaisesRegex(verified_files.PopulationError, "lost"):
            self._joined(one, lost)
        with self.assertRaisesRegex(verified_files.PopulationError, "no file"):
            data_parts.parts_of(self.folder, "data/letters-*")


if __name__ == "__main__":
    absltest.main()
