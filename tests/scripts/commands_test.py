"""Tests that every command of the documents works: all parse, small forms run."""

import collections
import json
import os
import re
import subprocess
import sys

from absl.testing import absltest, parameterized

from federated_hh.files import installation as registry
from tests.scripts import documented_commands

_ROOT = documented_commands.ROOT
# Its commands are small as they are.
_RUN_WHOLE = {"federated_hh.run_accounting"}
# They have all of them in one list.
_FEW_FLAGS = {"federated_hh.compare", "training.predict_next_word"}
# Parses each command line with the program's own parser, in a fork of its own: the
# flags of some depend on the line.
_PARSE = """
import contextlib, importlib, io, json, os, sys, traceback
from federated_hh.options import option_flags
name = sys.argv[1]
module = importlib.import_module(name)
parse = getattr(module, "parse_flags", option_flags.parse)
# A check that a program adds to that of its options, or theirs alone.
of_options = getattr(getattr(module, "_PROGRAM", None), "check", lambda: None)
check_flags = getattr(module, "_check_flags", of_options)
if hasattr(module, "_num_clients"):
    module._num_clients = lambda: 10_000  # the documents' files are not there
if "--algorithm=" in sys.argv[2]:
    import tensorflow_federated  # once, and not in each fork
if name == "scripts.reproduce":
    import studies
    for study in set(studies.MODULES.values()):
        importlib.import_module(study)
errors = []
for arguments, is_whole, is_run in json.loads(sys.argv[2]):
    reading, writing = os.pipe()
    if os.fork() == 0:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                sys.argv = [module.__file__]
                parse([name, *arguments])
                if is_whole:
                    check_flags()
                if is_run:
                    module.main([name])
                    assert any(map(str.isdigit, said.getvalue())), "no number"
        except BaseException as error:
            # A reader's own data, which some checks count the clients of.
            if type(error).__name__ == "PopulationError" and "no file" in str(error):
                os._exit(0)
            said.write(f"{type(error).__name__}: {error}")
            os.write(writing, f"{arguments}: {said.getvalue()}".encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        errors.append(told.read())
    os.wait()
print(json.dumps([error for error in errors if error]))
"""


def _run(*arguments, cwd=_ROOT, path=""):
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**os.environ, "PYTHONPATH": f"{_ROOT}:{path}"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def _needs_no_files(command):
    """Returns whether a command reads no earlier run, and writes no plot.

    `small_forms_test` runs the others.
    """
    return not any(a.startswith(("--compose", "--plot")) for a in command.arguments)


def _by_program():
    found = collections.defaultdict(list)
    for command in documented_commands.commands()[0]:
        found[command.program].append(command)
    return found


class CommandsTest(parameterized.TestCase):
    def test_every_line_is_known(self):
        found, unknown = documented_commands.commands()
        self.assertEqual(unknown, [])
        self.assertEqual(documented_commands.unfenced(), [])
        self.assertGreater(len(found), 40)

    @parameterized.parameters(*sorted(_by_program()))
    def test_flags_parse(self, program):
        lines = [
            (c.known(), c.is_whole, program in _RUN_WHOLE and _needs_no_files(c))
            for c in _by_program()[program]
        ]
        folder = self.create_tempdir().full_path
        saved = documented_commands.save_files(folder)
        self.assertContainsSubset(["hadamard.py", "gru_model.py"], saved)
        done = _run("-c", _PARSE, program, json.dumps(lines), path=folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout.splitlines()[-1]), [])

    @parameterized.parameters(*sorted(set(registry.PROGRAMS.values()) - _FEW_FLAGS))
    def test_help_begins_with_what_is_decided_first(self, program):
        done = _run("-m", program, "--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        _, found, rest = done.stdout.partition("\nMain flags\n")
        self.assertTrue(found)
        first = rest.partition("\n\n")[0]
        self.assertBetween(len(re.findall(r"^  --", first, re.MULTILINE)), 5, 10)
        self.assertLessEqual(len(done.stdout.splitlines()), 85)  # two screens
        whole = _run("-m", program, "--helpfull").stdout
        names = re.findall(r"^  (--[\w\[\]]+)", whole, re.MULTILINE)
        self.assertContainsSubset(names, re.findall(r"--[\w\[\]]+", done.stdout))

    def test_a_word_that_is_no_flag(self):
        for program in ("federated_hh.run_triehh", "benchmarks.noise"):
            done = _run("-m", program, "word")
            self.assertEqual(done.returncode, 2)
            self.assertEqual(
                done.stderr, "error: arguments are --flags; what is 'word'?\n"
            )

    def test_what_does_not_parse_is_found(self):
        given = (["--epsilon=4"], ["--epsilom=4"], [])
        lines = [(arguments, True, False) for arguments in given]
        done = _run("-c", _PARSE, "federated_hh.run_triehh", json.dumps(lines))
        found = json.loads(done.stdout.splitlines()[-1])
        self.assertLen(found, 2)
        self.assertIn("epsilom", found[0])

    def test_every_program_is_run_by_a_test(self):
        not_run = set(_by_program()) - _RUN_WHOLE
        for file in (_ROOT / "tests").rglob("*_test.py"):
            text = file.read_text()
            if file.stem in ("commands_test", "flags_test"):
                continue  # they parse only
            starts = '"-m"' in text or "forked_programs.run" in text
            for program in list(not_run):
                room, _, name = program.rpartition(".")
                named = f'"{program}"' in text
                if file.stem == "benchmarks_test":
                    named |= f'"{name}"' in text
                imported = rf"^from {room} import .*\b{name}\b"
                if (starts and named) or re.search(imported, text, re.MULTILINE):
                    not_run.remove(program)
        self.assertEqual(not_run, set())


if __name__ == "__main__":
    absltest.main()
