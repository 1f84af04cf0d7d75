"""Evaluation of TFF's building blocks in this program's own TensorFlow.

A value is a tensor, a `structure.Struct` of values without names (types have them), a
function, or a value at the clients. Such a value is computed for one client at a time
during an aggregation, and freed once it is added: a sum over clients holds the values
of only a few of them.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import context
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.impl.compiler import (
    building_blocks,
    intrinsic_defs,
)
from tensorflow_federated.python.core.impl.types import type_analysis
from tensorflow_federated.python.core.impl.utils import tensorflow_utils

from federated_hh.files import ordered_work

_Scope = Mapping[str, Any]
_Function = Callable[[Any], Any]
# Gives the function of a TensorFlow computation.
Functions: TypeAlias = Callable[[building_blocks.CompiledComputation], _Function]
# Values computed for a client in one turn, by the id of the value at the clients.
_Turn = dict[int, Any]

# Of imported graphs.
_NUMBERS = itertools.count()


class AtClients:
    """A value at the clients, computed when it is asked for."""

    def __init__(self, compute: Callable[[int, _Turn], Any]):
        """Stores the function of a client's number and the turn."""
        self._compute = compute

    def of(self, client: int, turn: _Turn) -> Any:
        """Returns a client's value, computed once in a turn however often asked for."""
        if id(self) not in turn:
            turn[id(self)] = self._compute(client, turn)
        return turn[id(self)]


class Interpreter:
    """Evaluates computations for a number of clients."""

    def __init__(
        self,
        functions: Functions,
        num_clients: int,
        threads: int | None,
    ):
        """Stores settings that all computations share.

        Args:
            functions: Gives the function of a TensorFlow computation.
            num_clients: Client count of the federated values.
            threads: Number of clients computed at once; None for one a core.
        """
        self._functions = functions
        self._num_clients = num_clients
        self._threads = threads
        self._intrinsics: dict[str, _Function] = {
            intrinsic_defs.FEDERATED_AGGREGATE.uri: self._aggregate,
            intrinsic_defs.FEDERATED_APPLY.uri: _map,
            intrinsic_defs.FEDERATED_BROADCAST.uri: _at_all_clients,
            intrinsic_defs.FEDERATED_EVAL_AT_CLIENTS.uri: _evaluate_at_clients,
            intrinsic_defs.FEDERATED_EVAL_AT_SERVER.uri: lambda comp: comp(None),
            intrinsic_defs.FEDERATED_MAP.uri: _map,
            intrinsic_defs.FEDERATED_MAP_ALL_EQUAL.uri: _map,
            intrinsic_defs.FEDERATED_VALUE_AT_CLIENTS.uri: _at_all_clients,
            intrinsic_defs.FEDERATED_VALUE_AT_SERVER.uri: lambda value: value,
            intrinsic_defs.FEDERATED_ZIP_AT_CLIENTS.uri: _zip_at_clients,
            intrinsic_defs.FEDERATED_ZIP_AT_SERVER.uri: lambda values: values,
        }

    def evaluate(
        self, block: building_blocks.ComputationBuildingBlock, scope: _Scope
    ) -> Any:
        """Returns a building block's value.

        Args:
            block: Block of a computation, its intrinsics replaced by bodies as far as
                TFF has bodies for them.
            scope: Values of the names that it refers to.

        Raises:
            ValueError: If it holds a block or intrinsic without a meaning here.
        """
        match block:
            case building_blocks.Reference():
                return scope[block.name]
            case building_blocks.Call():
                argument = None
                if block.argument is not None:
                    argument = self.evaluate(block.argument, scope)
                return self.evaluate(block.function, scope)(argument)
            case building_blocks.Selection():
                return self._select(block, scope)
            case building_blocks.Struct():
                return structure.Struct.unnamed(
                    *(self.evaluate(element, scope) for element in block)
                )
            case building_blocks.Block():
                inner = dict(scope)
                for name, value in block.locals:
                    inner[name] = self.evaluate(value, inner)
                return self.evaluate(block.result, inner)
            case building_blocks.Lambda():
                return lambda argument: self.evaluate(
                    block.result, {**scope, block.parameter_name: argument}
                )
            case building_blocks.CompiledComputation():
                return self._functions(block)
            case building_blocks.Literal():
                return ingested(block.value, block.type_signature)
            case building_blocks.Intrinsic() if block.uri in self._intrinsics:
                return self._intrinsics[block.uri]
        what = getattr(block, "uri", type(block).__name__)
        raise ValueError(
            f"a computation uses {what}, which --runtime=in_process does not support; "
            "use --runtime=worker"
        )

    def _select(self, block: building_blocks.Selection, scope: _Scope) -> Any:
        index = block.index
        if index is None:
            names = structure.name_list_with_nones(block.source.type_signature)
            index = names.index(block.name)
        return self.evaluate(block.source, scope)[index]

    def _aggregate(self, arguments: structure.Struct) -> Any:
        """Adds clients' values in their order, whichever is computed first."""
        clients, total, accumulate, _, report = arguments
        values = ordered_work.in_order(
            lambda client: clients.of(client, {}), self._num_clients, self._threads
        )
        for value in values:
            total = accumulate(structure.Struct.unnamed(total, value))
        return report(total)


def _at_all_clients(value: Any) -> AtClients:
    return AtClients(lambda client, turn: value)


def _evaluate_at_clients(function: _Function) -> AtClients:
    return AtClients(lambda client, turn: function(None))


def _map(arguments: structure.Struct) -> Any:
    function, value = arguments
    if not isinstance(value, AtClients):
        return function(value)
    return AtClients(lambda client, turn: function(value.of(client, turn)))


def _zip_at_clients(values: structure.Struct) -> AtClients:
    def zipped(value: Any, client: int, turn: _Turn) -> Any:
        if isinstance(value, AtClients):
            return value.of(client, turn)
        return structure.Struct.unnamed(*(zipped(part, client, turn) for part in value))

    return AtClients(functools.partial(zipped, values))


def function_of(
    block: building_blocks.CompiledComputation, device: str | None
) -> _Function:
    """Returns the function of a TensorFlow computation; threads may share it.

    Args:
        block: The computation, a TensorFlow graph.
        device: Device of its operations, as in `tf.device`; those that the
            device cannot do are done by the processor. None: TensorFlow's choice.

    Raises:
        ValueError: If a parameter or the result is a sequence.
    """
    kind, computation = block.type_signature, block.proto.tensorflow
    type_analysis.contains(kind, _check_no_sequence)
    graph = tf.compat.v1.GraphDef()
    computation.graph_def.Unpack(graph)
    _rename_functions(graph)
    whole = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(graph, name=""), []
    )

    def tensors(binding: Any) -> list[tf.Tensor]:
        names = tensorflow_utils.extract_tensor_names_from_binding(binding)
        return [whole.graph.get_tensor_by_name(name) for name in names]

    takes_nothing = kind.parameter is None
    feeds = [] if takes_nothing else tensors(computation.parameter)
    call = whole.prune(feeds, tensors(computation.result))
    initialize = None
    if computation.initialize_op:
        operation = whole.graph.as_graph_element(computation.initialize_op)
        initialize = whole.prune([], operation)

    def function(argument: Any) -> Any:
        with tf.device(device), _without_memory_optimizer():
            if initialize is not None:
                initialize()
            found = call(*([] if takes_nothing else structure.flatten(argument)))
        return _assembled(kind.result, iter(found))

    return function


def _rename_functions(graph: tf.compat.v1.GraphDef) -> None:
    """Gives a graph's functions new names.

    A process has one table of functions. It has those that the computation was traced
    with, and TFF has optimized the graph's since.
    """
    functions, number = graph.library.function, next(_NUMBERS)
    new = {f.signature.name: f"{f.signature.name}_{number}" for f in functions}
    for function in functions:
        function.signature.name = new[function.signature.name]
    for gradient in graph.library.gradient:
        gradient.function_name = new[gradient.function_name]
        gradient.gradient_func = new[gradient.gradient_func]
    for node in itertools.chain(graph.node, *(f.node_def for f in functions)):
        node.op = new.get(node.op, node.op)
        for value in node.attr.values():
            for called in (value.func, *value.list.func):
                if called.name in new:
                    called.name = new[called.name]


@contextlib.contextmanager
def _without_memory_optimizer() -> Iterator[None]:
    """Keeps the memory optimizer off in this thread, as in `worker_context.native`."""
    eager = context.context()
    before = eager.function_call_options
    config = tf.compat.v1.ConfigProto.FromString(before.config_proto_serialized)
    options = config.graph_options.rewrite_options
    options.memory_optimization = options.NO_MEM_OPT
    eager.function_call_options = context.FunctionCallOptions(
        before.executor_type, config
    )
    try:
        yield
    finally:
        eager.function_call_options = before


def ingested(value: Any, kind: tff.Type) -> Any:
    """Returns an argument, of plain Python, NumPy or TensorFlow, as a value.

    Args:
        value: Argument: a number, text, array or tensor, a container of those, or a
            federated value, which is a list at the clients.
        kind: Argument's type.

    Raises:
        TypeError: If the argument is not of the type.
        ValueError: If the type has a sequence.
    """
    if isinstance(kind, tff.FederatedType):
        if kind.placement is tff.SERVER:
            return ingested(value, kind.member)
        if kind.all_equal:
            return _at_all_clients(ingested(value, kind.member))
        return AtClients(lambda client, turn: ingested(value[client], kind.member))
    if isinstance(kind, tff.StructType):
        parts = structure.from_container(value)
        if len(parts) != len(kind):
            raise TypeError(f"a value of {len(parts)} parts is not of the type {kind}")
        return structure.Struct.unnamed(*map(ingested, parts, kind))
    _check_no_sequence(kind)
    dtype = tf.dtypes.as_dtype(kind.dtype)
    given = getattr(value, "dtype", None)
    if given is not None and tf.dtypes.as_dtype(given) != dtype:
        raise TypeError(f"a value of {given} is not of the type {kind}")
    tensor = tf.convert_to_tensor(value, dtype)
    if not tf.TensorShape(kind.shape).is_compatible_with(tensor.shape):
        raise TypeError(f"a value of shape {tensor.shape} is not of the type {kind}")
    return tensor


def _check_no_sequence(kind: tff.Type) -> bool:
    if isinstance(kind, tff.SequenceType):
        raise ValueError(
            f"a computation takes or returns {kind}; with --runtime=in_process it has "
            "to be tensors. Use --runtime=worker"
        )
    return False


def _assembled(kind: tff.Type, tensors: Iterator[tf.Tensor]) -> Any:
    if not isinstance(kind, tff.StructType):
        return next(tensors)
    return structure.Struct.unnamed(*(_assembled(part, tensors) for part in kind))
