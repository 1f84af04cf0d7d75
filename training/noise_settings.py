"""What follows from the options of training: how noise is correlated, and how much."""

from typing import TYPE_CHECKING, Any

from privacy import (
    blt,
    correlated_noise,
    noise_calibration,
    toeplitz,
    tree_aggregation,
)

if TYPE_CHECKING:
    from training.training_options import TrainingOptions


def matrix_of(
    options: "TrainingOptions", restart_rounds: tuple[int, ...]
) -> toeplitz.Matrix | None:
    """Returns what correlates the noise; None where nothing does.

    Args:
        options: Of the run.
        restart_rounds: Rounds (from 0) after which the noise starts anew.
    """
    if options.mechanism not in ("blt", "banded"):
        return None
    rounds = max(tree_aggregation.tree_lengths(options.num_rounds, restart_rounds))
    separation = options.min_separation
    if separation is None:
        separation = max(0, options.timer_hours * 60 // options.round_minutes - 1)
    separation = min(separation, rounds - 1)
    if options.mechanism == "banded":
        bands = separation + 1 if options.bands is None else options.bands
        return toeplitz.SquareRoot(min(bands, rounds))
    return blt.optimal(
        rounds,
        min_separation=separation,
        max_participation=_max_participation(options, rounds, separation),
        num_buffers=options.blt_buffers,
    )


def least_noise_multiplier(
    options: "TrainingOptions",
    restart_rounds: tuple[int, ...],
    matrix: toeplitz.Matrix | None,
) -> float:
    """Returns the least z with which the worst participation is within the epsilon.

    Args:
        options: Of the run; they have an epsilon, and a mechanism with noise.
        restart_rounds: Rounds (from 0) after which the noise starts anew.
        matrix: What correlates it, from `matrix_of`.
    """
    assert options.epsilon is not None
    separation = min(options.min_separation or 0, options.num_rounds - 1)
    limits: dict[str, Any] = {
        "num_rounds": options.num_rounds,
        "min_separation": separation,
        "max_participation": _max_participation(
            options, options.num_rounds, separation
        ),
        "restart_rounds": restart_rounds,
    }
    if matrix is not None:
        rho_of = correlated_noise.worst_zcdp(matrix, **limits)
        return noise_calibration.noise_multiplier_of(
            rho_of, options.epsilon, options.delta
        )
    return noise_calibration.noise_multiplier_for(
        options.epsilon,
        options.delta,
        **limits,
        independent_noise=options.mechanism == "dp_fedavg",
    )


def _max_participation(
    options: "TrainingOptions", num_rounds: int, min_separation: int
) -> int:
    possible = tree_aggregation.largest_participation(num_rounds, min_separation)
    return min(options.max_participation or possible, possible)
