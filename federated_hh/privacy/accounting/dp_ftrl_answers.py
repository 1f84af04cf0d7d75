"""The command line's answers on training: a noise tree, BLT, and both compared."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from federated_hh.options import checks
from federated_hh.privacy import conversions, neighbours
from federated_hh.privacy.accounting import arguments as of
from federated_hh.privacy.accounting import paper_tables
from federated_hh.privacy.accounting.arguments import Rows, row
from federated_hh.privacy.dp_ftrl import blt as blt_lib
from federated_hh.privacy.dp_ftrl import (
    correlated_noise,
    noise_calibration,
    toeplitz,
    tree_aggregation,
)

_UNIT = neighbours.Adjacency.ZERO_OUT.value
_REPLACED = neighbours.Adjacency.REPLACE_CLIENT.value
# The search for a matrix looks at all of them many hundred times.
_MOST_ROUNDS = 100_000
# Restarts beyond these are as many trees.
_MOST_TREES = 10**6
_SHOWN_TREES = 20


def dp_ftrl(
    *,
    noise_multiplier: of.NoiseMultiplier,
    num_rounds: of.NumRounds,
    min_separation: of.MinSeparation,
    delta: of.Delta,
    max_participation: of.MaxParticipation | None = None,
    restart_first: of.RestartFirst | None = None,
    restart_period: of.RestartPeriod | None = None,
    count_stddev: of.CountStddev | None = None,
    group_size: of.GroupSize = 1,
) -> Rows:
    """Answers for a DP-FTRL run: S2, zCDP, epsilons by all conversions, and z_delta.

    Raises:
        ValueError: An argument is outside its range.
    """
    checks.integer(group_size=group_size, least=1)
    run = tree_aggregation.TreeAggregation(
        noise_multiplier=noise_multiplier,
        num_rounds=num_rounds,
        min_separation=min_separation,
        max_participation=max_participation,
        restart_rounds=_restart_rounds(num_rounds, restart_first, restart_period),
    )
    rows = [
        row("max participation (MaxP)", run.max_participation, _UNIT),
        row("rounds of each tree", _abridged(run.tree_lengths), ""),
        row("squared sensitivity (S2)", run.square_sum, "exact worst case"),
        *_zcdp(run.rho, delta, _UNIT),
    ]
    if group_size > 1:
        rho = conversions.group_zcdp(run.rho, group_size)
        rows += _best_zcdp(rho, delta, f"user with {group_size} devices")
    if count_stddev is not None:
        split = noise_calibration.delta_noise_multiplier(noise_multiplier, count_stddev)
        rows.append(
            row("noise multiplier of the deltas", split, "Xu et al. 2023, Theorem 1")
        )
    return rows


def blt(
    *,
    noise_multiplier: of.NoiseMultiplier,
    num_rounds: of.NumRounds,
    min_separation: of.MinSeparation,
    delta: of.Delta,
    max_participation: of.MaxParticipation | None = None,
    restart_first: of.RestartFirst | None = None,
    restart_period: of.RestartPeriod | None = None,
    buffers: of.Buffers | None = None,
    forgotten: of.Forgotten | None = None,
    weights: of.Weights | None = None,
) -> Rows:
    """Answers for a run with buffered linear Toeplitz noise.

    Returns:
        The matrix, the squared sensitivity, zCDP and the epsilons by all conversions,
        and the noise on the worst prefix sum.

    Raises:
        ValueError: An argument is outside its range.
    """
    restarts = _restart_rounds(num_rounds, restart_first, restart_period)
    lengths = tree_aggregation.tree_lengths(num_rounds, restarts)
    most = tree_aggregation.largest_participation(num_rounds, min_separation)
    if max_participation is not None:
        why = "what MinS allows"
        most = checks.integer(1, most, why, max_participation=max_participation)
    if forgotten is None and weights is None:
        matrix = _best_matrix(max(lengths), min_separation, most, buffers)
    elif buffers is not None or forgotten is None or weights is None:
        raise ValueError("give forgotten and weights, or buffers, or none of them")
    else:
        matrix = blt_lib.Blt(
            _numbers("forgotten", forgotten), _numbers("weights", weights)
        )
    square = toeplitz.square_sensitivity_of_blocks(
        matrix, lengths, most, min_separation
    )
    slack = correlated_noise.numeric_slack(matrix, num_rounds)
    rho = correlated_noise.zcdp(square, noise_multiplier, slack)
    squares = [toeplitz.largest_error(matrix, length) ** 2 for length in lengths]
    noise = noise_multiplier * math.sqrt(sum(squares))
    worst = "exact worst case" if len(lengths) == 1 else "bound over the blocks"
    return [
        row("max participation (MaxP)", most, _UNIT),
        row("rounds of each block", _abridged(lengths), ""),
        row("forgotten a round", _listed(matrix.forgotten), "1 - q of each buffer"),
        row("weights", _listed(matrix.weights), "w of each buffer"),
        row("squared sensitivity", square, worst),
        *_zcdp(rho, delta, _UNIT),
        *_best_zcdp(4 * rho, delta, _REPLACED),
        row("noise on the worst prefix sum", noise, "in clip norms"),
    ]


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
            raise ValueError("table goes with delta alone")
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
            f"noise_multiplier is {tree.noise_multiplier:g}: what rounding of floats "
            "can tell is more than the tree spends, so no other noise costs as little; "
            "it has to be smaller"
        )
    multiplier = math.sqrt(square) / left
    rho = correlated_noise.zcdp(square, _of_tree(tree).error / error, slack)
    return _Noise(multiplier * error, multiplier, rho)


def _of_blt(tree: tree_aggregation.TreeAggregation, buffers: int) -> _Noise:
    """Returns the best BLT in the tree's place."""
    rounds, most = tree.num_rounds, tree.max_participation
    return _of_matrix(tree, _best_matrix(rounds, tree.min_separation, most, buffers))


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


def _best_matrix(
    rounds: int, separation: int, most: int | None, buffers: int | None
) -> blt_lib.Blt:
    return blt_lib.optimal(
        checks.integer(num_rounds=rounds, least=1, most=_MOST_ROUNDS),
        min_separation=separation,
        max_participation=most,
        num_buffers=2 if buffers is None else buffers,
    )


def _zcdp(rho: float, delta: float, unit: str) -> Rows:
    """Returns rho, and epsilon by each conversion."""
    name = f"epsilon at delta = {delta:g}"
    return [row("zCDP (rho)", rho, unit)] + [
        row(name, conversions.zcdp_to_epsilon(rho, delta, by), f"{unit}; {by.value}")
        for by in conversions.ZcdpConversion
    ]


def _best_zcdp(rho: float, delta: float, unit: str) -> Rows:
    """Returns rho, and the smallest epsilon."""
    epsilon = conversions.zcdp_to_epsilon(rho, delta)
    name = f"epsilon at delta = {delta:g}"
    return [row("zCDP (rho)", rho, unit), row(name, epsilon, unit)]


def _restart_rounds(
    num_rounds: int, first: int | None, period: int | None
) -> tuple[int, ...]:
    """Returns the restarts that flags ask for; none where `first` is None."""
    if first is None:
        if period is not None:
            raise ValueError("restart_period needs restart_first")
        return ()
    period = num_rounds if period is None else period
    if period > 0 and num_rounds / period > _MOST_TREES:
        raise ValueError(
            f"restart_period is {period}; it has to be at least "
            f"{-(-num_rounds // _MOST_TREES)} for num_rounds = {num_rounds}: at most "
            f"{_MOST_TREES} trees"
        )
    return tree_aggregation.restart_schedule(num_rounds, first, period)


def _abridged(lengths: Sequence[int]) -> str:
    """Returns the first of many lengths, as text."""
    shown = ", ".join(map(str, lengths[:_SHOWN_TREES]))
    more = len(lengths) - _SHOWN_TREES
    return f"{shown}, and {more} more" if more > 0 else shown


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{name} is {text!r}; it has to be numbers with commas between them"
        ) from None


def _listed(values: Sequence[float]) -> str:
    return ",".join(f"{value!r}" for value in values)
