"""Tests of the population that TrieHH needs, against a scan of all populations."""

import math

from absl.testing import absltest, parameterized

from federated_hh.privacy.triehh import guarantees as triehh
from federated_hh.privacy.triehh import theorem1 as triehh_theorem1
from federated_hh.privacy.triehh import utility as triehh_utility


def _enough(n, frequency, epsilon, length, rate):
    try:
        parameters = triehh_theorem1.solve_parameters(
            population_size=n, max_length=length, epsilon=epsilon, delta=1 / n**2
        )
    except ValueError:
        return False
    holders = math.floor(frequency * n)
    return triehh.worst_case_discovery_rate(holders, parameters) >= rate


class MinimumPopulationTest(parameterized.TestCase):
    @parameterized.parameters(
        (0.25, 8.0, 4, 0.5), (0.5, 3.0, 4, 0.9), (0.125, 16.0, 8, 0.9)
    )
    def test_is_the_first_of_all(self, frequency, epsilon, length, rate):
        found = triehh_utility.minimum_population(
            frequency=frequency,
            epsilon=epsilon,
            max_length=length,
            discovery_rate=rate,
        )
        self.assertBetween(found, 100, 3000)
        self.assertTrue(_enough(found, frequency, epsilon, length, rate))
        self.assertFalse(
            any(_enough(n, frequency, epsilon, length, rate) for n in range(2, found))
        )

    def test_figure_2_has_its_shape(self):
        # Lower frequencies and smaller epsilons need larger populations.
        needed = {
            (frequency, epsilon): triehh_utility.minimum_population(
                frequency=frequency, epsilon=epsilon
            )
            for frequency in (0.01, 0.02)
            for epsilon in (1.0, 2.0, 4.0)
        }
        for frequency in (0.01, 0.02):
            row = [needed[frequency, epsilon] for epsilon in (1.0, 2.0, 4.0)]
            self.assertEqual(row, sorted(row, reverse=True))
        for epsilon in (1.0, 2.0, 4.0):
            self.assertGreater(needed[0.01, epsilon], needed[0.02, epsilon])
            self.assertTrue(_enough(needed[0.01, epsilon], 0.01, epsilon, 10, 0.9))

    @parameterized.parameters(
        ({"frequency": 0.0}, "frequency"),
        ({"frequency": 1.1}, "frequency"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"max_length": 0}, "max_length"),
        ({"discovery_rate": 1.0}, "discovery_rate"),
        ({"frequency": 1e-12}, "no population"),
    )
    def test_bad_input(self, change, message):
        with self.assertRaisesRegex(ValueError, message):
            triehh_utility.minimum_population(
                **({"frequency": 0.1, "epsilon": 2.0} | change)
            )


if __name__ == "__main__":
    absltest.main()
