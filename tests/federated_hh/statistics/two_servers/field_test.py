"""Tests of the arithmetic modulo 2^e - 1 against Python's integers."""

import numpy as np
from absl.testing import absltest, parameterized

from federated_hh.randomness import streams
from federated_hh.statistics.two_servers import field as field_lib


def _values(field, size, seed):
    """Returns random values, the edges of the field first."""
    generator = np.random.default_rng(seed)
    found = generator.integers(0, field.modulus, size, dtype=np.uint64)
    edges = [0, 1, field.modulus - 1, field.modulus - 2, field.modulus // 2]
    found[: len(edges)] = edges
    return found


class FieldTest(parameterized.TestCase):
    @parameterized.parameters(*field_lib.EXPONENTS)
    def test_operations(self, exponent):
        field = field_lib.Field(exponent)
        p = field.modulus
        some = _values(field, 60, 1)
        left, right = (part.reshape(-1) for part in np.meshgrid(some, some))
        pairs = list(zip(left.tolist(), right.tolist(), strict=True))
        for found, expected in (
            (field.add(left, right), [(a + b) % p for a, b in pairs]),
            (field.subtract(left, right), [(a - b) % p for a, b in pairs]),
            (field.multiply(left, right), [a * b % p for a, b in pairs]),
        ):
            self.assertEqual(found.tolist(), expected)
        for power in (0, 1, 16, 30, 31, 32, 48, 60, 61, 100):
            found = field.times_power_of_two(some, power)
            expected = [value * 2**power % p for value in some.tolist()]
            self.assertEqual(found.tolist(), expected)

    @parameterized.parameters(*field_lib.EXPONENTS)
    def test_any_word_is_reduced(self, exponent):
        field = field_lib.Field(exponent)
        p = field.modulus
        words = [0, 1, p - 1, p, p + 1, 2 * p - 1, 2 * p, 2 * p + 1, 3 * p]
        words += [2**64 - 1, 2**64 - 2, 2**63, 2**62 + 5]
        words += [(2**64 // p - 1) * p + i for i in (-1, 0, 1)]
        words = [word for word in words if word < 2**64]
        found = field.reduce(np.array(words, np.uint64))
        self.assertEqual(found.tolist(), [word % p for word in words])

    @parameterized.parameters(3, 31, 61)
    def test_sums(self, exponent):
        field = field_lib.Field(exponent)
        rows = _values(field, 3000, 2).reshape(1000, 3)
        rows[:, 0] = field.modulus - 1
        expected = [sum(column) % field.modulus for column in rows.T.tolist()]
        self.assertEqual(field.sum(rows).tolist(), expected)

    def test_other_exponents_are_no_fields(self):
        for exponent in (2, 4, 11, 62, 127):
            with self.assertRaisesRegex(ValueError, f"exponent is {exponent}"):
                field_lib.Field(exponent)

    def test_random_values_are_uniform_and_a_function_of_the_stream(self):
        field = field_lib.Field(3)
        bits = streams.KeyedBits(5, "values")
        drawn = field.random(bits, 7000, 3)
        self.assertEqual(drawn.shape, (7000, 3))
        counts = np.bincount(drawn.reshape(-1).astype(int), minlength=8)
        self.assertEqual(counts[7], 0)
        # Five standard deviations of a count.
        self.assertLess(np.abs(counts[:7] - 3000).max(), 5 * np.sqrt(3000))
        np.testing.assert_array_equal(drawn, field.random(bits, 7000, 3))
        other = field.random(streams.KeyedBits(5, "others"), 7000, 3)
        self.assertLess((drawn == other).mean(), 0.2)
        large = field_lib.Field().random(bits, 1000)
        self.assertGreater(int(large.max()), 2**60)
        self.assertLess(int(large.max()), 2**61 - 1)


class MatrixTest(parameterized.TestCase):
    @parameterized.product(
        exponent=(3, 13, 31, 61), rows=(1, 18, 129, 700), columns=(1, 5)
    )
    def test_products_are_exact(self, exponent, rows, columns):
        field = field_lib.Field(exponent)
        generator = np.random.default_rng(rows)
        for is_extreme in (False, True):
            data = _values(field, max(5, 4 * rows), 3)[: 4 * rows].reshape(4, rows)
            matrix = _values(field, 7 * rows * columns, 4)[: rows * columns]
            matrix = generator.permutation(matrix).reshape(rows, columns)
            if is_extreme:
                # All limbs but the highest as large as they can be.
                data[...] = field.modulus - 1
                matrix[...] = field.modulus - 1
            found = field_lib.Matrix.of_elements(field, matrix).product(
                field_lib.limbs(data)
            )
            expected = data.astype(object) @ matrix.astype(object) % field.modulus
            self.assertEqual(found.tolist(), expected.tolist())

    @parameterized.parameters(2**10, 2**20, 2**26, 2**32, 2**40, 2**44)
    def test_products_are_exact_up_to_the_largest_sum(self, largest_sum):
        field = field_lib.Field()
        column = np.array([[2**61 - 2], [2**60 + 2**31 - 1]], np.uint64)
        found = field_lib.Matrix(field, column, largest_sum)
        for first in (0, 1, largest_sum // 3, largest_sum - 1, largest_sum):
            data = [first, largest_sum - first]
            expected = sum(
                a * b for a, b in zip(data, column[:, 0].tolist(), strict=True)
            )
            product = found.product(np.array([data], np.float64))
            self.assertEqual(product.tolist(), [[expected % (2**61 - 1)]])

    def test_larger_sums_are_refused(self):
        rows = np.ones((1, 1), np.uint64)
        with self.assertRaisesRegex(ValueError, "largest_sum is .* 17,592,186,044,416"):
            field_lib.Matrix(field_lib.Field(), rows, 2**44 + 1)

    def test_tiles_are_all_rows(self):
        for rows, width in ((0, 3), (1, 10**9), (1000, 288), (70000, 1)):
            found = [np.arange(rows)[tile] for tile in field_lib.tiles(rows, width)]
            self.assertEqual(np.concatenate([[], *found]).tolist(), [*range(rows)])


if __name__ == "__main__":
    absltest.main()
