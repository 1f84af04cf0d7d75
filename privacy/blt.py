"""Buffered linear Toeplitz noise: a matrix of few numbers, and the best ones.

McMahan, Xu and Zhang 2024 ("A Hassle-free Algorithm for Private Learning in Practice").
With d buffers C has the coefficients c_0 = 1 and

    c_t = w_1 q_1^(t-1) + ... + w_d q_d^(t-1)        for t >= 1,

with decays q_j in (0, 1) and weights w_j > 0 that add up to at most 1: they are
positive and do not increase, as the sensitivity's formula needs. The noise has no last
round: with buffers B_j of the noise Z of the rounds before,

    Z_t = z_t - sum_j w_j B_j,        B_j <- q_j B_j + Z_t.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from privacy import argument_checks, toeplitz

# A fifth lowers the noise by less than a thousandth.
LARGEST_BUFFERS = 4
# 1 - q: below it nothing would be forgotten in any training.
_LEAST_FORGOTTEN = 1e-9
# The search stops at a noise within this of the best, relatively.
_TOLERANCE = 1e-10
_FIRST_ITERATIONS, _ITERATIONS = 10, 100
# Digits that are kept of what is found, so that it is the same on every processor.
_DIGITS = 5
_UNIT = 2.0**-52


@dataclasses.dataclass(frozen=True)
class Blt(toeplitz.Matrix):
    """A buffered linear Toeplitz matrix; see this module's docstring.

    Attributes:
        forgotten: 1 - q_j of each buffer: what it loses a round; in [1e-9, 1).
        weights: w_j of each buffer, above 0; at most 1 together.

    Raises:
        ValueError: If a value is out of range.
    """

    forgotten: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self):
        object.__setattr__(self, "forgotten", tuple(map(float, self.forgotten)))
        object.__setattr__(self, "weights", tuple(map(float, self.weights)))
        if len(self.forgotten) != len(self.weights) or not self.weights:
            raise ValueError(
                f"weights has {len(self.weights)} values and forgotten "
                f"{len(self.forgotten)}, must have one a buffer."
            )
        for value in self.forgotten:
            if not _LEAST_FORGOTTEN <= value < 1:
                raise ValueError(
                    f"forgotten has {value}, must be in [{_LEAST_FORGOTTEN:g}, 1)."
                )
        if not all(weight > 0 for weight in self.weights) or sum(self.weights) > 1:
            raise ValueError(
                f"weights is {self.weights}, must be above 0 and at most 1 together: "
                "else coefficients would increase."
            )

    @property
    def num_buffers(self) -> int:
        """One for each weight."""
        return len(self.weights)

    def coefficients(self, num_rounds: int) -> np.ndarray:
        """Returns c_0 to c_(n-1)."""
        values = np.ones(num_rounds)
        steps = np.arange(num_rounds - 1)
        logs = np.log1p(-np.array(self.forgotten))
        values[1:] = np.array(self.weights) @ np.exp(np.outer(logs, steps))
        return values

    @functools.cached_property
    def _fraction(self) -> tuple[np.ndarray, np.ndarray]:
        """C's generating function: its numerator and denominator."""
        decays = 1 - np.array(self.forgotten)
        above = below = _polynomial(decays)
        for place, weight in enumerate(self.weights):
            others = _polynomial(np.delete(decays, place))
            above = above + weight * np.concatenate([[0.0], others])
        return above, below

    def filtered(self, noise: np.ndarray) -> np.ndarray:
        """Returns C^-1 z of a column z."""
        from scipy import signal

        above, below = self._fraction
        return signal.lfilter(below, above, noise)

    def mix(self, buffers: Sequence[np.ndarray]) -> np.ndarray:
        """Returns what the noise of the rounds before takes off."""
        total = self.weights[0] * buffers[0]
        for weight, buffer in zip(self.weights[1:], buffers[1:], strict=True):
            total += weight * buffer
        return total

    def advance(self, buffers: Sequence[np.ndarray], noise: np.ndarray) -> list:
        """Returns the buffers after a round: in their place."""
        for lost, buffer in zip(self.forgotten, buffers, strict=True):
            # So a number that is kept for many rounds is not rounded as a whole.
            taken = lost * buffer
            np.rint(taken, out=taken)
            buffer += noise
            buffer -= taken.astype(np.int64)
        return list(buffers)

    def rounding_error(self, num_rounds: int, largest: float) -> float:
        """Returns a bound on what `mix` is off by."""
        most = self.largest_buffer(num_rounds, largest)
        total = 0.0
        for lost, weight in zip(self.forgotten, self.weights, strict=True):
            # A step is off by 1/2, and by 2^-52 of what it takes off.
            steps = min(num_rounds, 1 / lost)
            total += weight * (steps / 2 + (self.num_buffers + 3) * _UNIT * most)
        return total * (1 + 1e-9)

    def largest_buffer(self, num_rounds: int, largest: float) -> float:
        """Returns a bound on the numbers in buffers."""
        from scipy import signal

        noise = self.filtered(toeplitz.impulse(num_rounds))
        sums = [
            np.abs(signal.lfilter([1.0], [1.0, lost - 1], noise)).sum()
            for lost in self.forgotten
        ]
        # Roundings, of less than a unit a round, are far below the rest.
        return float(max(sums)) * largest * (1 + 1e-9) + 2 * num_rounds


def _polynomial(decays: np.ndarray) -> np.ndarray:
    """Returns the coefficients of the product of 1 - q x, from x^0 on."""
    product = np.ones(1)
    for decay in decays:
        product = np.convolve(product, [1.0, -decay])
    return product


@functools.lru_cache(maxsize=64)
def optimal(
    num_rounds: int,
    *,
    min_separation: int,
    max_participation: int,
    num_buffers: int = 2,
) -> Blt:
    """Finds the matrix with the least noise on the worst prefix sum, at equal privacy.

    Deterministic. A matrix of d buffers is looked for from that of d - 1 on, and is
    taken only where it is better.

    Args:
        num_rounds: n, at least 1. The noise is good for other numbers, too.
        min_separation: MinS, rounds strictly between two participations; at least 0.
        max_participation: MaxP, at least 1.
        num_buffers: d, the most buffers; 1 to 4.

    Raises:
        ValueError: An argument is outside its range.
    """
    rounds = argument_checks.integer("num_rounds", num_rounds, 1)
    argument_checks.integer("min_separation", min_separation, 0)
    argument_checks.integer("max_participation", max_participation, 1)
    argument_checks.integer("num_buffers", num_buffers, 1, LARGEST_BUFFERS)

    def noise(matrix: Blt) -> float:
        square = toeplitz.square_sensitivity(
            matrix.coefficients(rounds), max_participation, min_separation
        )
        return math.sqrt(square) * toeplitz.largest_error(matrix, rounds)

    if num_buffers == 1:
        before, starts = None, [_values((lost,), (0.3,)) for lost in (0.3, 0.03, 0.003)]
    else:
        before = optimal(
            num_rounds,
            min_separation=min_separation,
            max_participation=max_participation,
            num_buffers=num_buffers - 1,
        )
        starts = [
            _values((*before.forgotten, lost), (*before.weights, 0.03))
            for lost in _between(before.forgotten)
        ]
    found = _rounded(_search(noise, starts))
    if before is not None and not noise(found) < noise(before):
        return before
    return found


def _between(forgotten: Sequence[float]) -> list[float]:
    """Returns where one more buffer may be of use: beside those that there are."""
    ends = sorted(math.log(lost) for lost in forgotten)
    places = [
        math.log(2e-7),
        ends[0] - 2,
        *((a + b) / 2 for a, b in itertools.pairwise(ends)),
    ]
    places.append((ends[-1] + math.log(0.8)) / 2)
    return [min(0.8, max(2e-7, math.exp(place))) for place in places]


def _values(forgotten: Sequence[float], weights: Sequence[float]) -> np.ndarray:
    """Returns the numbers without limits that stand for a matrix."""
    lost, weight = np.array(forgotten), np.array(weights)
    scale = min(1.0, 0.9 / weight.sum())
    rest = 1 - scale * weight.sum()
    return np.concatenate([np.log(lost / (1 - lost)), np.log(scale * weight / rest)])


def _matrix(values: np.ndarray) -> Blt:
    lost, odds = np.split(np.clip(values, -40, 40), 2)
    forgotten = np.clip(1 / (1 + np.exp(-lost)), _LEAST_FORGOTTEN, 1 - 1e-9)
    weights = np.exp(odds) / (1 + np.exp(odds).sum())
    return Blt(tuple(forgotten), tuple(weights * (1 - 1e-12)))


def _search(noise, starts: Sequence[np.ndarray]) -> Blt:
    from scipy import optimize

    def objective(values: np.ndarray) -> float:
        return math.log(noise(_matrix(values)))

    def descend(start: np.ndarray, iterations: int):
        options = {"ftol": _TOLERANCE, "maxiter": iterations}
        return optimize.minimize(objective, start, method="L-BFGS-B", options=options)

    tried = [descend(start, _FIRST_ITERATIONS) for start in starts]
    best = descend(min(tried, key=lambda found: found.fun).x, _ITERATIONS)
    polished = optimize.minimize(
        objective,
        best.x,
        method="Nelder-Mead",
        options={"xatol": 1e-3, "fatol": 1e-7, "maxfev": 40 * len(best.x)},
    )
    return _matrix(polished.x if polished.fun < best.fun else best.x)


def _rounded(matrix: Blt) -> Blt:
    """Returns a matrix with few digits, its buffers in order: the slowest first."""
    order = np.argsort(matrix.forgotten)
    forgotten = [_digits(matrix.forgotten[place]) for place in order]
    weights = [_digits(matrix.weights[place]) for place in order]
    return Blt(
        tuple(min(max(lost, _LEAST_FORGOTTEN), 0.99999) for lost in forgotten),
        tuple(weights),
    )


def _digits(value: float) -> float:
    # Downwards, so that weights that add up to 1 do not exceed it.
    exponent = math.floor(math.log10(value)) - _DIGITS + 1
    return float(f"{math.floor(value / 10**exponent)}e{exponent}")
