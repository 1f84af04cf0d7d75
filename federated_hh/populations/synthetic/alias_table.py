"""Draws from a fixed discrete distribution, one table look-up a draw."""

import numpy as np

# A draw takes a 64-bit word: its highest bits are the cell, the next ones decide
# between the cell's own outcome and its alias.
_THRESHOLD_BITS = 40


class AliasTable:
    """Walker's alias method on integers: exact for probabilities rounded to 2**-40.

    The number of cells is a power of two and the probabilities are rounded to multiples
    of 2**-40 of a cell, so neither choice of a draw adds a rounding error. Source:
    Walker 1977; Vose 1991, whose loop is done here by cumulative sums.
    """

    def __init__(self, weights: np.ndarray):
        """Builds the table.

        Args:
            weights: Floats [n], at least 0, with a positive sum: the probabilities up
                to a factor.

        Raises:
            ValueError: If there is no positive weight, or one is negative or not
                finite.
        """
        weights = np.asarray(weights, np.float64)
        total = weights.sum()
        if not (np.isfinite(total) and total > 0 and weights.min() >= 0):
            raise ValueError(
                "weights have to be finite, at least 0, with a positive sum."
            )
        self._cell_bits = max(len(weights) - 1, 1).bit_length()
        cells = 1 << self._cell_bits
        full = 1 << _THRESHOLD_BITS
        mass = np.zeros(cells, np.int64)
        mass[: len(weights)] = np.rint(weights / total * cells * full)
        mass[np.argmax(mass)] += cells * full - mass.sum()
        self._threshold, self._alias = _fill_cells(mass, full)

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Draws independent outcomes.

        Args:
            rng: Source of randomness.
            size: Number of values.

        Returns:
            int64 [size], indices of weights.
        """
        bits = rng.integers(0, 1 << 64, size, np.uint64)
        cell = (bits >> np.uint64(64 - self._cell_bits)).view(np.int64)
        bits <<= np.uint64(self._cell_bits)
        bits >>= np.uint64(64 - _THRESHOLD_BITS)
        keep = bits.view(np.int64) < self._threshold[cell]
        return np.where(keep, cell, self._alias[cell])

    def probabilities(self) -> np.ndarray:
        """Returns the law of a draw: float64 [cells], zero past the last weight."""
        cells = len(self._alias)
        full = 1 << _THRESHOLD_BITS
        mass = self._threshold.copy()
        np.add.at(mass, self._alias, full - self._threshold)
        return mass / (cells * full)


def _fill_cells(mass: np.ndarray, full: int) -> tuple[np.ndarray, np.ndarray]:
    """Pours the outcomes' masses into cells of two outcomes each.

    Heavy outcomes (more than a cell) fill up the light ones' cells one after another,
    each until its remainder fits into its own cell, which the next one fills up.

    Args:
        mass: int64 [cells], summing to cells * full.
        full: The mass of a cell.

    Returns:
        The mass of each cell's own outcome, and the outcome of the rest.
    """
    heavy = np.flatnonzero(mass > full)
    light = np.flatnonzero(mass < full)
    threshold, alias = mass.copy(), np.arange(len(mass))
    if not len(heavy):
        return threshold, alias
    missing = np.concatenate(([0], np.cumsum(full - mass[light])))
    spare = np.cumsum(mass[heavy] - full)
    # A light cell is filled by the first heavy outcome not yet used up before it.
    alias[light] = heavy[np.searchsorted(spare, missing[:-1], side="right")]
    # A heavy outcome is used up by the first light cell that takes its spare mass or
    # more; the excess is missing from its own cell.
    overdrawn = missing[np.searchsorted(missing, spare, side="left")] - spare
    threshold[heavy] = full - overdrawn
    alias[heavy[:-1]] = heavy[1:]
    return threshold, alias
