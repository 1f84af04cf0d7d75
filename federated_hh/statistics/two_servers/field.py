"""Numbers modulo a Mersenne prime 2^e - 1, in arrays, and exact products in float64.

A matrix product of field elements is one of float64: the data are cut into limbs of 16
bits, the constant matrix into limbs of as many bits as keep every sum of products below
2^53, where float64 holds all integers; BLAS multiplies, and the parts are put together
modulo the prime.
"""

from collections.abc import Iterator

import numpy as np

from federated_hh.options import checks
from federated_hh.randomness import streams

# Odd exponents of Mersenne primes; the small ones let tests enumerate everything.
EXPONENTS = (3, 5, 7, 13, 17, 19, 31, 61)
_LIMB_BITS = 16
LIMBS = 64 // _LIMB_BITS
# Float64 holds all integers up to here.
_EXACT = 2**53
# So many values below 2^61 add up to less than 2^64.
_MOST_PARTS = 7
# Values that are worked on at once.
_TILE = 2**15
_LOW_HALF = np.uint64(2**32 - 1)


class Field:
    """The integers modulo p = 2^e - 1: uint64 arrays of values in [0, p).

    Attributes:
        exponent: e.
        modulus: p.
    """

    def __init__(self, exponent: int = 61):
        """Chooses the prime.

        Args:
            exponent: One of `EXPONENTS`.

        Raises:
            ValueError: If it is not.
        """
        checks.one_of(EXPONENTS, exponent=exponent)
        self.exponent = exponent
        self.modulus = 2**exponent - 1
        self._p, self._e = np.uint64(self.modulus), np.uint64(exponent)
        self._half = (exponent + 1) // 2
        # How often a number of 64 bits is folded until it is below 2p.
        self._folds, largest = 0, 2**64 - 1
        while largest >= 2 * self.modulus:
            largest = self.modulus + (largest >> exponent)
            self._folds += 1

    def reduce(self, values: np.ndarray) -> np.ndarray:
        """Returns any values of uint64 modulo p."""
        for _ in range(self._folds):
            values = (values & self._p) + (values >> self._e)
        # What is below p wraps around to a large number.
        return np.minimum(values, values - self._p)

    def add(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Returns the sum."""
        total = left + right
        return np.minimum(total, total - self._p)

    def subtract(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Returns the difference."""
        found = left - right
        return np.minimum(found, found + self._p)

    def multiply(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Returns the product, element by element."""
        half = np.uint64(self._half)
        mask = np.uint64(2**self._half - 1)
        a1, a0 = left >> half, left & mask
        b1, b0 = right >> half, right & mask
        middle = a1 * b0
        middle += a0 * b1
        a0 *= b0
        a1 *= b1
        # 2^(2 half) is 2^(e + 1), so 2; 2^e is 1.
        a1 <<= np.uint64(1)
        a0 += a1
        rest = np.uint64(self.exponent - self._half)
        a0 += middle >> rest
        middle &= np.uint64(2 ** (self.exponent - self._half) - 1)
        middle <<= half
        a0 += middle
        return self.reduce(a0)

    def times_power_of_two(self, values: np.ndarray, power: int) -> np.ndarray:
        """Returns values times 2^power: their e bits, rotated."""
        power %= self.exponent
        if not power:
            return values
        found = values << np.uint64(power)
        found &= self._p
        found |= values >> np.uint64(self.exponent - power)
        return found

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum of the rows of [rows, columns], at most 2^31 of them."""
        low = np.add.reduce(values & _LOW_HALF, axis=0, dtype=np.uint64)
        high = np.add.reduce(values >> np.uint64(32), axis=0, dtype=np.uint64)
        high = self.times_power_of_two(self.reduce(high), 32)
        return self.add(self.reduce(low), high)

    def random(self, bits: streams.KeyedBits, *shape: int) -> np.ndarray:
        """Returns uniform values that only the holder of the key can tell from chance.

        Args:
            bits: A stream that nothing else is drawn from.
            *shape: The shape of the array.
        """
        drop = np.uint64(64 - self.exponent)
        size = int(np.prod(shape))
        words = bits.encrypted(np.zeros(size, np.int64)).view(np.uint64) >> drop
        again = np.flatnonzero(words == self._p)
        block = 0
        while again.size:
            drawn = bits.words(block, 2 * again.size, "again").view("<u8") >> drop
            words[again] = drawn
            again, block = again[drawn == self._p], block + 1
        return words.reshape(shape)

    def elements(self, values: list[int]) -> np.ndarray:
        """Returns Python's integers modulo p."""
        return np.array([value % self.modulus for value in values], np.uint64)


def limbs(values: np.ndarray) -> np.ndarray:
    """Returns the limbs of 16 bits of values [..., n]: float64 [..., 4n]."""
    return np.ascontiguousarray(values, "<u8").view("<u2").astype(np.float64)


def tiles(rows: int, width: int) -> Iterator[slice]:
    """Yields slices of rows that the processor's cache holds.

    Args:
        rows: All.
        width: Elements of a row.
    """
    size = max(1, _TILE // max(1, width))
    for first in range(0, rows, size):
        yield slice(first, min(rows, first + size))


class Matrix:
    """A constant matrix, ready to be multiplied with data in float64."""

    def __init__(self, field: Field, rows: np.ndarray, largest_sum: int):
        """Cuts the matrix into limbs.

        Args:
            field: Field of the numbers.
            rows: uint64 [m, q].
            largest_sum: The most that the entries of a row of the data, [m], which are
                integers of at least 0, can add up to.

        Raises:
            ValueError: If the product would not be exact.
        """
        self._field, self._columns = field, rows.shape[1]
        self._parts = 1
        while largest_sum << self._width > _EXACT:
            if self._parts == _MOST_PARTS:
                raise ValueError(
                    f"largest_sum is {largest_sum:,}; it has to be at most "
                    f"{_EXACT >> self._width:,}"
                )
            self._parts += 1
        mask = np.uint64(2**self._width - 1)
        self._floats = np.concatenate(
            [
                ((rows >> np.uint64(part * self._width)) & mask).astype(np.float64)
                for part in range(self._parts)
            ],
            axis=1,
        )

    @property
    def _width(self) -> int:
        return -(-self._field.exponent // self._parts)

    @classmethod
    def of_elements(cls, field: Field, matrix: np.ndarray) -> "Matrix":
        """Returns the matrix for data that are `limbs` of field elements.

        Args:
            field: Field of the numbers.
            matrix: uint64 [n, q].
        """
        rows = expanded(field, matrix)
        return cls(field, rows, len(rows) * (2**_LIMB_BITS - 1))

    def product(self, data: np.ndarray) -> np.ndarray:
        """Returns the product with data modulo p.

        Args:
            data: float64 [..., m].

        Returns:
            uint64 [..., q].
        """
        found = (data @ self._floats).astype(np.int64).view(np.uint64)
        columns, total = self._columns, np.zeros(1, np.uint64)
        for part in range(self._parts):
            of_part = found[..., part * columns : (part + 1) * columns]
            if self._field.exponent < 53:
                of_part = self._field.reduce(of_part)
            of_part = self._field.times_power_of_two(of_part, part * self._width)
            total = total + of_part
        return self._field.reduce(total)


def expanded(field: Field, matrix: np.ndarray) -> np.ndarray:
    """Returns a matrix for limbs: each row times 2^0, 2^16, 2^32 and 2^48.

    Args:
        field: Field of the numbers.
        matrix: uint64 [n, q].

    Returns:
        uint64 [4n, q].
    """
    rows = [
        field.times_power_of_two(matrix, limb * _LIMB_BITS) for limb in range(LIMBS)
    ]
    return np.stack(rows, axis=1).reshape(-1, matrix.shape[1])
