"""Runs a study of a paper, and writes its tables and plots.

scripts/run reproduce --study=oov_table1 --scale=0.05

Each study has flags of its own: `--study=NAME --help` shows them. Writes CSV, PNG, a
Markdown table and how all of it was made to --results_dir. An interrupted study
is resumed with --resume and --output_dir.
"""

import functools
import importlib
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import app, flags

import studies
from federated_hh.command_line import experiment_flags
from federated_hh.options import option_flags
from federated_hh.populations.columns import prepared_data
from federated_hh.runtime.worker import engine_options

if TYPE_CHECKING:
    from studies import study_parts

_PROGRAM = "scripts.reproduce"

_STUDY = flags.DEFINE_enum(
    "study",
    None,
    list(studies.MODULES),
    "Study to run; a resumed run knows its own.",
)
_RESULTS_DIR = flags.DEFINE_string(
    "results_dir",
    None,
    "Folder of tables and plots; by default results/STUDY in the working directory.",
)
_CACHE = flags.DEFINE_string(
    "population_cache",
    None,
    "Directory where prepared populations are kept. A full-scale one takes 6 GB.",
)
_PART = flags.DEFINE_string(
    "study_part",
    None,
    "Run a part of the study, as i/n: every n-th run of a setting, from the i-th on. "
    "For job i of an array of n; --gather puts the parts together.",
)
_GATHER = flags.DEFINE_list(
    "gather",
    [],
    "Run nothing, and make the results of these run directories: one of each part.",
)
flags.adopt_module_key_flags(experiment_flags)
option_flags.first(
    *("study", "results_dir", "output_dir", "resume", "population_cache", "engine"),
    *("study_part", "gather"),
)
# The flags of the study that the command line names.
_OPTIONS: dict[str, option_flags.OptionFlags] = {}


def parse_flags(arguments: Sequence[str]) -> list[str]:
    """Parses a command line with the flags of the study that it names.

    Args:
        arguments: The program and its arguments, as in `sys.argv`.

    Returns:
        What `option_flags.parse` does.
    """
    define_study_flags(arguments)
    return option_flags.parse(arguments)


def define_study_flags(arguments: Sequence[str]) -> None:
    """Defines the flags of the study that a command line, or a run begun, names.

    Args:
        arguments: As for `parse_flags`, which reports other errors.
    """
    name, is_missing = experiment_flags.look_ahead(arguments, "study")
    if name in studies.MODULES:
        _OPTIONS[name] = option_flags.define(_module(name).Options)
    elif is_missing:
        known = ", ".join(studies.MODULES)
        print(f"error: --study is needed: one of {known}", file=sys.stderr)
        sys.exit(2)


def _module(name: str):
    return importlib.import_module(studies.MODULES[name])


def _check_flags() -> Any:
    """Returns the options of the study; raises `ValueError` where one is wrong."""
    if _STUDY.value not in _OPTIONS:
        raise ValueError("--output_dir holds a run of another program, not of this one")
    if _part() is not None and _GATHER.value:
        raise ValueError("--study_part and --gather exclude each other")
    return _OPTIONS[_STUDY.value].read()


def _part() -> "study_parts.StudyPart | None":
    """Returns the part that is asked for.

    Raises:
        ValueError: If there is no such part, or the study cannot be split.
    """
    if _PART.value is None:
        return None
    from studies import study_parts

    if not _is_divisible():
        raise ValueError(
            f"--study_part is {_PART.value!r}; it has to be left out of "
            f"--study={_STUDY.value}, whose settings need one another"
        )
    return study_parts.StudyPart.parse(_PART.value)


def _is_divisible() -> bool:
    return getattr(_module(_STUDY.value), "IS_DIVISIBLE", True)


def run(arguments: experiment_flags.Arguments) -> None:
    """Runs the study that the flags ask for."""
    from studies import study as study_lib
    from studies import study_jobs

    name = _STUDY.value
    study = _module(name).prepare(
        name,
        _check_flags(),
        seed=arguments.seed,
        cache=_CACHE.value or prepared_data.DEFAULT_CACHE,
    )
    results = pathlib.Path(_RESULTS_DIR.value or f"results/{name}")
    part, parts, make_parts = _part(), _GATHER.value, None
    is_whole = part is None and not parts and _is_divisible()
    if is_whole and engine_options.chosen().engine.engine is engine_options.Engine.RAY:
        cache = os.path.abspath(_CACHE.value) if _CACHE.value else None
        make_parts = functools.partial(
            study_jobs.run_on_ray,
            more_flags=[f"--population_cache={cache}"] if cache else [],
        )
    study_lib.perform(
        study,
        arguments,
        _PROGRAM,
        results,
        part=part,
        parts=parts,
        make_parts=make_parts,
    )


def main(argv: list[str]) -> None:
    """Checks the flags and runs."""
    experiment_flags.run_program(
        argv,
        _PROGRAM,
        _check_flags,
        run,
        is_synthetic=lambda: _module(_STUDY.value).Options.is_synthetic,
    )


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
