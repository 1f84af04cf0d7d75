"""TFF's TensorFlow computations as functions of this program's own TensorFlow."""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_federated.python.common_libs import structure


def function_of(
    computation: computation_pb2.Computation, device: str | None
) -> Callable[[Any], Any]:
    """Returns what calls a computation.

    Args:
        computation: One that is a TensorFlow graph.
        device: Device of its operations, as in `tf.device`; those that the
            device cannot do are done by the processor. None: TensorFlow's choice.

    Returns:
        A function of a tensor or a `structure.Struct` of tensors, or of None for a
        computation without a parameter, to such a value. Threads may share it.

    Raises:
        ValueError: If a parameter or the result is a sequence.
    """
    graph = tf.compat.v1.GraphDef()
    computation.tensorflow.graph_def.Unpack(graph)
    takes_nothing = not computation.tensorflow.HasField("parameter")
    parameter = computation.tensorflow.parameter
    result = computation.tensorflow.result
    whole = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(graph, name=""), []
    )

    def tensors(binding):
        return [whole.graph.get_tensor_by_name(name) for name in _names(binding)]

    feeds = [] if takes_nothing else tensors(parameter)
    call = whole.prune(feeds, tensors(result))
    initialize = None
    if computation.tensorflow.initialize_op:
        operation = computation.tensorflow.initialize_op
        initialize = whole.prune([], whole.graph.as_graph_element(operation))

    def function(argument: Any) -> Any:
        given = [] if takes_nothing else list(_leaves(argument))
        with tf.device(device):
            if initialize is not None:
                initialize()
            found = iter(call(*given))
        return _assembled(result, found)

    return function


def tensors_of(value: Any, kind: tff.Type) -> Any:
    """Returns a value of plain Python or NumPy as tensors.

    Args:
        value: A number, text, array or tensor, or a container of those.
        kind: Its type: of tensors and structs of tensors.

    Raises:
        TypeError: If the value is not of the type.
        ValueError: If the type has a sequence.
    """
    if isinstance(kind, tff.StructType):
        parts = structure.from_container(value)
        if len(parts) != len(kind):
            raise TypeError(f"a value of {len(parts)} parts is not of the type {kind}")
        elements = structure.iter_elements(kind)
        return structure.Struct(
            (name, tensors_of(part, part_kind))
            for part, (name, part_kind) in zip(parts, elements, strict=True)
        )
    if not isinstance(kind, tff.TensorType):
        raise ValueError(_no_sequence(str(kind)))
    dtype = tf.dtypes.as_dtype(kind.dtype)
    given = getattr(value, "dtype", None)
    if given is not None and tf.dtypes.as_dtype(given) != dtype:
        raise TypeError(f"a value of {given} is not of the type {kind}")
    tensor = tf.convert_to_tensor(value, dtype)
    if not tf.TensorShape(kind.shape).is_compatible_with(tensor.shape):
        raise TypeError(f"a value of shape {tensor.shape} is not of the type {kind}")
    return tensor


def _names(binding: computation_pb2.TensorFlow.Binding) -> Iterator[str]:
    kind = binding.WhichOneof("binding")
    if kind == "tensor":
        yield binding.tensor.tensor_name
    elif kind == "struct":
        for element in binding.struct.element:
            yield from _names(element)
    else:
        raise ValueError(_no_sequence(str(kind)))


def _no_sequence(kind: str) -> str:
    return (
        f"a computation takes or gives {kind}; in the program's own TensorFlow it has "
        "to be of tensors: use --runtime=worker"
    )


def _leaves(value: Any) -> Iterator[tf.Tensor]:
    if isinstance(value, structure.Struct):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _assembled(
    binding: computation_pb2.TensorFlow.Binding, found: Iterator[tf.Tensor]
) -> Any:
    """Returns a result's tensors in its structure; names come with its type."""
    if binding.WhichOneof("binding") == "tensor":
        return next(found)
    return structure.Struct.unnamed(
        *(_assembled(element, found) for element in binding.struct.element)
    )
