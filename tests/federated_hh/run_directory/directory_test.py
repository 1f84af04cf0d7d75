"""Tests of run directories: whole or not there, and never two runs in one."""

import json
import math
import os
import pathlib
import resource
import subprocess
import sys
from unittest import mock

import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.files import software, tables
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files
from federated_hh.run_directory import metrics as run_metrics
from federated_hh.run_directory import record as run_record
from tests import ROOT

_FACTS = {"population": "abc"}
_KEY = noise_keys.NoiseKey(2**127 + 5, is_secret=True)


def _row(votes):
    return run_metrics.RoundMetrics({"votes": votes}, {"exact": votes + 0.5})


def _create(path, program="p", facts=_FACTS):
    return run_directory.RunDirectory.create(
        path, program=program, flags=["--seed=1"], facts=facts, noise_key=_KEY
    )


def _resume(path, program="p", facts=_FACTS, noise_key=_KEY):
    return run_directory.RunDirectory.resume(
        path, program=program, facts=facts, noise_key=noise_key
    )


class RunDirectoryTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "a", "run")

    def test_run_and_resume(self):
        with _create(self.path) as run:
            self.assertIsNone(run.load_checkpoint())
            run.add_metrics(1, _row(0.1))
            run.save_checkpoint({"level": [1, 2]})
            run.add_metrics(2, _row(7.0))  # lost with the round
        with _resume(self.path) as run:
            self.assertEqual(run.load_checkpoint(), {"level": [1, 2]})
            run.add_metrics(2, _row(8.0))
            run.save_checkpoint({"level": [3]})
            run.complete()
        metrics = pd.read_csv(os.path.join(self.path, "metrics.csv"))
        self.assertEqual(metrics["votes"].tolist(), [0.1, 8.0])
        self.assertEqual(run.run["status"], "complete")
        self.assertTrue(os.listdir(os.path.join(self.path, "simulator", "tensorboard")))
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "is complete"):
            _resume(self.path)

    def test_parts_have_checkpoints_and_metrics_of_their_own(self):
        with _create(self.path) as run:
            with run.part("first") as part:
                self.assertIsNone(part.load_checkpoint())
                part.add_metrics(1, _row(1.0))
                part.save_checkpoint({"level": 1})
                part.released.write_text("found.csv", "word\n")
            run.save_checkpoint({"parts": 1})
        self.assertTrue(os.path.exists(os.path.join(self.path, "first", "found.csv")))
        with _resume(self.path) as run:
            self.assertEqual(run.load_checkpoint(), {"parts": 1})
            with run.part("second") as part:
                self.assertIsNone(part.load_checkpoint())
            with run.part("first") as part:
                self.assertEqual(part.load_checkpoint(), {"level": 1})
                self.assertEqual(part.metrics()["votes"].tolist(), [1.0])
            # The parts' end does not let another process in.
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "another process"
            ):
                _resume(self.path)

    def test_part_that_cannot_be_made(self):
        with _create(self.path) as run:
            run.released.write_text("taken", "")
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "taken/simulator cannot be created"
            ):
                run.part("taken")

    def test_flags_and_versions_are_recorded(self):
        _create(self.path).close()
        self.assertEqual(run_record.flags_of(self.path), ["--seed=1"])
        run = run_record.read(self.path)
        self.assertEqual(run["packages"]["tensorflow-federated"], "0.87.0")

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

    def test_reserved_directory(self):
        path = pathlib.Path(self.path) / "below"
        made = run_directory.RunDirectory.reserve(path)
        self.assertEqual(made[:2], [path, path.parent])
        run_directory.RunDirectory.give_back(made)
        self.assertFalse(path.parent.exists())
        made = run_directory.RunDirectory.reserve(path)
        _create(path).close()
        run_directory.RunDirectory.give_back(made)  # a run has begun: nothing goes
        self.assertTrue((path / "run.json").exists())

    def test_full_disk_before_the_run_began(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # The key fits, and the first file after it does not.
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        try:
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "README.txt .*begin the run again"
            ):
                _create(self.path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        _create(self.path).close()

    def test_pipe_in_place_of_a_file(self):
        _create(self.path).close()
        file = pathlib.Path(self.path) / "run.json"
        file.unlink()
        os.mkfifo(file)
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "it is a pipe"):
            run_record.read(self.path)

    def test_parent_that_is_a_file(self):
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "w"):
            pass
        with self.assertRaisesRegex(
            run_directory.RunDirectoryError, "cannot be created"
        ):
            _create(os.path.join(self.path, "below"))

    @parameterized.parameters(
        ({"program": "q"}, "a run of p, not q"),
        ({"facts": {"population": "xyz"}}, "population = 'abc', and it is now 'xyz'"),
    )
    def test_resume_of_something_else(self, changes, message):
        _create(self.path).close()
        with self.assertRaisesRegex(run_directory.RunDirectoryError, message):
            _resume(self.path, **changes)

    def test_facts_are_compared_as_they_are_written(self):
        facts = {"shape": (1, 2), "missing": math.nan, "most": math.inf}
        _create(self.path, facts=facts).close()
        _resume(self.path, facts=dict(facts)).close()
        for other in ({"shape": (1, 3)}, {"missing": 0.0}, {"most": 1e308}):
            with self.assertRaisesRegex(run_directory.RunDirectoryError, "it is now"):
                _resume(self.path, facts=facts | other)

    def test_edited_flags_are_refused(self):
        with _create(self.path) as run:
            run.save_checkpoint(1)
        file = os.path.join(self.path, "flags.txt")
        with open(file, "w") as stream:
            stream.write("--seed=1\n--epsilon=2\n")
        for read in (run_record.flags_of, _resume):
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "flags.txt differs from the flags"
            ):
                read(self.path)

    def _edit(self, name, old, new):
        file = os.path.join(self.path, name)
        with open(file, "rb") as stream:
            contents = stream.read()
        self.assertIn(old, contents)
        with open(file, "wb") as stream:
            stream.write(contents.replace(old, new))

    def test_edited_record_is_named(self):
        _create(self.path).close()
        self._edit("run.json", b"--seed=1", b"--seed=2")
        with self.assertRaisesRegex(
            run_directory.RunDirectoryError, "run.json: its flags changed after"
        ):
            _resume(self.path)

    def test_a_record_edited_in_all_places_is_named(self):
        _create(self.path).close()
        digests = [run_record._digest([f"--seed={n}"]).encode() for n in (1, 2)]
        self._edit("flags.txt", b"--seed=1", b"--seed=2")
        self._edit("run.json", b"--seed=1", b"--seed=2")
        self._edit("run.json", *digests)
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "record_hmac"):
            _resume(self.path)

    @parameterized.parameters(
        ("version", "0000000"), ("packages", {}), ("python", "3.0"), ("started", "")
    )
    def test_fields_that_name_the_code_cannot_be_edited(self, name, value):
        _create(self.path).close()
        with open(os.path.join(self.path, "run.json")) as file:
            record = json.load(file)
        self.assertNotEqual(record[name], value)
        with open(os.path.join(self.path, "run.json"), "w") as file:
            json.dump(record | {name: value}, file)
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "run.json"):
            _resume(self.path)

    @parameterized.parameters(
        (b"\xff\xfe", "damaged|differs"), (b"[" * 10**5, "damaged|differs")
    )
    def test_every_damaged_file_is_named(self, contents, message):
        for name in ("run.json", "flags.txt", "simulator/facts.json"):
            path = f"{self.path}_{os.path.basename(name)}"
            _create(path).close()
            file = os.path.join(path, name)
            with open(file, "wb") as stream:
                stream.write(contents)
            with (
                self.subTest(name),
                self.assertRaisesRegex(
                    run_directory.RunDirectoryError, f"{name}.*({message})"
                ),
            ):
                _resume(path)
            os.remove(file)
            os.mkdir(file)
            with (
                self.subTest(f"{name} is a directory"),
                self.assertRaisesRegex(run_directory.RunDirectoryError, name),
            ):
                _resume(path)

    def test_flags_that_no_flagfile_holds(self):
        flags = ["--alphabet=abc ", "--word= x", "--line=a\r\nb", "--seed=1"]
        run_directory.RunDirectory.create(
            self.path, program="p", flags=flags, facts=_FACTS, noise_key=_KEY
        ).close()
        self.assertEqual(run_record.flags_of(self.path), flags)
        with open(os.path.join(self.path, "flags.txt")) as stream:
            text = stream.read()
        self.assertEqual(
            text,
            "# '--alphabet=abc '\n--word= x\n# '--line=a\\r\\nb'\n--seed=1\n",
        )

    def test_another_noise_key_is_refused(self):
        _create(self.path).close()
        other = noise_keys.NoiseKey(2**127 + 6, is_secret=True)
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "another noise"):
            _resume(self.path, noise_key=other)
        self.assertEqual(run_record.noise_key_of(self.path), _KEY)
        other.write(os.path.join(self.path, "secret", "noise_key"))
        with self.assertRaisesRegex(noise_keys.NoiseKeyError, "another noise key"):
            run_record.noise_key_of(self.path)
        os.remove(os.path.join(self.path, "secret", "noise_key"))
        with self.assertRaisesRegex(noise_keys.NoiseKeyError, "cannot be read"):
            run_record.noise_key_of(self.path)

    def test_the_key_and_the_data_are_in_no_file_that_is_released(self):
        with _create(self.path) as run:
            run.add_metrics(1, _row(1.0))
            run.save_checkpoint({"level": 1})
            run.complete()
        key = f"{_KEY.value:032x}".encode()
        for folder, _, names in os.walk(self.path):
            for name in names:
                file = os.path.join(folder, name)
                with open(file, "rb") as stream:
                    contents = stream.read()
                with self.subTest(file):
                    self.assertEqual(key in contents, name == "noise_key")
                    self.assertNotIn(str(_KEY.value).encode(), contents)
                    self.assertEqual(b'"abc"' in contents, name == "facts.json")
        self.assertEqual(
            sorted(name for name in os.listdir(self.path)),
            [
                *("flags.txt", "metrics.csv", "run.json"),
                *("seal.json", "secret", "simulator"),
            ],
        )

    def test_what_only_the_simulator_knows_is_not_released(self):
        with _create(self.path) as run:
            run.add_metrics(1, _row(1.0))
            run.complete()
        released = tables.read(os.path.join(self.path, "metrics.csv"))
        self.assertEqual(released.columns.tolist(), ["votes"])
        both = tables.read(os.path.join(self.path, "simulator", "metrics.csv"))
        self.assertEqual(both.columns.tolist(), ["votes", "exact"])
        self.assertFalse(hasattr(run, "write_table"))

    def test_a_row_that_no_checkpoint_counts_is_cut_off(self):
        rows = "simulator/checkpoint_metrics.jsonl"
        found = []
        for kill in (None, "write_bytes", "append"):
            path = pathlib.Path(f"{self.path}_{kill}")
            with _create(path) as run:
                for number in range(1, 4):
                    run.add_metrics(number, _row(number + 0.5))
                    run.save_checkpoint({"level": number})
            whole = (path / rows).read_bytes()
            if kill:
                with _resume(path) as run:
                    run.load_checkpoint()
                    run.add_metrics(4, _row(99.0))
                    stop = mock.patch.object(
                        files.RunFiles, "write_bytes", side_effect=KeyboardInterrupt
                    )
                    # The seconds come first.
                    with stop, self.assertRaises(KeyboardInterrupt):
                        run.save_checkpoint({"level": 4})
                self.assertIn(b"99.0", (path / rows).read_bytes())
            if kill == "append":  # of a machine without power
                with open(path / rows, "ab") as file:
                    file.write(b'[5, {"vo')
            with _resume(path) as run:
                self.assertEqual(run.load_checkpoint(), {"level": 3})
                self.assertEqual((path / rows).read_bytes(), whole)
                run.add_metrics(4, _row(4.5))
                run.save_checkpoint({"level": 4})
                saved = (path / "metrics.csv").read_bytes()
                run.complete()
            contents = [(path / name).read_bytes() for name in (rows, "metrics.csv")]
            self.assertEqual(contents[1], saved)
            found.append(contents)
        self.assertEqual(found[1:], found[:1] * 2)

    @parameterized.parameters(
        ("run", 0), ("sha256", 0), ("level", 1), ("size", 1), ("votes", 2), ("exact", 2)
    )
    def test_damaged_checkpoints_are_named(self, text, line):
        with _create(self.path) as run:
            run.add_metrics(1, _row(1.0))
            run.save_checkpoint({"level": 1})
            name, line = (
                ("checkpoint.jsonl", line)
                if line < 2
                else ("checkpoint_metrics.jsonl", 0)
            )
            file = os.path.join(self.path, "simulator", name)
            with open(file) as stream:
                lines = stream.read().split("\n")
            self.assertIn(text, lines[line])
            lines[line] = lines[line].replace(text, "x" + text[1:])
            with open(file, "w") as stream:
                stream.write("\n".join(lines))
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, f"{name} is damaged"
            ):
                run.load_checkpoint()

    def test_checkpoint_of_another_run(self):
        other = f"{self.path}_2"
        for path in (self.path, other):
            with _create(path, facts={"population": path}) as run:
                run.save_checkpoint({"level": 1})
        name = os.path.join("simulator", "checkpoint.jsonl")
        os.replace(os.path.join(other, name), os.path.join(self.path, name))
        with (
            _resume(self.path, facts={"population": self.path}) as run,
            self.assertRaisesRegex(
                run_directory.RunDirectoryError, "belongs to a run with other"
            ),
        ):
            run.load_checkpoint()

    def test_checkpoint_of_an_older_version(self):
        """It has the start time in its identity, and the seconds in its rows."""
        with _create(self.path) as run:
            run.add_metrics(1, run_metrics.RoundMetrics({"round": 1}, {"seconds": 0.5}))
            dated = run._identity(with_start=True)
            with (
                mock.patch.object(run, "_identity", return_value=dated),
                mock.patch.object(run_metrics, "_untimed", dict),
            ):
                run.save_checkpoint({"level": 1})
            self.assertNotEqual(run._identity(), dated)
        os.remove(os.path.join(self.path, "simulator", "seconds.csv"))
        with _resume(self.path) as run, self.assertNoLogs():
            self.assertEqual(run.load_checkpoint(), {"level": 1})
            self.assertEqual(run.metrics()["seconds"].tolist(), [0.5])

    @parameterized.parameters(
        None, b"", b"round,seconds\n1,x\n", b"\xff", b"round\n1\n"
    )
    def test_seconds_that_are_lost_are_unknown(self, damaged):
        file = pathlib.Path(self.path, "simulator", "seconds.csv")
        with _create(self.path) as run:
            run.add_metrics(
                1, run_metrics.RoundMetrics({"round": 1}, {"seconds": 0.25})
            )
            run.save_checkpoint({"level": 1})
        self.assertEqual(tables.read(file)["seconds"].tolist(), [0.25])
        with _resume(self.path) as run:
            run.load_checkpoint()
            self.assertEqual(run.metrics()["seconds"].tolist(), [0.25])
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with (
            _resume(self.path) as run,
            self.assertLogs(level="WARNING") as logs,
        ):
            run.load_checkpoint()
        self.assertIn("seconds.csv cannot be read", logs.output[0])
        self.assertTrue(run.metrics()["seconds"].isna().all())

    def test_documents_list_the_files_that_differ(self):
        text = (ROOT / "docs" / "guide" / "first_run.md").read_text()
        for pattern in run_directory.DIFFERING_FILES:
            self.assertIn(f"`{pattern.removesuffix('*')}`", text)

    def test_resume_of_nothing(self):
        with self.assertRaisesRegex(run_directory.RunDirectoryError, "holds no run"):
            _resume(self.path)

    def test_two_processes_do_not_work_on_one_run(self):
        program = (
            "from federated_hh.run_directory import directory as r\n"
            "from federated_hh.run_directory import record as run_record\n"
            "import sys\n"
            "key = run_record.noise_key_of(sys.argv[1])\n"
            "try: r.RunDirectory.resume(\n"
            "    sys.argv[1], program='p', facts={}, noise_key=key)\n"
            "except r.RunDirectoryError as e: print(e)"
        )
        with _create(self.path):
            root = str(ROOT)
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
            run.released.write_text("result.csv", "whole")
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
            try:
                with self.assertRaisesRegex(
                    run_directory.RunDirectoryError,
                    "result.csv cannot be written: .*--resume",
                ):
                    run.released.write_text("result.csv", "more than ten bytes")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with open(os.path.join(self.path, "result.csv")) as file:
            self.assertEqual(file.read(), "whole")
        self.assertNotIn(".result.csv.partial", os.listdir(self.path))

    @parameterized.parameters("{}", "[]", "{", '{"schema_version": 4}')
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
        self.assertEqual(run_record.flags_of(self.path), ["--seed=1"])
        self.assertIn("flags.txt", os.listdir(self.path))

    def test_a_damaged_readme_is_mended(self):
        _create(self.path).close()
        file = pathlib.Path(self.path) / "simulator" / "README.txt"
        whole = file.read_text()
        file.write_text("")
        _resume(self.path).close()
        self.assertEqual(file.read_text(), whole)

    def test_another_version_that_goes_on_is_warned_of(self):
        versions = software.package_versions() | {"numpy": "0.9"}
        with mock.patch.object(software, "package_versions", return_value=versions):
            _create(self.path).close()
        with self.assertLogs(level="WARNING") as logs:
            _resume(self.path).close()
        self.assertIn("began with numpy 0", "".join(logs.output))

    def test_changed_code_that_goes_on_is_warned_of(self):
        with mock.patch.object(software, "sources_digest", return_value="0" * 16):
            _create(self.path).close()
        with self.assertLogs(level="WARNING") as logs:
            _resume(self.path).close()
        self.assertRegex("".join(logs.output), r"this code .* \(sources 0+\), now")

    def test_checkpoint_without_its_parts(self):
        with _create(self.path) as run:
            run.simulator.write_text("checkpoint.jsonl", "{}\n{}\n")
            with self.assertRaisesRegex(run_directory.RunDirectoryError, "damaged"):
                run.load_checkpoint()

    def test_damaged_checkpoint_is_named(self):
        with _create(self.path) as run:
            run.simulator.write_text("checkpoint.jsonl", "{")
            with self.assertRaisesRegex(
                run_directory.RunDirectoryError, "checkpoint.jsonl is damaged"
            ):
                run.load_checkpoint()


if __name__ == "__main__":
    absltest.main()
