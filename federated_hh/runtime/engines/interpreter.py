"""Evaluates TFF's building blocks: what federated values are, and what is done to them.

A value at the server is that value; one at the clients computes itself, for a client
whose turn it is in an aggregation, and is forgotten once it is added: a sum over
clients holds the values of a few of them at a time.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.impl.compiler import (
    building_blocks,
    intrinsic_defs,
)

from federated_hh.files import ordered_work
from federated_hh.runtime.engines import tensorflow_functions

_Scope = Mapping[str, Any]
_Function = Callable[[Any], Any]
# What was computed of a client in one turn, by the id of the value at the clients.
_Turn = dict[int, Any]


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
        functions: Callable[[building_blocks.CompiledComputation], _Function],
        num_clients: int,
        threads: int | None,
    ):
        """Stores settings that all computations share.

        Args:
            functions: Gives what calls a TensorFlow computation.
            num_clients: The number of clients of the federated values.
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
        """Returns what a building block is.

        Args:
            block: The block of a computation whose intrinsics have been replaced by
                bodies, as far as TFF has bodies for them.
            scope: The values of the names that it refers to.

        Raises:
            ValueError: If it holds what has no meaning here.
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
                return structure.Struct(
                    (name, self.evaluate(element, scope))
                    for name, element in structure.iter_elements(block)
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
                return tensorflow_functions.tensors_of(
                    block.value, block.type_signature
                )
            case building_blocks.Intrinsic() if block.uri in self._intrinsics:
                return self._intrinsics[block.uri]
        what = getattr(block, "uri", type(block).__name__)
        raise ValueError(
            f"a computation uses {what}, which the program's own TensorFlow does not "
            "do: use --runtime=worker"
        )

    def _select(self, block: building_blocks.Selection, scope: _Scope) -> Any:
        index = block.index
        if index is None:  # what TensorFlow gave has no names
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
        return structure.Struct(
            (name, zipped(part, client, turn))
            for name, part in structure.iter_elements(value)
        )

    return AtClients(functools.partial(zipped, values))
