"""Tests of scripts/run and scripts/test on a repository without an environment."""

import os
import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest

from tests import ROOT

_SCRIPTS = ROOT / "scripts"
_NAMES = ("run", "test", "environment.sh", "setup_environment.py")
# Makes environments without pip, which is faster.
_UV = """#!/bin/sh
echo "$@" >>"$UV_LOG"
[ "$1" = venv ] || exit 0
shift 5
exec {python} -m venv --without-pip "$1"
"""


class SetUpTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # A repository whose lock file is empty: everything but the downloads.
        self.root = pathlib.Path(self.create_tempdir().full_path).resolve()
        (self.root / "scripts").mkdir()
        for name in _NAMES:
            shutil.copy(_SCRIPTS / name, self.root / "scripts" / name)
        (self.root / "requirements.txt").write_text("# nothing\n")
        (self.root / "hello.py").write_text(
            "import sys, os\nif __name__ == '__main__':\n"
            "    print(sys.prefix, os.getcwd(), *sys.argv[1:])"
        )
        self.command = [str(self.root / "scripts" / "run"), "hello"]
        # The tests' own environment must not be found first.
        venv = os.environ.get(
            "VIRTUAL_ENV", os.path.dirname(os.path.dirname(sys.executable))
        )
        path = [p for p in os.environ["PATH"].split(":") if not p.startswith(venv)]
        self.environment = {**os.environ, "PATH": ":".join(path)}
        self.environment.pop("PYTHONPATH", None)

    def use_uv(self):
        """Puts a uv on the path; returns the file of its calls."""
        tools = self.root / "uv_tools"
        tools.mkdir()
        (tools / "uv").write_text(_UV.format(python=sys._base_executable))
        (tools / "uv").chmod(0o755)
        self.environment["PATH"] = f"{tools}:{self.environment['PATH']}"
        self.environment["UV_LOG"] = str(tools / "calls")
        return tools / "calls"

    def start(self, *flags, **options):
        options.setdefault("env", self.environment)
        return subprocess.Popen(
            [*self.command, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def test_two_at_once_from_another_directory_with_pip_alone(self):
        elsewhere = self.create_tempdir().full_path
        programs = [self.start(f"--n={i}", cwd=elsewhere) for i in range(2)]
        results = [program.communicate() for program in programs]
        for i, (program, (output, errors)) in enumerate(
            zip(programs, results, strict=True)
        ):
            self.assertEqual(program.returncode, 0, errors)
            self.assertEqual(
                output.split(),
                [str(self.root / ".venv"), os.path.realpath(elsewhere), f"--n={i}"],
            )
        said = [errors for _, errors in results]
        self.assertEqual(sum("1 of 3: an environment" in errors for errors in said), 1)
        self.assertTrue((self.root / ".venv" / "requirements.sha256").exists())

        with self.subTest("the second time is silent"):
            _, errors = self.start().communicate()
            self.assertEqual(errors, "")
        calls = self.use_uv()
        with self.subTest("an interrupted set-up is begun again, with uv where it is"):
            (self.root / ".venv" / "requirements.sha256").unlink()
            _, errors = self.start().communicate()
            self.assertIn("unfinished", errors)
            self.assertIn("with uv", errors)
            venv, pip = (line.split() for line in calls.read_text().splitlines())
            self.assertEqual(venv[0], "venv")
            self.assertEqual(venv[-1], str(self.root / ".venv"))
            self.assertEqual(
                pip[:4], ["pip", "install", "--no-deps", "--require-hashes"]
            )
            self.assertEqual(pip[-1], str(self.root / ".venv" / "bin" / "python"))
        with self.subTest("a changed lock file is noticed"):
            (self.root / "requirements.txt").write_text("# nothing more\n")
            _, errors = self.start().communicate()
            self.assertIn("another lock file", errors)

    def test_an_environment_of_the_users_own_is_left_alone(self):
        (self.root / ".venv").mkdir()
        (self.root / ".venv" / "thesis.tex").write_text("")
        program = self.start()
        _, errors = program.communicate()
        self.assertNotEqual(program.returncode, 0)
        self.assertIn("was not made by this script", errors)
        self.assertTrue((self.root / ".venv" / "thesis.tex").exists())

    def test_tests_run_from_anywhere_with_paths_from_there(self):
        (self.root / "requirements.txt").write_text("# nothing\n")
        (self.root / "pytest.py").write_text(
            "import os, sys; print(os.getcwd(), *sys.argv[1:])"
        )
        self.use_uv()
        elsewhere = pathlib.Path(self.create_tempdir().full_path).resolve()
        (elsewhere / "some_test.py").write_text("")
        self.command = [str(self.root / "scripts" / "test")]
        program = self.start("some_test.py", "-x", cwd=elsewhere)
        output, errors = program.communicate()
        self.assertEqual(program.returncode, 0, errors)
        self.assertEqual(
            output.split(), [str(self.root), str(elsewhere / "some_test.py"), "-x"]
        )
        # What is no part of the tests but nearly all of them has several processes.
        program = self.start("-m", "not program", cwd=elsewhere)
        output, errors = program.communicate()
        processes = min(4, os.cpu_count() + 1)
        self.assertIn(f"-m not program -n {processes} ", output, errors)

    def test_lock_file_that_cannot_be_installed(self):
        (self.root / "requirements.txt").write_text(
            "no-such-package-by-any-name==1.0 --hash=sha256:" + "0" * 64
        )
        program = self.start()
        _, errors = program.communicate()
        self.assertNotEqual(program.returncode, 0)
        self.assertIn("failed with exit code", errors)
        self.assertFalse((self.root / ".venv" / "requirements.sha256").exists())

    def test_python_that_is_missing_is_named(self):
        tools = self.root / "tools"
        tools.mkdir()
        for name in ("bash", "dirname", "readlink", "cat", "sha256sum", "cut"):
            os.symlink(shutil.which(name), tools / name)
        program = self.start(env={"PATH": str(tools)})
        _, errors = program.communicate()
        self.assertNotEqual(program.returncode, 0)
        self.assertIn("Python 3.11 was not found", errors)


if __name__ == "__main__":
    absltest.main()
