"""Tests of what `pip install .` installs: a wheel is built without a network."""

import ast
import configparser
import json
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

from federated_hh.files import installation as registry
from tests import ROOT

_PACKAGES = ("federated_hh", "training")
_BESIDE = ("benchmarks", "examples", "scripts", "studies", "tests")
# Files that a user has, with the names of this library's older packages.
_OF_A_USER = ("options", "privacy", "simulation", "rounds", "studies", "randomness")
_SCRIPT = """
import importlib
for name in {names}:
    assert importlib.import_module(name).MINE, name
import runpy
from training.federated import dp_ftrl
runpy.run_module("federated_hh.run_triehh", run_name="__main__")
"""
# Refuses to import what the base does not install.
_LIGHT = """
import importlib, json, sys
class Heavy:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy}:
            raise ImportError(f"{{name}} is not of the base")
sys.meta_path.insert(0, Heavy())
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
"""


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
        for name in (*_PACKAGES, *_BESIDE):
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
            if file.is_file()
            and self.about not in file.parents
            # Of programs that a test has run.
            and file.parent.name != "__pycache__"
        }
        self.assertEqual(found, expected)
        self.assertIn("federated_hh/reports/page.html", found)
        self.assertIn("federated_hh/run_directory/run.schema.json", found)
        self.assertIn("federated_hh/privacy/accounting/paper_tables.csv", found)
        self.assertIn("federated_hh/privacy/statement.schema.json", found)

    def test_packages_are_those_of_the_repository(self):
        found = {file.parent.name for file in ROOT.glob("*/__init__.py")}
        self.assertEqual(found, {*_PACKAGES, *_BESIDE})

    def test_its_programs_are_there(self):
        entries = configparser.ConfigParser()
        entries.read(self.about / "entry_points.txt")
        self.assertEqual(
            set(entries["console_scripts"]), set(registry.console_scripts())
        )
        self.assertEqual(
            {*entries["console_scripts"].values()},
            {"federated_hh.command_line.console:main"},
        )
        for module in registry.PROGRAMS.values():
            text = (ROOT / (module.replace(".", "/") + ".py")).read_text()
            self.assertIn("if __name__ == '__main__':", ast.unparse(ast.parse(text)))

    def test_a_program_runs_by_its_name_and_from_elsewhere(self):
        script = self.wheel.parent / "run-accounting"
        script.write_text(
            "from federated_hh.command_line import console\nconsole.main()\n"
        )
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

    def test_a_script_beside_files_of_the_same_names_as_rooms(self):
        """From an installed package and from a checkout."""
        for root in (self.installed, ROOT):
            folder = pathlib.Path(tempfile.mkdtemp(dir=self.wheel.parent))
            for name in _OF_A_USER:
                (folder / f"{name}.py").write_text("MINE = True\n")
            (folder / "scripts").mkdir()
            (folder / "scripts" / "__init__.py").write_text("MINE = True\n")
            script = folder / "script.py"
            script.write_text(_SCRIPT.format(names=(*_OF_A_USER, "scripts")))
            with self.subTest(root.name):
                done = subprocess.run(
                    [
                        *(sys.executable, str(script), "--num_clients=400"),
                        *("--threshold=5", "--cohort_size=100", "--max_length=2"),
                        *("--tokenizer=triehh", f"--output_dir={folder}/run"),
                        f"--population_cache={self.wheel.parent}/cache",
                        "--norequire_guarantee",
                    ],
                    env={**os.environ, "PYTHONPATH": str(root)},
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue((folder / "run" / "privacy.json").exists())

    def test_accounting_imports_the_base_alone(self):
        lines = (ROOT / "requirements-simulation.in").read_text().splitlines()
        heavy = {
            re.split(r"[=<>]", line)[0].replace("-", "_")
            for line in lines
            if line and not line.startswith("#")
        }
        names = [
            ".".join(path.relative_to(self.installed).with_suffix("").parts)
            for path in (self.installed / "federated_hh" / "privacy").rglob("*.py")
        ]
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-c", _LIGHT.format(heavy=heavy)),
                json.dumps([*names, "federated_hh.run_accounting"]),
            ],
            env={**os.environ, "PYTHONPATH": str(self.installed)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_container_runs_the_readme_s_commands(self):
        lines = (ROOT / "Dockerfile").read_text().splitlines()
        self.assertLessEqual(len(lines), 20)
        (command,) = [line[4:] for line in lines if line.startswith("CMD ")]
        readme = (ROOT / "README.md").read_text()
        self.assertIn("\n" + " ".join(json.loads(command)), readme)
        self.assertIn("./scripts/test", readme)

    def test_what_it_asks_for(self):
        text = (self.about / "METADATA").read_text()
        asked = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*(; .*)?$", text, re.M)
        extras = {"": "requirements.in"}
        extras |= {
            name: f"requirements-{name}.in"
            for name in ("simulation", "dev", "ray", "icu")
        }
        for extra, file in extras.items():
            lines = (ROOT / file).read_text().splitlines()
            expected = {
                re.split(r"[=<>]", line)[0]
                for line in lines
                if line and not line.startswith("#")
            }
            end = f'; extra == "{extra}"' if extra else ""
            self.assertEqual({name for name, of in asked if of == end}, expected)

    def test_the_locks_have_all_that_is_asked_for(self):
        first, second = (
            re.findall(r"^([\w.-]+)==", (ROOT / name).read_text(), re.M)
            for name in ("requirements.txt", "requirements-dev.txt")
        )
        for extra, locked in {
            "": first,
            "-simulation": first,
            "-dev": first + second,
            "-ray": first + second,
        }.items():
            lines = (ROOT / f"requirements{extra}.in").read_text().splitlines()
            for line in lines:
                if line and not line.startswith("#"):
                    self.assertIn(re.split(r"[=<>]", line)[0], locked)
        # Else installing the second could change what programs compute with.
        self.assertNoCommonElements(first, second)

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
