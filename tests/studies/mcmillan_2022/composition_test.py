"""Tests of how many queries a budget admits, against dp-accounting and a device."""

import dataclasses
import functools
from unittest import mock

import pandas as pd
from absl.testing import absltest
from dp_accounting import rdp

from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import renyi_aggregation
from federated_hh.statistics.devices import budget
from studies.mcmillan_2022 import composition
from tests.federated_hh.statistics import cases

_SETTING = ("asymmetric", 3.0)


@functools.cache
def _queries(cohort):
    return composition.queries(*_SETTING, cohort)


class QueriesTest(absltest.TestCase):
    def test_a_device_answers_as_many(self):
        found = _queries(20_000)
        order = device_policy.renyi_order(1.0, 1e-6)
        limits = device_policy.Limits(
            aggregate_epsilon=1.0, reports=900, local_epsilon=5
        )
        policy = cases.approval(
            limits=limits,
            fields={"ngrams": limits},
            composition=device_policy.Composition.RENYI,
            slack=1e-6,
            order=order,
        ).policy
        recipe = dataclasses.replace(
            cases.recipe(),
            local_units=3_000_000,
            aggregate_units=200_000,
            minimum_cohort=20_000,
        )
        answered = 0
        with budget.Accountant(policy) as accountant:
            while accountant.charge(1, ["ngrams"], recipe) is None:
                answered += 1
        self.assertEqual(answered, found["renyi"])
        rho = renyi_aggregation.asymmetric_one_hot_rho(order, 3.0, 20_000)
        for count, is_within in ((answered, True), (answered + 1, False)):
            epsilon, _ = rdp.compute_epsilon([order], [count * rho], 1e-6)
            self.assertEqual(epsilon <= 1, is_within)

    def test_counts_are_the_most(self):
        found = _queries(20_000)
        self.assertGreater(found["renyi"], found["advanced"])
        for count, is_within in ((found["basic"], True), (found["basic"] + 1, False)):
            epsilon = composition.epsilon(*_SETTING, 20_000, 1e-6 / count)
            self.assertEqual(count * epsilon <= 1, is_within)

    def test_files(self):
        options = composition.Options(cohorts_per_decade=1)
        with mock.patch.object(composition.Options, "cohorts", (10_000,)):
            made = composition.prepare("", options, seed=1, cache="")
            rows = made.run_part(made.settings[0], 0, None)["queries"]
        table = pd.DataFrame(rows).assign(setting=made.settings[0].name, repeat=0)
        files = made.files({"queries": table}, None)
        self.assertTrue(files["queries.png"].startswith(b"\x89PNG"))
        self.assertIn("| asymmetric | 3 | 10,000 |", files["table.md"].decode())
        self.assertEqual(
            options.cohorts,
            (10**3, 10**4, 10**5, 10**6, 10**7),
        )


if __name__ == "__main__":
    absltest.main()
