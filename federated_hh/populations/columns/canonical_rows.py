"""Turns a stream of (client, word) occurrences into the rows of a population."""

import numpy as np

from federated_hh.populations.columns.packed_entries import Rows


def grouped_by(clients: np.ndarray) -> np.ndarray | None:
    """Returns the stable order that puts each client's occurrences together.

    Args:
        clients: Integers [n], at least 0.

    Returns:
        int64 [n], by ascending client; None where they are so already.
    """
    if not (clients[1:] < clients[:-1]).any():
        return None
    return _sorted(clients, _bits(clients.max()))[0]


def _bits(largest: int) -> int:
    return int(largest).bit_length()


def _sorted(keys: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorts numbers, equal ones by position.

    Args:
        keys: Integers [n], at least 0.
        bits: The bits of the largest of them, at most 63.

    Returns:
        int64 [n]: their positions in that order; and the numbers in it.
    """
    # NumPy sorts 16-bit numbers by radix, in linear time: several times faster than by
    # comparison. So longer numbers are sorted by one 16-bit part after another, the
    # lowest first.
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    keys = keys[order]
    for shift in range(16, bits, 16):
        step = np.argsort((keys >> shift).astype(np.uint16), kind="stable")
        order, keys = order[step], keys[step]
    return order, keys


def _groups(
    clients: np.ndarray, words: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sorts occurrences by (client, word, position).

    Returns:
        The positions in that order, where each (client, word) group starts, and the
        client and the word of each group.
    """
    word_bits = _bits(words.max())
    bits = _bits(clients.max()) + word_bits
    if bits <= 63:
        # The low bits of unsigned numbers are those of signed ones.
        kind = np.uint32 if bits <= 32 else np.uint64
        keys = clients.astype(kind) << kind(word_bits)
        keys |= words.astype(kind)
        positions, keys = _sorted(keys, bits)
        starts = np.append(0, np.flatnonzero(keys[1:] != keys[:-1]) + 1)
        if len(starts) < len(keys):
            keys = keys[starts]
        owners = (keys >> kind(word_bits)).astype(np.int64)
        return positions, starts, owners, (keys & kind((1 << word_bits) - 1))
    positions = np.lexsort((words, clients))
    changed = (np.diff(clients[positions]) != 0) | (np.diff(words[positions]) != 0)
    starts = np.append(0, np.flatnonzero(changed) + 1)
    first = positions[starts]
    return positions, starts, clients[first], words[first]


def _totals(
    counts: np.ndarray | None, positions: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """Returns the total count of each group of occurrences: int64 [groups]."""
    if counts is None:
        return np.diff(starts, append=len(positions))
    ordered = counts.astype(np.int64)[positions]
    if len(starts) == len(positions):
        return ordered
    return np.add.reduceat(ordered, starts)


def rows(
    clients: np.ndarray,
    words: np.ndarray,
    counts: np.ndarray | None,
    num_clients: int,
) -> Rows:
    """Adds up the occurrences of each word at each client.

    Args:
        clients: Integers [n], from 0 to below `num_clients`; the order of occurrences
            is that of the client's data.
        words: Integers [n], at least 0.
        counts: Integers [n], at least 1; None if all are 1.
        num_clients: Number of rows to make.
    """
    size = len(clients)
    lengths = np.zeros(num_clients, np.int64)
    favorites = np.full(num_clients, -1, np.int64)
    if not size:
        none = np.zeros(0, np.int64)
        return Rows(none, none, lengths, favorites)
    positions, starts, owners, word_ids = _groups(clients, words)
    totals = _totals(counts, positions, starts)
    first = positions if len(starts) == size else positions[starts]
    row_starts = np.append(0, np.flatnonzero(owners[1:] != owners[:-1]) + 1)
    row_lengths = np.diff(row_starts, append=len(owners))
    have = owners[row_starts]
    lengths[have] = row_lengths
    # Of the entries with the largest total, the one that appeared first.
    largest = np.maximum.reduceat(totals, row_starts)
    appeared = np.where(totals == np.repeat(largest, row_lengths), first, size)
    favorites[have] = words[np.minimum.reduceat(appeared, row_starts)]
    return Rows(word_ids.astype(np.int64), totals, lengths, favorites)
