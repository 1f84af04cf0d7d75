"""Makes the repository's .venv from the locked requirements.

Run by `scripts/environment.sh` with the standard library of a bare Python 3.11.
Two set-ups started at once take turns; the second finds the work done.
"""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import sys
import threading
import time

_MARKER = "made-by-scripts-run"
# What is installed, before it is compiled: measured on x86-64 Linux.
_BYTES = 3.1 * 2**30
_SECONDS_BETWEEN_LINES = 10.0


def say(message: str) -> None:
    """Prints progress where it does not mix with a program's output."""
    print(f"[set-up] {message}", file=sys.stderr, flush=True)


class Progress:
    """Says every ten seconds how much is installed, and about how long it takes yet.

    Both are by the size of a whole environment, which differs a little by machine.
    """

    def __init__(self, environment: pathlib.Path):
        """Starts to watch the disk.

        Args:
            environment: A directory on the disk that is written to.
        """
        self._environment = environment
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
            done = min(1.0, max(0, before - self._free()) / _BYTES)
            told = f"{done * _BYTES / 2**30:.1f} of about {_BYTES / 2**30:.1f} GB"
            if done > 0.05:
                left = (time.monotonic() - start) * (1 - done) / done
                told += f", about {max(10, round(left, -1)):.0f} s left"
            say(told)

    def _free(self) -> int:
        return shutil.disk_usage(self._environment).free


def lock_hash(requirements: pathlib.Path) -> str:
    """Returns the SHA-256 of the lock file, in hexadecimal."""
    return hashlib.sha256(requirements.read_bytes()).hexdigest()


def make_environment(root: pathlib.Path) -> None:
    """Creates `root/.venv` again and installs `root/requirements.txt` into it."""
    environment = root / ".venv"
    requirements = root / "requirements.txt"
    marker = environment / _MARKER
    if environment.exists() and not marker.exists():
        say(f"{environment} was not made by this script; move it away first")
        raise SystemExit(1)
    if environment.exists():
        say(f"removing {environment}: unfinished, or made from another lock file")
        shutil.rmtree(environment)
    python = environment / "bin" / "python"
    # The lock is complete and hash-checked, so nothing is resolved again; TFF's own
    # metadata could not be (see requirements.overrides).
    install = ["install", "--no-deps", "--require-hashes", "-r", str(requirements)]
    environment.mkdir()
    marker.write_text("Made by scripts/run; it removes and remakes this directory.\n")
    uv = shutil.which("uv")
    size = _BYTES / 2**30
    if uv:
        say(f"1 of 2: an environment in {environment}, with uv")
        make = [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable]
        subprocess.run([*make, str(environment)], check=True)
        command = [uv, "pip", *install, "--quiet", "--python", str(python)]
    else:
        say(f"1 of 3: an environment in {environment}, with pip")
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        command = [str(python), "-m", "pip", *install, "--quiet"]
        command += ["--disable-pip-version-check", "--no-compile"]
    packages = sum("==" in line for line in requirements.read_text().splitlines())
    say(
        f"2 of {2 if uv else 3}: {packages} packages, a download of 1 GB, "
        f"{size:.1f} GB on disk"
    )
    with Progress(environment):
        subprocess.run(command, check=True)
    if not uv:
        say("3 of 3: compiling, about half a minute")
        # pip would compile on one core. Some packages have files for other Pythons.
        compile_all = [str(python), "-m", "compileall", "-qq", "-j", "0"]
        subprocess.run([*compile_all, str(environment / "lib")], check=False)
    (environment / "requirements.sha256").write_text(lock_hash(requirements))
    say("done")


def main() -> int:
    """Sets up the repository named by the first argument; returns an exit code."""
    root = pathlib.Path(sys.argv[1]).resolve()
    stamp = root / ".venv" / "requirements.sha256"
    try:
        lock = open(root / ".setup.lock", "w")  # noqa: SIM115 (closed below)
    except OSError as error:
        say(f"cannot write to {root} ({error.strerror}); copy it to where you can")
        return 1
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up of this repository to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = lock_hash(root / "requirements.txt")
        if stamp.exists() and stamp.read_text() == wanted:
            return 0
        try:
            make_environment(root)
        except subprocess.CalledProcessError as error:
            say(f"failed with exit code {error.returncode}: {' '.join(error.cmd)}")
            say("its messages are above; once mended, run the same command again")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
