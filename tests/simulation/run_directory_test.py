"""Tests of run directories: whole or not there, and never two runs in one."""

import os
import resource
import subprocess
import sys
from unittest import mock

import pandas as pd
from absl.testing import absltest, parameterized

from simulation import run_directory, software

_FACTS = {"population": "abc"}


def _create(path, program="p", facts=_FACTS):
    return run_directory.RunDirectory.create(
        path, program=program, flags_text="--seed=1\n", facts=facts
    )


def _resume(path, program="p", facts=_FACTS):
    return run_directory.RunDirectory.resume(path, program=program, facts=facts)


class RunDirectoryTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "a", "run")

    def test_run_and_resume(self):
        with _create(self.path) as run:
            self.assertIsNone(run.load_checkpoint())
            run.add_metrics(1, {"round": 1, "votes": 0.1})
            run.save_checkpoint({"level": [1, 2]})
            run.add_metrics(2, {"round": 2, "votes": 7.0})  # lost with the round
        with _resume(self.path) as run:
            self.assertEqual(run.load_checkpoint(), {"level": [1, 2]})
            run.add_metrics(2, {"round": 2, "votes": 8.0})
            run.save_checkpoint({"level": [3]})
            run.complete()
        metrics = pd.read_csv(os.path.join(self.path, "metrics.csv"))
        self.assertEqual(metrics["votes"].tolist(), [0.1, 8.0])
        self.assertEqual(run.run["status"], "complete")
        self.assertTrue(os.listdir(os.path.join(self.path, "tensorboard")))
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "is complete"):
            _resume(self.path)

    def test_parts_have_checkpoints_and_metrics_of_their_own(self):
        with _create(self.path) as run:
            with run.part("first") as part:
                self.assertIsNone(part.load_checkpoint())
                part.add_metrics(1, {"votes": 1.0})
                part.save_checkpoint({"level": 1})
                part.write_text("found.csv", "word\n")
            run.save_checkpoint({"parts": 1})
        self.assertTrue(os.path.exists(os.path.join(self.path, "first", "found.csv")))
        with _resume(self.path) as run:
            self.assertEqual(run.load_checkpoint(), {"parts": 1})
            self.assertEqual(run.run["facts"], _FACTS)
            with run.part("second") as part:
                self.assertIsNone(part.load_checkpoint())
            with run.part("first") as part:
                self.assertEqual(part.load_checkpoint(), {"level": 1})
                self.assertEqual(part.metrics()["votes"].tolist(), [1.0])
                self.assertEqual(part.run["facts"], _FACTS)
            # The parts' end does not let another process in.
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "another process"
            ):
                _resume(self.path)

    def test_part_that_cannot_be_made(self):
        with _create(self.path) as run:
            run.write_text("taken", "")
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "taken cannot be made"
            ):
                run.part("taken")

    def test_flags_and_versions_are_recorded(self):
        _create(self.path).close()
        with open(run_directory.flags_file(self.path)) as file:
            self.assertEqual(file.read(), "--seed=1\n")
        run = run_directory.RunDirectory.read_run(self.path)
        self.assertEqual(run["packages"]["tensorflow-federated"], "0.87.0")
        self.assertEqual(run["facts"], _FACTS)

    def test_directory_of_another_run_is_refused(self):
        with _create(self.path) as run:
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "continue it with --resume"
            ):
                _create(self.path)
            run.complete()
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "is complete"):
            _create(self.path)

    def test_directory_with_other_files_is_refused(self):
        os.makedirs(self.path)
        with open(os.path.join(self.path, "thesis.tex"), "w"):
            pass
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "not an empty"):
            _create(self.path)
        self.assertEqual(os.listdir(self.path), ["thesis.tex"])

    def test_empty_directory_is_taken(self):
        os.makedirs(self.path)
        _create(self.path).close()

    def test_parent_that_is_a_file(self):
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "w"):
            pass
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "cannot be made"):
            _create(os.path.join(self.path, "below"))

    @parameterized.parameters(
        ({"program": "q"}, "a run of p, not q"),
        ({"facts": {"population": "xyz"}}, "population = 'abc', now it is 'xyz'"),
    )
    def test_resume_of_something_else(self, changes, message):
        _create(self.path).close()
        with self.assertRaisesRegex(run_directory.RunDirectoryError, message):
            _resume(self.path, **changes)

    def test_resume_of_nothing(self):
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "holds no run"):
            _resume(self.path)

    def test_two_processes_do_not_work_on_one_run(self):
        program = (
            "from simulation import run_directory as r; import sys\n"
            "try: r.RunDirectory.resume(sys.argv[1], program='p', facts={})\n"
            "except r.RunDirectoryError as e: print(e)"
        )
        with _create(self.path):
            root = os.path.dirname(os.path.dirname(run_directory.__file__))
            other = subprocess.run(
                [sys.executable, "-c", program, self.path],
                env={**os.environ, "PYTHONPATH": root},
                capture_output=True,
                text=True,
                check=True,
            )
        self.assertIn("another process", other.stdout)

    def test_write_that_fails_leaves_the_last_whole_file(self):
        # A limit on the size of files stands for a full disk: the same system call
        # fails in the same way, with another number.
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        with _create(self.path) as run:
            run.write_text("result.csv", "whole")
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
            try:
                with self.assertRaisesRegex(
                    run_directory.RunDirectoryError,
                    "result.csv cannot be written: .*--resume",
                ):
                    run.write_text("result.csv", "more than ten bytes")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with open(os.path.join(self.path, "result.csv")) as file:
            self.assertEqual(file.read(), "whole")
        self.assertNotIn(".result.csv.partial", os.listdir(self.path))

    @parameterized.parameters("{}", "[]", "{", '{"schema_version": 2}')
    def test_damaged_or_foreign_run_file(self, contents):
        _create(self.path).close()
        with open(os.path.join(self.path, "run.json"), "w") as file:
            file.write(contents)
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "run.json"):
            _resume(self.path)
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "run.json"):
            _create(self.path)

    def test_killed_before_the_first_file_was_whole(self):
        os.makedirs(self.path)
        with open(os.path.join(self.path, ".run.json.partial"), "w"):
            pass
        _create(self.path).close()

    def test_killed_before_the_flags_file(self):
        _create(self.path).close()
        os.remove(os.path.join(self.path, "flags.txt"))
        with open(run_directory.flags_file(self.path)) as file:
            self.assertEqual(file.read(), "--seed=1\n")

    def test_another_version_that_goes_on_is_warned_of(self):
        _create(self.path).close()
        file = os.path.join(self.path, "run.json")
        with open(file) as stream:
            text = stream.read()
        with open(file, "w") as stream:
            stream.write(text.replace('"numpy": "1', '"numpy": "0'))
        with self.assertLogs(level="WARNING") as logs:
            _resume(self.path).close()
        self.assertIn("began with numpy 0", "".join(logs.output))

    def test_changed_code_that_goes_on_is_warned_of(self):
        with mock.patch.object(software, "sources_digest", return_value="other"):
            _create(self.path).close()
        with self.assertLogs(level="WARNING") as logs:
            _resume(self.path).close()
        self.assertRegex("".join(logs.output), r"this code .* \(sources other\), now")

    def test_checkpoint_without_its_parts(self):
        with _create(self.path) as run:
            run.write_text("checkpoint.json", "{}")
            with self.assertRaisesRegex(run_directory.RunDirectoryError, "damaged"):
                run.load_checkpoint()

    def test_damaged_checkpoint_is_named(self):
        with _create(self.path) as run:
            run.write_text("checkpoint.json", "{")
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "checkpoint.json is not readable"
            ):
                run.load_checkpoint()


if __name__ == "__main__":
    absltest.main()
