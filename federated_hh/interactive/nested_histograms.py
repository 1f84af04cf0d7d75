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
    """What one query gave.

    Attributes:
        boundaries: float64 [boundaries], ascending.
        shares: float64 [boundaries + 1]: the estimated share of the reports below the
            first boundary, from each to the next, and from the last on.
        reports: How many there were.
        empty_variance: What a report that is not of a cell adds to the variance of the
            cell's count.
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
        covariance: float64 [boundaries, boundaries]: of `below`.
    """

    boundaries: np.ndarray
    below: np.ndarray
    covariance: np.ndarray

    @property
    def stderrs(self) -> np.ndarray:
        """Standard errors of `below`."""
        return np.sqrt(np.diag(self.covariance))

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns what lies in each cell, and its standard error: [boundaries + 1]."""
        num = len(self.boundaries)
        differences = np.diff(np.eye(num + 1, num, -1), axis=0)
        differences = np.concatenate([differences, np.zeros((1, num))])
        differences[-1, -1] = -1
        shares = differences @ self.below
        shares[-1] += 1
        variances = ((differences @ self.covariance) * differences).sum(axis=1)
        return shares, np.sqrt(np.maximum(variances, 0))

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
        histograms: At least one; the boundaries of each are among those of the last.

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
    shares = np.zeros(len(boundaries) + 1)
    for _ in range(2):
        found = _least_squares(boundaries, histograms, places, shares)
        shares = np.diff(found.monotone(), prepend=0, append=1)
    return found


def _least_squares(
    boundaries: np.ndarray,
    histograms: Sequence[Histogram],
    places: Sequence[np.ndarray],
    shares: np.ndarray,
) -> Distribution:
    """Returns the best linear estimate, of covariances that some shares give."""
    num = len(boundaries)
    precision, weighted = np.zeros((num, num)), np.zeros(num)
    below = np.cumsum(shares)[:-1]
    for histogram, at in zip(histograms, places, strict=True):
        cells = np.diff(below[at], prepend=0, append=shares.sum())
        variances = histogram.empty_variance * (1 - cells)
        variances += (histogram.full_variance + 1) * cells
        # The inverse of diag(variances) - cells cells^T, by Sherman and Morrison.
        ratio = cells / variances
        inverse = np.diag(1 / variances)
        inverse += np.outer(ratio, ratio) / (1 - ratio @ cells)
        inverse *= histogram.reports
        # A cell is the difference of two entries of `below`, 0 before them and 1 after.
        given = histogram.shares.copy()
        given[-1] -= 1
        precision[np.ix_(at, at)] += _differences(_differences(inverse).T).T
        weighted[at] += _differences(inverse @ given)
    factor = linalg.cho_factor(precision)
    return Distribution(
        boundaries,
        linalg.cho_solve(factor, weighted),
        linalg.cho_solve(factor, np.eye(num)),
    )


def _differences(rows: np.ndarray) -> np.ndarray:
    """Returns D^T rows, where D makes cells of shares below boundaries."""
    return rows[:-1] - rows[1:]
