"""Tests of what is different where the packages are installed."""

import importlib.metadata
import os
import pathlib
import shlex
import sys
from unittest import mock

from absl.testing import absltest

from federated_hh.files import installation, software


class InstallationTest(absltest.TestCase):
    def as_installed(self):
        return mock.patch.object(
            installation.sysconfig, "get_path", lambda _: str(installation.HOME)
        )

    def test_a_checkout_keeps_its_cache(self):
        self.assertFalse(installation.is_installed())
        self.assertEqual(installation.cache(), installation.HOME / ".cache")

    def test_installed_packages_use_the_users_cache(self):
        with (
            self.as_installed(),
            mock.patch.dict(os.environ, {"XDG_CACHE_HOME": "/users"}),
        ):
            self.assertEqual(installation.cache(), pathlib.Path("/users/federated-hh"))

    def test_next_commands_name_a_python_that_has_the_packages(self):
        own = "/an environment/bin/python"
        for found, expected in ((own, "python"), ("/usr/bin/python", own), (None, own)):
            with (
                self.as_installed(),
                mock.patch.object(sys, "executable", own),
                mock.patch.object(installation.shutil, "which", {"python": found}.get),
            ):
                # The words as a shell reads them.
                words = shlex.split(installation.launcher())
                self.assertEqual(words, [expected, "-m"])

    def test_the_version_is_the_installed_one_and_no_commit_around_it(self):
        with (
            self.as_installed(),
            mock.patch.object(importlib.metadata, "version", {"federated-hh": "7"}.get),
        ):
            self.assertEqual(software.version(), "7")


if __name__ == "__main__":
    absltest.main()
