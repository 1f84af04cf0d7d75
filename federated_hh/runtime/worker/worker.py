"""The process that TFF computes in, from start to end.

`worker_binary` listens on all interfaces without authentication. So it runs alone in
its own network, behind a Unix socket in a directory that only this user can enter; see
`federated_hh.runtime.worker.worker_launcher`. It ends with the program in every case,
and a worker that stops answering is ended.
"""

import atexit
import contextlib
import fcntl
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import grpc
import portpicker
import tensorflow_federated as tff
from absl import logging
from tensorflow_federated.proto.v0 import executor_pb2, executor_pb2_grpc

from federated_hh.runtime.worker import startup

ANSWER_TIMEOUT_SECONDS = 120.0
_WORKER_BINARY = os.path.join(os.path.dirname(tff.__file__), "data", "worker_binary")
_START_TIMEOUT_SECONDS = 60.0
_MAX_SECONDS_BETWEEN_PINGS = 10.0
_MAX_MESSAGE_BYTES = 2_000_000_000  # protobuf's limit of 2 GiB, rounded down
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.enable_http_proxy", 0),
    # By default an answer arrives in frames of 16 KiB, each handled for itself.
    ("grpc.http2.max_frame_size", 4 << 20),
)
# Not shared with the channel of the calls, whose messages are large.
_PING_OPTIONS = (*_CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))
# A separate program.
_LAUNCHER = str(pathlib.Path(__file__).with_name("worker_launcher.py"))
_SOCKETS_PREFIX = "tff-worker-"
_SOCKETS_LOCK = "lock"
_MAX_SOCKETS_PARENT = 70  # characters; the kernel takes 107 bytes of a socket's path


class WorkerError(RuntimeError):
    """The worker process could not be started, died, or took too long."""


class _Stub(tff.framework.RemoteExecutorGrpcStub):
    """TFF's stub without its watch on the channel.

    The watch is a thread that still polls the worker after its end, and prints a
    traceback when the channel is closed.
    """

    def __init__(self, channel: grpc.Channel):
        self._channel = channel
        self._stub = executor_pb2_grpc.ExecutorGroupStub(channel)


class Worker:
    """A worker process and the channel to it.

    Attributes:
        process: The `subprocess.Popen` of the worker.
        port: The TCP port that it listens on, on all interfaces of its network.
        is_isolated: Whether that network is its own.
        stub: Stub for `tff.framework.RemoteExecutor`.
    """

    def __init__(
        self,
        max_concurrent_calls: int = -1,
        answer_timeout_seconds: float | None = ANSWER_TIMEOUT_SECONDS,
    ):
        """Starts the process and waits until it answers.

        Args:
            max_concurrent_calls: Number of client computations that may run at once;
                -1 for `startup.calls_at_once`.
            answer_timeout_seconds: A worker that does not answer for this long is
                ended. A worker answers while it computes, however long that takes; one
                that does not is stopped or hangs. None: no limit.

        Raises:
            WorkerError: If it does not start, or this is not the main thread: the
                kernel ties a child's life to the thread that started it.
        """
        if threading.current_thread() is not threading.main_thread():
            raise WorkerError("start the TFF worker from the program's main thread")
        self._failure: str | None = None
        self._channels: list[grpc.Channel] = []
        self._ended = threading.Event()
        self.port = portpicker.pick_unused_port()
        try:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 (for the worker's life)
            self._directory = SocketDirectory()
        except OSError as error:
            raise WorkerError(f"the TFF worker cannot be started: {error}") from error
        try:
            self._begin(max_concurrent_calls, answer_timeout_seconds)
        except BaseException:  # a signal, too
            self.close()
            raise

    def _begin(self, max_concurrent_calls: int, answer_timeout: float | None) -> None:
        """Starts the process, waits until it answers, and watches it."""
        try:
            why_not = self._start(max_concurrent_calls)
        except OSError as error:
            raise WorkerError(f"the TFF worker cannot be started: {error}") from error
        atexit.register(self.close)
        self.is_isolated = not why_not
        if why_not:
            logging.warning(
                "TFF's worker is not isolated from the network (%s): while it runs, "
                "it listens on all interfaces of this machine. Use a firewall.",
                why_not,
            )
        self._channel = self._open_channel(_CHANNEL_OPTIONS)
        self._wait_until_ready()
        self.stub = _Stub(self._channel)
        if answer_timeout is not None:
            threading.Thread(
                target=self._watch,
                args=(answer_timeout,),
                name="watch on the TFF worker",
                daemon=True,
            ).start()

    def _start(self, max_concurrent_calls: int) -> str:
        """Starts the process; returns why it is not isolated, if so."""
        read, write = os.pipe()
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, read)
            listener = -1
            if startup.workers_are_isolated():
                server = stack.enter_context(socket.socket(socket.AF_UNIX))
                server.bind(self._socket_path)
                server.listen()
                listener = server.fileno()
            command = [sys.executable, "-I", "-S", _LAUNCHER]
            command += map(str, (os.getpid(), write, listener, self.port))
            command += [_WORKER_BINARY, f"--port={self.port}"]
            calls = max_concurrent_calls
            if calls < 0:
                calls = startup.calls_at_once()
            command.append(f"--max_concurrent_computation_calls={calls}")
            try:
                self.process = subprocess.Popen(
                    command,
                    env=startup.worker_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=[write] if listener < 0 else [write, listener],
                    # Ctrl-C is for the program, which ends the worker itself.
                    start_new_session=True,
                )
            finally:
                os.close(write)
            answered = select.select([read], [], [], _START_TIMEOUT_SECONDS)[0]
            reason = os.read(read, 4096).decode(errors="replace") if answered else ""
        return reason if listener >= 0 else "as asked for"

    @property
    def _socket_path(self) -> str:
        return str(self._directory.path / "worker")

    def _open_channel(self, options) -> grpc.Channel:
        address = f"127.0.0.1:{self.port}"
        if self.is_isolated:
            address = f"unix:{self._socket_path}"
        self._channels.append(grpc.insecure_channel(address, options))
        return self._channels[-1]

    def _wait_until_ready(self) -> None:
        ready = grpc.channel_ready_future(self._channel)
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while True:
            try:
                ready.result(timeout=0.1)
                return
            except grpc.FutureTimeoutError:
                pass
            try:
                self.check_alive()
                if time.monotonic() > deadline:
                    raise WorkerError(
                        "the TFF worker did not answer within "
                        f"{_START_TIMEOUT_SECONDS:.0f} s of its start"
                    )
            except WorkerError:
                ready.cancel()
                raise

    def _watch(self, timeout: float) -> None:
        """Ends the worker when it has not answered for some seconds.

        Seconds count only while it is asked: a program that was stopped itself, or a
        machine that slept, is not the worker's fault.
        """
        patience = min(_MAX_SECONDS_BETWEEN_PINGS, timeout / 4)
        stub = executor_pb2_grpc.ExecutorGroupStub(self._open_channel(_PING_OPTIONS))
        silent = 0.0
        while not self._ended.wait(patience if silent == 0 else 0):
            begun = time.monotonic()
            if self.process.poll() is not None:
                return
            if _answers(stub, patience):
                if silent >= 2 * patience:
                    logging.info("The TFF worker responds again.")
                silent = 0.0
                continue
            silent += patience
            if silent >= timeout:
                self.end(
                    f"the TFF worker has not answered for {silent:.0f} s and was "
                    "ended: it was stopped, or hangs"
                )
                return
            if silent >= 2 * patience:
                logging.warning(
                    "The TFF worker has not answered for %.0f s; it is stopped after "
                    "%.0f s.",
                    silent,
                    timeout,
                )
            # A call that fails at once must not count as a second of patience.
            self._ended.wait(max(0.0, begun + patience - time.monotonic()))

    def end(self, reason: str) -> None:
        """Kills the process; calls that wait for it are `WorkerError`s with a reason.

        Args:
            reason: Text of the error.
        """
        self._failure = self._failure or reason
        self.process.kill()

    def check_alive(self) -> None:
        """Raises `WorkerError`, with the end of the worker's log, if it has died."""
        if self._failure is not None:
            raise WorkerError(self._failure)
        code = self.process.poll()
        if code is None:
            return
        hint = " (killed: out of memory?)" if code == -9 else ""
        raise WorkerError(
            f"the TFF worker ended with exit code {code}{hint}.{self._log_tail()}"
        )

    def _log_tail(self, size: int = 2000) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - size))
        text = self._log.read().decode(errors="replace").strip()
        return f" Its last words:\n{text}" if text else ""

    def close(self) -> None:
        """Ends the process; does nothing the second time."""
        atexit.unregister(self.close)
        self._ended.set()
        process = getattr(self, "process", None)  # it may not have begun
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        for channel in self._channels:
            channel.close()
        self._directory.close()


def _answers(stub: executor_pb2_grpc.ExecutorGroupStub, patience: float) -> bool:
    """Returns whether the worker answers within some seconds."""
    # There is no such executor, so the answer is an immediate error.
    nobody = executor_pb2.ExecutorId(id="ping")
    try:
        stub.DisposeExecutor(
            executor_pb2.DisposeExecutorRequest(executor=nobody), timeout=patience
        )
    except grpc.RpcError as error:
        return error.code() not in (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.UNAVAILABLE,
        )
    except ValueError:  # the channel was closed in the meantime
        pass
    return True


class SocketDirectory:
    """A directory for unix sockets, which only this process's user can enter.

    A killed program cannot remove its directory. Each program locks its directory while
    it lives, so the next program removes the unlocked ones.

    Attributes:
        path: Path of the directory.
    """

    def __init__(self, longest_parent: int = _MAX_SOCKETS_PARENT):
        """Creates it, and removes the directories of this user's killed programs.

        Args:
            longest_parent: Bytes that the path of the directory above may have.

        Raises:
            OSError: If no directory can hold it.
        """
        parent = _parent_of_sockets(longest_parent)
        _remove_abandoned(parent)
        # It has its name only when it is locked.
        made = pathlib.Path(tempfile.mkdtemp(prefix=f".{_SOCKETS_PREFIX}", dir=parent))
        self._lock = os.open(made / _SOCKETS_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.path = made.with_name(made.name.removeprefix("."))
        made.rename(self.path)

    def close(self) -> None:
        """Removes it; does nothing the second time."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _parent_of_sockets(longest: int) -> pathlib.Path:
    candidates = (tempfile.gettempdir(), "/tmp", "/dev/shm")
    for parent in candidates:
        if len(os.fsencode(parent)) <= longest and os.access(parent, os.W_OK):
            return pathlib.Path(parent)
    raise OSError(
        "there is no writable directory with a short name for a socket: tried "
        f"{', '.join(candidates)}; set TMPDIR"
    )


def _remove_abandoned(parent: pathlib.Path) -> None:
    for directory in parent.glob(f"{_SOCKETS_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or already removed
            if directory.stat().st_uid != os.geteuid():
                continue
            lock = os.open(directory / _SOCKETS_LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)
