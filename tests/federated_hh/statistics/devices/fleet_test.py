"""Tests of devices: what they answer, what they log, and that arrays do the same."""

import dataclasses
import hashlib
import itertools

import numpy as np
from absl.testing import absltest, parameterized
from dp_accounting import rdp

from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import realised
from federated_hh.privacy.local import (
    device_policy,
    device_reports_plan,
    device_reports_statement,
    query_sizing,
)
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import renyi_aggregation
from federated_hh.randomness import streams
from federated_hh.rounds import samplers
from federated_hh.statistics.devices import (
    budget,
    device,
    device_log,
    fleet,
    vector_fleet,
)
from federated_hh.statistics.recipes import contents, events
from tests.federated_hh.statistics import cases, collected


def _stream(number):
    return streams.Stream(7, ("round", number))


_NGRAMS = {"ngrams": cases.FIGURE_4["dataTypeContent"]["ngrams"]}
_AGE = {"age": cases.FIGURE_4["dataTypeContent"]["age"]}
_ROOT = {"ngrams": {**_NGRAMS["ngrams"], "tree": {"root": []}}}
_DEEP = {
    "ngrams": {
        **_NGRAMS["ngrams"],
        "tree": {
            "root": ["i", "a", "home"],
            "i": ["went", "got"],
            "i went": ["a", "home"],
            "i went home": ["i"],
        },
    }
}
_SECONDS = {"dataType": "BucketedType", "boundaries": [0.1, 0.5, 1.0, 1.25, 2.5]}
_CONTENTS = {
    "both": ("age, ngrams", cases.FIGURE_4["dataTypeContent"]),
    "swapped": (
        "ngrams, age",
        {
            **cases.FIGURE_4["dataTypeContent"],
            "combinations": {
                "dataType": "CombinationType",
                "structure": ["ngrams", "age"],
            },
        },
    ),
    "ngrams": ("ngrams", _NGRAMS),
    "age": ("age", _AGE),
    "root": ("ngrams", _ROOT),
    "deep": ("ngrams", _DEEP),
    "seconds": ("seconds", {"seconds": _SECONDS}),
    "seconds_of_leaves": (
        "seconds, ngrams",
        {
            "seconds": _SECONDS,
            **_NGRAMS,
            "combinations": {
                "dataType": "CombinationType",
                "structure": ["seconds", "ngrams"],
            },
        },
    ),
    # A field as what it is not: nothing fits.
    "words_as_number": ("ngrams", {"ngrams": _SECONDS}),
    "seconds_as_words": ("seconds", {"seconds": _NGRAMS["ngrams"]}),
    "age_as_words": ("age", {"age": _NGRAMS["ngrams"]}),
}


def _recipe(name, **changes):
    columns, content = _CONTENTS[name]
    query = f"select {columns} from KeyboardNGrams"
    return cases.recipe(**{"query": query, "dataTypeContent": content, **changes})


class FleetTest(parameterized.TestCase):
    def fleets(self, approval=None, num_devices=300):
        approval, stored = approval or cases.approval(), cases.stored(num_devices)
        self.collected = collected.Collected()
        return (
            fleet.DeviceFleet(approval, stored, self.collected),
            vector_fleet.VectorFleet(approval, stored),
        )

    @parameterized.parameters(*_CONTENTS)
    def test_arrays_choose_the_cells_that_devices_do(self, name):
        real, vector = self.fleets()
        recipe = _recipe(name)
        numbers = np.arange(300)
        cells = []
        for number in range(4):
            chances = _stream(number).generator("chances").random(300)
            found = vector.true_cells(recipe, numbers, chances)
            expected = [
                real.devices.true_cell(i, recipe, 100.0, chance)
                for i, chance in enumerate(chances.tolist())
            ]
            np.testing.assert_array_equal(found, expected)
            cells += expected
            some = np.flatnonzero(chances < 0.3)
            np.testing.assert_array_equal(
                vector.true_cells(recipe, some, chances[some]), found[some]
            )
        if "_as_" in name:
            self.assertEqual(set(cells), {0})
        else:
            self.assertGreater(len(set(cells)), 5)

    @parameterized.parameters(*device_policy.Composition)
    def test_arrays_spend_what_devices_do(self, composition):
        changes = {}
        if composition is not device_policy.Composition.BASIC:
            changes = {"composition": composition, "slack": 1e-6}
        if composition is device_policy.Composition.RENYI:
            changes["order"] = 50
        fleets = self.fleets(cases.approval(**changes), num_devices=40)
        half = np.arange(0, 40, 2)
        asked = [
            (_recipe("both"), half),
            (_recipe("ngrams"), np.arange(40)),
            (_recipe("ngrams", version="0"), np.arange(40)),
            (_recipe("age", privacyBudget__cohortAggregateEpsilon=0.3), np.arange(40)),
            (_recipe("age", privacyBudget__minimumCohort=2), np.arange(40)),
            (_recipe("both", query="select * from KeyboardNGrams limit 1"), half),
            (_recipe("both"), np.arange(40)),
            (_recipe("ngrams", privacyBudget__localEpsilon=5.1), half),
            (_recipe("ngrams"), np.arange(40)),
            (_recipe("seconds"), np.arange(40)),
            (_recipe("ngrams"), np.arange(40)),
        ]
        counts = []
        for number, (recipe, cohort) in enumerate(asked):
            # As one analysis, which a fleet would begin anew between such cohorts.
            batches = []
            for found in fleets:
                chances = np.full(len(cohort), 0.5)
                batches.append(found._ask(recipe, cohort, chances, _stream(number)))
            real, vector = batches
            counts.append(real.reports)
            self.assertEqual(real.reports, vector.reports)
            for i in range(40):
                spent = fleets[0].devices.accountant.spent(i)
                self.assertEqual(fleets[1].spent(i), spent)
        # All, none and some of the devices answered.
        self.assertEqual(counts[:3], [20, 40, 0])
        self.assertTrue(any(0 < n < 40 for n in counts[3:]))

    def test_reports_have_the_law_of_the_randomizer(self):
        real, vector = self.fleets(num_devices=4000)
        recipe = _recipe("root", privacyBudget__minimumCohort=3000)
        batches = [
            found.ask(recipe, np.arange(4000), (), _stream(1))
            for found in (real, vector)
        ]
        self.assertEqual([batch.reports for batch in batches], [4000, 4000])
        chances = _stream(1).generator("which row").random(4000)
        cells = vector.true_cells(recipe, np.arange(4000), chances)
        truth = np.bincount(cells, minlength=recipe.content.num_cells)
        randomizer = device.randomizer_of(cases.approval().policy, recipe)
        stderrs = np.sqrt(randomizer.variance(truth, 4000))
        for batch in batches:
            errors = (randomizer.estimate(batch.counts, 4000) - truth) / stderrs
            self.assertLess(np.abs(errors).max(), 4.5)
            self.assertGreater(np.abs(errors).max(), 0.5)

    def test_logs_say_what_left_a_device_and_why_nothing_did(self):
        real, _ = self.fleets(num_devices=20)
        recipes = [
            _recipe("age"),
            _recipe("age", version="2"),
            _recipe("age", AnalysisIdentifier="com.example.other"),
            _recipe("age", cohorts=["income"]),
            cases.recipe(query="select age from secrets"),
            _recipe("age", privacyBudget__cohortAggregateEpsilon=0.4),
        ]
        earlier = ()
        for number, recipe in enumerate(recipes):
            real.ask(recipe, np.arange(20), earlier, _stream(number))
            if number == 0:
                sent = self.collected.reports
            earlier = (*earlier, recipe.to_json())
        log = real.devices.log.of(3)
        self.assertEqual(log["outcome"].tolist(), ["answered"] + ["refused"] * 5)
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(log["report"][0]), np.uint8))
        np.testing.assert_array_equal(bits[:8].astype(bool), sent[3])
        for reason, part in zip(
            log["reason"][1:],
            ("version 2", "com.example.other", "cohort income", "secrets", "check 2"),
            strict=True,
        ):
            self.assertIn(part, reason)
        self.assertLen(real.devices.log.of(0), 6)

    @parameterized.parameters(6.000001, 41, 81, 100)
    def test_a_local_epsilon_beyond_the_policy_is_refused(self, epsilon):
        real, vector = self.fleets(num_devices=20)
        recipe = _recipe("age", privacyBudget__localEpsilon=epsilon)
        for devices in (real, vector):
            batch = devices.ask(recipe, np.arange(20), (), _stream(0))
            self.assertEqual(batch.reports, 0)
        self.assertIn("local epsilon", real.devices.log.of(0)["reason"][0])

    def test_long_reports_are_logged_by_their_digest(self):
        log = device_log.DeviceLog()
        report = np.zeros((1, 2**16 + 8), bool)
        log.answered([5], _recipe("age"), report)
        digest = hashlib.sha256(bytes(2**13 + 1)).hexdigest()
        self.assertEqual(log.of(5)["report"][0], f"SHA-256 {digest}")

    def test_a_device_without_data_is_not_silent(self):
        real, _ = self.fleets(num_devices=3)
        real.devices.events.expire(1e12)
        recipe = _recipe("both")
        real.ask(recipe, np.arange(3), (), _stream(0))
        self.assertLen(self.collected.reports, 3)
        self.assertEqual(real.devices.true_cell(1, recipe, 0.0, 0.99), 0)
        failing = _recipe(
            "age",
            query="select sum(9223372036854775807) as age from KeyboardNGrams",
        )
        real, _ = self.fleets(num_devices=30)
        real.ask(failing, np.arange(30), (), _stream(0))
        self.assertLen(self.collected.reports, 30)

    def test_goes_back_where_a_simulation_goes_on(self):
        everybody = np.arange(40)
        recipe, fewer = _recipe("ngrams"), _recipe("age")
        first, second = recipe.to_json(), fewer.to_json()
        for at in range(2):
            straight = self.fleets(num_devices=40)[at]
            straight.ask(recipe, everybody, (), _stream(0))
            expected = straight.ask(fewer, everybody, (first,), _stream(1))
            # Asked twice, after another history, and by a program that is new.
            again = straight.ask(fewer, everybody, (first,), _stream(1))
            straight.ask(recipe, everybody, (second, second), _stream(2))
            back = straight.ask(fewer, everybody, (first,), _stream(1))
            new = self.fleets(num_devices=40)[at]
            resumed = new.ask(fewer, everybody, (first,), _stream(1))
            for batch in (again, back, resumed):
                self.assertEqual(batch.reports, expected.reports)
                if batch.counts is not None:
                    np.testing.assert_array_equal(batch.counts, expected.counts)
            accounts = [
                f.devices.accountant.spent(5) if at == 0 else f.spent(5)
                for f in (straight, new)
            ]
            self.assertEqual(*accounts)
            self.assertEqual(accounts[0]["the analysis"].reports, 2)

    def test_arrays_take_plain_queries_only(self):
        _, vector = self.fleets()
        recipe = _recipe("age", query="select age from KeyboardNGrams where age > 3")
        with self.assertRaisesRegex(ValueError, "query is"):
            vector.true_cells(recipe, np.arange(3), np.zeros(3))

    def test_arguments(self):
        approval = cases.approval()
        with self.assertRaisesRegex(ValueError, "fields of the policy"):
            device.Approval(
                approval.policy,
                dataclasses.replace(approval.query_class, fields=frozenset(["age"])),
            )
        grams = np.zeros((1, 6), np.int32)
        words = tuple(map(str, range(2000)))
        stored = events.NGramEvents(
            words, grams, np.array([0, 1]), *2 * [np.array([20])]
        )
        with self.assertRaisesRegex(ValueError, "n-grams have 6 words"):
            vector_fleet.VectorFleet(approval, stored)


class PlanTest(parameterized.TestCase):
    def plan(self, sampler, **changes):
        return plan_lib.Plan(
            sampler=sampler,
            contribution=device_reports_plan.DeviceReports(
                policy=cases.approval(**changes).policy,
                max_queries=3,
                aggregation="secure_sum",
            ),
            mechanism=device_reports_plan.MinimumCohort(),
        )

    def test_small_batches_are_not_released(self):
        mechanism = device_reports_plan.MinimumCohort()
        facts = {device_reports_plan.MINIMUM_COHORT: 10}
        for reports, minimum in itertools.product((9, 10, 11), (2, 10, 11)):
            batch = device_reports_plan.Batch(np.arange(3), reports, minimum)
            released = mechanism.release(batch, None, facts, _stream(0)).value
            is_released = reports >= max(minimum, 10)
            self.assertEqual(released.counts is not None, is_released)
            self.assertEqual(released.reports, reports)

    def test_statement_is_what_the_policy_allows(self):
        for sampler, local, delta in (
            (samplers.DisjointCohorts(90, 30), 5.0, 1e-6),
            (samplers.UniformCohorts(90, 90), 15.0, 4e-6),
        ):
            stated = self.plan(sampler).statement(None, 1e-9)
            aggregate, of_reports = stated.guarantees
            self.assertEqual(aggregate.epsilon, 1.0)
            self.assertAlmostEqual(aggregate.delta, delta, delta=1e-15)
            self.assertEqual((of_reports.epsilon, of_reports.delta), (local, 0))
            twice = self.plan(sampler).statement(None, 1e-9, repeats=2)
            self.assertEqual(twice.guarantees[0].epsilon, 2.0)
            self.assertAlmostEqual(twice.guarantees[0].delta, 2 * delta, delta=1e-15)

    def test_statement_of_a_renyi_filter(self):
        renyi = {
            "composition": device_policy.Composition.RENYI,
            "slack": 1e-7,
            "order": 60,
        }
        plan = self.plan(samplers.UniformCohorts(9000, 9000), **renyi)
        aggregate, _ = plan.statement(None, 1e-9).guarantees
        self.assertEqual(aggregate.epsilon, 1.0)
        self.assertAlmostEqual(aggregate.delta, 1e-7, delta=1e-15)
        facts = {
            device_reports_plan.CELLS: 3,
            device_reports_plan.LOCAL_UNITS: 500_000,
            device_reports_plan.AGGREGATE_UNITS: 900_000,
            device_reports_plan.MINIMUM_COHORT: 9000,
        }
        rounds = realised.RealisedRounds(
            tuple(realised.Round(0, i + 1, 9000, "0" * 64, facts=facts) for i in (0, 1))
        )
        record = plan_lib.Record(rounds)
        aggregate, of_reports = plan.statement(record, 1e-9).guarantees
        rho = renyi_aggregation.asymmetric_one_hot_rho(60, 0.5, 9000)
        expected, _ = rdp.compute_epsilon([60], [2 * rho], 1e-7)
        self.assertAlmostEqual(aggregate.epsilon, expected, places=6)
        self.assertGreaterEqual(aggregate.epsilon, expected)
        self.assertEqual(of_reports.epsilon, 1.0)

    @parameterized.parameters(*device_policy.Composition)
    def test_refused_queries_spend_nothing(self, composition):
        changes = {}
        if composition is not device_policy.Composition.BASIC:
            changes = {"composition": composition, "slack": 1e-7}
        if composition is device_policy.Composition.RENYI:
            changes["order"] = 60
        plan = self.plan(samplers.UniformCohorts(9000, 9000), **changes)
        facts = {
            device_reports_plan.CELLS: 3,
            device_reports_plan.LOCAL_UNITS: 0,
            device_reports_plan.AGGREGATE_UNITS: 0,
            device_reports_plan.MINIMUM_COHORT: 9000,
        }
        asked = {
            **facts,
            device_reports_plan.LOCAL_UNITS: 200_000,
            device_reports_plan.AGGREGATE_UNITS: 300_000,
        }
        plan.check_round(1, facts)

        def stated(*rounds):
            found = [
                realised.Round(0, number, 9000, "0" * 64, facts=each)
                for number, each in enumerate(rounds, start=1)
            ]
            record = plan_lib.Record(realised.RealisedRounds(tuple(found)))
            statement = plan.statement(record, 1e-9)
            self.assertEqual(
                device_reports_statement.recomputed(statement), statement.guarantees
            )
            return [(one.epsilon, one.delta) for one in statement.guarantees]

        self.assertEqual(stated(facts, facts), [(0, 0), (0, 0)])
        self.assertEqual(stated(facts, asked), stated(asked))
        self.assertEqual(stated(asked)[1], (0.2, 0))

    @parameterized.parameters(
        *((composition, 3) for composition in device_policy.Composition),
        (device_policy.Composition.RENYI, 40),
    )
    def test_all_queries_of_an_equal_epsilon_are_answered(self, composition, queries):
        randomizer = shuffling.Randomizer.ASYMMETRIC_ONE_HOT
        changes = {}
        if composition is not device_policy.Composition.BASIC:
            changes = {"slack": 1e-6}
        if composition is device_policy.Composition.RENYI:
            changes["order"] = device_policy.renyi_order(1.0, 1e-6)
        limits = device_policy.Limits(
            aggregate_epsilon=1.0, reports=queries, local_epsilon=6.0
        )
        policy = cases.approval(
            composition=composition,
            limits=limits,
            fields={"ngrams": limits},
            **changes,
        ).policy
        epsilon = query_sizing.query_epsilon(policy, queries, 50_000)
        local, minimum = query_sizing.report_budget(
            randomizer, 1e-6, 6.0, epsilon, 50_000
        )
        recipe = dataclasses.replace(
            cases.recipe(),
            local_units=local,
            aggregate_units=device_policy.units_of(epsilon, "epsilon"),
            minimum_cohort=minimum,
        )
        with budget.Accountant(policy) as accountant:
            for _ in range(queries):
                self.assertIsNone(accountant.charge(1, ["ngrams"], recipe))
        if composition is device_policy.Composition.RENYI:
            self.assertGreater(epsilon, 1.0 / queries)

    def test_devices_that_are_asked_again_are_all_asked(self):
        with self.assertRaisesRegex(ValueError, "cohort_size is 30"):
            self.plan(samplers.UniformCohorts(90, 30))

    def test_rounds_of_the_plan(self):
        plan = self.plan(samplers.DisjointCohorts(90, 30))
        facts = {
            device_reports_plan.CELLS: 3,
            device_reports_plan.LOCAL_UNITS: 1,
            device_reports_plan.AGGREGATE_UNITS: 1,
            device_reports_plan.MINIMUM_COHORT: 2,
        }
        plan.check_round(3, facts)
        with self.assertRaisesRegex(ValueError, "max_queries is 3"):
            plan.check_round(4, facts)
        for name in facts:
            with self.assertRaisesRegex(ValueError, name):
                plan.check_round(1, {**facts, name: 0})


class EventsTest(parameterized.TestCase):
    def test_events_of_devices_are_their_words(self):
        stored = cases.stored(50)
        rows = list(stored.rows())
        self.assertLen(rows, len(stored.grams))
        for owner, time, age, text, seconds in rows:
            self.assertEqual(age, stored.ages[owner])
            self.assertEqual(seconds, stored.seconds[stored.splits[owner] + time])
            words = stored.grams[stored.splits[owner] + time].tolist()
            expected = [stored.words[w] for w in words if w >= 0]
            tree = contents.PrefixTree(((),), stored.words)
            self.assertLen(text.split(), sum(w != events.NONE for w in words))
            self.assertEqual([w for w in text.split() if tree.cell(w) > 2], expected)
        self.assertEqual(stored.now, 5.0)


if __name__ == "__main__":
    absltest.main()
