"""Parts of a study as jobs: what a job does, and all of them as tasks of Ray.

A job is the program of studies with `--study_part`, in a process that dies with the
job. Where it is started again, as after its machine was lost, it goes on from its
part's last checkpoint.
"""

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from absl import logging

from federated_hh.run_directory import directory as run_directory
from federated_hh.run_directory import files as run_files
from federated_hh.run_directory import record as run_record
from federated_hh.runtime.worker import engine_options

PROGRAM = "scripts.reproduce"
_HOUSE = pathlib.Path(__file__).resolve().parents[1]
_LAUNCHER = str(_HOUSE / "federated_hh/runtime/worker/worker_launcher.py")
_MOST_RETRIES = 3


def run_part(flags: Sequence[str], part: int, parts: int, folder: str) -> str:
    """Runs a part of a study, or what is left of it; this is what a job does.

    Args:
        flags: The flags of `scripts.reproduce`.
        part: From 1.
        parts: Number of parts.
        folder: Folder of the part's run.

    Returns:
        The part's run directory.

    Raises:
        RuntimeError: If it fails.
    """
    run = pathlib.Path(folder) / f"part-{part}"
    begun = run / run_record.RUN_FILE
    if begun.exists() and run_record.read(run)["status"] == "complete":
        return str(run)
    what = [*flags, f"--study_part={part}/{parts}"]
    if begun.exists():
        # What a run does not record, it has to be told again.
        cache = [flag for flag in flags if flag.startswith("--population_cache=")]
        what = ["--resume", *cache]
    reproduce([*what, f"--output_dir={run}"])
    return str(run)


def reproduce(flags: Sequence[str]) -> None:
    """Runs the program of studies in a process that dies with this one.

    Args:
        flags: Its flags.

    Raises:
        RuntimeError: If it fails, with the last line that it said.
    """
    with open(os.devnull, "wb") as nobody:
        done = subprocess.run(
            [
                *(sys.executable, "-I", "-S", _LAUNCHER, str(os.getpid())),
                *(str(nobody.fileno()), "-1", "0"),
                *(sys.executable, "-P", "-m", PROGRAM, *flags),
            ],
            env={**os.environ, "PYTHONPATH": str(_HOUSE)},
            pass_fds=[nobody.fileno()],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    print(done.stderr, end="", file=sys.stderr)  # for a job's log
    if done.returncode:
        said = done.stderr.strip().splitlines() or [""]
        raise RuntimeError(
            f"{PROGRAM} {' '.join(flags)} ended with code {done.returncode}: {said[-1]}"
        )


def run_on_ray(
    directory: run_directory.RunDirectory, parts: int, more_flags: Sequence[str] = ()
) -> list[str]:
    """Runs each part of a study as a task of the Ray cluster that was chosen.

    Each task takes a core, and runs its part's rounds by one worker beside it; of
    several machines, all have to see the run directory at the same path. Ray gives the
    task of a machine that was lost to another.

    Args:
        directory: The directory of the whole study: the parts' runs are in it.
        parts: Number of parts.
        more_flags: Besides those that the run records.

    Returns:
        The run directories of the parts.

    Raises:
        EngineError: If there is no such cluster.
        RunDirectoryError: If parts fail; the others are kept, and `--resume` goes on.
    """
    from federated_hh.runtime.engines import ray_engine

    flags = [*directory.run["flags"], *more_flags]
    if directory.noise_key.is_secret:
        flags.append(f"--noise_key_file={directory.path / run_record.KEY_FILE}")
    options = engine_options.chosen().engine
    folder = str(directory.path.absolute() / "parts")
    found: dict[int, str] = {}
    failed: list[str] = []
    with ray_engine.cluster(options) as ray:
        task = ray.remote(run_part).options(num_cpus=1, max_retries=_MOST_RETRIES)
        waiting = list(range(1, parts + 1))
        running: dict[object, int] = {}
        while waiting or running:
            while waiting and len(running) < (options.num_workers or parts):
                part = waiting.pop(0)
                running[task.remote(flags, part, parts, folder)] = part
            [ended], _ = ray.wait(list(running), num_returns=1)
            part = running.pop(ended)
            try:
                found[part] = ray.get(ended)
                logging.info("Part %d of %d is done.", part, parts)
            except ray.exceptions.RayError as error:
                cause = str(getattr(error, "cause", None) or error)
                failed.append(f"part {part}: {cause.strip().splitlines()[-1]}")
    if failed:
        raise run_files.RunDirectoryError(
            f"{len(failed)} of {parts} parts of the study failed; {'; '.join(failed)}"
        )
    return [found[part] for part in sorted(found)]
