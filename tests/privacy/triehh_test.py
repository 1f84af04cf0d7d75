"""Tests of TrieHH's guarantee against the paper's table and exact enumeration."""

import fractions
import itertools
import math

import numpy as np
from absl.testing import absltest, parameterized

from privacy import triehh

# The words of the small populations: two symbols, "$" ends a word, so max_length = 3.
_WORDS = ("a$", "b$", "aa$", "ab$")


def _truncate(value: float) -> float:
    return math.floor(value * 100) / 100


def _round_outcomes(holders: dict[str, int], others: int, cohort: int, threshold: int):
    """Enumerates which prefixes of one round reach the threshold.

    Args:
        holders: Prefix to number of users who would vote for it.
        others: Users who would not vote.
        cohort: Users drawn, uniformly without replacement.
        threshold: Votes needed.

    Returns:
        Frozen set of kept prefixes to exact probability.
    """
    total = math.comb(sum(holders.values()) + others, cohort)
    law: dict[frozenset, fractions.Fraction] = {}
    names = sorted(holders)
    for votes in itertools.product(
        *(range(min(holders[name], cohort) + 1) for name in names)
    ):
        silent = cohort - sum(votes)
        if not 0 <= silent <= others:
            continue
        ways = math.comb(others, silent)
        for name, count in zip(names, votes, strict=True):
            ways *= math.comb(holders[name], count)
        kept = frozenset(
            name for name, count in zip(names, votes, strict=True) if count >= threshold
        )
        law[kept] = law.get(kept, 0) + fractions.Fraction(ways, total)
    return law


def _round_law(words, mixed, kept, level, parameters):
    """The law of a round where one user draws from `mixed` (None: votes nothing)."""
    law: dict[frozenset, fractions.Fraction] = {}
    for draw, probability in mixed.items():
        holders: dict[str, int] = {}
        for word, count in itertools.chain(words.items(), [(draw, 1)]):
            if word is None or len(word) < level or not count:
                continue
            if level == 1 or word[: level - 1] in kept:
                prefix = word[:level]
                holders[prefix] = holders.get(prefix, 0) + count
        others = parameters.population_size - sum(holders.values())
        outcomes = _round_outcomes(
            holders, others, parameters.cohort_size, parameters.threshold
        )
        for outcome, chance in outcomes.items():
            law[outcome] = law.get(outcome, 0) + probability * chance
    return law


def _trie_law(words, mixed, parameters, level=1, kept=frozenset()):
    """The exact law of the final trie: tuple of kept sets, level by level."""
    if level > parameters.max_length:
        return {(): fractions.Fraction(1)}
    law: dict[tuple, fractions.Fraction] = {}
    for now, chance in _round_law(words, mixed, kept, level, parameters).items():
        if not now:
            law[(now,)] = law.get((now,), 0) + chance
            continue
        for rest, later in _trie_law(words, mixed, parameters, level + 1, now).items():
            law[(now, *rest)] = law.get((now, *rest), 0) + chance * later
    return law


def _delta_at(epsilon: float, law, other) -> float:
    """The smallest delta with P(S) <= e^epsilon Q(S) + delta for all S."""
    return float(
        sum(
            max(0.0, float(chance) - math.exp(epsilon) * float(other.get(output, 0)))
            for output, chance in law.items()
        )
    )


class GuaranteeTest(parameterized.TestCase):
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
            threshold = triehh.smallest_threshold(delta)
            value = triehh.largest_gamma(
                population_size=n, threshold=threshold, max_length=10, epsilon=2.0
            )
            self.assertEqual((threshold, _truncate(value)), expected)
            solved = triehh.solve_parameters(
                population_size=n, max_length=10, epsilon=2.0, delta=delta
            )
            self.assertEqual(solved.threshold, threshold)
            self.assertEqual(solved.cohort_size, math.floor(value * math.sqrt(n)))

    @parameterized.parameters(
        (1e4, 10, 1.81269), (1e6, 15, 12.08462), (1e7, 17, 33.71904)
    )
    def test_gamma_digits(self, n, theta, expected):
        value = triehh.largest_gamma(
            population_size=int(n), threshold=theta, max_length=10, epsilon=2.0
        )
        self.assertAlmostEqual(value, expected, places=5)

    def test_closed_form_as_printed(self):
        parameters = triehh.TrieHHParameters(10**6, 12084, 15, 10)
        epsilon, delta = parameters.guarantee()
        printed = 10 * math.log(1 + 1 / (1000 / (parameters.gamma * 15) - 1))
        self.assertAlmostEqual(epsilon, printed, places=12)
        self.assertAlmostEqual(
            delta, 13 / (12 * math.factorial(15)), delta=1e-12 * delta
        )
        self.assertEqual(parameters.guarantee(redraws_each_round=True)[0], epsilon)
        self.assertAlmostEqual(
            parameters.guarantee(redraws_each_round=True)[1] / delta, 10, places=12
        )

    def test_smallest_threshold_is_smallest_for_any_delta(self):
        generator = np.random.default_rng(20)
        for delta in 10.0 ** generator.uniform(-300, -0.5, size=500):
            theta = triehh.smallest_threshold(delta, minimum=4)
            exact = [
                fractions.Fraction(t - 2, (t - 3) * math.factorial(t))
                for t in (max(theta - 1, 4), theta)
            ]
            self.assertLessEqual(exact[1], fractions.Fraction(delta))
            if theta > 4:
                self.assertGreater(exact[0], fractions.Fraction(delta))
            self.assertEqual(triehh.smallest_threshold(delta), max(10, theta))

    def test_solved_parameters_keep_the_guarantee_and_cannot_grow(self):
        generator = np.random.default_rng(21)
        solved = 0
        for _ in range(2000):
            n = int(10 ** generator.uniform(2, 9))
            length = int(generator.integers(1, 21))
            epsilon = 10 ** generator.uniform(-2, 1.3)
            delta = 10 ** generator.uniform(-15, -3)
            redraws = bool(generator.integers(2))
            try:
                parameters = triehh.solve_parameters(
                    population_size=n,
                    max_length=length,
                    epsilon=epsilon,
                    delta=delta,
                    redraws_each_round=redraws,
                )
            except ValueError:
                continue
            solved += 1
            got = parameters.guarantee(redraws_each_round=redraws)
            self.assertLessEqual(got[0], epsilon)
            self.assertLessEqual(got[1], delta)
            larger = triehh.TrieHHParameters(
                n, parameters.cohort_size + 1, parameters.threshold, length
            )
            if larger.violated_condition() is None:
                self.assertGreater(larger.guarantee()[0], epsilon)
        self.assertGreater(solved, 700)

    def test_refuses_outside_theorem_1(self):
        for parameters, condition in (
            ((10**4, 181, 3, 10), "4 <= threshold"),
            ((10**4, 181, 101, 10), "4 <= threshold"),
            ((10**4, 99, 10, 10), "gamma .* >= 1"),
            ((10**4, 910, 10, 10), "gamma <= sqrt"),
        ):
            with self.assertRaisesRegex(ValueError, condition):
                triehh.TrieHHParameters(*parameters).guarantee()
        for parameters in ((10**4, 100, 10, 10), (10**4, 909, 10, 10)):
            triehh.TrieHHParameters(*parameters).guarantee()

    @parameterized.parameters(
        ("population_size", (1, 1, 10, 10)),
        ("cohort_size", (100, 101, 10, 10)),
        ("cohort_size", (100, 0, 10, 10)),
        ("threshold", (100, 10, 0, 10)),
        ("max_length", (100, 10, 10, 0)),
        ("max_length", (100, 10, 10, 2.0)),
        ("threshold", (100, 10, True, 10)),
    )
    def test_bad_parameters(self, name, arguments):
        with self.assertRaisesRegex(ValueError, name):
            triehh.TrieHHParameters(*arguments)

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
            triehh.solve_parameters(**(request | change))


class ExactLawTest(parameterized.TestCase):
    """Theorem 1 against the enumerated law of the trie on small populations."""

    @parameterized.parameters((30, 6, 4), (36, 6, 4), (40, 8, 4), (54, 9, 5))
    def test_delta_is_never_above_theorem_1(self, n, cohort, threshold):
        parameters = triehh.TrieHHParameters(n, cohort, threshold, 3)
        epsilon, delta = parameters.guarantee()
        generator = np.random.default_rng(n)
        for mine in _WORDS:
            shares = generator.dirichlet(np.full(len(_WORDS) + 1, 0.7))
            counts = generator.multinomial(n - 1, shares)
            words = dict(zip(_WORDS, counts[:-1].tolist(), strict=True))
            law = _trie_law(words, {mine: fractions.Fraction(1)}, parameters)
            emptied = _trie_law(words, {None: fractions.Fraction(1)}, parameters)
            self.assertAlmostEqual(float(sum(law.values())), 1.0, places=12)
            self.assertLessEqual(_delta_at(epsilon, law, emptied), delta)

    def test_redrawing_users_stay_within_l_times_delta(self):
        parameters = triehh.TrieHHParameters(36, 6, 4, 3)
        epsilon, delta = parameters.guarantee(redraws_each_round=True)
        self.assertAlmostEqual(delta, 3 * parameters.guarantee()[1], places=12)
        half = fractions.Fraction(1, 2)
        generator = np.random.default_rng(5)
        for pair in itertools.combinations(_WORDS, 2):
            counts = generator.multinomial(35, generator.dirichlet(np.ones(5)))
            words = dict(zip(_WORDS, counts[:-1].tolist(), strict=True))
            law = _trie_law(words, dict.fromkeys(pair, half), parameters)
            emptied = _trie_law(words, {None: fractions.Fraction(1)}, parameters)
            self.assertLessEqual(_delta_at(epsilon, law, emptied), delta)

    def test_opposite_direction_fails_for_a_small_population(self):
        # The counterexample of the module's docstring.
        parameters = triehh.TrieHHParameters(54, 9, 5, 1)
        epsilon, delta = parameters.guarantee()
        words = {"a": 27, "b": 26}
        law = _trie_law(words, {"a": fractions.Fraction(1)}, parameters)
        emptied = _trie_law(words, {None: fractions.Fraction(1)}, parameters)
        self.assertLessEqual(_delta_at(epsilon, law, emptied), delta)
        self.assertEqual(delta, 0.0125)
        nothing = (frozenset(),)
        self.assertNotIn(nothing, law)
        self.assertGreater(emptied[nothing], 0.04)


class DiscoveryRateTest(parameterized.TestCase):
    @parameterized.parameters(
        (10**4, 12, 151, 900, 0.0358700225),
        (10**4, 12, 151, 1500, 0.9709157069),
        (10**5, 14, 1294, 1500, 0.4301662625),
    )
    def test_digits(self, n, theta, cohort, occurrences, expected):
        parameters = triehh.TrieHHParameters(n, cohort, theta, 10)
        rate = triehh.worst_case_discovery_rate(occurrences, parameters)
        self.assertIsInstance(rate, float)
        self.assertAlmostEqual(rate, expected, delta=6e-11)

    def test_equals_exact_rational_sum_also_where_it_is_tiny(self):
        parameters = triehh.TrieHHParameters(2000, 60, 8, 5)
        occurrences = np.array([[0, 7, 8], [9, 400, 2000]])
        rates = triehh.worst_case_discovery_rate(occurrences, parameters)
        self.assertEqual(rates.shape, (2, 3))
        total = math.comb(2000, 60)
        for holders, rate in zip(occurrences.flat, rates.flat, strict=True):
            holders = int(holders)
            ways = sum(
                math.comb(holders, i) * math.comb(2000 - holders, 60 - i)
                for i in range(8, min(holders, 60) + 1)
            )
            exact = float(fractions.Fraction(ways, total) ** 5)
            self.assertAlmostEqual(rate, exact, delta=1e-8 * exact)

    def test_bad_occurrences(self):
        parameters = triehh.TrieHHParameters(2000, 60, 8, 5)
        for bad in (-1, 2001, 1.5, np.array([1.0])):
            with self.assertRaisesRegex(ValueError, "occurrences"):
                triehh.worst_case_discovery_rate(bad, parameters)


if __name__ == "__main__":
    absltest.main()
