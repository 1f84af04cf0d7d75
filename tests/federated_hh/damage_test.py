"""Tests that damaged JSON is a line of error, or the right answer, in every reader.

Each run samples; `DAMAGE_SAMPLE=0` tries all damages.
"""

import contextlib
import json
import os
import pathlib

from absl.testing import absltest, parameterized

from federated_hh.populations.columns import client_words
from federated_hh.privacy import written_statement
from federated_hh.privacy.accounting import run_totals
from federated_hh.reports import compared
from federated_hh.rounds import experiment, record
from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from federated_hh.statistics.devices import policy_file
from federated_hh.statistics.recipes import recipe
from tests import damage
from tests.federated_hh.rounds import contract_cases
from tests.federated_hh.statistics import cases
from tests.federated_hh.statistics.devices import policy_file_test
from training.keyboard import layout
from training.models import finished_runs

_SAMPLE = int(os.environ.get("DAMAGE_SAMPLE", "60")) or None
# What programs answer by a line and exit code 2.
_REFUSED = (ValueError, run_files.RunDirectoryError)
# In a finished run the seal finds all; without seals, each reader's own checks.
_KINDS = ("tally", "triehh", "ldp_triehh") if _SAMPLE else (*contract_cases.CASES,)


class DamageTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.scratch = pathlib.Path(self.create_tempdir().full_path)

    def run_of(self, kind, is_sealed=True):
        path = self.scratch / kind
        folder = self.scratch / "data"
        folder.mkdir()
        case = contract_cases.CASES[kind]
        made = case.make(str(folder), "a", "a")
        experiment.run_experiment(
            made, path, seed=3, repeats=1, delta=case.delta, observers=case.observers
        )
        if not is_sealed:
            for name in ("seal.json", "simulator/seal.json"):
                (path / name).unlink()
            fields = json.loads((path / "run.json").read_text())
            fields["schema_version"] = 4
            (path / "run.json").write_text(json.dumps(fields))
        return path

    def check(self, folder, read, files=None):
        """Tries damages of a folder's files; `read` returns what has to stay."""
        expected = read()
        damages = damage.of_folder(folder, _SAMPLE)
        self.assertNotEmpty(damages)
        refused = 0
        for file, pointer, given, contents in damages:
            if files is not None and file.name not in files:
                continue
            whole = file.read_bytes()
            file.write_text(contents)
            try:
                self.assertEqual(read(), expected)
            except _REFUSED as error:
                refused += 1
                self.assertNotIn("\n", str(error))
                self.assertLess(len(str(error)), 1000)
            except Exception as error:
                raise AssertionError(f"{file} {pointer} {given[:9]}") from error
            finally:
                file.write_bytes(whole)
        self.assertGreater(refused, 0)

    @parameterized.parameters(*_KINDS)
    def test_a_finished_run(self, kind):
        path = self.run_of(kind)

        def read():
            run = compared.Compared.read(str(path), kind)
            return run.found, run.statement

        self.check(path, read)
        self.check(path, lambda: finished_runs.population_of(path), ("run.json",))

    def test_a_run_without_a_seal(self):
        path = self.run_of("triehh", is_sealed=False)
        honest = compared.Compared.read(str(path), "a").statement

        def read():
            run = compared.Compared.read(str(path), "a")
            facts = run_totals.read_run(str(path))
            finished_runs.population_of(path)
            with contextlib.suppress(ValueError):
                finished_runs.TrainingRun.read(path)  # it is none
            # An older run's edits show in nothing but types.
            return type(run.found), type(facts.name), honest.adjacency

        self.check(path, read, ("run.json", "facts.json", "summary.json"))
        text = (path / "privacy.json").read_text()
        for _, pointer, given, contents in damage.of_file(path / "privacy.json"):
            try:
                written_statement.read(contents)
            except ValueError as error:
                self.assertNotIn("\n", str(error), (pointer, given[:9]))
        self.assertEqual(written_statement.read(text), honest)

    def test_what_a_resumed_run_reads(self):
        path = self.run_of("tally")
        folder = run_files.RunFiles(path / "simulator")
        failed = record.FailedSums(folder)
        failed.add(0, 1)

        def read():
            rounds = record.RoundRecord(folder)
            count = record.FailedSums(folder).count(0, 1)
            checkpoint = run_directory.read_checkpoint(
                path / run_directory.CHECKPOINT_FILE
            )
            key = run_record.noise_key_of(path)
            return len(rounds._ahead), type(count), len(checkpoint), type(key)

        names = ("failed_sums.json", "rounds.jsonl", "checkpoint.jsonl", "run.json")
        self.check(path, read, names)

    def test_recipes_policies_and_layouts(self):
        for name, text, parse in (
            ("recipe", cases.figure_4(), lambda f: recipe.Recipe.parse(f.read_text())),
            ("policy", json.dumps(policy_file_test._GOOD), policy_file.read),
            ("layout", '{"q": [0, 0], "a": [0.5, 1]}', layout.KeyboardLayout.read),
        ):
            folder = self.scratch / name
            folder.mkdir()
            file = folder / f"{name}.json"
            file.write_text(text)

            def read(parse=parse, file=file):
                return type(parse(file))

            with self.subTest(name):
                self.check(folder, read)

    def test_a_population(self):
        rows = [("ann", [("sun", 2), ("moon", 1)]), ("bob", [])]
        path = self.scratch / "words"
        client_words.ClientWords.from_rows(path, rows)

        def read():
            return client_words.ClientWords.open(path).fingerprint

        self.check(path, read, ("population.json",))


if __name__ == "__main__":
    absltest.main()
