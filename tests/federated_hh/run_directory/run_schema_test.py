"""Tests of the JSON Schema of `run.json`.

Those of runs of all algorithms are held against it in
tests/federated_hh/rounds/contract_test.py.
"""

import json
import pathlib

import jsonschema
from absl.testing import absltest, parameterized

from federated_hh.randomness import noise_keys
from federated_hh.run_directory import directory as run_directory
from tests import ROOT

_FILE = ROOT / "federated_hh/run_directory" / "run.schema.json"
_WRONG = {
    "unknown": "x",
    "part": "first",
    "schema_version": 3,
    "status": "killed",
    "started": "yesterday",
    "finished": "2026-02-30",
    "sources": "abc",
    "packages": ["numpy"],
    "flags": ["seed=1"],
    "flags_sha256": "0" * 63,
    "noise_key": {"is_secret": True, "sha256": "0" * 64, "value": 7},
    "facts": {"population": "abc"},
}


class RunSchemaTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.schema = json.loads(_FILE.read_text())
        jsonschema.Draft202012Validator.check_schema(self.schema)
        path = pathlib.Path(self.create_tempdir().full_path) / "run"
        self.file = path / "run.json"
        self.directory = run_directory.RunDirectory.create(
            path,
            program="p",
            flags=["--seed=1", "--alphabet=a\nb", "--nouse_it"],
            facts={"population": "abc"},
            noise_key=noise_keys.NoiseKey(2**127 + 5, is_secret=True),
        )
        self.addCleanup(self.directory.close)

    def check(self, fields):
        jsonschema.validate(fields, self.schema, jsonschema.Draft202012Validator)

    def test_a_run_keeps_to_it_from_its_beginning_to_its_end(self):
        running = json.loads(self.file.read_text())
        self.check(running)
        self.directory.complete()
        complete = json.loads(self.file.read_text())
        self.check(complete)
        for fields in (
            {**running, "finished": complete["finished"]},
            {**running, "status": "complete"},
        ):
            with self.assertRaises(jsonschema.ValidationError):
                self.check(fields)

    def test_every_field_has_to_be_there(self):
        self.directory.complete()
        fields = json.loads(self.file.read_text())
        for name in fields:
            without = {key: value for key, value in fields.items() if key != name}
            with self.subTest(name), self.assertRaises(jsonschema.ValidationError):
                self.check(without)

    @parameterized.parameters(*_WRONG)
    def test_wrong_ones_are_refused(self, name):
        self.directory.complete()
        fields = json.loads(self.file.read_text())
        with self.assertRaises(jsonschema.ValidationError):
            self.check({**fields, name: _WRONG[name]})


if __name__ == "__main__":
    absltest.main()
