"""Turns a stream of (client, word) occurrences into the rows of a population."""

import numpy as np


def grouped_by(clients: np.ndarray) -> np.ndarray | None:
    """Returns the stable order that puts each client's occurrences together.

    Args:
        clients: Integers [n], at least 0.

    Returns:
        int64 [n], by ascending client; None where they are so already.
    """
    if not (clients[1:] < clients[:-1]).any():
        return None
    # NumPy sorts 16-bit numbers digit by digit, in time that is linear.
    order = np.argsort((clients & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(16, _bits(clients.max()), 16):
        digits = ((clients >> shift) & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
    return order


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


def combine(
    clients: np.ndarray,
    words: np.ndarray,
    counts: np.ndarray | None = None,
    by_count: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Adds up the occurrences of each word at each client.

    Args:
        clients: Integers [n], at least 0; the order of occurrences is that of the
            client's data.
        words: Integers [n], at least 0.
        counts: Integers [n], at least 1; None if all are 1.
        by_count: Whether a client's words come in canonical order (by decreasing
            count, ties by first appearance), or else in order of first appearance.

    Returns:
        The clients (ascending), words and counts of the distinct pairs.
    """
    size = len(clients)
    if not size:
        return (np.zeros(0, np.int64),) * 3
    order = grouped_by(clients)
    if order is not None:
        clients, words = clients[order], words[order]
        counts = None if counts is None else counts[order]
    positions, starts = _sorted_groups(clients, words)
    if counts is None:
        totals = np.diff(starts, append=size)
    else:
        totals = np.add.reduceat(counts[positions].astype(np.int64), starts)
    # Groups are sorted by position too, so the first is the first appearance. Listed
    # by position, those put each client's words in order of first appearance.
    total_at = np.zeros(size, np.int64)
    total_at[positions[starts]] = totals
    first = np.flatnonzero(total_at)
    if by_count:
        first = first[_order_by_count(clients[first], total_at[first])]
    return clients[first], words[first], total_at[first]


def _order_by_count(clients: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Returns the stable order by (client, decreasing total), clients ascending.

    Most totals of real text are 1: those keep their order behind the others, so that
    only the others need sorting.
    """
    once = totals == 1
    several = np.flatnonzero(~once)
    several = several[np.lexsort((-totals[several], clients[several]))]
    # An entry that comes once moves behind all entries of its client that come more
    # often: those before it are in front already.
    several_before = np.cumsum(~once)
    row_ends = np.flatnonzero(np.diff(clients, append=clients[-1] + 1))
    row_sizes = np.diff(row_ends, prepend=-1)
    at_row_end = np.repeat(several_before[row_ends], row_sizes)
    places = np.arange(len(totals)) + (at_row_end - several_before)
    order = np.empty(len(totals), np.int64)
    order[places[once]] = np.flatnonzero(once)
    # What remains are the places at the front of each row, in row order.
    front = np.ones(len(totals), bool)
    front[places[once]] = False
    order[np.flatnonzero(front)] = several
    return order
