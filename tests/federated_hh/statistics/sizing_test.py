"""Tests of the settings that follow from a population of devices."""

import dataclasses
import json
import pathlib
import re

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.accounting import answers
from federated_hh.privacy.local import query_sizing
from federated_hh.statistics import approvals, preparation
from federated_hh.statistics import options as statistics_options
from federated_hh.statistics.devices import device, policy_file
from tests.federated_hh.statistics import cases


def _setting(num_devices, **changes):
    options = statistics_options.StatisticsOptions(**changes)
    return preparation.settings_of(options, num_devices)[0]


class SizingTest(parameterized.TestCase):
    @parameterized.parameters(
        (1000, "disjoint"), (100_000, "everybody"), (10_000_000, "everybody")
    )
    def test_cohorts_follow_from_the_population(self, num_devices, expected):
        options = statistics_options.StatisticsOptions()
        found = preparation.resolved(options, num_devices)
        self.assertEqual(found.cohorts, expected)
        disjoint, everybody = (
            dataclasses.replace(_setting(num_devices), is_everybody=is_everybody)
            for is_everybody in (False, True)
        )
        is_worth = everybody.holders < 0.75 * disjoint.holders
        self.assertEqual(is_worth, expected == "everybody")
        given = dataclasses.replace(options, cohorts="disjoint")
        self.assertEqual(preparation.resolved(given, num_devices), given)

    @parameterized.parameters(
        (1000, {}), (30_000, {"epsilon": 0.5}), (10**6, {}), (10**7, {"delta": 1e-9}),
        (10**5, {"randomizer": "symmetric"}), (10**5, {"local_epsilon": 2.0}),
        (10**6, {"cohorts": "disjoint"}),
    )  # fmt: skip
    def test_the_accounting_answers_what_a_run_does(self, num_devices, changes):
        options = statistics_options.StatisticsOptions(**changes)
        options = preparation.resolved(options, num_devices)
        run = preparation.settings_of(options, num_devices)[0]
        if "randomizer" in changes:
            changes = {"randomizer": "symmetric_one_hot"}
        rows = answers.statistics(population=num_devices, **changes)
        found = {row["quantity"]: row["value"] for row in rows}
        self.assertEqual(found["holders for a discovery rate of 0.9"], run.holders)
        cohort = num_devices // (1 if options.cohorts == "everybody" else 3)
        self.assertEqual(found["cohort size of a query"], cohort)
        self.assertIn(f"epsilon to quote at delta = {run.delta:.4g}", found)

    def test_check_3_names_the_least_cohort(self):
        options = statistics_options.StatisticsOptions(recipe=("a.json",))
        approval, least = cases.approval(), 50
        for _ in range(2):
            recipe = cases.recipe(
                privacyBudget__cohortAggregateEpsilon=0.4,
                privacyBudget__localEpsilon=2,
                privacyBudget__minimumCohort=least - 1,
            )
            with self.assertRaisesRegex(ValueError, "check 3") as caught:
                approvals.check_recipes(options, approval, [recipe])
            told = re.search(
                r"minimumCohort .* least ([0-9,]+);", str(caught.exception)
            )
            least = int(told[1].replace(",", ""))
        enough = dataclasses.replace(recipe, minimum_cohort=least)
        self.assertIsNone(device.refusal(approval, enough))

    def test_a_delta_above_one_in_n_is_told(self):
        run = _setting(5 * 10**6, cohorts="everybody")
        self.assertEqual(run.better_delta, 1e-8)
        for delta, expected in ((1e-7, 1e-8), (5e-8, None), (1e-8, None)):
            run = _setting(5 * 10**6, cohorts="everybody", delta=delta)
            self.assertEqual(run.better_delta, expected)
        self.assertIsNone(_setting(10**6, cohorts="disjoint").better_delta)

    def test_one_query_goes_to_everybody_at_once(self):
        options = statistics_options.StatisticsOptions(strategy="static")
        self.assertEqual(preparation.resolved(options, 10**6).cohorts, "disjoint")

    def test_a_recipes_minimum_cohort_decides(self):
        options = statistics_options.StatisticsOptions()
        for minimum, expected in ((500, "disjoint"), (501, "everybody")):
            recipe = cases.recipe(privacyBudget__minimumCohort=minimum)
            found = preparation.resolved(options, 1000, [recipe, recipe])
            self.assertEqual(found.cohorts, expected)

    def test_a_policy_of_one_report_has_disjoint_cohorts(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "policy.json"
        default = statistics_options.StatisticsOptions()
        shipped = approvals.approval_of(default)
        stored = cases.stored(3000)
        for reports, fields, expected in (
            (1, 3, "disjoint"),
            (3, 1, "disjoint"),
            (3, 3, "everybody"),
        ):
            limits = shipped.policy.limits
            policy = dataclasses.replace(
                shipped.policy,
                limits=dataclasses.replace(limits, reports=reports),
                fields={
                    "ngrams": dataclasses.replace(
                        limits, reports=fields, aggregate_epsilon=0.75
                    )
                },
            )
            approval = dataclasses.replace(shipped, policy=policy)
            path.write_text(policy_file.to_json(approval))
            options = dataclasses.replace(default, policy=str(path))
            self.assertEqual(preparation.resolved(options, 10**6).cohorts, expected)
            algorithm = preparation.algorithm_of(
                dataclasses.replace(options, cohorts=expected, devices="vectorised"),
                stored,
                "tests",
            )
            # Within the limit of the column too.
            first = algorithm.recipe(algorithm.initialize(0))
            queries = 3 if expected == "everybody" else 1
            self.assertAlmostEqual(first.aggregate_epsilon, 0.75 / queries, places=6)
            self.assertIsNone(device.refusal(approval, first, [first] * (queries - 1)))
            if expected == "disjoint":
                with self.assertRaisesRegex(ValueError, "allows 1 reports"):
                    preparation.algorithm_of(
                        dataclasses.replace(options, cohorts="everybody"),
                        stored,
                        "tests",
                    )

    def test_a_column_that_no_recipe_reads_does_not_count(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "policy.json"
        options = statistics_options.StatisticsOptions(analysis="joint")
        shipped = approvals.approval_of(options)
        whole = shipped.policy.limits
        tight = dataclasses.replace(whole, aggregate_epsilon=0.3, local_epsilon=2.0)
        fields = {"ngrams": whole, "age": tight}
        policy = dataclasses.replace(shipped.policy, fields=fields)
        approval = dataclasses.replace(shipped, policy=policy)
        path.write_text(policy_file.to_json(approval))
        options = statistics_options.StatisticsOptions(
            analysis="joint", policy=str(path), recipe=("words.json", "ages.json")
        )
        recipes = []
        for name in ("ngrams", "age"):
            content = json.loads(cases.recipe().to_json())["dataTypeContent"][name]
            one = cases.recipe(
                query=f"select {name} from KeyboardNGrams",
                dataTypeContent={name: content},
                AnalysisIdentifier=policy.analysis,
            )
            recipes.append(dataclasses.replace(one, minimum_cohort=0))
        words, ages = preparation.settings_of(options, 120, recipes)
        self.assertEqual((words.epsilon, words.policy.limits), (1.0, whole))
        self.assertEqual((ages.epsilon, ages.policy.limits.local_epsilon), (0.3, 2.0))
        # As a device decides.
        budget = approvals.with_budget(approval, recipes[0], 1, 120)
        self.assertEqual(budget.aggregate_epsilon, 1.0)
        self.assertIsNone(device.refusal(approval, budget))
        stored = cases.stored(120)
        prepared = preparation.prepare(
            dataclasses.replace(options, recipe=("words.json",), cohorts="disjoint"),
            stored,
            "tests",
            recipes[:1],
        )
        self.assertEqual(prepared.setting.epsilon, 1.0)
        with self.assertRaisesRegex(
            ValueError,
            r"^ages.json: 120 devices cannot answer 1 query at an epsilon of 0\.3.*"
            r"ngrams \(TEXT\), age \(INTEGER: 1 report, localEpsilon 2 and "
            r"cohortAggregateEpsilon 0\.3\)",
        ):
            preparation.prepare(
                dataclasses.replace(options, recipe=("ages.json",)),
                stored,
                "tests",
                recipes[1:],
            )

    @parameterized.parameters(300, 20_000)
    def test_as_many_holders_are_found_nine_times_in_ten(self, num_devices):
        setting = dataclasses.replace(_setting(num_devices), queries=1)
        policy = setting.policy
        local_units, _ = query_sizing.report_budget(
            policy.randomizer, policy.delta, 6.0, setting.epsilon, num_devices
        )
        recipe = dataclasses.replace(cases.recipe(), local_units=local_units)
        randomizer = device.randomizer_of(policy, recipe)
        own = float(randomizer.own_probability)
        other = float(randomizer.other_probability)
        generator = np.random.default_rng(1)
        holders, trials = setting.holders, 20_000
        ones = generator.binomial(holders, own, trials)
        ones += generator.binomial(num_devices - holders, other, trials)
        empty = np.sqrt(num_devices * other * (1 - other)) / (own - other)
        found = randomizer.estimate(ones, num_devices) >= setting.stderrs * empty
        self.assertAlmostEqual(found.mean(), 0.9, delta=0.03)

    def test_too_few_devices_are_refused_with_what_it_takes(self):
        small = _setting(30)
        with self.assertRaisesRegex(ValueError, "30 devices cannot answer") as caught:
            small.check()
        text = str(caught.exception)
        least = int(re.search(r"at least ([0-9]+) devices", text)[1])
        dataclasses.replace(small, num_devices=least).check()
        with self.assertRaises(ValueError):
            dataclasses.replace(small, num_devices=least - 1).check()
        epsilon = float(re.search(r"an epsilon of ([0-9.]+)$", text)[1])
        dataclasses.replace(small, epsilon=epsilon).check()

    @parameterized.parameters(1000, 100_000)
    def test_the_best_change_is_computed(self, num_devices):
        setting = _setting(num_devices)
        text = setting.best_change()
        told, best = (float(found) for found in re.findall(r"\(([0-9.]+)%\)", text))
        self.assertAlmostEqual(told, 100 * setting.share, delta=0.006)
        others = [
            dataclasses.replace(setting, num_devices=2 * num_devices),
            dataclasses.replace(setting, epsilon=2.0),
            dataclasses.replace(setting, is_everybody=True),
        ]
        expected = min(100 * other.share for other in others)
        self.assertAlmostEqual(best, expected, delta=0.006)
        self.assertLess(best, told)


if __name__ == "__main__":
    absltest.main()
