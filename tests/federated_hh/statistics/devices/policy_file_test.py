"""Tests of policies in files: those that ship, those that people write, bad ones."""

import json
import pathlib

import jsonschema
from absl.testing import absltest, parameterized

from federated_hh.privacy.local import device_policy
from federated_hh.statistics import approvals
from federated_hh.statistics import options as statistics_options
from federated_hh.statistics.devices import policy_file
from tests.federated_hh.statistics import cases

_SCHEMA = json.loads(policy_file.SCHEMA_FILE.read_text())
_LIMITS = {"reports": 2, "localEpsilon": 3, "cohortAggregateEpsilon": 0.5}
_GOOD = {
    "AnalysisIdentifier": "com.example.survey",
    "versions": ["1"],
    "cohorts": [],
    "table": "Survey",
    "columns": {
        "age": {"type": "INTEGER", **_LIMITS},
        "città": {"type": "TEXT", **_LIMITS, "reports": 1},
    },
    "limits": _LIMITS,
    "randomizer": "symmetric",
    "delta": 1e-7,
    "composition": "renyi",
}
# Changes, the message, and whether the schema can see it too.
_BAD = {
    "unknown": ({"colour": "red"}, "colour is no field", True),
    "empty": ({"AnalysisIdentifier": " "}, "AnalysisIdentifier", True),
    "no_columns": ({"columns": {}}, "fields is empty|has to have a field", True),
    "type": ({"columns": {"age": {"type": "DATE", **_LIMITS}}}, "age.type", True),
    "no_limit": ({"columns": {"age": {"type": "TEXT"}}}, "age.reports", True),
    "reports": ({"limits": {**_LIMITS, "reports": 0}}, "limits.reports", True),
    "many": ({"limits": {**_LIMITS, "reports": 901}}, "limits.reports", True),
    "local": ({"limits": {**_LIMITS, "localEpsilon": 41}}, "local_epsilon", True),
    "negative": (
        {"limits": {**_LIMITS, "cohortAggregateEpsilon": -1}},
        "limits.cohortAggregateEpsilon is -1",
        True,
    ),
    "delta": ({"delta": 0}, "delta is 0", True),
    "delta_text": ({"delta": "1e-6"}, "delta is '1e-6'", True),
    "randomizer": ({"randomizer": "laplace"}, "randomizer is 'laplace'", True),
    "composition": ({"composition": "none"}, "composition is 'none'", True),
    "name": ({"table": "my table"}, "'my table'", False),
    "keyword": ({"table": "select"}, "rename it, as to select_", False),
    "reserved": ({"columns": {"time": {"type": "REAL", **_LIMITS}}}, "time", False),
    "other_column": ({"table": "KeyboardNGrams"}, "column age|column città", False),
    "other_type": (
        {
            "table": "KeyboardNGrams",
            "columns": {"age": {"type": "TEXT", **_LIMITS}},
        },
        "columns.age.type is 'TEXT'.*INTEGER",
        False,
    ),
}


class PolicyFileTest(parameterized.TestCase):
    def read(self, text):
        path = pathlib.Path(self.create_tempdir().full_path) / "policy.json"
        path.write_text(text, "utf-8")
        return policy_file.read(str(path))

    @parameterized.product(
        analysis=[*statistics_options.APPROVED],
        composition=["basic", "advanced", "renyi"],
        cohorts=["disjoint", "everybody"],
    )
    def test_shipped_policies_come_back(self, analysis, composition, cohorts):
        options = statistics_options.StatisticsOptions(
            analysis=analysis, composition=composition, cohorts=cohorts
        )
        approval = approvals.approval_of(options)
        text = policy_file.to_json(approval)
        jsonschema.validate(json.loads(text), _SCHEMA)
        self.assertEqual(self.read(text), approval)
        # As --help lists it.
        identifier, table, columns = statistics_options.APPROVED[analysis]
        self.assertEqual(approval.policy.analysis, identifier)
        self.assertEqual(approval.query_class.stream.name, table)
        self.assertEqual([*approval.policy.fields], [*columns])
        told = policy_file.told(approval)
        for name in (identifier, table, *columns):
            self.assertIn(name, told)

    def test_a_policy_of_ones_own(self):
        jsonschema.validate(_GOOD, _SCHEMA)
        approval = self.read("\ufeff" + json.dumps(_GOOD))
        policy = approval.policy
        self.assertEqual(
            policy.fields["città"],
            device_policy.Limits(aggregate_epsilon=0.5, reports=1, local_epsilon=3.0),
        )
        self.assertEqual(policy.limits.reports, 2)
        self.assertEqual((policy.delta, policy.slack), (1e-7, 1e-7))
        self.assertEqual(policy.order, device_policy.renyi_order(0.5, 1e-7))
        self.assertEqual(
            approval.query_class.stream.fields, {"age": "INTEGER", "città": "TEXT"}
        )

    @parameterized.named_parameters((name, *case) for name, case in _BAD.items())
    def test_bad_fields_are_named(self, change, message, seen_by_schema):
        fields = {**_GOOD, "composition": "basic", **change}
        with self.assertRaisesRegex(
            policy_file.PolicyError, rf"policy\.json: .*({message})"
        ):
            self.read(json.dumps(fields))
        valid = jsonschema.Draft202012Validator(_SCHEMA).is_valid(fields)
        self.assertEqual(not valid, seen_by_schema)

    @parameterized.parameters(*_GOOD)
    def test_missing_fields_are_named(self, name):
        fields = {field: value for field, value in _GOOD.items() if field != name}
        with self.assertRaisesRegex(ValueError, f"{name} is missing"):
            self.read(json.dumps(fields))

    @parameterized.parameters("", "[]", '{"delta": NaN}', '{"a": 1, "a": 2}')
    def test_no_json(self, text):
        with self.assertRaises(policy_file.PolicyError):
            self.read(text)
        with self.assertRaisesRegex(policy_file.PolicyError, "/no/such: No such file"):
            policy_file.read("/no/such")

    def test_limits_are_kept(self):
        approval = cases.approval()
        self.assertEqual(self.read(policy_file.to_json(approval)), approval)


if __name__ == "__main__":
    absltest.main()
