"""TFF's execution context over this program's own TensorFlow.

TFF's worker computes on processors only. This context computes on any device that the
program's TensorFlow reaches, such as GPUs and TPUs, and under a debugger.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
    tensorflow_computation,
)
from tensorflow_federated.python.core.impl.compiler import building_blocks
from tensorflow_federated.python.core.impl.executors import cardinalities_utils
from tensorflow_federated.python.core.impl.types import (
    type_analysis,
    type_conversions,
)

from federated_hh.runtime.engines import interpreter, mergeable
from federated_hh.runtime.worker import secure_sums, worker_context

# Number of computations whose TensorFlow functions are kept.
_KEPT = 32


class DeviceError(ValueError):
    """There is no such device."""


def check_device(name: str | None) -> None:
    """Raises `DeviceError` if TensorFlow has no device of a name, as `/GPU:0`."""
    if name is None:
        return
    there = [device.name for device in tf.config.list_logical_devices()]
    try:
        wanted = tf.DeviceSpec.from_string(name)
        found = tf.DeviceSpec.from_string(there[0]).make_merged_spec(wanted).to_string()
    except ValueError:
        found = ""
    if found not in [tf.DeviceSpec.from_string(one).to_string() for one in there]:
        short = ", ".join(one.removeprefix("/device:") for one in there)
        raise DeviceError(
            f"--device is {name!r}; it has to be one that TensorFlow sees here: {short}"
        )


class Context(tff.framework.SyncContext):
    """Computes in this program."""

    def __init__(
        self, device: str | None, threads: int | None, *, is_compiled: bool = False
    ):
        """Makes the context.

        Args:
            device: Device, such as `/GPU:0`; None for TensorFlow's choice.
            threads: Number of clients computed at once; None for one per core.
            is_compiled: Whether computations come in the form that is executed.

        Raises:
            DeviceError: If there is no such device.
        """
        check_device(device)
        # GPUs would multiply float32 with 10 bits, and count that as the same.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        if tf.config.list_physical_devices("GPU"):
            # Some of their kernels would add floats in another order in each run.
            tf.config.experimental.enable_op_determinism()
        self._device = device
        self._threads = threads
        self._is_compiled = is_compiled
        self._prepared = functools.lru_cache(_KEPT)(self._prepare)

    def invoke(self, comp: mergeable.Computation, arg: Any) -> Any:
        """Computes; see base class."""
        kind = comp.type_signature
        if type_analysis.contains(kind.result, _is_at_clients):
            raise ValueError(
                f"a computation returns {kind.result}; in the program's own "
                "TensorFlow it has to return values at the server. Use "
                "--runtime=worker"
            )
        cardinalities = cardinalities_utils.infer_cardinalities(arg, kind.parameter)
        with secure_sums.range_errors():
            block, functions = self._prepared(comp)
            evaluate = interpreter.Interpreter(
                functions, cardinalities.get(tff.CLIENTS, 0), self._threads
            ).evaluate
            argument = None
            if kind.parameter is not None:
                argument = interpreter.ingested(arg, kind.parameter)
            found = evaluate(block, {})(argument)
        return tensorflow_computation.transform_result(
            type_conversions.type_to_py_container(found, kind.result)
        )

    def _prepare(
        self, computation: mergeable.Computation
    ) -> tuple[building_blocks.ComputationBuildingBlock, interpreter.Functions]:
        """Returns a computation's building block, and its TensorFlow functions."""
        if not self._is_compiled:
            meaning = secure_sums.give_secure_sums_a_meaning(computation)
            computation = worker_context.native(mergeable.with_one_aggregation(meaning))
        known: dict[int, Callable[[Any], Any]] = {}

        def function(block: building_blocks.CompiledComputation) -> Any:
            if id(block) not in known:
                known[id(block)] = interpreter.function_of(block, self._device)
            return known[id(block)]

        return computation.to_building_block(), function


def _is_at_clients(kind: tff.Type) -> bool:
    return isinstance(kind, tff.FederatedType) and kind.placement is tff.CLIENTS
