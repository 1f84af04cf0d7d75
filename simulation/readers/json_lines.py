"""Reads JSON lines: one JSON object a line."""

import json
from collections.abc import Iterator
from typing import Any

from simulation import population_options
from simulation.readers import bad_rows, fields, opening

_KEYS_SHOWN = 20


def _field(row: dict[str, Any], name: str, types: tuple[type, ...]) -> Any:
    if name not in row:
        # A key may hold half of a character, which no file can.
        names = ", ".join(list(row)[:_KEYS_SHOWN]) or "none"
        keys = names.encode("utf-8", "backslashreplace").decode()
        raise ValueError(f"no field {name!r}; the fields are: {keys}")
    value = row[name]
    if not isinstance(value, types) or isinstance(value, bool):
        expected = " or ".join({str: "a string", int: "an integer"}[t] for t in types)
        raise ValueError(f"field {name!r} is {value!r:.40}; it has to be {expected}")
    return value


def _parse(number: int, line: str, wanted: fields.Fields) -> fields.Row:
    if opening.has_undecodable(line):
        raise ValueError(opening.UNDECODABLE)
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"a JSON object was expected, not {type(row).__name__}")
    user = str(_field(row, wanted.user, (str, int)))
    content = _field(row, wanted.content, (str,))
    count = 1 if wanted.count is None else _field(row, wanted.count, (int, str))
    is_word = wanted.content_flag == "word_column"
    return fields.make_row(number, user, content, count, is_word)


def read(
    path: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Row]:
    """Yields the rows of a file.

    Args:
        path: The file; .gz, .xz and .zst are decompressed.
        options: The encoding.
        wanted: The fields to read, by name.
        bad: Takes the rows that cannot be read.

    Yields:
        Rows; the number is that of the line.

    Raises:
        PopulationError: If the file cannot be read or too many rows are bad.
    """
    with opening.open_text(path, options.encoding, show_progress=True) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = _parse(number, line, wanted)
            except ValueError as error:
                bad.add(number, str(error))
            else:
                yield row
