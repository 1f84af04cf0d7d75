"""The two servers as the outside reaches them: as processes."""

import contextlib
import multiprocessing.connection
import os
import subprocess
import sys
from typing import Any, Protocol

from federated_hh.files import installation
from federated_hh.statistics.two_servers import server

_PROGRAM = "federated_hh.statistics.two_servers.server_process"
_SECONDS_TO_END = 10


class ServerError(RuntimeError):
    """A server has ended."""


class Pair(Protocol):
    """Two servers that take the same steps."""

    def step(
        self, name: str, first: Any = (), second: Any = ()
    ) -> tuple[server.Answer, server.Answer]:
        """Has both servers take a step of `server.Server`.

        Args:
            name: The name of the method.
            first: The argument of server 0; () for none.
            second: Likewise of server 1.
        """


class ProcessPair(contextlib.AbstractContextManager):
    """Servers in separate processes, as a context.

    Each has a connection to this process and one to the other server. It ends when this
    process does, a SIGKILL included, as its connection then ends.
    """

    def __init__(self):
        self.processes: list[subprocess.Popen] = []
        self._connections: list[multiprocessing.connection.Connection] = []

    def __enter__(self) -> "ProcessPair":
        links = multiprocessing.Pipe()
        for index, link in enumerate(links):
            mine, its = multiprocessing.Pipe()
            self._connections.append(mine)
            self.processes.append(_start(index, its, link))
            its.close()
        for link in links:
            link.close()
        return self

    def step(
        self, name: str, first: Any = (), second: Any = ()
    ) -> tuple[server.Answer, server.Answer]:
        """Has both servers take a step; see `Pair`.

        Raises:
            ServerError: If a server has ended.
        """
        if not self._connections:
            raise ServerError(
                "no servers are running: put the call into `with algorithm.worker():`"
            )
        try:
            for connection, argument in zip(
                self._connections, (first, second), strict=True
            ):
                connection.send((name, _arguments(argument)))
            answers = [connection.recv() for connection in self._connections]
        except (EOFError, ConnectionError) as error:
            raise ServerError(
                "one of the two servers has ended; its message is above"
            ) from error
        return answers[0], answers[1]

    def __exit__(self, *exception) -> None:
        for connection in self._connections:
            connection.close()
        for process in self.processes:
            try:
                process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._connections, self.processes = [], []


def _arguments(argument: Any) -> tuple[Any, ...]:
    return () if argument == () else (argument,)


def _start(index: int, connection, link) -> subprocess.Popen:
    """Starts a server process; NumPy is the most that it imports."""
    root = installation.HOME
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    numbers = (connection.fileno(), link.fileno())
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _PROGRAM, str(index), *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        # A thread more would mostly wait for the clients'.
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OPENBLAS_NUM_THREADS": "1",
        },
        pass_fds=numbers,
    )
