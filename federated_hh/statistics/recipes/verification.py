"""The verification of a query's class, and its execution on one device.

A query sees a sandbox: a database in memory that holds the asking device's own rows of
one stream and nothing else, so that no query can reach another device, whatever it
manages to say; and of those rows the fields that the query was found to read, the
others being null, in an order of what is left: LIMIT, ties and sums of floats tell
nothing of the time at which events came. (One table of all devices behind a view of
the current one would leak them all: SQLite's authorizer takes a common table expression
for the view whose name it has.) Within the sandbox an authorizer allows one SELECT, the
approved fields and the approved functions.

A query is verified in a separate sandbox without rows: a refusal follows from the query
alone, and tells nothing of a device.
"""

import contextlib
import dataclasses
import itertools
import re
import sqlite3
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from federated_hh.options import checks
from federated_hh.statistics.recipes import store

# All that an analyst is told.
PUBLIC_REASON = "the query is not in the approved class"
# The time that each takes grows with its arguments' lengths, not with their product as
# that of trim(text, characters), of which nothing tells the authorizer.
FUNCTIONS = frozenset(
    {"abs", "avg", "coalesce", "count", "ifnull", "iif", "length", "lower", "max"}
    | {"min", "nullif", "round", "substr", "sum", "total", "upper"}
)
_BEGINNING = re.compile(r"\s*select\b", re.IGNORECASE)
# A query that finds the same rows in whatever order they are.
_WORD = "[\\w\x80-\U0010ffff]+"  # as SQLite has it
_PLAIN = re.compile(
    rf"\s*select\s+{_WORD}(\s*,\s*{_WORD})*\s+from\s+{_WORD}\s*", re.IGNORECASE
)
_COLUMNS = re.compile(
    rf"\s*select\s+({_WORD}(?:\s*,\s*{_WORD})*)\s+from\s", re.IGNORECASE
)
# In double quotes SQLite takes what is no column for a text; the others end or hide
# what is executed.
_FORBIDDEN = ('"', ";", "--", "/*", "\0", "?", ":", "@", "$")
# SQLite does not ask its authorizer about the fields that these compare.
_FORBIDDEN_WORDS = re.compile(r"\b(join|using|natural)\b", re.IGNORECASE)
# Strings, names with what they are part of, and numbers.
_TOKEN = re.compile(
    rf"'(?:[^']|'')*'|(?:{_WORD}\s*\.\s*)*(?:\[[^]]*\]|`[^`]*`|[^\W\d]\w*)"
    r"|\.?\d[\w.]*"
)
_CALL = re.compile(rf"({_WORD})?\s*\(([^()]*)\)")
# In a query with {i} for a column of texts and # for a number.
_SAME = r"(?:[<>=!]{1,2}|\bis\b(?:\s+not\b)?)"
_COMPARED = re.compile(
    rf"{{(\d+)}}\s*(?:{_SAME}|(?:\bnot\s+)?\b(?:between|in)\b)\s*[-+]?\s*#"
    rf"|#\s*{_SAME}\s*{{(\d+)}}"
)
_COMPUTED = re.compile(r"{(\d+)}\s*[-+*/%]|[-+*/%]\s*{(\d+)}")
_RENAMED = re.compile(rf"{{(\d+)}}\s+(?:as\s+)?({{\d+}}|#|{_WORD})\s*(?:,|\bfrom\b)")
_OF_NUMBERS = ("abs", "avg", "round", "sum", "total")
_STEPS_BETWEEN_CHECKS = 1000
# Steps of SQLite's machine: 30 for each of the most rows. They take about 0.005 s, and
# 0.3 s and 0.1 GB where each handles a text of the greatest length.
_MOST_CHECKS = 300
_MOST_ROWS = 10_000
_MOST_BYTES = 10_000_000  # of the values that are found
_ROWS_AT_ONCE = 100
_MOST_VARIABLES = 100
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 2 * store.MOST_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 4_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 1,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 10_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 10,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: _MOST_VARIABLES,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


class QueryRefusedError(ValueError):
    """A query is not in the approved class; the message is for the device's log."""


class QueryFailedError(ValueError):
    """An approved query did not end on a device's rows, or found too many."""


@dataclasses.dataclass(frozen=True)
class QueryClass:
    """The queries that an analysis may ask.

    Attributes:
        stream: The only one that they read.
        fields: Those of its fields that they may read.
        functions: Those of SQLite's that they may call, in lower case.
    """

    stream: store.EventStream
    fields: frozenset[str]
    functions: frozenset[str] = FUNCTIONS

    def __post_init__(self):
        unknown = self.fields - self.stream.fields.keys()
        checks.holds(
            not (unknown or not self.fields),
            f"some of {', '.join(self.stream.fields)}",
            fields=sorted(self.fields),
        )


def is_plain(query: str) -> bool:
    """Returns whether a query names fields of a stream and does nothing else."""
    return _PLAIN.fullmatch(query) is not None


def plain_columns(query: str) -> list[str]:
    """Returns the columns of a query that selects columns as they are, or none."""
    found = _COLUMNS.match(query)
    return re.split(r"\s*,\s*", found[1]) if found else []


def text_as_number(
    query: str, kinds: Mapping[str, str], numbers: Collection[str]
) -> tuple[str, str] | None:
    """Returns a column of texts that a query takes for numbers, and what it does.

    SQLite raises no error: it compares the texts, or computes with their first digits.

    Args:
        query: In the approved class.
        kinds: SQL's types by column.
        numbers: Columns of the query's rows that are counted as numbers.
    """
    columns = {name.lower(): place for place, name in enumerate(kinds)}

    def marked(token: re.Match[str]) -> str:
        text = token[0].lower()
        if text[0] in "'.0123456789":
            return "''" if text[0] == "'" else "#"
        place = columns.get(text.rpartition(".")[2].strip(" \t\n[]`"))
        if place is None:
            return text
        return f"{{{place}}}" if [*kinds.values()][place] == "TEXT" else "#"

    def told(found: re.Match[str], what: str) -> tuple[str, str]:
        return [*kinds][int(found[1] or found[2])], what

    rest = _TOKEN.sub(marked, query)
    while True:
        call = _CALL.search(rest)
        function, part = call.groups("") if call else ("", rest)
        for pattern, what in (
            (_COMPARED, "compares it with a number"),
            (_COMPUTED, "computes with it"),
        ):
            if found := pattern.search(part):
                return told(found, what)
        text = re.search(r"{(\d+)}()", part)
        if text and function in _OF_NUMBERS:
            return told(text, f"takes its {function}")
        if call is None:
            break
        given = part.partition(",")[2] if function == "iif" else part
        text = re.search(r"{\d+}", given)
        value = text[0] if text and not re.search(r"[<>=]", given) else "#"
        if function in ("cast", "count", "length"):
            value = "#"
        elif value == "#" and re.fullmatch(r"[\s',]+", given):
            value = "''"
        kept = "" if function in FUNCTIONS or function == "cast" else function
        rest = f"{rest[: call.start()]}{kept} {value} {rest[call.end() :]}"
    for found in _RENAMED.finditer(rest):
        alias = found[2]
        name = [*kinds][int(alias[1:-1])] if alias[0] == "{" else alias
        if name == "#" or name.lower() in {each.lower() for each in numbers}:
            return told(found, "takes it for a number")
    return None


class Sandbox(contextlib.AbstractContextManager):
    """A database for one device's rows at a time."""

    def __init__(self, query_class: QueryClass):
        """Makes it, without rows."""
        self._class = query_class
        stream = query_class.stream
        # Python keeps statements by their text: as a query begins with SELECT, these
        # are none of those that it can bring back.
        self._delete = f"delete from {stream.name}"
        self._insert = f"insert into {stream.name} values "
        self._places = f"({', '.join('?' * len(stream.fields))})"
        self._rows_at_once = max(1, _MOST_VARIABLES // len(stream.fields))
        self._is_trusted = True
        self._read: set[str] = set()
        self._selects = self._checks = 0
        self._denied = ""
        self._verified: dict[str, tuple[list[str], frozenset[str]]] = {}
        self._database = self._open(128)
        # A statement that is kept is not authorized again, and here each has to be.
        self._empty = self._open(0)
        self._is_trusted = False

    def _open(self, kept_statements: int) -> sqlite3.Connection:
        database = sqlite3.connect(
            ":memory:", isolation_level=None, cached_statements=kept_statements
        )
        stream = self._class.stream
        database.execute(f"create table {stream.name} ({stream.columns()})")
        database.execute("pragma temp_store = memory")
        for limit, value in _LIMITS.items():
            database.setlimit(limit, value)
        database.set_authorizer(self._authorize)
        database.set_progress_handler(self._is_too_long, _STEPS_BETWEEN_CHECKS)
        return database

    def verify(self, query: str, columns: Sequence[str]) -> frozenset[str]:
        """Returns the data fields that a query reads.

        A query that only counts rows counts as one that reads every approved field.

        Args:
            query: From an analyst.
            columns: The names that the columns of its rows have to have.

        Raises:
            QueryRefusedError: If it is not in the approved class.
        """
        if query not in self._verified:
            self._verified[query] = self._verify(query)
        names, fields = self._verified[query]
        if sorted(names) != sorted(columns):
            raise QueryRefusedError(
                f"its columns are {', '.join(names)}; they have to be "
                f"{', '.join(columns)}"
            )
        return fields

    def _verify(self, query: str) -> tuple[list[str], frozenset[str]]:
        """Returns the columns of a query and the fields that it reads."""
        if not _BEGINNING.match(query):
            raise QueryRefusedError("it does not begin with SELECT")
        for text in _FORBIDDEN:
            if text in query:
                raise QueryRefusedError(f"it has {text!r} in it")
        if word := _FORBIDDEN_WORDS.search(query):
            raise QueryRefusedError(f"it has {word[0]!r} in it")
        self._read, self._denied = set(), ""
        try:
            names, _ = self._execute(self._empty, query)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            reason = f"{self._denied} is not allowed" if self._denied else str(error)
            raise QueryRefusedError(reason) from None
        return names, frozenset(self._read)

    def answer(
        self, query: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        """Returns a query's result on a device's rows, in the order of `columns`.

        It is the same for any order of the rows; of a plain query, which a device
        takes one row of by chance, but for the order in which it finds them.

        Args:
            query: Verified here, if it was not before.
            columns: See `verify`.
            rows: The rows of the stream, all fields, in any order.

        Raises:
            QueryRefusedError: If it is not in the approved class.
            QueryFailedError: If it takes too long, finds too much, or cannot be
                computed. This may depend on the rows: nobody but the device may learn
                of it.
        """
        fields = self.verify(query, columns)
        is_read = [field in fields for field in self._class.stream.fields]
        seen = [_seen(row, is_read) for row in rows]
        if not is_plain(query):
            seen.sort(key=repr)  # rows of the same text are the same
        try:
            self._fill(seen)
            names, found = self._execute(self._database, query)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise QueryFailedError(str(error)) from None
        finally:
            self._fill(())
        if names == [*columns]:
            return found
        places = [names.index(column) for column in columns]
        return [tuple(row[place] for place in places) for row in found]

    def _fill(self, rows: Sequence[Sequence[Any]]) -> None:
        """Replaces all rows by others.

        Many rows go in at once, as each statement takes its time.
        """
        self._is_trusted = True
        try:
            self._database.execute(self._delete)
            for first in range(0, len(rows), self._rows_at_once):
                part = rows[first : first + self._rows_at_once]
                self._database.execute(
                    self._insert + ",".join([self._places] * len(part)),
                    [*itertools.chain.from_iterable(part)],
                )
        finally:
            self._is_trusted = False

    def _execute(
        self, database: sqlite3.Connection, query: str
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        self._checks, self._selects = 0, 0
        with contextlib.closing(database.execute(query)) as cursor:
            names = [column[0] for column in cursor.description]
            return names, _found(cursor)

    def _is_too_long(self) -> bool:
        self._checks += 1
        return self._checks > _MOST_CHECKS and not self._is_trusted

    def _authorize(self, action, first, second, database, inner) -> int:
        """Allows one SELECT of approved fields and functions."""
        if self._is_trusted:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_SELECT:
            self._selects += 1
            if self._selects == 1 and inner is None:
                return sqlite3.SQLITE_OK
            return self._deny("a second SELECT")
        if action == sqlite3.SQLITE_READ:
            return self._authorize_read(first, second, database, inner)
        if action == sqlite3.SQLITE_FUNCTION:
            if str(second).lower() in self._class.functions:
                return sqlite3.SQLITE_OK
            return self._deny(f"the function {second}")
        return self._deny(f"action {action} of SQLite's")

    def _authorize_read(self, table, field, database, inner) -> int:
        is_own = str(table).lower() == self._class.stream.name.lower()
        # Where rows are only counted, SQLite names no database.
        if not is_own or inner is not None or database != ("main" if field else None):
            return self._deny(f"the table {table}")
        if not field:
            self._read |= self._class.fields
        elif field in self._class.fields:
            self._read.add(field)
        else:
            return self._deny(f"the field {field}")
        return sqlite3.SQLITE_OK

    def _deny(self, what: str) -> int:
        self._denied = self._denied or what
        return sqlite3.SQLITE_DENY

    def __exit__(self, *exception) -> None:
        self._database.close()
        self._empty.close()


def _found(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    """Returns all rows, unless there are too many or their values take too much."""
    found: list[tuple[Any, ...]] = []
    size = 0
    while part := cursor.fetchmany(_ROWS_AT_ONCE):
        found += part
        size += sum(map(sys.getsizeof, itertools.chain.from_iterable(part)))
        if len(found) > _MOST_ROWS:
            raise QueryFailedError(f"it finds more than {_MOST_ROWS:,} rows")
        if size > _MOST_BYTES:
            raise QueryFailedError(f"it finds more than {_MOST_BYTES:,} bytes")
    return found


def _seen(row: Sequence[Any], is_read: Sequence[bool]) -> list[Any]:
    """Returns a row with nulls for the fields that are not read."""
    return [value if seen else None for value, seen in zip(row, is_read, strict=True)]
