"""The executor that speaks to a worker, with messages that are written once."""

from typing import Any

import numpy as np
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import executor_pb2
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.impl.compiler import array
from tensorflow_federated.python.core.impl.executors import (
    remote_executor,
    value_serialization,
)
from tensorflow_federated.python.core.impl.types import (
    array_shape,
    dtype_utils,
    type_serialization,
)


class Executor(remote_executor.RemoteExecutor):
    """TFF's executor of a worker, for models of many parameters.

    TFF's own builds the message of a value from the messages of its parts, and each
    step copies all bytes below it: a model's weights a dozen times in all.
    """

    async def create_value(
        self, value: Any, type_spec: tff.Type | None = None
    ) -> remote_executor.RemoteValue:
        """Sends a value to the worker; see base class."""
        self._check_has_executor_id()
        request = executor_pb2.CreateValueRequest(executor=self._executor_id)
        type_spec = write(request.value, value, type_spec)
        response = self._stub.create_value(request)
        return remote_executor.RemoteValue(response.value_ref, type_spec, self)


def write(message: executor_pb2.Value, value: Any, kind: tff.Type | None) -> tff.Type:
    """Writes a value into its place in a message.

    Args:
        message: Empty message; receives what `value_serialization.serialize_value`
            would return.
        value: A computation, array, number or text, or a container of values.
        kind: Its type; None for a computation's own.

    Returns:
        Its type.

    Raises:
        TypeError: If the value is not of the type.
    """
    match kind:
        case tff.StructType():
            parts = structure.from_container(value)
            if len(parts) != len(kind):
                raise TypeError(f"a value of {len(parts)} parts is not of type {kind}")
            message.struct.SetInParent()
            for (name, kind_of_part), part in zip(
                structure.iter_elements(kind), parts, strict=True
            ):
                place = message.struct.element.add(name=name).value
                write(place, part, kind_of_part)
        case tff.FederatedType():
            members = [value] if kind.all_equal else value
            if not isinstance(members, list):
                raise TypeError(f"a value at the clients is {type(value)}, not a list")
            for member in members:
                write(message.federated.value.add(), member, kind.member)
            serialized = type_serialization.serialize_type(kind).federated
            message.federated.type.CopyFrom(serialized)
        case tff.TensorType() if _is_of(value, kind):
            message.array.dtype = dtype_utils.to_proto(value.dtype.type)
            message.array.shape.CopyFrom(array_shape.to_proto(value.shape))
            message.array.content = value.tobytes()
        case _:
            serialized, kind = value_serialization.serialize_value(value, kind)
            message.CopyFrom(serialized)
    return kind


def _is_of(value: Any, kind: tff.TensorType) -> bool:
    """Returns whether a value is an array of numbers, of the type as it is."""
    return (
        isinstance(value, np.ndarray)
        and value.ndim > 0
        and value.dtype == kind.dtype
        and value.dtype.kind in "biuf"
        and array.is_compatible_shape(value, kind.shape)
    )
