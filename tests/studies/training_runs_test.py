"""Tests of what studies of training runs have in common: the plot of learning."""

from unittest import mock

import pandas as pd
from absl.testing import absltest

from simulation import plots
from studies import training_runs

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


if __name__ == "__main__":
    absltest.main()
