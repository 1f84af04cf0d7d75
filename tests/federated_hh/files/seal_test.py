"""Tests of the seal of finished runs."""

import hashlib
import json
import pathlib
import shutil

from absl.testing import absltest, parameterized

from federated_hh.files import seal
from federated_hh.randomness import noise_keys
from federated_hh.reports import compared
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import record as run_record
from training.models import finished_runs

_KEY = noise_keys.NoiseKey(2**127 + 5, is_secret=True)
_FACTS = {"population": "abc"}


def finished(path, is_complete=True, flags=("--seed=1",)):
    """Makes a run with a file in each of its parts."""
    with run_directory.RunDirectory.create(
        path, program="p", flags=flags, facts=_FACTS, noise_key=_KEY
    ) as run:
        run.released.write_text("privacy.json", "{}")
        (path / "model").mkdir()
        (path / "model" / "variables").write_bytes(b"\0\1\2")
        run.simulator.write_json("summary.json", {"found": "a word"})
        run.simulator.write_bytes("state.npz", b"large")
        run.save_checkpoint(1)
        if is_complete:
            run.complete()
    return path


def check(path):
    """Checks a run as its readers do."""
    seal.check(path, run_record.read(path))


class SealTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = finished(pathlib.Path(self.create_tempdir().full_path) / "run")

    def refused(self, why):
        return self.assertRaisesRegex(seal.SealError, why)

    def test_it_has_every_file_and_nothing_secret(self):
        check(self.path)
        names = {
            *("seal.json", "run.json", "flags.txt", "privacy.json"),
            *("model/variables", "simulator/checkpoint.jsonl"),
            *(f"simulator/{name}" for name in ("README.txt", "facts.json")),
            *(f"simulator/{name}" for name in ("summary.json", "state.npz")),
        }
        texts = [(self.path / name).read_text() for name in seal.FILES]
        self.assertEqual({n for t in texts for n in json.loads(t)["files"]}, names)
        self.assertNotIn(f"{_KEY.value:032x}", "".join(texts))
        # A digest of facts would confirm a guess of the data.
        self.assertNotIn("facts.json", texts[0])

    def forge(self, key):
        for name, text in seal.of(self.path, key, {}).items():
            (self.path / name).write_bytes(text)

    def test_a_part_of_another_run_of_the_same_key(self):
        other = finished(self.path.parent / "other", flags=["--seed=2"])
        shutil.rmtree(self.path / "simulator")
        shutil.copytree(other / "simulator", self.path / "simulator")
        with self.refused("/seal.json changed"):
            check(self.path)

    def test_whoever_recomputes_digests_lacks_the_key(self):
        (self.path / "privacy.json").write_text('{"epsilon": 0}')
        with self.refused("privacy.json changed after the run completed"):
            check(self.path)
        self.forge(b"another key")
        with self.refused("seal.json: its HMAC is not of the run's key"):
            check(self.path)
        # Nor does another key file help, as run.json names the key.
        other = noise_keys.NoiseKey(7, is_secret=True)
        other.write(self.path / run_record.KEY_FILE)
        self.forge(other.to_bytes())
        with self.refused("noise_key is not the run's noise key"):
            check(self.path)

    def test_a_shared_run_is_checked_without_its_key(self):
        shutil.rmtree(self.path / "secret")
        shutil.rmtree(self.path / "simulator")
        with self.assertLogs(level="WARNING") as logs:
            check(self.path)
        self.assertIn("its HMAC is not.", "".join(logs.output))
        (self.path / "privacy.json").write_text("[]")
        with self.refused("privacy.json changed"):
            check(self.path)

    def test_missing_and_added_files(self):
        (self.path / "simulator/state.npz").unlink()  # large
        (self.path / "notes.txt").write_text("mine")
        (self.path / "compare.html").write_text("mine")
        (self.path / ".DS_Store").write_text("a desktop's")
        check(self.path)
        for name in ("heavy_hitters.csv", "simulator/scores.csv", "model/ngrams"):
            (self.path / name).write_text("word\n")
            with self.subTest(name), self.refused(f"{name} is not a file of the run"):
                check(self.path)
            (self.path / name).unlink()
        (self.path / "simulator/facts.json").unlink()
        with self.refused("facts.json is missing"):
            check(self.path)

    def test_a_run_of_an_older_version_is_warned_of(self):
        (self.path / seal.FILE).unlink()
        with self.refused("seal.json is missing"):
            check(self.path)
        file = self.path / "run.json"
        record = json.loads(file.read_text()) | {"schema_version": 4}
        del record["record_hmac"]
        file.write_text(json.dumps(record))
        with self.assertLogs(level="WARNING") as logs:
            check(self.path)
            check(self.path)
        self.assertLen(logs.output, 1)
        self.assertIn("an earlier version made this run", logs.output[0])

    @parameterized.parameters(
        "", "[]", "null", "[" * 100_000, '{"files": {}, "hmac": ""}', '{"files": [1]}'
    )
    def test_a_damaged_seal_is_named(self, text):
        (self.path / seal.FILE).write_text(text)
        with self.refused("seal.json is damaged"):
            check(self.path)

    def test_killed_between_the_seal_and_the_record(self):
        path = finished(self.path.parent / "killed", is_complete=False)
        running = (path / "run.json").read_bytes()
        check(path)  # has no seal yet
        with run_directory.RunDirectory.resume(
            path, program="p", facts=_FACTS, noise_key=_KEY
        ) as run:
            run.complete()
        (path / "run.json").write_bytes(running)
        with self.refused("run.json changed .* Finish the run with --resume"):
            check(path)
        with run_directory.RunDirectory.resume(
            path, program="p", facts=_FACTS, noise_key=_KEY
        ) as run:
            check(path)
            run.released.write_text("more.csv", "word\n")
            run.complete()
        check(path)

    def test_a_run_within_a_run_has_its_own_seal(self):
        part = finished(self.path / "part_0")
        check(self.path)
        check(part)
        (part / "privacy.json").write_text("[]")
        check(self.path)
        with self.refused("part_0/privacy.json"):
            check(part)

    @parameterized.parameters(
        lambda path: compared.Compared.read(str(path), "a"),
        finished_runs.TrainingRun.read,
        lambda path: finished_runs.TrainingRun.of_model(path / "model"),
        finished_runs.population_of,
    )
    def test_every_reader_checks_it(self, read):
        (self.path / "simulator/README.txt").write_text("edited")
        with self.refused("README.txt changed"):
            read(self.path)

    def test_keys_of_other_purposes(self):
        values = {seal.mac(_KEY.to_bytes(), name, {}) for name in ("seal", "record")}
        values.add(hashlib.sha256(_KEY.to_bytes()).hexdigest())
        self.assertLen(values, 3)


if __name__ == "__main__":
    absltest.main()
