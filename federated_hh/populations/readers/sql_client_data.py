"""Reads databases of TFF's `SqlClientData`, such as its Stack Overflow, as they are.

A database has a table `examples` (split_name, client_id, serialized_example_proto) and
a table `client_metadata` (client_id, split_name, num_examples). An example is a
`tf.train.Example`, one of whose features is the text.
"""

import contextlib
import sqlite3
import urllib.parse
from collections.abc import Iterator

from federated_hh.files import progress, verified_files
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import bad_rows, fields

_COLUMNS = {
    "examples": ("split_name", "client_id", "serialized_example_proto"),
    "client_metadata": ("client_id", "split_name", "num_examples"),
}
_ROWS_AT_ONCE = 1 << 13


def read(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of a database: its examples' clients, and one feature of each.

    Args:
        path: The database.
        options: The split that is read, None for all.
        wanted: The feature with text or words; the database's clients are the users.
        bad: Collects the examples that cannot be read.

    Yields:
        Rows; the number is the example's, `rowid`.

    Raises:
        PopulationError: If it is not such a database, has no such split, an impossible
            column is named, or too many examples are bad.
    """
    wanted.check_own_users(path, "database")
    address = f"file:{urllib.parse.quote(path)}?mode=ro"
    with (
        fields.reading(path, "a database of TFF's SqlClientData", sqlite3.Error),
        contextlib.closing(sqlite3.connect(address, uri=True)) as connection,
        contextlib.closing(connection.cursor()) as cursor,
    ):
        total = _check(path, cursor, options.split)
        cursor.execute(
            "SELECT rowid, client_id, serialized_example_proto FROM examples "
            "WHERE :split IS NULL OR split_name = :split ORDER BY rowid",
            {"split": options.split},
        )
        number = 0
        with progress.Progress(f"Reading {path}", total, "examples") as bar:
            while batch := cursor.fetchmany(_ROWS_AT_ONCE):
                yield _rows(batch, wanted, bad)
                number += len(batch)
                bar.set(number)


def _check(path: str, cursor: sqlite3.Cursor, split: str | None) -> int:
    """Returns the number of examples to read."""
    for table, names in _COLUMNS.items():
        found = [row[1] for row in cursor.execute(f"PRAGMA table_info({table})")]
        missing = [name for name in names if name not in found]
        if missing:
            raise verified_files.PopulationError(
                f"{path} is not a database of TFF's SqlClientData: its table {table} "
                f"lacks {', '.join(missing)}."
            )
    counts = dict(
        cursor.execute(
            "SELECT split_name, SUM(num_examples) FROM client_metadata GROUP BY 1"
        ).fetchall()
    )
    if split is not None and split not in counts:
        raise verified_files.PopulationError(
            f"{path} has no split {split!r} (--population_split); it has "
            f"{', '.join(map(str, counts)) or 'none'}."
        )
    return sum(counts.values()) if split is None else counts[split]


def _rows(
    batch: list[tuple[int, str, bytes]], wanted: fields.Fields, bad: bad_rows.BadRows
) -> fields.Rows:
    """Returns the rows of some examples that can be used."""
    # The second brings TensorFlow: seconds.
    from google.protobuf import message
    from tensorflow.core.example import example_pb2

    places, users, texts, wrong = [], [], [], []
    for place, client, serialized in batch:
        try:
            example = example_pb2.Example.FromString(serialized)
            text = _text(example.features.feature, wanted)
        except (ValueError, TypeError, message.DecodeError) as error:
            wrong.append((place, str(error)))
            continue
        places.append(place)
        users.append("" if client is None else str(client))
        texts.append(text)
    return fields.checked(places, [users, texts], wanted, bad, wrong)


def _text(features, wanted: fields.Fields) -> str:
    """Returns the wanted feature.

    Raises:
        ValueError: If there is none of that name, or it is not UTF-8 text.
    """
    name = wanted.content
    if name not in features:
        raise ValueError(
            f"no feature {name!r} (--{wanted.content_flag}); there are "
            f"{', '.join(sorted(features))}"
        )
    values = features[name].bytes_list.value
    if not values:
        raise ValueError(f"the feature {name!r} holds no text")
    try:
        return " ".join(value.decode() for value in values)
    except UnicodeDecodeError:
        raise ValueError("the text is not UTF-8") from None
