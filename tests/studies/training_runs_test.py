"""Tests of what studies of training runs have in common: the plot of learning."""

from unittest import mock

import pandas as pd
from absl.testing import absltest

from federated_hh.reports import plots
from studies import training_runs
from training.models import metric_names

_PANELS = {"held_out_loss": "Loss", "held_out_one_suggestion": "Accuracy"}


class PlotTest(absltest.TestCase):
    def test_what_is_not_drawn_does_not_move_the_axes(self):
        rounds = list(range(1, 21))
        tables = [
            pd.DataFrame(
                {
                    "setting": name,
                    "repeat": 0,
                    "round": rounds,
                    "held_out_loss": [worst - number / 20 for number in rounds],
                    "held_out_one_suggestion": [right] * len(rounds),
                }
            )
            for name, worst, right in (("drawn", 5.0, 0.2), ("other", 7.0, 0.1))
        ]
        drawn = training_runs.Setting("drawn", "drawn", (), plots.BLUE)
        limits = []
        for table in (tables[0], pd.concat(tables)):
            with mock.patch.object(plots, "png") as png:
                training_runs.plot(table, [drawn], _PANELS, is_cut=True)
            (figure,) = png.call_args.args
            limits.append([axes.get_ylim() for axes in figure.axes])
        self.assertEqual(*limits)
        # A tenth of its own losses is out of sight.
        self.assertBetween(limits[0][0][1], 4.8, 4.95)

    def test_a_plot_that_is_cut_shows_where_each_setting_ends(self):
        """But of one that diverges, not even its name."""
        rounds = range(20, 1020, 20)
        ends = {"good": (4.0, 0.3), "worst": (6.0, 0.1), "diverges": (8.5, 0.0)}
        table = pd.concat(
            pd.DataFrame(
                {
                    "setting": name,
                    "round": [1, *rounds],
                    "held_out_loss": [6.5, *[loss] * len(rounds)],
                    "held_out_one_suggestion": [0.05, *[right] * len(rounds)],
                }
            ).iloc[: 51 if name == "good" else 3]
            for name, (loss, right) in ends.items()
        )
        settings = [training_runs.Setting(name, name, (), plots.BLUE) for name in ends]
        with mock.patch.object(plots, "png") as png:
            training_runs.plot(table, settings, _PANELS, is_cut=True)
        (figure,) = png.call_args.args
        (_, loss_to), (accuracy_from, _) = (axes.get_ylim() for axes in figure.axes)
        self.assertBetween(loss_to, 6.01, 6.3)
        self.assertBetween(accuracy_from, 0.08, 0.0999)
        names = [line.get_label() for line in figure.axes[0].lines]
        self.assertEqual(names, ["good", "worst"])

    def test_a_plot_that_is_cut_shows_runs_of_few_rounds(self):
        """Their losses are still those of models that know next to nothing."""
        ends = {"good": 8.4, "worse": 9.1}
        table = pd.concat(
            pd.DataFrame(
                {
                    "setting": name,
                    "round": [1, 2],
                    "held_out_loss": [9.2, loss],
                    "held_out_one_suggestion": [0.0, 0.01],
                }
            )
            for name, loss in ends.items()
        )
        settings = [training_runs.Setting(name, name, (), plots.BLUE) for name in ends]
        with mock.patch.object(plots, "png") as png:
            training_runs.plot(table, settings, _PANELS, is_cut=True)
        (figure,) = png.call_args.args
        names = [line.get_label() for line in figure.axes[0].lines]
        self.assertEqual(names, [*ends])

    def test_a_plot_that_is_cut_shows_what_is_better_than_all_runs(self):
        rounds = range(20, 420, 20)
        table = pd.DataFrame(
            {
                "setting": "drawn",
                "round": rounds,
                "held_out_loss": [5.0 - number / 400 for number in rounds],
                "held_out_one_suggestion": [number / 2000 for number in rounds],
            }
        )
        law = metric_names.BEST_POSSIBLE
        beside = {"baseline": law, "loss": 2.5, "one_suggestion": 0.3}
        drawn = training_runs.Setting("drawn", "drawn", (), plots.BLUE)
        with mock.patch.object(plots, "png") as png:
            training_runs.plot(
                table, [drawn], _PANELS, pd.DataFrame([beside]), is_cut=True
            )
        (figure,) = png.call_args.args
        (loss_from, loss_to), (accuracy_from, accuracy_to) = (
            axes.get_ylim() for axes in figure.axes
        )
        self.assertBetween(loss_from, 2, 2.49)
        self.assertBetween(loss_to, 4.7, 4.94)
        self.assertBetween(accuracy_from, 0.011, 0.03)
        self.assertBetween(accuracy_to, 0.301, 0.35)


if __name__ == "__main__":
    absltest.main()
