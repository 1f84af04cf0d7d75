"""Reads JSON lines: one JSON object a line."""

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from federated_hh.populations.options import population_options
from federated_hh.populations.readers import bad_rows, fields, opening

_Entry = TypeVar("_Entry")
_KEYS_SHOWN = 20
_KINDS = {str: "a string", int: "an integer", list: "a list of tokens"}


def _field(row: dict[str, Any], name: str, types: tuple[type, ...]) -> Any:
    if name not in row:
        # A key may hold half of a character, which no file can.
        names = ", ".join(list(row)[:_KEYS_SHOWN]) or "none"
        keys = names.encode("utf-8", "backslashreplace").decode()
        raise ValueError(f"no field {name!r}; the fields are: {keys}")
    value = row[name]
    if list in types and isinstance(value, list):
        return joined(name, value)
    if not isinstance(value, types) or isinstance(value, bool):
        expected = " or ".join(_KINDS[t] for t in types)
        raise ValueError(f"field {name!r} is {value!r:.40}; it has to be {expected}")
    return value


def joined(name: str, tokens: list[Any]) -> str:
    """Returns tokens, in lists of lists of any depth, as one text.

    Raises:
        ValueError: If one is no string.
    """
    texts: list[str] = []
    waiting = [iter(tokens)]
    while waiting:
        for token in waiting[-1]:
            if isinstance(token, list):
                waiting.append(iter(token))
                break
            if not isinstance(token, str):
                raise ValueError(
                    f"field {name!r} has the token {token!r:.40}; each has to be a "
                    "string"
                )
            texts.append(token)
        else:
            waiting.pop()
    return " ".join(texts)


def values_of(row: dict[str, Any], wanted: fields.Fields) -> list[Any]:
    """Returns the values of the wanted fields of an object.

    Raises:
        ValueError: If one is not there, or of another type.
    """
    is_text = wanted.content_flag == "text_column"
    values = [
        str(_field(row, wanted.user, (str, int))),
        _field(row, wanted.content, (str, list) if is_text else (str,)),
    ]
    if wanted.count is not None:
        values.append(_field(row, wanted.count, (int, str)))
    return values


def checked_rows(
    entries: Iterable[tuple[int, _Entry]],
    parse: Callable[[_Entry], list[Any]],
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> fields.Rows:
    """Returns the rows of entries that can be used, and records the others.

    Args:
        entries: Numbers in the file, and what `parse` takes.
        parse: Returns the values of the wanted fields, or raises a `ValueError`.
        wanted: The fields.
        bad: Collects the rows that cannot be read.

    Raises:
        PopulationError: If too many rows are bad.
    """
    places: list[int] = []
    rows: list[list[Any]] = []
    wrong: list[tuple[int, str]] = []
    for number, entry in entries:
        try:
            rows.append(parse(entry))
            places.append(number)
        except ValueError as error:
            wrong.append((number, str(error)))
    columns = [[row[i] for row in rows] for i in range(len(wanted.named()))]
    return fields.checked(places, columns, wanted, bad, wrong)


def _parse(wanted: fields.Fields, line: str) -> list[Any]:
    """Returns the values of the wanted fields."""
    if opening.has_undecodable(line):
        raise ValueError(opening.UNDECODABLE)
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply to be read") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"a JSON object was expected, not {type(row).__name__}")
    return values_of(row, wanted)


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
        wanted: The fields to read, by name.
        bad: Collects the rows that cannot be read.

    Yields:
        Rows; the number is that of the line.

    Raises:
        PopulationError: If the file cannot be read or too many rows are bad.
    """
    done = 0
    parse = functools.partial(_parse, wanted)
    with opening.open_blocks(path, options.encoding) as blocks:
        for block in blocks:
            lines = list(enumerate(opening.lines_of(block), done + 1))
            done += len(lines)
            filled = (line for line in lines if line[1].strip())
            yield checked_rows(filled, parse, wanted, bad)
