"""Tests of the choice of TrieHH's parameters against a search of all of them."""

import math

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import solver as triehh_solver
from federated_hh.privacy.triehh import theorem1 as triehh_theorem1


def _rate(holders: int, parameters: triehh.TrieHHParameters) -> float:
    """Proposition 1, by SciPy."""
    tail = stats.hypergeom.sf(
        parameters.threshold - 1,
        parameters.population_size,
        holders,
        parameters.cohort_size,
    )
    return tail**parameters.max_length


def _delta(parameters: triehh.TrieHHParameters, epsilon: float) -> float:
    """The delta of the rounds by another way: losses are rounded upwards on a grid.

    The curve of a round at alpha_j = exp(j step) is that of a law of losses j step,
    whose masses follow from the second differences of the curve.
    """
    n, m, theta = (
        parameters.population_size,
        parameters.cohort_size,
        parameters.threshold,
    )
    k = np.arange(theta, n + 1)
    chances = stats.hypergeom.pmf(theta, n, k, m)
    step = 0.01
    alphas = np.exp(step * np.arange(math.ceil(math.log(theta + 1) / step) + 2))
    curve = (chances * np.maximum(0, 1 - alphas[:, None] * (1 - theta / k))).max(axis=1)
    falls = np.append(-np.diff(curve) / np.diff(alphas), 0.0)
    second = np.append(1 - curve[0], falls[:-1]) - falls
    law, total = second * alphas, np.ones(1)
    for _ in range(parameters.max_length):
        total = np.convolve(total, law)
    losses = step * np.arange(len(total))
    finite = total @ np.maximum(0, 1 - np.exp(epsilon - losses))
    return float(finite + 1 - (1 - curve[-1]) ** parameters.max_length)


def _fewest_holders(n, length, epsilon, delta, rate) -> int:
    """Searches all thresholds and cohort sizes for the fewest holders."""
    best = n + 1
    for theta in range(1, n):
        for cohort in range(theta, n + 1):
            parameters = triehh.TrieHHParameters(n, cohort, theta, length)
            if best <= n and _rate(best - 1, parameters) < rate:
                continue
            if _delta(parameters, epsilon) > delta:
                continue
            for holders in range(theta, best):
                if _rate(holders, parameters) >= rate:
                    best = holders
                    break
    return best


class SolveTest(parameterized.TestCase):
    # n, epsilon, delta; by Corollary 1, and by the curve: threshold, cohort size, and
    # the holders that a word needs for 0.9; then a cohort size that is given, and the
    # holders. The table of docs/triehh_privacy.md has them.
    @parameterized.parameters(
        (10**6, 2.0, 1e-12, (15, 12_084, 2092), (18, 136_101, 209), (49_252, 403)),
        (10**6, 4.0, 1e-12, (15, 21_978, 1148), (22, 254_079, 128), (93_506, 238)),
        (10**5, 4.0, 1e-10, (14, 2_354, 1014), (20, 27_565, 109), (8_935, 220)),
    )
    def test_finds_words_of_a_tenth_of_the_holders(
        self, n, epsilon, delta, paper, ours, fixed
    ):
        request = {
            "population_size": n,
            "max_length": 10,
            "epsilon": epsilon,
            "delta": delta,
        }
        cohort, holders = fixed
        tight = triehh_solver.solve_parameters(**request)
        given = triehh_solver.solve_parameters(**request, cohort_size=cohort)
        self.assertEqual(given.cohort_size, cohort)
        corollary = triehh_theorem1.solve_parameters(**request)
        for parameters, needed in (
            (corollary, paper[2]),
            (tight, ours[2]),
            (given, holders),
        ):
            self.assertEqual(triehh_solver.holders_needed(parameters, 0.9), needed)
            self.assertGreaterEqual(_rate(needed, parameters), 0.9)
            self.assertLess(_rate(needed - 1, parameters), 0.9)
            self.assertLessEqual(parameters.voting_rounds().epsilon(delta), epsilon)
        for parameters, expected in ((corollary, paper), (tight, ours)):
            self.assertEqual(
                (parameters.threshold, parameters.cohort_size), expected[:2]
            )
        self.assertEqual(triehh_solver.solve_parameters(**request), tight)

    @parameterized.parameters(
        (40, 2, 3.0, 0.01, 0.5),
        (60, 1, 1.0, 0.001, 0.9),
        (60, 3, 6.0, 0.02, 0.8),
        (80, 4, 2.0, 0.001, 0.3),
    )
    def test_no_other_parameters_need_fewer(self, n, length, epsilon, delta, rate):
        parameters = triehh_solver.solve_parameters(
            population_size=n,
            max_length=length,
            epsilon=epsilon,
            delta=delta,
            discovery_rate=rate,
        )
        self.assertEqual(
            triehh_solver.holders_needed(parameters, rate),
            _fewest_holders(n, length, epsilon, delta, rate),
        )

    def test_the_smallest_threshold_for_a_given_cohort(self):
        found = triehh_solver.solve_parameters(
            population_size=20_000,
            max_length=6,
            epsilon=1.0,
            delta=1e-9,
            cohort_size=3000,
        )
        allowed = [
            theta
            for theta in range(50, 80)
            if triehh.TrieHHParameters(20_000, 3000, theta, 6)
            .voting_rounds()
            .delta(0.999)
            < 1e-9
        ]
        self.assertEqual(found.threshold, min(allowed))

    def test_a_billion_clients(self):
        for cohort in (None, 10**6):
            parameters = triehh_solver.solve_parameters(
                population_size=10**9,
                max_length=10,
                epsilon=1.0,
                delta=1e-18,
                cohort_size=cohort,
            )
            self.assertLessEqual(parameters.voting_rounds().epsilon(1e-18), 1.0)

    @parameterized.parameters(
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"discovery_rate": 0.0}, "discovery_rate"),
        ({"population_size": 1}, "population_size"),
        ({"population_size": 2**31}, "population_size"),
        ({"cohort_size": 10**4 + 1}, "cohort_size"),
        ({"cohort_size": 2}, "no parameters .*, cohort_size = 2 in"),
        ({"epsilon": 1e-6}, "no parameters .* even if all clients hold it"),
        ({"population_size": 30}, "no parameters"),
        ({"delta": 1e-300, "epsilon": 0.5}, "no parameters"),
    )
    def test_bad_requests(self, change, message):
        request = {
            "population_size": 10**4,
            "max_length": 10,
            "epsilon": 2.0,
            "delta": 1e-8,
        }
        with self.assertRaisesRegex(ValueError, message):
            triehh_solver.solve_parameters(**(request | change))

    def test_any_large_epsilon_will_do(self):
        parameters = triehh_solver.solve_parameters(
            population_size=10**4, max_length=10, epsilon=1e300, delta=1e-8
        )
        self.assertLess(parameters.voting_rounds().least_delta, 1e-8)


if __name__ == "__main__":
    absltest.main()
