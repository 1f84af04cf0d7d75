"""The worst that a client can do in a DP-FTRL run.

See `tree_aggregation` for the trees and the conventions.
"""

import bisect
import collections
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import rounding

# More rounds than any training has; a participation of each still takes no time.
LARGEST_ROUNDS = 10**9

# Of a client's participations times their distance (or themselves, if fewer), whose
# square the time of the search grows with: at most half a minute. Half of it, where
# the client may take part less often than the distance allows.
LARGEST_SEARCH = 14_000

# Pairs of counts, before a tree and in it, that are tried one by one where trees are
# put after each other: at most half a minute.
LARGEST_JOINS = 20_000_000

# (value, exit) of the ways to place participations in a node: the sum of squares over
# its nodes, and how many rounds after its end are still closed.
_Front = tuple[tuple[int, int], ...]


class LongSearchError(ValueError):
    """The exact worst case is a search that would take minutes."""


def square_sum(
    lengths: Sequence[int], max_participation: int, min_separation: int
) -> int:
    """Maximizes S2 over all allowed participations of a client.

    Dyadic blocks of at most MinS + 1 rounds hold at most one participation, and S2
    depends only on which blocks hold one. Of all ways to use given blocks, taking
    the earliest allowed round each time leaves most room. So a node needs only the
    trade-off between its value and when it lets the client in again, for each count
    and each round it is entered at; all complete nodes of a size share it.

    Args:
        lengths: Rounds of each tree, in order, each at least 1.
        max_participation: MaxP, at least 1.
        min_separation: MinS, rounds strictly between participations, at least 0.

    Returns:
        The largest sum over all trees' nodes of (participations in it)^2.

    Raises:
        ValueError: An argument is outside its range.
        LongSearchError: The search would take minutes.
    """
    most = checks.integer(max_participation=max_participation, least=1)
    gap = checks.integer(min_separation=min_separation, least=0) + 1
    for length in lengths:
        checks.integer(lengths=length, least=1, most=LARGEST_ROUNDS)
    if gap == 1:
        return _of_any_rounds(lengths, most)
    possible = -(-sum(lengths) // gap)
    largest = min(most, possible)
    limit = LARGEST_SEARCH if largest == possible else LARGEST_SEARCH // 2
    if largest * min(largest, gap) > limit:
        enough = max(LARGEST_SEARCH // 2 // gap, math.isqrt(LARGEST_SEARCH // 2))
        raise LongSearchError(
            f"max_participation is {largest}; it has to be at most {enough} for "
            f"min_separation = {gap - 1}: the exact worst case would take minutes to "
            "search. min_separation = 0 has a closed form, which bounds any other"
        )
    _check_joins(lengths, largest, gap)
    block = gap.bit_length() - 1

    @functools.cache
    def front(height: int, count: int, entry: int) -> _Front:
        size = 1 << height
        if height <= block:
            if count == 0:
                return ((0, max(0, entry - size)),)
            if count > 1 or entry >= size:
                return ()
            return ((height + 1, max(0, entry + gap - size)),)
        half = 1 << (height - 1)
        room = -(-half // gap)
        ways = [
            (left + right + count * count, leave)
            for on_left in range(max(0, count - room), min(count, room) + 1)
            for left, between in front(height - 1, on_left, entry)
            for right, leave in front(height - 1, count - on_left, between)
        ]
        return _pareto(ways)

    # Trees of a forest: the binary digits of a length, the largest tree first.
    states: dict[int, _Front] = {0: ((0, 0),)}
    for length in lengths:
        for height in reversed(range(length.bit_length())):
            if length >> height & 1:
                states = _append_tree(states, front, height, gap, most)
    return max(value for ways in states.values() for value, _ in ways)


def _check_joins(lengths: Sequence[int], most: int, gap: int) -> None:
    """Refuses restarts whose trees take minutes to put after each other."""
    runs = [(length, len(list(same))) for length, same in itertools.groupby(lengths)]
    if _joins(runs, most, gap) <= LARGEST_JOINS:
        return
    enough = bisect.bisect_right(
        range(1, most), LARGEST_JOINS, key=lambda count: _joins(runs, count, gap)
    )
    allowed = f"max_participation is {most}; it has to be at most {enough}"
    raise LongSearchError(
        f"{allowed if enough else 'restarts have to be fewer'} for min_separation = "
        f"{gap - 1} and {len(lengths)} trees: the exact worst case would take minutes "
        "to search. Restart less often, or use min_separation = 0, whose closed form "
        "bounds any other"
    )


def _joins(runs: Sequence[tuple[int, int]], most: int, gap: int) -> int:
    """Counts the pairs that `_append_tree` tries, for (length, how often) of trees."""
    total = before = 0
    for length, repeats in runs:
        heights = [h for h in reversed(range(length.bit_length())) if length >> h & 1]
        rooms = [-(-(1 << height) // gap) for height in heights]
        every = sum(rooms)
        for room in rooms:
            # The counts before the tree grow with each repeat until they reach `most`.
            growing = min(repeats, max(0, -((before - most) // every)))
            counts = growing * before + every * growing * (growing - 1) // 2
            counts += (repeats - growing) * most + repeats
            total += counts * (min(room, most) + 1)
            before += room
        before += every * (repeats - 1)
    return total


def _of_any_rounds(lengths: Sequence[int], most: int) -> int:
    """Maximizes S2 where participations may be in any rounds.

    The rounds to take are the first ones of the largest tree, then of the next. Let
    F(m) be S2 of the first m of 2^h rounds. The nodes that the others are in have the
    sizes 1, 2, ..., 2^h for each of them, so F(2^h - c) is F(2^h) - 2 (2^(h+1) - 1) c
    + F(c), and the two claims

      F(a) + F(b) <= F(a + b)                    for a + b <= 2^h,
      F(a) + F(b) <= F(2^h) + F(a + b - 2^h)     for a + b >  2^h,

    are one and the same: set a = 2^h - c, b = 2^h - d. By induction over h, with M =
    2^(h-1), f for F in a half, and a >= b: F(m) is m^2 + f(m) or m^2 + f(M) + f(m - M).
    If a + b <= M, the first claim for f is enough, as a^2 + b^2 <= (a + b)^2; if a <= M
    < a + b, the second one, f(a) + f(b) <= f(M) + f(a + b - M); if a > M, f(a - M) +
    f(b) <= f(a + b - M). So of all ways to divide m between two halves, filling one is
    best, and the first m rounds are best of all. Of two trees the larger one adds the
    same nodes and some above, so the same holds for filling it first.
    """
    heights = sorted(
        (
            height
            for length in lengths
            for height in range(length.bit_length())
            if length >> height & 1
        ),
        reverse=True,
    )
    total = 0
    for height in heights:
        count = min(most, 1 << height)
        for level in range(height + 1):
            full, rest = divmod(count, 1 << level)
            total += full * 4**level + rest**2
        most -= count
    return total


def _append_tree(
    states: dict[int, _Front], front, height: int, gap: int, most: int
) -> dict[int, _Front]:
    """Puts a complete tree after what `states` (count to trade-off) describes."""
    room = -(-(1 << height) // gap)
    grown: dict[int, list[tuple[int, int]]] = {}
    for before, ways in states.items():
        for count in range(min(room, most - before) + 1):
            for value, entry in ways:
                grown.setdefault(before + count, []).extend(
                    (value + more, leave) for more, leave in front(height, count, entry)
                )
    return {count: _pareto(ways) for count, ways in grown.items() if ways}


def _pareto(ways: Sequence[tuple[int, int]]) -> _Front:
    """Keeps the ways that no other beats in both value and exit."""
    kept: list[tuple[int, int]] = []
    for value, leave in sorted(ways, key=lambda way: (way[1], -way[0])):
        if not kept or value > kept[-1][0]:
            kept.append((value, leave))
    return tuple(kept)


def largest_sum(
    costs: np.ndarray, max_participation: int, min_separation: int
) -> float:
    """Computes the most that taking part in rounds of different costs adds up to.

    Args:
        costs: float64 [rounds], the cost of each round to nearest; at least 0.
        max_participation: MaxP, at least 1.
        min_separation: MinS, rounds strictly between two participations; at least 0.

    Returns:
        A bound on the sum of the exact costs, a few roundings above it.
    """
    if not min_separation:
        chosen = np.sort(costs)[::-1][:max_participation]
        return rounding.sum_upwards(float(np.sum(chosen)), len(chosen))
    # best[-1][k]: the most of the rounds so far with up to k participations.
    nothing = np.zeros(max_participation + 1)
    best = collections.deque([nothing] * (min_separation + 1), min_separation + 1)
    for cost in costs:
        with_it = best[0][:-1] + cost
        best.append(np.append(0.0, np.maximum(best[-1][1:], with_it)))
    return rounding.sum_upwards(float(best[-1][-1]), max_participation)


def check_participations(
    clients: np.ndarray, rounds: np.ndarray, num_rounds: int
) -> None:
    """Checks a run's participations.

    Args:
        clients: Client of each participation, an integer NumPy array.
        rounds: Its round, counted from 0, of the same shape.
        num_rounds: Completed rounds.

    Raises:
        ValueError: A column is not of integers, their lengths differ, or a round is
            outside the run.
    """
    if clients.shape != rounds.shape or clients.ndim != 1:
        raise ValueError(
            f"clients and rounds are of the shapes {clients.shape} and "
            f"{rounds.shape}; they have to be columns of one length"
        )
    for name, column in (("clients", clients), ("rounds", rounds)):
        if len(column) and column.dtype.kind not in "iu":
            raise ValueError(f"{name} is of {column.dtype}; it has to have integers")
    if len(rounds) and not (rounds.min() >= 0 and rounds.max() < num_rounds):
        raise ValueError(
            f"rounds is from {rounds.min()} to {rounds.max()}; it has to be from 0 to "
            f"{num_rounds - 1}"
        )
