"""Tests of what all programs share, with the TrieHH program as one of them."""

import json
import os
import pathlib
import re
import stat
import subprocess
import sys
from unittest import mock

from absl import flags
from absl.testing import absltest, flagsaver, parameterized

from federated_hh.command_line import experiment_flags
from federated_hh.heavy_hitters.triehh import options as triehh_options
from federated_hh.options import fields
from federated_hh.populations.options import population_options
from federated_hh.randomness import noise_keys
from federated_hh.runtime.worker import startup
from tests import ROOT, forked_programs

_DATA = ("--population=words.tsv", "--population_format=word_counts")
_VOTES = (
    *_DATA,
    "--threshold=10",
    "--cohort_size=280",
    "--max_length=5",
    "--norequire_guarantee",
)
_REPORTS = (
    *_DATA,
    "--alphabet=abcdefgorw",
    "--cohort_size=90",
    "--max_depth=4",
    "--contribution_bound=2",
    "--epsilon=4",
)


class NoiseKeyOfRunsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)
        rows = [f"user{i}\twor{chr(97 + i % 7)}\t1\n" for i in range(400)]
        (self.scratch / "words.tsv").write_text("".join(rows))

    def run_program(self, program, *flags):
        cache = f"--population_cache={self.scratch / 'cache'}"
        return forked_programs.run(program, *flags, cache, directory=self.scratch)

    def check_first(self, program, *flags):
        """Runs a program on real data; returns its record."""
        first = self.run_program(program, *flags, "--output_dir=first")
        self.assertEqual(first.returncode, 0, first.stderr)
        path = self.scratch / "first"
        file = path / "secret" / "noise_key"
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        key = noise_keys.NoiseKey.read(file)
        self.assertIn(f"SHA-256 {key.commitment}", first.stderr)
        record = json.loads((path / "run.json").read_text())
        self.assertEqual(
            record["noise_key"], {"is_secret": True, "sha256": key.commitment}
        )
        self.assertIn(key.commitment, (path / "report.html").read_text())
        for shown in path.rglob("*"):
            if shown.is_file() and shown != file:
                self.assertNotIn(f"{key.value:032x}".encode(), shown.read_bytes())
        return record

    def test_reports_of_real_data_have_a_secret_key(self):
        self.check_first("federated_hh.run_ldp_triehh", *_REPORTS)

    def test_real_data_have_a_secret_key_that_repeats_the_run(self):
        # That a key alone repeats noise, `contract_test` has of all algorithms.
        program, flags = "federated_hh.run_triehh", _VOTES
        record = self.check_first(program, *flags)
        path = self.scratch / "first"
        again = self.run_program(
            program,
            *flags,
            "--output_dir=again",
            "--noise_key_file=first/secret/noise_key",
        )
        self.assertEqual(again.returncode, 0, again.stderr)
        other = self.run_program(program, *flags, "--output_dir=other")
        self.assertEqual(other.returncode, 0, other.stderr)

        def exact_votes(name):
            file = self.scratch / name / "simulator" / "heavy_hitters.csv"
            return file.read_text()

        self.assertEqual(exact_votes("first"), exact_votes("again"))
        # 7 words with some 40 votes each: all alike with a chance below 1e-5.
        self.assertNotEqual(exact_votes("first"), exact_votes("other"))

        with self.subTest("edited flags are refused"):
            record["status"] = "running"
            del record["finished"]
            (path / "run.json").write_text(json.dumps(record))
            file = path / "flags.txt"
            file.write_text(file.read_text().replace("--seed=1", "--seed=2"))
            done = self.run_program(program, "--resume", "--output_dir=first")
            self.assertEqual(done.returncode, 2)
            self.assertIn(
                "flags.txt differs from the flags that the run began with", done.stderr
            )
            self.assertNotIn("Traceback", done.stderr)
        with self.subTest("a resumed run has its key"):
            file.write_text("".join(f"{flag}\n" for flag in record["flags"]))
            done = self.run_program(
                program, "--resume", "--output_dir=first", "--noise_key_file=x"
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn("--noise_key_file: a resumed run has its", done.stderr)


_CUSTOM = """
import os, sys
if os.environ["FAILS"] == "import":
    sys.exit(0)
from examples import histogram
class Own(histogram.Histogram):
    @classmethod
    def of(cls, *arguments):
        if os.environ["FAILS"] == "of":
            raise ValueError("no luck\\nat all")
        return super().of(*arguments)
    def learn(self, state, estimates):
        if os.environ["FAILS"] == "learn":
            sys.exit(0)
        return None
"""


class CustomCodeTest(parameterized.TestCase):
    @parameterized.parameters(
        ("import", 2, "own.py:4, <module>: SystemExit: 0"),
        ("of", 2, "own.py:10, Own.of: ValueError: no luck"),
        ("learn", 1, "own.py:14, Own.learn: SystemExit: 0"),
        ("returns", 1, "own:Own.update returned a NoneType"),
    )
    def test_what_it_raises_is_one_line(self, fails, code, message):
        scratch = pathlib.Path(self.create_tempdir().full_path)
        (scratch / "own.py").write_text(_CUSTOM)
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "federated_hh.run_algorithm"),
                *("--algorithm=own:Own", "--num_clients=3000", "--output_dir=run"),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT), "FAILS": fails},
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=300,
        )
        errors = [line for line in done.stderr.splitlines() if "error: " in line]
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertLen(errors, 1, done.stderr)
        self.assertIn(message, errors[0])
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual((scratch / "run").exists(), code == 1)


class PipeTest(absltest.TestCase):
    def test_a_reader_that_goes_away_spoils_no_complete_run(self):
        scratch = pathlib.Path(self.create_tempdir().full_path)
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [
                *(sys.executable, "-P", "-m", "federated_hh.run_triehh"),
                *("--num_clients=3000", "--epsilon=8", "--output_dir=run"),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=scratch,
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
        os.close(write)
        self.assertEqual(done.returncode, 0, done.stderr)
        record = json.loads((scratch / "run" / "run.json").read_text())
        self.assertEqual(record["status"], "complete")
        self.assertNotIn("error", done.stderr)


_ENDS = """
import os, signal, sys
from absl import app
from federated_hh.command_line import experiment_flags
from federated_hh.options import option_flags
def run(arguments):
    with arguments.open_run("p", {}) as run:
        if os.environ["COMPLETE"] == "True":
            run.complete()
    os.kill(os.getpid(), signal.SIGTERM)
def main(argv):
    experiment_flags.run_program(
        argv, "p", lambda: None, run, is_synthetic=lambda: True
    )
    os.kill(os.getpid(), signal.SIGTERM)
app.run(main, flags_parser=option_flags.parse)
"""


class LateSignalTest(parameterized.TestCase):
    @parameterized.parameters((True, 0, ""), (False, 143, "SIGTERM; resume with"))
    def test_a_signal_spoils_no_complete_run(self, complete, code, message):
        done = subprocess.run(
            [sys.executable, "-P", "-c", _ENDS, "--output_dir=run"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "COMPLETE": str(complete)},
            cwd=self.create_tempdir().full_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(message, done.stderr)
        self.assertNotIn("Traceback", done.stderr)


class _StopError(Exception):
    """Ends a program at a point."""


class NetworkTest(parameterized.TestCase):
    @parameterized.parameters(True, False)
    def test_the_flag_isolates_the_worker(self, wanted):
        if not flags.FLAGS.is_parsed():
            flags.FLAGS(["a test"])
        self.enter_context(flagsaver.flagsaver(isolate_network=wanted))
        self.enter_context(mock.patch.object(startup, "keep_interrupts"))
        stop = mock.patch.object(startup, "isolate_workers", side_effect=_StopError)
        with stop as isolate, self.assertRaises(_StopError):
            experiment_flags.run_program(
                ["p"], "p", lambda: None, lambda _: None, is_synthetic=lambda: True
            )
        isolate.assert_called_once_with(wanted)


class FlagErrorsTest(parameterized.TestCase):
    def run_program(self, program, *flags):
        return subprocess.run(
            [sys.executable, "-P", "-m", program, *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=self.create_tempdir().full_path,
            capture_output=True,
            text=True,
            timeout=300,
        )

    @parameterized.parameters(
        ("federated_hh.run_triehh", "--max_length=1001", r"\[2, 1000\]"),
        ("federated_hh.run_ldp_triehh", "--max_depth=1001", r"\[1, 1000\]"),
        ("training.run_training", "--num_units=2147483648", r"\[1, [0-9]+\]"),
        ("scripts.reproduce", "--study=figure0", "one of <.*oov_table1"),
        ("federated_hh.run_triehh", "--num_repeats=many", "a whole number"),
        ("federated_hh.run_triehh", "--no_such_flag=3", "error: Unknown"),
        ("federated_hh.run_triehh", "--noresume=3", "does not take an argument"),
        ("federated_hh.run_triehh", "--flagfile=nowhere", "Unable to open"),
        ("federated_hh.run_triehh", "--flagfile=/dev/zero", "has to be a file"),
        ("federated_hh.run_triehh", f"--flagfile={sys.executable}", "text in UTF-8"),
    )
    def test_one_line_and_exit_code_2(self, program, flag, message):
        done = self.run_program(program, flag)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        self.assertLen(done.stderr.splitlines(), 1, done.stderr)
        name, value = flag.removeprefix("--").split("=")
        self.assertStartsWith(done.stderr, "error: ")
        self.assertRegex(done.stderr, message)
        self.assertIn(name, done.stderr)
        if name not in ("no_such_flag", "flagfile"):
            self.assertIn(value, done.stderr)

    def test_all_that_is_wrong_is_told_at_once(self):
        done = self.run_program(
            *("federated_hh.run_triehh", "--max_length=0", "--no_such_flag=3"),
            *("--num_repeats", "many", "--delta=1e-6"),
        )
        self.assertEqual(done.returncode, 2)
        errors = done.stderr.splitlines()
        self.assertLen(errors, 3, done.stderr)
        for name in ("max_length", "no_such_flag", "num_repeats"):
            self.assertLen([e for e in errors if name in e and "error: " in e], 1)
        # What does not go together, of two kinds of options.
        done = self.run_program(
            "federated_hh.run_triehh", "--threshold=9", "--population= "
        )
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "error: .*cohort_size.*\nerror: --population= ")

    def test_help_has_each_flag_once_and_the_first_ones_first(self):
        done = self.run_program("federated_hh.run_triehh", "--help", "--seed=2")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        whole = self.run_program("federated_hh.run_triehh", "--helpfull")
        shown, told = (
            re.findall(r"^  --(?:\[no\])?(\w+)", page.stdout, re.MULTILINE)
            for page in (done, whole)
        )
        self.assertLen(set(told), len(told))
        for options in (
            (experiment_flags.RunOptions, None),
            (triehh_options.TrieHHOptions, None),
            (
                population_options.PopulationOptions,
                population_options.PopulationOptions.names("words"),
            ),
        ):
            options_class, names = options
            fields_of = fields.fields_of(options_class)
            flag_names = {fields_of[name].flag for name in names or fields_of}
            self.assertContainsSubset(flag_names, told)
        self.assertEqual(shown[:3], ["population", "epsilon", "delta"])
        self.assertLess(shown.index("threshold"), 10)
        # The whole help has what the short one leaves out.
        self.assertNotIn("in [0, 1)", done.stdout)
        self.assertIn("in [0, 1)", whole.stdout)

    def test_stray_arguments_are_refused(self):
        done = self.run_program("federated_hh.run_triehh", "--epsilon=1", "extra")
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    absltest.main()
