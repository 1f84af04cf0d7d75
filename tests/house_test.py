"""Tests of the house as a whole: which way imports go, and what they bring along."""

import ast
import functools
import graphlib
import importlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest

import studies
from tests import ROOT

# Not by a room: beside this file are rooms of tests, of the same names.
_BASE = {"files", "options", "randomness"}
_DATA = {*_BASE, "populations", "privacy", "runtime"}
_ENGINE = {*_DATA, "command_line", "reports", "rounds", "run_directory"}
# Which rooms of `federated_hh` a room may import; programs import all.
_BELOW = {
    "options": set(),
    "files": {"options"},
    "randomness": set(),
    "privacy": _BASE,
    "populations": _BASE,
    "runtime": _BASE,
    "run_directory": _BASE,
    "reports": {*_DATA, "run_directory"},
    "rounds": {*_DATA, "reports", "run_directory"},
    "command_line": {*_DATA, "run_directory"},
    "randomizers": _BASE | {"privacy", "runtime"},
    "heavy_hitters": _ENGINE | {"randomizers"},
    "statistics": _ENGINE | {"randomizers"},
}
_LIBRARY = ("federated_hh", "training")
# What is not installed may import what is, and none of these the other way.
_BESIDE = ("studies", "benchmarks", "examples", "scripts", "tests")
# Programs, and the modules that define their flags.
_WITH_FLAGS = (
    "run_",
    "compare",
    "fit_population",
    "predict_next_word",
    "pretrain",
    "evaluate_keyboard",
)
# What would make a program slow to answer --help, or a notebook take flags.
_HEAVY = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
heavy = {"absl", "numpy", "pandas", "pyarrow", "scipy", "tensorflow"}
print(json.dumps(sorted(heavy & set(sys.modules))))
"""
_LIST_FLAGS = """
import importlib, json, sys
from absl import flags
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
modules = {name: flags.FLAGS.find_module_defining_flag(name) for name in flags.FLAGS}
print(json.dumps(modules))
"""


def _files(room):
    return sorted((ROOT / room).rglob("*.py"))


@functools.cache
def _packages():
    """Returns the folders that have code, as dotted names."""
    tops = (*_LIBRARY, "studies", "benchmarks", "examples", "scripts")
    return {_module_of(path.parent) for top in tops for path in _files(top)}


@functools.cache
def _imported(path):
    """Returns the packages that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {_package_of(name) for name in names}
    return found - {""}


def _package_of(name):
    """Returns the package that has a module or a name of a module; "" for others."""
    while name and name not in _packages():
        name = name.rpartition(".")[0]
    return name


def _modules_imported(path):
    """Returns the modules that a file imports when it is imported itself."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
            names.add(node.module)
    return {name for name in names if (ROOT / f"{name.replace('.', '/')}.py").exists()}


def _module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _declared(package):
    """Returns the packages that a package's BUILD file says that it imports."""
    file = ROOT / package.replace(".", "/") / "BUILD"
    (room,) = re.findall(r"^room\((.*?)^\)", file.read_text(), re.M | re.S)
    deps = re.findall(r'"//([\w/]+)",', room.partition("deps = ")[2])
    return {name.replace("/", ".") for name in deps}


class HouseTest(absltest.TestCase):
    def _answer(self, program, names):
        """Returns what a program prints of modules that it imports."""
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, json.dumps(names)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_rooms_import_rooms_below(self):
        self.assertNotEmpty(_packages())
        for room, below in _BELOW.items():
            allowed = {f"federated_hh.{name}" for name in below | {room}}
            for path in _files(f"federated_hh/{room}"):
                with self.subTest(str(path.relative_to(ROOT))):
                    rooms = {".".join(p.split(".")[:2]) for p in _imported(path)}
                    self.assertLessEqual(rooms, allowed)

    def test_roots_import_roots_below(self):
        for root, above in (("federated_hh", {"training"}), ("training", set())):
            for path in _files(root):
                with self.subTest(str(path.relative_to(ROOT))):
                    roots = {name.partition(".")[0] for name in _imported(path)}
                    self.assertNoCommonElements(roots, above | {*_BESIDE})

    def test_every_folder_of_the_library_has_a_level(self):
        rooms = {name.split(".")[1] for name in _packages() if name.count(".") == 1}
        self.assertContainsSubset(_BELOW, rooms)

    def test_folders_import_without_circles(self):
        order = graphlib.TopologicalSorter()
        for package in _packages():
            files = (ROOT / package.replace(".", "/")).glob("*.py")
            order.add(package, *set().union(*map(_imported, files)) - {package})
        order.prepare()  # raises CycleError, which names them

    def test_files_import_without_circles(self):
        order = graphlib.TopologicalSorter()
        for top in (*_LIBRARY, "studies", "benchmarks", "examples", "scripts"):
            for path in _files(top):
                order.add(_module_of(path), *_modules_imported(path))
        order.prepare()

    def test_build_files_declare_what_is_imported(self):
        if not (ROOT / "federated_hh" / "BUILD").exists():
            self.skipTest("under Bazel, BUILD files are not among a test's files")
        for package in sorted(_packages()):
            with self.subTest(package):
                files = (ROOT / package.replace(".", "/")).glob("*.py")
                imported = set().union(*map(_imported, files)) - {package}
                self.assertContainsSubset(imported, _declared(package))
        with self.subTest("studies, which a script imports by their names"):
            rooms = {name.rpartition(".")[0] for name in studies.MODULES.values()}
            self.assertContainsSubset(rooms, _declared("scripts"))

    def test_rooms_say_what_they_hold_and_export_it(self):
        for package in sorted(p for p in _packages() if p.startswith(_LIBRARY)):
            with self.subTest(package):
                room = importlib.import_module(package)
                self.assertRegex(room.__doc__ or "", r"^[A-Z][^\n]{10,}[.]")
                modules = {p.stem for p in _files(package.replace(".", "/"))}
                for name in getattr(room, "__all__", ()):
                    self.assertIsNotNone(getattr(room, name))
                    # Else `from room import module` would give something else.
                    self.assertNotIn(name, modules)

    def test_privacy_imports_no_tensorflow(self):
        for path in itertools.chain(
            *map(
                _files,
                [f"federated_hh/{r}" for r in ("options", "randomness", "privacy")],
            )
        ):
            text = path.read_text()
            for heavy in ("import tensorflow", "from tensorflow"):
                lines = [line for line in text.splitlines() if line.startswith(heavy)]
                self.assertEqual(lines, [], path)

    def test_a_library_registers_no_flags(self):
        names = []
        for room in (*_LIBRARY, "studies", "examples"):
            for path in _files(room):
                stem = path.stem
                is_program = stem.startswith(_WITH_FLAGS) and "__main__" in (
                    path.read_text()
                )
                if stem == "__init__" or stem.endswith("_flags") or is_program:
                    continue
                names.append(_module_of(path))
        self.assertIn("federated_hh.run_directory.directory", names)
        modules = self._answer(_LIST_FLAGS, names)
        own = {
            name: module
            for name, module in modules.items()
            if module.partition(".")[0] in (*_LIBRARY, "studies", "examples")
        }
        self.assertEqual(own, {})

    def test_options_import_nothing_heavy_and_no_flags(self):
        names = [
            _module_of(path)
            for room in (*_LIBRARY, "studies", "examples")
            for path in _files(room)
            if path.stem.endswith("options")
            or _module_of(path) == "federated_hh.options.fields"
        ]
        self.assertContainsSubset(
            ["federated_hh.options.fields", "training.federated.options"], names
        )
        self.assertEqual(self._answer(_HEAVY, names), [])


if __name__ == "__main__":
    # The folder of this file, in which tests/federated_hh would be federated_hh.
    sys.path[:] = [path for path in sys.path if pathlib.Path(path).name != "tests"]
    absltest.main()
