"""Reads files that are one JSON document: LEAF's, and arrays of objects.

A file of LEAF (Caldas et al. 2018) has the fields `users` and `user_data`; the data of
a user are lists by name, such as `x` and `y`, of an entry for each example.
"""

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from federated_hh.files import memory, verified_files
from federated_hh.populations.options import population_options
from federated_hh.populations.readers import bad_rows, fields, json_lines, opening

_ROWS_AT_ONCE = 1 << 13
# Of a document in memory, over its characters in the file: lists of tokens take 10.6,
# objects of a text 5.7, LEAF's texts 3.2.
_BYTES_IN_MEMORY = 12


def read(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of a file.

    Args:
        path: The file; .gz, .xz and .zst are decompressed.
        options: The encoding.
        wanted: The fields to read. Of a file of LEAF the users are its own, and the
            text's field is a list of `user_data`, such as `x`, or an item of each of
            its entries, such as `x.4`.
        bad: Collects the rows that cannot be read.

    Yields:
        Rows; the number is the entry's in the file, from 1.

    Raises:
        PopulationError: If the file cannot be read or has another form, or too many
            rows are bad.
    """
    document = _document(path, options.encoding)
    entries: Iterator[Any]
    parse: Callable[[fields.Fields, Any], list[Any]]
    if isinstance(document, list):
        entries, parse = iter(document), _of_object
    elif isinstance(document, dict) and isinstance(document.get("user_data"), dict):
        if wanted.user != "user" or wanted.content_flag != "text_column":
            raise verified_files.PopulationError(
                f"{path} is a file of LEAF, which has its own users and no counts; "
                "leave out --user_column, --word_column and --count_column."
            )
        entries = _leaf_entries(path, document["user_data"], wanted.content)
        parse = _of_leaf
    else:
        raise verified_files.PopulationError(
            f"{path} has {_shape(document)}; it has to be an array of objects, or "
            "LEAF's object with 'user_data'."
        )
    del document
    numbered = enumerate(entries, 1)
    while batch := list(itertools.islice(numbered, _ROWS_AT_ONCE)):
        values = functools.partial(parse, wanted)
        yield json_lines.checked_rows(batch, values, wanted, bad)


def _document(path: str, encoding: str) -> Any:
    """Returns a file's value.

    Raises:
        PopulationError: If it is no JSON document, or memory is not enough.
    """
    with opening.open_blocks(path, encoding) as blocks:
        pieces, size = [], 0
        for block in blocks:
            pieces.append(block)
            size += len(block)
            memory.check_needed(_BYTES_IN_MEMORY * size, f"the JSON document {path}")
        text = "".join(pieces)
    if opening.has_undecodable(text):
        found = opening.likely_encoding(path, encoding)
        advice = f"; {found[1]}" if found else ""
        raise verified_files.PopulationError(
            f"{path} has {opening.UNDECODABLE}{advice}."
        )
    try:
        return json.loads(text)
    except RecursionError:
        why = "the JSON is nested too deeply to be read"
    except ValueError as error:
        why = f"not a JSON document: {error}"
        if text.lstrip().startswith("{") and "Extra data" in str(error):
            why += "; if each line is an object, give --population_format=jsonl"
    raise verified_files.PopulationError(f"{path}: {why}.")


def _shape(document: Any) -> str:
    if isinstance(document, dict):
        keys = ", ".join(list(document)[:10]) or "none"
        return f"an object with the fields {keys}"
    return f"a value of type {type(document).__name__}"


def _of_object(wanted: fields.Fields, row: Any) -> list[Any]:
    if not isinstance(row, dict):
        raise ValueError(f"an object was expected, not {type(row).__name__}")
    return json_lines.values_of(row, wanted)


def _leaf_entries(
    path: str, user_data: dict[str, Any], column: str
) -> Iterator[tuple[str, Any, int | None]]:
    """Yields a user, an entry and the number of its item for each example.

    Raises:
        PopulationError: If a user has no such list.
    """
    name, _, item = column.partition(".")
    if item and not item.isdecimal():
        name, item = column, ""
    for user, data in user_data.items():
        lists = data if isinstance(data, dict) else {}
        if not isinstance(lists.get(name), list):
            names = ", ".join(lists) or "none"
            raise verified_files.PopulationError(
                f"{path}: the data of user {user!r} has no list {name!r} "
                f"(--text_column={column}); its fields are: {names}. Name one of them, "
                "such as x, or an item of each entry, such as x.4."
            )
        for entry in lists[name]:
            yield user, entry, int(item) if item else None


def _of_leaf(wanted: fields.Fields, example: tuple[str, Any, int | None]) -> list[Any]:
    user, entry, item = example
    if item is not None:
        if not isinstance(entry, list) or item >= len(entry):
            raise ValueError(f"the entry has no item {item}: {entry!r:.40}")
        entry = entry[item]
    if isinstance(entry, list):
        entry = json_lines.joined(wanted.content, entry)
    if not isinstance(entry, str):
        raise ValueError(
            f"the entry is {entry!r:.40}; it has to be a string or a list of tokens"
        )
    return [user, entry]
