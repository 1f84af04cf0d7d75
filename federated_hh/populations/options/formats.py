"""The file formats that populations are read from: the one list of them.

A reader is a module with `read(path, options, wanted, bad)`, as in
`populations/readers/json_lines.py`, and an entry here. Nothing of it is imported before
a file of its format is read.
"""

import dataclasses
import importlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Format:
    """A file format and its reader.

    Attributes:
        name: Value of `--population_format`.
        reader: Address of the reader, `module:function`.
        suffixes: Endings of file names that tell the format, with the dot.
        about: Help text; empty where the name says it.
        uncompressed_why: Reason why no compressed file can be read; None where one can.
        has_splits: Whether `--population_split` names a part of a file.
        columns: Word and count column where the options name no column; None for text.
    """

    name: str
    reader: str
    suffixes: tuple[str, ...] = ()
    about: str = ""
    uncompressed_why: str | None = None
    has_splits: bool = False
    columns: tuple[str, str] | None = None

    def read(self) -> Any:
        """Imports and returns the function that reads a file."""
        module, _, name = self.reader.partition(":")
        return getattr(importlib.import_module(module), name)


_READERS = "federated_hh.populations.readers"
FORMATS = {
    one.name: one
    for one in (
        Format("csv", f"{_READERS}.delimited:read_csv", (".csv",)),
        Format("tsv", f"{_READERS}.delimited:read_tsv", (".tsv", ".tab")),
        Format("jsonl", f"{_READERS}.json_lines:read", (".jsonl", ".ndjson")),
        Format(
            "parquet",
            f"{_READERS}.parquet:read",
            (".parquet",),
            uncompressed_why="Parquet compresses inside the file and",
        ),
        Format(
            "word_counts",
            f"{_READERS}.delimited:read_word_counts",
            about="is user<TAB>word<TAB>count without header",
            columns=("word", "count"),
        ),
        Format(
            "tff_sql",
            f"{_READERS}.sql_client_data:read",
            (".sqlite",),
            about="is a database of TFF's SqlClientData",
            uncompressed_why="a database is read here and there, and",
            has_splits=True,
        ),
    )
}
BY_SUFFIX = {suffix: one for one in FORMATS.values() for suffix in one.suffixes}
CHOICES = ("auto", *FORMATS)
HELP = "; ".join(f"'{one.name}' {one.about}" for one in FORMATS.values() if one.about)
