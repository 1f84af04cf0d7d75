"""The one place that starts TFF workers and builds execution contexts.

TFF 0.87 computes in a C++ process, `worker_binary`, that is spoken to over gRPC. The
context that comes with TFF leaves that process behind when the program ends, hangs
where SIGINT is ignored, fails where standard output is not a file, waits for ever
for a worker that died, and leaks memory where cohort sizes vary. This one does not:

    with runtime.tff_worker():
        votes = my_federated_computation(...)

The worker dies with the program in every case, a SIGKILL included. A worker that dies
on its own, or does not answer any more, is a `WorkerError`. Nobody else can reach it
(`simulation.worker`). Secure sums are checked (see `simulation.secure_sums`).
"""

import collections
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow_federated as tff
from tensorflow_federated.python.core.backends.native import (
    compiler as native_compiler,
)
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
    tensorflow_computation,
)

from simulation import engine_options, secure_sums, startup
from simulation.secure_sums import SecureSumError
from simulation.worker import ANSWER_TIMEOUT_SECONDS, Worker, WorkerError

__all__ = [
    "SecureSumError",
    "Worker",
    "WorkerError",
    "computing",
    "set_default_worker",
    "tff_worker",
]


class _ExecutorFactory(tff.framework.ExecutorFactory):
    """Keeps the executors of the last few cohort sizes, and closes the others.

    TFF's own factory drops executors without closing them: with cohort sizes that
    vary, the worker then grows by tens of MB a round.
    """

    def __init__(self, worker: Worker, keep: int = 2):
        self._worker = worker
        self._keep = keep
        self._executors: collections.OrderedDict[Any, Any] = collections.OrderedDict()

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

    def __init__(
        self,
        worker: Worker,
        call_timeout_seconds: float | None,
        is_compiled: bool = False,
    ):
        super().__init__(
            executor_fn=_ExecutorFactory(worker),
            compiler_fn=None if is_compiled else _compile,
            transform_args=tensorflow_computation.transform_args,
            transform_result=tensorflow_computation.transform_result,
        )
        self._worker = worker
        self._timeout = call_timeout_seconds

    def invoke(self, comp, arg):
        timer = None
        if self._timeout:
            reason = f"a TFF call took more than {self._timeout:g} s and was ended"
            timer = threading.Timer(self._timeout, self._worker.end, [reason])
            timer.daemon = True
            timer.start()
        try:
            with secure_sums.range_errors():
                return super().invoke(comp, arg)
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


def context_of(
    worker: Worker, *, is_compiled: bool = False
) -> tff.framework.SyncContext:
    """Returns a context that computes in a worker.

    Args:
        worker: That runs.
        is_compiled: Whether computations come in the form that is executed.
    """
    return _ExecutionContext(worker, None, is_compiled)


@contextlib.contextmanager
def computing(*, max_concurrent_calls: int = -1) -> Iterator[None]:
    """Runs TFF computations of the enclosed block as the program chose.

    Args:
        max_concurrent_calls: How many clients are computed at once, by each worker;
            -1 leaves it to the runtime.

    Raises:
        WorkerError: See `tff_worker`.
        SecureSumError: See `tff_worker`.
        ValueError: If what was chosen is not there, as a device.
        EngineError: See `engines.ray_engine.computing`.
    """
    chosen = engine_options.chosen().runtime
    with contextlib.ExitStack() as stack:
        if engine_options.chosen().engine.engine is engine_options.Engine.RAY:
            from simulation.engines import ray_engine

            stack.enter_context(ray_engine.computing(max_concurrent_calls))
        elif chosen.runtime is engine_options.Runtime.IN_PROCESS:
            startup.prepare_in_process()
            from simulation.engines import in_process

            threads = None if max_concurrent_calls < 0 else max_concurrent_calls
            context = in_process.Context(chosen.device, threads)
            stack.enter_context(tff.framework.get_context_stack().install(context))
        else:
            stack.enter_context(tff_worker(max_concurrent_calls=max_concurrent_calls))
        yield


@contextlib.contextmanager
def tff_worker(
    *,
    call_timeout_seconds: float | None = None,
    max_concurrent_calls: int = -1,
    answer_timeout_seconds: float | None = ANSWER_TIMEOUT_SECONDS,
) -> Iterator[Worker]:
    """Runs TFF computations of the enclosed block in a worker of its own.

    Args:
        call_timeout_seconds: Ends the worker, with a `WorkerError`, where one call of
            a computation takes longer. None: no limit.
        max_concurrent_calls: See `Worker`.
        answer_timeout_seconds: Ends a worker that was stopped or hangs; see `Worker`.

    Yields:
        The worker, for its process id and port.

    Raises:
        WorkerError: From the block, where the worker dies, hangs or takes too long.
        SecureSumError: From the block, where a contribution to a secure sum is
            negative or above its bound, or the sum leaves its integer type.
    """
    worker = Worker(max_concurrent_calls, answer_timeout_seconds)
    context = _ExecutionContext(worker, call_timeout_seconds)
    try:
        with tff.framework.get_context_stack().install(context):
            yield worker
    finally:
        worker.close()


def set_default_worker(
    *,
    call_timeout_seconds: float | None = None,
    answer_timeout_seconds: float | None = ANSWER_TIMEOUT_SECONDS,
) -> Worker:
    """Makes a new worker serve all TFF computations of this thread, for notebooks.

    Args:
        call_timeout_seconds: See `tff_worker`.
        answer_timeout_seconds: See `tff_worker`.

    Returns:
        The worker; it ends with the program, or with its `close()`.
    """
    worker = Worker(answer_timeout_seconds=answer_timeout_seconds)
    tff.framework.set_default_context(_ExecutionContext(worker, call_timeout_seconds))
    return worker
