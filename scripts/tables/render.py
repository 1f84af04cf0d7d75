"""The renderer of the documents' tables, which are data in tables.toml, overview.toml.

A table has rows, from `rows`, CSV files in results/ without their ending, or from
`made_by`, a function of `made_rows`. `where` keeps the rows with a value, or with one
of a list. A table has one form:

* `columns`: a header, and a template for each row, both with | between the cells;
* `lines`: the first texts of the lines, and their templates: a column for each row;
* `pivot`: the header's first text, and templates of a line's first text, of a column's
  header, and of the text where both meet. `order` is the column by whose values the
  pivot's columns are sorted; `first` and `last` are headers and templates of columns
  before and after them;
* `entries`: a line each, with rows of its own: `cells` are the texts and templates of
  the table's `header`. A template is shown for each row, and `{apart}` is the largest
  distance in the pairs of columns that `compared` names. `time` is a text after the
  last cell, or a pattern of the files whose `seconds` are summed.

A template is one of `str.format`, with these formats besides Python's:

* `{x:time}`, `{x:duration}`, `{x:bytes}`: with two digits and a unit, in minutes and
  hours where it is long, in kB and MB;
* `{x:up}`, `{x:up 2}`, `{x:up digits}`: an upper bound, rounded upwards to 4 digits,
  to 2 places, to 3 digits;
* `{x:*1e3 .1f}`: multiplied; `{x:?.2%}`: empty where it is nan;
* `{x:texts}`: the text that the table's `texts` has for it, if it has one;
* `{x±:.2%}`, `{x–:.2f}`: a mean with its interval, from x_low and x_high or x_half.
"""

import functools
import math
import pathlib
import string
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from federated_hh.files import tables
from federated_hh.privacy import rounding
from studies import pages

RESULTS = pathlib.Path(__file__).parents[2] / "results"
_DATA = [
    pathlib.Path(__file__).with_name(f"{name}.toml") for name in ("tables", "overview")
]

Row = Mapping[str, Any]
# Makes a table's Markdown lines.
Table = Callable[[], list[str]]


def rows(*files: str) -> list[dict[str, Any]]:
    """Returns the rows of CSV files in `RESULTS`, named without their ending."""
    return [
        {str(name): value for name, value in row.items()}
        for file in files
        for row in tables.read(RESULTS / f"{file}.csv").to_dict("records")
    ]


def joined(file: str, other: str, prefix: str) -> list[dict[str, Any]]:
    """Returns the rows of a file with those of another one of the same settings.

    Args:
        file: A file, as of `rows`.
        other: Another one.
        prefix: Prefix of the other file's columns.
    """
    others = {row["setting"]: row for row in rows(other)}
    return [
        {**row, **{f"{prefix}{n}": v for n, v in others[row["setting"]].items()}}
        for row in rows(file)
    ]


def table(
    header: Sequence[str], lines: Iterable[Sequence[str]], align: str = "--:"
) -> list[str]:
    """Returns a Markdown table, its columns but the first set to the right."""
    rule = "|---|" + f"{align}|" * " | ".join(header).count(" | ")
    first, *others = (f"| {' | '.join(line)} |" for line in (header, *lines))
    return [first, rule, *others]


def declared(makers: Mapping[str, Callable[[], Iterable[Row]]]) -> dict[str, Table]:
    """Returns the tables of tables.toml by name.

    Args:
        makers: Functions that make rows, by the names of `made_by`.
    """

    def found_of(spec: Mapping[str, Any]) -> list[Row]:
        files = spec.get("rows", [])
        found: Iterable[Row] = (
            makers[spec["made_by"]]()
            if "made_by" in spec
            else rows(*([files] if isinstance(files, str) else files))
        )
        for name, value in spec.get("where", {}).items():
            wanted = value if isinstance(value, list) else [value]
            found = [row for row in found if row[name] in wanted]
        return list(found)

    def made(spec: Mapping[str, Any]) -> list[str]:
        shown = _Formatter(spec.get("texts", {})).shown
        if "entries" in spec:
            lines = [_entry(one, found_of(one), shown) for one in spec["entries"]]
            return table(spec["header"].split(" | "), lines, "---")
        found = found_of(spec)
        if "pivot" in spec:
            keys = ("order", "first", "last")
            given = {key: spec[key] for key in keys if key in spec}
            return _pivot(found, shown, *spec["pivot"], **given)
        if "lines" in spec:
            return _transposed(found, shown, spec["lines"])
        header, template = spec["columns"].strip("\n").split("\n")
        cells = template.split(" | ")
        lines = [[shown(row, cell) for cell in cells] for row in found]
        return table([header], lines, spec.get("align", "--:"))

    specs = [tomllib.loads(path.read_text()).items() for path in _DATA]
    return {
        name: functools.partial(made, spec)
        for of_file in specs
        for name, spec in of_file
    }


def _entry(entry: Mapping[str, Any], found: Sequence[Row], shown) -> list[str]:
    if "compared" in entry:
        pairs = entry["compared"]
        apart = max(abs(row[a] - row[b]) for row in found for a, b in pairs)
        found = [{**row, "apart": apart} for row in found]
    cells = [
        ", ".join(dict.fromkeys(shown(row, cell) for row in found or [{}]))
        for cell in entry["cells"]
    ]
    paths = sorted(RESULTS.glob(f"{entry['time']}.csv"))
    seconds = sum(tables.read(path)["seconds"].sum() for path in paths)
    taken = _duration(seconds) if paths else entry["time"]
    return [*cells[:-1], f"{cells[-1]}, {taken}" if taken else cells[-1]]


def _transposed(found, shown, lines) -> list[str]:
    made = [[first, *(shown(row, of) for row in found)] for first, of in lines]
    return table(made[0], made[1:])


def _pivot(
    found, shown, corner, line, column, cell, *, order="", first=(), last=()
) -> list[str]:
    by = (lambda row: row[order]) if order else (lambda row: 0)
    headers = dict.fromkeys(shown(row, column) for row in sorted(found, key=by))
    of_lines: dict[str, list[Row]] = {}
    for row in found:
        of_lines.setdefault(shown(row, line), []).append(row)
    made = []
    for name, of_line in of_lines.items():
        cells = {shown(row, column): shown(row, cell) for row in of_line}
        before, after = (
            [shown(of_line[0], of) for _, of in each] for each in (first, last)
        )
        made.append([name, *before, *(cells.get(h, "") for h in headers), *after])
    before, after = ([header for header, _ in each] for each in (first, last))
    return table([corner, *before, *headers, *after], made)


class _Interval:
    """A mean with its interval; formatted without one where there is none."""

    def __init__(self, row: Row, name: str, sign: str):
        self._mean, self._sign = row[name], sign
        if f"{name}_half" in row:
            half = row[f"{name}_half"]
            self._low, self._high = self._mean - half, self._mean + half
            self._half = half
        else:
            self._low, self._high = row[f"{name}_low"], row[f"{name}_high"]
            self._half = (self._high - self._low) / 2

    def __format__(self, form: str) -> str:
        mean, half = format(self._mean, form), format(self._half, form.lstrip("+"))
        if self._sign == "±":
            # On one line, in narrow columns too.
            return mean if math.isnan(self._half) else f"{mean}\N{NBSP}±\N{NBSP}{half}"
        low, high = format(self._low, form), format(self._high, form)
        if math.isnan(self._low) or low == high == mean:
            return mean
        return f"{mean} ({low}–{high})"


class _Formatter(string.Formatter):
    """Formats templates of a table."""

    def __init__(self, texts: Mapping[str, str]):
        self._texts = texts

    def shown(self, row: Row, template: str) -> str:
        """Returns a template with a row's values."""
        return self.vformat(template, (), row)

    def get_value(self, key, args, kwargs):
        """See base class."""
        if isinstance(key, str) and key[-1:] in ("±", "–"):
            return _Interval(kwargs, key[:-1], key[-1])
        return kwargs[key]

    def format_field(self, value, format_spec):
        """See base class."""
        kind, _, rest = format_spec.partition(" ")
        if kind == "up":
            return _up(value, rest)
        if kind == "texts":
            return self._texts.get(str(value), str(value))
        if kind in _UNITS:
            return _UNITS[kind](value)
        if kind.startswith("*"):
            return self.format_field(value * float(kind[1:]), rest)
        if kind.startswith("?"):
            return "" if value != value else format(value, format_spec[1:])
        return format(value, format_spec)


def _up(value: float, places: str) -> str:
    if places == "digits":
        return pages.upper_bound(value)
    if places:
        return rounding.rounded_up_to(value, int(places))
    return rounding.rounded_up(value)


def _time(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= 0.1 * size:
            return f"{float(f'{value / size:.2g}'):g} {unit}"
    return f"{float(f'{value / 1e-6:.2g}'):g} µs"


def _duration(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


def _bytes(number: float) -> str:
    return f"{number / 1e3:.1f} kB" if number < 1e6 else f"{number / 1e6:.2f} MB"


_UNITS = {"time": _time, "duration": _duration, "bytes": _bytes}
