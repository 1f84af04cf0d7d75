"""Tests of the JSON Schema of privacy statements.

Statements of all algorithms are held against it in
tests/federated_hh/rounds/contract_test.py.
"""

import copy
import json
import math

import jsonschema
from absl.testing import absltest, parameterized

from federated_hh.privacy import guarantee, realised, statement, written_statement
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from tests import ROOT

_FILE = ROOT / "federated_hh/privacy" / "statement.schema.json"


def _made(**changes):
    fields = {
        "epsilon": 9.00101,
        "delta": 1e-10,
        "bound": "PLD of one Gaussian",
        "is_upper_bound": True,
        "one_sided": False,
    }
    guarantees = (
        Guarantee(**fields, adjacency=Adjacency.ZERO_OUT, rho=0.9, noise_rounds=1170),
        Guarantee(**fields, adjacency=Adjacency.REPLACE_ONE_ITEM),
    )
    fields = {
        "setting": "central DP",
        "protected": "one training run",
        "adjacency": Adjacency.ZERO_OUT,
        "mechanism": "DP-FTRL",
        "mechanism_output": "all noised sums",
        "guarantees": guarantees,
        "parameters": {"rounds": 1170, "limit": math.inf, "law": "BLT", "all": True},
        "accounting": "zCDP, then PLD",
        "assumptions": ("timers are kept",),
        "not_counted": ("hyperparameter tuning",),
    }
    made = statement.PrivacyStatement(**(fields | changes))
    return json.loads(made.to_json())


# By what is wrong: where, and what stands there.
_WRONG = {
    "an unknown field": (("comment",), "x"),
    "an unknown field of a guarantee": (("guarantees", 0, "sigma"), 1.0),
    "an unknown field of what was realised": (("realised",), {"rounds": 1, "n": 2}),
    "a text for an epsilon": (("guarantees", 0, "epsilon"), "9"),
    "another infinity": (("guarantees", 0, "epsilon"), "Infinity"),
    "a negative epsilon": (("guarantees", 0, "epsilon"), -0.1),
    "no epsilon": (("guarantees", 0, "epsilon"), None),
    "a delta above 1": (("guarantees", 0, "delta"), 1.5),
    "an infinite delta": (("guarantees", 0, "delta"), "inf"),
    "a word for a truth": (("guarantees", 0, "is_upper_bound"), "yes"),
    "an unknown adjacency": (("guarantees", 0, "adjacency"), "add_or_remove"),
    "the unit of another adjacency": (("guarantees", 1, "unit"), "client"),
    "rho without its rounds": (("guarantees", 0, "noise_rounds"), None),
    "rounds without rho": (("guarantees", 1, "noise_rounds"), 3),
    "one-sided zCDP": (("guarantees", 0, "one_sided"), True),
    "neither a guarantee nor a reason": (("guarantees",), []),
    "both guarantees and a reason": (("no_guarantee_reason",), "no noise"),
    "a basis of other numbers": (("basis",), "realised"),
    "an empty text": (("mechanism",), " "),
    "no assumption": (("assumptions",), []),
    "a list for a parameter": (("parameters", "rounds"), [1, 2]),
    "another version": (("schema_version",), 2),
}


class StatementSchemaTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.schema = json.loads(_FILE.read_text())
        jsonschema.Draft202012Validator.check_schema(self.schema)

    def check(self, fields):
        jsonschema.validate(fields, self.schema, jsonschema.Draft202012Validator)

    def test_statements_keep_to_it(self):
        self.check(_made())
        self.check(_made(realised=realised.Realised(2, 100)))
        self.check(_made(guarantees=(), no_guarantee_reason="no noise"))
        none = Guarantee(
            epsilon=math.inf,
            delta=0,
            bound="none is known",
            is_upper_bound=True,
            one_sided=False,
            adjacency=Adjacency.EMPTIED,
            rho=math.inf,
            noise_rounds=1,
        )
        fields = _made(guarantees=(none,))
        self.assertEqual(fields["guarantees"][0]["epsilon"], "inf")
        self.check(fields)

    def test_it_knows_all_names_of_units_and_adjacencies(self):
        definitions = self.schema["$defs"]
        for name, members in (
            ("unit", guarantee.Unit),
            ("adjacency", guarantee.Adjacency),
        ):
            self.assertEqual(
                definitions[name]["enum"], [member.value for member in members]
            )

    def test_every_field_has_to_be_there(self):
        made = _made()
        for path in ((), ("guarantees", 0)):
            for name in _inside(made, path):
                fields = copy.deepcopy(made)
                del _inside(fields, path)[name]
                with self.subTest(name):
                    with self.assertRaises(jsonschema.ValidationError):
                        self.check(fields)
                    with self.assertRaises(ValueError):
                        written_statement.read(json.dumps(fields))

    @parameterized.named_parameters(
        (what.replace(" ", "_"), *wrong) for what, wrong in _WRONG.items()
    )
    def test_wrong_ones_are_refused(self, path, value):
        fields = _made()
        *before, last = path
        _inside(fields, before)[last] = value
        with self.assertRaises(jsonschema.ValidationError):
            self.check(fields)
        # By the reader of this house, too.
        with self.assertRaises((ValueError, TypeError)):
            written_statement.read(json.dumps(fields))


def _inside(fields, path):
    for name in path:
        fields = fields[name]
    return fields


if __name__ == "__main__":
    absltest.main()
