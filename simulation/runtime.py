"""The one place that starts TFF workers and builds execution contexts.

TFF 0.87 computes in a C++ process, `worker_binary`, that is spoken to over gRPC. The
context that comes with TFF leaves that process behind when the program ends, hangs
where SIGINT is ignored, fails where standard output is not a file, waits for ever
for a worker that died, and leaks memory where cohort sizes vary. This one does not:

    with runtime.tff_worker():
        votes = my_federated_computation(...)

The worker dies with the program in every case, a SIGKILL included. A worker that dies
on its own is a `WorkerError`. Secure sums are checked (see `simulation.secure_sums`).
"""

import atexit
import collections
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator

import grpc
import portpicker
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2_grpc
from tensorflow_federated.python.core.backends.native import (
    compiler as native_compiler,
)
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
    tensorflow_computation,
)

from simulation import secure_sums

_WORKER_BINARY = os.path.join(os.path.dirname(tff.__file__), "data", "worker_binary")
_START_TIMEOUT_SECONDS = 60.0
_MAX_MESSAGE_BYTES = 2_000_000_000  # protobuf's limit of 2 GiB, rounded down
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.enable_http_proxy", 0),
)
# Becomes the worker: asks the kernel to be killed with its parent (PR_SET_PDEATHSIG
# is 1, and survives exec), and gives up if the parent has gone already. A program of
# its own because code between fork and exec is not safe in a process with threads.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class WorkerError(RuntimeError):
    """The worker process could not be started, died, or took too long."""


class SecureSumError(ValueError):
    """A contribution to a secure sum, or the sum, left the range it was given."""


class _Stub(tff.framework.RemoteExecutorGrpcStub):
    """TFF's stub without its watch on the channel.

    The watch is a thread that goes on asking for the worker after it was ended, and
    prints a traceback when the channel is closed.
    """

    def __init__(self, channel: grpc.Channel):
        self._channel = channel
        self._stub = executor_pb2_grpc.ExecutorGroupStub(channel)


class Worker:
    """A worker process of our own, and the channel to it.

    Attributes:
        process: The `subprocess.Popen` of the worker.
        port: The TCP port that it listens on, on all interfaces of its network.
        stub: What `tff.framework.RemoteExecutor` takes to speak to it.
    """

    def __init__(self, max_concurrent_calls: int = -1):
        """Starts the process and waits until it answers.

        Args:
            max_concurrent_calls: How many client computations may run at once;
                -1 leaves it to the worker (four a core).

        Raises:
            WorkerError: If it does not come up, or if this is not the main thread:
                the kernel ties a child's life to the thread that started it.
        """
        if threading.current_thread() is not threading.main_thread():
            raise WorkerError("start the TFF worker from the program's main thread")
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the worker)
        self.port = portpicker.pick_unused_port()
        command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())]
        command += [_WORKER_BINARY, f"--port={self.port}"]
        command.append(f"--max_concurrent_computation_calls={max_concurrent_calls}")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            # Ctrl-C is for the program; it ends the worker in its own time.
            start_new_session=True,
        )
        atexit.register(self.close)
        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{self.port}", _CHANNEL_OPTIONS
        )
        self._wait_until_ready()
        self.stub = _Stub(self._channel)

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
                self.close()
                raise

    def check_alive(self) -> None:
        """Raises `WorkerError`, with the end of the worker's log, if it has died."""
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
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._channel.close()


class _ExecutorFactory(tff.framework.ExecutorFactory):
    """Keeps the executors of the last few cohort sizes, and closes the others.

    TFF's own factory drops executors without closing them: with cohort sizes that
    vary, the worker then grows by tens of MB a round.
    """

    def __init__(self, worker: Worker, keep: int = 2):
        self._worker = worker
        self._keep = keep
        self._executors = collections.OrderedDict()

    def create_executor(self, cardinalities) -> tff.framework.RemoteExecutor:
        # TFF retries a call whose worker is gone for ever; every try starts here.
        self._worker.check_alive()
        key = tuple(sorted((str(k), v) for k, v in cardinalities.items()))
        if key in self._executors:
            self._executors.move_to_end(key)
            return self._executors[key]
        while len(self._executors) >= self._keep:
            self._executors.popitem(last=False)[1].close()
        # By default a value stays in the worker until 20 of them are to go.
        executor = tff.framework.RemoteExecutor(self._worker.stub, dispose_batch_size=1)
        executor.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
        self._executors[key] = executor
        return executor

    def clean_up_executor(self, cardinalities) -> None:
        key = tuple(sorted((str(k), v) for k, v in cardinalities.items()))
        executor = self._executors.pop(key, None)
        if executor is not None:
            executor.close()


def _compile(computation):
    computation = secure_sums.give_secure_sums_a_meaning(computation)
    return native_compiler.desugar_and_transform_to_native(computation)


class _ExecutionContext(tff.framework.SyncExecutionContext):
    """TFF's synchronous context with a time limit and errors that say what to do."""

    def __init__(self, worker: Worker, call_timeout_seconds: float | None):
        super().__init__(
            executor_fn=_ExecutorFactory(worker),
            compiler_fn=_compile,
            transform_args=tensorflow_computation.transform_args,
            transform_result=tensorflow_computation.transform_result,
        )
        self._worker = worker
        self._timeout = call_timeout_seconds

    def invoke(self, comp, arg):
        timed_out = threading.Event()

        def give_up():
            timed_out.set()
            self._worker.process.kill()

        timer = threading.Timer(self._timeout, give_up) if self._timeout else None
        if timer:
            timer.daemon = True
            timer.start()
        try:
            return super().invoke(comp, arg)
        except WorkerError as error:
            if timed_out.is_set():
                raise WorkerError(
                    f"a TFF call took more than {self._timeout:g} s and was ended"
                ) from error
            raise
        except Exception as error:
            message = _range_error(str(error))
            if message is None:
                raise
            raise SecureSumError(message) from error
        finally:
            if timer:
                timer.cancel()


class _NoWorkerContext(tff.framework.SyncContext):
    """What is in force outside `tff_worker`, in place of TFF's leaking default."""

    def invoke(self, comp, arg):
        raise WorkerError(
            "no TFF worker is running: put the call into `with runtime.tff_worker():`, "
            "or call runtime.set_default_worker() first"
        )


tff.framework.set_default_context(_NoWorkerContext())


def _range_error(message: str) -> str | None:
    """Returns the line of a worker's message that names a range error, if any."""
    start = message.find(secure_sums.RANGE_ERROR)
    if start < 0:
        return None
    # TensorFlow puts each part of an assertion's message in brackets, and names the
    # node behind it in double ones.
    line = message[start:].split("[[")[0].replace("\\n", " ")
    return " ".join(line.replace("[", "").replace("]", "").split())


@contextlib.contextmanager
def tff_worker(
    *, call_timeout_seconds: float | None = None, max_concurrent_calls: int = -1
) -> Iterator[Worker]:
    """Runs TFF computations of the enclosed block in a worker of its own.

    Args:
        call_timeout_seconds: Ends the worker, with a `WorkerError`, where one call of
            a computation takes longer. None: no limit.
        max_concurrent_calls: See `Worker`.

    Yields:
        The worker, for its process id and port.

    Raises:
        WorkerError: From the block, where the worker dies or takes too long.
        SecureSumError: From the block, where a contribution to a secure sum is
            negative or above its bound, or the sum leaves its integer type.
    """
    worker = Worker(max_concurrent_calls)
    context = _ExecutionContext(worker, call_timeout_seconds)
    try:
        with tff.framework.get_context_stack().install(context):
            yield worker
    finally:
        worker.close()


def set_default_worker(*, call_timeout_seconds: float | None = None) -> Worker:
    """Makes a new worker serve all TFF computations of this thread, for notebooks.

    Args:
        call_timeout_seconds: See `tff_worker`.

    Returns:
        The worker; it ends with the program, or with its `close()`.
    """
    worker = Worker()
    tff.framework.set_default_context(_ExecutionContext(worker, call_timeout_seconds))
    return worker
