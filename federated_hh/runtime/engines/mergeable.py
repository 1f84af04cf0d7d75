"""TFF's mergeable form of a computation: client work, how sums are merged, the rest.

Slices of the clients can be worked on anywhere. Their sums are merged in the order of
the slices, and the rest is computed once.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow_federated as tff
import tree  # type: ignore[import-untyped]
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.backends.native import mergeable_comp_compiler
from tensorflow_federated.python.core.environments.tensorflow_backend import (
    tensorflow_tree_transformations,
)
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
    tensorflow_computation,
)
from tensorflow_federated.python.core.impl.compiler import (
    building_blocks,
    intrinsic_defs,
    tree_analysis,
)
from tensorflow_federated.python.core.impl.computation import computation_impl
from tensorflow_federated.python.core.impl.context_stack import context_stack_impl
from tensorflow_federated.python.core.impl.execution_contexts import (
    mergeable_comp_execution_context as mergeable,
)
from tensorflow_federated.python.core.impl.types import type_analysis

from federated_hh.runtime.worker import secure_sums

Computation: TypeAlias = computation_impl.ConcreteComputation


def form_of(computation: Computation) -> mergeable.MergeableCompForm:
    """Returns the mergeable form of a computation, its secure sums with a meaning.

    Args:
        computation: A function of values at the server and the clients.

    Raises:
        ValueError: If one of its sums depends on another.
    """
    with_meaning = secure_sums.give_secure_sums_a_meaning(computation)
    return mergeable_comp_compiler.compile_to_mergeable_comp_form(with_meaning)


def with_one_aggregation(computation: Computation) -> Computation:
    """Returns a computation that adds all of a client's contributions at once.

    Client work that several sums share is then done once. A computation in which one
    sum depends on another is returned unchanged.

    Args:
        computation: Any; its secure sums must already be replaced.
    """
    lowered, _ = tensorflow_tree_transformations.replace_intrinsics_with_bodies(
        computation.to_building_block()
    )
    aggregations = tree_analysis.count(lowered, _is_aggregation)
    if aggregations < 2 or computation.type_signature.parameter is None:
        return computation
    try:
        form = mergeable_comp_compiler.compile_to_mergeable_comp_form(computation)
    except ValueError:
        return computation

    @tff.federated_computation(form.up_to_merge.type_signature.parameter)
    def whole(argument):
        return form.after_merge(argument, form.up_to_merge(argument))

    return whole


def order_matters(form: mergeable.MergeableCompForm) -> bool:
    """Returns whether a result depends on how clients are cut into slices.

    Sums of integers do not; sums of floats do, in their last bits.
    """
    total = form.up_to_merge.type_signature.result.member
    return type_analysis.contains(
        total,
        lambda part: (
            isinstance(part, tff.TensorType)
            and not np.issubdtype(part.dtype, np.integer)
            and part.dtype != np.bool_
        ),
    )


def to_bytes(computation: Computation) -> bytes:
    """Returns a computation in serialized form."""
    proto = computation_impl.ConcreteComputation.get_proto(computation)
    return proto.SerializeToString()


def from_bytes(sent: bytes) -> Computation:
    """Returns a computation that was sent."""
    return computation_impl.ConcreteComputation(
        computation_proto=computation_pb2.Computation.FromString(sent),
        context_stack=context_stack_impl.context_stack,
    )


def parameters_of(computation: Computation) -> list[tff.FederatedType]:
    """Returns the types of a computation's parameters.

    Raises:
        ValueError: If one is not a federated value.
    """
    parameter = computation.type_signature.parameter
    kinds = list(parameter) if isinstance(parameter, tff.StructType) else [parameter]
    if not all(isinstance(kind, tff.FederatedType) for kind in kinds):
        raise ValueError(
            f"a computation takes {parameter}; with --engine=ray it has to take values "
            "at the server and the clients: use --engine=embedded"
        )
    return kinds


def arguments_of(computation: Computation, argument: Any) -> dict[int, Any]:
    """Returns a call's arguments in plain containers, by their number."""

    def to_python(value: Any) -> Any:
        if isinstance(value, structure.Struct):
            return structure.to_odict_or_tuple(value)
        return None

    if not isinstance(computation.type_signature.parameter, tff.StructType):
        parts = [argument]
    else:
        parts = list(structure.from_container(argument))
    return {
        number: tensorflow_computation.transform_args(tree.traverse(to_python, part))
        for number, part in enumerate(parts)
    }


def argument_of(computation: Computation, arguments: Mapping[int, Any]) -> Any:
    """Returns the argument of a call, from the result of `arguments_of`."""
    parameter = computation.type_signature.parameter
    if not isinstance(parameter, tff.StructType):
        return arguments[0]
    return structure.Struct(
        (name, arguments[number])
        for number, name in enumerate(structure.name_list_with_nones(parameter))
    )


def _is_aggregation(block: building_blocks.ComputationBuildingBlock) -> bool:
    return (
        isinstance(block, building_blocks.Intrinsic)
        and block.uri == intrinsic_defs.FEDERATED_AGGREGATE.uri
    )
