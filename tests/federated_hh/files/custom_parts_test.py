"""Tests of parts by name: what is there, and what one clear line says of the rest."""

import functools
import json
import os
import pathlib
import sys
from unittest import mock

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

    def test_failures_name_their_place(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "own.py"
        path.write_text("class Own:\n    def tally(self, f):\n        return f()\n")
        names = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
        tally = names["Own"]().tally

        def failure(call, *arguments):
            try:
                call(*arguments)
            except BaseException as error:
                # Without this test, which is no custom code.
                return custom_parts.failure(
                    error.with_traceback(error.__traceback__.tb_next)
                )
            self.fail("no error")

        refuse = functools.partial(
            custom_parts.load_function, "--f", "math:pi", "a root"
        )

        self.enter_context(
            mock.patch.object(custom_parts, "_LOADED", ["--algorithm=own:Own"])
        )
        place = f"--algorithm=own:Own: {path}:3, Own.tally: "
        for call, message in (
            ({}.popitem, "KeyError: 'popitem(): dictionary is empty'"),
            (sys.exit, "SystemExit: no message"),
            (functools.partial(json.loads, "{"), "JSONDecodeError: "),
        ):
            self.assertStartsWith(failure(tally, call), place + message)
        # What this code refuses is no failure of the part that passed it on.
        self.assertIsNone(failure(tally, refuse))
        self.assertIsNone(failure(refuse))
        # A surprise in this code, by what a custom part returned.
        self.assertRegex(
            failure(custom_parts._is_custom, 3),
            r"custom_parts.py:\d+, _is_custom, fails by what the custom code gave it",
        )
        custom_parts._LOADED.clear()
        self.assertIsNone(failure(custom_parts._is_custom, 3))
        noted = KeyError("x")
        noted.add_note("own:Own, tally")
        self.assertStartsWith(custom_parts.failure(noted), "own:Own, tally: KeyError")

    def test_failures_on_import(self):
        scratch = pathlib.Path(self.create_tempdir().full_path)
        for number, (text, message) in enumerate(
            (
                ("raise KeyError('k')", "py:1, <module>: KeyError: 'k'"),
                ("import sys\nsys.exit(0)", "py:2, <module>: SystemExit: 0"),
                ("def f(:", "py:1: SyntaxError: invalid syntax"),
                ("import no_such_package", "py:1, <module>: ModuleNotFoundError: "),
            )
        ):
            (scratch / f"fails_{number}.py").write_text(text)
            self.enter_context(
                mock.patch.object(sys, "path", [*sys.path, str(scratch)])
            )
            with self.assertRaisesRegex(custom_parts.CustomCodeError, message):
                custom_parts.load_function("--f", f"fails_{number}:f", "mine")


if __name__ == "__main__":
    absltest.main()
