"""Tests of text between Arrow and Python, against Arrow's own ways."""

import subprocess
import sys

import pyarrow as pa
from absl.testing import absltest
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.populations.columns import arrow_text

_TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])))


class ArrowTextTest(absltest.TestCase):
    @settings(deadline=None)
    @given(_TEXTS, st.integers(0, 3), st.booleans())
    def test_strings_are_those_of_arrow(self, texts, skipped, large):
        kind = pa.large_string() if large else pa.string()
        column = pa.array(texts, kind)[skipped:]
        self.assertEqual(arrow_text.strings(column), texts[skipped:])

    @settings(deadline=None)
    @given(_TEXTS)
    def test_columns_are_those_of_arrow(self, texts):
        expected = pa.array(texts, pa.large_string())
        column = arrow_text.column(texts)
        column.validate(full=True)
        self.assertTrue(column.equals(expected))
        self.assertTrue(arrow_text.column(pa.array(texts, pa.string())).equals(column))

    def test_what_is_no_text(self):
        with self.assertRaisesRegex(ValueError, "1 values are missing"):
            arrow_text.strings(pa.array(["a", None]))
        wrong = pa.StringArray.from_buffers(
            1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")
        )
        with self.assertRaises(UnicodeDecodeError):
            arrow_text.strings(wrong)
        with self.assertRaises(UnicodeEncodeError):
            arrow_text.column(["\ud800"])

    def test_pandas_is_not_imported(self):
        program = (
            "import sys; from federated_hh.populations.columns import arrow_text;"
            "arrow_text.strings(arrow_text.column(['a', 'b']));"
            "sys.exit('pandas' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", program], check=True)


if __name__ == "__main__":
    absltest.main()
