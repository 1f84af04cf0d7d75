"""Tests of the hash functions: by all of them, and against sums one by one."""

import collections
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from federated_hh.randomizers import affine_hashes
from tests.federated_hh.randomizers import affine_hashes_case


class ThreeWiseTest(parameterized.TestCase):
    @parameterized.parameters((3, 2), (2, 4))
    def test_the_cells_of_any_three_items_are_uniform(self, num_bits, num_cells):
        functions = affine_hashes_case.every_function(num_bits, num_cells)
        size = 2**num_bits
        hashes = affine_hashes_case.with_columns(functions, num_cells, size)
        cells = np.array(
            [hashes.cells(np.arange(len(functions)), item) for item in range(size)]
        )
        for three in itertools.combinations(range(size), 3):
            seen = collections.Counter(map(tuple, cells[list(three)].T.tolist()))
            self.assertLen(seen, num_cells**3)
            self.assertLen(set(seen.values()), 1)

    def test_functions_follow_from_the_seed(self):
        one, same, other = (
            affine_hashes.AffineHashes(7, 64, 1000, seed).columns for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one, same)
        self.assertTrue(np.any(one != other))
        self.assertBetween(one.min(), 0, 5)
        self.assertBetween(one.max(), 58, 63)


class SumsTest(parameterized.TestCase):
    @parameterized.parameters(
        (1, 2, 2), (5, 8, 2), (3, 4, 100), (64, 16, 1000), (7, 128, 5), (2, 2, 1025)
    )
    def test_sums_are_those_of_look_ups(self, functions, cells, domain_size):
        hashes = affine_hashes.AffineHashes(functions, cells, domain_size, 3)
        generator = np.random.default_rng(1)
        tables = generator.integers(-(2**40), 2**40, (functions, cells))
        expected = sum(
            tables[j, hashes.cells(j, np.arange(domain_size))] for j in range(functions)
        )
        np.testing.assert_array_equal(hashes.sums_over_functions(tables), expected)

    def test_cells_in_a_graph(self):
        hashes = affine_hashes.AffineHashes(50, 1024, 389_376, 4)
        generator = np.random.default_rng(2)
        functions = generator.integers(0, 50, 300, np.int32)
        items = generator.integers(0, 389_376, 300, np.int32)
        found = hashes.cells_in_graph(tf.constant(functions), tf.constant(items))
        np.testing.assert_array_equal(found.numpy(), hashes.cells(functions, items))

    @parameterized.parameters(1, 2, 8, 64)
    def test_the_transform_is_that_of_its_definition(self, size):
        generator = np.random.default_rng(size)
        values = generator.integers(-100, 100, (3, size))
        signs = np.array(
            [[(-1) ** bin(u & x).count("1") for x in range(size)] for u in range(size)]
        )
        np.testing.assert_array_equal(
            affine_hashes.walsh_hadamard(values), values @ signs
        )


class BadInputTest(parameterized.TestCase):
    @parameterized.parameters(
        ("num_functions", 0),
        ("num_cells", 1),
        ("num_cells", 2**21),
        ("domain_size", 1),
        ("domain_size", 2**31),
        ("seed", -1),
        ("num_functions", 1.5),
    )
    def test_arguments(self, name, value):
        values = {"num_functions": 2, "num_cells": 4, "domain_size": 9, "seed": 0}
        with self.assertRaisesRegex(ValueError, f"{name} .*{value}"):
            affine_hashes.AffineHashes(**values | {name: value})

    def test_cells_are_a_power_of_two(self):
        with self.assertRaisesRegex(ValueError, "num_cells is 24; .* power of two"):
            affine_hashes.AffineHashes(2, 24, 9)


if __name__ == "__main__":
    absltest.main()
