"""Tests of the clones bounds and of the closed forms."""

import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy import loss_composition
from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.privacy.shuffle import clones, closed_forms
from federated_hh.privacy.shuffle.amplification import Randomizer
from tests.federated_hh.privacy import enumeration


class ClosedFormTest(parameterized.TestCase):
    @parameterized.parameters(
        (10, 3 * 10**7, 1e-10, 0.56544),
        (3, 10**4, 1e-6, 0.6546),
        (3, 10**5, 1e-6, 0.2551),
        (6, 10**5, 1e-6, 0.8804),
        (6, 10**6, 1e-6, 0.3667),
    )
    def test_equation_1(self, local, n, delta, expected):
        value = closed_forms.amplified_epsilon(local, n, delta)
        self.assertAlmostEqual(value, expected, delta=5.1e-5)

    @parameterized.parameters((3, 1000, 1e-6), (6, 10**4, 1e-6), (1, 20, 1e-10))
    def test_equation_1_is_refused_outside_its_range(self, local, n, delta):
        with self.assertRaisesRegex(ValueError, "local_epsilon = .* validity range"):
            closed_forms.amplified_epsilon(local, n, delta)

    def test_equation_1_is_above_the_proved_numeric_bound(self):
        for local in (0.1, 0.5, 1.0, 2.0, 5.0, 10.0):
            for n in (10**3, 10**5, 10**8):
                for delta in (1e-4, 1e-10):
                    if local > closed_forms.largest_valid_local_epsilon(n, delta):
                        continue
                    numeric = clones.ClonePair(local, n, stronger=False)
                    self.assertGreater(
                        closed_forms.amplified_epsilon(local, n, delta),
                        1.2 * numeric.epsilon(delta),
                    )

    # Zhu et al. 2020, section 5; n of the Sentiment140 users and of the OOV sample.
    @parameterized.parameters(
        (659774, 1, 4.2945, 4.29),
        (659774, 4, 4.9617, 4.96),
        (6 * 10**6, 1, 5.3124, 5.31),
        (6 * 10**6, 4, 5.9895, 5.99),
    )
    def test_sfp_local_epsilons(self, n, epsilon, expected, printed):
        delta = 1 / n**2
        local = closed_forms.hoeffding_blanket_local_epsilon(epsilon, delta, n)
        self.assertAlmostEqual(local, expected, delta=5.1e-5)
        self.assertEqual(round(local, 2), printed)
        log_delta = closed_forms.hoeffding_blanket_log_delta(epsilon, local, n)
        self.assertLessEqual(log_delta, math.log(delta))
        # The bound is a bound: the proved numeric one is never above it.
        pair = clones.ClonePair(local, n, stronger=False)
        self.assertLess(pair.delta(epsilon), delta)

    @parameterized.parameters(
        (659774, 1, 8.11), (659774, 4, 9.42), (6 * 10**6, 1, 10.14)
    )
    def test_tighter_sfp_local_epsilons(self, n, epsilon, expected):
        local = shuffling.largest_local_epsilon(
            Randomizer.ARBITRARY, epsilon=epsilon, delta=1 / n**2, num_reports=n
        )
        self.assertAlmostEqual(local, expected, delta=0.0051)


class ClonesTest(parameterized.TestCase):
    @parameterized.parameters(
        (10, 3 * 10**7, 1e-10, 0.30747, 0.21384),
        (4, 10**5, 1e-6, 0.16977, None),
        (3, 1000, 1e-6, 1.2646, 0.8231),
        (3, 10**4, 1e-6, 0.3207, 0.2261),
        (3, 10**5, 1e-6, 0.0928, 0.0656),
        (6, 10**4, 1e-6, 5.721, 1.4724),
        (6, 10**5, 1e-6, 0.5242, 0.3570),
        (6, 10**6, 1e-6, 0.1493, 0.1031),
    )
    def test_known_values(self, local, n, delta, first, second):
        for stronger, expected in ((False, first), (True, second)):
            if expected is not None:
                value = clones.ClonePair(local, n, stronger=stronger).epsilon(delta)
                digits = len(str(expected).split(".")[1])
                self.assertAlmostEqual(value, expected, delta=0.51 * 10**-digits)

    @parameterized.product(stronger=(False, True), n=(2, 3, 12), local=(0.3, 1.5, 4.0))
    def test_equals_enumeration_of_the_pair(self, stronger, n, local):
        pair = clones.ClonePair(local, n, stronger=stronger)
        inverse = math.exp(-local)
        share = 2 * inverse / (1 + inverse) if stronger else inverse
        honest = 1 / (1 + inverse)
        laws: list[dict] = [{}, {}]
        for c in range(n):
            for a in range(c + 1):
                chance = stats.binom.pmf(c, n - 1, share) * stats.binom.pmf(a, c, 0.5)
                for law, first in zip(laws, (honest, 1 - honest), strict=True):
                    for d, probability in ((1, first), (0, 1 - first)):
                        key = (a + d, c - a + 1 - d)
                        law[key] = law.get(key, 0.0) + chance * probability
        for epsilon in (0.0, 0.1 * local, 0.5 * local, 0.9 * local):
            exact = enumeration.delta(epsilon, *laws)
            value = pair.delta(epsilon)
            self.assertGreaterEqual(value, exact * (1 - 1e-12))
            self.assertAlmostEqual(value, exact, delta=1e-7 * exact + 1e-15)

    def test_blocks_of_clones_cost_little(self):
        # 4e6 clones, in blocks of 5, against the sum over each number of them.
        local, n, epsilon = 2.0, 3 * 10**7, 0.003
        pair = clones.ClonePair(local, n, stronger=False)
        share = math.exp(-local)
        mean, reach = n * share, 9 * math.sqrt(n * share * (1 - share))
        c = np.arange(int(mean - reach), int(mean + reach))
        k = 0.5 + 0.5 * math.tanh(epsilon / 2) / math.tanh(local / 2)
        t = np.floor((c + 1) * k) + 1
        p, factor = 1 / (1 + share), math.exp(epsilon)
        high, low = stats.binom.sf(t - 2, c, 0.5), stats.binom.sf(t - 1, c, 0.5)
        each = p * high + (1 - p) * low - factor * ((1 - p) * high + p * low)
        exact = np.dot(stats.binom.pmf(c, n - 1, share), each)
        self.assertBetween(exact, 1e-13, 1e-5)
        self.assertGreaterEqual(pair.delta(epsilon), exact)
        self.assertLess(pair.delta(epsilon), exact * (1 + 1e-4))

    def test_decomposition_of_the_randomizers_it_is_used_for(self):
        for local in (0.1, 1.0, 3.0, 8.0):
            for symmetric in (False, True):
                # The two coordinates that a replacement touches, seen alone; the
                # third input is any other item.
                matrix, vectors = enumeration.one_hot(local, 3, symmetric)
                groups = vectors[:, 0] * 2 + vectors[:, 1]
                seen = np.stack(
                    [matrix[:, groups == g].sum(axis=1) for g in range(4)], axis=1
                )
                replacement = 2 * local if symmetric else local
                self.assertTrue(
                    enumeration.decomposition_holds(seen, replacement, (0, 1))
                )
            k_ary = np.full((5, 5), 1.0) + math.expm1(local) * np.eye(5)
            self.assertTrue(
                enumeration.decomposition_holds(k_ary / k_ary[0].sum(), local)
            )
            # The erratum's case: two items in one report.
            two = enumeration.subset_selection(local, 5, 2)
            self.assertFalse(enumeration.decomposition_holds(two, local))


class SmallestEpsilonTest(parameterized.TestCase):
    def test_inverts_a_known_function(self):
        for delta in (1e-15, 1e-3, 0.4):
            found = loss_composition.smallest_epsilon(
                lambda e: 0.5 * math.exp(-7 * e), delta, 10.0
            )
            self.assertAlmostEqual(found, math.log(0.5 / delta) / 7, places=6)
            self.assertLessEqual(0.5 * math.exp(-7 * found), delta * (1 + 1e-12))

    def test_ends(self):
        self.assertEqual(
            loss_composition.smallest_epsilon(lambda e: 1e-9, 0.1, 3.0), 0.0
        )
        self.assertEqual(
            loss_composition.smallest_epsilon(lambda e: 0.5, 0.1, 3.0), 3.0
        )


if __name__ == "__main__":
    absltest.main()
