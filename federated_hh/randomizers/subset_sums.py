"""The sum of uniform random subsets, at a cost that does not grow with their number.

A report that is a uniform subset of the domain is not drawn. Drawn are the numbers of
reports with 1, 2, ... of their items, *picks*, in each part of the domain, which is
halved until the parts are single items. A report with c picks in a part has a
hypergeometric number of them in the part's left half, independently of the other
reports. So the reports with c picks split by a multinomial, and the next halving needs
nothing but the number of reports by their picks.

To count the subsets that contain their owner's item, a part has two histograms: of
the reports whose owner's item lies in it, *residents*, and of all others, *visitors*.
When a part is halved, its residents are alike but for their numbers of picks, so that
those with an item in the left half are a uniform subset of them, which is multivariate
hypergeometric. In the half without its owner's item a report is a visitor.

Every step is exact in law. The arithmetic is not: probabilities are float64, samplers
NumPy's by rejection, and tails of less than 10^-30 are cut.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from federated_hh.randomizers import hypergeometric

# By Hoeffding a hypergeometric of c picks is further than 6 sqrt(c) from its mean with
# probability 2 e^-72 at most.
_HALF_WIDTH = 6.0
# The two kinds of reports of a part, as the first index of a result.
_VISITOR, _RESIDENT = 0, 1


@dataclasses.dataclass(frozen=True)
class _Parts:
    """The number of reports by their picks in each part of the domain.

    Attributes:
        size: The number of items in each part but the last, which may have fewer.
        visitors: int64, shape [parts, picks]. Reports without a pick may be left out.
        residents: int64, of the same shape, all reports counted.
    """

    size: int
    visitors: np.ndarray
    residents: np.ndarray


def sum_of_subsets(
    generator: np.random.Generator,
    anonymous: np.ndarray,
    subset_size: int,
    owners: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the sum of independent uniform subsets of the items 0 to len(owners) - 1.

    Args:
        generator: The source of random bits.
        anonymous: int64, shape [at most items + 1]: number of subsets without an owner
            of size 0, 1, 2 ...
        subset_size: The size of the subsets with an owner, in [0, items].
        owners: int64, shape [items]: number of subsets whose owner has this item. A
            subset is drawn without regard to its owner.

    Returns:
        Two int64 arrays of shape [items]: the number of subsets that contain each item,
        without those of its owners; and the number of the latter that contain it.
    """
    num_items = len(owners)
    # The owners with an item below each item give the owners of any part.
    owners_below = np.concatenate([[0], np.cumsum(owners)])
    width = max(subset_size + 1, len(anonymous))
    visitors = np.zeros((1, width), np.int64)
    visitors[0, : len(anonymous)] = anonymous
    residents = np.zeros((1, width), np.int64)
    residents[0, subset_size] = owners_below[-1]
    parts = _Parts(1 << (num_items - 1).bit_length(), visitors, residents)
    while parts.size > 1:
        parts = _halve(generator, parts, owners_below)
    if parts.visitors.shape[1] == 1:
        return np.zeros(num_items, np.int64), np.zeros(num_items, np.int64)
    return parts.visitors[:, 1].copy(), parts.residents[:, 1].copy()


def _halve(
    generator: np.random.Generator, parts: _Parts, owners_below: np.ndarray
) -> _Parts:
    """Halves every part, and with them the picks of its reports."""
    num_items, half = len(owners_below) - 1, parts.size // 2
    starts = np.arange(0, num_items, parts.size)
    middles = np.minimum(starts + half, num_items)
    ends = np.minimum(starts + parts.size, num_items)
    left_owners = owners_below[middles] - owners_below[starts]
    left = hypergeometric.choose_from_columns(generator, parts.residents, left_owners)
    right = parts.residents - left

    most = parts.visitors.shape[1] - 1
    shape = (2, len(starts), 2, min(most, half) + 1)  # kind, part, half of it, picks
    result = np.zeros(shape, np.int64)
    kinds = [
        # Who they are, and what they are in the left half and in the right one.
        _cells(parts.visitors, shape, _VISITOR, _VISITOR),
        _cells(left, shape, _RESIDENT, _VISITOR),
        _cells(right, shape, _VISITOR, _RESIDENT),
    ]
    cells = _Cells(*(np.concatenate(column) for column in zip(*kinds, strict=True)))
    _split(generator, cells, middles - starts, ends - middles, result.reshape(-1))

    result = result.reshape(2, -1, shape[-1])[:, : -(-num_items // half)]
    used = np.flatnonzero(result.any(axis=(0, 1)))
    result = result[:, :, : (used[-1] + 1 if used.size else 1)]
    # Residents without a pick were not split; they are who the others are not.
    bounds = np.minimum(np.arange(result.shape[1] + 1) * half, num_items)
    owners = np.diff(owners_below[bounds])
    result[_RESIDENT, :, 0] = owners - result[_RESIDENT, :, 1:].sum(axis=1)
    return _Parts(half, result[_VISITOR], result[_RESIDENT])


class _Cells(NamedTuple):
    """Groups of reports with equally many picks in the same part; int64, shape [cells].

    Attributes:
        part: The part.
        picks: Picks of each report in it, at least 1.
        reports: Number of reports.
        left: Where the result counts reports with no pick in the left half; those
            with one come next.
        right: The same of the right half.
    """

    part: np.ndarray
    picks: np.ndarray
    reports: np.ndarray
    left: np.ndarray
    right: np.ndarray


def _cells(
    histogram: np.ndarray, shape: tuple[int, ...], left_kind: int, right_kind: int
) -> _Cells:
    part, picks = np.nonzero(histogram[:, 1:])
    picks += 1
    _, num_parts, _, width = shape
    left = (left_kind * num_parts + part) * 2 * width
    right = ((right_kind * num_parts + part) * 2 + 1) * width
    return _Cells(part, picks, histogram[part, picks], left, right)


def _split(
    generator: np.random.Generator,
    cells: _Cells,
    left_sizes: np.ndarray,
    right_sizes: np.ndarray,
    result: np.ndarray,
) -> None:
    """Splits the picks of all cells between the halves of their parts.

    A multinomial draw, category by category from the likeliest on: each takes a
    binomial share of the reports that are left.

    Args:
        generator: The source of random bits.
        cells: The groups of reports.
        left_sizes: int64, shape [parts]: items in the left half; the same for all
            parts but the last.
        right_sizes: The same of the right half.
        result: int64, shape [any]: where the reports are added up.
    """
    if not cells.reports.size:
        return
    # One row of the table serves all cells of equal picks and equal halves.
    num_parts, width = len(left_sizes), int(cells.picks.max()) + 1
    key = cells.picks + width * (cells.part == num_parts - 1)
    used = np.zeros(2 * width, bool)
    used[key] = True
    keys = np.flatnonzero(used)
    part = np.where(keys < width, 0, num_parts - 1)
    likeliest, offsets, chances = _split_table(
        keys % width, left_sizes[part], right_sizes[part]
    )
    row = (np.cumsum(used) - 1)[key]
    # Where a pick count of 0 in the left half, and all picks in the right, would be.
    left = cells.left + likeliest[row]
    right = cells.right + cells.picks - likeliest[row]
    missing = cells.reports
    for category, offset in enumerate(offsets):
        drawn = generator.binomial(missing, chances[row, category])
        hit = np.flatnonzero(drawn)
        number = drawn[hit]
        np.add.at(result, left[hit] + offset, number)
        np.add.at(result, right[hit] - offset, number)
        missing = missing - drawn
        open_ = np.flatnonzero(missing)
        if not open_.size:
            return
        if open_.size < missing.size:
            missing, row = missing[open_], row[open_]
            left, right = left[open_], right[open_]


def _split_table(
    picks: np.ndarray, left_sizes: np.ndarray, right_sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tabulates how picks split, for a draw from the likeliest split outwards.

    Args:
        picks: int64, shape [rows], each in [1, the row's items].
        left_sizes: int64, shape [rows]: the items in the left half.
        right_sizes: int64, shape [rows]: the items in the right half.

    Returns:
        The likeliest number of picks in the left half, int64, shape [rows]. Categories
        as offsets from it: 0, 1, -1, 2, -2 ..., int64. The chance of each category
        where all before it did not come up, float64, shape [rows, categories]; 0 for
        impossible ones.
    """
    items = left_sizes + right_sizes
    likeliest = (picks + 1) * (left_sizes + 1) // (items + 2)
    fewest, most = np.maximum(picks - right_sizes, 0), np.minimum(picks, left_sizes)
    likeliest = np.clip(likeliest, fewest, most)
    reach = int(max((most - likeliest).max(), (likeliest - fewest).max()))
    # One more than Hoeffding asks for, as the mode is within 1 of the mean.
    reach = min(reach, math.ceil(_HALF_WIDTH * math.sqrt(picks.max())) + 1)

    column = [values[:, np.newaxis] for values in (picks, left_sizes, right_sizes)]
    picks, left_sizes, right_sizes = (values.astype(np.float64) for values in column)
    steps = np.arange(reach)
    j = likeliest[:, np.newaxis] + steps
    up = (picks - j) * (left_sizes - j) / ((j + 1) * (right_sizes - picks + j + 1))
    j = likeliest[:, np.newaxis] - steps
    down = j * (right_sizes - picks + j) / ((picks - j + 1) * (left_sizes - j + 1))
    weights = np.ones((len(likeliest), 2 * reach + 1))
    weights[:, 1::2] = np.cumprod(up, axis=1)
    weights[:, 2::2] = np.cumprod(down, axis=1)
    # Summed from the small end, so that the last ones are as precise as the first.
    tails = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1]
    chances = np.divide(weights, tails, out=np.zeros_like(weights), where=weights > 0)
    offsets = np.zeros(2 * reach + 1, np.int64)
    offsets[1::2], offsets[2::2] = steps + 1, -(steps + 1)
    return likeliest, offsets, chances
