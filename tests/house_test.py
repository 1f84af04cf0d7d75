"""Tests of the house as a whole: which way imports go, and what they bring along."""

import ast
import itertools
import json
import os
import subprocess
import sys

from absl.testing import absltest

from tests import ROOT

# Not by a room: beside this file are rooms of tests, of the same names.
# What algorithms are built on.
_ALGORITHMS = {"options", "privacy", "randomness", "rounds", "simulation"}
# Which rooms a room may import.
_BELOW = {
    "options": set(),
    "randomness": set(),
    "privacy": {"options", "randomness"},
    "simulation": {"options", "randomness"},
    "rounds": {"options", "privacy", "randomness", "simulation"},
    "federated_hh": _ALGORITHMS,
    "training": _ALGORITHMS,
    "studies": {*_ALGORITHMS, "federated_hh", "training"},
    "examples": {*_ALGORITHMS, "federated_hh", "training"},
}
# Programs, and the modules that define their flags.
_WITH_FLAGS = (
    "run_",
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


def _rooms_imported(path):
    """Returns the rooms that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        found |= {name.partition(".")[0] for name in names}
    return found & {*_BELOW, "scripts", "tests"}


def _module_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


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

    def test_imports_go_one_way(self):
        for room, below in _BELOW.items():
            self.assertNotEmpty(_files(room))
            for path in _files(room):
                with self.subTest(str(path.relative_to(ROOT))):
                    self.assertLessEqual(_rooms_imported(path), below | {room})

    def test_privacy_imports_no_tensorflow(self):
        for path in itertools.chain(*map(_files, ("options", "randomness", "privacy"))):
            text = path.read_text()
            for heavy in ("import tensorflow", "from tensorflow"):
                lines = [line for line in text.splitlines() if line.startswith(heavy)]
                self.assertEqual(lines, [], path)

    def test_a_library_registers_no_flags(self):
        names = []
        for room in _BELOW:
            for path in _files(room):
                stem = path.stem
                is_program = stem.startswith(_WITH_FLAGS) and "app.run" in (
                    path.read_text()
                )
                if stem == "__init__" or stem.endswith("_flags") or is_program:
                    continue
                names.append(_module_of(path))
        self.assertIn("simulation.run_directory", names)
        modules = self._answer(_LIST_FLAGS, names)
        own = {
            name: module
            for name, module in modules.items()
            if module.partition(".")[0] in _BELOW
        }
        self.assertEqual(own, {})

    def test_options_import_nothing_heavy_and_no_flags(self):
        names = [
            _module_of(path)
            for room in _BELOW
            for path in _files(room)
            if path.stem.endswith("options") or _module_of(path) == "options.fields"
        ]
        self.assertContainsSubset(
            ["options.fields", "training.training_options"], names
        )
        self.assertEqual(self._answer(_HEAVY, names), [])


if __name__ == "__main__":
    absltest.main()
