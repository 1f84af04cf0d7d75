"""Tests of what `pip install .` installs: a wheel is built without a network."""

import ast
import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile

from absl.testing import absltest

from scripts import console
from tests import ROOT

_PACKAGES = (
    "examples",
    "federated_hh",
    "options",
    "privacy",
    "randomness",
    "rounds",
    "scripts",
    "simulation",
    "studies",
    "training",
)


class WheelTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # A copy: setuptools writes beside what it builds.
        # Each process has its own: parallel tests may run this class twice at once.
        temporary = tempfile.TemporaryDirectory(prefix="wheel-")
        cls.addClassCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        source = folder / "source"
        source.mkdir()
        for name in (*_PACKAGES, "tests"):
            shutil.copytree(
                ROOT / name,
                source / name,
                ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
            )
        for file in ("pyproject.toml", "README.md", *ROOT.glob("requirements*.in")):
            shutil.copy(ROOT / file, source)
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
                *("--no-build-isolation", "--no-index", "--wheel-dir"),
                *(str(folder), str(source)),
            ],
            check=True,
        )
        (cls.wheel,) = folder.glob("*.whl")
        cls.installed = folder / "installed"
        with zipfile.ZipFile(cls.wheel) as archive:
            archive.extractall(cls.installed)
        (cls.about,) = cls.installed.glob("*.dist-info")

    def test_it_has_all_modules_and_data_and_no_tests(self):
        expected = {
            str(file.relative_to(ROOT))
            for package in _PACKAGES
            for pattern in ("*.py", "*.csv", "*.html", "*.json")
            for file in (ROOT / package).rglob(pattern)
        }
        found = {
            str(file.relative_to(self.installed))
            for file in self.installed.rglob("*")
            if file.is_file() and self.about not in file.parents
        }
        self.assertEqual(found, expected)
        self.assertIn("simulation/page.html", found)
        self.assertIn("simulation/run.schema.json", found)
        self.assertIn("privacy/paper_tables.csv", found)
        self.assertIn("privacy/statement.schema.json", found)

    def test_packages_are_those_of_the_repository(self):
        found = {
            file.parent.name
            for file in ROOT.glob("*/__init__.py")
            if file.parent.name != "tests"
        }
        self.assertEqual(found, set(_PACKAGES))

    def test_its_programs_are_there(self):
        entries = configparser.ConfigParser()
        entries.read(self.about / "entry_points.txt")
        self.assertEqual(set(entries["console_scripts"]), set(console.PROGRAMS))
        self.assertEqual(
            {*entries["console_scripts"].values()}, {"scripts.console:main"}
        )
        for module in console.PROGRAMS.values():
            text = (ROOT / (module.replace(".", "/") + ".py")).read_text()
            self.assertIn("app.run(", ast.unparse(ast.parse(text)))

    def test_a_program_runs_by_its_name_and_from_elsewhere(self):
        script = self.wheel.parent / "run-accounting"
        script.write_text("from scripts import console\nconsole.main()\n")
        done = subprocess.run(
            [
                *(sys.executable, "-P", str(script), "--mechanism=cohort_size"),
                *("--epsilon=1", "--randomizer=asymmetric_one_hot"),
                *("--local_epsilon=3", "--delta=1e-6"),
            ],
            env={**os.environ, "PYTHONPATH": str(self.installed)},
            cwd=self.wheel.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        # Figure 1's closed form; docs/results/mcmillan_2022.md has it.
        self.assertIn("2935", done.stdout.replace(",", ""))

    def test_what_it_asks_for(self):
        text = (self.about / "METADATA").read_text()
        asked = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*(; .*)?$", text, re.M)
        extras = {"": "requirements.in"}
        extras |= {name: f"requirements-{name}.in" for name in ("dev", "ray")}
        for extra, file in extras.items():
            lines = (ROOT / file).read_text().splitlines()
            expected = {
                re.split(r"[=<>]", line)[0]
                for line in lines
                if line and not line.startswith("#")
            }
            end = f'; extra == "{extra}"' if extra else ""
            self.assertEqual({name for name, of in asked if of == end}, expected)

    def test_the_lock_has_all_that_is_asked_for(self):
        locked = re.findall(
            r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text(), re.M
        )
        for file in ROOT.glob("requirements*.in"):
            for line in file.read_text().splitlines():
                if line and not line.startswith("#"):
                    self.assertIn(re.split(r"[=<>]", line)[0], locked)

    def test_the_lock_and_uv_take_the_same_overrides(self):
        lines = (ROOT / "requirements.overrides").read_text().splitlines()
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
        self.assertEqual(
            settings["tool"]["uv"]["override-dependencies"],
            [line for line in lines if not line.startswith("#")],
        )

    def test_the_version_has_one_place(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        self.assertIn(f"-{project['version']}-", self.wheel.name)


if __name__ == "__main__":
    absltest.main()
