"""Tests of the privacy statement."""

import dataclasses
import json
import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import guarantee, realised, statement, written_statement
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy.guarantee import Adjacency, Guarantee
from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import plan as triehh_plan
from federated_hh.privacy.triehh import statement as triehh_statement
from federated_hh.rounds import samplers

_ROUNDS = realised.RealisedRounds(
    tuple(
        realised.Round.of(repeat, number, np.arange(12_000) + repeat)
        for repeat in range(5)
        for number in (1, 2, 3)
    )
)


def _guarantee(**changes):
    fields = {
        "epsilon": 9.00101,
        "delta": 1e-10,
        "bound": "PLD of one Gaussian",
        "is_upper_bound": True,
        "one_sided": False,
        "adjacency": Adjacency.ZERO_OUT,
    }
    return Guarantee(**(fields | changes))


def _statement(**changes):
    fields = {
        "setting": "central DP",
        "protected": "one training run",
        "adjacency": Adjacency.ZERO_OUT,
        "mechanism": "DP-FTRL",
        "mechanism_output": "all noised sums",
        "guarantees": (_guarantee(rho=0.8877551020408163, noise_rounds=1170),),
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
            _statement(
                guarantees=(_guarantee(epsilon=math.inf, one_sided=True),),
                realised=_ROUNDS.summary(),
            ),
            _statement(guarantees=(), no_guarantee_reason="no noise"),
            _statement(parameters={"n": np.int64(3), "share": np.float32(0.5)}),
        ):
            self.assertEqual(written_statement.read(made.to_json()), made)

    def test_json_is_standard_and_complete(self):
        text = _statement(guarantees=(_guarantee(epsilon=math.inf),)).to_json()
        fields = json.loads(text, parse_constant=self.fail)
        self.assertEqual(fields["guarantees"][0]["epsilon"], "inf")
        self.assertEqual(fields["parameters"]["limit"], "inf")
        self.assertEqual(fields["schema_version"], 3)
        self.assertEqual(
            set(fields),
            {field.name for field in dataclasses.fields(statement.PrivacyStatement)}
            - {"num_repeats"}
            | {"basis", "unit", "definitions"},
        )
        self.assertIn("python", fields["software"])

    def test_names_are_explained_once_wherever_they_are(self):
        made = _statement(
            guarantees=(_guarantee(), _guarantee(adjacency=Adjacency.REPLACE_ONE_ITEM))
        )
        fields = json.loads(made.to_json())
        self.assertEqual((fields["unit"], fields["adjacency"]), ("client", "zero_out"))
        second = fields["guarantees"][1]
        self.assertEqual(
            (second["unit"], second["adjacency"]), ("item", "replace_one_item")
        )
        self.assertEqual(
            list(fields["definitions"]),
            ["client", "item", "zero_out", "replace_one_item"],
        )
        for text in fields["definitions"].values():
            self.assertEqual(made.to_markdown().count(text), 1)
        names = [each.value for each in (*guarantee.Unit, *Adjacency)]
        self.assertLen(set(names), 6)

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
        (2.0000000000000018, "2"),
        (3.5000000000000004, "3.5"),
        (0.47959183673469385, "0.4796"),
        (2.0000001, "2.001"),
        (2.0004, "2.001"),
        (1.9996, "2"),
        (1e-10, "1e-10"),
        (0.0, "0"),
    )
    def test_bounds_that_are_round_but_for_float_accuracy(self, rho, printed):
        made = _guarantee(rho=rho, epsilon=rho, noise_rounds=1)
        text = _statement(guarantees=(made,)).to_markdown()
        self.assertIn(f"rho = {printed}\n", text)
        self.assertIn(f"epsilon = {printed}, delta", text)

    def test_one_sided_is_said_in_the_bold_line(self):
        text = _statement(guarantees=(_guarantee(one_sided=True),)).to_markdown()
        self.assertIn("**epsilon = 9.002, delta = 1e-10 per client, one-sided**", text)
        self.assertNotIn("one-sided", _statement().to_markdown())

    def test_one_guarantee_of_a_unit_is_bold_and_comparisons_are_apart(self):
        item = Adjacency.REPLACE_ONE_ITEM
        made = _statement(
            num_repeats=2,
            guarantees=(
                _guarantee(epsilon=0.1, is_comparison=True),
                _guarantee(epsilon=0.2, is_upper_bound=False),
                _guarantee(epsilon=0.5, adjacency=item, of_one_repeat=True),
                _guarantee(epsilon=1.0, adjacency=item),
                _guarantee(epsilon=2.0, of_one_repeat=True),
                _guarantee(epsilon=4.0),
                _guarantee(epsilon=8.0, adjacency=Adjacency.REPLACE_CLIENT),
            ),
        )
        self.assertEqual([g.epsilon for g in made.main_guarantees], [4, 1])
        stated, compared = made.to_markdown().split("## Bounds for comparison")
        self.assertEqual(
            [line.split(",")[0] for line in stated.splitlines() if "epsilon =" in line],
            [
                *("**epsilon = 4", "One repeat alone: epsilon = 2"),
                *("**epsilon = 1", "One repeat alone: epsilon = 0.5"),
                *(f"* epsilon = {epsilon}" for epsilon in (4, 1, 0.5, 2, 8)),
            ],
        )
        self.assertNotIn("**epsilon", compared)
        self.assertEqual(compared.count("* epsilon = 0."), 2)
        self.assertEqual(
            [row["epsilon"] for row in made.guarantee_rows()],
            ["4", "1", "0.5", "2", "8", "0.1", "0.2"],
        )
        self.assertEqual(written_statement.read(made.to_json()), made)
        self.assertNotIn("Bounds for comparison", _statement().to_markdown())

    @parameterized.named_parameters(
        (
            "repeats",
            {
                "num_repeats": 5,
                "guarantees": (
                    _guarantee(one_sided=True, delta=5e-10),
                    _guarantee(one_sided=True, epsilon=2.0, of_one_repeat=True),
                ),
                "realised": _ROUNDS.summary(),
            },
            "Privacy: epsilon 2 at delta 1e-10 per client for one repeat; epsilon "
            "9.002 at delta 5e-10 per client for all 5 repeats together (one-sided, "
            "compared with a run with the client's contributions zeroed; from the "
            "rounds that ran)",
        ),
        (
            "units",
            {
                "guarantees": (
                    _guarantee(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE_ITEM),
                    _guarantee(epsilon=3.0, one_sided=True),
                )
            },
            "Privacy: epsilon 3 at delta 1e-10 per client one-sided, epsilon 1 at "
            "delta 1e-10 per item (compared with a run with the client's contributions "
            "zeroed and a run with another item; planned)",
        ),
        (
            "a client's is none",
            {
                "guarantees": (
                    _guarantee(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE_ITEM),
                    _guarantee(epsilon=539.0),
                )
            },
            "Privacy: epsilon 539 at delta 1e-10 per client, epsilon 1 at delta 1e-10 "
            "per item (compared with a run with the client's contributions zeroed and "
            "a run with another item; planned). An epsilon of 539 per client is no "
            "protection: it protects each item, not all data of a client",
        ),
        (
            "none protects",
            {"guarantees": (_guarantee(epsilon=20.0),)},
            "Privacy: epsilon 20 at delta 1e-10 per client (compared with a run with "
            "the client's contributions zeroed; planned). An epsilon of 20 per client "
            "is no protection",
        ),
        (
            "estimate",
            {"guarantees": (_guarantee(is_upper_bound=False),)},
            "Privacy: epsilon 9.001 at delta 1e-10 per client (compared with a run "
            "with the client's contributions zeroed, not proved; planned)",
        ),
        (
            "none",
            {"guarantees": (), "no_guarantee_reason": "no noise"},
            "Privacy: none: no noise",
        ),
    )
    def test_one_line_for_a_person(self, changes, line):
        self.assertEqual(_statement(**changes).headline(), line)

    @parameterized.parameters(
        (
            {"epsilon": math.log(2), "one_sided": True, "adjacency": Adjacency.EMPTIED},
            "For whoever sees the released results and knows everybody else's data, "
            "any conclusion is at most 2 (e^0.6932) times as likely with one client's "
            "data as without, plus 1e-10. The reverse has no such factor.",
        ),
        (
            {"epsilon": math.log(2)},
            "For whoever sees the released results and knows everybody else's data, "
            "any conclusion is at most 2 (e^0.6932) times as likely with one client's "
            "contributions as without or without as with, plus 1e-10.",
        ),
        (
            {"epsilon": 57.0, "delta": 0.0, "adjacency": Adjacency.REPLACE_CLIENT}
            | {"assumptions": (guarantee.EACH_REPORT,)},
            "For whoever sees a client's reports and knows everybody else's data, any "
            "conclusion is at most e^57 times as likely with any data of one client as "
            "with any other.",
        ),
        (
            {"epsilon": 0.0, "delta": 0.5},
            "Whoever sees the released results and knows everybody else's data guesses "
            "whether one client's contributions were used correctly with probability "
            "at most 75%, if both answers were equally likely before.",
        ),
        (
            {"epsilon": 0.0, "delta": 0.0},
            "Whoever sees the released results and knows everybody else's data learns "
            "nothing about whether one client's contributions were used.",
        ),
        (
            {"epsilon": math.inf},
            "Whoever sees the released results and knows everybody else's data may "
            "learn whether one client's contributions were used.",
        ),
    )
    def test_a_sentence_for_who_knows_no_epsilon(self, changes, sentence):
        made = _guarantee(**changes)
        self.assertEqual(made.sentence(), sentence)
        stated = _statement(guarantees=(made,))
        self.assertEqual(stated.in_words(), sentence)
        front, _ = stated.to_markdown().split("Basis:")
        self.assertIn(f"**. {sentence}", front)

    def test_the_sentence_is_of_the_guarantee_to_quote(self):
        item = _guarantee(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE_ITEM)
        made = _statement(guarantees=(_guarantee(epsilon=57.0), item))
        self.assertEqual(made.in_words(), item.sentence())
        self.assertEqual(made.to_markdown().count("This is no protection."), 1)

    def test_what_is_not_proved_is_no_guarantee(self):
        text = _statement(guarantees=(_guarantee(is_upper_bound=False),)).to_markdown()
        stated, compared = text.split("## Bounds for comparison")
        self.assertIn("**No proved guarantee.**", stated)
        self.assertNotIn("epsilon =", stated)
        self.assertIn(
            "* epsilon = 9.001, delta = 1e-10 per client (not a proved", compared
        )

    def test_one_sided_is_never_left_out(self):
        fields = dataclasses.asdict(_guarantee())
        del fields["one_sided"]
        with self.assertRaisesRegex(TypeError, "one_sided"):
            Guarantee(**fields)

    def test_no_word_makes_a_statement_realised(self):
        with self.assertRaises(TypeError):
            _statement(basis="realised")
        self.assertEqual(_statement().basis, "planned")
        made = _statement(realised=_ROUNDS.summary())
        self.assertEqual(made.basis, "realised")
        self.assertIn(
            "realised, from 15 rounds with 180,000 participations", made.to_markdown()
        )

    @parameterized.parameters(
        *((name, "") for name in ("setting", "protected", "adjacency")),
        ("adjacency", "zero_out"),
        *((name, " ") for name in ("mechanism", "mechanism_output", "accounting")),
        ("verifiability", ""),
        ("assumptions", ()),
        ("assumptions", "a text"),
        ("not_counted", ("",)),
        ("parameters", {}),
        ("parameters", {"n": math.nan}),
        ("parameters", {"n": None}),
        ("software", {}),
        ("realised", "realised"),
        ("realised", True),
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
        ("adjacency", "zero_out"),
        ("of_one_repeat", None),
        ("rho", 1.0),
        ("noise_rounds", 1),
        ("is_upper_bound", 1),
        ("one_sided", None),
    )
    def test_refuses_bad_guarantees(self, name, value):
        with self.assertRaisesRegex(ValueError, name):
            _guarantee(**{name: value})

    def test_from_json_names_the_bad_field(self):
        fields = json.loads(_statement().to_json())
        for change, message in (
            (lambda f: f.pop("unit"), "field unit is missing"),
            (lambda f: f.update(more=1), "field more is unknown"),
            (lambda f: f.update(schema_version=7), "schema_version"),
            (
                lambda f: f.update(unit="item"),
                "unit is 'item'; it has to be 'client'",
            ),
            (
                lambda f: f["guarantees"][0].update(adjacency="zero-out"),
                r"guarantees\[0\].adjacency is .*; it has to be .*zero_out",
            ),
            (lambda f: f["definitions"].update(user="a client"), "definitions.user"),
            (lambda f: f.update(definitions="a client"), "of type object"),
            (lambda f: f["definitions"].pop("zero_out"), "definitions"),
            (
                lambda f: f.update(schema_version=2),
                "make it again from its run's flags",
            ),
            (lambda f: f.update(basis="realised"), "basis is 'realised'"),
            (lambda f: f.pop("basis"), "field basis is missing"),
            (
                lambda f: f["guarantees"][0].pop("one_sided"),
                r"field guarantees\[0\].one_sided is missing",
            ),
            (
                lambda f: f["guarantees"][0].pop("delta"),
                r"field guarantees\[0\].delta is missing",
            ),
        ):
            changed = json.loads(json.dumps(fields))
            change(changed)
            with self.assertRaisesRegex(ValueError, message):
                written_statement.read(json.dumps(changed))

    def test_definitions_in_the_words_of_another_release_are_read(self):
        made = _statement()
        fields = json.loads(made.to_json())
        fields["definitions"]["client"] = "a user"
        self.assertEqual(written_statement.read(json.dumps(fields)), made)


class TrieHHStatementTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.parameters = triehh.TrieHHParameters(10**6, 12_000, 15, 10)

    def make(self, **changes):
        fields = {"delta": 1e-12, "redraws_each_round": False}
        return triehh_statement.triehh_statement(self.parameters, **(fields | changes))

    def test_repeats_that_were_run_add_up(self):
        made = self.make(rounds=_ROUNDS)
        self.assertEqual(made.basis, "realised")
        self.assertEqual(made.realised, _ROUNDS.summary())
        # What is released comes first.
        all_runs, seen, one, seen_once, printed = made.guarantees
        self.assertEqual(
            [each.of_one_repeat for each in made.guarantees],
            [False, False, True, True, True],
        )
        for found, distance, runs in ((all_runs, seen, 5), (one, seen_once, 1)):
            rounds = self.parameters.voting_rounds(runs)
            self.assertEqual(found.voting, rounds)
            self.assertEqual(found.delta, runs * 1e-12)
            self.assertEqual(found.epsilon, rounds.epsilon(runs * 1e-12))
            self.assertEqual((distance.epsilon, distance.delta), (0, rounds.delta(0)))
            self.assertIn("a guess about the client is right with", distance.bound)
        self.assertLess(all_runs.epsilon, 3 * one.epsilon)
        self.assertEqual(
            (printed.epsilon, printed.delta),
            triehh.theorem1(self.parameters),
        )
        self.assertIn("Theorem 1", printed.bound)
        self.assertIn("5 runs together", made.protected)
        self.assertEqual(made.parameters["runs"], 5)
        self.assertEqual(made.guarantees, self.make(num_runs=5).guarantees)
        with self.assertRaisesRegex(ValueError, "num_runs"):
            self.make(num_runs=0)

    def test_rounds_of_another_run_are_refused(self):
        others = realised.RealisedRounds([realised.Round.of(0, 1, np.arange(11_999))])
        with self.assertRaisesRegex(ValueError, "11999 clients .* is 12000"):
            self.make(rounds=others)
        long = [realised.Round.of(0, i, np.arange(12_000)) for i in range(1, 12)]
        with self.assertRaisesRegex(ValueError, "a round 11 .* max_length is 10"):
            self.make(rounds=realised.RealisedRounds(long))

    def test_only_what_an_observer_can_tell_has_no_direction(self):
        made = self.make(num_runs=2)
        self.assertEqual(
            [each.one_sided for each in made.guarantees],
            [True, False, True, False, True],
        )
        for each in made.guarantees:
            self.assertTrue(each.one_sided or each.epsilon == 0)
        text = made.to_markdown()
        self.assertEqual(text.count("one-sided**"), 1)
        self.assertIn("of one repeat alone", made.to_markdown())
        self.assertNotIn("of one repeat alone", self.make().to_markdown())

    def test_users_without_words_that_were_left_out(self):
        made = self.make(population_has_empty_users=False)
        self.assertIn("assumed to be public", " ".join(made.assumptions))
        self.assertEqual(made.parameters["users_without_words"], "left out")

    def test_redrawing_users(self):
        made = self.make(redraws_each_round=True)
        # The curve holds for all who draw, at the same price.
        self.assertEqual(made.guarantees[:2], self.make().guarantees[:2])
        self.assertIn("Corollary 2", made.guarantees[2].bound)

    def test_votes_that_extend_no_prefix_have_a_statement_of_their_own(self):
        plan = plan_lib.Plan(
            sampler=samplers.UniformCohorts(10**6, 12_000),
            contribution=triehh_plan.OneVote(redraws_each_round=False),
            mechanism=triehh_plan.Threshold(15, 10),
        )
        other = plan.statement(None, 1e-12)
        prefixes = dataclasses.replace(
            plan,
            contribution=triehh_plan.OneVote(
                redraws_each_round=False, extends_prefixes=True
            ),
        ).statement(None, 1e-12)
        self.assertEqual(prefixes.guarantees, self.make().guarantees)
        # Theorem 1 of Zhu et al. is of TrieHH alone.
        self.assertEqual(other.guarantees, prefixes.guarantees[:2])
        for name in ("TrieHH", "trie", "Theorem 1"):
            self.assertNotIn(name, other.to_markdown().replace("docs/triehh", ""))
            self.assertIn(name, prefixes.to_markdown())
        plan.check_round(10, {})
        with self.assertRaisesRegex(ValueError, "round 11 .* max_rounds is 10"):
            plan.check_round(11, {})

    def test_names_all_that_a_run_shows_beside_the_words(self):
        text = " ".join(self.make().not_counted)
        for shown in (
            "their vote counts",
            "a round's total",
            "simulator/",
            "report.html",
            "messages",
            "fingerprint",
        ):
            self.assertIn(shown, text)

    def test_says_why_there_is_none(self):
        made = triehh_statement.triehh_statement(
            triehh.TrieHHParameters(100, 50, 3, 10),
            delta=1e-6,
            redraws_each_round=False,
        )
        self.assertEmpty(made.guarantees)
        self.assertIn("smallest delta", made.no_guarantee_reason)
        self.assertIn("**No guarantee.**", made.to_markdown())


if __name__ == "__main__":
    absltest.main()
