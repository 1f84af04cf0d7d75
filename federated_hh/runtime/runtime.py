"""The one place that starts TFF workers and builds execution contexts.

TFF 0.87 computes in a C++ process, `worker_binary`, over gRPC. TFF's own context leaves
that process behind when the program ends, hangs if SIGINT is ignored, fails if standard
output is not a file, waits forever for a worker that died, and leaks memory if cohort
sizes vary. This one does not:

    with runtime.tff_worker():
        votes = my_federated_computation(...)

The worker dies with the program in every case, a SIGKILL included. A worker that dies
on its own, or stops answering, raises a `WorkerError`. Nobody else can reach it
(`federated_hh.runtime.worker.worker`). Secure sums are checked (see
`federated_hh.runtime.worker.secure_sums`).
"""

import contextlib
from collections.abc import Iterator

import tensorflow_federated as tff

from federated_hh.runtime.worker import engine_options, startup, worker_context
from federated_hh.runtime.worker.secure_sums import SecureSumError
from federated_hh.runtime.worker.worker import (
    ANSWER_TIMEOUT_SECONDS,
    Worker,
    WorkerError,
)

__all__ = [
    "SecureSumError",
    "Worker",
    "WorkerError",
    "computing",
    "set_default_worker",
    "tff_worker",
]

startup.load_generated_code()


@contextlib.contextmanager
def computing(*, max_concurrent_calls: int = -1) -> Iterator[None]:
    """Runs TFF computations of the enclosed block with the chosen engine and runtime.

    Args:
        max_concurrent_calls: Number of clients that each worker computes at once;
            -1 leaves it to the runtime.

    Raises:
        WorkerError: As in `tff_worker`.
        SecureSumError: As in `tff_worker`.
        ValueError: If the choice is not available, such as a device.
        EngineError: As in `engines.ray_engine.computing`.
    """
    chosen = engine_options.chosen().runtime
    with contextlib.ExitStack() as stack:
        if engine_options.chosen().engine.engine is engine_options.Engine.RAY:
            from federated_hh.runtime.engines import ray_engine

            stack.enter_context(ray_engine.computing(max_concurrent_calls))
        elif chosen.runtime is engine_options.Runtime.IN_PROCESS:
            startup.prepare_in_process()
            from federated_hh.runtime.engines import in_process

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
    """Runs TFF computations of the enclosed block in their own worker.

    Args:
        call_timeout_seconds: Ends the worker, with a `WorkerError`, if one call of a
            computation takes longer. None: no limit.
        max_concurrent_calls: Limit, as in `Worker`.
        answer_timeout_seconds: Ends a worker that was stopped or hangs; see `Worker`.

    Yields:
        The worker, for its process id and port.

    Raises:
        WorkerError: From the block, if the worker dies, hangs or takes too long.
        SecureSumError: From the block, if a contribution to a secure sum is negative or
            above its bound, or the sum leaves its integer type.
    """
    worker = Worker(max_concurrent_calls, answer_timeout_seconds)
    context = worker_context.WorkerContext(worker, call_timeout_seconds)
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
        call_timeout_seconds: Time limit, as in `tff_worker`.
        answer_timeout_seconds: Time limit, as in `tff_worker`.

    Returns:
        The worker; it ends with the program, or with its `close()`.
    """
    worker = Worker(answer_timeout_seconds=answer_timeout_seconds)
    tff.framework.set_default_context(
        worker_context.WorkerContext(worker, call_timeout_seconds)
    )
    return worker
