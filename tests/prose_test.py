"""Tests of the prose: docstrings and documents keep the rules that can be checked.

A sentence of a document has at most 40 words. A docstring begins with a verb or a noun
phrase, and so does the description of an argument. One word stands for one thing.
"""

import ast
import re

from absl.testing import absltest, parameterized

from tests import ROOT

_ROOMS = ("federated_hh", "training", "studies", "benchmarks", "examples", "scripts")
_ROOMS += ("tests", "docs")
_MOST_WORDS = 40
# First words of descriptions that are no noun phrases.
_SCRAPS = ("Of", "At", "That", "What", "Takes", "How", "Whether it")
_ARGUMENT = re.compile(rf"^ +[*\w, ]+: ((?:{'|'.join(_SCRAPS)})\b.*)$", re.MULTILINE)
_CLAUSE = re.compile(r"(What|Who|Whom|Whose|How|When|Where|Which|Why|That)\b")
# Words that another one stands for everywhere.
_SYNONYMS = {
    "judge": "held-out client, or evaluate",
    "judges": "held-out clients, or evaluates",
    "judged": "evaluated",
    "verdict": "summary",
    "parked": "spilled to disk",
    "anew": "again, or regenerated",
    "in the open": "in the clear",
    "comes out": "reproduces, or matches the paper",
    "come out": "reproduce, or match the paper",
    "came out": "reproduced, or matched the paper",
    "is had": "has, or holds",
    "leave the house": "are shared",
}
_SYNONYM = re.compile(rf"\b({'|'.join(_SYNONYMS)})\b", re.IGNORECASE)
_CODE = re.compile(r"^ *```.*?^ *```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"`+[^`]+`+|--[\w-]+|^ +\w+:", re.MULTILINE)
_INLINE_CODE = re.compile(r"`+[^`]+`+")
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_TABLE = re.compile(r"^\|.*$", re.MULTILINE)
# A sentence ends at a stop or colon, a blank line, a heading or a list's item.
_END = re.compile(r"(?<=[.!?:;])[)*\"]*\s+|\n\s*\n|\n(?= *(?:[*-]|\d+\.) )|^#.*$", re.M)


def docstring_faults(source):
    """Returns what breaks the rules in the docstrings of a Python source."""
    found = []
    for node in ast.walk(ast.parse(source)):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if not text:
            continue
        first = text.splitlines()[0]
        if _CLAUSE.match(text):
            found.append(f"begins with a clause: {first}")
        found += [f"begins with a scrap: {m[1]}" for m in _ARGUMENT.finditer(text)]
        found += synonyms(_NAMES.sub("", text))
    return found


def synonyms(text):
    """Returns the words of a text that another word stands for."""
    return [
        f"{found[0]!r}: write {_SYNONYMS[found[0].lower()]}"
        for found in _SYNONYM.finditer(text)
    ]


def document_faults(text):
    """Returns what breaks the rules in the prose of a Markdown text."""
    text = _INLINE_CODE.sub("code", _CODE.sub("", text))
    text = _LINK.sub(r"\1", _PICTURE.sub("", text))
    found = synonyms(text)
    for sentence in _END.split(_TABLE.sub("\n", text)):
        words = re.findall(r"\S*\w\S*", sentence)
        if len(words) > _MOST_WORDS:
            found.append(f"{len(words)} words: {' '.join(words[:8])} ...")
    return found


class RepositoryTest(parameterized.TestCase):
    @parameterized.parameters(*_ROOMS)
    def test_docstrings(self, room):
        paths = sorted((ROOT / room).rglob("*.py"))
        self.assertNotEmpty(paths)
        found = {
            f"{path.relative_to(ROOT)}: {fault}"
            for path in paths
            for fault in docstring_faults(path.read_text())
        }
        self.assertEmpty(found, "\n".join(sorted(found)))

    def test_documents(self):
        names = ("README.md", "CONTRIBUTING.md", "results/README.md")
        paths = [*(ROOT / name for name in names), *ROOT.glob("docs/**/*.md")]
        self.assertGreater(len(paths), 20)
        found = [
            f"{path.relative_to(ROOT)}: {fault}"
            for path in paths
            for fault in document_faults(path.read_text())
        ]
        self.assertEmpty(found, "\n".join(found))


class RulesTest(parameterized.TestCase):
    @parameterized.parameters(
        ('"""What it is."""', "clause"),
        (
            'def f(a):\n    """Is a.\n\n    Args:\n        a: At its end.\n    """',
            "scrap",
        ),
        ('class A:\n    """A verdict."""', "write summary"),
    )
    def test_faults_of_docstrings_are_found(self, source, regex):
        (found,) = docstring_faults(source)
        self.assertRegex(found, regex)

    @parameterized.parameters(
        (" ".join(["word"] * 41) + ".", "41 words"),
        ("* " + " ".join(["`a b`"] * 41), "41 words"),
        ("The points come out.", "write reproduce"),
        ("| a |\n|---|\n| anew |", "write again"),
    )
    def test_faults_of_documents_are_found(self, text, regex):
        (found,) = document_faults(text)
        self.assertRegex(found, regex)

    def test_what_is_well_written_is_left_alone(self):
        half = " ".join(["word"] * 30)
        text = f"{half}. {half}\n\n* {half}\n* {half}\n\n```\n{half} anew {half}\n```\n"
        self.assertEmpty(document_faults(f"{text}`--judges`\n![anew]({half})\n"))
        self.assertEmpty(docstring_faults('"""Whatever: `is had`.\n\nHow."""'))


if __name__ == "__main__":
    absltest.main()
