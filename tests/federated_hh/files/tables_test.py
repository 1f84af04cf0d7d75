"""Tests of tables: what is written is what pandas, `csv` and `read` get back."""

import csv
import io
import pathlib
import re

import numpy as np
import pandas as pd
from absl.testing import absltest, parameterized
from hypothesis import given, settings
from hypothesis import strategies as st

from federated_hh.files import tables

_SEPARATED = (
    "a\rb \r \n \r\n a\nb a,b \" \"\" a\"b ' '' 'tis '=1 \\ \\n '\\n a\\b \0 a\0b null "
    "NULL Null NA N/A #N/A nan NaN -nan <NA> None none n/a inf -inf Infinity true True "
    "TRUE false 007 7 -7 +7 1e5 1E5 1. .5 1_000 1,000 1/2 12:30 2026-11-22 0x1f 50% "
    "=cmd|'/c_calc'!A0 =1+1 + - @ @a \t=1 \t \x0b \x0c \x1c \x85 \u2028 \u2029 \ufeff "
    "\ufeffa \ud800 a\udfff \u0663 \uff1d1 \U0001f600 \xa0a \u3000 1e 1e+ #REF! yes "
    "1.#IND 1.#QNAN -1.#IND"
)
_TURNED = ("a\u202eb", "\u200f\u05d0", "\u2066x\u2069", "\u061c")
_WITH_BLANKS = ("", " ", "  a", "a ", " 7", "7 ", "\t7", "#N/A N/A", "a, b", "1 000")
_HOSTILE = (*_SEPARATED.split(" "), *_WITH_BLANKS, *_TURNED)
_WORDS = st.one_of(
    st.sampled_from(_HOSTILE),
    st.text(st.characters(exclude_categories=()), max_size=6),
    st.text("'\\\"\r\n\t,=+-@0179.eExnru \0", max_size=6),
    st.tuples(st.sampled_from(_HOSTILE), st.sampled_from(_HOSTILE)).map("".join),
)
_VALUES = {
    "words": (_WORDS, object, np.nan),
    "whole": (st.integers(-(2**63), 2**63 - 1), "int64", None),
    "large": (st.integers(2**63, 2**64 - 1), "uint64", None),
    "some whole": (st.integers(-(2**63), 2**63 - 1), "Int64", pd.NA),
    "floats": (st.floats(allow_nan=False), "float64", np.nan),
    "truths": (st.booleans(), "bool", None),
    "some truths": (st.booleans(), "boolean", pd.NA),
}


@st.composite
def _frames(draw):
    names = draw(st.lists(_WORDS, min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(1, 5))
    columns = {}
    for name in names:
        values, dtype, missing = _VALUES[draw(st.sampled_from(sorted(_VALUES)))]
        cells = draw(st.lists(values, min_size=rows, max_size=rows))
        if missing is not None:
            # One value stays: a column of missing values has no kind to come back with.
            for i in draw(st.sets(st.integers(1, rows))) - {rows}:
                cells[i] = missing
        if not any(cell is pd.NA for cell in cells):
            dtype = {"Int64": "int64", "boolean": "bool"}.get(dtype, dtype)
        columns[name] = pd.Series(cells, dtype=dtype)
    return pd.DataFrame(columns)


def _is_number(cell):
    return re.fullmatch(r"-?(\d+(\.\d+)?(e[+-]?\d+)?|inf)", cell, re.ASCII) is not None


class TablesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / "table.csv"

    def _written(self, table):
        # Bytes, as the house writes files: text mode may translate line ends.
        self.path.write_bytes(tables.write(table).encode())
        return self.path

    def test_controls_of_direction_are_escaped(self):
        for word in _TURNED:
            table = pd.DataFrame({"word": [word]})
            written = tables.write(table)
            self.assertIn("\\u", written)
            self.assertEqual(tables.parse(written)["word"].tolist(), [word])
            self.assertNotEqual(tables.visible(word), word)
        self.assertEqual(tables.visible("a\u202eb \u05d0"), "a\\u202eb \u05d0")

    @settings(max_examples=400, deadline=None)
    @given(table=_frames())
    def test_reads_back_what_was_written(self, table):
        pd.testing.assert_frame_equal(
            tables.read(self._written(table)), table, check_exact=True
        )

    @settings(max_examples=400, deadline=None)
    @given(table=_frames())
    def test_pandas_and_csv_read_the_same_rows(self, table):
        path = self._written(table)
        with open(path, newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file))
        with open(path, encoding="utf-8") as file:  # line ends translated
            self.assertEqual(list(csv.reader(file)), [header, *rows])
        self.assertLen(rows, len(table))
        self.assertLen(path.read_bytes().splitlines(), len(table) + 1)
        for cell in [*header, *(cell for row in rows for cell in row)]:
            if cell.startswith(tuple("=+-@\t\r\n")):
                self.assertTrue(_is_number(cell), cell)
        plain = pd.read_csv(path)
        self.assertEqual(list(plain.columns), header)
        self.assertLen(plain, len(table))
        for i, name in enumerate(header):
            cells = [row[i] for row in rows]
            if not pd.api.types.is_object_dtype(table.dtypes.iloc[i]):
                continue
            # Words: pandas takes none of them for a number or a missing value.
            found = ["" if value is np.nan else value for value in plain[name]]
            self.assertEqual(found, cells)
            missing = [not isinstance(word, str) for word in table.iloc[:, i]]
            self.assertEqual([not cell for cell in cells], missing)

    @parameterized.parameters(*_HOSTILE)
    def test_hostile_word(self, word):
        table = pd.DataFrame({"n": [1, 2], "word": [word, "sun"]})
        path = self._written(table)
        self.assertEqual(tables.read(path)["word"].tolist(), [word, "sun"])
        plain = pd.read_csv(path)
        self.assertEqual(plain["n"].tolist(), [1, 2])
        self.assertIsInstance(plain["word"][0], str)

    def test_long_word(self):  # csv reads no cell above 131,072 characters by default
        limit = csv.field_size_limit()
        words = ["x" * 200_000, "sun"]
        path = self._written(pd.DataFrame({"word": words}))
        self.assertEqual(tables.read(path)["word"].tolist(), words)
        self.assertEqual(csv.field_size_limit(), limit)

    def test_cells_of_a_column_alone_are_not_lost(self):
        # pandas leaves out lines without anything in them.
        table = pd.DataFrame({"word": ["", np.nan, "sun", np.nan]}, dtype=object)
        path = self._written(table)
        self.assertLen(pd.read_csv(path), 4)
        pd.testing.assert_frame_equal(tables.read(path), table)

    def test_bytes_on_disk(self):
        table = pd.DataFrame(
            {
                "word": [
                    "sun",
                    "null",
                    "'tis",
                    "a\rb\\",
                    "",
                    None,
                    "=1",
                    "a\\b",
                    "1/2",
                ],
                "share": [0.1, 1.0, np.nan, np.inf, -np.inf, 1e300, -0.0, 5e-324, 3.0],
                "real": [True] * 9,
            }
        )
        self.assertEqual(
            tables.write(table),
            "word,share,real\nsun,0.1,True\n'null,1.0,True\n''tis,,True\n"
            "'a\\rb\\\\,inf,True\n',-inf,True\n,1e+300,True\n'=1,-0.0,True\n"
            "a\\b,5e-324,True\n'1/2,3.0,True\n",
        )

    def test_blanks_at_the_ends_can_be_seen(self):
        table = pd.DataFrame({"word": [" a", "a ", "a b", "\u3000a"]})
        self.assertEqual(tables.write(table), "word\n' a\n'a \na b\n'\u3000a\n")

    def test_other_types_of_numbers(self):
        table = pd.DataFrame(
            {
                "objects": pd.Series([1, None, 2**60 + 1], dtype=object),
                "single": np.float32([0.1, 1, 2]),
                "small": np.int8([1, 2, -3]),
                "nothing": pd.Series([None] * 3, dtype=object),
                "beyond": pd.Series([2**64, 1, 2**128], dtype=object),
            }
        )
        found = tables.read(self._written(table))
        self.assertEqual(found["objects"].tolist(), [1, pd.NA, 2**60 + 1])
        self.assertEqual(found["single"].tolist(), [float(np.float32(0.1)), 1, 2])
        self.assertEqual(found["small"].tolist(), [1, 2, -3])
        self.assertTrue(found["nothing"].isna().all())
        self.assertEqual(found["beyond"].tolist(), [2**64, 1, 2**128])

    def test_significant_digits(self):
        table = pd.DataFrame({"x": [2 / 3, 1e9 / 7, np.nan, 2.0], "n": [123456789] * 4})
        text = tables.write(table, significant_digits=6)
        self.assertEqual(
            text,
            "x,n\n0.666667,123456789\n142857000.0,123456789\n,123456789\n2.0,123456789\n",
        )

    def test_no_rows(self):
        table = pd.DataFrame({"word": [], "votes": []})
        self.assertEqual(list(tables.read(self._written(table)).columns), list(table))
        self.assertEmpty(tables.read(self.path))

    @parameterized.parameters(
        (pd.DataFrame({"a": ["sun", 1]}), "column 'a' .* int, str"),
        (pd.DataFrame({"a": [True, 1]}, dtype=object), "column 'a' .* bool, int"),
        (pd.DataFrame({"a": [b"sun"]}), "column 'a' .* bytes"),
        (
            pd.DataFrame({"a": pd.to_datetime(["2026-11-22"])}),
            "column 'a' .* Timestamp",
        ),
        (pd.DataFrame({1: [1]}), "column name is 1; it has to be a string"),
        (pd.DataFrame(), "columns are \\[\\]; it needs at least one"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "and different names"),
    )
    def test_cannot_be_written(self, table, message):
        with self.assertRaisesRegex((TypeError, ValueError), message):
            tables.write(table)

    @parameterized.parameters(
        ("", "line 1 is empty"),
        ("\n", "line 1 is empty"),
        ("a,a\n1,2\n", "line 1: the columns are .* differ"),
        ("a,b\n1,2\n3\n", "line 3: 1 cells; the table has 2 columns"),
        ("a\n1\nsun\n'\\q\n", 'line 4: "\'\\\\\\\\q" has a backslash'),
        ('a\n"sun\n', "line 2: unexpected end of data"),
        (b"a\n\xff\n", "can't decode byte 0xff"),
    )
    def test_cannot_be_read(self, contents, message):
        self.path.write_bytes(
            contents if isinstance(contents, bytes) else contents.encode()
        )
        with self.assertRaisesRegex(ValueError, f"table.csv: .*{message}"):
            tables.read(self.path)

    def test_parse_of_text(self):
        table = pd.DataFrame({"word": ["a\nb", "sun"], "n": [1, 2]})
        pd.testing.assert_frame_equal(tables.parse(tables.write(table)), table)
        lines = io.StringIO(tables.write(table)).readlines()
        self.assertLen(lines, 3)


if __name__ == "__main__":
    absltest.main()
