"""Tests of the two parts of a round's metrics."""

from absl.testing import absltest

from federated_hh.run_directory import metrics as run_metrics


class RoundMetricsTest(absltest.TestCase):
    def test_parts_are_kept_apart_and_cannot_be_changed(self):
        released = {"round": 3, "kept": 2}
        metrics = run_metrics.RoundMetrics(released, {"votes": 17})
        released["votes"] = 17
        self.assertEqual(metrics.released, {"round": 3, "kept": 2})
        with self.assertRaises(TypeError):
            metrics.simulator["votes"] = 16
        self.assertEqual(
            list(metrics.combined().items()), [("round", 3), ("kept", 2), ("votes", 17)]
        )

    def test_a_name_is_in_one_part_only(self):
        with self.assertRaisesRegex(ValueError, "'votes' is in both the released"):
            run_metrics.RoundMetrics({"votes": 1}, {"votes": 17})


if __name__ == "__main__":
    absltest.main()
