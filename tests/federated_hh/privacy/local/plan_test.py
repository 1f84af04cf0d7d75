"""Tests of what is stated of local reports, planned and run."""

import dataclasses
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import realised
from federated_hh.privacy.guarantee import Unit
from federated_hh.privacy.local import plan as local_reports_plan
from federated_hh.privacy.shuffle import clones
from federated_hh.randomizers import k_ary
from federated_hh.randomness import noise_keys, streams
from federated_hh.rounds import samplers, steps

_DELTA = 1e-8


@dataclasses.dataclass(frozen=True)
class _Known:
    """The facts known of a randomizer."""

    replacement_epsilon: float
    amplification: str = "subset_selection"


class _Doubled:
    """Speaks twice for every item, and once for the seed."""

    def __init__(self, epsilon, domain_size):
        self.domain_size, self.guarantee = domain_size, _Known(epsilon)

    def sum_of_reports(self, histogram, seed):
        if len(histogram) != self.domain_size:
            raise ValueError(f"{len(histogram)} items")
        return 2 * histogram + int(seed.generate_state(1)[0])


class _Dear(_Doubled):
    """Costs more than it is told in domains of more than 30 items."""

    def __init__(self, epsilon, domain_size):
        super().__init__(epsilon + (domain_size > 30), domain_size)


class _Unknown(_Doubled):
    """Is not known to be Subset Selection."""

    def __init__(self, epsilon, domain_size):
        self.guarantee = _Known(epsilon, "arbitrary")


def _reports(**changes):
    values = {
        "randomizer": _Doubled,
        "epsilon": 4.0,
        "replacement_epsilon": 4.0,
        "name": None,
        "bound": 3,
        "sampler": "greedy",
        "draws_sum": True,
        "aggregation": "secure_sum",
        "max_depth": 2,
        "num_passes": 1,
        "max_prefixes": 10,
    }
    return local_reports_plan.LdpTrieHHReports(**{**values, **changes})


def _plan(**changes):
    return plan_lib.Plan(
        sampler=samplers.DisjointCohorts(5_000, 1_000),
        contribution=_reports(**changes),
        mechanism=plan_lib.NoNoise(),
    )


def _record(repeats=1, sizes=(100, 50)):
    rounds = [
        realised.Round.of(
            repeat,
            number + 1,
            np.arange(1_000) + 1_000 * number + repeat,
            facts={"candidates": size, "reports": 3_000},
        )
        for repeat in range(repeats)
        for number, size in enumerate(sizes)
    ]
    return plan_lib.Record(realised.RealisedRounds(tuple(rounds)))


def _of_an_item(statement):
    return {
        g.bound.split(",")[0]: g.epsilon
        for g in statement.guarantees
        if g.unit is Unit.ITEM and g.is_upper_bound
    }


class ReportedTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.facts = {"candidates": 3, "reports": 12}
        self.total = np.array([4, 0, 5])

    def test_the_sum_of_reports_is_drawn_with_no_item_and_without_it(self):
        votes = [
            _reports().reported(self.total, self.facts, streams.Stream(key))
            for key in (1, 1, 2)
        ]
        np.testing.assert_array_equal(votes[0] - votes[0][1], [8, 0, 10])
        np.testing.assert_array_equal(votes[0], votes[1])
        self.assertFalse(np.array_equal(votes[0], votes[2]))

    @parameterized.parameters(
        {"draws_sum": False}, {"epsilon": math.inf, "replacement_epsilon": math.inf}
    )
    def test_reports_that_are_there_are_left_as_they_are(self, **changes):
        reports = _reports(**changes)
        votes = reports.reported(self.total, self.facts, streams.Stream(1))
        np.testing.assert_array_equal(votes, self.total)

    @parameterized.parameters(
        (np.array([4, 0]), r"the shape \(2,\); it has to be \[3\]"),
        (np.array([4, 4, 5]), "13 items, of more than the 12 reports"),
    )
    def test_sums_that_cannot_be(self, total, message):
        with self.assertRaisesRegex(ValueError, message):
            _reports().reported(total, self.facts, streams.Stream(1))

    def test_a_randomizer_that_costs_more_makes_no_report(self):
        reports, facts = _reports(randomizer=_Dear), {"candidates": 40, "reports": 12}
        with self.assertRaisesRegex(ValueError, "epsilon of 5; the plan has 4"):
            reports.reported(np.zeros(40, np.int64), facts, streams.Stream(1))


class RoundTest(parameterized.TestCase):
    @parameterized.parameters(
        (1, {}, None),
        (2, {"candidates": 1}, None),
        (3, {}, "round 3 is not in the plan: max_depth times num_passes is 2"),
        (
            1,
            {"candidates": 0},
            "candidates is .*; it has to be an integer of at least 1",
        ),
        (1, {"candidates": None}, "candidates is .*; it has to be an integer"),
        (1, {"candidates": 2.5}, "candidates is .*; it has to be an integer"),
        (1, {"candidates": 30}, "30 candidates has .* of 5; the plan has 4"),
        (1, {"candidates": 46}, "candidates is .*; it has to be .* at most 45"),
        (1, {"reports": 2_999}, "reports is 2999; a cohort of 1,000 sends 3,000, 3"),
        (1, {"reports": None}, "reports is None"),
    )
    def test_rounds_are_checked_before_anybody_is_asked(self, number, changes, message):
        plan = _plan(randomizer=_Dear, name="Dear", max_candidates=45)
        facts = {"candidates": 20, "reports": 3_000} | changes
        if message is None:
            plan.check_round(number, facts)
            return
        with self.assertRaisesRegex(ValueError, message):
            plan.check_round(number, facts)

    def test_every_pass_has_rounds(self):
        plan, facts = _plan(num_passes=2), {"candidates": 20, "reports": 3_000}
        plan.check_round(4, facts)
        with self.assertRaisesRegex(ValueError, "num_passes is 4"):
            plan.check_round(5, facts)

    def test_the_loop_checks_them(self):
        asked = []
        plan = _plan()
        algorithm = mock.Mock(plan=plan, describe=dict, initialize=lambda repeat: None)
        step = steps.Steps(algorithm, seed=1, noise_key=noise_keys.NoiseKey.fresh())
        query = mock.Mock(ask=lambda *given: asked.append(given), facts={"reports": 1})
        with self.assertRaisesRegex(
            ValueError, "candidates is .*; it has to be an integer"
        ):
            step.ask(step.begin(), query, np.arange(1_000))
        self.assertEmpty(asked)


class StatementTest(parameterized.TestCase):
    def test_of_a_run_it_is_of_its_own_domains(self):
        statement = _plan().statement(_record(), _DELTA)
        self.assertEqual(statement.basis, "realised")
        self.assertEqual(statement.parameters["domain_sizes (s)"], "101, 51")
        found = _of_an_item(statement)
        self.assertEqual(found["local DP"], 4.0)
        self.assertLess(found["privacy blanket"], found["clones"])

    @parameterized.parameters(
        (lambda rounds: rounds[:1] * 2, "is round 1 of repeat 0, round 2"),
        (
            lambda rounds: (
                rounds[0],
                dataclasses.replace(rounds[1], cohort=rounds[0].cohort),
            ),
            "rounds has a duplicate cohort",
        ),
        (
            lambda rounds: (rounds[0], dataclasses.replace(rounds[1], clients=999)),
            "999 clients in level 2 of repeat 0; cohort_size is 1000",
        ),
    )
    def test_a_record_of_other_rounds(self, change, message):
        with self.assertRaisesRegex(ValueError, message):
            changed = realised.RealisedRounds(change(_record().rounds.rounds))
            _plan().statement(plan_lib.Record(changed), _DELTA)

    def test_planned_it_is_the_bound_that_needs_no_domain(self):
        planned = _plan().statement(None, _DELTA)
        self.assertEqual(planned.basis, "planned")
        found = _of_an_item(planned)
        self.assertEqual(set(found), {"local DP", "clones"})
        pair = clones.ClonePair(4.0, 3_000, stronger=False)
        self.assertEqual(found["clones"], pair.epsilon(_DELTA))
        self.assertIn("not known", planned.parameters["domain_sizes (s)"])
        for sizes in ((1, 1), (100, 50), (10**6, 10**6)):
            run = _of_an_item(_plan().statement(_record(sizes=sizes), _DELTA))
            self.assertLessEqual(min(run.values()), found["clones"])

    def test_planned_repeats_are_composed(self):
        once, twice = (
            _plan().statement(None, _DELTA, repeats=repeats) for repeats in (1, 2)
        )
        run = _plan().statement(_record(repeats=2), _DELTA)
        for statement in (twice, run):
            together = [
                g.epsilon
                for g in statement.guarantees
                if g.unit is Unit.ITEM
                and "For all 2 repeats together." in g.assumptions
            ]
            self.assertEqual(together[1], 8.0)
            self.assertLess(together[0], 8.0)
        self.assertGreater(together[0], 0)
        self.assertLen(once.guarantees, len(twice.guarantees) - 4)

    def test_of_other_randomizers_only_what_holds_for_all_is_stated(self):
        plan = _plan(name="Doubled", epsilon=3.0, replacement_epsilon=3.0)
        for record in (None, _record()):
            statement = plan.statement(record, _DELTA)
            self.assertIn("Doubled", statement.mechanism)
            self.assertIn("Doubled is as private as it", statement.assumptions[2])
            self.assertNotIn("Subset Selection", statement.to_markdown())
            of_a_user, central, user, item = statement.guarantees
            self.assertEqual((item.epsilon, item.unit), (3.0, Unit.ITEM))
            self.assertEqual((user.epsilon, user.unit), (9.0, Unit.CLIENT))
            pair = clones.ClonePair(3.0, 3_000, stronger=False)
            self.assertEqual(central.epsilon, pair.epsilon(_DELTA))
            self.assertStartsWith(central.bound, "clones, Feldman et al. 2021")
            self.assertBetween(of_a_user.epsilon, central.epsilon, 9.0)
            self.assertTrue(all(g.is_upper_bound for g in statement.guarantees))

    def test_a_randomizer_of_the_house_is_not_said_to_be_its_author_s(self):
        for kind in (k_ary.KAryRandomizedResponse, _Doubled):
            stated = _plan(randomizer=kind, name="R").statement(None, _DELTA)
            claims = [a for a in stated.assumptions if "as private as it claims" in a]
            self.assertLen(claims, int(kind is _Doubled))

    def test_the_epsilon_of_all_reports_of_a_client(self):
        self.assertEqual(_reports(bound=3).local_epsilon, 12.0)

    def test_without_local_privacy_nothing_is(self):
        plan = _plan(epsilon=math.inf, replacement_epsilon=math.inf)
        self.assertEmpty(plan.statement(_record(), _DELTA).guarantees)


class BadPlansTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"bound": 0}, "bound"),
        ({"epsilon": 0.0}, "^epsilon is .*; it has to be above 0"),
        (
            {"replacement_epsilon": math.nan},
            "replacement_epsilon is .*; it has to be above 0",
        ),
        ({"replacement_epsilon": math.inf}, "both are infinite"),
        ({"aggregation": "mail"}, "aggregation is .*; it has to be one of"),
        ({"max_prefixes": 0}, "max_prefixes"),
        # The 5,000 clients are enough for five rounds of 1,000.
        ({"num_passes": 3}, "6 rounds need 6,000 clients"),
        ({"replacement_epsilon": 3.9}, "1 candidates has .* of 4; the plan has 3.9"),
        ({"randomizer": _Unknown}, "_Unknown, known as arbitrary; .* has no name"),
    )
    def test_contribution(self, changes, message):
        with self.assertRaisesRegex(ValueError, message):
            _plan(**changes)

    def test_one_report_says_who_was_left_out(self):
        for kept in (True, False):
            reports = local_reports_plan.OneReport(
                randomizer=_Doubled,
                epsilon=2.0,
                replacement_epsilon=2.0,
                name="_Doubled",
                max_candidates=4,
                num_rounds=1,
                population_has_empty_users=kept,
                algorithm="A histogram",
            )
            plan = dataclasses.replace(_plan(), contribution=reports)
            statement = plan.statement(None, _DELTA)
            said = any("left out" in text for text in statement.assumptions)
            self.assertEqual(said, not kept)
            with self.assertRaisesRegex(
                ValueError, "candidates is .*; it has to be .* at most 4"
            ):
                plan.check_round(1, {"candidates": 5, "reports": 1_000})
            # In the words of a custom algorithm's author.
            with self.assertRaisesRegex(
                ValueError, "round 2 is not in the plan: num_rounds is 1; plan more"
            ):
                plan.check_round(2, {"candidates": 4, "reports": 1_000})

    def test_other_cohorts_have_no_theorem(self):
        with self.assertRaisesRegex(ValueError, "no theorem is proved for uniform"):
            dataclasses.replace(_plan(), sampler=samplers.UniformCohorts(5_000, 1_000))


if __name__ == "__main__":
    absltest.main()
