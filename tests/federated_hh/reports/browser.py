"""A page as a real browser shows it."""

import html
import pathlib
import re
import shutil
import subprocess
import tempfile

import numpy as np
from matplotlib import image

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
# What stands out of the window to the right, but for what scrolls by itself.
_PROBE = """<script>
const wide = [...document.querySelectorAll("body *")].filter(
  e => e.getBoundingClientRect().right > innerWidth + 1
    || (e.matches(".scroll") && e.scrollWidth > e.clientWidth + 1));
const full = document.documentElement.scrollWidth;
parent.document.title = `width ${innerWidth}, page ${full}, `
  + `out ${wide.map(e => e.tagName + "." + e.className).join(" ")}.`;
</script></body>"""


def stands_out(page: pathlib.Path, width: int) -> str:
    """Returns what of a page is wider than a window; empty where nothing is.

    Args:
        page: A file of HTML.
        width: The window's width, in pixels.

    Raises:
        RuntimeError: If the browser does not show it.
    """
    shown = page.read_text().replace("</body>", _PROBE)
    with tempfile.TemporaryDirectory() as scratch:
        # A window of the browser has a least width; a frame has none.
        frame = pathlib.Path(scratch) / "frame.html"
        frame.write_text(
            f'<title></title><iframe style="width: {width}px; height: 900px; border: 0"'
            f' srcdoc="{html.escape(shown)}"></iframe>'
        )
        done = subprocess.run(
            [
                *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu"),
                *("--window-size=1400,1000", "--dump-dom", frame.as_uri()),
            ],
            capture_output=True,
            text=True,
            timeout=120,
        )
    title = re.search("<title>(.*?)</title>", done.stdout)
    told = title and re.fullmatch(
        r"width (\d+), page (\d+), out (.*)\.", title.group(1)
    )
    if not told or int(told[1]) != width:
        raise RuntimeError(f"{page} is not shown: {title} {done.stderr}")
    if told[3] or int(told[2]) > width:
        return f"{told[3]} of a page of {told[2]} pixels"
    return ""


def height(page: pathlib.Path) -> int:
    """Returns the height of a page in a window of 800 pixels' width, in pixels."""
    probe = "<script>document.title = document.body.scrollHeight;</script></body>"
    with tempfile.TemporaryDirectory() as scratch:
        probed = pathlib.Path(scratch) / "probed.html"
        probed.write_text(page.read_text().replace("</body>", probe))
        done = subprocess.run(
            [
                *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu"),
                *("--window-size=800,1000", "--dump-dom", probed.as_uri()),
            ],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )
    return int(re.search("<title>(.*?)</title>", done.stdout)[1])


def dark_screenshot(page: pathlib.Path) -> np.ndarray:
    """Returns what a window shows of a page where dark colours are asked for.

    Args:
        page: A file of HTML.

    Returns:
        Shape [height, width, 3], of red, green and blue, each from 0 to 1.
    """
    with tempfile.TemporaryDirectory() as scratch:
        picture = pathlib.Path(scratch) / "page.png"
        subprocess.run(
            [
                *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu"),
                *("--blink-settings=preferredColorScheme=0", "--hide-scrollbars"),
                *("--window-size=800,1000", f"--screenshot={picture}", page.as_uri()),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        return image.imread(picture)[..., :3]
