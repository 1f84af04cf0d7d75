"""Tests of the privacy statement."""

import dataclasses
import json
import math

import numpy as np
from absl.testing import absltest, parameterized

from privacy import statement, triehh, triehh_statement


def _guarantee(**changes):
    fields = {
        "epsilon": 9.00101,
        "delta": 1e-10,
        "bound": "PLD of one Gaussian",
        "is_upper_bound": True,
        "unit": "device",
        "adjacency": "zero-out",
    }
    return statement.Guarantee(**(fields | changes))


def _statement(**changes):
    fields = {
        "setting": "central DP",
        "protected": "one training run",
        "unit": "device",
        "adjacency": "zero-out",
        "mechanism": "DP-FTRL",
        "mechanism_output": "all noised sums",
        "guarantees": (_guarantee(rho=0.8877551020408163),),
        "parameters": {"noise_multiplier": 7.0, "rounds": 1170, "limit": math.inf},
        "accounting": "zCDP, then PLD",
        "assumptions": ("timers are kept",),
        "not_counted": ("hyperparameter tuning",),
    }
    return statement.PrivacyStatement(**(fields | changes))


class StatementTest(parameterized.TestCase):
    def test_json_gives_the_statement_back(self):
        for made in (
            _statement(),
            _statement(guarantees=(_guarantee(epsilon=math.inf),), basis="realised"),
            _statement(guarantees=(), no_guarantee_reason="no noise"),
            _statement(parameters={"n": np.int64(3), "share": np.float32(0.5)}),
        ):
            self.assertEqual(statement.PrivacyStatement.from_json(made.to_json()), made)

    def test_json_is_standard_and_complete(self):
        text = _statement(guarantees=(_guarantee(epsilon=math.inf),)).to_json()
        fields = json.loads(text, parse_constant=self.fail)
        self.assertEqual(fields["guarantees"][0]["epsilon"], "inf")
        self.assertEqual(fields["parameters"]["limit"], "inf")
        self.assertEqual(fields["schema_version"], 1)
        self.assertEqual(
            set(fields),
            {field.name for field in dataclasses.fields(statement.PrivacyStatement)},
        )
        self.assertIn("python", fields["software"])

    def test_markdown_rounds_upper_bounds_up_and_names_all_points(self):
        text = _statement().to_markdown()
        self.assertIn("epsilon = 9.002, delta = 1e-10", text)
        self.assertIn("rho = 0.8878", text)
        for words in (
            "DP setting",
            "Data accesses covered",
            "Mechanism output",
            "Unit of privacy",
            "Adjacency",
            "Accounting",
            "Assumptions",
            "Not counted",
            "Transparency and verifiability",
            "| rounds | 1170 |",
            "| limit | inf |",
        ):
            self.assertIn(words, text)

    @parameterized.parameters(
        *((name, "") for name in ("setting", "protected", "unit", "adjacency")),
        *((name, " ") for name in ("mechanism", "mechanism_output", "accounting")),
        ("verifiability", ""),
        ("assumptions", ()),
        ("assumptions", "a text"),
        ("not_counted", ("",)),
        ("parameters", {}),
        ("parameters", {"n": math.nan}),
        ("parameters", {"n": None}),
        ("software", {}),
        ("basis", "guessed"),
        ("guarantees", ("epsilon = 1",)),
        ("no_guarantee_reason", "though there is one"),
        ("schema_version", 2),
    )
    def test_refuses_incomplete_statements(self, name, value):
        with self.assertRaisesRegex(ValueError, name):
            _statement(**{name: value})

    def test_refuses_to_say_nothing(self):
        with self.assertRaisesRegex(ValueError, "no_guarantee_reason"):
            _statement(guarantees=())

    @parameterized.parameters(
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("epsilon", "1"),
        ("delta", 1.5),
        ("rho", -1.0),
        ("bound", ""),
        ("unit", ""),
        ("adjacency", ""),
        ("is_upper_bound", 1),
    )
    def test_refuses_bad_guarantees(self, name, value):
        with self.assertRaisesRegex(ValueError, name):
            _guarantee(**{name: value})

    def test_from_json_names_the_bad_field(self):
        fields = json.loads(_statement().to_json())
        for change, message in (
            (lambda f: f.pop("unit"), "field unit of the statement is missing"),
            (lambda f: f.update(more=1), "field more of the statement is unknown"),
            (lambda f: f.update(schema_version=7), "schema_version"),
            (lambda f: f["guarantees"][0].pop("delta"), r"field delta .*\[0\]"),
        ):
            changed = json.loads(json.dumps(fields))
            change(changed)
            with self.assertRaisesRegex(ValueError, message):
                statement.PrivacyStatement.from_json(json.dumps(changed))


class TrieHHStatementTest(parameterized.TestCase):
    def test_several_runs_add_up(self):
        parameters = triehh.TrieHHParameters(10**6, 12_000, 15, 10)
        made = triehh_statement.triehh_statement(
            parameters, redraws_each_round=False, num_runs=5, basis="realised"
        )
        one, all_runs = made.guarantees
        self.assertEqual((one.epsilon, one.delta), parameters.guarantee())
        self.assertEqual(all_runs.epsilon, 5 * one.epsilon)
        self.assertEqual(all_runs.delta, 5 * one.delta)
        self.assertIn("5 runs together", made.protected)
        with self.assertRaisesRegex(ValueError, "num_runs"):
            triehh_statement.triehh_statement(
                parameters, redraws_each_round=False, num_runs=0
            )

    def test_users_without_words_that_were_left_out(self):
        parameters = triehh.TrieHHParameters(10**6, 12_000, 15, 10)
        made = triehh_statement.triehh_statement(
            parameters, redraws_each_round=False, population_has_empty_users=False
        )
        self.assertIn("taken to be public", " ".join(made.assumptions))
        self.assertEqual(made.parameters["users_without_words"], "left out")

    @parameterized.parameters(False, True)
    def test_carries_the_guarantee(self, redraws):
        parameters = triehh.solve_parameters(
            population_size=10**5,
            max_length=10,
            epsilon=2.0,
            delta=1e-10,
            redraws_each_round=redraws,
        )
        made = triehh_statement.triehh_statement(parameters, redraws_each_round=redraws)
        (guarantee,) = made.guarantees
        self.assertEqual(
            (guarantee.epsilon, guarantee.delta),
            parameters.guarantee(redraws_each_round=redraws),
        )
        self.assertEqual("basic composition" in guarantee.bound, redraws)
        self.assertEqual(made.basis, "planned")

    def test_says_why_there_is_none(self):
        made = triehh_statement.triehh_statement(
            triehh.TrieHHParameters(100, 50, 3, 10),
            redraws_each_round=False,
            basis="realised",
        )
        self.assertEmpty(made.guarantees)
        self.assertIn("threshold", made.no_guarantee_reason)
        self.assertIn("**None.**", made.to_markdown())


if __name__ == "__main__":
    absltest.main()
