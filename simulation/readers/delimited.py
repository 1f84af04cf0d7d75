"""Reads CSV, TSV and word count files, row by row."""

import collections
import csv
from collections.abc import Iterator

from simulation import population_options
from simulation.readers import bad_rows, fields, opening

# A quoted field may go over lines. One of more lines than this has lost its end.
MAX_LINES_PER_RECORD = 10_000

WORD_COUNT_COLUMNS = ("user", "word", "count")

Record = tuple[int, list[str]]


class _UnclosedQuoteError(Exception):
    """A record does not end."""


class _Lines:
    """Lines that can be put back."""

    def __init__(self, lines: Iterator[str]):
        self._lines = lines
        self._returned: collections.deque[str] = collections.deque()
        self.taken: list[str] = []  # since the last record
        self.number = 0  # of the last line taken
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if len(self.taken) >= MAX_LINES_PER_RECORD:
            raise _UnclosedQuoteError
        if self._returned:
            line = self._returned.popleft()
        else:
            try:
                line = next(self._lines)
            except StopIteration:
                self.ended = True
                raise
        self.number += 1
        self.taken.append(line)
        return line

    def put_back_all_but_first(self) -> None:
        """Puts back the lines of a record whose first line is bad."""
        self._returned.extendleft(reversed(self.taken[1:]))
        self.number -= len(self.taken) - 1
        self.ended = False


def _is_whole(lines: list[str], width: int | None) -> bool:
    """Returns whether lines are one record by the letter of the format."""
    try:
        records = list(csv.reader(lines, strict=True))
    except csv.Error:
        return False
    return len(records) == 1 and width in (None, len(records[0]))


def _quoted_records(
    source: Iterator[str], bad: bad_rows.BadRows, width: int | None
) -> Iterator[Record]:
    """Yields the records of a CSV file.

    A quote that is not closed would swallow the following rows. So a record of several
    lines has to be one by the letter of the format, or else its first line alone is
    bad and reading goes on at its second. Within a line, stray quotes are taken as
    they are.
    """
    csv.field_size_limit(opening.MAX_LINE_CHARACTERS)
    lines = _Lines(source)
    reader = csv.reader(lines)
    while True:
        lines.taken = []
        start = lines.number + 1
        reason = "a quote is not closed, or is closed in a later row"
        try:
            record = next(reader, None)
            # The reader asks for another line only inside a quoted field.
            whole = not lines.ended and (
                len(lines.taken) == 1 or _is_whole(lines.taken, width)
            )
        except _UnclosedQuoteError:
            record, whole = [], False
        except csv.Error as error:
            record, whole, reason = [], False, str(error)
        if record is None:
            return
        if not whole:
            lines.put_back_all_but_first()
            reader = csv.reader(lines)
            bad.add(start, reason)
        elif any(map(opening.has_undecodable, lines.taken)):
            bad.add(start, opening.UNDECODABLE)
        elif record:  # an empty line has no fields
            width = width or len(record)
            yield start, record


def _plain_records(source: Iterator[str], bad: bad_rows.BadRows) -> Iterator[Record]:
    """Yields the records of a tab-separated file, which has no quotes."""
    for number, line in enumerate(source, 1):
        line = line.rstrip("\r\n")
        if opening.has_undecodable(line):
            bad.add(number, opening.UNDECODABLE)
        elif line:
            yield number, line.split("\t")


def _column_names(
    options: population_options.PopulationOptions, wanted: fields.Fields
) -> tuple[tuple[str, ...] | None, bool]:
    """Returns the columns' names if given, and whether the file has a header."""
    names = options.csv_columns or None
    if options.format == "word_counts" and not names:
        names = WORD_COUNT_COLUMNS
    if options.csv_header == "auto":
        return names, names is None and not wanted.all_numbers()
    return names, options.csv_header == "present"


def read(
    path: str,
    file_format: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Row]:
    """Yields the rows of a file.

    Args:
        path: The file; .gz, .xz and .zst are decompressed.
        file_format: "csv", "tsv" or "word_counts".
        options: Encoding, names of the columns and whether there is a header.
        wanted: The columns to read.
        bad: Takes the rows that cannot be read.

    Yields:
        Rows; the number is that of a row's first line.

    Raises:
        PopulationError: If the file cannot be read, a column is not there, or
            too many rows are bad.
    """
    names, has_header = _column_names(options, wanted)
    is_word = wanted.content_flag == "word_column"
    indices: tuple[int, ...] = ()
    width = len(names) if names else None
    with opening.open_text(path, options.encoding, show_progress=True) as lines:
        if file_format == "csv":
            records = _quoted_records(lines, bad, width)
        else:
            records = _plain_records(lines, bad)
        for number, record in records:
            if has_header:
                has_header = False
                names = names or tuple(record)
                continue
            if not indices:
                width = len(names) if names else len(record)
                indices = wanted.indices(path, names, width)
            if len(record) != width:
                bad.add(number, f"{len(record)} fields instead of {width}")
                continue
            values = [record[index] for index in indices]
            count = values[2] if len(values) == 3 else 1
            try:
                yield fields.make_row(number, values[0], values[1], count, is_word)
            except ValueError as error:
                bad.add(number, str(error))
