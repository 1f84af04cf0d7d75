"""Tests of budgets: the checks of section 4.3, crashes, and hostile analysts."""

import dataclasses
import fractions
import functools
import math
import os
import signal
import subprocess
import sys
from unittest import mock

import hypothesis
import mpmath
import numpy as np
from absl.testing import absltest, parameterized
from dp_accounting import rdp
from hypothesis import strategies as st

from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import renyi_aggregation
from federated_hh.statistics.devices import budget
from tests import ROOT
from tests.federated_hh.statistics import cases

_BOTH = frozenset(["age", "ngrams"])
_GRAMS = frozenset(["ngrams"])
# Of the order, epsilon 0.5 of age is enough for something.
_RENYI = {
    "composition": device_policy.Composition.RENYI,
    "slack": 1e-6,
    "order": 50,
}
_CRASH = """
import os, signal, sys
from federated_hh.statistics.devices import budget
from federated_hh.statistics.recipes import recipe
from federated_hh.privacy.local import device_policy
from federated_hh.privacy.shuffle import amplification as shuffling
limits = device_policy.Limits(aggregate_epsilon=1, reports=2, local_epsilon=5)
accountant = budget.Accountant(
    device_policy.Policy(
        analysis="com.example.keyboard-ngrams",
        limits=limits,
        fields={"ngrams": limits},
        randomizer=shuffling.Randomizer.ASYMMETRIC_ONE_HOT,
        delta=1e-6,
    ),
    sys.argv[1],
)
assert accountant.charge(7, ["ngrams"], recipe.Recipe.parse(sys.argv[2])) is None
os.kill(os.getpid(), signal.SIGKILL)  # before anything is answered
"""


def _asks(epsilon, local=2, minimum=10**9):
    return cases.recipe(
        privacyBudget__cohortAggregateEpsilon=epsilon,
        privacyBudget__localEpsilon=local,
        privacyBudget__minimumCohort=minimum,
    )


class AccountantTest(parameterized.TestCase):
    def open(self, path=":memory:", **changes):
        policy = cases.approval(**changes).policy
        return self.enter_context(budget.Accountant(policy, path))

    def test_checks_come_in_the_order_of_the_paper(self):
        for recipe, fields, check in (
            # Each is beyond that check and all after it.
            (_asks(1.1, local=6, minimum=2), _BOTH, 1),
            (_asks(1.1, minimum=2), _BOTH, 1),
            (_asks(0.6, minimum=2), _BOTH, 2),
            (_asks(0.5, local=2.5, minimum=2), _BOTH, 2),
            (_asks(0.5, minimum=2), {"name"}, 2),
            (_asks(0.5, minimum=2), _BOTH, 3),
        ):
            accountant = self.open()
            self.assertEqual(accountant.charge(1, fields, recipe).check, check)
            # Nothing is charged where nothing is answered.
            self.assertEqual(accountant.spent(1), {})

    def test_minimum_cohort_is_that_of_the_amplification(self):
        reports = shuffling.Reports(
            randomizer=shuffling.Randomizer.ASYMMETRIC_ONE_HOT, local_epsilon=2
        )
        asymmetric = shuffling.Randomizer.ASYMMETRIC_ONE_HOT
        least = device_policy.minimum_cohort(asymmetric, 2_000_000, 500_000, 1e-6)
        for count, is_enough in ((least, True), (least - 1, False)):
            found = shuffling.amplify(reports, num_reports=count, delta=1e-6)
            self.assertEqual(found.epsilon <= 0.5, is_enough)
            refusal = self.open().charge(1, _GRAMS, _asks(0.5, minimum=count))
            self.assertEqual(refusal is None, is_enough)
        # The symmetric encoding has half the local epsilon for deletion.
        symmetric = shuffling.Randomizer.SYMMETRIC_ONE_HOT
        policy = cases.approval(randomizer=symmetric).policy
        reports = shuffling.Reports(randomizer=symmetric, local_epsilon=1)
        found = shuffling.amplify(reports, num_reports=100, delta=1e-6)
        self.assertEqual(policy.cohort_epsilon(2_000_000, 100), found.epsilon)

    def test_devices_and_fields_are_charged_each_for_itself(self):
        accountant = self.open()
        self.assertIsNone(accountant.charge(1, _BOTH, _asks(0.25)))
        self.assertIsNone(accountant.charge(1, _GRAMS, _asks(0.125)))
        self.assertIsNone(accountant.charge(2, _GRAMS, _asks(1)))
        both = device_policy.Spent(250_000, 250_000**2, 1)
        grams = device_policy.Spent(125_000, 125_000**2, 1)
        self.assertEqual(
            accountant.spent(1),
            {"the analysis": both.and_(grams), "age": both, "ngrams": both.and_(grams)},
        )
        # Age allows two reports of 0.5 together; n-grams three of 1.
        self.assertIsNone(accountant.charge(1, _BOTH, _asks(0.25)))
        self.assertEqual(accountant.charge(1, _BOTH, _asks(1e-6)).check, 2)
        self.assertEqual(accountant.charge(1, _GRAMS, _asks(1e-6)).check, 2)
        self.assertEqual(accountant.charge(2, _GRAMS, _asks(1e-6)).check, 1)
        accountant.forget([1])
        self.assertEqual(accountant.spent(1), {})
        self.assertLen(accountant.spent(2), 2)

    def test_a_block_is_charged_as_its_devices_one_by_one(self):
        together, apart = self.open(), self.open()
        generator = np.random.default_rng(5)
        kinds = [_BOTH, _GRAMS, frozenset(["age"]), frozenset(["name"])]
        outcomes = set()
        for _ in range(25):
            devices = generator.choice(8, generator.integers(1, 9), replace=False)
            fields = kinds[generator.choice(4, p=[0.4, 0.3, 0.2, 0.1])]
            recipe = _asks(float(generator.choice([0.25, 0.125, 0.4])))
            found = together.charge_each(devices.tolist(), fields, recipe)
            alone = [apart.charge(i, fields, recipe) for i in devices.tolist()]
            self.assertEqual(found, alone)
            outcomes.add(len({refusal is None for refusal in found}))
            for i in range(8):
                self.assertEqual(together.spent(i), apart.spent(i))
        # Some blocks were of devices that differ.
        self.assertEqual(outcomes, {1, 2})

    def test_a_block_is_charged_whole_or_not_at_all(self):
        accountant = self.open()
        with self.assertRaises(TypeError):
            accountant.charge_each([1, 2, object()], _GRAMS, _asks(0.25))
        with (
            mock.patch.object(budget, "decide", side_effect=[None, KeyboardInterrupt]),
            self.assertRaises(KeyboardInterrupt),
        ):
            self.assertIsNone(accountant.charge(1, _BOTH, _asks(0.25)))
            accountant.charge_each([1, 2], _GRAMS, _asks(0.25))
        self.assertLen(accountant.spent(1), 3)
        self.assertEqual(accountant.spent(2), {})
        self.assertIsNone(accountant.charge(2, _GRAMS, _asks(0.25)))

    def test_no_drift(self):
        limits = device_policy.Limits(
            aggregate_epsilon=0.3, reports=900, local_epsilon=5
        )
        accountant = self.open(limits=limits, fields={"ngrams": limits})
        for _ in range(3):
            self.assertIsNone(accountant.charge(1, _GRAMS, _asks(0.1)))
        self.assertEqual(accountant.charge(1, _GRAMS, _asks(1e-6)).check, 1)

    def test_a_charge_is_on_disk_before_the_answer(self):
        # What a power cut would show; 3 is "extra": the folder's entry is synced too.
        path = os.path.join(self.create_tempdir().full_path, "spent.sqlite")
        with budget.Accountant(cases.approval().policy, path) as accountant:
            (level,) = accountant._database.execute("pragma synchronous").fetchone()
        self.assertEqual(level, 3)

    def test_kept_when_the_device_stops_before_it_answers(self):
        path = os.path.join(self.create_tempdir().full_path, "spent.sqlite")
        done = subprocess.run(
            [sys.executable, "-c", _CRASH, path, cases.figure_4()],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        spent = self.open(path).spent(7)
        self.assertEqual(spent["ngrams"], device_policy.Spent(250_000, 250_000**2, 1))

    def test_what_is_on_file_belongs_to_its_terms(self):
        path = os.path.join(self.create_tempdir().full_path, "spent.sqlite")
        policy = cases.approval().policy
        with budget.Accountant(policy, path) as accountant:
            self.assertIsNone(accountant.charge(1, _GRAMS, _asks(0.25)))
        more = dataclasses.replace(policy.limits, aggregate_epsilon=2)
        with budget.Accountant(
            dataclasses.replace(policy, limits=more), path
        ) as accountant:
            self.assertLen(accountant.spent(1), 2)
        for changes in (
            {"composition": device_policy.Composition.ADVANCED, "slack": 1e-6},
            {**_RENYI, "order": 60},
            {"delta": 1e-5},
            {"randomizer": shuffling.Randomizer.SYMMETRIC_ONE_HOT},
            {"analysis": "com.example.other"},
        ):
            other = dataclasses.replace(policy, **changes)
            with self.assertRaisesRegex(ValueError, "under a policy with"):
                budget.Accountant(other, path)

    def test_a_device_is_charged_once_at_a_time(self):
        accountant = self.open()
        with self.assertRaisesRegex(ValueError, "devices has one twice"):
            accountant.charge_each([3, 4, 3], _GRAMS, _asks(0.25))
        self.assertEqual(accountant.spent(3), {})

    def test_advanced_composition_allows_more_and_no_more_than_its_theorem(self):
        limits = device_policy.Limits(
            aggregate_epsilon=1.0, reports=900, local_epsilon=5
        )
        accountant = self.open(
            limits=limits,
            fields={"ngrams": limits},
            composition=device_policy.Composition.ADVANCED,
            slack=1e-6,
        )
        answered = 0
        while accountant.charge(1, _GRAMS, _asks(0.01)) is None:
            answered += 1

        def epsilon(count):
            squares = count * mpmath.mpf("0.01") ** 2
            return mpmath.sqrt(2 * mpmath.log(10**6) * squares) + squares / 2

        self.assertGreater(answered, 100)
        self.assertLessEqual(epsilon(answered), 1)
        self.assertGreater(epsilon(answered + 1), 1)
        policy = cases.approval(
            limits=limits, composition=device_policy.Composition.ADVANCED, slack=1e-6
        ).policy
        self.assertAlmostEqual(policy.total_delta(), 901e-6, delta=1e-15)

    def test_renyi_composition_is_one_of_its_order(self):
        limits = device_policy.Limits(
            aggregate_epsilon=1.0, reports=900, local_epsilon=5
        )
        changes = {"limits": limits, "fields": {"ngrams": limits}, **_RENYI}
        accountant = self.open(**changes)
        # A large cohort: its divergence is small, whatever epsilon is asked for.
        recipe = _asks(0.1, local=2, minimum=20_000)
        answered = 0
        while accountant.charge(1, _GRAMS, recipe) is None:
            answered += 1
        order = _RENYI["order"]
        rho = renyi_aggregation.asymmetric_one_hot_rho(order, 2.0, 20_000)

        def epsilon(count):
            found, _ = rdp.compute_epsilon([order], [count * rho], 1e-6)
            return found

        self.assertGreater(answered, 50)
        self.assertLessEqual(epsilon(answered), 1)
        self.assertGreater(epsilon(answered + 1), 1)
        policy = cases.approval(**changes).policy
        self.assertEqual(policy.total_delta(), math.nextafter(1e-6, 1))
        spent = accountant.spent(1)["ngrams"]
        self.assertEqual(spent.reports, answered)
        found = policy.epsilon_of(spent.divergence)
        self.assertBetween(found, 0.99, 1)
        self.assertAlmostEqual(found, epsilon(answered), places=6)
        refusal = accountant.charge(1, _GRAMS, recipe)
        self.assertEqual(refusal.check, 1)
        self.assertIn("divergence", refusal.reason)
        # Basic composition of the same reports allows ten.
        basic = self.open(limits=limits, fields={"ngrams": limits})
        for _ in range(10):
            self.assertIsNone(basic.charge(1, _GRAMS, recipe))
        self.assertIsNotNone(basic.charge(1, _GRAMS, recipe))

    def test_renyi_limits_are_exact(self):
        policy = cases.approval(**_RENYI).policy
        with mpmath.workdps(40):
            conversion = mpmath.log1p(mpmath.mpf(-1) / 50)
            conversion -= mpmath.log(50 * mpmath.mpf(1e-6)) / 49
            allowed = int(mpmath.floor((1 - conversion) * 10**12))
        one = device_policy.Spent(1, 1, 1, 1)
        for divergence, is_allowed in ((allowed - 1, True), (allowed, False)):
            spent = device_policy.Spent(divergence=divergence)
            reason = policy.refusal(spent, policy.limits, one)
            self.assertEqual(reason is None, is_allowed)

    @parameterized.parameters((1.0, 1e-6), (0.3, 1e-9), (5.0, 1e-6), (10.0, 1e-3))
    def test_the_order_is_near_the_best(self, epsilon, slack):
        def room(order):
            # Of a divergence c order, the largest c.
            of_divergence, _ = rdp.compute_epsilon([order], [50.0], slack)
            return (epsilon - (of_divergence - 50)) / order

        chosen = device_policy.renyi_order(epsilon, slack)
        best = max(room(order) for order in range(2, 2000))
        self.assertGreater(room(chosen), 0.9 * best)

    @parameterized.parameters(
        ({"slack": 0.1}, "slack is"),
        ({"composition": device_policy.Composition.ADVANCED}, "slack is"),
        ({"composition": device_policy.Composition.RENYI}, "slack is"),
        ({**_RENYI, "order": None}, "order is None"),
        ({**_RENYI, "order": 1}, "order is 1"),
        ({"order": 5}, "order is 5"),
        ({**_RENYI, "order": 5}, "aggregate_epsilon is 1; it has to be above 2.8"),
        ({**_RENYI, "randomizer": shuffling.Randomizer.K_ARY}, "composition is renyi"),
        ({**_RENYI, "slack": 0.5}, "slack is 0.5"),
        ({"delta": 0}, "delta"),
        (
            {
                "limits": device_policy.Limits(
                    aggregate_epsilon=1, reports=1, local_epsilon=41
                )
            },
            "local_epsilon is 41",
        ),
        ({"fields": {}}, "fields is"),
    )
    def test_bad_policies(self, changes, message):
        policy = cases.approval().policy
        values = {f.name: getattr(policy, f.name) for f in dataclasses.fields(policy)}
        with self.assertRaisesRegex(ValueError, message):
            device_policy.Policy(**values | changes)
        for bad in ({"aggregate_epsilon": 1e-7}, {"reports": 0}, {"reports": 901}):
            limits = {"aggregate_epsilon": 1, "reports": 1, "local_epsilon": 1}
            with self.assertRaisesRegex(ValueError, next(iter(bad))):
                device_policy.Limits(**limits | bad)


_queries = st.tuples(
    st.integers(0, 2),
    st.sampled_from([_BOTH, _GRAMS, frozenset(["age"]), frozenset(), {"name"}]),
    st.one_of(
        st.integers(1, 2_000_000),
        st.sampled_from([1, 249_999, 250_000, 333_333, 500_000, 10**6, 10**8]),
    ),
    # Few, as bounds of privacy take a while.
    st.sampled_from([1_000_000, 2_000_000, 5_000_000, 6_000_000]),
    st.sampled_from([2, 5000, 10**5, 2**53 - 1]),
)


class HostileAnalystTest(parameterized.TestCase):
    @parameterized.parameters(*device_policy.Composition)
    @hypothesis.settings(max_examples=60, deadline=None)
    @hypothesis.given(queries=st.lists(_queries, max_size=40))
    def test_no_device_ever_exceeds_a_limit(self, composition, queries):
        changes = {}
        if composition is device_policy.Composition.ADVANCED:
            changes = {"composition": composition, "slack": 1e-6}
        elif composition is device_policy.Composition.RENYI:
            changes = _RENYI
        policy = cases.approval(**changes).policy
        template = cases.recipe()
        # What left each device, by an account of the test's own.
        answered = {device: [] for device in range(3)}
        with budget.Accountant(policy) as accountant:
            for device, fields, units, local, minimum in queries:
                recipe = dataclasses.replace(
                    template,
                    aggregate_units=units,
                    local_units=local,
                    minimum_cohort=minimum,
                )
                if accountant.charge(device, fields, recipe) is None:
                    answered[device].append((fields, recipe))
        for asked in answered.values():
            for name, limits in (("", policy.limits), *policy.fields.items()):
                used = [r for fields, r in asked if not name or name in fields]
                self.check(used, limits, policy)
            self.assertTrue(all(fields <= _BOTH for fields, _ in asked))

    def check(self, used, limits, policy):
        self.assertLessEqual(len(used), limits.reports)
        epsilons = [fractions.Fraction(r.aggregate_units, 10**6) for r in used]
        squares = float(sum(e**2 for e in epsilons))
        spent = float(sum(epsilons))
        if policy.composition is device_policy.Composition.ADVANCED:
            advanced = math.sqrt(-2 * math.log(policy.slack) * squares) + squares / 2
            spent = min(spent, advanced)
        elif policy.composition is device_policy.Composition.RENYI:
            rhos = [
                _rho(policy.order, r.local_epsilon, min(r.minimum_cohort, 10**8))
                for r in used
            ]
            spent, _ = rdp.compute_epsilon([policy.order], [sum(rhos)], policy.slack)
        self.assertLessEqual(spent, limits.aggregate_epsilon + 1e-15)
        for recipe in used:
            self.assertLessEqual(recipe.local_epsilon, limits.local_epsilon)
            reports = shuffling.Reports(
                randomizer=shuffling.Randomizer.ASYMMETRIC_ONE_HOT,
                local_epsilon=recipe.local_epsilon,
            )
            if recipe.minimum_cohort <= 10**5:
                found = _amplified(reports, recipe.minimum_cohort)
                self.assertLessEqual(found, recipe.aggregate_epsilon)


@functools.cache
def _rho(order, local, count):
    return renyi_aggregation.asymmetric_one_hot_rho(order, local, count)


@functools.cache
def _amplified(reports, count):
    return shuffling.amplify(reports, num_reports=count, delta=1e-6).epsilon


if __name__ == "__main__":
    absltest.main()
