"""Runs programs as `subprocess` does, but for the import of TensorFlow.

That takes most of the time of a small run. So a process that has imported it makes a
fork for each program, which is then a process as any other, with arguments,
environment, directory, output and exit code of its own, and can be killed. What has
to show what it imports, or how it takes a signal, is started by `subprocess` itself.
"""

import atexit
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping

from federated_hh.command_line import programs
from tests import ROOT

# Each program has a process that waits for it, and writes its number and exit code.
# What was imported before it is no garbage at its end: that would take it a second.
_SERVER = """
import gc, json, os, runpy, signal, sys
exec(sys.argv[1])
gc.collect()  # TFF's own context, whose end would be told of
gc.freeze()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    asked = json.loads(line)
    if os.fork():
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        with open(asked["watched"], "w", buffering=1) as watched:
            print(pid, file=watched)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=watched)
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(asked["output"], os.O_WRONLY | os.O_APPEND)
    errors = os.open(asked["errors"], os.O_WRONLY | os.O_APPEND)
    for number, file in enumerate((nothing, output, errors)):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    sys.argv = [asked["module"], *asked["arguments"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
    break
"""

# What programs import: those that run something, and those that compute on one core.
# wordfreq comes first: it looks through all modules that there are. A plot, as of most
# programs, loads fonts.
_PLOT = """
from federated_hh.reports import plots
plots.png(plots.single("", "", "")[0])
"""
TENSORFLOW = f"""
import wordfreq
from federated_hh.populations.languages import languages
languages.words()
from federated_hh.runtime.worker import startup
startup.silence_tensorflow()
import jinja2, pandas, pyarrow.csv, pyarrow.parquet, scipy.stats
from federated_hh.runtime import runtime
{_PLOT}
"""
ACCOUNTING = f"""
import absl.app, scipy.stats
{_PLOT}
"""

_ONE_AT_A_TIME = threading.Lock()
_SECONDS_BETWEEN_LOOKS = 0.01


@functools.cache
def _server(imports: str) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVER, imports],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )
    assert server.stdin is not None
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # goes first, and ends it
    return server


class Program:
    """A program that runs, with what `subprocess.Popen` has of it.

    Attributes:
        args: Its module and its arguments.
        pid: Its process.
    """

    def __init__(
        self,
        module: str,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        imports: str = TENSORFLOW,
    ):
        """Starts a program of the repository.

        Args:
            module: Its name, as for `python -m`.
            *arguments: Arguments after it.
            environment: Besides this process's; the repository is on the path.
            directory: Working directory.
            imports: `TENSORFLOW` or `ACCOUNTING`, imported before the fork.
        """
        self.args = [module, *map(str, arguments)]
        scratch = pathlib.Path(tempfile.mkdtemp())
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        self._output, self._errors = scratch / "output", scratch / "errors"
        self._watched = scratch / "watched"
        for file in (self._output, self._errors, self._watched):
            file.touch()
        asked = {
            "module": module,
            "arguments": self.args[1:],
            "environment": {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                **(environment or {}),
            },
            "directory": os.fspath(directory or os.getcwd()),
            "output": str(self._output),
            "errors": str(self._errors),
            "watched": str(self._watched),
        }
        with _ONE_AT_A_TIME:
            server = _server(imports)
            assert server.stdin is not None
            server.stdin.write(json.dumps(asked) + "\n")
        while not (watched := self._numbers()):
            if server.poll() is not None:
                raise RuntimeError("the process that makes the forks has ended")
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        self.pid = watched[0]

    def _numbers(self) -> list[int]:
        """Returns its process and, once it has ended, its exit code."""
        lines = self._watched.read_text().splitlines(keepends=True)
        return [int(line) for line in lines if line.endswith("\n")]

    def poll(self) -> int | None:
        """Returns its exit code, as of `subprocess`, or None while it runs."""
        return numbers[1] if len(numbers := self._numbers()) == 2 else None

    def kill(self) -> None:
        """Kills it, where it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def kill_once(
        self, happened: Callable[[], bool], timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Kills it in the middle of its work.

        Args:
            happened: Condition that ends the wait.
            timeout: Seconds after which it is killed in any case.

        Returns:
            What it said.

        Raises:
            RuntimeError: If it ended by itself before.
            TimeoutExpired: If it was killed for the time.
        """
        deadline = time.monotonic() + timeout
        while not happened():
            if self.poll() is not None:
                raise RuntimeError(f"{self.args} ended too early: {self.errors()}")
            if time.monotonic() > deadline:
                self.kill()
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.001)
        self.kill()
        return self.wait()

    def errors(self) -> str:
        """Returns what it has written to its standard error so far."""
        return self._errors.read_text()

    def wait(self, timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
        """Waits for its end.

        Args:
            timeout: Seconds after which it is killed.

        Returns:
            Its exit code and what it said.

        Raises:
            TimeoutExpired: If it was killed for the time.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        said = self._output.read_text(), self.errors()
        return subprocess.CompletedProcess(self.args, code, *said)


def run(
    module: str,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    timeout: float = 600.0,
) -> subprocess.CompletedProcess[str]:
    """Runs a program of the repository to its end, by its module or short name.

    See `Program`.
    """
    module = programs.modules().get(module, module)
    program = Program(module, *arguments, environment=environment, directory=directory)
    return program.wait(timeout)
