"""Runs an algorithm of your own: flags, resume, metrics, report and statement included.

scripts/run rounds.run_algorithm --algorithm=examples.histogram:Histogram --epsilon=2

The class derives from `rounds.algorithm.Algorithm` and has `Options`, a dataclass of
`simulation.options.option` fields, of which its flags are made, `contents`, "words" or
"sentences", and `of(options, population, cache, seed)`, which makes it.
"""

import importlib
import inspect
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from simulation import experiment_flags, option_flags, population_flags, startup

_PROGRAM = "rounds.run_algorithm"

_ALGORITHM = flags.DEFINE_string(
    "algorithm",
    None,
    "What to run, as module:Class; a run that is continued knows it.",
)
_NUM_REPEATS = flags.DEFINE_integer(
    "num_repeats",
    1,
    "How often it is run; the statement is about all repeats together.",
    lower_bound=1,
    upper_bound=10_000,
)
_DELTA = flags.DEFINE_float(
    "delta",
    1e-10,
    "Delta of the guarantees.",
    lower_bound=1e-300,
    upper_bound=0.999999,
)
flags.adopt_module_key_flags(experiment_flags)


class _Chosen:
    """The algorithm that the command line names, and the flags that it has."""

    def __init__(self, name: str):
        self.kind = load(name)
        self.options = option_flags.define(self.kind.Options)
        self.population = population_flags.PopulationFlags(self.kind.contents)


_CHOSEN: list[_Chosen] = []


def load(name: str) -> Any:
    """Returns an algorithm's class.

    Args:
        name: As `module:Class`.

    Raises:
        ValueError: If there is none of that name, or it is no algorithm of this kind.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(
            f"--algorithm={name}: give module:Class of an algorithm ({error})"
        ) from error
    missing = [n for n in ("Options", "contents", "of") if not hasattr(found, n)]
    if not inspect.isclass(found) or missing or inspect.isabstract(found):
        lacks = ", ".join(missing) or "methods of rounds.algorithm.Algorithm"
        raise ValueError(f"--algorithm={name}: that is no algorithm; it lacks {lacks}")
    return found


def parse_flags(arguments: Sequence[str]) -> list[str]:
    """Parses a command line with the flags of the algorithm that it names.

    Args:
        arguments: The program and its arguments, as in `sys.argv`.
    """
    try:
        name = _named(arguments)
        if name is not None:
            if "--tf_logs" not in arguments:
                startup.silence_tensorflow()
            _CHOSEN.append(_Chosen(name))
    except (ValueError, RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    return experiment_flags.parse_flags(arguments)


def _named(arguments: Sequence[str]) -> str | None:
    from simulation import run_record

    given = flags.FlagValues()
    given.set_gnu_getopt(True)  # after the value of an unknown flag there is more
    flags.DEFINE_string("algorithm", None, "", flag_values=given)
    flags.DEFINE_string("output_dir", None, "", flag_values=given)
    flags.DEFINE_bool("resume", False, "", flag_values=given)
    try:
        given(list(arguments), known_only=True)
    except flags.Error:
        return None  # the whole command line says what is wrong
    name, path = given["algorithm"].value, given["output_dir"].value
    if name is None and given["resume"].value and path:
        begin = "--algorithm="
        recorded = run_record.flags_of(path)
        found = [flag for flag in recorded if flag.startswith(begin)]
        name = found[0].removeprefix(begin) if found else None
    return name


def _check_flags() -> None:
    if not _CHOSEN:
        raise ValueError("give --algorithm=module:Class, what to run")
    _CHOSEN[0].options.read()
    _CHOSEN[0].population.read()


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the algorithm that the flags ask for."""
    from rounds import experiment

    chosen = _CHOSEN[0]
    algorithm = chosen.kind.of(
        chosen.options.read(),
        chosen.population.read(),
        chosen.population.cache,
        arguments.seed,
    )
    done = experiment.run_experiment(
        algorithm,
        program=_PROGRAM,
        repeats=_NUM_REPEATS.value,
        delta=_DELTA.value,
        **vars(arguments),
    )
    for name, table in algorithm.results(done.outcome.states[0]).items():
        print(f"{name}:\n{table.head(10).to_string(index=False)}")
    print(f"Report: {done.path}/report.html")


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv,
        _PROGRAM,
        _check_flags,
        run,
        is_synthetic=lambda: _CHOSEN[0].population.is_synthetic(),
    )


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
