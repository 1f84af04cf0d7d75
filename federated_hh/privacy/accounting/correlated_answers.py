"""The command line's answers on correlated noise: alone, and in a tree's place."""

import dataclasses
import math
from typing import Any

from federated_hh.options import checks
from federated_hh.privacy import neighbours
from federated_hh.privacy.accounting import answer_rows
from federated_hh.privacy.accounting.answer_rows import Rows, row

_UNIT = neighbours.Adjacency.ZERO_OUT.value
_REPLACED = neighbours.Adjacency.REPLACE_CLIENT.value
# The search for a matrix looks at all of them many hundred times.
_MOST_ROUNDS = 100_000


def blt(
    *,
    noise_multiplier: float,
    num_rounds: int,
    min_separation: int,
    delta: float,
    max_participation: int | None = None,
    restart_first: int | None = None,
    restart_period: int | None = None,
    buffers: int | None = None,
    forgotten: str | None = None,
    weights: str | None = None,
) -> Rows:
    """Answers for a run with buffered linear Toeplitz noise.

    Args:
        noise_multiplier: z, of the accounting.
        num_rounds: T.
        min_separation: MinS, rounds strictly between.
        delta: In (0, 1).
        max_participation: MaxP; None for what MinS allows.
        restart_first: First round after which the noise starts anew; None for none.
        restart_period: Rounds between restarts; None for only one.
        buffers: d of the best matrix; None for 2.
        forgotten: Instead: of each buffer, comma-separated (see `blt.Blt`).
        weights: With `forgotten`: likewise.

    Returns:
        The matrix, the squared sensitivity, zCDP and the epsilons by all conversions,
        and the noise on the worst prefix sum.

    Raises:
        ValueError: An argument is outside its range.
    """
    from federated_hh.privacy.dp_ftrl import (
        correlated_noise,
        toeplitz,
        tree_aggregation,
    )

    restarts = answer_rows.restart_rounds(num_rounds, restart_first, restart_period)
    lengths = tree_aggregation.tree_lengths(num_rounds, restarts)
    most = _participation(num_rounds, min_separation, max_participation)
    matrix = _matrix(max(lengths), min_separation, most, buffers, forgotten, weights)
    square = toeplitz.square_sensitivity_of_blocks(
        matrix, lengths, most, min_separation
    )
    slack = correlated_noise.numeric_slack(matrix, num_rounds)
    rho = correlated_noise.zcdp(square, noise_multiplier, slack)
    squares = [toeplitz.largest_error(matrix, length) ** 2 for length in lengths]
    rows = [
        row("max participation (MaxP)", most, _UNIT),
        row("rounds of each block", answer_rows.abridged(lengths), ""),
        row("forgotten a round", _listed(matrix.forgotten), "1 - q of each buffer"),
        row("weights", _listed(matrix.weights), "w of each buffer"),
        row(
            "squared sensitivity",
            square,
            "exact worst case" if len(lengths) == 1 else "bound over the blocks",
        ),
        *answer_rows.zcdp(rho, delta, _UNIT),
        *answer_rows.best_zcdp(4 * rho, delta, _REPLACED),
    ]
    noise = noise_multiplier * math.sqrt(sum(squares))
    rows.append(row("noise on the worst prefix sum", noise, "in clip norms"))
    return rows


def tree_against_blt(
    *,
    delta: float,
    noise_multiplier: float | None = None,
    num_rounds: int | None = None,
    min_separation: int | None = None,
    max_participation: int | None = None,
    table: str | None = None,
) -> Rows:
    """Answers what the run of a noise tree would cost with correlated noise.

    Args:
        delta: In (0, 1).
        noise_multiplier: z of the tree.
        num_rounds: T.
        min_separation: MinS, rounds strictly between.
        max_participation: MaxP; None for what MinS allows.
        table: Instead of the last four: "xu_2023", all runs of Xu et al. 2023.

    Returns:
        For one run, a row a mechanism; for the table, a row a run.

    Raises:
        ValueError: An argument is outside its range, or they do not go together.
    """
    if table is not None:
        if any(
            value is not None
            for value in (
                noise_multiplier,
                num_rounds,
                min_separation,
                max_participation,
            )
        ):
            raise ValueError("table goes with delta alone")
        return _xu_rows(delta)
    if noise_multiplier is None or num_rounds is None or min_separation is None:
        raise ValueError(
            "give noise_multiplier, num_rounds and min_separation of the tree, or table"
        )
    run = _Run.of(noise_multiplier, num_rounds, min_separation, max_participation)
    return [
        {
            "mechanism": name,
            "noise": found.noise,
            "of the tree's": found.noise / run.tree_noise,
            "z for it": found.multiplier,
            "rho at the tree's noise": found.rho,
            "epsilon": run.epsilon(found.rho, delta),
        }
        for name, found in run.mechanisms()
    ]


@dataclasses.dataclass(frozen=True)
class _Found:
    """A mechanism in a tree's place.

    Attributes:
        noise: The standard deviation of the noise on the worst prefix sum, in clip
            norms, at the tree's rho.
        multiplier: z with which it has that rho.
        rho: At the tree's noise.
    """

    noise: float
    multiplier: float
    rho: float


@dataclasses.dataclass(frozen=True)
class _Run:
    """A run of DP-FTRL with one noise tree: a `TreeAggregation`."""

    tree: Any

    @classmethod
    def of(
        cls,
        noise_multiplier: float,
        num_rounds: int,
        min_separation: int,
        max_participation: int | None,
    ) -> "_Run":
        from federated_hh.privacy.dp_ftrl import tree_aggregation

        return cls(
            tree_aggregation.TreeAggregation(
                noise_multiplier=noise_multiplier,
                num_rounds=num_rounds,
                min_separation=min_separation,
                max_participation=max_participation,
            )
        )

    @property
    def tree_noise(self) -> float:
        """The standard deviation on the tree's worst prefix sum, in clip norms."""
        from federated_hh.privacy.dp_ftrl import tree_aggregation

        error = tree_aggregation.largest_error(self.tree.tree_lengths)
        return self.tree.noise_multiplier * error

    def with_matrix(self, matrix) -> _Found:
        """Returns what correlated noise does in the tree's place."""
        from federated_hh.privacy.dp_ftrl import correlated_noise, toeplitz

        rounds = self.tree.num_rounds
        square = toeplitz.square_sensitivity(
            matrix.coefficients(rounds),
            self.tree.max_participation,
            self.tree.min_separation,
        )
        slack = correlated_noise.numeric_slack(matrix, rounds)
        error = toeplitz.largest_error(matrix, rounds)
        left = math.sqrt(2 * self.tree.rho) - slack
        if left <= 0:
            raise ValueError(
                f"noise_multiplier is {self.tree.noise_multiplier:g}: what rounding of "
                "floats can tell is more than the tree spends, so no other noise costs "
                "as little; it has to be smaller"
            )
        multiplier = math.sqrt(square) / left
        return _Found(
            multiplier * error,
            multiplier,
            correlated_noise.zcdp(square, self.tree_noise / error, slack),
        )

    def best(self, buffers: int) -> _Found:
        """Returns what BLT does in the tree's place."""
        return self.with_matrix(
            _matrix(
                self.tree.num_rounds,
                self.tree.min_separation,
                self.tree.max_participation,
                buffers,
            )
        )

    def mechanisms(self):
        """Returns the names of mechanisms, and what they do."""
        from federated_hh.privacy.dp_ftrl import toeplitz

        tree = self.tree
        bands = min(tree.min_separation + 1, tree.num_rounds)
        return [
            ("tree", _Found(self.tree_noise, tree.noise_multiplier, tree.rho)),
            *((f"BLT, {d} buffers", self.best(d)) for d in (2, 3, 4)),
            (f"banded, {bands} bands", self.with_matrix(toeplitz.SquareRoot(bands))),
            ("independent", self.with_matrix(toeplitz.SquareRoot(1))),
        ]

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        """Returns epsilon for zero-out of a device."""
        from federated_hh.privacy import conversions

        return conversions.zcdp_to_epsilon(rho, delta)


def _xu_rows(delta: float) -> Rows:
    from federated_hh.privacy.accounting import paper_tables

    rows = []
    for name, rounds, separation, most, _ in paper_tables.xu_models():
        multiplier = paper_tables.XU_NOISE_MULTIPLIER
        run = _Run.of(multiplier, rounds, separation, most)
        found = run.best(2)
        rows.append(
            {
                "run": name,
                "rounds": rounds,
                "MinS": separation,
                "MaxP": most,
                "tree: z": multiplier,
                "rho": run.tree.rho,
                "epsilon": run.epsilon(run.tree.rho, delta),
                "BLT, same noise: rho": found.rho,
                "its epsilon": run.epsilon(found.rho, delta),
                "BLT, same rho: z": found.multiplier,
                "noise of the tree's": found.noise / run.tree_noise,
            }
        )
    return rows


def _participation(
    num_rounds: int, min_separation: int, max_participation: int | None
) -> int:
    from federated_hh.privacy.dp_ftrl import tree_aggregation

    possible = tree_aggregation.largest_participation(num_rounds, min_separation)
    if max_participation is None:
        return possible
    return checks.integer(
        max_participation=max_participation,
        least=1,
        most=possible,
        why="what MinS allows",
    )


def _matrix(rounds, min_separation, most, buffers, forgotten=None, weights=None):
    """Returns the matrix that is given, or the best one."""
    from federated_hh.privacy.dp_ftrl import blt as lib

    if forgotten is None and weights is None:
        return lib.optimal(
            checks.integer(num_rounds=rounds, least=1, most=_MOST_ROUNDS),
            min_separation=min_separation,
            max_participation=most,
            num_buffers=2 if buffers is None else buffers,
        )
    if buffers is not None or forgotten is None or weights is None:
        raise ValueError("give forgotten and weights, or buffers, or none of them")
    return lib.Blt(_numbers("forgotten", forgotten), _numbers("weights", weights))


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{name} is {text!r}; it has to be numbers with commas between them"
        ) from None


def _listed(values) -> str:
    return ",".join(f"{value!r}" for value in values)
