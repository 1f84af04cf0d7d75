"""Reads CSV, TSV and word count files, many rows at a time."""

import csv
import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from federated_hh.files import verified_files
from federated_hh.populations.columns import arrow_text
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import bad_rows, fields, opening

# A quoted field may go over lines. One of more lines than this has lost its end.
MAX_LINES_PER_RECORD = 10_000

_DELIMITERS = ",;\t"
WORD_COUNT_COLUMNS = ("user", "word", "count")

# Characters allowed next to a quote that begins a field, or ends one, besides the
# delimiter.
_BEFORE_FIELD, _AFTER_FIELD = b'\n"', b'\r\n"'

# A first line that names the delimiter, as Excel writes and reads it.
_SEPARATOR = re.compile('\ufeff?"?sep=([^\\w"\\r\\n])"?\r?\n', re.IGNORECASE)

_NOT_CLOSED = "a quote is not closed, or is closed in a later row"


@dataclasses.dataclass(frozen=True)
class _Records:
    """Consecutive records of a file.

    Attributes:
        lines: The first line of each, from 1.
        records: Their fields, of each at least one.
        wrong: First line of each record among them that cannot be read, and why.
    """

    lines: list[int]
    records: list[list[str]]
    wrong: list[tuple[int, str]]


class _QuotedRecords:
    """Cuts the lines of a CSV file into records.

    A quote that is not closed would swallow the following rows. So a record of several
    lines has to follow the format strictly. Otherwise only its first line is bad, and
    reading continues at its second. Within a line, stray quotes are kept.
    """

    def __init__(self, width: int, delimiter: str = ",", done: int = 0):
        """Starts at the first line.

        Args:
            width: Number of fields of a record; 0 for as many as the first has.
            delimiter: Character between fields.
            done: Number of lines of the file before the first.
        """
        self._width = width
        self._delimiter = delimiter
        self._done = done  # lines of the file
        self._rest: list[str] = []  # lines of a record that has begun

    def cut(self, block: str) -> _Records:
        """Returns the records of the remaining lines and a block of lines.

        Args:
            block: Whole lines; "" at the end of the file.
        """
        csv.field_size_limit(opening.MAX_LINE_CHARACTERS)
        is_last = not block
        if block and not block.endswith("\n"):
            block += "\n"
        lines = self._rest + list(opening.lines_of(block))
        self._rest = []
        found = _Records([], [], [])
        ends: list[int] = []
        start = 0
        while start < len(lines) and not self._rest:
            start = self._cut(lines, start, found, ends, is_last)
        self._leave_out(found, ends, lines)
        self._done += start
        return found

    def plain_columns(
        self, block: str, width: int, indices: Sequence[int]
    ) -> tuple[Sequence[int], list[list[str]]] | None:
        """Reads a block all of whose lines are records by the letter of the format.

        Arrow does so, several times faster than `cut`; on such lines they agree.

        Args:
            block: Whole lines.
            width: Number of fields of a record.
            indices: Indices of the wanted fields.

        Returns:
            The line and the wanted fields of each record; None if the block has to be
            cut, as it may have other lines.
        """
        if self._rest or not _is_well_quoted(block, self._delimiter):
            return None
        names = list(map(str, range(width)))
        wanted = [names[index] for index in indices]
        data = block.encode()
        try:
            table = pa_csv.read_csv(
                pa.py_buffer(data),
                pa_csv.ReadOptions(
                    use_threads=False, block_size=len(data) + 1, column_names=names
                ),
                pa_csv.ParseOptions(delimiter=self._delimiter),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pa.string()),
                    include_columns=wanted,
                ),
            )
        except pa.ArrowInvalid:  # such as a record with more fields
            return None
        if len(table) != block.count("\n"):  # such as an empty line
            return None
        first = self._done + 1
        self._done += len(table)
        columns = [
            arrow_text.strings(table.column(place).combine_chunks())
            for place in range(len(indices))
        ]
        return range(first, first + len(table)), columns

    def _cut(
        self,
        lines: list[str],
        start: int,
        found: _Records,
        ends: list[int],
        is_last: bool,
    ) -> int:
        """Adds the records from a line on, until one is bad.

        Returns:
            The next line to cut; the start of `self._rest` if a record continues after
            the last line.
        """
        rest = itertools.islice(lines, start, None)
        reader = csv.reader(rest, delimiter=self._delimiter)
        first = start  # of the record
        wrong = _NOT_CLOSED
        try:
            for record in reader:
                end = start + reader.line_num
                # The reader asks for another line only inside a quoted field, and
                # keeps the end of a line only there.
                if end != first + 1 or end == len(lines):
                    is_open = end == len(lines) and bool(record)
                    is_open = is_open and record[-1].endswith("\n")
                    taken = lines[first:end]
                    if is_open and not is_last and len(taken) < MAX_LINES_PER_RECORD:
                        self._rest = taken
                        return first
                    if is_open or not self._is_whole(taken, found, ends, lines):
                        break
                found.lines.append(self._done + first + 1)
                found.records.append(record)
                ends.append(end)
                first = end
            else:
                return first
        except csv.Error as error:
            wrong = str(error)
        found.wrong.append((self._done + first + 1, wrong))
        return first + 1

    def _is_whole(
        self, taken: list[str], found: _Records, ends: list[int], lines: list[str]
    ) -> bool:
        """Returns whether lines are one record, if several by the letter."""
        if len(taken) == 1:
            return True
        if len(taken) > MAX_LINES_PER_RECORD:
            return False
        try:
            records = list(csv.reader(taken, strict=True, delimiter=self._delimiter))
        except csv.Error:
            return False
        width = self._width or self._width_of_first(found, ends, lines)
        return len(records) == 1 and width in (0, len(records[0]))

    def _width_of_first(
        self, found: _Records, ends: list[int], lines: list[str]
    ) -> int:
        for number, record, end in zip(found.lines, found.records, ends, strict=True):
            taken = lines[number - 1 - self._done : end]
            if record and not any(map(opening.has_undecodable, taken)):
                return len(record)
        return 0

    def _leave_out(self, found: _Records, ends: list[int], lines: list[str]) -> None:
        """Leaves out records without fields, and undecodable ones."""
        undecodable = opening.has_undecodable("".join(lines))
        self._width = self._width or self._width_of_first(found, ends, lines)
        if not undecodable and all(found.records):
            return
        kept = []
        for place, (number, record) in enumerate(
            zip(found.lines, found.records, strict=True)
        ):
            taken = lines[number - 1 - self._done : ends[place]]
            if undecodable and any(map(opening.has_undecodable, taken)):
                found.wrong.append((number, opening.UNDECODABLE))
            elif record:  # an empty line has no fields
                kept.append(place)
        found.lines[:] = [found.lines[place] for place in kept]
        found.records[:] = [found.records[place] for place in kept]


def _begin(
    block: str, width: int, delimiter: str | None, likely: str
) -> tuple[_QuotedRecords, str]:
    """Returns a file's records, and its first block without Excel's "sep=;".

    Args:
        block: The first block.
        width: Number of fields of a record; 0 for as many as the first has.
        delimiter: Character between fields, if it is given.
        likely: The characters, of which the first line has the right one most often.
    """
    found = _SEPARATOR.match(block)
    block = block[found.end() :] if found else block
    first = block.partition("\n")[0]
    mark = delimiter or (found and found[1]) or max(likely, key=first.count)
    return _QuotedRecords(width, mark, 1 if found else 0), block


class _PlainRecords:
    """Cuts the lines of a tab-separated file, which has no quotes, into records."""

    def __init__(self):
        """Starts at the first line."""
        self._done = 0

    def cut(self, block: str) -> _Records:
        """Returns the records of a block of lines; see `_QuotedRecords`."""
        found = _Records([], [], [])
        undecodable = opening.has_undecodable(block)
        for number, line in enumerate(opening.lines_of(block), self._done + 1):
            self._done = number
            line = line.rstrip("\r\n")
            if undecodable and opening.has_undecodable(line):
                found.wrong.append((number, opening.UNDECODABLE))
            elif line:
                found.lines.append(number)
                found.records.append(line.split("\t"))
        return found


def _is_well_quoted(block: str, delimiter: str) -> bool:
    """Returns whether quotes enclose whole fields, or are doubled inside these.

    Also False for lone carriage returns, bytes that are not UTF-8, a byte order mark,
    and a last line without an end.
    """
    if (
        not block.endswith("\n")
        or block.startswith("\ufeff")
        or block.count("\r") != block.count("\r\n")
        or opening.has_undecodable(block)
    ):
        return False
    if '"' not in block:
        return True
    data = np.frombuffer(block.encode(), np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    # They alternately begin and end a field, or a part between two doubled quotes.
    begin, end = quotes[::2], quotes[1::2]
    before = data[begin - 1]  # of the first byte: the last, the end of a line
    after = data[end + 1]  # the last byte is not a quote
    allowed = (
        np.frombuffer(delimiter.encode() + beside, np.uint8)
        for beside in (_BEFORE_FIELD, _AFTER_FIELD)
    )
    return len(quotes) % 2 == 0 and all(
        np.isin(found, known).all()
        for found, known in zip((before, after), allowed, strict=True)
    )


def _leave_out_other_widths(found: _Records, width: int) -> None:
    """Leaves out records that have not as many fields as they have to."""
    if set(map(len, found.records)) <= {width}:
        return
    kept = []
    for place, record in enumerate(found.records):
        if len(record) == width:
            kept.append(place)
        else:
            reason = f"{len(record)} fields instead of {width}"
            found.wrong.append((found.lines[place], reason))
    found.lines[:] = [found.lines[place] for place in kept]
    found.records[:] = [found.records[place] for place in kept]


def _check_header(path: str, encoding: str, found: _Records) -> None:
    """Raises `PopulationError` for a header that the encoding does not have."""
    first = min(found.lines, default=math.inf)
    if any(n < first and why == opening.UNDECODABLE for n, why in found.wrong):
        advice = ""
        if other := opening.likely_encoding(path, encoding):
            with opening.open_text(path, other[0]) as lines:
                line = next(lines).strip()[:200]
            advice = f"; {other[1]}. The first line is then {line!r}"
        raise verified_files.PopulationError(
            f"{path}: the columns' names have bytes that --encoding={encoding} does "
            f"not have{advice}."
        )


def read_records(
    path: str, encoding: str, delimiter: str | None, bad: bad_rows.BadRows
) -> Iterator[tuple[int, list[str]]]:
    """Yields the records of a CSV file, the header first, each with its first line.

    Args:
        path: The file; .gz, .xz and .zst are decompressed.
        encoding: The file's text encoding.
        delimiter: Character between fields; None for the header's comma, semicolon or
            tab.
        bad: Collects the rows that cannot be read or are not as wide as the header.

    Raises:
        PopulationError: If the file cannot be read, or too many rows are bad.
    """
    records, width = None, 0
    with opening.open_blocks(path, encoding, show_progress=False) as blocks:
        for block in itertools.chain(blocks, [""]):
            if records is None:
                records, block = _begin(block, 0, delimiter, _DELIMITERS)
            found = records.cut(block)
            if not width:
                _check_header(path, encoding, found)
            if not width and found.records:
                width = len(found.records[0])
                # What it lacks is told before the rows' mistakes.
                yield found.lines.pop(0), found.records.pop(0)
            _leave_out_other_widths(found, width)
            for line, reason in sorted(found.wrong):
                bad.add(line, reason)
            yield from zip(found.lines, found.records, strict=True)


def _column_names(
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    default_names: tuple[str, ...],
) -> tuple[tuple[str, ...] | None, bool]:
    """Returns the columns' names if given, and whether the file has a header."""
    names = options.csv_columns or default_names or None
    if options.csv_header == "auto":
        return names, names is None and not wanted.all_numbers()
    return names, options.csv_header == "present"


def read_csv(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of a CSV file, whose fields may be quoted; see `_read`."""
    return _read(path, options, wanted, bad, is_quoted=True)


def read_tsv(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of a TSV file, which knows no quotes; see `_read`."""
    return _read(path, options, wanted, bad, is_quoted=False)


def read_word_counts(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of a TSV file of users, words and counts; see `_read`."""
    names = WORD_COUNT_COLUMNS
    return _read(path, options, wanted, bad, is_quoted=False, default_names=names)


def _read(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
    *,
    is_quoted: bool,
    default_names: tuple[str, ...] = (),
) -> Iterator[fields.Rows]:
    """Yields the rows of a file.

    Args:
        path: The file; .gz, .xz and .zst are decompressed.
        options: Encoding, names of the columns and whether there is a header.
        wanted: The columns to read.
        bad: Collects the rows that cannot be read.
        is_quoted: Whether fields may be quoted, as in CSV.
        default_names: Names of the columns where the options give none; such a file
            has no header.

    Yields:
        Rows; the number is that of a row's first line.

    Raises:
        PopulationError: If the file cannot be read, a column is not there, or
            too many rows are bad.
    """
    names, has_header = _column_names(options, wanted, default_names)
    indices: tuple[int, ...] = ()
    width = len(names) if names else 0
    records: _QuotedRecords | _PlainRecords | None = None
    if not is_quoted:
        records = _PlainRecords()
    with opening.open_blocks(path, options.encoding) as blocks:
        for block in itertools.chain(blocks, [""]):
            if records is None:
                records, block = _begin(block, width, options.separator, ",")
            if indices and block and isinstance(records, _QuotedRecords):
                plain = records.plain_columns(block, width, indices)
                if plain is not None:
                    yield fields.checked(*plain, wanted, bad)
                    continue
            found = records.cut(block)
            if has_header:
                _check_header(path, options.encoding, found)
            first = min(found.lines, default=math.inf)
            if has_header and found.records:
                has_header = False
                first, header = found.lines.pop(0), found.records.pop(0)
                names = names or tuple(header)
            if not indices and (names or found.records):
                width = len(names or found.records[0])
                found.wrong.sort()
                while found.wrong and found.wrong[0][0] < first:
                    bad.add(*found.wrong.pop(0))
                indices = wanted.indices(path, names, width, options.encoding)
            _leave_out_other_widths(found, width)
            columns: list[list[str]] = [
                [record[index] for record in found.records] for index in indices
            ]
            yield fields.checked(
                found.lines,
                columns or [[]] * len(wanted.named()),
                wanted,
                bad,
                found.wrong,
            )
