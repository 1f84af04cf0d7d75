"""The fields of a row and checks of their values."""

import contextlib
import csv
import dataclasses
import itertools
import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from federated_hh.files import verified_files
from federated_hh.populations.columns import column_writer
from federated_hh.populations.options import file_options, population_options
from federated_hh.populations.readers import bad_rows, opening

# Delimiters of a CSV file, by the flag's value.
_DELIMITERS = {"';'": ";", "tab": "\t", "'|'": "|"}
_SHORT = reprlib.Repr()  # of values for messages, which may have any length
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60


@dataclasses.dataclass(frozen=True)
class Fields:
    """The columns that are read, by name or number as given by the user.

    Attributes:
        user: Column of the user who wrote a row.
        content: The text, or the word if rows hold words.
        count: Column of the count, or None if each row counts one.
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
            file_format: Name of the file's format.
        """
        word, count = options.word_column, options.count_column
        by_format = file_options.FORMATS[file_format].columns
        if word is None and by_format is not None:
            word, count = by_format
        if word is None:
            return cls(options.user_column, options.text_column, None, "text_column")
        return cls(options.user_column, word, count, "word_column")

    def named(self) -> list[tuple[str, str]]:
        """Returns the flags and their columns, in the order of a row."""
        columns = [("user_column", self.user), (self.content_flag, self.content)]
        if self.count is not None:
            columns.append(("count_column", self.count))
        return columns

    def check_own_users(self, path: str, whose: str) -> None:
        """Checks that no column is named that the format gives by itself.

        Args:
            path: The file, for messages.
            whose: Noun for the users' owner, such as "database".

        Raises:
            PopulationError: If a column of users or counts is named.
        """
        for flag, named, usual in (
            ("count_column", self.count, None),
            ("user_column", self.user, "user"),
        ):
            if named != usual:
                raise verified_files.PopulationError(
                    f"{path}: --{flag}={named}: the users are the {whose}'s clients, "
                    "and its examples have no counts; leave it out."
                )

    def all_numbers(self) -> bool:
        """Returns whether every column is given by number."""
        return all(column.isdecimal() for _, column in self.named())

    def indices(
        self,
        path: str,
        names: Sequence[str] | None,
        width: int,
        encoding: str | None = None,
    ) -> tuple[int, ...]:
        """Returns the 0-based numbers of the columns.

        Args:
            path: The file, for messages.
            names: The names of the file's columns, or None if they have none.
            width: Number of the file's columns.
            encoding: Encoding of a file of text, for advice.

        Raises:
            PopulationError: If a column is not there, or two have its name.
        """
        return places(
            path,
            names,
            [(f"--{flag}", column) for flag, column in self.named()],
            width,
            "; --csv_columns names the columns of a CSV file without header",
            encoding,
        )


@contextlib.contextmanager
def reading(path: str, kind: str, *errors: type[Exception]) -> Iterator[None]:
    """Tells errors of reading a file as those of the population.

    Args:
        path: The file, for messages.
        kind: Name of its format.
        *errors: The errors of its library, besides `OSError`.

    Raises:
        PopulationError: In place of such an error.
    """
    caught: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except verified_files.PopulationError:
        raise
    except caught as error:
        raise verified_files.PopulationError(
            f"{path} cannot be read as {kind}: {error}"
        ) from error


def places(
    path: str,
    names: Sequence[str] | None,
    columns: Sequence[tuple[str, str]],
    width: int,
    advice: str = "",
    encoding: str | None = None,
) -> tuple[int, ...]:
    """Returns the 0-based numbers of columns.

    Args:
        path: The file, for messages.
        names: The names of the file's columns, or None if they have none.
        columns: The flag, for messages, and the name of each column, or its number
            from 0 where none has that name.
        width: Number of the file's columns.
        advice: End of the message's sentence on names.
        encoding: Encoding of a file of text, for advice.

    Raises:
        PopulationError: If a column is not there, or two have its name, with all that
            the file's beginning tells of the options that would read it.
    """
    found, wrong = [], []
    for flag, column in columns:
        matches = [number for number, name in enumerate(names or ()) if name == column]
        if not matches and column.isdecimal() and int(column) < width:
            matches = [int(column)]
        if len(matches) != 1:
            state = "no column" if not matches else f"{len(matches)} columns"
            wrong.append(f"{state} {column!r} ({flag})")
        found += matches[:1]
    if wrong:
        listed = ", ".join(names) if names else "without names"
        numbers = f". Give a name or a number from 0 to {width - 1}{advice}"
        raise verified_files.PopulationError(
            f"{path} has {' and '.join(wrong)}; its {width} columns are {listed}"
            f"{_other_delimiter(names, columns) or numbers}."
            f"{_other_encoding(path, encoding)}"
        )
    return tuple(found)


def _other_delimiter(
    names: Sequence[str] | None, columns: Sequence[tuple[str, str]]
) -> str:
    """Returns advice for a header that another delimiter would cut, or ""."""
    header = names[0] if names and len(names) == 1 else ""
    counts = {flag: header.count(mark) for flag, mark in _DELIMITERS.items()}
    likely = max(counts, key=lambda flag: counts[flag])
    if not counts[likely]:
        return ""
    cut = next(csv.reader([header], delimiter=_DELIMITERS[likely]))
    flags = [flag for flag, column in columns if column not in cut]
    return (
        f"; try --delimiter={likely}, which cuts them into "
        f"{', '.join(map(repr, cut))}"
        f"{', and give ' * bool(flags)}{' and '.join(flags)}"
    )


def _other_encoding(path: str, encoding: str | None) -> str:
    """Returns advice for a file of text in another encoding, or ""."""
    other = opening.likely_encoding(path, encoding) if encoding else None
    if other is None:
        return ""
    return f" It has bytes that --encoding={encoding} does not have; {other[1]}."


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


@dataclasses.dataclass(frozen=True)
class Rows:
    """Consecutive rows of a file, column by column.

    Attributes:
        lines: Line or row number of each, from 1.
        users: The client id of each, not empty.
        contents: The text, or word, of each.
        counts: Uses of the word by the user: int64 [rows]; None for one each.
        file: Their file, for messages; "" if it goes without saying.
    """

    lines: Sequence[int]
    users: Sequence[str]
    contents: Sequence[str]
    counts: np.ndarray | None = None
    file: str = ""

    def __len__(self) -> int:
        return len(self.lines)

    def where(self, chosen: Sequence[bool]) -> "Rows":
        """Returns some of the rows.

        Args:
            chosen: Whether each is one of them.
        """
        return Rows(
            list(itertools.compress(self.lines, chosen)),
            list(itertools.compress(self.users, chosen)),
            list(itertools.compress(self.contents, chosen)),
            None if self.counts is None else self.counts[np.array(chosen, bool)],
            self.file,
        )

    def place(self, row: int) -> str:
        """Returns a row's position, for messages.

        Args:
            row: From 0.
        """
        line = self.lines[row]
        return f"{self.file}:{line}" if self.file else f"line {line}"


def checked(
    lines: Sequence[int],
    columns: Sequence[Sequence[Any]],
    wanted: Fields,
    bad: bad_rows.BadRows,
    found_before: Sequence[tuple[int, str]] = (),
) -> Rows:
    """Returns the rows with valid values, and records the others.

    Args:
        lines: Line or row number of each row.
        columns: The values of the wanted columns.
        wanted: The columns.
        bad: Collects the invalid rows, in the file's order.
        found_before: Unreadable rows among these, which are not in `columns`: their
            positions and reasons.

    Raises:
        PopulationError: If too many rows are bad.
    """
    is_word = wanted.content_flag == "word_column"
    users, contents = columns[:2]
    counts = columns[2] if len(columns) == 3 else None
    numbers = None if counts is None else _plain_counts(counts)
    wrong = list(found_before)
    rows = Rows(lines, users, contents, numbers)
    if (
        not all(users)
        or opening.has_undecodable("".join(users))
        or (is_word and not all(contents))
        or (counts is not None and numbers is None)
    ):
        kept, found = [], []
        for place, (user, content) in enumerate(zip(users, contents, strict=True)):
            try:
                count = 1 if counts is None else counts[place]
                found.append(_check(user, content, count, is_word))
                kept.append(place)
            except ValueError as error:
                wrong.append((lines[place], str(error)))
        rows = Rows(
            [lines[place] for place in kept],
            [users[place] for place in kept],
            [contents[place] for place in kept],
            None if counts is None else np.array(found, np.int64),
        )
    for line, reason in sorted(wrong):
        bad.add(line, reason)
    return rows


def _check(user: str, content: str, count: Any, is_word: bool) -> int:
    """Returns a row's count.

    Raises:
        ValueError: If the user or the word is empty, or the count is not one.
    """
    if not user:
        raise ValueError("the user is empty")
    if is_word and not content:
        raise ValueError("the word is empty")
    number = parse_count(count)
    if opening.has_undecodable(user):
        raise ValueError(f"the user {user!r} is not valid Unicode")
    return number


def _plain_counts(counts: Sequence[Any]) -> np.ndarray | None:
    """Returns counts that need no second look; None if one does."""
    kinds = set(map(type, counts))
    # Digits only: int() also accepts signs, blanks and underscores.
    digits = "".join(counts) if kinds == {str} else "0"
    if not (digits.isascii() and digits.isdecimal()):
        return None
    if not kinds <= {int} and kinds != {str}:
        return None
    try:
        numbers = np.fromiter(map(int, counts), np.int64, len(counts))
    except (ValueError, OverflowError):
        return None
    plain = ((numbers >= 1) & (numbers <= column_writer.MAX_COUNT)).all()
    return numbers if plain else None
