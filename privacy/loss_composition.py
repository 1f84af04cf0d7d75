"""Composition of mechanisms of which bounds of delta are known at every epsilon.

Let H(a) bound the hockey-stick divergences of a mechanism at a = e^epsilon, for all
pairs of neighbours in both orders (adjacency is symmetric). The true divergence is
convex in a, so it is below every convex function through points of H too; a convex
piecewise linear one is the divergence of a pair of discrete laws, which dominates the
mechanism (Zhu, Dong, Wang 2022, Proposition 8), and adaptive compositions are dominated
by the product of the pairs (their Theorem 10). The pair has losses at the points alone,
so its privacy loss distribution is convolved on a grid without rounding a loss. This is
`connect the dots` of Doroshenko et al. 2022, with sums of terms that are not negative
in the place of Fourier transforms: small deltas keep their digits.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from privacy import argument_checks, hockey_stick

# Points for the mechanism of the smallest losses, and at most for the others.
_POINTS = 64
_MOST_POINTS = 2048

# Shares of delta: left to losses beyond the grid, and for the rounding of sums.
_BEYOND = 1e-3
_SLACK = 1e-6

# Tails of a mass below this share of delta are moved to the safe side.
_TINY = 1e-15

LARGEST_COUNT = 10_000


@dataclasses.dataclass(frozen=True)
class Mechanisms:
    """Mechanisms that share a bound of delta.

    Attributes:
        delta_at: From an epsilon of at least 0 to a bound of delta, non-increasing,
            that holds for each of them and for both orders of two neighbours.
        largest: An epsilon above 0 at which `delta_at` is as small as it gets, such
            as the local one.
        count: How many, 1 to 10,000.
    """

    delta_at: Callable[[float], float]
    largest: float
    count: int = 1

    def __post_init__(self):
        argument_checks.positive("largest", self.largest)
        argument_checks.integer("count", self.count, 1, LARGEST_COUNT)

    def epsilon(self, delta: float) -> float:
        """Returns the epsilon of one of them at a delta that is reached."""
        return hockey_stick.smallest_epsilon(self.delta_at, delta, self.largest)


def of_guarantee(epsilon: float, delta: float, count: int = 1) -> Mechanisms:
    """Returns mechanisms of which an (epsilon, delta) is all that is known.

    The worst are those that tell everything with probability delta, and else are
    randomized response (Kairouz, Oh, Viswanath 2015).

    Args:
        epsilon: The epsilon of each, above 0.
        delta: The delta of each, in [0, 1).
        count: How many, 1 to 10,000.

    Raises:
        ValueError: An argument is outside its range.
    """
    whole = 1 - delta

    def delta_at(at: float) -> float:
        if at >= epsilon:
            return delta
        # (e^epsilon - e^at) / (1 + e^epsilon), without overflow.
        share = -math.expm1(at - epsilon) / (1 + math.exp(-epsilon))
        return min(1.0, delta + whole * share * (1 + 1e-14))

    return Mechanisms(delta_at, epsilon, count)


def composed_epsilon(mechanisms: Sequence[Mechanisms], delta: float) -> float:
    """Computes the epsilon of mechanisms that run on the same data, adaptively.

    Args:
        mechanisms: The mechanisms of one adjacency; at least one.
        delta: Wanted delta of all together, in (0, 1), at least the sum of what is
            left of each at its `largest`.

    Returns:
        An upper bound of the smallest epsilon, at most what basic composition gives
        with equal shares of delta.

    Raises:
        ValueError: An argument is outside its range.
    """
    delta = argument_checks.probability("delta", delta)
    if not mechanisms:
        raise ValueError("mechanisms names none; it has to name at least one")
    count = sum(each.count for each in mechanisms)
    left = [each.delta_at(each.largest) for each in mechanisms]
    spent = math.fsum(
        each.count * rest for each, rest in zip(mechanisms, left, strict=True)
    )
    if spent > delta:
        raise ValueError(
            f"delta is {delta:g}; it has to be at least {spent:g}, the sum of the "
            "deltas that "
            "the mechanisms have at every epsilon"
        )
    share = (delta - spent) / count * (1 - 1e-14)
    if share < 1e-14 * delta:
        return math.fsum(each.count * each.largest for each in mechanisms)
    basic = math.fsum(
        each.count * each.epsilon(rest + share)
        for each, rest in zip(mechanisms, left, strict=True)
    ) * (1 + 1e-15)
    if count == 1 or basic == 0:
        return basic
    reaches = [
        each.epsilon(rest + _BEYOND * share)
        for each, rest in zip(mechanisms, left, strict=True)
    ]
    step = max(min(filter(None, reaches)) / _POINTS, max(reaches) / _MOST_POINTS)
    masses, lowest, infinite = np.ones(1), 0, 0.0
    for each, reach in zip(mechanisms, reaches, strict=True):
        points = max(1, math.ceil(reach / step))
        deltas = np.array([each.delta_at(step * point) for point in range(points + 1)])
        law, beyond = _dominating_law(deltas, step)
        law, first, lost = _power(law, -points, each.count, _TINY * share)
        masses, lowest = np.convolve(masses, law), lowest + first
        infinite += each.count * beyond + lost
    losses = step * (lowest + np.arange(len(masses)))

    def composed(epsilon: float) -> float:
        above = losses > epsilon
        gains = -np.expm1(epsilon - losses[above])
        return min(1.0, (float(masses[above] @ gains) + infinite) * (1 + _SLACK))

    return min(basic, hockey_stick.smallest_epsilon(composed, delta, basic))


def _dominating_law(deltas: np.ndarray, step: float) -> tuple[np.ndarray, float]:
    """Finds a symmetric pair of laws whose divergence is above that of all points.

    Args:
        deltas: float64 [points], delta at epsilon = 0, step, 2 step, ...; the last is
            below 1.
        step: The step of epsilon.

    Returns:
        (masses, infinite): float64 [2 points - 1], what the first law gives to each
        loss, from the most negative one on; and to an infinite loss.
    """
    last = len(deltas) - 1
    losses = step * np.arange(last + 1)
    infinite = float(deltas[-1])
    # Points near 0 may be too high to be on a convex function; the last alone is not.
    for first in range(last + 1):
        kept = first + _lower_hull(np.expm1(losses[first:]), deltas[first:])
        falls = np.append(-np.diff(deltas[kept]) / np.diff(np.expm1(losses[kept])), 0.0)
        # The fall of the divergence at a point is what the second law has above it.
        second = np.zeros(last + 1)
        second[kept[1:]] = falls[:-1] - falls[1:]
        if first > 0:
            # Below the first point, a line to its mirror image at -losses[first].
            edge = losses[first]
            mirrored = -math.expm1(-edge) + math.exp(-edge) * deltas[first]
            fall = (mirrored - deltas[first]) / (2 * math.sinh(edge))
            second[first] = fall - falls[0]
        masses = np.concatenate([second[:0:-1], [0.0], (second * np.exp(losses))[1:]])
        middle = 1 - masses.sum() - infinite
        if second[first] >= 0 and middle >= -1e-12:
            masses[last] = max(middle, 0.0)
            return masses, infinite
    raise AssertionError("the last point alone is always possible")


def _lower_hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the indices of the points on the lower convex hull, x increasing."""
    kept: list[int] = []
    for index in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            left = (y[b] - y[a]) * (x[index] - x[b])
            if left < (y[index] - y[b]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(index)
    return np.array(kept)


def _power(
    masses: np.ndarray, lowest: int, count: int, tiny: float
) -> tuple[np.ndarray, int, float]:
    """Convolves a law with itself.

    Args:
        masses: float64 [values], of consecutive integers.
        lowest: The first of them.
        count: The count of the laws that are added up.
        tiny: Tails of less mass than this are moved upwards.

    Returns:
        (masses, lowest, lost) of the sum, with `lost` the mass moved to infinity.
    """
    if count == 1:
        return masses, lowest, 0.0
    half, half_lowest, lost = _power(masses, lowest, count // 2, tiny)
    total, low, lost = np.convolve(half, half), 2 * half_lowest, 2 * lost
    if count % 2:
        total, low = np.convolve(total, masses), low + lowest
    first = int(np.searchsorted(np.cumsum(total), tiny))
    above = np.cumsum(total[::-1])[::-1]
    end = len(total) - int(np.searchsorted(above[::-1], tiny))
    moved = float(total[end:].sum())
    total[first] += total[:first].sum()
    return total[first:end], low + first, lost + moved
