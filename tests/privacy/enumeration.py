"""Exact laws of small shuffled or summed data sets: the oracle of the tests."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

Law = dict[tuple[int, ...], float]


def histogram_law(matrix: np.ndarray, inputs: Sequence[int]) -> Law:
    """Enumerates the law of the histogram of independent reports.

    Args:
        matrix: float [inputs, outputs], the law of the report of each input.
        inputs: The input of each report.

    Returns:
        Histogram of the outputs to probability.
    """
    return _sum_law(matrix, inputs, np.eye(matrix.shape[1], dtype=int))


def sum_law(matrix: np.ndarray, inputs: Sequence[int], vectors: np.ndarray) -> Law:
    """Enumerates the law of the sum of independent vector reports.

    Args:
        matrix: float [inputs, outputs], the law of the report of each input.
        inputs: The input of each report.
        vectors: int [outputs, coordinates], the vector that each output is.

    Returns:
        Sum to probability.
    """
    return _sum_law(matrix, inputs, vectors)


def delta(epsilon: float, first: Law, second: Law) -> float:
    """Computes the hockey-stick divergence of two laws."""
    factor = math.exp(epsilon)
    return math.fsum(
        max(0.0, chance - factor * second.get(outcome, 0.0))
        for outcome, chance in first.items()
    )


def subsets(domain_size: int, size: int) -> list[tuple[int, ...]]:
    """Lists the subsets that a Subset Selection report can be."""
    return list(itertools.combinations(range(domain_size), size))


def subset_selection(local_epsilon: float, domain_size: int, size: int) -> np.ndarray:
    """The law of Subset Selection, from its definition (Sun et al. 2024, Alg. 1).

    Returns:
        float [domain_size, subsets]: the probability of each of `subsets`.
    """
    include = (
        size
        * math.exp(local_epsilon)
        / (size * math.exp(local_epsilon) + domain_size - size)
    )
    with_it = include / math.comb(domain_size - 1, size - 1)
    without = (1 - include) / math.comb(domain_size - 1, size)
    return np.array(
        [
            [
                with_it if item in subset else without
                for subset in subsets(domain_size, size)
            ]
            for item in range(domain_size)
        ]
    )


def one_hot(local_epsilon: float, domain_size: int, symmetric: bool):
    """The law of the one-hot encodings (McMillan et al. 2022, Algorithms 1 and 3).

    Returns:
        (matrix, vectors): float [items, 2^items] and int [2^items, items].
    """
    flip = 1 / (1 + math.exp(local_epsilon))
    keep = 1 - flip if symmetric else 0.5
    vectors = np.array(list(itertools.product((0, 1), repeat=domain_size)))
    ones = np.full((domain_size, domain_size), flip)
    np.fill_diagonal(ones, keep)
    matrix = np.prod(
        np.where(vectors[None] == 1, ones[:, None, :], 1 - ones[:, None, :]), axis=2
    )
    return matrix, vectors


def _sum_law(matrix: np.ndarray, inputs: Sequence[int], vectors: np.ndarray) -> Law:
    law: Law = {(0,) * vectors.shape[1]: 1.0}
    for item in inputs:
        grown: Law = {}
        for total, chance in law.items():
            for output, probability in enumerate(matrix[item]):
                if probability:
                    key = tuple(np.add(total, vectors[output]).tolist())
                    grown[key] = grown.get(key, 0.0) + chance * probability
        law = grown
    return law
