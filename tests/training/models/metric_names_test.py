"""Tests of the names of metrics: what is shown to people takes them from one place."""

from unittest import mock

import pandas as pd
from absl.testing import absltest, parameterized
from matplotlib import text as text_lib

from training.baselines import baselines
from training.central import central_training
from training.federated import dp_ftrl
from training.keyboard import report as keyboard_report
from training.models import evaluation, metric_names
from training.reports import federated as training_report

_METRICS = dict(zip(evaluation.METRICS, (3.4661, 0.15, 0.258, 1.0), strict=True))
_BASELINE = baselines.Baseline("bigram", "text", _METRICS)
_ROW = {f"held_out_{name}": value for name, value in _METRICS.items()}
_ROW |= {"clip_norm": 0.3, "update_norm": 0.1, "epsilon": 2.0}
_ROW |= {"steps": 4, "epochs": 0.5}
_RENAMED = {name: f"<{name}>" for name in metric_names.KEYBOARD_LABELS}


def _texts(figure):
    return [found.get_text() for found in figure.findobj(text_lib.Text)]


def _scores():
    return pd.DataFrame(
        [
            {"model": "m", "metric": name, "value": number, "low": 0.0, "high": 9.0}
            for number, name in enumerate(metric_names.KEYBOARD_LABELS)
        ]
    )


class MetricNamesTest(parameterized.TestCase):
    def test_text(self):
        self.assertEqual(
            metric_names.text(_METRICS),
            "loss 3.466, top-1 in-vocabulary 15.00%, one suggestion 25.80%, "
            "three suggestions 100.00%",
        )
        self.assertEqual(metric_names.text({"loss": 2.0}), "loss 2.000")

    def _renamed(self):
        """Every metric has another label, until the test is over."""
        of_training = {name: _RENAMED[name] for name in metric_names.LABELS}
        for name, labels in (("LABELS", of_training), ("KEYBOARD_LABELS", _RENAMED)):
            self.enter_context(mock.patch.object(metric_names, name, labels))

    @parameterized.named_parameters(
        ("rounds", lambda: dp_ftrl.DpFtrl.progress(mock.Mock(), _ROW)),
        ("steps", lambda: central_training.CentralTraining.progress(mock.Mock(), _ROW)),
        ("baselines", lambda: str(_BASELINE)),
    )
    def test_what_logs_say(self, line):
        said = metric_names.text(_METRICS)
        self.assertEqual(line().count(said), 1)
        rest = line().replace(said, "")
        self._renamed()
        self.assertEqual(line().replace(metric_names.text(_METRICS), ""), rest)
        for name in metric_names.LABELS:
            self.assertIn(f"<{name}>", line())

    def test_a_round_without_judges(self):
        row = {name: v for name, v in _ROW.items() if not name.startswith("held_out")}
        for algorithm in (dp_ftrl.DpFtrl, central_training.CentralTraining):
            self.assertNotIn("held-out", algorithm.progress(mock.Mock(), row))

    def test_what_reports_of_training_show(self):
        self._renamed()
        table = training_report.held_out(pd.Series(_ROW), {"bigram": _METRICS})
        self.assertEqual(
            table.columns.tolist(),
            ["held-out clients", *(f"<{name}>" for name in _METRICS)],
        )
        self.assertEqual(table.iloc[0, 1:].tolist(), list(_METRICS.values()))
        told = training_report.how_good(pd.Series(_ROW), [_BASELINE])
        self.assertIn("<one_suggestion> 25.8%", told)
        metrics = pd.DataFrame([_ROW | {"round": 1}])
        drawn = _texts(training_report.plot_accuracy(metrics, {}))
        self.assertContainsSubset(
            ["<top1_in_vocabulary>", "<one_suggestion>", "<three_suggestions>"], drawn
        )

    def test_what_reports_of_keyboards_show(self):
        self._renamed()
        table = keyboard_report.shown(_scores(), {"m": 0.5}).set_index("metric")["m"]
        self.assertLen(table, len(_RENAMED) + 1)
        value_of = {}
        for number, name in enumerate(_RENAMED):
            value_of[name] = value = "0.000" if name == "loss" else f"{number:.1%}"
            self.assertStartsWith(table[f"<{name}>"], f"{value} (")
        of_one = _scores().assign(low=float("nan"), high=float("nan"))
        table = keyboard_report.shown(of_one, {"m": 0.5}).set_index("metric")["m"]
        self.assertEqual(table["<one_suggestion>"], value_of["one_suggestion"])
        names = ("trigger_rate", "compose_accuracy", "compose_picked_rate")
        curves = pd.DataFrame([{"model": "m"} | dict.fromkeys(names, 0.1)])
        drawn = _texts(keyboard_report.plot_curves(curves))
        for name in names:  # with a unit, where it is not the label's own
            self.assertTrue(any(text.startswith(f"<{name}>") for text in drawn), name)


if __name__ == "__main__":
    absltest.main()
