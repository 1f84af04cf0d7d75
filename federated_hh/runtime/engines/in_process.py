"""TFF's execution context over an executor in this program's own TensorFlow.

TFF's worker computes on processors only. This executor computes on whatever the
program's TensorFlow reaches: GPUs and TPUs, and under a debugger.
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
    tensorflow_computation,
)
from tensorflow_federated.python.core.impl.compiler import building_blocks
from tensorflow_federated.python.core.impl.executors import (
    executor_base,
    executor_value_base,
)

from federated_hh.runtime.engines import interpreter, mergeable, tensorflow_functions
from federated_hh.runtime.worker import secure_sums

# Compiled computations whose TensorFlow functions are kept.
_KEPT = 32


class DeviceError(ValueError):
    """There is no such device."""


def check_device(name: str | None) -> None:
    """Raises `DeviceError` where TensorFlow has no device of a name, as `/GPU:0`."""
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


class Context(tff.framework.SyncExecutionContext):
    """Computes in this program."""

    def __init__(
        self, device: str | None, threads: int | None, *, is_compiled: bool = False
    ):
        """Makes the context.

        Args:
            device: Device, such as `/GPU:0`; None for TensorFlow's choice.
            threads: Number of clients computed at once; None for one a core.
            is_compiled: Whether computations come in the form that is executed.

        Raises:
            DeviceError: If there is no such device.
        """
        check_device(device)
        # GPUs would multiply float32 with 10 bits, and count that as the same.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        super().__init__(
            executor_fn=_ExecutorFactory(device, threads),
            compiler_fn=None if is_compiled else _compile,
            transform_args=tensorflow_computation.transform_args,
            transform_result=tensorflow_computation.transform_result,
        )

    def invoke(self, comp, arg):
        """Computes; see base class."""
        with secure_sums.range_errors():
            return super().invoke(comp, arg)


def _compile(computation: mergeable.Computation) -> mergeable.Computation:
    with_meaning = secure_sums.give_secure_sums_a_meaning(computation)
    return mergeable.native(mergeable.with_one_aggregation(with_meaning))


@dataclasses.dataclass
class _Compiled:
    """A computation, and what calls the TensorFlow computations in it, by their id."""

    computation: mergeable.Computation
    block: building_blocks.ComputationBuildingBlock
    functions: dict[int, Callable[[Any], Any]]


class _ExecutorFactory(tff.framework.ExecutorFactory):
    def __init__(self, device: str | None, threads: int | None):
        self._device = device
        self._threads = threads
        self._compiled: collections.OrderedDict[int, _Compiled] = (
            collections.OrderedDict()
        )

    def create_executor(self, cardinalities: Mapping[Any, int]) -> "_Executor":
        return _Executor(self, cardinalities.get(tff.CLIENTS, 0), self._threads)

    def clean_up_executor(self, cardinalities: Mapping[Any, int]) -> None:
        """Does nothing: what was computed for a call ends with it."""

    def compiled(self, computation: mergeable.Computation) -> _Compiled:
        """Returns a computation's building block, with functions that it knows."""
        key = id(computation)
        if key not in self._compiled:
            while len(self._compiled) >= _KEPT:
                self._compiled.popitem(last=False)
            block = computation.to_building_block()
            self._compiled[key] = _Compiled(computation, block, {})
        self._compiled.move_to_end(key)
        return self._compiled[key]

    def function(
        self, known: dict[int, Callable[[Any], Any]], block: Any
    ) -> Callable[[Any], Any]:
        """Returns what calls a TensorFlow computation, made once."""
        if id(block) not in known:
            known[id(block)] = tensorflow_functions.function_of(
                block.proto, self._device
            )
        return known[id(block)]


class _Value(executor_value_base.ExecutorValue):
    """A tensor, struct of values, value at the clients, or function."""

    def __init__(self, value: Any, kind: tff.Type):
        self._value = value
        self._kind = kind

    @property
    def type_signature(self) -> tff.Type:
        return self._kind

    @property
    def reference(self) -> Any:
        return self._value

    async def compute(self) -> Any:
        return _named(self._value, self._kind)


class _Executor(executor_base.Executor):
    """Executes calls for one number of clients."""

    def __init__(self, factory: _ExecutorFactory, num_clients: int, threads):
        self._factory = factory
        self._num_clients = num_clients
        self._threads = threads

    def close(self) -> None:
        """Does nothing: nothing is held."""

    async def create_value(self, value: Any, type_spec: Any = None) -> _Value:
        kind = tff.to_type(type_spec)
        if isinstance(kind, tff.FunctionType):
            return _Value(self._function_of(value), kind)
        return _Value(_ingested(value, kind), kind)

    async def create_call(self, comp: Any, arg: Any = None) -> _Value:
        argument = None if arg is None else arg.reference
        return _Value(comp.reference(argument), comp.type_signature.result)

    async def create_struct(self, elements: Any) -> _Value:
        parts = structure.from_container(elements)
        named = list(structure.iter_elements(parts))
        kind = tff.StructType([(name, part.type_signature) for name, part in named])
        return _Value(
            structure.Struct((name, part.reference) for name, part in named), kind
        )

    async def create_selection(self, source: Any, index: int) -> _Value:
        return _Value(source.reference[index], source.type_signature[index])

    def _function_of(self, computation: mergeable.Computation) -> Callable[[Any], Any]:
        known = self._factory.compiled(computation)
        reader = interpreter.Interpreter(
            lambda block: self._factory.function(known.functions, block),
            self._num_clients,
            self._threads,
        )
        return reader.evaluate(known.block, {})


def _ingested(value: Any, kind: tff.Type) -> Any:
    if isinstance(kind, tff.StructType):  # federated values may be parts of it
        parts = structure.from_container(value)
        return structure.Struct(
            (name, _ingested(part, part_kind))
            for part, (name, part_kind) in zip(
                parts, structure.iter_elements(kind), strict=True
            )
        )
    if not isinstance(kind, tff.FederatedType):
        return tensorflow_functions.tensors_of(value, kind)
    if kind.placement is tff.SERVER or kind.all_equal:
        found = tensorflow_functions.tensors_of(value, kind.member)
        if kind.placement is tff.SERVER:
            return found
        return interpreter.AtClients(lambda client, turn: found)
    return interpreter.AtClients(
        lambda client, turn: tensorflow_functions.tensors_of(value[client], kind.member)
    )


def _named(value: Any, kind: tff.Type) -> Any:
    """Returns a value with the names that its type has."""
    if isinstance(kind, tff.FederatedType):
        if kind.placement is tff.CLIENTS:
            raise ValueError(
                f"a computation gives {kind}; in the program's own TensorFlow it has "
                "to give values at the server: use --runtime=worker"
            )
        return _named(value, kind.member)
    if isinstance(kind, tff.StructType):
        return structure.Struct(
            (name, _named(part, part_kind))
            for part, (name, part_kind) in zip(
                value, structure.iter_elements(kind), strict=True
            )
        )
    return value
