"""One distribution from noisy histograms, each with finer buckets than the last.

The shares below the boundaries are estimated by generalized least squares from all
histograms at once, with the exact law of reports with independent bits: two bits of
one report are independent given its true cell, and two true cells exclude each other.
That all shares sum up to one is part of the model.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy import linalg


@dataclasses.dataclass(frozen=True)
class Histogram:
    """The histogram of one query.

    Attributes:
        boundaries: float64 [boundaries], ascending.
        shares: float64 [boundaries + 1]: the estimated share of the reports below the
            first boundary, from each to the next, and from the last on.
        reports: Number of reports.
        empty_variance: Variance that a report of another cell adds to a cell's
            count.
        full_variance: The same of a report that is of the cell.
    """

    boundaries: np.ndarray
    shares: np.ndarray
    reports: int
    empty_variance: float
    full_variance: float

    @property
    def empty_stderr(self) -> float:
        """Standard error of the share of a cell that nobody has."""
        return float(np.sqrt(self.empty_variance / self.reports))


@dataclasses.dataclass(frozen=True)
class Distribution:
    """An estimated distribution function.

    Attributes:
        boundaries: float64 [boundaries], ascending: where it is known.
        below: float64 [boundaries]: the estimated share below each.
        stderrs: float64 [boundaries]: of `below`.
        share_stderrs: float64 [boundaries + 1]: of `shares`.
    """

    boundaries: np.ndarray
    below: np.ndarray
    stderrs: np.ndarray
    share_stderrs: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The estimated share of each cell: float64 [boundaries + 1]."""
        return np.diff(self.below, prepend=0, append=1)

    def monotone(self) -> np.ndarray:
        """Returns `below` made ascending, in [0, 1].

        It is the middle between the least ascending values that are nowhere smaller and
        the largest that are nowhere larger.
        """
        upper = np.maximum.accumulate(self.below)
        lower = np.minimum.accumulate(self.below[::-1])[::-1]
        return np.clip((upper + lower) / 2, 0, 1)

    def at(self, values: np.ndarray) -> np.ndarray:
        """Returns the share below each value: linear between boundaries."""
        return np.interp(values, self.boundaries, self.monotone())

    def quantiles(self, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns values that have given shares below them.

        Args:
            shares: float64, in (0, 1).

        Returns:
            The values, the first or last boundary where they lie beyond it; and their
            standard errors: half of the way between the values of the share with its
            own standard error taken off and added (Woodruff 1952).
        """
        below = self.monotone()
        # Strictly ascending, so that it can be turned around.
        below = below + 1e-12 * np.arange(len(below))
        values = np.interp(shares, below, self.boundaries)
        errors = np.interp(values, self.boundaries, self.stderrs)
        low = np.interp(shares - errors, below, self.boundaries)
        high = np.interp(shares + errors, below, self.boundaries)
        return values, (high - low) / 2


def combine(histograms: Sequence[Histogram]) -> Distribution:
    """Returns the distribution that all histograms are of.

    Args:
        histograms: One or more; the boundaries of each are among those of the last.

    Raises:
        ValueError: If some are not.
    """
    boundaries = histograms[-1].boundaries
    places = []
    for histogram in histograms:
        at = np.searchsorted(boundaries, histogram.boundaries)
        if not np.array_equal(boundaries[at % len(boundaries)], histogram.boundaries):
            raise ValueError(
                "boundaries of a histogram are not among those of the last; they have "
                "to be"
            )
        places.append(at)
    # First as if all cells were empty, then with the variances that shares give.
    found = _estimate(boundaries, histograms, places, np.zeros(len(boundaries)))
    return _estimate(boundaries, histograms, places, found.monotone())


def _estimate(
    boundaries: np.ndarray,
    histograms: Sequence[Histogram],
    places: Sequence[np.ndarray],
    below: np.ndarray,
) -> Distribution:
    """Returns the best linear estimate, of covariances that some distribution gives.

    The covariance of a histogram's cells is diag(variances) - cells cells^T, divided by
    its reports.
    """
    laws = []
    for histogram, at in zip(histograms, places, strict=True):
        cells = np.diff(below[at], prepend=0, append=1 if below.any() else 0)
        variances = histogram.empty_variance * (1 - cells)
        laws.append((cells, variances + (histogram.full_variance + 1) * cells))
    if len(histograms) == 1:
        return _of_one(histograms[0], *laws[0])
    num = len(boundaries)
    precision, weighted = np.zeros((num, num)), np.zeros(num)
    for histogram, at, (cells, variances) in zip(histograms, places, laws, strict=True):
        # The inverse by Sherman and Morrison.
        ratio = cells / variances
        inverse = np.diag(1 / variances)
        inverse += np.outer(ratio, ratio) / (1 - ratio @ cells)
        inverse *= histogram.reports
        # A cell is the difference of two entries of `below`, 0 before them and 1 after.
        given = histogram.shares.copy()
        given[-1] -= 1
        precision[np.ix_(at, at)] += _differences(_differences(inverse).T).T
        weighted[at] += _differences(inverse @ given)
    covariance = linalg.inv(precision)
    of_cells = np.diff(np.pad(covariance, 1), axis=0)
    of_cells = np.diff(of_cells, axis=1)
    return Distribution(
        boundaries, covariance @ weighted, _root(covariance), _root(of_cells)
    )


def _of_one(
    histogram: Histogram, cells: np.ndarray, variances: np.ndarray
) -> Distribution:
    """Returns the same of one histogram, without matrices.

    Its shares miss a sum of one; each takes its part of the difference, by its
    covariance with the sum.
    """
    with_sum = variances - cells * cells.sum()
    total = with_sum.sum()
    shares = histogram.shares - with_sum * (histogram.shares.sum() - 1) / total
    of_below = np.cumsum(variances) - np.cumsum(cells) ** 2
    of_below -= np.cumsum(with_sum) ** 2 / total
    of_shares = variances - cells**2 - with_sum**2 / total
    return Distribution(
        histogram.boundaries,
        np.cumsum(shares)[:-1],
        np.sqrt(np.maximum(of_below[:-1], 0) / histogram.reports),
        np.sqrt(np.maximum(of_shares, 0) / histogram.reports),
    )


def _differences(rows: np.ndarray) -> np.ndarray:
    """Returns D^T rows, where D makes cells of shares below boundaries."""
    return rows[:-1] - rows[1:]


def _root(covariance: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(np.diag(covariance), 0))
