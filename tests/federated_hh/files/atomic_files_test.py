"""Tests that files are on the disk before they have their names, by the calls made."""

import errno
import os
import pathlib
import resource
import subprocess
import sys
from unittest import mock

from absl.testing import absltest

from federated_hh.files import atomic_files
from tests import ROOT


class _Calls:
    """Notes what is forced to the disk and what is renamed, in order."""

    def __init__(self):
        self.made = []
        self._fsync, self._rename = os.fsync, os.rename

    def fsync(self, descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        self.made.append(("sync", path, os.stat(path).st_size))
        self._fsync(descriptor)

    def rename(self, source, target):
        self.made.append(("rename", str(source), str(target)))
        self._rename(source, target)

    def observed(self):
        return mock.patch.multiple(os, fsync=self.fsync, rename=self.rename)


class AtomicFilesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.parent = pathlib.Path(self.create_tempdir().full_path)

    def test_order_of_a_file(self):
        target, calls = self.parent / "results", _Calls()
        with calls.observed():
            atomic_files.write_file(target, b"12345")
        partial = str(self.parent / ".results.partial")
        self.assertEqual(
            [call[:2] for call in calls.made],
            [("sync", partial), ("rename", partial), ("sync", str(self.parent))],
        )
        # Nothing was left in this process's buffer.
        self.assertEqual(calls.made[0][2], 5)
        self.assertEqual(calls.made[1][2], str(target))

    def test_order_of_a_directory(self):
        target, calls = self.parent / "made", _Calls()
        with calls.observed(), atomic_files.new_directory(target) as partial:
            (partial / "inner").mkdir()
            (partial / "a").write_bytes(b"123")
            (partial / "inner" / "b").write_bytes(b"4567")
        kinds = [kind for kind, *_ in calls.made]
        renamed = kinds.index("rename")
        self.assertEqual(kinds.count("rename"), 1)
        self.assertEqual(calls.made[renamed][1:], (str(partial), str(target)))
        before = {path: size for _, path, size in calls.made[:renamed]}
        self.assertCountEqual(
            before,
            [str(partial / name) for name in ("a", "inner", "inner/b")]
            + [str(partial)],
        )
        self.assertEqual(before[str(partial / "a")], 3)
        self.assertEqual(before[str(partial / "inner" / "b")], 4)
        self.assertEqual(
            [call[:2] for call in calls.made[renamed + 1 :]],
            [("sync", str(self.parent))],
        )

    def test_a_directory_without_its_last_file_does_not_appear(self):
        target = self.parent / "made"
        with (
            self.assertRaisesRegex(ValueError, f"{target} is incomplete: it lacks end"),
            atomic_files.new_directory(target, last="end") as partial,
        ):
            (partial / "begin").write_text("")
        self.assertEmpty(os.listdir(self.parent))
        with atomic_files.new_directory(target, last="end") as partial:
            (partial / "end").write_text("")
        self.assertEqual(os.listdir(target), ["end"])

    def test_errors_name_the_file(self):
        target = self.parent / "results"
        for call in ("fsync", "rename"):
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with (
                self.subTest(call),
                mock.patch.object(os, call, side_effect=error),
                self.assertRaisesRegex(OSError, f"No space left .*'{target}'"),
            ):
                atomic_files.write_file(target, b"12345")
        self.assertEmpty(os.listdir(self.parent))

    def test_a_full_disk_is_named(self):
        source = (
            "import sys\nfrom federated_hh.files import atomic_files\n"
            "try:\n    atomic_files.write_file(sys.argv[1], bytes(100_000))\n"
            "except OSError as error:\n    print(error)\n"
        )
        target = self.parent / "results"
        done = subprocess.run(
            [sys.executable, "-c", source, str(target)],
            env=dict(
                os.environ,
                PYTHONPATH=str(ROOT),
            ),
            capture_output=True,
            text=True,
            # A limit on file sizes fails the write as a full disk does.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        )
        self.assertIn(f"File too large: '{target}'", done.stdout, done.stderr)
        self.assertEmpty(os.listdir(self.parent))


if __name__ == "__main__":
    absltest.main()
