"""Tests of binomial draws of small chances; false alarms in 1e-6 each."""

import numpy as np
from absl.testing import absltest, parameterized
from scipy import stats

from federated_hh.randomizers import binomials
from tests.federated_hh.randomizers import enumeration


class BinomialTest(parameterized.TestCase):
    @parameterized.parameters((10**17, 3e-17), (10**12, 2e-12), (3 * 10**7, 9e-8))
    def test_draws_of_small_chances_follow_their_law(self, trials, chance):
        # Poisson's to within the chance (Le Cam); SciPy's binomial fails here.
        # Pearson's chi-squared, 20,000 draws.
        drawn = binomials.binomial(
            np.random.default_rng(1), np.full(20_000, trials), chance
        )
        law = {(k,): stats.poisson.pmf(k, trials * chance) for k in range(60)}
        p = enumeration.p_value(drawn[:, np.newaxis], law)
        self.assertGreater(p, 1e-6)

    def test_chances_of_any_size_together(self):
        drawn = binomials.binomial(
            np.random.default_rng(1),
            np.array([10**18, 7, 7, 0]),
            np.array([1e-30, 0.0, 1.0, 1e-9]),
        )
        np.testing.assert_array_equal(drawn, [0, 0, 7, 0])


if __name__ == "__main__":
    absltest.main()
