"""Noise that is correlated over rounds by a lower-triangular Toeplitz matrix.

A matrix C with the coefficients c_0 = 1, c_1, ... stands for the mechanism that
releases x + C^-1 z for the sums x of rounds and independent noise z: post-processing of
C x + z, a Gaussian mechanism (Denisov et al. 2022). What is wanted are prefix sums,
whose noise is A C^-1 z with the matrix A of ones up to the diagonal. How far one client
can move C x, for contributions of norm at most 1, is the sensitivity here:

* Where coefficients are not negative and do not increase, no participations move it
  farther than those in the rounds 0, b, 2b, ..., with b = MinS + 1 (Kalinin and Lampert
  2024, Theorem 2). MinS counts the rounds strictly between two participations, b is the
  difference of their numbers.
* Without that condition the formula is wrong: c = (1, 0, 0, 1) with b = 2 and three
  participations in eight rounds gives 6, and the rounds 0, 3 and 6 give 9. So it is
  taken of the smallest sequence that does not increase and is nowhere below |c|. A
  product of two columns of C is at most that of the same columns of the larger matrix,
  so this is a bound for every C.
* Of participations as they were it is computed from the products of the columns of |c|.
"""

import abc
import dataclasses
import fractions
import itertools
from collections.abc import Sequence

import numpy as np

from federated_hh.options import checks
from federated_hh.privacy import rounding
from federated_hh.privacy.dp_ftrl import worst_participation
from federated_hh.randomness import identities

# A client of more participations in a block is looked at by convolution.
_MOST_PAIRED = 32
_CONVOLVED_AT_ONCE = 1 << 21
# Relative error of float64 sums and convolutions.
_FLOAT_SLACK = fractions.Fraction(4, 10**12)
# Of numbers in float64: a rounding is off by half of this, relatively.
_EPSILON = 2.0**-52


class Matrix(abc.ABC):
    """A lower-triangular Toeplitz matrix C with ones in its diagonal.

    Its subclasses are frozen dataclasses of plain values. Besides its coefficients a
    matrix knows how to correlate noise round by round: with `buffers` of the noise that
    was released in earlier rounds, Z_s, the noise of a round is Z_t = z_t - mix.
    """

    @property
    @abc.abstractmethod
    def num_buffers(self) -> int:
        """d, vectors that are remembered between rounds."""

    @abc.abstractmethod
    def coefficients(self, num_rounds: int) -> np.ndarray:
        """Returns c_0 to c_(n-1): float64, each right up to 2^-40, relatively."""

    @abc.abstractmethod
    def filtered(self, noise: np.ndarray) -> np.ndarray:
        """Returns C^-1 z of a column z: float64 [n]."""

    @abc.abstractmethod
    def mix(self, buffers: Sequence[np.ndarray]) -> np.ndarray:
        """Returns sum_(s < t) c_(t-s) Z_s: float64 [size].

        Args:
            buffers: int64 [d][size], of the rounds before t; at least one.
        """

    @abc.abstractmethod
    def advance(self, buffers: Sequence[np.ndarray], noise: np.ndarray) -> list:
        """Returns the buffers after a round; may change those that it is given.

        Args:
            buffers: int64 [d][size].
            noise: int64 [size], Z_t.
        """

    @abc.abstractmethod
    def rounding_error(self, num_rounds: int, largest: float) -> float:
        """Returns a bound on the error of `mix` over a number of rounds.

        Args:
            num_rounds: Positive.
            largest: No number of what is independent, z, is farther from 0.
        """

    @abc.abstractmethod
    def largest_buffer(self, num_rounds: int, largest: float) -> float:
        """Returns a bound on the numbers in buffers; see `rounding_error`."""


@identities.identity("SquareRoot", "bands")
@dataclasses.dataclass(frozen=True)
class SquareRoot(Matrix):
    """The square root of the prefix sums' matrix, cut off after some bands.

    c_t is the coefficient of x^t in (1 - x)^(-1/2), for t below the number of bands,
    and 0 from there on (Fichtenberger et al. 2023; banded, Kalinin and Lampert 2024).
    It remembers a vector a band but one.

    Attributes:
        bands: Positive; 1 is independent noise.
    """

    bands: int

    def __post_init__(self):
        checks.integer(bands=self.bands, least=1)

    @property
    def num_buffers(self) -> int:
        """The noise of as many rounds before."""
        return self.bands - 1

    def coefficients(self, num_rounds: int) -> np.ndarray:
        """Returns c_0 to c_(n-1)."""
        values = np.zeros(num_rounds)
        kept = min(self.bands, num_rounds)
        steps = np.arange(1, kept)
        values[:kept] = np.cumprod(np.append(1.0, (2 * steps - 1) / (2 * steps)))
        return values

    def filtered(self, noise: np.ndarray) -> np.ndarray:
        """Returns C^-1 z of a column z."""
        from scipy import signal

        return signal.lfilter([1.0], self.coefficients(self.bands), noise)

    def mix(self, buffers: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the weighted sum of earlier rounds' noise; see base class."""
        weights = self.coefficients(self.bands)[1:]
        total = np.zeros(len(buffers[0]))
        for weight, noise in zip(weights, buffers, strict=True):
            total += weight * noise
        return total

    def advance(self, buffers: Sequence[np.ndarray], noise: np.ndarray) -> list:
        """Returns the noise of the last rounds, the last one first."""
        return [noise, *buffers][: self.num_buffers]

    def rounding_error(self, num_rounds: int, largest: float) -> float:
        """Returns a bound on the error of `mix`."""
        weights = float(self.coefficients(self.bands)[1:].sum())
        noise = self.largest_buffer(num_rounds, largest)
        return (self.bands + 1) * _EPSILON * weights * noise

    def largest_buffer(self, num_rounds: int, largest: float) -> float:
        """Returns a bound on the numbers in buffers."""
        return (absolute_sum(self, num_rounds) + 1) * largest


def impulse(num_rounds: int) -> np.ndarray:
    """Returns (1, 0, ..., 0), of which `Matrix.filtered` makes C^-1's coefficients."""
    values = np.zeros(checks.integer(num_rounds=num_rounds, least=1))
    values[0] = 1.0
    return values


def absolute_sum(matrix: Matrix, num_rounds: int) -> float:
    """Returns the sum of the absolute values of C^-1's coefficients."""
    return float(np.abs(matrix.filtered(impulse(num_rounds))).sum())


def prefix_stddevs(matrix: Matrix, num_rounds: int) -> np.ndarray:
    """Returns the noise's standard deviation on each prefix sum, for that of z 1.

    Returns:
        float64 [num_rounds], which increases.
    """
    # Column 0 of A C^-1, which is Toeplitz too.
    column = np.cumsum(matrix.filtered(impulse(num_rounds)))
    return np.sqrt(np.cumsum(np.square(column)))


def largest_error(matrix: Matrix, num_rounds: int) -> float:
    """Returns the noise's standard deviation on the worst prefix sum, the last one."""
    return float(prefix_stddevs(matrix, num_rounds)[-1])


def majorant(coefficients: np.ndarray) -> np.ndarray:
    """Returns the smallest sequence that does not increase and is nowhere below |c|."""
    return np.maximum.accumulate(np.abs(coefficients)[::-1])[::-1]


def square_sensitivity(
    coefficients: np.ndarray, max_participation: int, min_separation: int
) -> float:
    """Computes the squared sensitivity of C x in the worst case.

    Args:
        coefficients: float64 [num_rounds], c_0 to c_(n-1).
        max_participation: MaxP, at least 1.
        min_separation: MinS, rounds strictly between two participations; at least 0.

    Returns:
        That of participations in the rounds 0, b, 2b, ..., or a bound where the
        coefficients do not fulfil the condition (see this module's docstring). Rounded
        upwards.

    Raises:
        ValueError: An argument is outside its range.
    """
    most = checks.integer(max_participation=max_participation, least=1)
    gap = checks.integer(min_separation=min_separation, least=0) + 1
    return _safe(np.square(worst_column(majorant(coefficients), most, gap)).sum())


def worst_column(values: np.ndarray, most: int, gap: int) -> np.ndarray:
    """Returns the sum of the columns 0, b, 2b, ... of a matrix.

    Args:
        values: [num_rounds], its coefficients.
        most: Largest number of columns.
        gap: Their distance b.
    """
    rounds = len(values)
    rows = -(-rounds // gap)
    sums = np.zeros(rows * gap, values.dtype)
    sums[:rounds] = values
    sums = np.cumsum(sums.reshape(rows, gap), axis=0)
    if most < rows:
        sums[most:] -= sums[:-most].copy()
    return sums.reshape(-1)[:rounds]


def square_sensitivity_of_blocks(
    matrix: Matrix, lengths: Sequence[int], max_participation: int, min_separation: int
) -> float:
    """Bounds the squared sensitivity where the noise restarts after each block.

    C is block diagonal then, and the squared sensitivity the sum of the blocks'. The
    bound takes the worst way to divide MaxP among them, without asking whether MinS
    allows it across their borders.

    Args:
        matrix: C of each block.
        lengths: Rounds of each block.
        max_participation: MaxP of all blocks together, at least 1.
        min_separation: MinS, at least 0.

    Returns:
        The bound, which is exact for one block; rounded upwards.

    Raises:
        ValueError: An argument is outside its range.
    """
    coefficients = matrix.coefficients(max(lengths))
    if len(lengths) == 1:
        return square_sensitivity(coefficients, max_participation, min_separation)
    most = checks.integer(max_participation=max_participation, least=1)
    gap = checks.integer(min_separation=min_separation, least=0) + 1
    most = min(most, sum(-(-length // gap) for length in lengths))
    of_length = {}
    for length in set(lengths):
        counts = range(1, min(most, -(-length // gap)) + 1)
        of_length[length] = [
            square_sensitivity(coefficients[:length], count, min_separation)
            for count in counts
        ]
    best = np.zeros(most + 1)
    for length in lengths:
        before = best.copy()
        for count, value in enumerate(of_length[length], start=1):
            np.maximum(best[count:], before[:-count] + value, out=best[count:])
    return _safe(best[-1])


def observed_square_sensitivity(
    matrix: Matrix, clients: np.ndarray, rounds: np.ndarray, lengths: Sequence[int]
) -> float:
    """Computes the squared sensitivity for those who really took part.

    Args:
        matrix: C of each block.
        clients: int [participations], which client.
        rounds: int [participations], in which round, 0 to sum(lengths) - 1.
        lengths: Rounds of each block, in order.

    Returns:
        That of the client who moves C x the farthest, rounded upwards; 0 if nobody
        took part.

    Raises:
        ValueError: The columns have different lengths, a round is outside the run,
            or a client takes part twice in a round.
    """
    clients, rounds = np.asarray(clients), np.asarray(rounds)
    worst_participation.check_participations(clients, rounds, int(sum(lengths)))
    if not len(clients):
        return 0.0
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    order = np.lexsort((rounds, clients))
    clients, rounds = clients[order], rounds[order].astype(np.int64)
    block = np.searchsorted(starts, rounds, side="right") - 1
    position = rounds - starts[block]
    left = np.asarray(lengths, np.int64)[block] - position
    _, owner = np.unique(clients, return_inverse=True)
    is_first = np.ones(len(clients), bool)
    is_first[1:] = (owner[1:] != owner[:-1]) | (block[1:] != block[:-1])
    twice = np.flatnonzero(~is_first & (np.diff(rounds, prepend=-1) == 0))
    if twice.size:
        raise ValueError(
            f"client {clients[twice[0]]} takes part twice in round {rounds[twice[0]]}"
        )
    # A client in a block, whose participations stand side by side.
    group = np.cumsum(is_first) - 1
    sizes = np.bincount(group)
    values = np.abs(matrix.coefficients(max(lengths)))
    squares = np.zeros(len(sizes))
    paired = sizes[group] <= _MOST_PAIRED
    _add_pairs(squares, values, group[paired], position[paired], left[paired])
    _convolve(squares, values, group[~paired], position[~paired], left[~paired])
    return _safe(np.bincount(owner[is_first], weights=squares).max())


def _add_pairs(squares, values, group, position, left) -> None:
    """Adds the products of all pairs of a group's columns."""
    pairs = [(np.zeros(len(group), np.int64), left, group, 1.0)]
    for apart in range(1, _MOST_PAIRED):
        same = np.flatnonzero(group[apart:] == group[:-apart])
        if not same.size:
            break
        second = same + apart
        lag = position[second] - position[same]
        pairs.append((lag, left[second], group[second], 2.0))
    width = len(values) + 1
    keys = [lag * width + terms for lag, terms, _, _ in pairs]
    wanted, place = np.unique(np.concatenate(keys), return_inverse=True)
    products = _products(values, wanted // width, wanted % width)[place]
    first = 0
    for _, terms, owner, factor in pairs:
        found = products[first : first + len(terms)]
        squares += factor * np.bincount(owner, weights=found, minlength=len(squares))
        first += len(terms)


def _products(values, lags, terms) -> np.ndarray:
    """Returns sum_(u < terms) c_u c_(u + lag), for lags in increasing order."""
    found = np.empty(len(lags))
    edges = np.flatnonzero(np.diff(lags, prepend=-1, append=-1))
    for start, end in itertools.pairwise(edges):
        lag = lags[start]
        sums = np.cumsum(values[: len(values) - lag] * values[lag:])
        found[start:end] = sums[terms[start:end] - 1]
    return found


def _convolve(squares, values, group, position, left) -> None:
    """Adds the squared sums of a group's columns, for groups of many."""
    if not len(group):
        return
    from scipy import fft

    size = fft.next_fast_len(2 * len(values), real=True)
    spectrum = fft.rfft(values, size)
    names, place = np.unique(group, return_inverse=True)
    ends = np.zeros(len(names), np.int64)
    ends[place] = position + left
    at_once = max(1, _CONVOLVED_AT_ONCE // size)
    for first in range(0, len(names), at_once):
        ours = (place >= first) & (place < first + at_once)
        taken = np.zeros((min(at_once, len(names) - first), size))
        taken[place[ours] - first, position[ours]] = 1.0
        sums = np.square(fft.irfft(fft.rfft(taken) * spectrum, size))
        for row, end in enumerate(ends[first : first + at_once]):
            squares[names[first + row]] = sums[row, :end].sum()


def _safe(square: float) -> float:
    return rounding.upwards(fractions.Fraction(float(square)) * (1 + _FLOAT_SLACK))
