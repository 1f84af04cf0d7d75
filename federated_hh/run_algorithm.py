"""Runs an algorithm of your own: flags, resume, metrics, report and statement included.

scripts/run algorithm --algorithm=examples.histogram:Histogram --epsilon=2

The class derives from `federated_hh.rounds.algorithm.Algorithm` and has `Options`, a
dataclass of `federated_hh.options.fields.option` fields, of which its flags are made,
`contents`, "words" or "sentences", and `of(options, population, cache, seed)`, which
makes it.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from federated_hh.command_line import experiment_flags, program_flags
from federated_hh.files import custom_parts
from federated_hh.heavy_hitters.deny_list import DenyList, DenyOptions
from federated_hh.options import option_flags
from federated_hh.runtime.worker import startup

_PROGRAM = "federated_hh.run_algorithm"

_ALGORITHM = flags.DEFINE_string(
    "algorithm",
    None,
    "Algorithm to run, as module:Class; a resumed run knows it.",
)


_RUN = option_flags.define(program_flags.RepeatOptions)
_DENY = option_flags.define(DenyOptions)
flags.adopt_module_key_flags(experiment_flags)
option_flags.first(
    *("algorithm", "num_repeats", "delta", "seed", "output_dir", "resume", "engine")
)


class _Chosen:
    """The algorithm that the command line names, and the flags that it has."""

    def __init__(self, name: str):
        self.kind = load(name)
        self.options = option_flags.define(self.kind.Options)
        self.population = program_flags.PopulationFlags(self.kind.contents)


_CHOSEN: list[_Chosen] = []


def load(name: str) -> Any:
    """Returns an algorithm's class.

    Args:
        name: As `module:Class`.

    Raises:
        ValueError: If there is none of that name, or it is not an algorithm of this
            kind.
    """
    from federated_hh.rounds import algorithm

    base = algorithm.Algorithm
    found = custom_parts.load("--algorithm", name, "an algorithm", base)
    missing = [n for n in ("Options", "contents", "of") if not hasattr(found, n)]
    if missing:
        raise ValueError(
            f"--algorithm is {name!r}, which lacks {', '.join(missing)} of its class"
        )
    if found.contents not in ("words", "sentences"):
        raise ValueError(
            f"--algorithm is {name!r}, whose contents are {found.contents!r}; they "
            "have to be 'words' or 'sentences'"
        )
    if not dataclasses.is_dataclass(found.Options):
        raise ValueError(
            f"--algorithm is {name!r}, whose Options is {found.Options!r}; it has to "
            "be a dataclass of options"
        )
    return found


def parse_flags(arguments: Sequence[str]) -> list[str]:
    """Parses a command line with the flags of the algorithm that it names.

    Args:
        arguments: The program and its arguments, as in `sys.argv`.
    """
    try:
        name, is_missing = experiment_flags.look_ahead(arguments, "algorithm")
        if is_missing:
            raise ValueError("give --algorithm=module:Class, what to run")
        if name is not None:
            if "--tf_logs" in arguments:
                startup.show_tensorflow()
            else:
                startup.silence_tensorflow()
            _CHOSEN.append(_Chosen(name))
    except (ValueError, TypeError, RuntimeError, OSError, flags.Error) as error:
        if custom_parts.failure(error) and "--verbosity=1" in arguments:
            raise
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    return option_flags.parse(arguments)


def _check_flags() -> None:
    if not _CHOSEN:
        raise ValueError("--output_dir holds a run of another program, not of this one")
    chosen = _CHOSEN[0]
    option_flags.check_all(
        _RUN.read, _DENY.read, chosen.options.read, chosen.population.read
    )


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the algorithm that the flags ask for."""
    from federated_hh.heavy_hitters import scored_run
    from federated_hh.rounds import algorithm as algorithm_lib

    chosen = _CHOSEN[0]
    population = chosen.population.read()
    deny = DenyList.read(_DENY.read(), population.language)
    made = chosen.kind.of(
        chosen.options.read(),
        population,
        chosen.population.cache,
        arguments.seed,
    )
    base = algorithm_lib.Algorithm
    algorithm = algorithm_lib.returned(made, base, chosen.kind, "of")
    options = _RUN.read()
    done = scored_run.run(
        algorithm,
        deny=deny,
        program=_PROGRAM,
        repeats=options.num_repeats,
        delta=options.delta,
        **vars(arguments),
    )
    print(done.summary)


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
