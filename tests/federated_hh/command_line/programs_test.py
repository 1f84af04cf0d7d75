"""Tests of what scripts/run says by itself."""

import os
import pathlib
import shutil
import subprocess
import sys

from absl.testing import absltest, parameterized

from federated_hh.command_line import programs
from federated_hh.files import installation as registry
from federated_hh.files import software
from tests import ROOT

_FIRST = "triehh"


_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def _run(*arguments):
    return subprocess.run(
        [sys.executable, "-P", "-m", "federated_hh.command_line.programs", *arguments],
        env=_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


def _bash(text):
    done = subprocess.run(
        ["bash", "-c", text],
        env=_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


class ListTest(absltest.TestCase):
    def test_every_program_has_a_line(self):
        done = _run()
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage: scripts/run PROGRAM", done.stdout)
        users = {*registry.PROGRAMS, "reproduce"}
        shown = [line.strip().partition(" ")[0] for line in done.stdout.splitlines()]
        self.assertEqual(users, {n for n in shown if n in users or "." in n})
        done = _run("--all")
        self.assertEqual(done.returncode, 0)
        found = {}
        for line in done.stdout.splitlines():
            name, _, about = line.strip().partition(" ")
            found[name] = about.strip()
        names = {*users}
        # What can be run and is not installed.
        for folder in ("benchmarks", "scripts"):
            for file in (ROOT / folder).glob("*.py"):
                if file.stem != "reproduce" and "app.run(" in file.read_text():
                    names.add(f"{folder}.{file.stem}")
        for name in names:
            with self.subTest(name):
                self.assertRegex(found.get(name, ""), r"^[A-Z].{10,100}[^.]$")
                self.assertEqual(done.stdout.count(f"  {name} "), 1)
        self.assertNotIn("benchmarks.harness ", done.stdout)  # is none

    def test_help_is_no_wrong_use(self):
        for word in ("help", "-h", "--help"):
            self.assertEqual(programs.main([word]), 0)

    def test_its_script_lists_too(self):
        # As a user calls it, with an environment that is set up already.
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "run", folder / "scripts")
        (folder / "scripts" / "environment.sh").write_text(
            f"root={ROOT}\npython={sys.executable}\nexport PYTHONPATH=$root\n"
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
        ("reproduse", "reproduce"),
        ("training.run_trainig", "training"),
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


class AnswersTest(parameterized.TestCase):
    def test_version(self):
        done = _run("--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"{software.version()}\n")

    @parameterized.parameters(
        ("tri", [_FIRST]),
        ("accounting --local_eps", ["--local_epsilon="]),
        (f"{_FIRST} --seed=1 --res", ["--resume"]),
        (f"{_FIRST} --nores", ["--noresume"]),
        (f"{_FIRST} --engine=", ["embedded", "ray"]),
        ("statistics --strategy=sta", ["static"]),
        # Flags that another one brings.
        ("reproduce --study=zhu_theory --num_fr", ["--num_frequencies="]),
        (
            "reproduce --study=zhu_t",
            ["zhu_table2", "zhu_table2_printed", "zhu_theory"],
        ),
        (f"{_FIRST} some", []),  # of files
    )
    def test_completion_in_bash(self, line, expected):
        script = self.create_tempfile(
            content=f"#!/bin/bash\nexec {sys.executable} -P "
            '-m federated_hh.command_line.programs "$@"\n'
        ).full_path
        os.chmod(script, 0o755)
        self.assertEqual(self.offered(script, line), expected)

    @parameterized.parameters(
        ("--word_sel", ["--word_selection="]), ("--engine=r", ["ray"])
    )
    def test_completion_where_it_is_installed(self, line, expected):
        script = pathlib.Path(self.create_tempdir().full_path) / "run-triehh"
        script.write_text(
            f"#!{sys.executable} -P\n"
            "from federated_hh.command_line import console\nconsole.main()\n"
        )
        script.chmod(0o755)
        self.assertEqual(self.offered(str(script), line), expected)

    def offered(self, script, line):
        """Returns what bash offers after a line that begins with a script."""
        done = _bash(f"{script} --completion")
        text = done + (
            f"\ncompopt() {{ :; }}; COMP_LINE='{script} {line}'\n"
            f"COMP_POINT=${{#COMP_LINE}}; _federated_hh {script}\n"
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        return _bash(text).split()

    @parameterized.parameters(
        (0, registry.PROGRAMS[_FIRST], "--helpfull"),
        (
            *(141, "federated_hh.command_line.programs", "accounting"),
            *("--mechanism=statistics", "--population=1e6", "--epsilon=1"),
        ),
    )
    def test_output_for_a_reader_that_goes_away(self, code, *arguments):
        command = [sys.executable, "-P", "-m", *arguments]
        program = subprocess.Popen(
            command,
            env=_ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        program.stdout.close()
        self.assertEqual(program.stderr.read(), "")
        self.assertEqual(program.wait(), code)
        program.stderr.close()


if __name__ == "__main__":
    absltest.main()
