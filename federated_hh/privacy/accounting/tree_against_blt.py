"""The command line's answers on the cost of a noise tree against correlated noise."""

import math
from typing import NamedTuple

from federated_hh.privacy import conversions
from federated_hh.privacy.accounting import arguments as of
from federated_hh.privacy.accounting import paper_tables
from federated_hh.privacy.accounting.arguments import Rows
from federated_hh.privacy.dp_ftrl import (
    correlated_noise,
    planning,
    toeplitz,
    tree_aggregation,
)


def tree_against_blt(
    *,
    delta: of.Delta,
    noise_multiplier: of.NoiseMultiplier | None = None,
    num_rounds: of.NumRounds | None = None,
    min_separation: of.MinSeparation | None = None,
    max_participation: of.MaxParticipation | None = None,
    table: of.Table | None = None,
) -> Rows:
    """Answers the cost of a noise tree's run with correlated noise.

    Returns:
        For one run, a row a mechanism; for the table, a row a run.

    Raises:
        ValueError: An argument is outside its range, or they do not go together.
    """
    if table is not None:
        given = (noise_multiplier, num_rounds, min_separation, max_participation)
        if any(value is not None for value in given):
            raise ValueError(
                "table cannot be combined with other arguments than delta; leave "
                "them out"
            )
        return _xu_rows(delta)
    if noise_multiplier is None or num_rounds is None or min_separation is None:
        raise ValueError(
            "give noise_multiplier, num_rounds and min_separation of the tree, or table"
        )
    tree = _tree(noise_multiplier, num_rounds, min_separation, max_participation)
    bands = min(min_separation + 1, num_rounds)
    of_tree = _of_tree(tree)
    found = {
        "tree": of_tree,
        **{f"BLT, {d} buffers": _of_blt(tree, d) for d in (2, 3, 4)},
        f"banded, {bands} bands": _of_matrix(tree, toeplitz.SquareRoot(bands)),
        "independent": _of_matrix(tree, toeplitz.SquareRoot(1)),
    }
    return [
        {
            "mechanism": name,
            "noise": noise.error,
            "of the tree's": noise.error / of_tree.error,
            "z for it": noise.multiplier,
            "rho at the tree's noise": noise.rho,
            "epsilon": conversions.zcdp_to_epsilon(noise.rho, delta),
        }
        for name, noise in found.items()
    ]


class _Noise(NamedTuple):
    """A mechanism in a tree's place.

    Attributes:
        error: Standard deviation of the noise on the worst prefix sum, in clip norms,
            at the tree's rho.
        multiplier: Noise multiplier (z) at the tree's rho.
        rho: The rho at the tree's noise.
    """

    error: float
    multiplier: float
    rho: float


def _tree(
    multiplier: float, rounds: int, separation: int, most: int | None
) -> tree_aggregation.TreeAggregation:
    return tree_aggregation.TreeAggregation(
        noise_multiplier=multiplier,
        num_rounds=rounds,
        min_separation=separation,
        max_participation=most,
    )


def _of_tree(tree: tree_aggregation.TreeAggregation) -> _Noise:
    error = tree_aggregation.largest_error(tree.tree_lengths)
    return _Noise(tree.noise_multiplier * error, tree.noise_multiplier, tree.rho)


def _of_matrix(
    tree: tree_aggregation.TreeAggregation, matrix: toeplitz.Matrix
) -> _Noise:
    """Returns correlated noise in the tree's place."""
    rounds, most = tree.num_rounds, tree.max_participation
    assert most is not None  # the constructor sets it
    square = toeplitz.square_sensitivity(
        matrix.coefficients(rounds), most, tree.min_separation
    )
    slack = correlated_noise.numeric_slack(matrix, rounds)
    error = toeplitz.largest_error(matrix, rounds)
    left = math.sqrt(2 * tree.rho) - slack
    if left <= 0:
        raise ValueError(
            f"noise_multiplier is {tree.noise_multiplier:g}: float rounding reveals "
            "more than the tree spends, so no other noise costs as little. It has to "
            "be smaller"
        )
    multiplier = math.sqrt(square) / left
    rho = correlated_noise.zcdp(square, _of_tree(tree).error / error, slack)
    return _Noise(multiplier * error, multiplier, rho)


def _of_blt(tree: tree_aggregation.TreeAggregation, buffers: int) -> _Noise:
    """Returns the best BLT in the tree's place."""
    plan = planning.TrainingPlan(
        mechanism="blt",
        num_rounds=tree.num_rounds,
        min_separation=tree.min_separation,
        max_participation=tree.max_participation,
        num_buffers=buffers,
    )
    assert plan.matrix is not None  # the constructor sets it
    return _of_matrix(tree, plan.matrix)


def _xu_rows(delta: float) -> Rows:
    rows = []
    multiplier = paper_tables.XU_NOISE_MULTIPLIER
    for name, rounds, separation, most, _ in paper_tables.xu_models():
        tree = _tree(multiplier, rounds, separation, most)
        found = _of_blt(tree, 2)
        rows.append(
            {
                "run": name,
                "rounds": rounds,
                "MinS": separation,
                "MaxP": most,
                "tree: z": multiplier,
                "rho": tree.rho,
                "epsilon": conversions.zcdp_to_epsilon(tree.rho, delta),
                "BLT, same noise: rho": found.rho,
                "its epsilon": conversions.zcdp_to_epsilon(found.rho, delta),
                "BLT, same rho: z": found.multiplier,
                "noise of the tree's": found.error / _of_tree(tree).error,
            }
        )
    return rows
