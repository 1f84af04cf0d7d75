r"""Tables as CSV files that read back exactly, with any words in them.

The files are plain: UTF-8, commas, a line a row, a header. `pandas.read_csv(path)` and
Python's `csv` module read the same rows from them; `read` gives back the very table.

*Numbers* have full precision (`repr`), `inf` and `-inf` among them; truth values are
`True` and `False`; a missing value is an empty cell.

*Words* are written unchanged, unless a program could misread them. Then the cell is an
apostrophe and the word, with backslashes and what breaks lines in it escaped as in
Python (`\\`, `\n`, `\r`, `\x00`, `\u2028`). These are

* the empty word, which would be a missing value;
* what starts with `=`, `+`, `-` or `@`, a formula to a spreadsheet;
* what reads as a number, date or time (`007`, `1e5`, `1/2`), as a truth value
  (`true`), or as missing (`NA`, `null`, `nan`);
* what starts with an apostrophe itself;
* what starts or ends with a blank;
* what has a control character, one of the direction of text, another line separator,
  a byte order mark or half a surrogate pair in it.

So `'tis` is written `''tis` and `null` is written `'null`. Names of columns are words.
"""

import csv
import decimal
import io
import numbers
import os
import pathlib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

_QUOTE = "'"
# Also the full-width forms, which spreadsheets take for the same.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")
_NUMBER_LIKE = re.compile(r"[\d.,:/_+\-eExX%\s]*\d[\d.,:/_+\-eExX%\s]*")
_TRUTH_LIKE = {"true", "false"}
_NUMBER_NAMES = {"inf", "infinity", "1.#ind", "1.#qnan"}
_MISSING_LIKE = {"none", "null", "nan", "na", "n/a", "#na", "#n/a", "#n/a n/a"}
_MISSING_LIKE |= {"<na>", "#null!", "#name?", "#num!", "#value!", "#ref!", "#div/0!"}
_RESERVED = _TRUTH_LIKE | _NUMBER_NAMES | _MISSING_LIKE
_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ESCAPE = re.compile(r"\\(\\|n|r|t|x[0-9a-f]{2}|u[0-9a-f]{4})")
_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?(inf|[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?)")
_TRUTH = {"True": True, "False": False}


def write(table: pd.DataFrame, significant_digits: int | None = None) -> str:
    """Returns a table as the text of a CSV file.

    Args:
        table: Each column holds words (str), truth values, whole numbers or floating
            point numbers, and missing values. The index is not written. Whole numbers
            come back as int64 or uint64 if they fit, as Int64 if some are missing;
            floating point numbers as float64; truth values as bool, as boolean if
            some are missing; a column of missing values alone as float64.
        significant_digits: Digits to which floating point numbers are rounded; None for
            no rounding.

    Raises:
        ValueError: If there is no column, or two have the same name.
        TypeError: If a column holds other values, or words and numbers.
    """
    names = list(table.columns)
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"a table's columns are {names}; it needs at least one, and different names"
        )
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a table's column name is {name!r}; it has to be a string")
    columns = [_cells(name, table[name], significant_digits) for name in names]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([map(_escape, names), *zip(*columns, strict=True)])
    return buffer.getvalue()


def read(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Returns the table of a CSV file that `write` wrote.

    Args:
        path: The path of the file.

    Returns:
        The table, with a column of objects for words (missing ones: NaN); see `write`
        for numbers.

    Raises:
        ValueError: If the file is not such a table; the message names it and the line.
        OSError: If it cannot be read.
    """
    contents = pathlib.Path(path).read_bytes()
    try:
        return parse(contents.decode())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def parse(text: str) -> pd.DataFrame:
    """Returns the table whose text `write` returned; see `read`.

    Raises:
        ValueError: If the text is not such a table; the message names the line.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    limit = csv.field_size_limit(len(text) + 1)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(limit)
    if not rows or not rows[0]:
        raise ValueError("line 1 is empty; it has to have the column names")
    header, *rows = rows
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(
                f"line {line}: {len(row)} cells; the table has {len(header)} columns"
            )
    names = [_unescape(name, 1) for name in header]
    if len(set(names)) < len(names):
        raise ValueError(f"line 1: the columns are {names}; their names have to differ")
    return pd.DataFrame(
        {name: _column([row[i] for row in rows]) for i, name in enumerate(names)}
    )


def _cells(name: str, column: pd.Series, significant_digits: int | None) -> list[str]:
    """Returns the cells of a column, or raises `TypeError`."""
    values = column.tolist()
    cells = [_cell(value, significant_digits) for value in values]
    kinds = {kind for kind, _ in cells if kind}
    if len(kinds) > 1 or "other" in kinds:
        found = sorted({type(value).__name__ for value in values})
        raise TypeError(
            f"column {name!r} of a table holds {', '.join(found)}; it has to hold "
            "only strings, only booleans or only numbers"
        )
    return [cell for _, cell in cells]


def _cell(value: Any, significant_digits: int | None) -> tuple[str, str]:
    """Returns the kind of a value and its cell."""
    if isinstance(value, str):
        return "word", _escape(value)
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "", ""
    if isinstance(value, bool | np.bool_):
        return "truth", str(bool(value))
    if isinstance(value, int | np.integer):
        return "number", str(int(value))
    if isinstance(value, float | np.floating):
        if significant_digits is not None:
            value = f"{value:.{significant_digits}g}"
        return "number", repr(float(value))
    return "other", ""


def _escape(word: str) -> str:
    """Returns the cell of a word."""
    risky = [character for character in word if _breaks(character)]
    if not (
        risky
        or not word
        or word.startswith((_QUOTE, *_FORMULA))
        or word != word.strip()
        or word.casefold() in _RESERVED
        or _NUMBER_LIKE.fullmatch(word)
    ):
        return word
    return _QUOTE + "".join(
        # Python's own escapes: `\\`, `\n`, `\x00`, `\u2028`.
        character.encode("unicode_escape").decode()
        if character == "\\" or _breaks(character)
        else character
        for character in word
    )


def visible(text: str) -> str:
    r"""Returns text with its controls of direction escaped, such as `\u202e`.

    A word that has one would turn around what is printed behind it.
    """
    if text.isascii():
        return text
    return _DIRECTIONS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def _breaks(character: str) -> bool:
    if " " <= character <= "~":
        return False
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or character == "\ufeff"
        or _DIRECTIONS.match(character) is not None
    )


def _unescape(cell: str, line: int) -> str:
    """Returns the word of a cell."""
    if not cell.startswith(_QUOTE):
        return cell
    word = cell[len(_QUOTE) :]
    if "\\" in _ESCAPE.sub("", word):
        raise ValueError(
            f"line {line}: {cell!r} has a backslash that escapes nothing; in a cell "
            r"that starts with an apostrophe a backslash is written \\"
        )
    return _ESCAPE.sub(lambda match: match[0].encode().decode("unicode_escape"), word)


def _column(cells: list[str]) -> pd.Series:
    """Returns the values of a column's cells, the first of them from line 2."""
    present = [cell for cell in cells if cell]
    if not present:
        return pd.Series([np.nan] * len(cells), dtype=float if cells else object)
    if all(cell in _TRUTH for cell in present):
        truths = pd.Series([_TRUTH.get(cell) for cell in cells], dtype="boolean")
        return truths.astype(bool) if all(cells) else truths
    if all(_WHOLE.fullmatch(cell) for cell in present):
        return _whole_numbers(cells)
    if all(_NUMBER.fullmatch(cell) for cell in present):
        return pd.Series([float(cell) if cell else np.nan for cell in cells])
    words = [
        _unescape(cell, line) if cell else np.nan
        for line, cell in enumerate(cells, start=2)
    ]
    return pd.Series(words, dtype=object)


def _whole_numbers(cells: list[str]) -> pd.Series:
    numbers = [int(cell) if cell else pd.NA for cell in cells]
    for whole, with_missing in (("int64", "Int64"), ("uint64", "UInt64")):
        bounds = np.iinfo(whole)
        if all(bounds.min <= n <= bounds.max for n in numbers if n is not pd.NA):
            return pd.Series(numbers, dtype=whole if all(cells) else with_missing)
    return pd.Series(numbers, dtype=object)


def shown(value: object) -> str:
    """Returns a value as a page shows it: large numbers in groups of three digits."""
    if isinstance(value, float):
        if pd.isna(value):
            return "–"
        whole = value.is_integer() or abs(value) >= 10_000
        return f"{value:,.0f}" if whole and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return f"{int(value):,}"
    return str(value)


def aligned(printed: Sequence[str]) -> list[str]:
    """Gives the printed numbers of a column one format.

    Args:
        printed: Numbers of at most 15 digits, such as bounds that were rounded upwards.

    Returns:
        The same numbers with an equal number of decimals, or with exponents if one has
        an exponent. 0 and infinity are unchanged.
    """
    known = {text: decimal.Decimal(text).normalize() for text in printed}
    known = {text: each for text, each in known.items() if each and each.is_finite()}
    has_exponent = any("e" in text for text in known)
    decimals = [
        len(each.as_tuple().digits) - 1
        if has_exponent
        else -int(each.as_tuple().exponent)
        for each in known.values()
    ]
    form = f".{max([0, *decimals])}{'e' if has_exponent else 'f'}"
    return [f"{float(text):{form}}" if text in known else text for text in printed]
