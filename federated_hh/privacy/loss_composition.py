"""Composition of mechanisms with known bounds of delta at every epsilon.

Let H(a) bound the hockey-stick divergences of a mechanism at a = e^epsilon, for all
pairs of neighbours: in both orders, or from D to D' alone (`one_sided_deltas`). The
true divergence is convex in a, so it is below every convex function through points of H
too; a convex piecewise linear one is the divergence of a pair of discrete laws, which
dominates the mechanism (Zhu, Dong, Wang 2022, Proposition 8), and adaptive compositions
are dominated by the product of the pairs (their Theorem 10), from D to D' if one of
them is. The pair has losses at the points alone, so its privacy loss distribution is
convolved on a grid without rounding a loss. This is `connect the dots` of Doroshenko et
al. 2022, with sums of terms that are not negative in the place of Fourier transforms:
small deltas keep their digits. Why rounding is upward: docs/triehh_privacy.md.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import rounding

# Points for the mechanism of the smallest losses, and at most for the others.
_POINTS = 64
_ONE_SIDED_POINTS = 512
_MOST_POINTS = 2048
# Of more one-sided mechanisms, fewer points each, as the sum has more losses.
_MANY = 100

# Shares of delta: left to losses beyond the grid, and for the rounding of sums.
_BEYOND = 1e-3
_SLACK = 1e-6
# A one-sided curve is raised by this share, which exceeds its rounding error.
_RAISED = 1e-9
_LOWERED = 1 - 1e-12
# Of a chance of 1, whose complement has no logarithm.
_NEARLY = math.nextafter(1.0, 0.0)

# Tails of a mass below this share of delta are moved to the safe side.
_TINY = 1e-15

LARGEST_COUNT = 10**7


@dataclasses.dataclass(frozen=True)
class Mechanisms:
    """Mechanisms that share a bound of delta.

    Attributes:
        delta_at: From an epsilon of at least 0 to a bound of delta, non-increasing,
            that holds for each of them.
        largest: An epsilon above 0 at which `delta_at` is as small as it gets, such
            as the local one.
        count: The number of mechanisms, 1 to 10^7.
        one_sided_deltas: `delta_at` for an array of epsilons, where the bound holds
            from D to D' alone; None where it holds for both orders.
    """

    delta_at: Callable[[float], float]
    largest: float
    count: int = 1
    one_sided_deltas: Callable[[np.ndarray], np.ndarray] | None = None

    def __post_init__(self):
        checks.positive(largest=self.largest)
        checks.integer(count=self.count, least=1, most=LARGEST_COUNT)

    @property
    def least_delta(self) -> float:
        """The delta of one of them at every epsilon."""
        return self.delta_at(self.largest)

    def epsilon(self, delta: float) -> float:
        """Returns the epsilon of one of them at a delta that is reached."""
        return smallest_epsilon(self.delta_at, delta, self.largest)

    def reach(self, delta: float) -> float:
        """Returns an epsilon of one of them at a delta that is reached, at no cost.

        At most a quarter too large where the bound is one-sided.
        """
        if self.one_sided_deltas is None:
            return self.epsilon(delta)
        epsilons = self.largest * np.geomspace(1e-6, 1, 64)
        enough = self.one_sided_deltas(epsilons) <= delta
        return float(epsilons[np.argmax(enough)]) if enough.any() else self.largest

    def law(self, step: float, points: int) -> tuple[np.ndarray, int, float]:
        """Returns a law of losses that dominates one of them.

        Args:
            step: The step between losses.
            points: The largest finite loss, in steps; at least 1.

        Returns:
            (masses, lowest, infinite): the masses of consecutive losses, float64
            [losses], the first of which is `lowest` steps, and that of infinity.
        """
        if self.one_sided_deltas is not None:
            # Lower than the losses by more than their rounding: deltas do not rise.
            losses = step * np.arange(points + 1)
            return _one_sided_law(self.one_sided_deltas(losses * _LOWERED), step)
        deltas = np.array([self.delta_at(step * point) for point in range(points + 1)])
        masses, infinite = _dominating_law(deltas, step)
        return masses, -points, infinite


def of_guarantee(epsilon: float, delta: float, count: int = 1) -> Mechanisms:
    """Returns mechanisms known only by an (epsilon, delta).

    The worst are those that tell everything with probability delta, and else are
    randomized response (Kairouz, Oh, Viswanath 2015).

    Args:
        epsilon: The epsilon of each, above 0.
        delta: The delta of each, in [0, 1).
        count: Number of mechanisms, 1 to 10^7.

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
        delta: Wanted delta of all together, in (0, 1), at least `least_delta`.

    Returns:
        An upper bound of the smallest epsilon, at most what basic composition gives
        with equal shares of delta; from D to D' alone where a mechanism's bound is.

    Raises:
        ValueError: An argument is outside its range.
    """
    delta = checks.probability(delta=delta)
    spent = least_delta(mechanisms)
    if spent > delta:
        raise ValueError(
            f"delta is {delta:g}; it has to be at least {spent:g}, what the mechanisms "
            "together have at every epsilon"
        )
    count = sum(each.count for each in mechanisms)
    share = (delta - spent) / count * (1 - 1e-14)
    # Without equal shares of delta, every loss is the largest.
    basic = math.fsum(each.count * each.largest for each in mechanisms)
    if share < 1e-14 * delta:
        return basic
    added = math.fsum(each.count * each.least_delta for each in mechanisms)
    if added < delta:
        equal = (delta - added) / count * (1 - 1e-14)
        basic = math.fsum(
            each.count * each.epsilon(each.least_delta + equal) for each in mechanisms
        ) * (1 + 1e-15)
    if count == 1 or basic == 0:
        return basic
    composed = _composition(mechanisms, share)
    return min(basic, smallest_epsilon(composed, delta, basic))


def composed_delta(
    mechanisms: Sequence[Mechanisms], epsilon: float, points: int | None = None
) -> float:
    """Computes the delta of mechanisms that run on the same data, adaptively.

    Args:
        mechanisms: The mechanisms of one adjacency; at least one.
        epsilon: Epsilon of all together, of any sign.
        points: Losses of each mechanism's law; fewer are faster and a looser bound.

    Returns:
        An upper bound of the hockey-stick divergence, at most 1; from D to D' alone
        where a mechanism's bound is.
    """
    # Alone, one mechanism has at least that; it sets the scale of what is small.
    least = max(each.delta_at(max(0.0, epsilon)) for each in mechanisms)
    scale = max(least, least_delta(mechanisms), 1e-300)
    count = sum(each.count for each in mechanisms)
    return _composition(mechanisms, min(1.0, scale) / count, points)(epsilon)


def least_delta(mechanisms: Sequence[Mechanisms]) -> float:
    """Returns the delta that mechanisms together have at every epsilon.

    Args:
        mechanisms: The mechanisms of one adjacency; at least one.

    Raises:
        ValueError: There is none.
    """
    if not mechanisms:
        raise ValueError("mechanisms names none; it has to name at least one")
    return _of_any((each.least_delta, each.count) for each in mechanisms)


def _of_any(chances: Iterable[tuple[float, int]]) -> float:
    """Returns the probability of one of independent events, with their counts."""
    pairs = list(chances)
    logs = [count * math.log1p(-min(chance, _NEARLY)) for chance, count in pairs]
    added = math.fsum(count * chance for chance, count in pairs)
    return min(1.0, added, -math.expm1(math.fsum(logs)) * (1 + 1e-13))


def _composition(
    mechanisms: Sequence[Mechanisms], share: float, points: int | None = None
) -> Callable[[float], float]:
    """Composes mechanisms.

    Args:
        mechanisms: The mechanisms; at least one.
        share: A delta of one mechanism, of which a small part may be lost.
        points: See `composed_delta`.

    Returns:
        From an epsilon to a bound of the delta of all together.
    """
    reaches = [each.reach(each.least_delta + _BEYOND * share) for each in mechanisms]
    count = sum(each.count for each in mechanisms)
    if points is None:
        points = _POINTS
        if any(each.one_sided_deltas is not None for each in mechanisms):
            few = math.sqrt(min(1.0, _MANY / count))
            points = max(points, round(_ONE_SIDED_POINTS * few))
    largest = max(reaches)
    step = max(min(filter(None, reaches), default=1.0) / points, largest / _MOST_POINTS)
    masses, lowest, lost_of_all, slack = np.ones(1), 0, 0.0, _SLACK
    infinities = []
    for each, reach in zip(mechanisms, reaches, strict=True):
        law, first, beyond = each.law(step, max(1, math.ceil(reach / step)))
        # A raised law may have more than 1; the product has the power of that.
        slack += 2 * each.count * max(0.0, law.sum() + beyond - 1)
        law, first, lost = _power(law, first, each.count, _TINY * share)
        masses, lowest = np.convolve(masses, law), lowest + first
        infinities.append((beyond, each.count))
        lost_of_all += lost
    infinite = _of_any(infinities) + lost_of_all
    losses = step * (lowest + np.arange(len(masses)))
    # Each sum of a convolution adds its rounding once for each law in it.
    slack += 2 * rounding.UNIT * count * len(masses)

    def composed(epsilon: float) -> float:
        above = losses > epsilon
        gains = -np.expm1(epsilon - (1 - _LOWERED) * abs(epsilon) - losses[above])
        return min(1.0, (float(masses[above] @ gains) + infinite) * (1 + slack))

    return composed


def _one_sided_law(deltas: np.ndarray, step: float) -> tuple[np.ndarray, int, float]:
    """Finds a law of losses whose divergence is above that of all points.

    From the largest loss down, each mass is its point's remaining deficit. All terms
    are positive, so no digit is lost, and points are raised by more than the rounding.

    Args:
        deltas: float64 [points], delta at epsilon = 0, step, 2 step, ...
        step: The step of epsilon.

    Returns:
        See `Mechanisms.law`.
    """
    raised = (deltas * (1 + _RAISED)).tolist()
    fall, infinite = -math.expm1(-step), raised[-1]
    masses = [0.0] * len(raised)
    # Of the masses above a point: their divergence there, and their second law's part.
    reached, second = infinite, 0.0
    for index in range(len(raised) - 2, -1, -1):
        reached += fall * second
        masses[index + 1] = max(0.0, raised[index] - reached) / fall
        reached += masses[index + 1] * fall
        second = (1 - fall) * (second + masses[index + 1])
    masses[0] = max(0.0, 1 - infinite - math.fsum(masses)) + 2 * rounding.UNIT
    return np.array(masses), 0, infinite


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
    first = min(int(np.searchsorted(np.cumsum(total), tiny)), len(total) - 1)
    above = np.cumsum(total[::-1])[::-1]
    end = max(first + 1, len(total) - int(np.searchsorted(above[::-1], tiny)))
    moved = float(total[end:].sum())
    total[first] += total[:first].sum()
    return total[first:end], low + first, lost + moved


# The result is at most this much (relative) above the smallest epsilon.
_TOLERANCE = 1e-8

# Stands for the logarithm of a delta of 0.
_LOG_ZERO = -1e4


def smallest_epsilon(
    delta_at: Callable[[float], float],
    delta: float,
    largest: float,
    guess: float | None = None,
) -> float:
    """Finds the smallest epsilon whose delta is small enough.

    Args:
        delta_at: Non-increasing function of epsilon in [0, largest]; an upper bound
            of the hockey-stick divergence.
        delta: Wanted delta, in (0, 1).
        largest: An epsilon that is known to be enough (with delta 0), such as the
            local one.
        guess: Guess of the epsilon; only the running time depends on it.

    Returns:
        An epsilon with `delta_at(epsilon) <= delta`, at most 1e-8 (relative) above
        the smallest one; `largest` where `delta_at` needs more than that.
    """
    from scipy import optimize

    # Logarithms guide the search; they are rounded, and so decide nothing.
    def excess(epsilon: float) -> float:
        value = delta_at(epsilon)
        return (math.log(value) if value > 0 else _LOG_ZERO) - math.log(delta)

    if delta_at(0.0) <= delta:
        return 0.0
    # A bracket of one factor 2 first: log delta is smooth there, and Brent's method
    # then needs few evaluations of what may be a long sum.
    high = largest if guess is None else min(max(guess, 1e-9 * largest), largest)
    while delta_at(high) > delta:
        if high == largest:
            return largest
        high = min(2 * high, largest)
    low = high / 2
    while delta_at(low) <= delta:
        low, high = low / 2, low
        if low < 1e-9 * largest:
            return high
    epsilon = optimize.brentq(excess, low, high, rtol=_TOLERANCE / 4, xtol=1e-300)
    # Brent's root may lie on either side.
    step = _TOLERANCE / 4
    while delta_at(epsilon) > delta and epsilon < high:
        epsilon = min(epsilon * (1 + step), high)
        step *= 2
    return epsilon
