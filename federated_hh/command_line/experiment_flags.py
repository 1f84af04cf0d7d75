"""Flags of all experiment programs, and the frame of their runs.

Imports nothing heavy, so that --help and wrong flags are answered at once.
"""

import dataclasses
import logging as python_logging
import math
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags, logging

from federated_hh.files import custom_parts, installation
from federated_hh.options import option_flags
from federated_hh.options.fields import OptionError, check, option
from federated_hh.populations.options import population_options
from federated_hh.runtime.worker import engine_options, startup, stops

if TYPE_CHECKING:  # imports NumPy
    from federated_hh.randomness import noise_keys
    from federated_hh.run_directory import directory as run_directory


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Settings of any experiment's run directory, seed and process."""

    output_dir: str | None = option(
        None,
        "The run directory. By default a new one below runs/ in the working directory.",
    )
    resume: bool = option(
        False,
        "Continue the interrupted run in --output_dir. Its flags come from there.",
    )
    seed: int = option(
        1,
        "Seed of what is not secret in a run. The random numbers that its guarantee "
        "rests on come from a key of the operating system's, unless the data are "
        "synthetic.",
        least=0,
        most=2**63 - 1,
    )
    noise_key_file: str | None = option(
        None,
        "Repeat an earlier run to the bit: its file secret/noise_key. By default a new "
        "key, or for synthetic data one that follows from --seed.",
    )
    isolate_network: bool = option(
        True,
        "Give TFF's worker, which listens on all interfaces, a network of its own "
        "where the system allows it. Nothing else can reach it there.",
    )
    tf_logs: bool = option(False, "Show TensorFlow's own messages.")

    def __post_init__(self):
        check(self)


_OPTIONS = option_flags.define(RunOptions, title=option_flags.RUN)
_RUNTIME = option_flags.define(engine_options.RuntimeOptions, title="Runtime")
_ENGINE = option_flags.define(engine_options.EngineOptions, title="Runtime")

# Flags for the place and manner of a run, without influence on results.
_NOT_RECORDED = frozenset(
    [
        "output_dir",
        "resume",
        "isolate_network",
        "engine",
        "ray_address",
        "num_workers",
        "slice_timeout",
        "tf_logs",
        "population_cache",
        "noise_key_file",
    ]
)


@dataclasses.dataclass(frozen=True)
class Arguments:
    """The flags that every experiment has.

    Attributes:
        output_dir: The run directory.
        resume: Whether to continue what is there.
        seed: The seed of everything that is not secret.
        noise_key: The key of the randomness that the guarantee rests on.
        flags: All flags that decide a result, as `--name=value`.
    """

    output_dir: str
    resume: bool
    seed: int
    noise_key: "noise_keys.NoiseKey"
    flags: tuple[str, ...]

    def open_run(
        self, program: str, facts: Mapping[str, Any]
    ) -> "run_directory.RunDirectory":
        """Begins or resumes the run; see `run_directory.begin_or_resume`."""
        from federated_hh.run_directory import directory as run_directory

        return run_directory.begin_or_resume(
            self.output_dir,
            resume=self.resume,
            program=program,
            flags=self.flags,
            facts=facts,
            noise_key=self.noise_key,
        )


def look_ahead(arguments: Sequence[str], name: str) -> tuple[str | None, bool]:
    """Reads the flag that decides which other flags there are.

    Args:
        arguments: The command line, which `option_flags.parse` checks.
        name: The flag's.

    Returns:
        Its value, from the command line or the resumed run, and whether only it is
        missing.
    """
    given = flags.FlagValues()
    given.set_gnu_getopt(True)  # after the value of an unknown flag there is more
    flags.DEFINE_string(name, None, "", flag_values=given)
    flags.DEFINE_string("output_dir", None, "", flag_values=given)
    flags.DEFINE_bool("resume", False, "", flag_values=given)
    try:
        given(list(arguments), known_only=True)
    except (flags.Error, ValueError, OSError):
        return None, False
    asks_for_help = any(
        a.startswith("-") and a.lstrip("-").startswith("help") for a in arguments
    )
    if given[name].value is not None or not given["resume"].value:
        found = given[name].value
        return found, found is None and not asks_for_help
    if given["output_dir"].value is None or asks_for_help:
        return None, False
    from federated_hh.run_directory import record as run_record

    try:
        recorded = run_record.flags_of(given["output_dir"].value)
    except (ValueError, RuntimeError, OSError) as error:
        # Later errors would be of flags that only the run knows.
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(installation.WRONG_USE)
    begin = f"--{name}="
    values = [f.removeprefix(begin) for f in recorded if f.startswith(begin)]
    return (values[0] if values else None), False


def run_program(
    argv: Sequence[str],
    program: str,
    check_flags: Callable[[], None],
    run: Callable[[Arguments], None],
    *,
    is_synthetic: Callable[[], bool],
) -> None:
    """Runs an experiment's main part, with its errors as one line and an exit code.

    The code is the error's `exit_code` if it has one; otherwise 2 if flags or data do
    not fit and no run was begun, and 1 for all later errors; see `installation`.

    Args:
        argv: The program and its arguments without flags, from `app.run`.
        program: The program's name, as in `scripts/run NAME`.
        check_flags: Raises `ValueError` if the program's flags do not fit.
        run: The main part.
        is_synthetic: Whether the flags ask for synthetic data, so that the noise need
            not be secret.
    """
    del argv
    logging.get_absl_handler().setFormatter(
        python_logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S")
    )
    options = _OPTIONS.read()
    # A custom part may import TensorFlow while the flags are checked.
    if options.tf_logs:
        startup.show_tensorflow()
    else:
        startup.silence_tensorflow()
    startup.keep_interrupts()
    startup.isolate_workers(options.isolate_network)
    # These import NumPy, but no TensorFlow.
    from federated_hh.run_directory import directory as run_directory
    from federated_hh.run_directory import record as run_record

    output_dir = options.output_dir
    checked, made = False, []
    try:
        stops.catch()  # from here on a signal ends in a line
        _make_paths_absolute()
        if options.resume:
            if output_dir is None:
                raise ValueError("--resume needs --output_dir, the run to continue")
            recorded = run_record.flags_of(output_dir)
            if _is_complete(output_dir):
                raise ValueError(
                    f"the run in --output_dir={output_dir} is complete; there is "
                    "nothing to resume"
                )
            _take_recorded_flags(recorded)
            options = _OPTIONS.read()  # with the recorded seed
        option_flags.check_all(
            lambda: check_numbers(_recorded_names()), _choose_engine, check_flags
        )
        name = program.rpartition(".")[2].removeprefix("run_")
        output_dir = output_dir or run_directory.default_path(name)
        stops.advise(lambda: _advice(program, output_dir))
        if not options.resume:
            made = run_directory.RunDirectory.reserve(output_dir)
        key = _noise_key(options, is_synthetic())
        checked = True
        run(Arguments(output_dir, options.resume, options.seed, key, _given_flags()))
        stops.ignore()
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read the output has gone, as `head` does: without harm after the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not _is_complete(output_dir):
            sys.exit(installation.FAILED)
    except KeyboardInterrupt:
        if checked and _is_complete(output_dir):
            os._exit(0)
        by = stops.asked()
        told = (
            f"interrupted{f' by {by.name}' if by else ''}{_advice(program, output_dir)}"
        )
        print(f"\n{told}", file=sys.stderr, flush=True)
        run_directory.RunDirectory.give_back(made)
        # The worker is gone and the files are closed. TFF's threads may stand in a
        # call to the worker, and would abort the interpreter as it ends.
        os._exit(128 + (by or signal.SIGINT))
    except BaseException as error:  # custom code may even raise SystemExit
        run_directory.RunDirectory.give_back(made)
        failure = custom_parts.failure(error)
        is_told = failure is not None or isinstance(error, custom_parts.TOLD)
        # Another error is a fault, whose traceback is needed to mend it.
        if not is_told or logging.vlog_is_on(1):
            raise
        errors = getattr(error, "errors", [error])
        for line in [failure] if failure else map(_one_line, errors):
            print(f"error: {line}", file=sys.stderr)
        begun = checked and os.path.exists(os.path.join(output_dir or "", "run.json"))
        is_of_use = not checked or isinstance(error, ValueError | flags.Error)
        is_wrong_use = not begun and (is_of_use or failure is not None)
        code = installation.WRONG_USE if is_wrong_use else installation.FAILED
        if isinstance(error, SystemExit):
            sys.exit(code)
        sys.exit(getattr(error, "exit_code", code))


def _is_complete(output_dir: str | None) -> bool:
    from federated_hh.run_directory import record as run_record

    try:
        return run_record.read(str(output_dir))["status"] == "complete"
    except (RuntimeError, OSError):  # no run has begun
        return False


def _advice(program: str, output_dir: str | None) -> str:
    """Returns the end of an ended program's last line, with the command to resume."""
    if not os.path.exists(os.path.join(output_dir or "", "run.json")):
        return " before the run began; nothing is lost"
    command = installation.command(program)
    return (
        f"; resume with: {command} --resume --output_dir={shlex.quote(str(output_dir))}"
    )


def _choose_engine() -> None:
    runtime = _RUNTIME.read()
    engine = _ENGINE.read()
    engine_options.choose(runtime, engine)
    if engine.ray_address is not None:
        from federated_hh.runtime.engines import slices

        slices.check_address(engine.ray_address)
    if runtime.runtime is engine_options.Runtime.IN_PROCESS:
        startup.prepare_in_process()
    if runtime.device is not None and engine.engine is engine_options.Engine.EMBEDDED:
        from federated_hh.runtime.engines import in_process

        in_process.check_device(runtime.device)


def check_numbers(names: Sequence[str]) -> None:
    """Refuses NaN, which passes every comparison with a bound.

    Args:
        names: The names of flags.

    Raises:
        ValueError: If one of them is not a number.
    """
    for name in names:
        value = flags.FLAGS[name].value
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"--{name}={value}: has to be a number")


def _one_line(error: Exception) -> str:
    if isinstance(error, OptionError):
        return error.with_flags()
    if isinstance(error, MemoryError):
        return (
            f"the memory is not enough: {error}. Give smaller sizes, or a larger "
            "machine"
        )
    return str(error)


def _noise_key(options: RunOptions, is_synthetic: bool) -> "noise_keys.NoiseKey":
    from federated_hh.randomness import noise_keys
    from federated_hh.run_directory import record as run_record

    path = options.noise_key_file
    if options.resume:
        if path is not None:
            raise ValueError(
                "--noise_key_file: a resumed run has its own key; leave it out"
            )
        assert options.output_dir is not None
        return run_record.noise_key_of(options.output_dir)
    if path is not None:
        return noise_keys.NoiseKey.read(path)
    if is_synthetic:
        return noise_keys.NoiseKey.of_seed(options.seed)
    return noise_keys.NoiseKey.fresh()


def _make_paths_absolute() -> None:
    """Makes a run independent of the directory that it was begun in."""
    for name in population_options.PATH_FLAGS:
        path = flags.FLAGS[name].value if name in flags.FLAGS else None
        if isinstance(path, list | tuple):
            flags.FLAGS[name].value = [os.path.abspath(one) for one in path]
        elif path is not None:
            flags.FLAGS[name].value = population_options.absolute_path(path)


def _recorded_names() -> list[str]:
    key_flags = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    return sorted(f.name for f in key_flags if f.name not in _NOT_RECORDED)


def _given_flags() -> tuple[str, ...]:
    """Returns the flags that decide a result; unset ones are left out."""
    given = (flags.FLAGS[name].serialize() for name in _recorded_names())
    return tuple(flag for flag in given if flag)


def _take_recorded_flags(recorded: Sequence[str]) -> None:
    """Replaces the flags by those of a run, and refuses others on the command line."""
    names = _recorded_names()
    given = {
        name: flags.FLAGS[name].value for name in names if flags.FLAGS[name].present
    }
    for name in names:
        flags.FLAGS[name].unparse()
    flags.FLAGS([sys.argv[0], *recorded])
    for name in names:
        # Of a flag at its default nobody knows whether it was given: as if it was not.
        if flags.FLAGS[name].value == flags.FLAGS[name].default:
            flags.FLAGS[name].present = 0
    for name, value in given.items():
        if flags.FLAGS[name].value != value:
            raise ValueError(
                f"--{name} is {value!r}, but the run began with "
                f"{flags.FLAGS[name].value!r}; leave it out, or begin a new run"
            )
