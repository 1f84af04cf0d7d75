"""Tests of what scripts/run says by itself."""

import os
import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest, parameterized

import scripts
from scripts import console, programs
from simulation import software

_ROOT = pathlib.Path(scripts.__file__).resolve().parent.parent
_FIRST = "federated_hh.run_triehh"


def _run(*arguments):
    return subprocess.run(
        [sys.executable, "-P", "-m", "scripts.programs", *arguments],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


class ListTest(absltest.TestCase):
    def test_every_program_has_a_line(self):
        done = _run()
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage: scripts/run PROGRAM", done.stdout)
        found = {}
        for line in done.stdout.splitlines():
            name, _, about = line.strip().partition(" ")
            found[name] = about.strip()
        modules = {*console.PROGRAMS.values()}
        # What can be run and stands in scripts/, but for the launcher itself.
        for file in (_ROOT / "scripts").glob("*.py"):
            if file.stem != "programs" and "app.run(" in file.read_text():
                modules.add(f"scripts.{file.stem}")
        for module in modules:
            with self.subTest(module):
                self.assertRegex(found.get(module, ""), r"^[A-Z].{10,100}[^.]$")
                self.assertEqual(done.stdout.count(f"  {module} "), 1)
        self.assertNotIn("scripts.benchmark_results ", done.stdout)  # is none

    def test_help_is_no_wrong_use(self):
        for word in ("help", "-h", "--help"):
            self.assertEqual(programs.main([word]), 0)

    def test_its_script_lists_too(self):
        # As a user calls it, with an environment that is set up already.
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "scripts").mkdir()
        shutil.copy(_ROOT / "scripts" / "run", folder / "scripts")
        (folder / "scripts" / "environment.sh").write_text(
            f"root={_ROOT}\npython={sys.executable}\nexport PYTHONPATH=$root\n"
        )
        command = [str(folder / "scripts" / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(f"  {_FIRST} ", done.stdout)
        command.append("run_trieh")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"did you mean {_FIRST}", done.stderr)


class SuggestionTest(parameterized.TestCase):
    @parameterized.parameters(
        ("run_trieh", _FIRST),
        ("federated_hh.run_trihh", _FIRST),
        ("federated_hh/run_triehh.py", _FIRST),
        ("run-triehh", _FIRST),
        ("reproduse", "scripts.reproduce"),
        ("training.run_trainig", "training.run_training"),
    )
    def test_a_misspelled_name(self, name, meant):
        self.assertRegex(programs.suggestion(name), f"did you mean {meant}( or|\\?)")

    def test_it_ends_with_2_and_says_so_on_standard_error(self):
        done = _run("run_trieh", "--seed=1")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertStartsWith(done.stderr, "error: there is no program 'run_trieh'; ")

    def test_a_name_like_no_other_gets_the_list(self):
        told = programs.suggestion("qqqq")
        for module in programs.names():
            self.assertIn(f"\n  {module}", told)


class AnswersTest(absltest.TestCase):
    def test_version(self):
        done = _run("--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"{software.version()}\n")

    def test_completion_is_bash(self):
        done = _run("--completion")
        self.assertEqual(done.returncode, 0, done.stderr)
        file = self.create_tempfile(content=done.stdout).full_path
        subprocess.run(["bash", "-n", file], check=True)
        with self.subTest("programs"):
            self.assertEqual(self.completed(file, "federated_hh.run_tri"), [_FIRST])
        with self.subTest("flags"):
            self.assertEqual(
                self.completed(file, "privacy.run_accounting", "--local_eps"),
                ["--local_epsilon="],
            )

    def completed(self, file, *words):
        """Returns what bash offers after words, of which the last is unfinished."""
        script = self.create_tempfile(
            content=f'#!/bin/bash\nexec {sys.executable} -P -m scripts.programs "$@"\n'
        ).full_path
        os.chmod(script, 0o755)
        given = " ".join(f"'{word}'" for word in (script, *words))
        text = (
            f"source {file}; compopt() {{ :; }}; COMP_WORDS=({given}); "
            f"COMP_CWORD={len(words)}; _scripts_run; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", text],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    def test_flags_of_a_program(self):
        done = _run("--flags-of", "privacy.run_accounting")
        self.assertEqual(done.returncode, 0, done.stderr)
        flags = done.stdout.split()
        # Of a choice, a number, and what is true or false.
        self.assertContainsSubset(
            {"--mechanism=", "--epsilon=", "--paper_tables"}, flags
        )
        for flag in flags:
            self.assertRegex(flag, r"^--\w+=?$")
        self.assertLen(set(flags), len(flags))


if __name__ == "__main__":
    absltest.main()
