"""A page in a real browser: nothing is wider than a screen or a phone."""

import html
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized

from randomness import noise_keys
from simulation import page, plots, run_directory

_BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# What stands out of the window to the right, but for what scrolls by itself.
_PROBE = """<script>
const wide = [...document.querySelectorAll("body *")].filter(
  e => e.getBoundingClientRect().right > innerWidth + 1
    || (e.matches(".scroll") && e.scrollWidth > e.clientWidth + 1));
const full = document.documentElement.scrollWidth;
parent.document.title = `width ${innerWidth}, page ${full}, `
  + `out ${wide.map(e => e.tagName + "." + e.className).join(" ")}.`;
</script></body>"""


@absltest.skipIf(_BROWSER is None, "no chromium to render a page in")
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
            report.verdict("w" * 90, next_command="scripts/run " + "a/long/path" * 20)
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
        path = self.page()
        shown = path.read_text().replace("</body>", _PROBE)
        # A window of the browser has a least width; a frame has none.
        path.write_text(
            f'<title></title><iframe style="width: {width}px; height: 900px; border: 0"'
            f' srcdoc="{html.escape(shown)}"></iframe>'
        )
        done = subprocess.run(
            [
                *(_BROWSER, "--headless", "--no-sandbox", "--disable-gpu"),
                *("--window-size=1400,1000", "--dump-dom", path.as_uri()),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
        title = re.search("<title>(.*?)</title>", done.stdout)
        self.assertIsNotNone(title, done.stderr)
        inner, full, out = re.fullmatch(
            r"width (\d+), page (\d+), out (.*)\.", title.group(1)
        ).groups()
        self.assertEqual(out, "")
        self.assertLessEqual(int(full), int(inner))
        self.assertEqual(int(inner), width)


if __name__ == "__main__":
    absltest.main()
