"""Turns a stream of (client, word) occurrences into the rows of a population."""

import dataclasses

import numpy as np


def _bits(largest: int) -> int:
    return int(largest).bit_length()


def _sorted_groups(
    clients: np.ndarray, words: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sorts occurrences by (client, word, position).

    Returns:
        The positions in that order, and where each (client, word) group starts.
    """
    size = len(clients)
    position_bits = _bits(size - 1)
    word_bits = _bits(words.max())
    if _bits(clients.max()) + word_bits + position_bits <= 63:
        # One packed key: sorting plain integers is several times faster than
        # sorting indices, and NumPy does it with vector instructions.
        keys = clients.astype(np.int64) << word_bits
        keys |= words
        keys <<= position_bits
        keys |= np.arange(size)
        keys.sort()
        positions = keys & ((1 << position_bits) - 1)
        keys >>= position_bits
        changed = keys[1:] != keys[:-1]
    else:
        positions = np.lexsort((words, clients))
        changed = (np.diff(clients[positions]) != 0) | (np.diff(words[positions]) != 0)
    return positions, np.append(0, np.flatnonzero(changed) + 1)


def _totals(
    counts: np.ndarray | None, positions: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """Returns how often each group of occurrences comes in all: int64 [groups]."""
    if counts is None:
        return np.diff(starts, append=len(positions))
    return np.add.reduceat(counts[positions].astype(np.int64), starts)


def by_appearance(
    clients: np.ndarray, words: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Adds up the occurrences of each word at each client, in order of appearance.

    Args:
        clients: Integers [n], at least 0; the order of occurrences is that of the
            client's data.
        words: Integers [n], at least 0.
        counts: Integers [n], at least 1.

    Returns:
        The clients (ascending), words and counts of the distinct pairs; a client's
        words in order of first appearance.
    """
    size = len(clients)
    if not size:
        return (np.zeros(0, np.int64),) * 3
    positions, starts = _sorted_groups(clients, words)
    # Groups are sorted by position too, so the first is the first appearance. Listed
    # by position, those put each client's words in order of first appearance.
    total_at = np.zeros(size, np.int64)
    total_at[positions[starts]] = _totals(counts, positions, starts)
    first = np.flatnonzero(total_at)
    owners = clients[first]
    if (owners[1:] < owners[:-1]).any():
        first = first[np.argsort(owners, kind="stable")]
    return clients[first], words[first], total_at[first]


@dataclasses.dataclass(frozen=True)
class Rows:
    """Clients with their words in canonical order.

    Attributes:
        word_ids: int64 [entries]: ascending within a client.
        counts: int64 [entries]: how often the client has the word.
        row_lengths: int64 [clients].
        favorites: int64 [clients]: the word that the client has most often, of equally
            frequent ones the one that came first; -1 for a client without words.
    """

    word_ids: np.ndarray
    counts: np.ndarray
    row_lengths: np.ndarray
    favorites: np.ndarray

    def without_empty(self) -> "Rows":
        """Returns the clients that have a word."""
        kept = self.row_lengths > 0
        return dataclasses.replace(
            self, row_lengths=self.row_lengths[kept], favorites=self.favorites[kept]
        )


def rows(
    clients: np.ndarray,
    words: np.ndarray,
    counts: np.ndarray | None,
    num_clients: int,
) -> Rows:
    """Makes rows of occurrences.

    Args:
        clients: Integers [n], from 0 to below `num_clients`; the order of occurrences
            is that of the client's data.
        words: Integers [n], at least 0.
        counts: Integers [n], at least 1; None if all are 1.
        num_clients: How many rows to make.
    """
    size = len(clients)
    lengths = np.zeros(num_clients, np.int64)
    favorites = np.full(num_clients, -1, np.int64)
    if not size:
        none = np.zeros(0, np.int64)
        return Rows(none, none, lengths, favorites)
    positions, starts = _sorted_groups(clients, words)
    totals = _totals(counts, positions, starts)
    first = positions[starts]
    owners, word_ids = clients[first], words[first].astype(np.int64)
    row_starts = np.append(0, np.flatnonzero(owners[1:] != owners[:-1]) + 1)
    row_lengths = np.diff(row_starts, append=len(owners))
    have = owners[row_starts]
    lengths[have] = row_lengths
    # Of the entries with the largest total, the one that appeared first.
    largest = np.maximum.reduceat(totals, row_starts)
    appeared = np.where(totals == np.repeat(largest, row_lengths), first, size)
    favorites[have] = words[np.minimum.reduceat(appeared, row_starts)]
    return Rows(word_ids, totals, lengths, favorites)
