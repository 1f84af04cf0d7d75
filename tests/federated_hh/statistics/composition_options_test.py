"""Tests of what ships with a device for each --composition."""

from absl.testing import absltest, parameterized

from federated_hh.privacy.local import device_policy
from federated_hh.statistics import approvals
from federated_hh.statistics import options as statistics_options


class CompositionOptionsTest(parameterized.TestCase):
    @parameterized.parameters("asymmetric", "symmetric")
    def test_policies(self, randomizer):
        total_delta = {}
        for name in ("basic", "advanced", "renyi"):
            options = statistics_options.StatisticsOptions(
                composition=name, cohorts="everybody", delta=1e-7, randomizer=randomizer
            )
            policy = approvals.approval_of(options).policy
            self.assertEqual(policy.composition, device_policy.Composition(name))
            total_delta[name] = policy.total_delta()
        # Three queries; advanced costs delta once more, Renyi once in all.
        for name, times in (("basic", 3), ("advanced", 4), ("renyi", 1)):
            self.assertAlmostEqual(total_delta[name], times * 1e-7, delta=1e-15)

    def test_no_other_composition(self):
        with self.assertRaisesRegex(ValueError, "composition"):
            statistics_options.StatisticsOptions(composition="moments")


if __name__ == "__main__":
    absltest.main()
