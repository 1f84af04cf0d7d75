"""Tests of one histogram under every trust model: laws, guarantees, errors."""

import math

import dp_accounting
import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized
from dp_accounting import pld
from scipy import stats

from federated_hh.privacy.shuffle import amplification as shuffling
from federated_hh.randomness import streams
from studies.mcmillan_2022 import trust
from studies.mcmillan_2022 import trust_models as models

_DEVICES = 5000


class NoiseTest(parameterized.TestCase):
    def test_laplace_noise_has_its_law(self):
        noise = models.discrete_laplace(0)
        # A replacement changes two cells by one: twice 1/2 is epsilon.
        law = stats.dlaplace(0.5)
        self.assertAlmostEqual(noise.variance(None), law.var(), places=9)
        zeros = np.zeros(models.CELLS, np.int64)
        drawn = np.concatenate(
            [noise.draw(zeros, streams.Stream(1, (run,))) for run in range(60)]
        )
        values = np.arange(-6, 7)
        expected = law.pmf(values) * len(drawn)
        counts = [np.count_nonzero(drawn == value) for value in values]
        # Pearson's statistic, false alarm in one of 10,000.
        rest, rest_expected = len(drawn) - sum(counts), len(drawn) - sum(expected)
        statistic = np.sum((counts - expected) ** 2 / expected)
        statistic += (rest - rest_expected) ** 2 / rest_expected
        self.assertLess(statistic, stats.chi2(len(values)).isf(1e-4))

    def test_gaussian_noise_has_the_guarantee(self):
        accountant = pld.PLDAccountant()
        multiplier = models.gaussian_stddev() / math.sqrt(2)
        accountant.compose(dp_accounting.GaussianDpEvent(multiplier))
        self.assertAlmostEqual(accountant.get_epsilon(1e-6), 1.0, delta=1e-3)

    @parameterized.parameters(
        ("local", 1.0, None),
        ("shuffled", None, shuffling.Randomizer.ARBITRARY),
        (
            "secure sum, asymmetric reports",
            None,
            shuffling.Randomizer.ASYMMETRIC_ONE_HOT,
        ),
    )
    def test_reports_have_the_largest_local_epsilon(self, name, local, kind):
        (model,) = (m for m in models.MODELS if m.name == name)
        found = model.noise(_DEVICES).local_epsilon
        if local is not None:
            self.assertEqual(found, local)
            return
        for factor, is_enough in ((1, True), (1.01, False)):
            reports = shuffling.Reports(randomizer=kind, local_epsilon=found * factor)
            epsilon = shuffling.amplify(reports, num_reports=_DEVICES, delta=1e-6)
            self.assertEqual(epsilon.epsilon <= 1, is_enough)

    def test_the_histogram_is_of_all_devices(self):
        histogram = trust.true_histogram(_DEVICES)
        self.assertEqual(histogram.sum(), _DEVICES)
        self.assertGreaterEqual(histogram.min(), 0)
        self.assertEqual(histogram.argmax(), 0)


class StudyTest(absltest.TestCase):
    def test_measured_errors_are_those_of_the_formulas(self):
        made = trust.prepare("", trust.Options(runs=40), seed=3, cache="")
        rows = made.compute(_DEVICES)["errors"]
        errors = pd.DataFrame(rows)
        for row in rows:
            # The mean of 40 times 272 squares: five standard errors are below 10%.
            ratio = row["error"] / row["stderr_theory"]
            self.assertBetween(ratio, 0.9, 1.1, row["model"])
            self.assertBetween(row["error"], row["error_low"], row["error_high"])
        by_model = errors.set_index("model")["error"]
        order = [
            "trusted server, Laplace noise",
            "trusted server, Gaussian noise",
            "secure sum, symmetric reports",
            "local",
        ]
        self.assertTrue(by_model[order].is_monotonic_increasing)
        files = made.files({"errors": errors.assign(setting="", repeat=0)}, None)
        self.assertTrue(files["errors.png"].startswith(b"\x89PNG"))
        self.assertIn("| two servers, symmetric reports |", files["table.md"].decode())


if __name__ == "__main__":
    absltest.main()
