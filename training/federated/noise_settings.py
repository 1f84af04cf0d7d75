"""What follows from the options of training: how noise is correlated, and how much."""

import math
from typing import TYPE_CHECKING, Any

from federated_hh.options.fields import OptionError
from federated_hh.privacy import rounding
from federated_hh.privacy.dp_ftrl import (
    blt,
    correlated_noise,
    noise_calibration,
    rotated_updates,
    toeplitz,
    tree_aggregation,
)

if TYPE_CHECKING:
    from training.federated.options import TrainingOptions


def matrix_of(
    options: "TrainingOptions", restart_rounds: tuple[int, ...]
) -> toeplitz.Matrix | None:
    """Returns what correlates the noise; None where nothing does.

    Args:
        options: The options of the run.
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
        num_buffers=options.num_blt_buffers,
    )


def rotated_update(
    options: "TrainingOptions", num_values: int | None
) -> rotated_updates.RotatedUpdate | None:
    """Returns how updates are encoded for secure aggregation; None where they are not.

    Args:
        options: The options of the run.
        num_values: The model's parameters.

    Raises:
        ValueError: If they are not given, or sums would not fit into their integers.
    """
    if options.update_encoding != "rotated":
        return None
    if num_values is None:
        raise ValueError(
            "num_values is None; it has to be the model's number of parameters, for "
            "which updates are rotated."
        )
    assert options.clip_norm is not None  # the options have checked it
    try:
        return rotated_updates.RotatedUpdate.of(
            clip_norm=options.clip_norm,
            num_values=num_values,
            num_clients=options.cohort_size,
            scale=options.rounding_scale,
        )
    except ValueError as error:
        raise OptionError(
            options, "{rounding_scale=} does not fit: {why}", why=error
        ) from error


def least_noise_multiplier(
    options: "TrainingOptions",
    restart_rounds: tuple[int, ...],
    matrix: toeplitz.Matrix | None,
    rotated: rotated_updates.RotatedUpdate | None,
) -> float:
    """Returns the least z with which the worst participation is within the epsilon.

    Args:
        options: The options of the run; they have an epsilon, and a mechanism with
            noise.
        restart_rounds: Rounds (from 0) after which the noise starts anew.
        matrix: What correlates it, from `matrix_of`.
        rotated: What makes updates longer, from `rotated_update`.
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
    factor = 1.0 if rotated is None else rounding.upwards(rotated.rho_factor)
    if matrix is not None:
        rho_of = correlated_noise.worst_zcdp(matrix, **limits)
        return noise_calibration.noise_multiplier_of(
            lambda z: factor * rho_of(z), options.epsilon, options.delta
        )
    found = noise_calibration.noise_multiplier_for(
        options.epsilon,
        options.delta,
        **limits,
        independent_noise=options.mechanism == "dp_fedavg",
    )
    # Without correlation rho goes with 1 / z^2.
    return found * math.sqrt(factor) if factor > 1 else found


def _max_participation(
    options: "TrainingOptions", num_rounds: int, min_separation: int
) -> int:
    possible = tree_aggregation.largest_participation(num_rounds, min_separation)
    return min(options.max_participation or possible, possible)
