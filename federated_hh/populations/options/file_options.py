"""The file formats that populations are read from, and the options of files.

A reader is a module with `read(path, options, wanted, bad)`, as in
`populations/readers/json_lines.py`, and an entry of `FORMATS`. Nothing of it is
imported before a file of its format is read.
"""

import dataclasses
import functools
import importlib
import re
from typing import Any

from federated_hh.options.fields import OptionError, option


@dataclasses.dataclass(frozen=True)
class Format:
    """A file format and its reader.

    Attributes:
        name: Value of `--population_format`.
        reader: Address of the reader, `module:function`.
        suffixes: File name endings of the format, with the dot.
        about: Help text; empty if the name suffices.
        uncompressed_why: Reason why compressed files cannot be read; None if they can.
        has_splits: Whether `--population_split` names a part of a file.
        columns: Default word and count columns; None for text.
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
            "json",
            f"{_READERS}.json_documents:read",
            (".json",),
            about="is LEAF's (users, user_data), or an array of objects",
        ),
        Format(
            "parquet",
            f"{_READERS}.arrow_tables:read_parquet",
            (".parquet",),
            uncompressed_why="Parquet compresses inside the file and",
        ),
        Format(
            "arrow",
            f"{_READERS}.arrow_tables:read_arrow",
            (".arrow", ".feather"),
            about="is an Arrow file, such as those in a folder of Hugging Face's "
            "save_to_disk",
            uncompressed_why="an Arrow file is read in place and",
            has_splits=True,
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
        Format(
            "tff_hdf5",
            f"{_READERS}.hdf5_client_data:read",
            (".h5", ".hdf5"),
            about="is a file of TFF's HDF5 data sets, such as its Shakespeare",
            uncompressed_why="HDF5 is read here and there, and",
        ),
    )
}
BY_SUFFIX = {suffix: one for one in FORMATS.values() for suffix in one.suffixes}
CHOICES = ("auto", *FORMATS)
HELP = "; ".join(f"'{one.name}' {one.about}" for one in FORMATS.values() if one.about)


CSV_HEADERS = ("auto", "present", "absent")
# Each is listed in `population.json`, which is read at every start.
MAX_BAD_ROWS = 100_000
# A field with this mark has no influence on a population that is not a file.
_FILE_ONLY = {"source": "file"}
# Options of a topic in --help, or of one kind of population.
_file_option = functools.partial(option, marks=_FILE_ONLY)


# Value of --delimiter that stands for the character.
_TAB = "tab"


def _is_delimiter(text: str) -> bool:
    is_single = len(text) == 1 and text.isascii()
    return is_single and not text.isalnum() and text not in '"\r\n'


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Options of files; `population_options.PopulationOptions` checks them."""

    format: str = _file_option(
        "auto",
        f"Format of the file. 'auto' goes by its name. {HELP}.",
        choices=CHOICES,
        flag="population_format",
    )
    normalize_users: bool = _file_option(
        False,
        "Take users for one whose ids differ only by white space at the ends, by "
        "invisible characters, Unicode's normal form or a trailing '.0'.",
    )
    encoding: str = _file_option(
        "utf-8",
        "Text encoding of the file (not of Parquet), such as utf-8 or iso-8859-1.",
    )
    user_column: str = _file_option(
        "user",
        "Column that says which user (client) a row is of: a name, or a number from 0. "
        "JSON lines: the name of a field.",
    )
    text_column: str = _file_option(
        "text",
        "Column with the text that is cut into words: a name or a number.",
    )
    word_column: str | None = _file_option(
        None,
        "Column with a word, taken as it is, for files that hold words instead of "
        "text.",
    )
    count_column: str | None = _file_option(
        None,
        "Column with how often the user has the word of --word_column; without it, "
        "a row counts one.",
    )
    csv_columns: tuple[str, ...] = _file_option(
        (),
        "Names of all columns of a CSV, TSV or word count file that has no header, "
        "such as polarity,id,date,query,user,text for the original Sentiment140 file.",
    )
    drop_pattern: str | None = _file_option(
        None,
        "Regular expression (Python's) of what is no text: each place that it matches "
        "becomes a blank before the text is cut, as 'urlLink|&[a-z]+;' takes the marks "
        "of links and characters out. Of a file of words, words that it matches whole "
        "are left out.",
    )
    drop_users: str | None = _file_option(
        None,
        "Regular expression of users who are none: rows of those whose whole name it "
        "matches are left out, such as 'ubot(tu|u|3)' of the bots of a channel.",
    )
    csv_header: str = _file_option(
        "auto",
        "Header of a CSV or TSV file: present in the first row or not. 'auto': "
        "present, unless --csv_columns names the columns or all columns are given by "
        "number.",
        choices=CSV_HEADERS,
    )
    delimiter: str | None = _file_option(
        None,
        "The character between the fields of a CSV file, such as ';' or '|', or tab. A "
        "comma by default.",
        is_valid=lambda text: text == _TAB or _is_delimiter(text),
        form="one character that is no quote, letter or digit, or tab",
    )
    split: str | None = _file_option(
        None,
        "In a file of TFF's SqlClientData (.sqlite): whose examples are read, such as "
        "'train' of Stack Overflow; all by default. Users are its clients, and "
        "--text_column names a feature, such as 'tokens'.",
        flag="population_split",
    )
    max_bad_rows: int = _file_option(
        100,
        "Largest number of unreadable rows. They are left out and listed with their "
        "line numbers; one more stops with an error.",
        least=0,
        most=MAX_BAD_ROWS,
        why="each is listed in a file that is read at every start",
    )

    @property
    def separator(self) -> str | None:
        """The character that `delimiter` names; None by default."""
        return "\t" if self.delimiter == _TAB else self.delimiter

    def _check_columns(self) -> None:
        for name in ("drop_pattern", "drop_users"):
            try:
                re.compile(getattr(self, name) or "")
            except re.error as error:
                raise OptionError(
                    self,
                    f"{{{name}=}}: is not a regular expression: {{why}}",
                    why=error,
                ) from None
        if len(set(self.csv_columns)) < len(self.csv_columns):
            raise OptionError(
                self, "{csv_columns=}: has a duplicate name; names have to differ"
            )
        if self.count_column and not self.word_column:
            raise OptionError(
                self,
                "{count_column=}: needs {word_column}, because counts belong to words",
            )
