"""Runs the parts of a study as jobs of an array: on Slurm, or on this machine.

    scripts/run scripts.submit_parts --parts=8 --folder=jobs -- --study=oov_table1

Flags of the study, such as --scale=1, follow its name. Waits for the jobs, which
submitit submits, and then gathers their results. A job that is started again, as after
its machine was lost, goes on from its part's last checkpoint; so does the command when
it is given once more.
"""

import dataclasses
import functools
import pathlib
import sys

from absl import app

from federated_hh.files import installation
from federated_hh.options import option_flags
from federated_hh.options.fields import REQUIRED, check, option
from studies import study_jobs


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a study's parts."""

    parts: int = option(REQUIRED, "Number of jobs.", least=1, most=100_000)
    folder: str = option(
        REQUIRED, "Takes the parts' runs and the jobs' logs; all machines see it."
    )
    cluster: str = option(
        "slurm", "System that runs the jobs.", choices=("slurm", "local", "debug")
    )
    partition: str | None = option(None, "A partition of Slurm.")
    cores: int = option(2, "Cores of a job.", least=1, most=10_000)
    memory: int = option(16, "Memory of a job.", least=1, most=100_000, unit="GB")
    minutes: int = option(1440, "That a job may take.", least=1, most=10**7)

    def __post_init__(self):
        check(self)


_FLAGS = option_flags.define(Options)
# The study's flags come after "--".
parse_flags = functools.partial(option_flags.parse, takes_words=True)


def main(argv: list[str]) -> None:
    """Submits, waits and gathers."""
    flags = argv[1:]
    try:
        options = _FLAGS.read()
        if not any(flag.startswith("--study=") for flag in flags):
            raise ValueError("give the study's flags after --, as -- --study=NAME")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(installation.WRONG_USE)
    try:
        import submitit
    except ImportError:
        print(
            "error: this needs the package submitit: ./scripts/test --version in a "
            "checkout, pip install submitit elsewhere",
            file=sys.stderr,
        )
        sys.exit(installation.FAILED)
    folder = pathlib.Path(options.folder).absolute()
    executor = submitit.AutoExecutor(folder=folder / "logs", cluster=options.cluster)
    executor.update_parameters(
        name="study",
        cpus_per_task=options.cores,
        mem_gb=options.memory,
        timeout_min=options.minutes,
    )
    if options.partition:
        executor.update_parameters(slurm_partition=options.partition)
    with executor.batch():
        jobs = [
            executor.submit(
                study_jobs.run_part, flags, part, options.parts, str(folder)
            )
            for part in range(1, options.parts + 1)
        ]
    failed = []
    for part, job in enumerate(jobs, 1):
        try:
            job.result()
        except Exception as error:  # of whatever a job raised, or submitit
            failed.append(f"part {part}: {str(error).strip().splitlines()[-1]}")
    if failed:
        print(f"error: {len(failed)} jobs failed; {'; '.join(failed)}", file=sys.stderr)
        sys.exit(1)
    runs = ",".join(str(folder / f"part-{part}") for part in range(1, len(jobs) + 1))
    study_jobs.reproduce(
        [*flags, f"--gather={runs}", f"--output_dir={folder / 'whole'}"]
    )


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
