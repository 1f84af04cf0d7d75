"""A training run's plan, from its settings: its mechanism, encoding and sampler."""

import math

from federated_hh.options.fields import OptionError
from federated_hh.privacy import plan as plan_lib
from federated_hh.privacy import rounding
from federated_hh.privacy.dp_ftrl import (
    model_updates,
    rotated_updates,
    toeplitz,
    tree_aggregation,
    update_noise,
)
from federated_hh.privacy.dp_ftrl import plan as training_plan
from federated_hh.rounds import timers
from training.federated import mechanisms
from training.federated import options as options_lib


def sampler(options: options_lib.TrainingOptions, num_clients: int) -> timers.Timers:
    """Returns the sampler of a run's cohorts.

    Args:
        options: The run's settings.
        num_clients: Number of training clients.

    Raises:
        ValueError: If the settings do not fit the number of clients.
    """
    try:
        return timers.Timers(
            num_clients=num_clients,
            cohort_size=options.cohort_size,
            num_rounds=options.num_rounds,
            over_selection=options.over_selection,
            drop_out=options.drop_out,
            timer_hours=options.timer_hours,
            round_minutes=options.round_minutes,
            min_separation=options.min_separation,
            max_participation=options.max_participation,
            availability=timers.DiurnalAvailability() if options.diurnal else None,
        )
    except ValueError as error:
        raise ValueError(
            f"{str(error).removesuffix('.')}; {options.num_held_out_clients:,} "
            "clients are held out (--num_held_out_clients)."
        ) from error


def contribution(
    options: options_lib.TrainingOptions, num_values: int | None = None
) -> rotated_updates.RotatedUpdate | None:
    """Returns the encoding for secure aggregation; None for exact integers.

    Args:
        options: The run's settings.
        num_values: The model's parameters; needed where updates are rotated.

    Raises:
        ValueError: If it is missing, or sums would not fit into their integers.
    """
    if options.update_encoding != "rotated":
        return None
    if num_values is None:
        raise ValueError(
            "num_values is None; rotated updates need the model's number of parameters."
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


def mechanism(
    options: options_lib.TrainingOptions, num_values: int | None = None
) -> model_updates.UpdateMechanism:
    """Returns the mechanism, with the least noise for a given epsilon.

    Args:
        options: The run's settings.
        num_values: The model's parameters; needed where updates are rotated.

    Raises:
        ValueError: If the settings do not fit.
    """
    clip = None
    restarts: tuple[int, ...] = ()
    if options.adaptive_clip:
        if not options.is_private:
            raise OptionError(
                options,
                "{adaptive_clip=} is given, but {mechanism=} has no noise for "
                "estimating a norm; give a fixed {clip_norm}",
            )
        clip = update_noise.AdaptiveClip(
            options.adaptive_setting("clipped_count_stddev"),
            options.adaptive_setting("target_quantile"),
            options.adaptive_setting("clip_learning_rate"),
        )
        if options.kind.can_restart:
            restarts = tree_aggregation.restart_schedule(
                options.num_rounds,
                options.adaptive_setting("first_restart"),
                options.adaptive_setting("restart_period"),
            )
    matrix = _matrix(options, restarts)
    rotated = contribution(options, num_values)
    factor = 1.0 if rotated is None else rounding.upwards(rotated.rho_factor)
    made = options.kind.make(
        num_rounds=options.num_rounds,
        clip_norm=math.inf if options.clip_norm is None else options.clip_norm,
        noise_multiplier=_noise_multiplier(options, restarts, matrix, factor),
        adaptive_clip=clip,
        restart_rounds=restarts,
        matrix=matrix,
    )
    if rotated is not None:
        rotated.check(options.cohort_size, made)
    return made


def plan(
    options: options_lib.TrainingOptions,
    num_clients: int,
    num_values: int | None = None,
) -> plan_lib.Plan:
    """Returns the plan.

    Args:
        options: The run's settings.
        num_clients: Number of training clients.
        num_values: The model's parameters; needed where updates are rotated.

    Raises:
        ValueError: If the settings do not fit.
    """
    return training_plan.plan_of(
        sampler(options, num_clients),
        mechanism(options, num_values),
        contribution(options, num_values),
    )


def _matrix(
    options: options_lib.TrainingOptions, restart_rounds: tuple[int, ...]
) -> toeplitz.Matrix | None:
    """Returns the matrix that correlates the noise; None where none does."""
    if options.kind.matrix is None:
        return None
    separation = options.min_separation
    if separation is None:
        separation = max(0, options.timer_hours * 60 // options.round_minutes - 1)
    rounds = max(tree_aggregation.tree_lengths(options.num_rounds, restart_rounds))
    given = {name: getattr(options, name) for name in options.kind.options}
    return options.kind.matrix(
        mechanisms.Limits.of(rounds, separation, options.max_participation),
        **{
            name: default if given[name] is None else given[name]
            for name, default in options.kind.options.items()
        },
    )


def _noise_multiplier(
    options: options_lib.TrainingOptions,
    restart_rounds: tuple[int, ...],
    matrix: toeplitz.Matrix | None,
    factor: float,
) -> float:
    """Returns z: the given one, or the least one for the wanted epsilon."""
    if options.epsilon is None:
        return options.given_noise
    limits = mechanisms.Limits.of(
        options.num_rounds, options.min_separation or 0, options.max_participation
    )
    found = options.kind.least_noise(
        options.epsilon, options.delta, limits, restart_rounds, matrix, factor
    )
    if found > options_lib.LARGEST_NOISE_MULTIPLIER:
        raise OptionError(
            options,
            "{epsilon=} needs a noise multiplier of {found:.3g}, above the largest, "
            "{largest:g}; raise {epsilon}, or lower {num_rounds} or "
            "{max_participation}",
            found=found,
            largest=options_lib.LARGEST_NOISE_MULTIPLIER,
        )
    if options.adaptive_clip:
        options.check_count_noise(found, "a larger {epsilon}")
    return found
