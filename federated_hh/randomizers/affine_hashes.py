"""Hash functions with three-wise independent values, and their fast sums.

A function maps the bits of an item to a cell by a random affine map over the field of
two elements, h(x) = A x + b (Carter and Wegman 1979). Three distinct points are always
affinely independent there, so that their cells are independent and uniform: the family
is three-wise independent, exactly. And because the functions are affine, a table that
is summed along all of them, `sums_over_functions`, takes Walsh-Hadamard transforms in
place of a look-up for each function and item.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from federated_hh.options import checks

_MAX_CELLS = 2**20
_MAX_FUNCTIONS = 2**20


@dataclasses.dataclass(frozen=True)
class AffineHashes:
    """Public hash functions from the items 0 to domain_size - 1 to cells.

    Attributes:
        num_functions: Number of functions, in [1, 2^20].
        num_cells: A power of two in [2, 2^20].
        domain_size: In [2, 2^31 - 1].
        seed: Public seed of the functions, at least 0.

    Raises:
        ValueError: If one is out of its range.
    """

    num_functions: int
    num_cells: int
    domain_size: int
    seed: int = 0

    def __post_init__(self):
        checks.integer(num_functions=self.num_functions, least=1, most=_MAX_FUNCTIONS)
        checks.integer(num_cells=self.num_cells, least=2, most=_MAX_CELLS)
        checks.integer(domain_size=self.domain_size, least=2, most=2**31 - 1)
        checks.integer(seed=self.seed, least=0)
        checks.holds(
            not (self.num_cells & self.num_cells - 1),
            "a power of two",
            num_cells=self.num_cells,
        )

    @property
    def num_bits(self) -> int:
        """The bits of an item."""
        return (self.domain_size - 1).bit_length()

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """The maps: int32 [num_functions, num_bits + 1].

        The columns of A, the lowest bit's first, and then b; each as bits of a cell.
        """
        generator = np.random.default_rng(np.random.SeedSequence(self.seed))
        shape = (self.num_functions, self.num_bits + 1)
        found = generator.integers(0, self.num_cells, shape, np.int32)
        found.flags.writeable = False
        return found

    def cells(self, functions: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Returns the cells of items.

        Args:
            functions: Each item's function: integers, of a shape that fits `items`.
            items: Integers in [0, domain_size).

        Returns:
            int32, of the common shape.
        """
        found = self.columns[functions, -1]
        for bit in range(self.num_bits):
            is_set = (np.asarray(items) >> bit & 1).astype(np.int32)
            found = found ^ (self.columns[functions, bit] * is_set)
        return found

    def cells_in_graph(self, functions: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
        """Returns `cells`, in a TensorFlow graph.

        Args:
            functions: int32, shape [reports].
            items: int32, shape [reports].

        Returns:
            int32, shape [reports].
        """
        columns = tf.gather(tf.constant(self.columns), functions)
        found = columns[:, -1]
        for bit in range(self.num_bits):
            is_set = tf.bitwise.bitwise_and(tf.bitwise.right_shift(items, bit), 1)
            found = tf.bitwise.bitwise_xor(found, columns[:, bit] * is_set)
        return found

    def sums_over_functions(self, tables: np.ndarray) -> np.ndarray:
        """Sums, for each item, the cells that the functions map it to.

        The value at h(x) = A x + b is a sum of characters of x: that of a character v
        of the cells is the transform of the table at v, with the sign of v at b, and
        the character of x is A^T v. So all tables go into one spectrum over the
        items' bits, and one transform gives all sums, exactly: in integers modulo
        2^64. It takes num_functions * num_cells + 2^num_bits numbers, each as many
        times as it has bits.

        Args:
            tables: int64, shape [num_functions, num_cells], a table a function. The
                sums have to be below 2^63 / num_cells.

        Returns:
            int64, shape [domain_size].
        """
        values = walsh_hadamard(np.asarray(tables, np.int64))
        frequencies, signs = self._characters()
        spectrum = np.zeros(1 << self.num_bits, np.int64)
        np.add.at(spectrum, frequencies, values * signs)
        return (walsh_hadamard(spectrum) // self.num_cells)[: self.domain_size]

    def _characters(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the characters of the cells as characters of the items.

        Returns:
            A^T v and the sign of v at b, for each function and v: int32 and int8, shape
            [num_functions, num_cells].
        """
        frequencies = np.zeros((self.num_functions, 1), np.int32)
        signs = np.ones((self.num_functions, 1), np.int8)
        places = np.arange(self.num_bits, dtype=np.int32)
        for bit in range(self.num_cells.bit_length() - 1):
            is_set = self.columns >> bit & 1
            # The row of A, as bits of an item.
            row = (is_set[:, :-1] << places).sum(axis=1, dtype=np.int32)
            sign = (1 - 2 * is_set[:, -1]).astype(np.int8)
            more = frequencies ^ row[:, np.newaxis]
            frequencies = np.concatenate([frequencies, more], axis=1)
            signs = np.concatenate([signs, signs * sign[:, np.newaxis]], axis=1)
        return frequencies, signs


def walsh_hadamard(values: np.ndarray) -> np.ndarray:
    """Returns the Walsh-Hadamard transform along the last axis.

    Args:
        values: int64, shape [..., size], size a power of two.

    Returns:
        int64, of the same shape: at u the sum of values[x] (-1)^(bits that u and x
        have in common), modulo 2^64.
    """
    size = values.shape[-1]
    for _ in range(size.bit_length() - 1):
        even, odd = values[..., 0::2], values[..., 1::2]
        # Each step transforms the lowest bit and makes it the highest.
        values = np.concatenate([even + odd, even - odd], axis=-1)
    return values.copy() if size == 1 else values
