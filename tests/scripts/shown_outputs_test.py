"""Tests that what the documents show of programs' output is what programs print.

An output stands below its command, which is run here, or below a line
`<!-- output FILE -->`: what a run printed that takes too long for a test.
"""

import collections
import re
import shlex

from absl.testing import absltest

from tests import forked_programs
from tests.scripts import documented_commands

_ROOT = documented_commands.ROOT
_BLOCK = re.compile(
    r"(?:<!-- output (?P<file>\S+) -->\s+)?^ *```(?P<language>.*?)\n"
    r"(?P<lines>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"\$ (?:\./)?scripts/run (\S+) (.*)")


def _shown() -> list[tuple[str, str | None, list[str]]]:
    """Returns all blocks of output: the document, the mark's file, the lines."""
    found = []
    for path in documented_commands.documents():
        for block in _BLOCK.finditer(path.read_text()):
            lines = block["lines"].replace("\\\n", " ").splitlines()
            if not block["language"] and re.search(r"\d", block["lines"]):
                found.append((str(path.relative_to(_ROOT)), block["file"], lines))
    return found


def missing(shown: list[str], printed: str) -> list[str]:
    """Returns the lines of an output that are not in what was printed.

    Args:
        shown: Lines; "..." stands for any number of them, or for a line's end.
        printed: Output of a program.
    """
    lost, left = [], [" ".join(line.split()) for line in printed.splitlines()]
    for line in shown:
        wanted = " ".join(line.split())
        is_begun = wanted.endswith("...")
        wanted = wanted.removesuffix("...").strip()
        places = [
            place
            for place, found in enumerate(left)
            if found == wanted or (is_begun and found.startswith(wanted))
        ]
        if places:
            # In this order.
            left = left[places[0] + 1 :] if wanted else left
        elif wanted:
            lost.append(line)
    return lost


class ShownOutputsTest(absltest.TestCase):
    def test_outputs_that_are_kept(self):
        found = [(path, file, lines) for path, file, lines in _shown() if file]
        self.assertGreater(len(found), 2)
        for path, file, lines in found:
            with self.subTest(path):
                printed = (_ROOT / file).read_text()
                self.assertEqual(missing(lines, printed), [])

    def test_outputs_of_commands(self):
        number = 0
        folder = self.create_tempdir().full_path
        documented_commands.save_files(folder)
        for path, file, lines in _shown():
            if file:
                continue
            self.assertTrue(_COMMAND.match(lines[0]), f"{path}: whose is {lines}?")
            while lines:
                module, arguments = _COMMAND.fullmatch(lines.pop(0)).groups()
                shown = []
                while lines and not lines[0].startswith("$ "):
                    shown.append(lines.pop(0))
                if shown:
                    with self.subTest(f"{path}: {module} {arguments}"):
                        done = forked_programs.run(
                            module, *shlex.split(arguments), directory=folder
                        )
                        self.assertEqual(missing(shown, done.stdout), [])
                        number += 1
        self.assertGreater(number, 1)

    def test_what_differs_is_found(self):
        printed = "first 1\nsecond 2\nthird 3\n"
        self.assertEqual(missing(["first 1", "...", "third 3"], printed), [])
        self.assertEqual(missing(["sec..."], printed), [])
        self.assertEqual(missing(["first 2", "third 3"], printed), ["first 2"])
        self.assertEqual(missing(["third 3", "first 1"], printed), ["first 1"])

    def test_the_first_run_is_that_of_the_results(self):
        folder = _ROOT / "results" / "triehh_demo"
        printed = (folder / "output.txt").read_text()
        statement = (folder / "privacy.md").read_text()
        epsilon, delta = re.search(
            r"Privacy.*; epsilon (\S+) at delta (\S+) per client for all", printed
        ).groups()
        self.assertIn(
            f"**epsilon = {epsilon}, delta = {delta} per client, one", statement
        )
        words = (folder / "heavy_hitters.csv").read_text().splitlines()[1:]
        counts = collections.Counter(line.split(",")[0] for line in words).values()
        found = f"\n{min(counts)} to {max(counts)} words found by each of {len(counts)}"
        self.assertIn(found, printed)


if __name__ == "__main__":
    absltest.main()
