"""The TFF context that computes in a worker; without one, calls are refused."""

import collections
import threading
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.core.backends.native import (
    compiler as native_compiler,
)
from tensorflow_federated.python.core.environments.tensorflow_backend import (
    tensorflow_tree_transformations,
)
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
    tensorflow_computation,
)
from tensorflow_federated.python.core.impl.computation import computation_impl
from tensorflow_federated.python.core.impl.context_stack import context_stack_impl

from federated_hh.runtime.worker import executor, secure_sums
from federated_hh.runtime.worker.worker import Worker, WorkerError


class _ExecutorFactory(tff.framework.ExecutorFactory):
    """Keeps the executors of the last few cohort sizes, and closes the others.

    TFF's own factory drops executors without closing them: with varying cohort sizes,
    the worker then grows by tens of MB per round.
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
        found = executor.Executor(self._worker.stub, dispose_batch_size=1)
        found.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
        self._executors[key] = found
        return found

    def clean_up_executor(self, cardinalities) -> None:
        key = tuple(sorted((str(k), v) for k, v in cardinalities.items()))
        found = self._executors.pop(key, None)
        if found is not None:
            found.close()


def native(
    computation: computation_impl.ConcreteComputation,
) -> computation_impl.ConcreteComputation:
    """Returns a computation in the form that is executed.

    TFF's own function also runs TensorFlow's memory optimizer. In large graphs, that
    makes three or more tensors, such as parts of a gradient, add up in a temporary
    variable: in no fixed order, and under a name that clients in one process share, so
    that they fail.
    """
    lowered, _ = tensorflow_tree_transformations.replace_intrinsics_with_bodies(
        computation.to_building_block()
    )
    config = tf.compat.v1.ConfigProto()
    options = config.graph_options.rewrite_options
    options.constant_folding = options.AGGRESSIVE
    options.arithmetic_optimization = options.AGGRESSIVE
    options.loop_optimization = options.AGGRESSIVE
    options.function_optimization = options.AGGRESSIVE
    options.memory_optimization = options.NO_MEM_OPT
    return native_compiler.transform_to_native_form(
        computation_impl.ConcreteComputation(
            computation_proto=lowered.proto,
            context_stack=context_stack_impl.context_stack,
        ),
        grappler_config=config,
    )


def _compile(computation):
    return native(secure_sums.give_secure_sums_a_meaning(computation))


class WorkerContext(tff.framework.SyncExecutionContext):
    """TFF's synchronous context over a worker, with a time limit and clear errors."""

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
        """Computes in the worker; see base class."""
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
    """The context outside `tff_worker`, instead of TFF's leaking default."""

    def invoke(self, comp, arg):
        raise WorkerError(
            "no TFF worker is running: put the call into `with runtime.tff_worker():`, "
            "or call runtime.set_default_worker() first"
        )


tff.framework.set_default_context(_NoWorkerContext())
