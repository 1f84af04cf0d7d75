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


def decomposition_holds(
    matrix: np.ndarray, local_epsilon: float, pair: tuple[int, int] | None = None
) -> bool:
    """Tells whether the 2022 law of clones is proved for a finite randomizer.

    With Q_0 and Q_1 the parts of the victim's two reports, `R(x_0) = (e^epsilon_0 Q_0 +
    Q_1) / (e^epsilon_0 + 1)` and the like for x_1, the proof needs every input's report
    to hold both parts: `R(x) >= (Q_0 + Q_1) / (e^epsilon_0 + 1)`. As Q_0 + Q_1 is
    R(x_0) + R(x_1), that is: the two largest probabilities of an output over the
    inputs add up to at most e^epsilon_0 + 1 times the smallest.

    Args:
        matrix: float [inputs, outputs], the law of the report of each input.
        local_epsilon: Local epsilon of the randomizer.
        pair: The two inputs (x_0, x_1) that are exchanged; None for all pairs.

    Returns:
        Whether the condition holds for all outputs, up to rounding.
    """
    ordered = np.sort(np.asarray(matrix, dtype=np.float64), axis=0)
    two_largest = ordered[-1] + ordered[-2]
    if pair is not None:
        two_largest = matrix[pair[0]] + matrix[pair[1]]
    allowed = (math.exp(local_epsilon) + 1) * ordered[0]
    return bool(np.all(two_largest <= allowed * (1 + 1e-9)))
