"""Builds a population from files of one of the known formats."""

import dataclasses
import functools
import re
from collections.abc import Iterator
from typing import Any

from federated_hh.files import verified_files
from federated_hh.populations.columns import column_writer
from federated_hh.populations.languages import tokenizers
from federated_hh.populations.options import file_options, population_options
from federated_hh.populations.readers import (
    bad_rows,
    building,
    fields,
    sources,
    word_table,
)


def read_rows(
    options: population_options.PopulationOptions,
) -> tuple[Iterator[fields.Rows], fields.Fields, bad_rows.BadRows]:
    """Opens files of any known format.

    Args:
        options: The files, their format and columns.

    Returns:
        Their rows, to be iterated once; the rows' columns; and the bad rows, which fill
        up as the rows are read.

    Raises:
        PopulationError: If there is no such file, or the format is not known. While
            reading: if a file cannot be read, a column is not there, or too many rows
            are bad.
    """
    paths = sources.files_of(options)
    found = sources.format_of(options)
    if options.split is not None and not file_options.FORMATS[found].has_splits:
        raise verified_files.PopulationError(
            f"--population_split={options.split}: {paths[0]} is {found}, which has no "
            "splits; leave it out."
        )
    wanted = fields.Fields.of(options, found)
    bad = bad_rows.BadRows(options.max_bad_rows, len(paths), options.encoding)
    rows = _rows(paths, found, options, wanted, bad)
    if options.normalize_users:
        rows = _with_normal_users(rows)
    if options.drop_pattern or options.drop_users:
        rows = _cleaned(rows, options, wanted.content_flag == "word_column")
    return rows, wanted, bad


def _rows(
    paths: list[str],
    found: str,
    options: population_options.PopulationOptions,
    wanted: fields.Fields,
    bad: bad_rows.BadRows,
) -> Iterator[fields.Rows]:
    """Yields the rows of files, one file after the other."""
    read = file_options.FORMATS[found].read()
    for path in paths:
        bad.start_file(path)
        for rows in read(path, options, wanted, bad):
            yield dataclasses.replace(rows, file=path)
    bad.log_rest()


def _with_normal_users(batches: Iterator[fields.Rows]) -> Iterator[fields.Rows]:
    for rows in batches:
        # An id of nothing but what is taken away stays: no row is without a user.
        users = [building.normal_user(user) or user for user in rows.users]
        yield dataclasses.replace(rows, users=users)


def _cleaned(
    batches: Iterator[fields.Rows],
    options: population_options.PopulationOptions,
    are_words: bool,
) -> Iterator[fields.Rows]:
    """Yields rows without the text and users that the options drop."""
    pattern = re.compile(options.drop_pattern) if options.drop_pattern else None
    users = re.compile(options.drop_users) if options.drop_users else None

    @functools.lru_cache(maxsize=1 << 16)
    def is_user(name: str) -> bool:
        return users is None or not users.fullmatch(name)

    for rows in batches:
        chosen = list(map(is_user, rows.users))
        if pattern and are_words:
            words = map(pattern.fullmatch, rows.contents)
            chosen = [
                keep and not match for keep, match in zip(chosen, words, strict=True)
            ]
        if not all(chosen):
            rows = rows.where(chosen)
        if pattern and not are_words:
            texts = [pattern.sub(" ", text) for text in rows.contents]
            rows = dataclasses.replace(rows, contents=texts)
        yield rows


def build(
    writer: column_writer.ColumnWriter,
    options: population_options.PopulationOptions,
    tokenizer: tokenizers.Tokenizer,
    table: word_table.WordTable,
) -> dict[str, Any]:
    """Writes the columns of the population in files.

    Args:
        writer: The writer of the population.
        options: The files, their columns, and the dropped text and users.
        tokenizer: Cuts text into words; not used where rows hold words.
        table: Names and filters the words.

    Returns:
        "client_ids" for the writer, and facts about the data.

    Raises:
        PopulationError: If the files cannot be made into a population.
    """
    batches, wanted, bad = read_rows(options)
    is_text = wanted.content_flag == "text_column"
    builder = building.PopulationBuilder(writer, table, tokenizer if is_text else None)
    for rows in batches:
        builder.add(rows)
    try:
        metadata = builder.finish(options.empty_clients)
    except verified_files.PopulationError as error:
        if bad.summary():
            error = verified_files.PopulationError(
                f"{error} Bad rows: {bad.summary()}."
            )
        raise verified_files.PopulationError(f"{options.source}: {error}") from None
    return metadata | {"bad_rows": bad.report()}
