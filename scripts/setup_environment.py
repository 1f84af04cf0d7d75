"""Makes the repository's .venv from locked requirements.

Run by `scripts/environment.sh` with the standard library of a bare Python 3.11. The
arguments are the repository and the names of its locks, which are installed one after
the other. Two set-ups started at once take turns; the second finds the work done.
"""

import fcntl
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

# TensorFlow's C++ headers: 7,400 files, which only the build of its extensions needs.
LEFT_OUT = "tensorflow/include/"
# Imports the modules of programs and tests; those of the second lock may be missing.
_IMPORTS = """
import contextlib, importlib
for module in (
    "tensorflow_federated", "tensorflow_privacy", "cryptography.hazmat.primitives",
    "jinja2", "markdown", "matplotlib.backends.backend_agg", "matplotlib.pyplot",
    "pandas", "pyarrow.parquet", "scipy.optimize", "scipy.stats", "wordfreq",
    "pytest", "ray.autoscaler._private.monitor", "ray.dashboard.agent",
):
    with contextlib.suppress(Exception):
        importlib.import_module(module)
"""
_MARKER = "made-by-scripts-run"
_SECONDS_BETWEEN_LINES = 10.0


def say(message: str) -> None:
    """Prints progress where it does not mix with a program's output."""
    print(f"[set-up] {message}", file=sys.stderr, flush=True)


class Progress:
    """Says every ten seconds how much is installed, and about how long it takes yet."""

    def __init__(self, environment: pathlib.Path, megabytes: int):
        """Starts to watch the disk.

        Args:
            environment: A directory on the disk that is written to.
            megabytes: Size of all that is installed.
        """
        self._environment = environment
        self._bytes = megabytes * 1e6
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        """Begins."""
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        """Ends."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        start, before = time.monotonic(), self._free()
        while not self._ended.wait(_SECONDS_BETWEEN_LINES):
            done = min(1.0, max(0, before - self._free()) / self._bytes)
            told = f"{done * self._bytes / 1e9:.1f} of about {self._bytes / 1e9:.1f} GB"
            if done > 0.05:
                left = (time.monotonic() - start) * (1 - done) / done
                told += f", about {max(10, round(left, -1)):.0f} s left"
            say(told)

    def _free(self) -> int:
        return shutil.disk_usage(self._environment).free


def lock_hash(lock: pathlib.Path) -> str:
    """Returns the SHA-256 of the lock file, in hexadecimal."""
    return hashlib.sha256(lock.read_bytes()).hexdigest()


def sizes(lock: pathlib.Path) -> tuple[int, int]:
    """Returns a lock's megabytes to download and installed, from its first line."""
    download, installed = re.findall(r"(\d+) MB", lock.read_text().partition("\n")[0])
    return int(download), int(installed)


def make_environment(environment: pathlib.Path) -> None:
    """Creates an empty environment, in place of an older one of this script."""
    marker = environment / _MARKER
    if environment.exists() and not marker.exists():
        say(f"{environment} was not made by this script; move it away first")
        raise SystemExit(1)
    if environment.exists():
        say(f"removing {environment}: unfinished, or made from another lock file")
        shutil.rmtree(environment)
    environment.mkdir()
    marker.write_text("Made by scripts/run; it removes and remakes this directory.\n")
    # The Python that runs this may be the removed environment's, if that was active.
    python = getattr(sys, "_base_executable", sys.executable)
    if uv := shutil.which("uv"):
        make = [uv, "venv", "--quiet", "--allow-existing", "--python", python]
    else:
        make = [python, "-m", "venv"]
    subprocess.run([*make, str(environment)], check=True)


def install(environment: pathlib.Path, lock: pathlib.Path) -> None:
    """Installs a lock's packages, and compiles the modules that programs import.

    Without them each program would start three times as slowly where Python may not
    write them later: in an image with PYTHONDONTWRITEBYTECODE, or for another user.
    Packages of an earlier attempt, which may be unfinished, are installed again.
    """
    python = str(environment / "bin" / "python")
    # The lock is complete and hash-checked, so nothing is resolved again; TFF's own
    # metadata could not be (see requirements.overrides).
    flags = ["--quiet", "--no-deps", "--require-hashes", "--force-reinstall"]
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--python", python]
    else:
        command = [python, "-m", "pip", "install", "--no-compile"]
        command.append("--disable-pip-version-check")
    with Progress(environment, sizes(lock)[1]):
        subprocess.run([*command, *flags, "-r", str(lock)], check=True)
    for packages in environment.glob("lib/python*/site-packages"):
        shutil.rmtree(packages / LEFT_OUT, ignore_errors=True)
    say("compiling the modules that programs import")
    # A module that cannot be imported is reported by the program that needs it. With -I
    # Python heeds no PYTHON* variable, so it compiles.
    subprocess.run(
        [python, "-I", "-W", "ignore", "-c", _IMPORTS],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def set_up(root: pathlib.Path, names: list[str]) -> None:
    """Installs those locks of `root` that are not installed, the first one first."""
    environment = root / ".venv"
    # A stamp is written last, so an interrupted set-up is never taken for a whole one.
    stamps = {root / name: environment / f"{name}.sha256" for name in names}
    locks = [
        lock
        for lock, stamp in stamps.items()
        if not stamp.exists() or stamp.read_text() != lock_hash(lock)
    ]
    is_new = root / names[0] in locks
    if is_new:
        locks = list(stamps)
    steps = len(locks) + is_new
    if is_new:
        tool = "uv" if shutil.which("uv") else "pip"
        say(f"1 of {steps}: an environment in {environment}, with {tool}")
        make_environment(environment)
    for step, lock in enumerate(locks, 1 + is_new):
        packages = sum("==" in line for line in lock.read_text().splitlines())
        download, installed = sizes(lock)
        say(
            f"{step} of {steps}: {packages} packages of {lock.name}, a download of "
            f"{download} MB, {installed / 1000:.1f} GB on disk"
        )
        install(environment, lock)
        stamps[lock].write_text(lock_hash(lock))
    if locks:
        say("done")


def main() -> int:
    """Sets up the repository named by the first argument; returns an exit code."""
    root = pathlib.Path(sys.argv[1]).resolve()
    try:
        turn = open(root / ".setup.lock", "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        say(f"cannot write to {root} ({error.strerror}); copy it to where you can")
        return 1
    with turn:
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this repository to finish")
            fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            set_up(root, sys.argv[2:])
        except subprocess.CalledProcessError as error:
            say(f"failed with exit code {error.returncode}: {' '.join(error.cmd)}")
            say("its messages are above; once mended, run the same command again")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
