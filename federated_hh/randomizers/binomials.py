"""Binomial draws, for chances of any size."""

import numpy as np

# NumPy draws with 1 - (1 - p) in place of p, which is 2^-53 / p of p off.
_RARE = 2.0**-20


def binomial(
    generator: np.random.Generator,
    trials: np.ndarray | int,
    chance: np.ndarray | float,
) -> np.ndarray:
    """Draws the number of successes of independent trials.

    A trial of a small chance p is drawn as two in a row, of chances r and p / r.

    Args:
        generator: The source of random bits.
        trials: int64 of any shape, at least 0.
        chance: float64, in [0, 1], of a shape that fits that of `trials`.

    Returns:
        int64, of the common shape.
    """
    chance = np.asarray(chance)
    while np.any(rare := (chance > 0) & (chance < _RARE)):
        trials = generator.binomial(trials, np.where(rare, _RARE, 1.0))
        chance = np.where(rare, chance / _RARE, chance)
    return generator.binomial(trials, chance)
