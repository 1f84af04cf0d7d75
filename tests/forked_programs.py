"""Runs programs as `subprocess.run` does, but for the import of TensorFlow.

That takes most of the time of a small run. So a process that has imported it makes a
fork for each program, which is then a process as any other, with arguments,
environment, directory, output and exit code of its own. What is killed in a test, or
has to show what it imports, is started by `subprocess` itself.
"""

import atexit
import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping

import simulation

_ROOT = pathlib.Path(simulation.__file__).parents[1]
_SERVER = """
import json, os, runpy, sys
from simulation import startup
startup.silence_tensorflow()
import matplotlib.figure, pandas, scipy.stats
import tensorflow_federated
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
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

_ONE_AT_A_TIME = threading.Lock()


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-P", "-c", _SERVER],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    )
    assert server.stdin is not None
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # goes first, and ends it
    return server


def run(
    module: str,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    directory: str | os.PathLike[str] | None = None,
    timeout: float = 600.0,
) -> subprocess.CompletedProcess[str]:
    """Runs a program of the repository to its end.

    Args:
        module: Its name, as for `python -m`.
        *arguments: What is behind it.
        environment: Besides this process's; the repository is on the path.
        directory: That it is run in.
        timeout: Seconds after which it is killed.

    Returns:
        Its exit code and what it said.

    Raises:
        TimeoutExpired: If it was killed.
    """
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    given = [str(argument) for argument in arguments]
    with _ONE_AT_A_TIME, tempfile.TemporaryDirectory() as scratch:
        said = [pathlib.Path(scratch) / name for name in ("output", "errors")]
        for file in said:
            file.touch()
        asked = {
            "module": module,
            "arguments": given,
            "environment": {
                **os.environ,
                "PYTHONPATH": str(_ROOT),
                **(environment or {}),
            },
            "directory": os.fspath(directory or os.getcwd()),
            "output": str(said[0]),
            "errors": str(said[1]),
        }
        server.stdin.write(json.dumps(asked) + "\n")
        program = int(server.stdout.readline())
        killer = threading.Timer(timeout, os.kill, [program, signal.SIGKILL])
        killer.start()
        code = int(server.stdout.readline())
        is_late = killer.finished.is_set()
        killer.cancel()
        if is_late:
            raise subprocess.TimeoutExpired([module, *given], timeout)
        texts = [file.read_text() for file in said]
    return subprocess.CompletedProcess([module, *given], code, *texts)
