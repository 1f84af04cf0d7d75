"""Which fields of a row hold what, and their values checked."""

import dataclasses
import reprlib
from collections.abc import Sequence
from typing import Any

from simulation import column_writer, population_options

# Line or row number, client id, text (or word), count.
Row = tuple[int, str, str, int]

_SHORT = reprlib.Repr()  # of values for messages, which may have any length
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60


@dataclasses.dataclass(frozen=True)
class Fields:
    """The columns that are read, by name or number as given by the user.

    Attributes:
        user: Who wrote a row.
        content: The text, or the word if rows hold words.
        count: How often, or None if each row counts one.
        content_flag: The flag that names `content`, for messages.
    """

    user: str
    content: str
    count: str | None
    content_flag: str

    @classmethod
    def of(
        cls, options: population_options.PopulationOptions, file_format: str
    ) -> "Fields":
        """Returns the columns that the options name.

        Args:
            options: The options.
            file_format: Of the file; "word_counts" holds words if no column is named.
        """
        word, count = options.word_column, options.count_column
        if file_format == "word_counts" and word is None:
            word, count = "word", "count"
        if word is None:
            return cls(options.user_column, options.text_column, None, "text_column")
        return cls(options.user_column, word, count, "word_column")

    def named(self) -> list[tuple[str, str]]:
        """Returns the flags and their columns, in the order of a row."""
        columns = [("user_column", self.user), (self.content_flag, self.content)]
        if self.count is not None:
            columns.append(("count_column", self.count))
        return columns

    def all_numbers(self) -> bool:
        """Returns whether every column is given by number."""
        return all(column.isdecimal() for _, column in self.named())

    def indices(
        self, path: str, names: Sequence[str] | None, width: int
    ) -> tuple[int, ...]:
        """Returns the 0-based numbers of the columns.

        Args:
            path: The file, for messages.
            names: Of the file's columns, or None if they have none.
            width: Number of the file's columns.

        Raises:
            PopulationError: If a column is not there, or two have its name.
        """
        found = []
        for flag, column in self.named():
            matches = [i for i, name in enumerate(names or ()) if name == column]
            if not matches and column.isdecimal() and int(column) < width:
                matches = [int(column)]
            if len(matches) != 1:
                state = "no column" if not matches else f"{len(matches)} columns"
                listed = ", ".join(names) if names else "without names"
                raise population_options.PopulationError(
                    f"{path} has {state} {column!r} (--{flag}); its {width} columns "
                    f"are {listed}. Give a name or a number from 0 to {width - 1}; "
                    "--csv_columns names the columns of a CSV file without header."
                )
            found.append(matches[0])
        return tuple(found)


def parse_count(value: Any) -> int:
    """Returns a count as an integer.

    Args:
        value: A string of digits, or an integer.

    Raises:
        ValueError: If it is not a whole number in 1..2**31-1.
    """
    count = value
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal():
        count = int(value.strip().lstrip("0")[:20] or "0")
    whole = isinstance(count, int) and not isinstance(count, bool)
    if not whole or not 1 <= count <= column_writer.MAX_COUNT:
        raise ValueError(
            f"count is {_SHORT.repr(value)}; it has to be a whole number in "
            f"1..{column_writer.MAX_COUNT}"
        )
    return count


def make_row(line: int, user: str, content: str, count: Any, is_word: bool) -> Row:
    """Returns a checked row.

    Args:
        line: Where it is.
        user: The client id.
        content: The text or word.
        count: How often.
        is_word: Whether `content` is a word.

    Raises:
        ValueError: If the user or the word is empty, or the count is not one.
    """
    if not user:
        raise ValueError("the user is empty")
    if is_word:
        if not content:
            raise ValueError("the word is empty")
        return line, user, content, parse_count(count)
    return line, user, content, 1
