"""Tests of parts by name: what is there, and what one clear line says of the rest."""

import os
import pathlib
import sys

from absl.testing import absltest, parameterized

from federated_hh.files import custom_parts


class OwnPartsTest(parameterized.TestCase):
    def test_functions(self):
        self.assertEqual(custom_parts.load_function("--f", "math:sqrt", "a root")(9), 3)

    def test_of_the_working_directory(self):
        scratch = pathlib.Path(self.create_tempdir().full_path)
        (scratch / "of_my_own.py").write_text("def f(number):\n    return -number\n")
        # What is this project's stays so.
        (scratch / "math.py").write_text("def sqrt(number):\n    return 7\n")
        (scratch / "simulation").mkdir()
        (scratch / "simulation" / "own_parts.py").write_text("def load():\n    pass\n")
        self.addCleanup(os.chdir, os.getcwd())
        self.addCleanup(setattr, sys, "path", [*sys.path])
        os.chdir(scratch)
        self.assertEqual(
            custom_parts.load_function("--f", "of_my_own:f", "mine")(3), -3
        )
        self.assertEqual(custom_parts.load_function("--f", "math:sqrt", "a root")(9), 3)
        found = custom_parts.load_function(
            "--f", "federated_hh.files.custom_parts:load", "a loader"
        )
        self.assertIs(found, custom_parts.load)
        with self.assertRaisesRegex(ValueError, f"nor in {scratch}"):
            custom_parts.load_function("--f", "of_another:f", "mine")

    @parameterized.parameters(
        ("math", "--f is 'math'; it has to be module:function of a root"),
        ("no.such:f", "No module named 'no'"),
        ("math:root", "has no attribute 'root'"),
        ("math:pi", "--f is 'math:pi', which is a float; it has to be a root"),
    )
    def test_what_is_no_function(self, name, regex):
        with self.assertRaisesRegex(ValueError, regex):
            custom_parts.load_function("--f", name, "a root")


if __name__ == "__main__":
    absltest.main()
