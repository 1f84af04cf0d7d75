"""Tests of the set-up by scripts/run and scripts/test, and of its stated sizes."""

import contextlib
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata

from absl.testing import absltest

from scripts import setup_environment
from tests import ROOT

_SCRIPTS = ROOT / "scripts"
_NAMES = ("run", "test", "environment.sh", "setup_environment.py")
_NOTHING = "# 0 MB to download, 1 MB installed.\n"
# The most that a lock may take: megabytes to download, gigabytes on disk.
_MOST = {"requirements.txt": (700, 2.2), "requirements-dev.txt": (200, 0.6)}
# Makes environments without pip, which is faster.
_UV = """#!/bin/sh
echo "$@" >>"$UV_LOG"
[ "$1" = venv ] || exit ${{UV_CODE:-0}}
shift 5
exec {python} -m venv --without-pip "$1"
"""


class SetUpTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # A repository whose lock files are empty: everything but the downloads.
        self.root = pathlib.Path(self.create_tempdir().full_path).resolve()
        (self.root / "scripts").mkdir()
        for name in _NAMES:
            shutil.copy(_SCRIPTS / name, self.root / "scripts" / name)
        self.lock = self.root / "requirements.txt"
        self.second = self.root / "requirements-dev.txt"
        for lock in (self.lock, self.second):
            lock.write_text(_NOTHING)
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

    def stamp(self, lock):
        """Returns the file that says that a lock is installed."""
        return self.root / ".venv" / f"{lock.name}.sha256"

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
        self.assertEqual(sum("1 of 2: an environment" in errors for errors in said), 1)
        self.assertTrue(self.stamp(self.lock).exists())

        with self.subTest("the second time is silent"):
            _, errors = self.start().communicate()
            self.assertEqual(errors, "")
        calls = self.use_uv()
        with self.subTest("an interrupted set-up is begun again, with uv where it is"):
            self.stamp(self.lock).unlink()
            _, errors = self.start().communicate()
            self.assertIn("unfinished", errors)
            self.assertIn("with uv", errors)
            venv, pip = (line.split() for line in calls.read_text().splitlines())
            self.assertEqual(venv[0], "venv")
            self.assertEqual(venv[-1], str(self.root / ".venv"))
            self.assertEqual(pip[:3], ["pip", "install", "--python"])
            self.assertEqual(pip[3], str(self.root / ".venv" / "bin" / "python"))
            self.assertContainsSubset(["--no-deps", "--require-hashes"], pip)
            self.assertEqual(pip[-2:], ["-r", str(self.lock)])
        with self.subTest("a changed lock file is noticed, also by its own Python"):
            self.lock.write_text(_NOTHING + "# more\n")
            active = {**self.environment, "PYTHON": f"{self.root}/.venv/bin/python"}
            output, errors = self.start(env=active).communicate()
            self.assertIn("another lock file", errors)
            self.assertIn(str(self.root / ".venv"), output, errors)

    def test_ray_slurm_and_tests_get_the_second_lock(self):
        calls = self.use_uv()
        (self.root / "federated_hh" / "command_line").mkdir(parents=True)
        for name in ("pytest", "submit_parts", "federated_hh/command_line/programs"):
            (self.root / f"{name}.py").write_text((self.root / "hello.py").read_text())
        run, test = (str(self.root / "scripts" / name) for name in ("run", "test"))
        self.command = [run, "hello"]
        self.start().communicate()
        for command, installs in {
            (run, "hello", "--engine=rays"): False,
            (run, "--complete", "hello", "--engine=ray", "--"): False,
            (run, "hello", "--engine=ray"): True,
            (run, "hello", "-engine", "ray", "--n=1"): True,
            (run, "submit_parts", "--parts=2"): True,
            (test, "--version"): True,
        }.items():
            with self.subTest(command=command[1:]):
                self.stamp(self.second).unlink(missing_ok=True)
                calls.write_text("")
                self.command = command
                program = self.start()
                _, errors = program.communicate()
                self.assertEqual(program.returncode, 0, errors)
                self.assertEqual(calls.read_text().count(str(self.second)), installs)
                self.assertNotIn(str(self.lock), calls.read_text())
                self.assertEqual(self.stamp(self.second).exists(), installs)
                self.assertEqual(self.start().communicate()[1], "")
        with self.subTest("an interrupted second one leaves the first, and is redone"):
            self.stamp(self.second).unlink()
            self.environment["UV_CODE"] = "3"
            self.assertIn("failed with exit code 3", self.start().communicate()[1])
            self.assertFalse(self.stamp(self.second).exists())
            self.command = [run, "hello"]
            output, errors = self.start().communicate()
            self.assertEqual(errors, "")
            self.assertIn(str(self.root / ".venv"), output)
            self.environment["UV_CODE"] = "0"
            self.command = [test, "--version"]
            _, errors = self.start().communicate()
            self.assertIn("1 of 1: 0 packages of requirements-dev.txt", errors)
            # What was left of the first attempt would otherwise count as installed.
            self.assertIn("--force-reinstall", calls.read_text().splitlines()[-1])
        with self.subTest("what programs import is compiled, though Python may not"):
            (packages,) = (self.root / ".venv").glob("lib/python*/site-packages")
            (packages / "jinja2.py").write_text("raise ValueError")
            (packages / "wordfreq.py").write_text("")
            self.stamp(self.second).unlink()
            self.environment["PYTHONDONTWRITEBYTECODE"] = "1"
            self.start().communicate()
            self.assertLen([*packages.glob("__pycache__/wordfreq.*.pyc")], 1)

    def test_an_environment_of_the_users_own_is_left_alone(self):
        (self.root / ".venv").mkdir()
        (self.root / ".venv" / "thesis.tex").write_text("")
        program = self.start()
        _, errors = program.communicate()
        self.assertNotEqual(program.returncode, 0)
        self.assertIn("was not made by this script", errors)
        self.assertTrue((self.root / ".venv" / "thesis.tex").exists())

    def test_tests_run_from_anywhere_with_paths_from_there(self):
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
        self.lock.write_text(
            _NOTHING + "no-such-package-by-any-name==1.0 --hash=sha256:" + "0" * 64
        )
        program = self.start()
        _, errors = program.communicate()
        self.assertNotEqual(program.returncode, 0)
        self.assertIn("failed with exit code", errors)
        self.assertFalse(self.stamp(self.lock).exists())

    def test_python_that_is_missing_is_named(self):
        tools = self.root / "tools"
        tools.mkdir()
        for name in ("bash", "dirname", "readlink", "cat", "sha256sum", "cut"):
            os.symlink(shutil.which(name), tools / name)
        program = self.start(env={"PATH": str(tools)})
        _, errors = program.communicate()
        self.assertNotEqual(program.returncode, 0)
        self.assertIn("Python 3.11 was not found", errors)


class SizesTest(absltest.TestCase):
    def test_locks_and_documents_state_what_is_there(self):
        sizes = []
        for name, (most_download, most_on_disk) in _MOST.items():
            download, installed = setup_environment.sizes(ROOT / name)
            alone, on_disk = self.gigabytes(name)
            self.assertAlmostEqual(1000 * alone / installed, 1, delta=0.01)
            self.assertLessEqual(download, most_download)
            self.assertLessEqual(on_disk, most_on_disk)
            sizes.append((download, on_disk))
        stated = re.compile(r"download of (\d+) MB, ([\d.]+) GB on disk")
        for document, locks in {
            "README.md": 2,
            "docs/guide/first_run.md": 1,
            "docs/guide/installing.md": 2,
        }.items():
            found = stated.findall(" ".join((ROOT / document).read_text().split()))
            with self.subTest(document):
                for (megabytes, gigabytes), (download, on_disk) in zip(
                    found, sizes[:locks], strict=True
                ):
                    self.assertAlmostEqual(int(megabytes), download, delta=5)
                    self.assertAlmostEqual(float(gigabytes) / on_disk, 1, delta=0.1)

    def gigabytes(self, name):
        """Returns the size of a lock's packages: in bytes, and in blocks of a disk."""
        lock = ROOT / name
        stamp = pathlib.Path(sys.prefix) / f"{name}.sha256"
        if not stamp.exists() or stamp.read_text() != setup_environment.lock_hash(lock):
            self.skipTest(f"{sys.prefix} was not made from {name}")
        site_packages = [sysconfig.get_path("purelib")]
        alone, on_disk = 0, 0
        for package in re.findall(r"^([\w.-]+)==", lock.read_text(), re.M):
            # Ray puts packages of its own, such as another psutil, before these.
            (found,) = metadata.distributions(name=package, path=site_packages)
            for file in map(str, map(metadata.PackagePath.locate, found.files)):
                if setup_environment.LEFT_OUT in file:
                    self.assertFalse(os.path.exists(file), file)
                    continue
                alone += os.path.getsize(file)
                for kept in (file, importlib.util.cache_from_source(file)):
                    # Another process may be writing a compiled module.
                    with contextlib.suppress(FileNotFoundError):
                        on_disk += -(-os.path.getsize(kept) // 4096) * 4096
        return alone / 1e9, on_disk / 1e9


if __name__ == "__main__":
    absltest.main()
