"""Tests of JSON that is checked by a schema."""

import json
import math
import pathlib

import jsonschema
from absl.testing import absltest, parameterized

from federated_hh.files import json_files
from federated_hh.randomness import noise_keys
from federated_hh.run_directory import record
from federated_hh.statistics.devices import policy_file
from federated_hh.statistics.recipes import recipe
from tests import ROOT, damage
from tests.federated_hh.statistics import cases
from tests.federated_hh.statistics.devices import policy_file_test

_RUN = record.new("p", ["--seed=1"], {}, noise_keys.NoiseKey(1, is_secret=True))
_RUN_SCHEMA = ROOT / "federated_hh/run_directory/run.schema.json"


class JsonFilesTest(parameterized.TestCase):
    @parameterized.parameters(
        (_RUN, _RUN_SCHEMA),
        (policy_file_test._GOOD, policy_file.SCHEMA_FILE),
        (cases.FIGURE_4, recipe.SCHEMA_FILE),
    )
    def test_a_schema_means_what_it_means_to_other_programs(self, value, file):
        schema = json_files.schema_of(pathlib.Path(file))
        json_files.check(json.loads(json.dumps(value)), schema)
        theirs = jsonschema.Draft202012Validator(schema)
        tried = {True: 0, False: 0}
        for pointer in damage.pointers(value):
            for text in damage.VALUES:
                if text == damage.DEEP:
                    continue
                found = json.loads(damage.replaced(value, pointer, text))
                try:
                    json_files.check(found, schema)
                    is_valid = True
                except json_files.JsonError:
                    is_valid = False
                self.assertEqual(is_valid, theirs.is_valid(found), (pointer, text))
                tried[is_valid] += 1
        self.assertGreater(min(tried.values()), 0)

    @parameterized.parameters(
        ('{"a": 1, "a": 2}', "'a' is there twice"),
        ("NaN", "NaN, which is no number"),
        ("[" * 101 + "]" * 101, "deeper than 100 levels"),
        ("[" * 100_000, "not valid JSON"),
        (damage.DEEP, "not valid JSON"),
        ('["\\ud800"]', "half a surrogate pair"),
        ('{"\\udfff": 1}', "half a surrogate pair"),
        (b"\xff", "not valid JSON"),
        ("9" * 10_000, "not valid JSON"),
        ("", "not valid JSON"),
    )
    def test_what_is_refused_of_any_schema(self, text, message):
        with self.assertRaisesRegex(json_files.JsonError, message):
            json_files.parse(text)

    def test_what_is_read(self):
        self.assertEqual(json_files.parse('["\\ud83d\\ude00"]'), ["\U0001f600"])
        self.assertTrue(math.isnan(json_files.parse("NaN", is_finite=False)))
        json_files.parse("[" * 100 + "]" * 100)

    @parameterized.parameters(
        ({"a": {"b": True}}, "a.b is True; it has to be of type integer"),
        ({"a": {"b": math.nan}}, "a.b is nan; it has to be of type integer"),
        ({"a": {"b": -1}}, "a.b is -1; it has to be at least 0"),
        ({"a": {"b": 2**63}}, "a.b is .*; it has to be at most"),
        ({"a": {}}, "field a.b is missing"),
        ({"a": {"b": 1, "c": 2}}, "field a.c is unknown"),
        ([], r"it is \[\]; it has to be of type object"),
    )
    def test_messages_name_the_field(self, value, message):
        inner = json_files.object_of({"b": json_files.SIZE})
        with self.assertRaisesRegex(json_files.JsonError, f"^{message}"):
            json_files.check(value, json_files.object_of({"a": inner}))


if __name__ == "__main__":
    absltest.main()
