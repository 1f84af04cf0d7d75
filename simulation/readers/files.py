"""Builds a population from a file of one of the known formats."""

import os
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


def _rows(
    path: str,
    found: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Row]:
    if found == "parquet":
        from simulation.readers import parquet

        return parquet.read(path, wanted, bad)
    if found == "jsonl":
        return json_lines.read(path, options, wanted, bad)
    return delimited.read(path, found, options, wanted, bad)


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
    path = os.path.expanduser(options.source)
    found = file_format(path, options.format)
    wanted = fields.Fields.of(options, found)
    bad = bad_rows.BadRows(path, options.max_bad_rows)
    builder = building.PopulationBuilder(writer, table)
    building.add_rows(
        builder,
        _rows(path, found, options, wanted, bad),
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
        raise population_options.PopulationError(f"{path}: {error}") from None
    return metadata | {"bad_rows": bad.report()}
