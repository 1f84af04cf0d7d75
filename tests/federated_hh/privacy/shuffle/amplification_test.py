"""Tests of amplification by shuffling: soundness, and the best proved bound."""

import math
import os

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy import guarantee
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import blanket, clones
from federated_hh.privacy.shuffle.amplification import Method, Randomizer, Reports
from tests.federated_hh.privacy import enumeration

# Random randomizers and data sets of the soundness search; 10,000 were searched once.
_CASES = int(os.environ.get("SOUNDNESS_CASES", "150"))


def _random_randomizer(generator) -> tuple[np.ndarray, float]:
    """Draws a finite randomizer and computes its local epsilon."""
    inputs, outputs = generator.integers(2, 5), generator.integers(2, 4)
    exponents = generator.uniform(0, generator.uniform(0.2, 3.0), (inputs, outputs))
    if generator.integers(2):
        # Two-valued columns are where the bounds are close.
        exponents = np.where(exponents > exponents.mean(), exponents.max(), 0.0)
    matrix = np.exp(exponents) * generator.dirichlet(np.ones(outputs))
    matrix /= matrix.sum(axis=1, keepdims=True)
    ratios = matrix.max(axis=0) / matrix.min(axis=0)
    return matrix, float(np.log(ratios.max()))


class SoundnessTest(parameterized.TestCase):
    """The exactly enumerated delta is never above a bound."""

    def _assert_sound(self, bound, epsilon, laws):
        exact = max(
            enumeration.delta(epsilon, *laws), enumeration.delta(epsilon, *laws[::-1])
        )
        self.assertLessEqual(exact, bound.delta(epsilon) * (1 + 1e-9) + 1e-15)

    def test_random_randomizers(self):
        generator = np.random.default_rng(31)
        stronger_used = 0
        for _ in range(_CASES):
            matrix, local = _random_randomizer(generator)
            if local < 1e-3:
                continue
            n = int(generator.integers(2, 7))
            others = generator.integers(len(matrix), size=n - 1).tolist()
            pair = generator.choice(len(matrix), size=2, replace=False).tolist()
            laws = [enumeration.histogram_law(matrix, [x, *others]) for x in pair]
            epsilon = float(local * generator.uniform(0, 1))
            local *= 1 + 1e-12
            self._assert_sound(
                clones.ClonePair(local, n, stronger=False), epsilon, laws
            )
            if enumeration.decomposition_holds(matrix, local):
                stronger_used += 1
                self._assert_sound(
                    clones.ClonePair(local, n, stronger=True), epsilon, laws
                )
        self.assertGreater(stronger_used, _CASES // 20)

    def test_subset_selection(self):
        generator = np.random.default_rng(32)
        closest = 0.0
        for _ in range(max(20, _CASES // 5)):
            s = int(generator.integers(2, 6))
            size = int(generator.integers(1, s))
            local = float(generator.uniform(0.2, 3.0))
            n = int(generator.integers(2, 5))
            matrix = enumeration.subset_selection(local, s, size)
            others = generator.integers(s, size=n - 1).tolist()
            pair = generator.choice(s, size=2, replace=False).tolist()
            laws = [enumeration.histogram_law(matrix, [x, *others]) for x in pair]
            epsilon = float(local * generator.uniform(0, 1))
            bound = blanket.SubsetSelectionBlanket(local, s, n, size)
            self._assert_sound(bound, epsilon, laws)
            closest = max(
                closest, enumeration.delta(epsilon, *laws) / bound.delta(epsilon)
            )
        # The bound is not vacuous either.
        self.assertGreater(closest, 0.9)

    @parameterized.parameters(False, True)
    def test_one_hot_encodings_seen_through_the_sum(self, symmetric):
        generator = np.random.default_rng(33)
        for _ in range(max(10, _CASES // 10)):
            local = float(generator.uniform(0.2, 3.0))
            n = int(generator.integers(2, 5))
            matrix, vectors = enumeration.one_hot(local, 3, symmetric)
            others = generator.integers(3, size=n - 1).tolist()
            laws = [enumeration.sum_law(matrix, [x, *others], vectors) for x in (0, 1)]
            replacement = 2 * local if symmetric else local
            epsilon = float(replacement * generator.uniform(0, 1))
            pair = clones.ClonePair(replacement, n, stronger=True)
            self._assert_sound(pair, epsilon, laws)

    def test_the_variation_ratio_pair_would_be_caught(self):
        # 3-ary randomized response, epsilon_0 = 0.5, n = 2: 0.01943 at epsilon = 0.4,
        # where a published reduction, not used here, gives 0.01179.
        matrix = np.ones((3, 3)) + math.expm1(0.5) * np.eye(3)
        matrix /= matrix[0].sum()
        exact = max(
            enumeration.delta(
                0.4,
                enumeration.histogram_law(matrix, [0, other]),
                enumeration.histogram_law(matrix, [1, other]),
            )
            for other in range(3)
        )
        self.assertAlmostEqual(exact, 0.01943, delta=5.1e-6)
        bound = blanket.SubsetSelectionBlanket(0.5, 3, 2, 1)
        self.assertGreaterEqual(bound.delta(0.4), exact * (1 - 1e-12))


class AmplifyTest(parameterized.TestCase):
    def test_run_of_sun_et_al(self):
        guarantee, level = shuffling.amplify_over_levels(
            10.0, [10001] + 14 * [1000001], num_reports=3 * 10**7, delta=1e-10
        )
        self.assertAlmostEqual(guarantee.epsilon, 0.1757, delta=5.1e-5)
        self.assertEqual(level, 1)
        self.assertIn("blanket", guarantee.bound)
        with self.assertRaisesRegex(ValueError, "domain_sizes"):
            shuffling.amplify_over_levels(1.0, [], num_reports=10, delta=0.1)

    @parameterized.parameters(
        (10.0, 10**6, 1.0), (4.0, 3000, 0.8), (0.5, 10, 1.0), (8.0, 400, 1.0)
    )
    def test_the_worst_level_is_that_of_each_alone(self, local, n, honest):
        sizes = [1_000_001, 28, 57, 10_001, 28, 3, 766_288]
        options = dict(num_reports=n, delta=1e-8, honest_fraction=honest)
        alone = [
            shuffling.amplify(
                shuffling.Reports(
                    randomizer=shuffling.Randomizer.SUBSET_SELECTION,
                    local_epsilon=local,
                    domain_size=size,
                ),
                **options,
            ).epsilon
            for size in sizes
        ]
        found, level = shuffling.amplify_over_levels(local, sizes, **options)
        self.assertEqual((found.epsilon, level), (max(alone), np.argmax(alone) + 1))

    @parameterized.parameters(
        ((3, 1), (2935, 1405, 736)),
        ((6, 1), (67838, 34078, 17079)),
        ((5, 1), (24645, 12325, 6202)),
        ((5, 0.5), (169931, 39324, 19793)),
        ((2, 0.3), (19485, 2944, 1670)),
        ((8, 1), (504433, 253962, 127022)),
    )
    def test_minimum_cohorts(self, wanted, expected):
        local, epsilon = wanted
        any_kind = Reports(randomizer=Randomizer.ARBITRARY, local_epsilon=local)
        one_hot = Reports(randomizer=Randomizer.ASYMMETRIC_ONE_HOT, local_epsilon=local)
        for reports, method, count in (
            (one_hot, Method.EQUATION_1, expected[0]),
            (any_kind, None, expected[1]),
            (one_hot, None, expected[2]),
        ):
            found = shuffling.minimum_reports(
                reports, epsilon=epsilon, delta=1e-6, method=method
            )
            self.assertEqual(found, count)

    def test_minimum_cohort_with_dishonest_reports(self):
        reports = Reports(randomizer=Randomizer.ARBITRARY, local_epsilon=3)
        found = shuffling.minimum_reports(
            reports, epsilon=1.0, delta=1e-6, honest_fraction=0.8
        )
        self.assertEqual(math.floor(found * 0.8), 1405)
        self.assertLess(math.floor((found - 1) * 0.8), 1405)

    def test_honest_fraction_is_as_many_fewer_reports(self):
        reports = Reports(randomizer=Randomizer.ARBITRARY, local_epsilon=3)
        few = shuffling.amplify(reports, num_reports=8000, delta=1e-6)
        some = shuffling.amplify(
            reports, num_reports=10000, delta=1e-6, honest_fraction=0.8
        )
        self.assertEqual(few.epsilon, some.epsilon)
        self.assertTrue(any("honest" in text for text in some.assumptions))

    @parameterized.parameters(*Randomizer)
    def test_best_bound_is_the_smallest_and_named(self, randomizer):
        reports = Reports(randomizer=randomizer, local_epsilon=1.0, domain_size=20)
        best = shuffling.amplify(reports, num_reports=1200, delta=1e-6)
        named = {}
        for method in reports.methods:
            named[method.value] = shuffling.amplify(
                reports, num_reports=1200, delta=1e-6, method=method
            ).epsilon
        self.assertEqual(best.epsilon, min(named.values()))
        self.assertEqual(named[best.bound], best.epsilon)
        self.assertIs(best.adjacency, guarantee.Adjacency.REPLACE_ONE_ITEM)

    def test_no_amplification_is_local_dp(self):
        reports = Reports(randomizer=Randomizer.SYMMETRIC_ONE_HOT, local_epsilon=5.0)
        found = shuffling.amplify(reports, num_reports=2, delta=1e-9)
        self.assertEqual(found.epsilon, 10.0)
        self.assertIn("no amplification", found.bound)

    def test_erratum_is_kept(self):
        for randomizer in (Randomizer.ARBITRARY, Randomizer.SUBSET_SELECTION):
            reports = Reports(randomizer=randomizer, local_epsilon=1.0, domain_size=9)
            for method in (Method.CLONES_2022, Method.EQUATION_1):
                with self.assertRaisesRegex(ValueError, "not proved"):
                    shuffling.amplify(
                        reports, num_reports=10**5, delta=1e-6, method=method
                    )

    @parameterized.parameters(
        ({"local_epsilon": -1.0}, "local_epsilon"),
        ({"local_epsilon": math.nan}, "local_epsilon"),
        ({"local_epsilon": 101.0}, "local_epsilon"),
        ({"domain_size": 1}, "domain_size"),
        ({"domain_size": None}, "domain_size"),
        ({"num_reports": 1}, "num_reports"),
        ({"num_reports": 2.5}, "num_reports"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
        ({"honest_fraction": 1e-9}, "honest_fraction"),
    )
    def test_bad_input(self, change, message):
        values = {
            "local_epsilon": 1.0,
            "domain_size": 10,
            "num_reports": 1000,
            "delta": 1e-6,
            "honest_fraction": 1.0,
        } | change
        with self.assertRaisesRegex(ValueError, message):
            shuffling.amplify(
                Reports(
                    randomizer=Randomizer.SUBSET_SELECTION,
                    local_epsilon=values["local_epsilon"],
                    domain_size=values["domain_size"],
                ),
                num_reports=values["num_reports"],
                delta=values["delta"],
                honest_fraction=values["honest_fraction"],
            )

    def test_numbers_stay_numbers_at_the_ends(self):
        generator = np.random.default_rng(34)
        for _ in range(12):
            local = float(10 ** generator.uniform(-2, math.log10(20)))
            n = int(10 ** generator.uniform(0.31, 9))
            delta = float(10 ** generator.uniform(-15, -1))
            size = int(10 ** generator.uniform(0.31, 7))
            bounds = [
                clones.ClonePair(local, n, stronger=False),
                clones.ClonePair(local, n, stronger=True),
            ]
            bounds.append(blanket.SubsetSelectionBlanket(local, size, n))
            for bound in bounds:
                with np.errstate(all="raise", under="ignore"):
                    epsilon = bound.epsilon(delta)
                self.assertBetween(epsilon, 0.0, local)
                self.assertLessEqual(bound.delta(epsilon), delta)
                if epsilon > 0:
                    self.assertGreater(bound.delta(epsilon * 0.99), delta)


if __name__ == "__main__":
    absltest.main()
