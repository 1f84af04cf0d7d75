"""Tests of what tells one version of the code from another."""

import pathlib
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


if __name__ == "__main__":
    absltest.main()
