"""Words kept of a list of typed words: computed once, stored with populations."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from federated_hh.files import json_files, verified_files
from federated_hh.populations.columns import derived_columns
from federated_hh.populations.languages import tokenizers, words
from federated_hh.populations.readers import word_codes, word_table

_ABOUT = {
    "type": "object",
    "required": ["words", "dropped"],
    "properties": {
        "words": {"type": "array", "items": json_files.TEXT},
        "dropped": {"type": "object", "additionalProperties": {"type": "number"}},
        "missing": {"type": "object", "additionalProperties": json_files.SIZE},
    },
}
_FOLDER = "word-lists"
# A change of the computation needs a new version.
_FORMAT_VERSION = 3
# The population options that decide which words are kept.
_DECIDING = (
    *("tokenizer", "alphabet", "out_of_alphabet", "known_words", "only_words"),
    *("common_words", "common_law", "text", *words.OPTION_NAMES),
)
_COLUMNS: dict[str, np.dtype] = {
    "codes": np.dtype("<i4"),
    "lengths": np.dtype("<i8"),
    "frequencies": np.dtype("<f8"),
    "about": np.dtype("u1"),
}


@dataclasses.dataclass(frozen=True)
class KeptWords:
    """The words of a list that pass the tokenizer and the filters.

    Attributes:
        words: The words, by id: in the order of their spelling.
        codes: int32: ids of the words kept of each entry, one entry after the other.
        lengths: int64 [entries]: number of words kept of each entry, at least 1.
        frequencies: float64 [entries]: of the entry in the list.
        dropped: Frequency of the entries without a kept word, by reason.
        missing: See `word_table.WordTable.missing_characters`; empty where an earlier
            version made it.
    """

    words: list[str]
    codes: np.ndarray
    lengths: np.ndarray
    frequencies: np.ndarray
    dropped: dict[str, float]
    missing: dict[str, int]

    @classmethod
    def of(
        cls,
        tokenizer: tokenizers.Tokenizer,
        table: word_table.WordTable,
        listed: Mapping[str, float],
    ) -> Self:
        """Applies the tokenizer and the filters to a whole word list.

        Args:
            tokenizer: Cuts each entry, like typed text.
            table: Filters, and names, the words.
            listed: The entries with frequencies, the most frequent first.

        Raises:
            PopulationError: If no word of the list is kept, or a word is refused.
        """
        size = len(listed)
        codes, lengths = word_codes.WordCodes(table, tokenizer.of_entries).of(
            list(listed), lambda rank: f"entry {rank + 1:,} of the word list"
        )
        table.check_refused()
        is_kept = codes >= 0
        owners = np.repeat(np.arange(size), lengths)
        num_kept = np.bincount(owners[is_kept], minlength=size)
        frequencies = np.fromiter(listed.values(), np.float64, size)
        dropped: dict[str, float] = {}
        starts = np.cumsum(lengths) - lengths
        for place in np.flatnonzero(num_kept == 0).tolist():
            # The reason is that of its first word.
            reason = "tokenizer"
            if lengths[place]:
                reason = word_table.REASONS[int(codes[starts[place]])]
            dropped[reason] = dropped.get(reason, 0.0) + float(frequencies[place])
        if not is_kept.any():
            raise verified_files.PopulationError(
                "no word of the word list passes the tokenizer, the alphabet and the "
                f"known words. {table.remedy}".rstrip()
            )
        words, id_of_code = table.by_spelling()
        return cls(
            words,
            id_of_code[codes[is_kept]],
            num_kept[num_kept > 0],
            frequencies[num_kept > 0],
            dropped,
            table.missing_characters,
        )

    @classmethod
    def find_or_make(
        cls,
        cache: str | os.PathLike[str],
        identity: Mapping[str, Any],
        make: Callable[[], Self],
    ) -> Self:
        """Returns the kept words of an earlier preparation, or makes them.

        Args:
            cache: Directory of populations.
            identity: Everything that decides a population; see `population.describe`.
            make: Makes it.

        Raises:
            PopulationError: If it cannot be made or written, or is damaged.
        """
        deciding = {
            "format_version": [_FORMAT_VERSION, identity["format_version"]],
            "source": identity["source"],
            "options": {
                name: value
                for name, value in identity["options"].items()
                if name in _DECIDING
            },
        }
        canonical = json.dumps(deciding, sort_keys=True)
        key = hashlib.sha256(canonical.encode()).hexdigest()

        def pieces() -> Iterator[list[np.ndarray]]:
            made = make()
            about = json.dumps(
                {
                    "words": made.words,
                    "dropped": made.dropped,
                    "missing": made.missing,
                }
            )
            yield [
                made.codes.astype(_COLUMNS["codes"]),
                made.lengths.astype(_COLUMNS["lengths"]),
                made.frequencies.astype(_COLUMNS["frequencies"]),
                np.frombuffer(about.encode(), np.uint8),
            ]

        paths = derived_columns.find_or_build(
            os.path.join(os.path.abspath(cache), _FOLDER),
            key,
            [f"{key[:16]}-{name}" for name in _COLUMNS],
            pieces,
        )
        codes, lengths, frequencies, about = (
            np.fromfile(path, dtype)
            for path, dtype in zip(paths, _COLUMNS.values(), strict=True)
        )
        read = json_files.parse(about.tobytes(), _ABOUT)
        told = read["words"], codes, lengths, frequencies, read["dropped"]
        return cls(*told, read.get("missing", {}))
