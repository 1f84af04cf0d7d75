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

from federated_hh.options import checks
from federated_hh.privacy.dp_ftrl import toeplitz
from federated_hh.randomness import identities

# A fifth lowers the noise by less than a thousandth.
LARGEST_BUFFERS = 4
# 1 - q: below it nothing would be forgotten in any training.
_LEAST_FORGOTTEN = 1e-9
_FIRST_ITERATIONS, _ITERATIONS = 12, 200
# Relative reduction of the noise that justifies another buffer.
_WORTH = 1e-6
# Digits kept of the solution.
_DIGITS = 4
# A buffer that loses less than this in the whole run loses nothing.
_KEPT = 1e-3
_STEP = 1e-30
_UNIT = 2.0**-52


@identities.identity("Blt", "forgotten weights")
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
                f"{len(self.forgotten)}; each needs one value per buffer."
            )
        for value in self.forgotten:
            if not _LEAST_FORGOTTEN <= value < 1:
                raise ValueError(
                    f"forgotten has {value}; it has to be in [{_LEAST_FORGOTTEN:g}, 1)."
                )
        if not all(weight > 0 for weight in self.weights) or sum(self.weights) > 1:
            raise ValueError(
                f"weights is {self.weights}; each has to be above 0 and their sum at "
                "most 1, or coefficients would increase."
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

    def filtered(self, noise: np.ndarray) -> np.ndarray:
        """Returns C^-1 z of a column z."""
        from scipy import signal

        above, below = _fraction(1 - np.array(self.forgotten), np.array(self.weights))
        return signal.lfilter(below, above, noise)

    def mix(self, buffers: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the weighted sum of earlier rounds' noise; see base class."""
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
        """Returns a bound on the error of `mix`."""
        most = self.largest_buffer(num_rounds, largest)
        total = 0.0
        for lost, weight in zip(self.forgotten, self.weights, strict=True):
            # A step has an error of 1/2, plus 2^-52 of the subtracted amount.
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


def _fraction(decays: np.ndarray, weights: np.ndarray):
    """Returns C's generating function: its numerator and denominator."""
    above = below = _polynomial(decays)
    for place, weight in enumerate(weights):
        others = _polynomial(np.delete(decays, place))
        above = above + weight * np.concatenate([[0.0], others])
    return above, below


def _polynomial(decays: np.ndarray) -> np.ndarray:
    """Returns the coefficients of the product of 1 - q x, from x^0 on."""
    product = np.ones(1, decays.dtype)
    for decay in decays:
        product = np.convolve(product, np.array([1.0, -decay]))
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
    rounds = checks.integer(num_rounds=num_rounds, least=1)
    checks.integer(min_separation=min_separation, least=0)
    checks.integer(max_participation=max_participation, least=1)
    checks.integer(num_buffers=num_buffers, least=1, most=LARGEST_BUFFERS)

    limits = (rounds, max_participation, min_separation + 1)
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
    found = _search(limits, starts)
    if before is not None:
        ours, theirs = (
            _log_noise(_values(matrix.forgotten, matrix.weights), *limits)
            for matrix in (found, before)
        )
        if not ours < theirs - _WORTH:
            return before
    return found


def _between(forgotten: Sequence[float]) -> list[float]:
    """Returns places for one more buffer, next to the existing ones."""
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
    rest = max(1 - weight.sum(), 1e-9)
    return np.concatenate([np.log(lost / (1 - lost)), np.log(weight / rest)])


def _parts(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a matrix's forgotten shares and weights, from the search's variables."""
    lost, odds = np.split(np.exp(values), 2)
    return lost / (1 + lost), odds / (1 + odds.sum())


def _log_noise(values: np.ndarray, rounds: int, most: int, gap: int):
    """Returns the logarithm of the noise on the worst prefix sum, for sensitivity 1.

    Analytic, so that it takes complex numbers too: see `_gradient`.
    """
    from scipy import signal

    forgotten, weights = _parts(values)
    column = np.ones(rounds, values.dtype)
    column[1:] = weights @ np.exp(np.outer(np.log1p(-forgotten), np.arange(rounds - 1)))
    square = np.square(toeplitz.worst_column(column, most, gap)).sum()
    above, below = _fraction(1 - forgotten, weights)
    inverse = signal.lfilter(below, above, toeplitz.impulse(rounds))
    return np.log(square * np.square(np.cumsum(inverse)).sum()) / 2


def _gradient(values: np.ndarray, *limits: int) -> np.ndarray:
    """Returns the gradient of `_log_noise`, to the last digits.

    f(x + ih) is f(x) + ih f'(x) where h is next to nothing: no difference is taken
    (Squire and Trapp 1998).
    """
    steps = values + 1j * _STEP * np.eye(len(values))
    return np.array([_log_noise(step, *limits).imag / _STEP for step in steps])


def _search(limits: tuple[int, ...], starts: Sequence[np.ndarray]) -> Blt:
    from scipy import optimize

    size = len(starts[0]) // 2

    def descend(start: np.ndarray, iterations: int):
        return optimize.minimize(
            _log_noise,
            start,
            limits,
            method="L-BFGS-B",
            jac=_gradient,
            bounds=[(math.log(_LEAST_FORGOTTEN), 10)] * size + [(-25, 10)] * size,
            options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": iterations},
        )

    tried = [descend(start, _FIRST_ITERATIONS) for start in starts]
    best = descend(min(tried, key=lambda found: found.fun).x, _ITERATIONS)
    return _rounded(*_parts(best.x), rounds=limits[0])


def _rounded(forgotten: np.ndarray, weights: np.ndarray, rounds: int) -> Blt:
    """Returns a matrix with few digits, its buffers in order: the slowest first.

    The search is exact to more digits than are kept, so that they are the same on every
    processor.
    """
    order = np.argsort(forgotten)
    # A rate that forgets nothing during the whole run could as well be 0.
    lost = np.where(forgotten * rounds < _KEPT, 0, forgotten)[order]
    return Blt(
        tuple(min(max(_digits(part), _LEAST_FORGOTTEN), 0.9999) for part in lost),
        tuple(_digits(weight) for weight in weights[order]),
    )


def _digits(value: float) -> float:
    # Downwards, so that weights that add up to 1 do not exceed it.
    if value == 0:
        return 0.0
    exponent = math.floor(math.log10(value)) - _DIGITS + 1
    return float(f"{math.floor(value / 10**exponent)}e{exponent}")
