"""Builds a population's columns from rows of any origin."""

import functools
import itertools
import unicodedata
from typing import Any

import numpy as np
from absl import logging

from federated_hh.files import memory, verified_files
from federated_hh.populations.columns import canonical_rows, column_writer
from federated_hh.populations.languages import tokenizers
from federated_hh.populations.readers import (
    fields,
    grouping,
    opening,
    unspaced_text,
    word_codes,
    word_table,
)

_WORDS_BETWEEN_MEMORY_CHECKS = 1 << 20


@functools.lru_cache(maxsize=1 << 16)
def normal_user(user: str) -> str:
    """Returns a user's id without what usually is no part of it.

    Args:
        user: The id; white space at its ends, invisible characters and a trailing ".0"
            are taken away, and it is brought into Unicode's normal form C.
    """
    text = unicodedata.normalize("NFC", user)
    text = "".join(c for c in text if unicodedata.category(c) != "Cf").strip()
    whole = text.removesuffix(".0")
    return whole if whole.isdecimal() else text


class Clients(dict):
    """The number of each client, in order of first appearance."""

    def warn_of_split_users(self) -> None:
        """Logs a warning if ids differ only in what `normal_user` takes away."""
        suspects: dict[str, list[str]] = {}  # by their normal ids
        for user in self:
            if not user.isascii() or user[-2:] == ".0" or user != user.strip():
                normal = normal_user(user)
                if normal != user:
                    suspects.setdefault(normal, []).append(user)
        groups = [
            [*[normal] * (normal in self), *users]
            for normal, users in suspects.items()
            if len(users) + (normal in self) > 1
        ]
        if groups:
            shown = "; ".join(" and ".join(map(ascii, users)) for users in groups[:3])
            logging.warning(
                "%s users have ids that differ only by blanks, invisible characters, "
                "normal form or a trailing '.0', such as %s. Each id is a client, so a "
                "client's guarantee holds for a part of such a user; --normalize_users "
                "joins them.",
                f"{len(groups):,}",
                shown,
            )

    def __missing__(self, user: str) -> int:
        if opening.has_undecodable(user):
            raise ValueError(f"the user {user!r} is not valid Unicode")
        number = self[user] = len(self)
        return number


class PopulationBuilder:
    """Collects rows, then writes the columns.

    Holds the distinct words and client ids in memory; the rest goes to disk.
    """

    def __init__(
        self,
        writer: column_writer.ColumnWriter,
        table: word_table.WordTable,
        tokenizer: tokenizers.Tokenizer | None,
        entries_in_memory: int = grouping.ENTRIES_IN_MEMORY,
    ):
        """Starts with no rows.

        Args:
            writer: The writer of the population.
            table: Names and filters the words.
            tokenizer: Cuts text into words; None if rows hold words.
            entries_in_memory: Number of words grouped at a time.
        """
        self._writer = writer
        self._table = table
        self._codes = word_codes.WordCodes(table, tokenizer)
        needs_blanks = tokenizer is not None and tokenizer.needs_blanks
        self._unspaced = unspaced_text.UnspacedText(needs_blanks)
        self._grouper = grouping.Grouper(writer.directory, entries_in_memory)
        self._clients = Clients()
        self._num_rows = 0
        self._unchecked = 0

    def add_client(self, user: str) -> None:
        """Adds a client, which may be left without words.

        Args:
            user: The client id.

        Raises:
            ValueError: If it cannot be written as UTF-8.
        """
        self._clients[user]

    def add(self, rows: fields.Rows) -> None:
        """Adds rows.

        Args:
            rows: With valid users.

        Raises:
            ValueError: If a client id cannot be written as UTF-8.
            PopulationError: If words are refused, or memory runs out.
        """
        size = len(rows)
        users = map(self._clients.__getitem__, rows.users)
        clients = np.fromiter(users, np.int32, size)
        self._unspaced.add(rows.contents)
        codes, lengths = self._codes.of(rows.contents, rows.place)
        counts = rows.counts
        if counts is not None:
            counts = np.repeat(counts, lengths)
        clients = np.repeat(clients, lengths)
        kept = codes >= 0
        if not kept.all():
            self._table.count_dropped(
                codes[~kept], None if counts is None else counts[~kept]
            )
            codes, clients = codes[kept], clients[kept]
            counts = None if counts is None else counts[kept]
        self._grouper.add(clients, codes, counts)
        self._num_rows += size
        self._unchecked += size + int(lengths.sum())
        if self._unchecked >= _WORDS_BETWEEN_MEMORY_CHECKS:
            self._check_memory()

    def finish(self, empty_clients: str) -> dict[str, Any]:
        """Writes the columns.

        Args:
            empty_clients: "drop" or "keep" clients without words.

        Returns:
            "client_ids" for the writer, and facts about the data.

        Raises:
            PopulationError: If words or the text's script were refused, no client has
                a word, or a client has a word more than 2**31-1 times.
        """
        self._unspaced.check()
        self._table.check_refused()
        self._check_memory()
        names = list(self._clients)
        self._clients.warn_of_split_users()
        if not self._table.num_words:
            dropped = ", ".join(f"{n} {why}" for why, n in self._table.dropped.items())
            told = (
                f"the population is empty: {self._num_rows} rows of {len(names)} "
                f"clients have no word left (dropped: {dropped}). {self._table.remedy}"
            )
            raise verified_files.PopulationError(told.rstrip())
        kept: list[str] = []
        low = without_words = 0
        words, id_of_word = self._table.by_spelling()
        self._writer.set_words(words)
        for rows in self._grouper.rows(len(names), id_of_word):
            clients = names[low : low + len(rows.row_lengths)]
            low += len(rows.row_lengths)
            without_words += int((rows.row_lengths == 0).sum())
            self._check_counts(rows, words, clients)
            if empty_clients == "drop":
                clients = list(itertools.compress(clients, rows.row_lengths.tolist()))
                rows = rows.without_empty()
            kept.extend(clients)
            self._writer.append_rows(rows)
        return {
            "client_ids": kept,
            "num_rows": self._num_rows,
            "clients_without_words": without_words,
            "dropped_words": dict(self._table.dropped),
            "missing_characters": self._table.missing_characters,
        }

    def _check_memory(self) -> None:
        memory.check(self._table.num_words, len(self._clients))
        self._unchecked = 0

    def _check_counts(
        self, rows: canonical_rows.Rows, words: list[str], names: list[str]
    ) -> None:
        counts = rows.counts
        if len(counts) and counts.max() > column_writer.MAX_COUNT:
            entry = int(counts.argmax())
            ends = np.cumsum(rows.row_lengths)
            client = int(np.searchsorted(ends, entry, side="right"))
            raise verified_files.PopulationError(
                f"client {names[client]!r} has the word "
                f"{words[rows.word_ids[entry]]!r} {counts[entry]} times in total; a "
                f"count has to be at most {column_writer.MAX_COUNT}."
            )
