"""Tests of what tells one version of the code from another."""

import importlib
import linecache
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

from simulation import software


class SoftwareTest(absltest.TestCase):
    def test_the_digest_is_of_the_sources(self):
        digest = software.sources_digest()
        self.assertRegex(digest, "^[0-9a-f]{16}$")
        read = pathlib.Path.read_bytes

        def changed(path):
            return read(path) + b"\n" * path.match("simulation/software.py")

        with mock.patch.object(pathlib.Path, "read_bytes", changed):
            self.assertNotEqual(software.sources_digest.__wrapped__(), digest)
        self.assertEqual(software.sources_digest.__wrapped__(), digest)


class OwnModulesTest(absltest.TestCase):
    def test_the_source_of_a_users_module_counts(self):
        found = set()
        for source in ("class Mine: x = 1", "class Mine: x = 2"):
            folder = pathlib.Path(self.create_tempdir().full_path)
            (folder / "module_of_a_user.py").write_text(source)
            sys.path.insert(0, str(folder))
            try:
                module = importlib.import_module("module_of_a_user")
                found.add(software.digest_with(module.Mine()))
                self.assertEqual(
                    software.digest_with(module.Mine),
                    software.digest_with(module.Mine()),
                )
            finally:
                sys.path.remove(str(folder))
                del sys.modules["module_of_a_user"]
                linecache.clearcache()
                importlib.invalidate_caches()
        self.assertLen(found, 2)
        self.assertEqual(software.digest_with(1), software.digest_with("a"))


if __name__ == "__main__":
    absltest.main()
