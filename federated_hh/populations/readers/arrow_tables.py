"""Reads Parquet and Arrow files, such as Hugging Face's, batch by batch."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from federated_hh.files import progress, verified_files
from federated_hh.populations.columns import arrow_text
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import bad_rows, fields

_ROWS_PER_BATCH = 1 << 13
# Batches are joined up to here: the larger, the fewer tokens are looked up again.
_BYTES_AT_ONCE = 1 << 22


def _check_type(path: str, flag: str, field: pa.Field) -> None:
    value_type = field.type
    if pa.types.is_dictionary(value_type):
        value_type = value_type.value_type
    is_text = _is_text(value_type)
    is_integer = pa.types.is_integer(value_type)
    allowed = {
        "user_column": is_text or is_integer,
        "count_column": is_integer,
        "text_column": is_text or _is_list_of_text(value_type),
    }
    if not allowed.get(flag, is_text):
        expected = {
            "user_column": "text or integers",
            "count_column": "integers",
            "text_column": "text, or lists of tokens",
        }
        raise verified_files.PopulationError(
            f"{path}: column {field.name!r} (--{flag}) has type {field.type}, must "
            f"hold {expected.get(flag, 'text')}."
        )


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_list_of_text(kind: pa.DataType) -> bool:
    return _is_list(kind) and _is_text(kind.value_type)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _values(column: pa.Array) -> list[Any]:
    """Returns a column's values; those that are not UTF-8 as exceptions."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_list(column.type):
        return [_joined(tokens) for tokens in column]
    try:
        if pa.types.is_integer(column.type):
            return column.to_pylist()
        if not column.null_count:
            return arrow_text.strings(column)
        return column.to_pylist()
    except UnicodeDecodeError:
        values: list[Any] = []
        for scalar in column:
            try:
                values.append(scalar.as_py())
            except UnicodeDecodeError:
                values.append(ValueError("bytes that are not UTF-8"))
        return values


def _joined(tokens: pa.Scalar) -> Any:
    """Returns a row's tokens as a text, None, or an exception."""
    try:
        values = tokens.as_py()
        if values is None or None in values:
            return None
        return " ".join(values)
    except UnicodeDecodeError:
        return ValueError("bytes that are not UTF-8")


def _reason(values: tuple[Any, ...], wanted: fields.Fields) -> str | None:
    """Returns why a row cannot be read, if it cannot."""
    for (flag, _), value in zip(wanted.named(), values, strict=True):
        if value is None:
            return f"no value for --{flag}"
        if isinstance(value, ValueError):
            return str(value)
    return None


def _rows(
    first: int,
    columns: list[list[Any]],
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> fields.Rows:
    """Returns the rows of a batch that can be used; the first has this number."""
    places = list(range(first, first + len(columns[0])))
    wrong = []
    if not set().union(*(map(type, column) for column in columns)) <= {str, int}:
        reasons = [_reason(values, wanted) for values in zip(*columns, strict=True)]
        wrong = [
            (place, reason)
            for place, reason in zip(places, reasons, strict=True)
            if reason is not None
        ]
        whole = [reason is None for reason in reasons]
        places = list(itertools.compress(places, whole))
        columns = [list(itertools.compress(column, whole)) for column in columns]
    users, *others = columns
    if users and isinstance(users[0], int):
        users = list(map(str, users))
    return fields.checked(places, [users, *others], wanted, bad, wrong)


def _columns(
    batches: Iterable[pa.RecordBatch], names: list[str]
) -> Iterator[list[list[Any]]]:
    """Yields the values of columns, of some megabytes of rows at a time."""
    waiting: list[list[Any]] = [[] for _ in names]
    size = 0
    for batch in batches:
        for values, name in zip(waiting, names, strict=True):
            values += _values(batch.column(name))
        size += batch.nbytes
        if size >= _BYTES_AT_ONCE:
            yield waiting
            waiting, size = [[] for _ in names], 0
    yield waiting


def _wanted(path: str, schema: pa.Schema, wanted: fields.Fields) -> list[str]:
    """Returns the names of the wanted columns.

    Raises:
        PopulationError: If one is not there or has another type.
    """
    indices = wanted.indices(path, schema.names, len(schema))
    for (flag, _), index in zip(wanted.named(), indices, strict=True):
        _check_type(path, flag, schema.field(index))
    return [schema.names[index] for index in indices]


@contextlib.contextmanager
def _arrow_batches(
    path: str,
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Opens an Arrow file, or a stream as Hugging Face writes it."""
    with pa.memory_map(path) as mapped:
        is_file = mapped.read(6) == b"ARROW1"
        mapped.seek(0)
        if is_file:
            with pa.ipc.open_file(mapped) as file:
                count = file.num_record_batches
                yield file.schema, map(file.get_batch, range(count))
        else:
            with pa.ipc.open_stream(mapped) as stream:
                yield stream.schema, iter(stream)


def read_arrow(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of an Arrow file; see `read_parquet`."""
    if options.split not in (None, os.path.basename(os.path.dirname(path))):
        raise verified_files.PopulationError(
            f"--population_split={options.split}: {path} is no part of a Hugging Face "
            "dataset with such a split; leave it out."
        )
    with (
        fields.reading(path, "Arrow", pa.ArrowException),
        _arrow_batches(path) as (schema, batches),
    ):
        yield from _numbered(batches, _wanted(path, schema, wanted), wanted, bad)


def read_parquet(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of a file.

    Args:
        path: The file.
        options: Not used: Parquet says by itself how it is encoded.
        wanted: The columns to read.
        bad: Collects the rows that cannot be read.

    Yields:
        Rows; the number is that of the row, from 1.

    Raises:
        PopulationError: If the file cannot be read, a column is not there or
            has another type, or too many rows are bad.
    """
    del options
    with (
        fields.reading(path, "Parquet", pa.ArrowException),
        pq.ParquetFile(path) as file,
    ):
        names = _wanted(path, file.schema_arrow, wanted)
        batches = file.iter_batches(_ROWS_PER_BATCH, columns=names)
        description = f"Reading {path}"
        with progress.Progress(description, file.metadata.num_rows, "rows") as bar:
            yield from _numbered(batches, names, wanted, bad, bar.set)


def _numbered(
    batches: Iterable[pa.RecordBatch],
    names: list[str],
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
    done: Callable[[int], None] = lambda _: None,
) -> Iterator[fields.Rows]:
    """Yields the rows of batches; `done` is told how many rows were used."""
    number = 0
    for columns in _columns(batches, names):
        yield _rows(number + 1, columns, wanted, bad)
        number += len(columns[0])
        done(number)
