"""Tests of which metrics and pictures are worth a plot."""

import math
import pathlib
import warnings
from unittest import mock

import matplotlib
import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized
from fontTools import fontBuilder
from fontTools.pens import ttGlyphPen
from matplotlib import font_manager
from matplotlib.backends import backend_agg

from federated_hh.reports import fonts, page_blocks, plots

_NAN = math.nan


class SaysSomethingTest(parameterized.TestCase):
    @parameterized.parameters(
        ([], [], False),
        ([1], [2], False),
        ([1, 2, 3], [5, 5, 5], False),
        ([1, 2, 3], [_NAN] * 3, False),
        ([1, 2, 3], [_NAN, 4, _NAN], False),
        ([1, 2, 3], [math.inf, 4, -math.inf], False),
        ([1, 2, 3], [4, _NAN, 5], True),
        ([1, 2], [4, 5], True),
    )
    def test_curves(self, x, y, expected):
        figure, axes = plots.single("", "x", "y")
        axes.plot(x, y)
        plots.straight_lines(axes, {"one": 1.0, "another": 2.0})
        axes.axvline(3.0)
        self.assertEqual(plots.says_something(figure), expected)
        figure, panels = plots.stacked(["", ""], "x")
        panels[1].plot(x, y)
        self.assertEqual(plots.says_something(figure), expected)

    @parameterized.parameters((0, False), (1, False), (2, True))
    def test_marks_and_bars(self, number, expected):
        values = [*[3.0, 4.0][:number], _NAN]
        for draw in ("scatter", "bar", "barh"):
            figure, axes = plots.single("", "x", "y")
            getattr(axes, draw)(range(len(values)), values)
            with self.subTest(draw):
                self.assertEqual(plots.says_something(figure), expected)

    @parameterized.parameters((0, False), (1, False), (2, True))
    def test_images(self, size, expected):
        figure, axes = plots.single("", "x", "y")
        axes.imshow(np.ones([size, size]))
        self.assertEqual(plots.says_something(figure), expected)


class ScriptsTest(parameterized.TestCase):
    """Labels in scripts that Matplotlib's own font does not have."""

    def figure_of(self, *labels):
        figure, axes = plots.single("Städte", "x", "y")
        axes.barh(range(len(labels)), range(1, 1 + len(labels)), label=labels[0])
        axes.set_yticks(range(len(labels)), labels)
        plots.legend(axes, below=True)
        return figure

    def labels_of(self, figure):
        return [label.get_text() for label in figure.axes[0].get_yticklabels()]

    def install(self, *paths):
        """Has these font files be the only ones besides Matplotlib's."""
        manager = font_manager.FontManager()
        own = str(pathlib.Path(matplotlib.get_data_path()))
        manager.ttflist = [e for e in manager.ttflist if e.fname.startswith(own)]
        for name, value in (
            ("fontManager", manager),
            ("findSystemFonts", lambda: [str(path) for path in paths]),
            ("findfont", manager.findfont),
        ):
            self.enter_context(mock.patch.object(font_manager, name, value))
        drawn = mock.patch.object(backend_agg, "_fontManager", manager)
        self.enter_context(drawn)
        for cached in (fonts._installed, fonts._families):
            cached.cache_clear()
            self.addCleanup(cached.cache_clear)

    def test_words_that_no_font_has_are_numbered(self):
        self.install()
        figure = self.figure_of("[0, 30), 東京", "Köln", "東京, दिल्ली", "القاهرة")
        section = page_blocks.Section("Cities", True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            section.picture(figure)
        self.assertEqual(
            self.labels_of(figure), ["[0, 30), #1", "Köln", "#1, #2", "\u200eالقاهرة"]
        )
        self.assertEqual(figure.legends[0].get_texts()[0].get_text(), "[0, 30), #1")
        told = section.blocks[1].source
        self.assertEndsWith(told, "of some labels: #1 東京, #2 दिल्ली.")

    def test_an_installed_font_with_the_letters_is_used(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "made.ttf"
        builder = fontBuilder.FontBuilder(1000)
        builder.setupGlyphOrder([".notdef", "east"])
        builder.setupCharacterMap({ord("東"): "east"})
        pen = ttGlyphPen.TTGlyphPen(None)
        for point in ((0, 0), (0, 700), (700, 700)):
            (pen.lineTo if point != (0, 0) else pen.moveTo)(point)
        pen.closePath()
        shape = pen.glyph()
        builder.setupGlyf({".notdef": shape, "east": shape})
        builder.setupHorizontalMetrics({".notdef": (800, 0), "east": (800, 0)})
        builder.setupHorizontalHeader(ascent=800, descent=-200)
        builder.setupNameTable({"familyName": "Made Sans", "styleName": "Regular"})
        builder.setupOS2()
        builder.setupPost()
        builder.save(path)
        self.install(path)
        figure = self.figure_of("東", "東京", "Ost")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertEqual(fonts.make_readable(figure), {"#1": "東京"})
            plots.png(figure)
        self.assertEqual(self.labels_of(figure), ["東", "#1", "Ost"])
        ticks = figure.axes[0].get_yticklabels()
        self.assertIn("Made Sans", ticks[0].get_fontfamily())
        self.assertNotIn("Made Sans", ticks[2].get_fontfamily())


class LegendTest(parameterized.TestCase):
    @parameterized.parameters((6, 2), (50, 1))
    def test_names_below_stay_in_the_figure(self, letters, columns):
        figure, axes = plots.single("", "x", "y")
        for number in range(4):
            axes.plot([1, 2], [3, 4], label=f"{number}" * letters)
        plots.legend(axes, below=True)
        plots.png(figure)
        [names] = figure.legends
        extent = names.get_window_extent()
        self.assertGreaterEqual(extent.x0, 0)
        self.assertLessEqual(extent.x1, figure.bbox.width)
        edges = {text.get_window_extent().x0 for text in names.get_texts()}
        self.assertLen(edges, columns)

    def test_names_below_take_nothing_from_the_plots(self):
        heights = []
        for below in (None, True):
            figure, axes = plots.stacked(["a", "b"], "round")
            for number in range(12):
                axes[1].plot([number], label=f"way {number}")
            if below:
                plots.legend(axes[1], below=below)
            plots.png(figure)
            heights.append([one.get_window_extent().height for one in axes])
        np.testing.assert_allclose(heights[1], heights[0], rtol=0.1)


class LooksTest(absltest.TestCase):
    def test_twelve_lines_have_twelve_colors(self):
        looks = [plots.look(number) for number in range(24)]
        self.assertLen({look["color"] for look in looks[:12]}, 12)
        self.assertLen({(look["color"], look["linestyle"]) for look in looks}, 24)

    def test_straight_lines_have_colors_of_their_own(self):
        _, axes = plots.single("", "round", "loss, nats")
        axes.plot([1, 2], [3, 4], color=plots.BLUE)
        plots.straight_lines(axes, {f"way {i}": float(i) for i in range(7)})
        self.assertLen({line.get_color() for line in axes.lines}, 8)

    def test_percent_has_the_decimals_that_it_needs(self):
        for decimals, expected in ((None, ["15%", "12.5%", "0.03%"]), (0, ["15%"])):
            _, axes = plots.single("", "x", "y")
            plots.in_percent(axes.yaxis, decimals=decimals)
            form = axes.yaxis.get_major_formatter()
            shown = [form(value, 0) for value in (0.15, 0.125, 0.0003)]
            self.assertEqual(shown[: len(expected)], expected)

    def test_a_short_logarithmic_axis_is_in_percent_everywhere(self):
        figure, axes = plots.single("", "x", "y")
        axes.plot([0.015, 0.3], [1, 2])
        axes.set_xscale("log")
        plots.in_percent(axes.xaxis)
        figure.canvas.draw()
        labels = [label.get_text() for label in axes.xaxis.get_ticklabels(which="both")]
        shown = [label for label in labels if label]
        self.assertContainsSubset(["2%", "10%", "20%"], shown)
        for label in shown:
            self.assertRegex(label, r"^[0-9.]+%$")

    def test_rounds_are_whole_and_round_numbers(self):
        for last, expected in ((3, [1, 2, 3]), (80, [10, 20, 30, 40, 50, 60, 70, 80])):
            _, axes = plots.single("", "round", "y")
            axes.plot([1, last], [1, 2])
            ticks = [tick for tick in axes.get_xticks() if 1 <= tick <= last]
            self.assertEqual(ticks, expected)

    def test_axes_have_units(self):
        metrics = pd.DataFrame(
            {
                "round": [1, 2],
                "held_out_loss": [5.0, 4.0],
                "held_out_one_suggestion": [0.1, 0.2],
                "update_norm": [1.0, 2.0],
                "votes": [3, 4],
            }
        )
        figure = plots.over_rounds(metrics, list(metrics)[1:])
        self.assertEqual(
            [axes.get_ylabel() for axes in figure.axes],
            ["nats a token", "share", "L2 norm", "votes"],
        )
        losses, shares, *_ = [axes.yaxis.get_major_formatter() for axes in figure.axes]
        self.assertEqual([losses(4.1, 0), shares(0.1, 0)], ["4.10", "10%"])


class ToldAndDrawnTest(absltest.TestCase):
    def metrics(self, rounds, **columns):
        keys = [
            (repeat, number) for repeat in (0, 1) for number in range(1, rounds + 1)
        ]
        return pd.DataFrame(keys, columns=["repeat", "round"]).assign(**columns)

    def test_many_rounds(self):
        metrics = self.metrics(
            2,
            rising=[1, 2, 1, 2],
            of_repeats=[1, 1, 3, 3],
            same=[1234] * 4,
            same_with_gaps=[_NAN, 0.5, 0.5, 0.5],
            at_the_end=[_NAN, 7.0, _NAN, 8.0],
            never=[_NAN] * 4,
            infinite=[math.inf] * 4,
        )
        told, drawn = plots.told_and_drawn(metrics, list(metrics)[2:])
        self.assertEqual(drawn, ["rising", "of_repeats"])
        self.assertEqual(
            told,
            "The same in every round: same 1,234, same with gaps 0.5. "
            "Only in round 2: at the end 7.5.",
        )
        self.assertLen(plots.titles(plots.over_rounds(metrics, drawn)), 2)

    def test_one_round_has_no_picture(self):
        metrics = self.metrics(1, votes=[5, 6], clients=[50, 50])
        self.assertEqual(
            plots.told_and_drawn(metrics, ["votes", "clients"]),
            ("Only in round 1: votes 5.5, clients 50.", []),
        )


if __name__ == "__main__":
    absltest.main()
