"""Tests of the documents: links lead somewhere, and what they name is there."""

import ast
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys

from absl.testing import absltest

from scripts import document_tables
from tests import ROOT

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"`[^`\n]+`")
_PRINTED = re.compile(r"^print\(.*\)  # (.*)$", re.MULTILINE)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+_test\.py)(?:::(\w+))?`")
_MOST_LINES_OF_README = 120


def _documents():
    return [*document_tables.documents(), ROOT / "CONTRIBUTING.md"]


def _prose(path):
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        written = [c["source"] for c in cells if c["cell_type"] == "markdown"]
        text = "\n\n".join("".join(source) for source in written)
    return _FENCE.sub("", text)


def _anchors(path):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in _HEADING.findall(_prose(path)):
        text = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        found.add(text.replace(" ", "-"))
    return found


def broken_links(path):
    """Returns the links of a Markdown file that lead nowhere in the repository."""
    broken = []
    for link in _LINK.findall(_INLINE_CODE.sub("", _prose(path))):
        if re.match(r"\w+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    return broken


class LinksTest(absltest.TestCase):
    def test_all_lead_somewhere(self):
        for path in (*_documents(), *ROOT.glob("docs/**/*.ipynb")):
            with self.subTest(str(path.relative_to(ROOT))):
                self.assertEqual(broken_links(path), [])

    def test_what_leads_nowhere_is_found(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "b.md").write_text("# A `thing`, seen\n\n```\n# No heading\n```\n")
        page = folder / "a.md"
        page.write_text(
            "[x](b.md) [x](b.md#a-thing-seen) ![x](c.png) [x](b.md#no-heading) "
            "[x](#here) [x](https://example.org/c)\n"
        )
        self.assertEqual(broken_links(page), ["c.png", "b.md#no-heading", "#here"])


class ContentsTest(absltest.TestCase):
    def test_the_readme_is_a_front_page(self):
        lines = (ROOT / "README.md").read_text().splitlines()
        self.assertLessEqual(len(lines), _MOST_LINES_OF_README)

    def test_python_is_python(self):
        count = 0
        for path in _documents():
            for code in _PYTHON.findall(path.read_text()):
                with self.subTest(str(path.relative_to(ROOT))):
                    ast.parse(code)
                    count += 1
        self.assertGreater(count, 5)

    def test_python_prints_what_its_comments_say(self):
        count = 0
        for path in _documents():
            for code in _PYTHON.findall(path.read_text()):
                expected = _PRINTED.findall(code)
                if not expected:
                    continue
                count += len(expected)
                printed = io.StringIO()
                with self.subTest(path.name), contextlib.redirect_stdout(printed):
                    exec(compile(code, str(path), "exec"), {})
                self.assertEqual(printed.getvalue().splitlines(), expected)
        self.assertGreater(count, 1)

    def test_python_that_stands_alone_runs(self):
        blocks = {
            f"{path.name} {number}": code
            for path in _documents()
            for number, code in enumerate(_PYTHON.findall(path.read_text()))
            # Others go on with what their page has before.
            if code.startswith(("import ", "from "))
        }
        self.assertGreater(len(blocks), 5)
        for name, code in blocks.items():
            folder = self.create_tempdir().full_path
            posts = "user,text\nann,see you soon\nbob,see you\n"
            pathlib.Path(folder, "posts.csv").write_text(posts)
            done = subprocess.run(
                [sys.executable, "-c", code],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
            )
            with self.subTest(name):
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_file_that_a_page_shows_is_that_file(self):
        shown = _PYTHON.findall((ROOT / "docs/guide/custom_algorithm.md").read_text())
        file = (ROOT / "examples" / "histogram.py").read_text()
        self.assertEqual(shown, [file[file.index("import dataclasses") :]])

    def test_tests_that_are_named_are_there(self):
        count = 0
        for path in _documents():
            for file, name in _TEST.findall(path.read_text()):
                with self.subTest(f"{path.name}: {file}::{name}"):
                    tree = ast.parse((ROOT / file).read_text())
                    functions = {
                        node.name
                        for node in ast.walk(tree)
                        if isinstance(node, ast.FunctionDef)
                    }
                    if name:
                        self.assertIn(name, functions)
                    count += 1
        self.assertGreater(count, 20)

    def test_modules_that_pitfalls_name_are_there(self):
        text = (ROOT / "docs" / "pitfalls.md").read_text()
        files = re.findall(r"`(\w+/[\w/]+\.py)`", text)
        self.assertGreater(len(files), 10)
        for file in files:
            self.assertTrue((ROOT / file).exists(), file)


if __name__ == "__main__":
    absltest.main()
