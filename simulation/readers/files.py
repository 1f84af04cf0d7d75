"""Builds a population from a file of one of the known formats."""

import os
import re
from collections.abc import Iterator
from typing import Any

from simulation import column_writer, population_options, tokenizers
from simulation.readers import (
    bad_rows,
    building,
    delimited,
    fields,
    json_lines,
    opening,
    word_table,
)

_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


def file_format(path: str, wanted: str) -> str:
    """Returns the format of a file.

    Args:
        path: The file; "auto" goes by its name.
        wanted: One of `population_options.FORMATS`.

    Raises:
        PopulationError: If the name does not tell, or the file is a
            compressed Parquet file.
    """
    stem, compression = opening.split_compression(path)
    found = wanted
    if wanted == "auto":
        suffix = os.path.splitext(stem)[1].lower()
        if suffix not in _SUFFIXES:
            raise population_options.PopulationError(
                f"{path}: the name does not tell the format (known: "
                f"{', '.join(_SUFFIXES)}, all but Parquet also with "
                f"{', '.join(opening.COMPRESSIONS)}); say which it is with "
                "--population_format: "
                f"{', '.join(population_options.FORMATS[1:])}."
            )
        found = _SUFFIXES[suffix]
    if found == "parquet" and compression:
        raise population_options.PopulationError(
            f"{path}: Parquet compresses inside the file and cannot be read from "
            f"{compression}; decompress it first."
        )
    return found


def read_rows(
    options: population_options.PopulationOptions,
) -> tuple[Iterator[fields.Row], fields.Fields, bad_rows.BadRows]:
    """Opens a file of any known format.

    Args:
        options: The file, its format and columns.

    Returns:
        Its rows, to be iterated once; which columns they are of; and the bad rows,
        which fill up as the rows are read.

    Raises:
        PopulationError: If the format is not known. While reading: if the file cannot
            be read, a column is not there, or too many rows are bad.
    """
    path = os.path.expanduser(options.source)
    found = file_format(path, options.format)
    wanted = fields.Fields.of(options, found)
    bad = bad_rows.BadRows(path, options.max_bad_rows)
    if found == "parquet":
        from simulation.readers import parquet

        rows = parquet.read(path, wanted, bad)
    elif found == "jsonl":
        rows = json_lines.read(path, options, wanted, bad)
    else:
        rows = delimited.read(path, found, options, wanted, bad)
    if options.drop_pattern or options.drop_users:
        rows = _cleaned(rows, options, wanted.content_flag == "word_column")
    return rows, wanted, bad


def _cleaned(
    rows: Iterator[fields.Row],
    options: population_options.PopulationOptions,
    are_words: bool,
) -> Iterator[fields.Row]:
    """Yields rows without what the options say is no text, and without some users."""
    pattern = options.drop_pattern and re.compile(options.drop_pattern)
    users = options.drop_users and re.compile(options.drop_users)
    for line, user, content, count in rows:
        if users and users.fullmatch(user):
            continue
        if pattern and are_words and pattern.fullmatch(content):
            continue
        if pattern and not are_words:
            content = pattern.sub(" ", content)
        yield line, user, content, count


def build(
    writer: column_writer.ColumnWriter,
    options: population_options.PopulationOptions,
    tokenizer: tokenizers.Tokenizer,
    table: word_table.WordTable,
) -> dict[str, Any]:
    """Writes the columns of the population in a file.

    Args:
        writer: Of the population.
        options: The file, its columns, and what is left out.
        tokenizer: Cuts text into words; not used where rows hold words.
        table: Names and filters the words.

    Returns:
        "words" and "client_ids" for the writer, and what is known of the data.

    Raises:
        PopulationError: If the file cannot be made into a population.
    """
    rows, wanted, bad = read_rows(options)
    builder = building.PopulationBuilder(writer, table)
    building.add_rows(
        builder,
        rows,
        tokenizer if wanted.content_flag == "text_column" else None,
        bad.add,
    )
    try:
        metadata = builder.finish(options.empty_clients)
    except population_options.PopulationError as error:
        if bad.summary():
            error = population_options.PopulationError(
                f"{error} Bad rows: {bad.summary()}."
            )
        raise population_options.PopulationError(f"{options.source}: {error}") from None
    return metadata | {"bad_rows": bad.report()}
