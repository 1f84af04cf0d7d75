"""A page in a real browser: nothing is wider than a screen or a phone."""

import pathlib

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from federated_hh.randomness import noise_keys
from federated_hh.reports import page, page_blocks, plots
from federated_hh.run_directory import directory as run_directory
from tests.federated_hh.reports import browser


@absltest.skipIf(browser.BROWSER is None, "no chromium to render a page in")
class PageOverflowTest(parameterized.TestCase):
    def page(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "run"
        with run_directory.RunDirectory.create(
            path,
            program="a.program",
            flags=["--name=" + "value," * 60],
            facts={},
            noise_key=noise_keys.NoiseKey(1, is_secret=False),
        ) as directory:
            report = page.Page(directory, "A long title of a page that says much")
            report.summary("w" * 90, next_command="scripts/run " + "a/long/path" * 20)
            section = report.section("Words", covered=False)
            columns = {f"a column of number {i}": np.arange(40) * 1e5 for i in range(9)}
            words = {"word": ["anextraordinarilylongwordthatgoeson"] * 40}
            section.table("words.csv", pd.DataFrame(words | columns))
            section.tree([f"word{i}" for i in range(50)])
            section.text("| a | b |\n|---|---|\n| `" + "code" * 40 + "` | 1 |")
            figure, axes = plots.single("A plot", "x", "y")
            axes.plot([1, 2], [2, 1])
            section.plot("a.png", figure)
            report.how_it_was_made()
            report.write()
        return path / "report.html"

    @parameterized.parameters(400, 1280)
    def test_nothing_stands_out(self, width):
        self.assertEqual(browser.stands_out(self.page(), width), "")

    def test_a_long_table_shows_its_first_rows_only(self):
        heights = []
        for rows in (page_blocks.FIRST_ROWS, 31, 500):
            section = page_blocks.Section("Words", covered=True)
            section.show(pd.DataFrame({"word": ["w"] * rows}))
            path = pathlib.Path(self.create_tempdir().full_path) / "page.html"
            path.write_text(page.html("A page", "", [section]))
            heights.append(browser.height(path))
        short, *long = heights
        self.assertLen(set(long), 1)
        self.assertBetween(long[0] - short, 1, 60)  # the line "Show all"

    def test_a_plot_on_white_is_dark_where_that_is_asked_for(self):
        section = page_blocks.Section("A plot", covered=True)
        figure, axes = plots.single("A plot", "x", "y")
        axes.fill_between([0, 1], [0, 0], [1, 1], color=plots.BLUE)
        axes.plot([0, 1], [0, 1], color=plots.BLUE)
        path = pathlib.Path(self.create_tempdir().full_path) / "page.html"
        path.write_text(page.html("A page", "", [section.picture(figure)]))
        shown = browser.dark_screenshot(path)
        self.assertLess((shown.mean(axis=2) > 0.8).mean(), 0.05)
        with self.subTest("blue stays blue"):
            red, blue = shown[..., 0], shown[..., 2]
            self.assertGreater((blue > red + 0.2).mean(), 0.1)
            self.assertLess((red > blue + 0.2).mean(), 0.01)

    def test_what_stands_out_is_told(self):
        path = self.page()
        wide = '<div class="wide" style="width: 500px"></div></body>'
        path.write_text(path.read_text().replace("</body>", wide))
        self.assertIn("DIV.wide", browser.stands_out(path, 400))


if __name__ == "__main__":
    absltest.main()
