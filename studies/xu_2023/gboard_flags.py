"""Flagfiles of section 2.5's strategy: the given one, and the final one."""

import re
from collections.abc import Sequence

from absl import flags

from federated_hh.options import option_flags
from federated_hh.populations.options import population_options
from studies.xu_2023.gboard_options import Options
from studies.xu_2023.gboard_privacy import Decisions
from training.federated import plans
from training.federated.options import TrainingOptions

# Flags that the strategy decides; those of the given flagfile do not count.
_DECIDED = re.compile(
    r"--(no)?(mechanism|cohort_size|num_rounds|noise_multiplier|epsilon|clip_norm|"
    r"adaptive_clip|clipped_count_stddev|first_restart|restart_period|"
    r"target_quantile|server_learning_rate|timer_hours|min_separation|"
    r"max_participation|seed|output_dir)(=|$)"
)
# Flags that another option replaces.
_REPLACED = {
    "population": ("--population=",),
    "initial_model": ("--initial_model=", "--initial_bias="),
}


def given_lines(options: Options) -> list[str]:
    """Returns the flags that are given, without what the strategy decides.

    Args:
        options: The strategy's options.

    Returns:
        Each with two dashes; those of nested flagfiles where they are nested. Paths
        are absolute: the final flagfile may be used in another directory.

    Raises:
        ValueError: If the flagfile cannot be read, or lacks the population.
    """
    name = f"--training_flagfile={options.training_flagfile}"
    try:
        found = flags.FlagValues().read_flags_from_files(
            [f"--flagfile={options.training_flagfile}"]
        )
    except (OSError, UnicodeDecodeError, flags.Error) as error:
        raise ValueError(f"{name}: cannot be read: {error}") from error
    lines = []
    for line in found:
        if not line or line.startswith(("#", "//")):
            continue
        flag = re.sub("^--?", "--", line)
        if not re.match(r"--\w", flag) or flag.startswith("--flagfile"):
            raise ValueError(
                f"{name}: a line is {line!r}; it has to be --name=value, without "
                "blanks before it"
            )
        if flag == "--update_encoding=rotated":
            raise ValueError(
                f"{name} has {flag}, whose clip norm is fixed, and the strategy finds "
                "one by adaptive clipping; leave it out here, and give it to the final "
                "run, whose statement has the guarantee with it"
            )
        if not _DECIDED.match(flag):
            lines.append(flag)
    for replaced, beginnings in _REPLACED.items():
        value = getattr(options, replaced)
        if value is not None:
            lines = [line for line in lines if not line.startswith(beginnings)]
            lines.append(f"--{replaced}={value}")
    if not any(line.startswith("--population=") for line in lines):
        raise ValueError(f"{name} has no --population; give --population")
    return [_with_absolute_path(line) for line in lines]


def _with_absolute_path(line: str) -> str:
    """Returns a flag so that it means the same file in any directory."""
    name, equals, value = line.removeprefix("--").partition("=")
    if not equals or name not in population_options.PATH_FLAGS:
        return line
    paths = value.split(",") if name == "compare_with" else [value]
    return f"--{name}={','.join(map(population_options.absolute_path, paths))}"


def final_lines(
    lines: Sequence[str],
    options: Options,
    found: Decisions,
) -> list[str]:
    """Returns the flags of the final run, whose guarantee is what was decided.

    Args:
        lines: The lines of `given_lines`.
        options: The strategy's options.
        found: Its decisions.

    Raises:
        ValueError: If a run of these flags is guaranteed less.
    """
    of_privacy = found.choice.participation
    final = [
        *lines,
        "--mechanism=dp_ftrl",
        f"--num_rounds={options.num_rounds}",
        f"--cohort_size={found.choice.report_goal}",
        f"--noise_multiplier={found.choice.noise_multiplier!r}",
        f"--clip_norm={found.clip_norm!r}",
        "--noadaptive_clip",
        f"--server_learning_rate={found.server_learning_rate!r}",
        f"--timer_hours={of_privacy.timer_hours}",
        f"--min_separation={of_privacy.min_separation}",
        f"--max_participation={of_privacy.max_participation}",
        f"--delta={options.delta!r}",
        f"--seed={found.seed}",
    ]
    rho = _planned_rho(final, found.num_clients, options.delta)
    # Two sums of the same numbers may differ in their last digits.
    if rho > found.choice.rho * (1 + 1e-9):
        raise ValueError(
            f"--training_flagfile={options.training_flagfile}: with its flags the "
            f"final run has a zCDP of {rho:g}, and the strategy decided on "
            f"{found.choice.rho:g}; take what changes the guarantee out of it, and "
            "begin a new study"
        )
    return final


def _planned_rho(lines: Sequence[str], num_clients: int, delta: float) -> float:
    """Returns the zCDP that `training.run_training` plans with some flags."""
    options = option_flags.read_lines(TrainingOptions, lines)
    stated = plans.plan(options, num_clients).statement(None, delta)
    guarantee, *_ = stated.guarantees
    assert guarantee.rho is not None  # DP-FTRL's is a zCDP
    return guarantee.rho
