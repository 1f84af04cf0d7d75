"""Tests of Theorem 1 and Corollary 1 against the paper's table and exact laws."""

import fractions
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import theorem1
from tests.federated_hh.privacy.triehh import triehh_law

# The words of the small populations: two symbols, "$" ends a word, so max_length = 3.
_WORDS = ("a$", "b$", "aa$", "ab$")


def _truncate(value: float) -> float:
    return math.floor(value * 100) / 100


def _delta_at(epsilon: float, law, other) -> float:
    """The smallest delta with P(S) <= e^epsilon Q(S) + delta for all S."""
    factor = fractions.Fraction(math.exp(epsilon))
    return float(triehh_law.exact_delta(factor, law, other))


class Theorem1Test(parameterized.TestCase):
    # Zhu et al. 2020, Table 1: epsilon = 2, L = 10. The paper cuts gamma after two
    # digits (rounding would give 15.11 and 33.72).
    @parameterized.parameters(
        (10**4, 10, 1.81, 12, 1.51),
        (10**5, 11, 5.21, 14, 4.09),
        (10**6, 12, 15.10, 15, 12.08),
        (10**7, 13, 44.09, 17, 33.71),
    )
    def test_table_1(self, n, theta, gamma, theta_squared, gamma_squared):
        for delta, expected in (
            (1 / (300 * n), (theta, gamma)),
            (1 / n**2, (theta_squared, gamma_squared)),
        ):
            threshold = theorem1.smallest_threshold(delta)
            value = theorem1.largest_gamma(
                population_size=n, threshold=threshold, max_length=10, epsilon=2.0
            )
            self.assertEqual((threshold, _truncate(value)), expected)
            solved = theorem1.solve_parameters(
                population_size=n, max_length=10, epsilon=2.0, delta=delta
            )
            self.assertEqual(solved.threshold, threshold)
            self.assertEqual(solved.cohort_size, math.floor(value * math.sqrt(n)))

    @parameterized.parameters(
        (1e4, 10, 1.81269), (1e6, 15, 12.08462), (1e7, 17, 33.71904)
    )
    def test_gamma_digits(self, n, theta, expected):
        value = theorem1.largest_gamma(
            population_size=int(n), threshold=theta, max_length=10, epsilon=2.0
        )
        self.assertAlmostEqual(value, expected, places=5)

    def test_closed_form_as_printed(self):
        parameters = triehh.TrieHHParameters(10**6, 12084, 15, 10)
        epsilon, delta = triehh.theorem1(parameters)
        printed = 10 * math.log(1 + 1 / (1000 / (parameters.gamma * 15) - 1))
        self.assertAlmostEqual(epsilon, printed, places=12)
        self.assertAlmostEqual(
            delta, 13 / (12 * math.factorial(15)), delta=1e-12 * delta
        )

    def test_smallest_threshold_is_smallest_for_any_delta(self):
        generator = np.random.default_rng(20)
        for delta in 10.0 ** generator.uniform(-300, -0.5, size=500):
            theta = theorem1.smallest_threshold(delta, minimum=4)
            exact = [
                fractions.Fraction(t - 2, (t - 3) * math.factorial(t))
                for t in (max(theta - 1, 4), theta)
            ]
            self.assertLessEqual(exact[1], fractions.Fraction(delta))
            if theta > 4:
                self.assertGreater(exact[0], fractions.Fraction(delta))
            self.assertEqual(theorem1.smallest_threshold(delta), max(10, theta))

    def test_solved_parameters_keep_the_guarantee_and_cannot_grow(self):
        generator = np.random.default_rng(21)
        solved = 0
        for _ in range(2000):
            n = int(10 ** generator.uniform(2, 9))
            length = int(generator.integers(1, 21))
            epsilon = 10 ** generator.uniform(-2, 1.3)
            delta = 10 ** generator.uniform(-15, -3)
            try:
                parameters = theorem1.solve_parameters(
                    population_size=n,
                    max_length=length,
                    epsilon=epsilon,
                    delta=delta,
                )
            except ValueError:
                continue
            solved += 1
            got = triehh.theorem1(parameters)
            self.assertLessEqual(got[0], epsilon)
            self.assertLessEqual(got[1], delta)
            larger = triehh.TrieHHParameters(
                n, parameters.cohort_size + 1, parameters.threshold, length
            )
            if triehh.theorem1_violation(larger) is None:
                self.assertGreater(triehh.theorem1(larger)[0], epsilon)
        self.assertGreater(solved, 700)

    def test_refuses_outside_theorem_1(self):
        for parameters, condition in (
            ((10**4, 181, 3, 10), "4 <= threshold"),
            ((10**4, 181, 101, 10), "4 <= threshold"),
            ((10**4, 99, 10, 10), "gamma .* >= 1"),
            ((10**4, 910, 10, 10), "gamma <= sqrt"),
        ):
            with self.assertRaisesRegex(ValueError, condition):
                triehh.theorem1(triehh.TrieHHParameters(*parameters))
        for parameters in ((10**4, 100, 10, 10), (10**4, 909, 10, 10)):
            triehh.theorem1(triehh.TrieHHParameters(*parameters))

    @parameterized.parameters(
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1e6}, "ask for at most"),
        ({"epsilon": 1e-6}, "larger population"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 1e-300}, "population of at least"),
        ({"population_size": 1}, "population_size"),
        ({"max_length": 0}, "max_length"),
    )
    def test_bad_requests(self, change, message):
        request = {
            "population_size": 10**4,
            "max_length": 10,
            "epsilon": 2.0,
            "delta": 1e-8,
        }
        with self.assertRaisesRegex(ValueError, message):
            theorem1.solve_parameters(**(request | change))


class ExactLawTest(parameterized.TestCase):
    """Theorem 1 against the enumerated law of the trie on small populations."""

    @parameterized.parameters((30, 6, 4), (36, 6, 4), (40, 8, 4), (54, 9, 5))
    def test_delta_is_never_above_theorem_1(self, n, cohort, threshold):
        parameters = triehh.TrieHHParameters(n, cohort, threshold, 3)
        epsilon, delta = triehh.theorem1(parameters)
        generator = np.random.default_rng(n)
        for mine in _WORDS:
            shares = generator.dirichlet(np.full(len(_WORDS) + 1, 0.7))
            counts = generator.multinomial(n - 1, shares)
            words = dict(zip(_WORDS, counts[:-1].tolist(), strict=True))
            law = triehh_law.trie_law(words, {mine: fractions.Fraction(1)}, parameters)
            emptied = triehh_law.trie_law(
                words, {None: fractions.Fraction(1)}, parameters
            )
            self.assertAlmostEqual(float(sum(law.values())), 1.0, places=12)
            self.assertLessEqual(_delta_at(epsilon, law, emptied), delta)

    def test_redrawing_users_stay_within_the_same_delta(self):
        # Corollary 2 of Zhu et al.
        parameters = triehh.TrieHHParameters(36, 6, 4, 3)
        epsilon, delta = triehh.theorem1(parameters)
        half = fractions.Fraction(1, 2)
        generator = np.random.default_rng(5)
        for pair in itertools.combinations(_WORDS, 2):
            counts = generator.multinomial(35, generator.dirichlet(np.ones(5)))
            words = dict(zip(_WORDS, counts[:-1].tolist(), strict=True))
            law = triehh_law.trie_law(words, dict.fromkeys(pair, half), parameters)
            emptied = triehh_law.trie_law(
                words, {None: fractions.Fraction(1)}, parameters
            )
            self.assertLessEqual(_delta_at(epsilon, law, emptied), delta)

    def test_is_never_below_the_curve(self):
        # The curve holds, so a theorem that said less would be wrong.
        generator = np.random.default_rng(22)
        compared = 0
        while compared < 300:
            n = int(10 ** generator.uniform(2, 8))
            theta = int(generator.integers(4, 30))
            cohort = int(n ** generator.uniform(0.5, 0.9))
            parameters = triehh.TrieHHParameters(n, cohort, theta, 10)
            if triehh.theorem1_violation(parameters) is not None:
                continue
            compared += 1
            epsilon, delta = triehh.theorem1(parameters)
            rounds = parameters.voting_rounds()
            self.assertLess(rounds.delta(epsilon), delta)
            self.assertLessEqual(rounds.epsilon(delta), epsilon)


if __name__ == "__main__":
    absltest.main()
