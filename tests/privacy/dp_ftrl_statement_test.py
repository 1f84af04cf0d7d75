"""Tests of the privacy statement of DP-FTRL."""

from absl.testing import absltest

from privacy import dp_ftrl_statement, statement, tree_aggregation


class DpFtrlStatementTest(absltest.TestCase):
    def _run(self):
        return tree_aggregation.TreeAggregation(
            noise_multiplier=7.0,
            num_rounds=1170,
            min_separation=206,
            max_participation=5,
        )

    def test_carries_the_guarantee(self):
        made = dp_ftrl_statement.dp_ftrl_statement(self._run(), delta=1e-10)
        (guarantee,) = made.guarantees
        self.assertAlmostEqual(guarantee.rho, 87 / 98, places=12)
        self.assertAlmostEqual(guarantee.epsilon, 8.9976, delta=5.1e-5)
        self.assertIn("zero-out", made.adjacency)
        self.assertEqual(statement.PrivacyStatement.from_json(made.to_json()), made)

    def test_states_several_devices_of_a_user(self):
        made = dp_ftrl_statement.dp_ftrl_statement(
            self._run(), delta=1e-10, group_size=2, basis="realised"
        )
        device, user = made.guarantees
        self.assertAlmostEqual(user.rho, 4 * device.rho, places=12)
        self.assertIn("2 devices", user.unit)
        self.assertIn("realised", made.to_markdown())


if __name__ == "__main__":
    absltest.main()
