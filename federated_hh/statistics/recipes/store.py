"""A device's events: streams with a schema, kept for an approved time, in SQLite.

One database holds a block of devices, each event with the device that it is of. No
query ever sees it: the visible part of one device is copied into a sandbox (see
`verification`).
"""

import contextlib
import dataclasses
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from federated_hh.options import checks

TYPES = ("INTEGER", "REAL", "TEXT")
_OWN = ("device", "time", "rowid", "oid", "_rowid_")
# Of a text; what queries may do to longer ones would take devices too long.
MOST_BYTES = 1000


@dataclasses.dataclass(frozen=True)
class EventStream:
    """A kind of events.

    Attributes:
        name: The name of the stream, and of the table that queries name.
        fields: SQL's type by field: "INTEGER", "REAL" or "TEXT".
        retention: Time for which an event is kept, in seconds.
    """

    name: str
    fields: Mapping[str, str]
    retention: float

    def __post_init__(self):
        for name in (self.name, *self.fields):
            if other := renamed(name):
                raise ValueError(
                    f"a query cannot name the table or column {name!r}: rename it, as "
                    f"to {other}; names have letters, digits and underscores, and "
                    f"are no words of SQL, nor {', '.join(_OWN)}"
                )
        if not self.fields:
            raise ValueError(f"fields of {self.name} is empty; it has to have a field")
        for name, kind in self.fields.items():
            if kind not in TYPES:
                raise ValueError(
                    f"{name} is of type {kind!r}; it has to be one of "
                    f"{', '.join(TYPES)}"
                )
        if not self.retention > 0:
            raise ValueError(f"retention is {self.retention} s; it has to be above 0 s")
        lowered = [name.lower() for name in self.fields]
        for name in self.fields:
            if lowered.count(name.lower()) > 1:
                raise ValueError(
                    f"{self.name} has two columns called {name.lower()}, as case does "
                    "not matter: rename one"
                )

    def columns(self) -> str:
        """Returns the fields as a table's columns."""
        return ", ".join(f"{name} {kind}" for name, kind in self.fields.items())


def renamed(name: str) -> str:
    """Returns a like name that queries can have; "" for one that they can."""
    plain = name
    if not name.isidentifier():
        plain = re.sub(r"\W+", "_", name).strip("_") or "column"
        plain = plain if plain.isidentifier() else f"_{plain}"
    if plain.lower() in _OWN or not _is_sql(plain):
        plain += "_"
    return "" if plain == name else plain


def _is_sql(name: str) -> bool:
    """Returns whether SQL takes an identifier as a name."""
    try:
        with contextlib.closing(sqlite3.connect(":memory:")) as database:
            database.execute(f"create table {name} ({name} INTEGER)")
    except sqlite3.Error:  # such as a keyword
        return False
    return True


class EventStore(contextlib.AbstractContextManager):
    """The events of a block of devices."""

    def __init__(self, streams: Sequence[EventStream], path: str = ":memory:"):
        """Opens a database, and makes its tables where there are none.

        Args:
            streams: Those that events are donated to.
            path: The path of the file; in memory by default.
        """
        self._streams = {stream.name: stream for stream in streams}
        self._database = sqlite3.connect(path, isolation_level=None)
        for stream in streams:
            columns = ", ".join(
                f"{name} {kind} CONSTRAINT {name} CHECK "
                f"(typeof({name}) in ('integer', 'real') "
                f"or length(cast({name} as blob)) <= {MOST_BYTES})"
                for name, kind in stream.fields.items()
            )
            self._database.execute(
                f"create table if not exists {stream.name} "
                f"(device INTEGER NOT NULL, time REAL NOT NULL, {columns})"
            )
            self._database.execute(
                f"create index if not exists {stream.name}Devices on {stream.name} "
                "(device, time)"
            )

    def donate(self, stream: str, events: Iterable[Sequence[Any]]) -> None:
        """Adds events of any devices.

        Args:
            stream: Stream to write to.
            events: Each a device, a time in seconds, and the fields' values in order.

        Raises:
            ValueError: If there is no such stream, or a text is too long; then no
                event is added.
        """
        checks.one_of(self._streams, stream=stream)
        places = ", ".join("?" * (2 + len(self._streams[stream].fields)))
        try:
            self._database.execute("begin")
            with self._database:
                self._database.executemany(
                    f"insert into {stream} values ({places})", events
                )
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorname != "SQLITE_CONSTRAINT_CHECK":
                raise
            field = str(error).rpartition(" ")[2]  # the constraint's name
            raise ValueError(
                f"{field} of an event of {stream} has more than {MOST_BYTES:,} bytes; "
                "it has to have at most so many"
            ) from None

    def rows(self, stream: str, device: int, now: float) -> list[tuple[Any, ...]]:
        """Returns the fields of a device's events that are not too old."""
        fields = ", ".join(self._streams[stream].fields)
        return self._database.execute(
            f"select {fields} from {stream} where device = ? and time > ? "
            "order by time, rowid",
            (device, now - self._streams[stream].retention),
        ).fetchall()

    def expire(self, now: float) -> int:
        """Deletes the events that are too old, and returns their number."""
        self._database.execute("begin")
        with self._database:
            return sum(
                self._database.execute(
                    f"delete from {name} where time <= ?", (now - stream.retention,)
                ).rowcount
                for name, stream in self._streams.items()
            )

    def __exit__(self, *exception) -> None:
        self._database.close()
