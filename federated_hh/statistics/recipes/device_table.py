"""A custom table of simulated devices, from a CSV file with a row an event.

    user,age,city
    anna,34,Oslo
    ben,,"New York"

Each user is a device; an empty cell is null.
"""

import dataclasses
import functools
import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from federated_hh.files.verified_files import PopulationError
from federated_hh.populations.readers import bad_rows, delimited
from federated_hh.populations.readers import fields as reader_fields
from federated_hh.statistics.recipes import store

# A leading zero is part of a code, such as a postal code, and makes a text.
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_REAL = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII
)
# Share of a column's cells that are numbers, from which on the others are bad.
_MOSTLY = 0.9


@dataclasses.dataclass(frozen=True)
class DeviceTable:
    """The rows of a custom table, device by device.

    Attributes:
        stream: Name and typed columns of the table.
        columns: Objects [rows] by column: an int, a float or a text, or None where the
            cell is missing.
        splits: int64 [devices + 1]: the rows of device i are splits[i:i + 2].
        first_texts: Line and cell of the first that is no number, by column of texts.
    """

    stream: store.EventStream
    columns: Mapping[str, np.ndarray]
    splits: np.ndarray
    first_texts: Mapping[str, tuple[int, str]] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(
        cls,
        path: str,
        *,
        name: str,
        types: Mapping[str, str] | None = None,
        user_column: str = "user",
        encoding: str = "utf-8",
        delimiter: str | None = None,
        max_bad_rows: int = 0,
    ) -> "DeviceTable":
        """Reads a CSV file with a header.

        Fields are separated by commas, semicolons or tabs, as the header is, and may
        be quoted.

        Args:
            path: The file; .gz, .xz and .zst are decompressed.
            name: The table's name in queries.
            types: SQL's types by column, of the columns that devices store. By default
                all columns, and types that nine in ten cells have.
            user_column: Name of the column with a row's user, or its number from 0.
            encoding: The file's text encoding.
            delimiter: Character between fields; None for the header's.
            max_bad_rows: Largest number of rows that are left out.

        Raises:
            PopulationError: If the file cannot be read, a column is missing, or too
                many rows are bad.
            ValueError: If a name is none that SQL has for a column.
        """
        bad = bad_rows.BadRows(max_bad_rows, encoding=encoding)
        bad.start_file(path)
        records = delimited.read_records(path, encoding, delimiter, bad)
        _, header = next(records, (1, [""]))
        header = [column.strip() for column in header]
        place = functools.partial(
            reader_fields.places,
            path,
            header,
            width=len(header),
            encoding=encoding,
        )
        asked = [("--user_column", user_column)]
        (owner, *_) = place([*asked, *(("column", c) for c in types or ())])
        wanted = types or {c: "" for c in header if c != header[owner]}
        places = dict(zip(wanted, place([("column", c) for c in wanted]), strict=True))
        rows = []
        for line, row in records:
            if row[owner].strip():
                rows.append((line, row))
            else:
                bad.add(line, "the user is empty")
        cells = {c: [row[place] for _, row in rows] for c, place in places.items()}
        fields = {c: kind or _type_of(cells[c]) for c, kind in wanted.items()}
        try:
            stream = store.EventStream(name, fields, retention=math.inf)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        first_texts = {}
        for column in (c for c, kind in fields.items() if kind == "TEXT"):
            for (line, _), cell in zip(rows, cells[column], strict=True):
                if cell.strip() and not _REAL.fullmatch(cell.strip()):
                    first_texts[column] = (line, cell)
                    break
            given = [cell for cell in map(str.strip, cells[column]) if cell]
            commas = [cell for cell in given if comma_advice(cell)]
            plain = sum(_REAL.fullmatch(cell) is not None for cell in given)
            if commas and len(commas) + plain >= _MOSTLY * len(given):
                logging.warning(
                    "%s: the column %s is TEXT, as it has numbers with a comma, such "
                    "as %r%s.",
                    *(path, column, commas[0], comma_advice(commas[0])),
                )
        parsed: dict[str, list[Any]] = {column: [] for column in fields}
        numbers: dict[str, int] = {}
        owners = []
        for line, row in rows:
            try:
                values = {c: _parsed(row[places[c]], c, fields[c]) for c in fields}
            except ValueError as error:
                bad.add(line, str(error))
                continue
            owners.append(numbers.setdefault(row[owner].strip(), len(numbers)))
            for column, value in values.items():
                parsed[column].append(value)
        bad.log_rest()
        if not owners:
            raise PopulationError(f"{path} has no row that can be used")
        order = np.argsort(owners, kind="stable")
        sizes = np.bincount(owners)
        columns = {}
        for column, found in parsed.items():
            array = np.empty(len(found), object)
            array[:] = found
            columns[column] = array[order]
        return cls(stream, columns, np.append(0, np.cumsum(sizes)), first_texts)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return len(self.splits) - 1

    @property
    def num_events(self) -> int:
        """Number of rows."""
        return int(self.splits[-1])

    @property
    def summary(self) -> str:
        """Devices, rows and the columns' types, in a line."""
        columns = ", ".join(f"{n} ({kind})" for n, kind in self.stream.fields.items())
        return (
            f"{self.num_devices:,} devices with {self.num_events:,} rows; the columns "
            f"of {self.stream.name} are {columns}."
        )

    @property
    def now(self) -> float:
        """A time after all rows, in seconds."""
        return float(np.diff(self.splits).max())

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the table, in hex."""
        digest = hashlib.sha256(repr((self.stream.name, self.stream.fields)).encode())
        digest.update(np.asarray(self.splits, "<i8").tobytes())
        for column in self.columns.values():
            digest.update(repr(column.tolist()).encode())
        return digest.hexdigest()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Returns all rows as `EventStore.donate` takes them, a second apart."""
        owners = np.repeat(np.arange(self.num_devices), np.diff(self.splits))
        times = np.arange(self.num_events) - self.splits[owners]
        columns = (column.tolist() for column in self.columns.values())
        return zip(owners.tolist(), times.tolist(), *columns, strict=True)


def _type_of(cells: Sequence[str]) -> str:
    """Returns SQL's type of a column's cells."""
    given = [cell for cell in map(str.strip, cells) if cell]
    for kind, pattern in (("INTEGER", _INTEGER), ("REAL", _REAL)):
        fitting = sum(pattern.fullmatch(cell) is not None for cell in given)
        if given and fitting >= _MOSTLY * len(given):
            return kind
    return "TEXT"


def _parsed(cell: str, column: str, kind: str) -> Any:
    """Returns the value of a cell.

    Raises:
        ValueError: If it is none of its type.
    """
    if not cell.strip():
        return None
    if kind == "TEXT":
        size = len(cell.encode())
        if size > store.MOST_BYTES:
            raise ValueError(
                f"{column} has {size:,} bytes; it must have at most "
                f"{store.MOST_BYTES:,}"
            )
        return cell
    try:
        value = int(cell) if kind == "INTEGER" else float(cell)
    except ValueError:
        value = math.nan
    if "_" in cell or not abs(value) < (2**63 if kind == "INTEGER" else math.inf):
        number = "a whole number" if kind == "INTEGER" else "a number like 2.5"
        raise ValueError(
            f"{column} is {cell[:60]!r}; it must be {number} or empty"
            f"{comma_advice(cell)}"
        )
    return value


def comma_advice(cell: str) -> str:
    """Returns the end of a message about a cell that is no number."""
    # Without the marks between thousands, of any language.
    plain = re.sub(r"(?<=\d)[.\s'\u2019](?=\d{3}(?!\d))", "", cell.strip())
    point = re.sub("[,\u066b]", ".", plain, count=1)
    if point == plain or _REAL.fullmatch(point) is None:
        return ""
    return ": write the decimal comma as a point"
