"""What a population is made of, and the error when it cannot be.

Imports nothing heavy, so that flags can be parsed and wrong ones refused at once.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

SYNTHETIC = "synthetic"
FORMATS = ("auto", "csv", "tsv", "jsonl", "parquet", "word_counts")
CSV_HEADERS = ("auto", "present", "absent")
OUT_OF_ALPHABET = ("drop", "refuse")
EMPTY_CLIENTS = ("drop", "keep")
MAX_CLIENTS = 2**31 - 1
MAX_MEAN_WORDS = 10_000
MAX_SIGMA = 3.0
MAX_TRENDING_EXPONENT = 3.0
MAX_TRENDING_WORDS = 1_000_000  # the English list has a third of that
MAX_SEED = 2**64 - 1  # more bits than this decide nothing that can be told apart
# Each is listed in `population.json`, which is read at every start.
MAX_BAD_ROWS = 100_000


# A field so marked decides nothing of other populations; one without a mark decides
# every population.
_SYNTHETIC_ONLY = {"source": "synthetic"}
_FILE_ONLY = {"source": "file"}
_WORDS_ONLY = {"contents": "words"}


class PopulationError(OSError, ValueError):
    """The data cannot be made into a population; the message says what to do."""


def _field(default: Any, marks: Mapping[str, str]) -> Any:
    return dataclasses.field(default=default, metadata=marks)


@dataclasses.dataclass(frozen=True)
class PopulationOptions:
    """What a population is made of; `simulation.population_flags` has the flags.

    Attributes:
      source: "synthetic", or the path of a file.
      format: One of `FORMATS`; "auto" goes by the file's name.
      encoding: Of CSV, TSV and word count files.
      user_column: Name or 0-based number of the column that says who wrote a row.
      text_column: The same for the text to cut into words.
      word_column: The same for a word, where rows hold words instead of text.
      count_column: The same for how often the user has the word; without it, a row
        counts one.
      csv_columns: Names of the columns of a file without header.
      csv_header: "auto": there is one unless all columns are given by number or
        `csv_columns` names them. "present", "absent".
      tokenizer: Name of the tokenizer that cuts text into words.
      alphabet: The characters words may have; None for the tokenizer's.
      out_of_alphabet: Whether a word with another character is dropped and counted
        ("drop") or an error ("refuse").
      known_words: Path of a dictionary whose words are left out, one a line.
      max_bad_rows: How many rows may be unreadable before reading stops with an
        error; in [0, 100000], as each is listed.
      empty_clients: Whether clients left without words are dropped and counted
        ("drop") or kept ("keep").
      num_clients: Synthetic only: clients who type, in 1..2**31-1.
      mean_words_per_client: Synthetic only: mean number of words a client types, in
        [1, 10000].
      words_per_client_sigma: Synthetic only: standard deviation of the log of that
        number (before rounding), in [0, 3].
      trending_share: Synthetic only: share of the words kept that are in fashion, in
        [0, 1).
      trending_words: Synthetic only: how many words are in fashion, in [1, 10**6]. They
        are drawn from the words kept, all equally likely, by the seed.
      trending_exponent: Synthetic only: the k-th of them is typed k**-exponent times
        as often as the first; in [0, 3].
      seed: Synthetic only: in [0, 2**64).
    """

    source: str = SYNTHETIC
    format: str = _field("auto", _FILE_ONLY)
    encoding: str = _field("utf-8", _FILE_ONLY)
    user_column: str = _field("user", _FILE_ONLY)
    text_column: str = _field("text", _FILE_ONLY)
    word_column: str | None = _field(None, _FILE_ONLY)
    count_column: str | None = _field(None, _FILE_ONLY)
    csv_columns: tuple[str, ...] = _field((), _FILE_ONLY)
    csv_header: str = _field("auto", _FILE_ONLY)
    tokenizer: str = _field("triehh", _WORDS_ONLY)
    alphabet: str | None = _field(None, _WORDS_ONLY)
    out_of_alphabet: str = _field("drop", _WORDS_ONLY)
    known_words: str | None = _field(None, _WORDS_ONLY)
    max_bad_rows: int = _field(100, _FILE_ONLY)
    empty_clients: str = _field("drop", _WORDS_ONLY)
    num_clients: int = _field(1_000_000, _SYNTHETIC_ONLY)
    mean_words_per_client: float = _field(20.0, _SYNTHETIC_ONLY)
    words_per_client_sigma: float = _field(1.0, _SYNTHETIC_ONLY)
    trending_share: float = _field(0.0, _SYNTHETIC_ONLY | _WORDS_ONLY)
    trending_words: int = _field(100, _SYNTHETIC_ONLY | _WORDS_ONLY)
    trending_exponent: float = _field(0.5, _SYNTHETIC_ONLY | _WORDS_ONLY)
    seed: int = _field(0, _SYNTHETIC_ONLY)

    def __post_init__(self):
        object.__setattr__(self, "csv_columns", tuple(self.csv_columns))
        for name, allowed in (
            ("format", FORMATS),
            ("csv_header", CSV_HEADERS),
            ("out_of_alphabet", OUT_OF_ALPHABET),
            ("empty_clients", EMPTY_CLIENTS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, must be one of "
                    f"{', '.join(allowed)}."
                )
        for name, low, high in (
            ("max_bad_rows", 0, MAX_BAD_ROWS),
            ("num_clients", 1, MAX_CLIENTS),
            ("mean_words_per_client", 1, MAX_MEAN_WORDS),
            ("words_per_client_sigma", 0, MAX_SIGMA),
            ("trending_words", 1, MAX_TRENDING_WORDS),
            ("trending_exponent", 0, MAX_TRENDING_EXPONENT),
            ("seed", 0, MAX_SEED),
        ):
            if not low <= getattr(self, name) <= high:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, must be in [{low}, {high}]."
                )
        for name in ("max_bad_rows", "num_clients", "trending_words", "seed"):
            if type(getattr(self, name)) is not int:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, must be a whole number (int)."
                )
        if not 0 <= self.trending_share < 1:
            raise ValueError(
                f"trending_share is {self.trending_share}, must be in [0, 1)."
            )
        self._check_words_law()
        self._check_columns()

    def deciding(self, contents: str) -> dict[str, Any]:
        """Returns the fields that decide what is in the population, but the source.

        Args:
          contents: "words" or "sentences".
        """
        kind = "synthetic" if self.source == SYNTHETIC else "file"
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "source"
            and field.metadata.get("source", kind) == kind
            and field.metadata.get("contents", contents) == contents
        }

    def _check_words_law(self) -> None:
        mean, sigma = self.mean_words_per_client, self.words_per_client_sigma
        if sigma == 0 and mean != int(mean):
            raise ValueError(
                f"mean_words_per_client is {mean}, must be a whole number where "
                "words_per_client_sigma is 0: everyone types that many."
            )
        if sigma > 0 and mean <= 1:
            raise ValueError(
                f"mean_words_per_client is {mean}, must be above 1 where "
                f"words_per_client_sigma is above 0 (it is {sigma})."
            )

    def _check_columns(self) -> None:
        if not self.source:
            raise ValueError("source is empty, must be 'synthetic' or a path.")
        if self.alphabet == "":
            raise ValueError("alphabet is empty, must have a character.")
        if len(set(self.csv_columns)) < len(self.csv_columns):
            raise ValueError(
                f"csv_columns is {','.join(self.csv_columns)}, must have no name twice."
            )
        if self.count_column and not self.word_column:
            raise ValueError(
                f"count_column is {self.count_column!r} but word_column is not given: "
                "counts are of words."
            )
