"""Tests of the choice of TrieHH's parameters against a search of all of them."""

import math
from unittest import mock

from absl.testing import absltest, parameterized
from scipy import stats

from privacy import hypergeometric, triehh, triehh_solver, triehh_theorem1


def _rate(holders: int, parameters: triehh.TrieHHParameters) -> float:
    """Proposition 1, by SciPy."""
    tail = stats.hypergeom.sf(
        parameters.threshold - 1,
        parameters.population_size,
        holders,
        parameters.cohort_size,
    )
    return tail**parameters.max_length


def _fewest_holders(n, length, epsilon, delta, rate) -> tuple[int, int]:
    """Searches all thresholds, cohort sizes and K for the fewest holders.

    Returns:
        The number of holders, and the smallest threshold that does with it.
    """
    best, at = n + 1, 0
    for theta in range(1, n):
        shares = [1 - theta / k for k in range(theta + 1, n + 1)]
        allowed = [
            k
            for k, share in zip(range(theta + 1, n + 1), shares, strict=True)
            if -length * math.log(share) <= epsilon
        ]
        for cohort in range(theta, n + 1):
            if not any(
                stats.hypergeom.sf(theta - 1, n, k - 1, cohort) <= delta
                for k in allowed[:1]
            ):
                continue
            parameters = triehh.TrieHHParameters(n, cohort, theta, length)
            for holders in range(theta, best):
                if _rate(holders, parameters) >= rate:
                    best, at = holders, theta
                    break
    return best, at


class SolveTest(parameterized.TestCase):
    # n, epsilon, delta; by Corollary 1 and now: threshold, cohort size, and the
    # holders that a word needs for 0.9. The table of docs/triehh_privacy.md.
    @parameterized.parameters(
        (10**6, 2.0, 1e-12, (15, 12_084, 2092), (40, 49_252, 1129)),
        (10**6, 4.0, 1e-12, (15, 21_978, 1148), (39, 93_506, 578)),
        (10**5, 4.0, 1e-10, (14, 2_354, 1014), (30, 8_935, 486)),
    )
    def test_finds_words_of_half_the_holders(self, n, epsilon, delta, paper, ours):
        request = {
            "population_size": n,
            "max_length": 10,
            "epsilon": epsilon,
            "delta": delta,
        }
        tail = mock.patch.object(
            hypergeometric, "upper_tail", wraps=hypergeometric.upper_tail
        )
        with tail as tails:
            tight = triehh_solver.solve_parameters(**request)
        # 6,395 at most, which are half a second.
        self.assertLess(tails.call_count, 8_000)
        corollary = triehh_theorem1.solve_parameters(**request)
        for parameters, expected in ((corollary, paper), (tight, ours)):
            threshold, cohort, needed = expected
            self.assertEqual(
                (parameters.threshold, parameters.cohort_size), (threshold, cohort)
            )
            self.assertEqual(triehh.holders_needed(parameters, 0.9), needed)
            self.assertGreaterEqual(_rate(needed, parameters), 0.9)
            self.assertLess(_rate(needed - 1, parameters), 0.9)
            found = parameters.guarantee(delta=delta)
            self.assertLessEqual(found.epsilon, epsilon)
            self.assertLessEqual(found.delta, delta)
            tail = stats.hypergeom.sf(
                parameters.threshold - 1, n, found.holders - 1, parameters.cohort_size
            )
            self.assertAlmostEqual(found.delta / tail, 1, places=6)
        self.assertEqual(triehh_solver.solve_parameters(**request), tight)

    @parameterized.parameters(
        (40, 2, 3.0, 0.01, 0.5),
        (60, 1, 1.0, 0.001, 0.9),
        (60, 3, 6.0, 0.02, 0.8),
        (80, 4, 10.0, 0.001, 0.3),
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
            (triehh.holders_needed(parameters, rate), parameters.threshold),
            _fewest_holders(n, length, epsilon, delta, rate),
        )

    def test_redrawing_users_have_a_larger_delta(self):
        request = {"population_size": 100, "max_length": 4, "epsilon": 8.0}
        redrawn, kept = (
            triehh_solver.solve_parameters(
                **request, delta=0.2, discovery_rate=0.5, redraws_each_round=redraws
            )
            for redraws in (True, False)
        )
        self.assertLessEqual(
            redrawn.guarantee(delta=0.2, redraws_each_round=True).epsilon, 8
        )
        found = kept.guarantee(epsilon=8, redraws_each_round=True)
        self.assertGreater(found.delta, 0.2)

    @parameterized.parameters(
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"discovery_rate": 0.0}, "discovery_rate"),
        ({"discovery_rate": 1e-100}, "discovery_rate .* not above delta"),
        ({"population_size": 1}, "population_size"),
        ({"epsilon": 1e-6}, "no parameters .* even if all users hold it"),
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
        found = parameters.guarantee(delta=1e-8)
        self.assertEqual(found.holders, parameters.threshold + 1)


if __name__ == "__main__":
    absltest.main()
