"""Tests of the names of metrics."""

from absl.testing import absltest

from training import evaluation, metric_names


class MetricNamesTest(absltest.TestCase):
    def test_text(self):
        metrics = dict(zip(evaluation.METRICS, (3.4661, 0.15, 0.258, 1.0), strict=True))
        self.assertEqual(
            metric_names.text(metrics),
            "loss 3.466, top-1 in-vocabulary 15.00%, one suggestion 25.80%, "
            "three suggestions 100.00%",
        )
        self.assertEqual(metric_names.text({"loss": 2.0}), "loss 2.000")


if __name__ == "__main__":
    absltest.main()
