"""The meaning of `tff.federated_secure_sum` and its bit-width form in simulation.

TFF's own stand-ins check the upper bound of a contribution only: they accept a negative
one, and a sum that leaves its integer type wraps without an error. Here both are
errors, as a wrong sum would be a wrong result with a privacy statement.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.backends.test import compiler as test_compiler
from tensorflow_federated.python.core.environments.tensorflow_backend import (
    tensorflow_building_block_factory as tf_building_block_factory,
)
from tensorflow_federated.python.core.environments.tensorflow_backend import (
    tensorflow_computation_factory,
    tensorflow_tree_transformations,
)
from tensorflow_federated.python.core.impl.compiler import (
    building_block_factory,
    building_blocks,
    intrinsic_defs,
)
from tensorflow_federated.python.core.impl.computation import computation_impl
from tensorflow_federated.python.core.impl.context_stack import context_stack_impl
from tensorflow_federated.python.core.impl.types import (
    computation_types,
    type_conversions,
)

# Starts the message of every range error; `range_errors` looks for it.
_RANGE_ERROR = "secure sum:"

# 2^62 - 1 is the largest bound that TFF's secure sum takes: an int64 with one bit
# to spare for the sum of two values.
_MAX_BITWIDTH = 62

_Block: TypeAlias = building_blocks.ComputationBuildingBlock


class SecureSumError(ValueError):
    """A contribution to a secure sum, or the sum, left the range it was given."""


@contextlib.contextmanager
def range_errors() -> Iterator[None]:
    """Raises an execution's range errors as `SecureSumError`."""
    try:
        yield
    except Exception as error:
        message = _range_error(str(error))
        if message is None:
            raise
        raise SecureSumError(message) from error


def _range_error(message: str) -> str | None:
    """Returns the line of an execution's message that names a range error, if any."""
    start = message.find(_RANGE_ERROR)
    if start < 0:
        return None
    # TensorFlow puts each part of an assertion's message in brackets, and names the
    # node behind it in double ones.
    line = message[start:].split("[[")[0].replace("\\n", " ")
    return " ".join(line.replace("[", "").replace("]", "").split())


def give_secure_sums_a_meaning(
    computation: computation_impl.ConcreteComputation,
) -> computation_impl.ConcreteComputation:
    """Replaces the secure intrinsics of a computation by checked plain ones.

    Args:
        computation: Any TFF computation.

    Returns:
        The computation with `federated_secure_sum` and `federated_secure_sum_bitwidth`
        summed in the clear; an execution fails if a contribution is below 0 or above
        its bound, or a sum leaves its integer type. The other secure intrinsics get
        TFF's own stand-ins.
    """
    block = computation.to_building_block()
    for uri, body in (
        (intrinsic_defs.FEDERATED_SECURE_SUM_BITWIDTH.uri, _sum_below_bitwidth),
        (intrinsic_defs.FEDERATED_SECURE_SUM.uri, _sum_up_to_maximum),
    ):
        block, _ = tensorflow_tree_transformations.reduce_intrinsic(block, uri, body)
    computation = computation_impl.ConcreteComputation(
        computation_proto=block.proto, context_stack=context_stack_impl.context_stack
    )
    return test_compiler.replace_secure_intrinsics_with_bodies(computation)


def _sum_below_bitwidth(argument: _Block) -> _Block:
    bitwidth = building_blocks.Selection(argument, index=1)

    def largest_value(bits):
        def of_one_tensor(bits):
            bits = tf.cast(bits, tf.int64)
            message = f"{_RANGE_ERROR} the bit width is not in [0, {_MAX_BITWIDTH}]:"
            ok = tf.logical_and(bits >= 0, bits <= _MAX_BITWIDTH)
            with tf.control_dependencies([tf.Assert(ok, [message, bits])]):
                return tf.bitwise.left_shift(tf.constant(1, tf.int64), bits) - 1

        return structure.map_structure(of_one_tensor, bits)

    maximum = building_blocks.Call(
        _tensorflow(
            tensorflow_computation_factory.create_unary_operator,
            largest_value,
            bitwidth.type_signature,
        ),
        bitwidth,
    )
    values = building_blocks.Selection(argument, index=0)
    return _sum_up_to_maximum(building_blocks.Struct([values, maximum]))


def _sum_up_to_maximum(argument: _Block) -> _Block:
    values = building_blocks.Selection(argument, index=0)
    maximum = building_blocks.Selection(argument, index=1)
    value_type = values.type_signature.member
    # The accumulator carries the bound, because an aggregation's functions see nothing
    # else.
    zero = building_blocks.Struct(
        [
            tf_building_block_factory.create_generic_constant(value_type, 0),
            maximum,
        ],
        container_type=tuple,
    )

    def accumulate(total_and_maximum, value):
        total, bound = total_and_maximum
        bounds = _like(bound, maximum.type_signature, value_type)
        total = structure.map_structure(_checked_add, total, value, bounds)
        return total, bound

    def merge(one, other):
        # The bound is the same on both sides; only sums of partial sums, already
        # checked, are merged here.
        total = structure.map_structure(_checked_merge, one[0], other[0])
        return total, one[1]

    def report(total_and_maximum):
        return type_conversions.type_to_py_container(total_and_maximum[0], value_type)

    accumulator_type = zero.type_signature
    binary = tensorflow_computation_factory.create_binary_operator
    unary = tensorflow_computation_factory.create_unary_operator
    return building_block_factory.create_federated_aggregate(
        values,
        zero,
        _tensorflow(binary, accumulate, accumulator_type, value_type),
        _tensorflow(binary, merge, accumulator_type),
        _tensorflow(unary, report, accumulator_type),
    )


def _like(bound, bound_type, value_type):
    """Repeats one bound for every leaf of the values, where only one was given."""
    if isinstance(bound_type, computation_types.StructType) or not isinstance(
        value_type, computation_types.StructType
    ):
        return bound
    return structure.map_structure(lambda _: bound, value_type)


def _checked_add(total: tf.Tensor, value: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
    wide = tf.cast(value, tf.int64)
    least, most = tf.reduce_min(wide), tf.reduce_max(wide)
    low = tf.Assert(least >= 0, [f"{_RANGE_ERROR} a contribution is negative:", least])
    high = tf.Assert(
        most <= tf.cast(bound, tf.int64),
        [
            f"{_RANGE_ERROR} a contribution is above its bound:",
            most,
            "is more than",
            bound,
        ],
    )
    with tf.control_dependencies([low, high]):
        return _checked_merge(total, value)


def _checked_merge(total: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    # Both are not negative, so a sum that wrapped is smaller than either.
    result = total + value
    limit = np.iinfo(total.dtype.as_numpy_dtype).max
    message = (
        f"{_RANGE_ERROR} a sum is above {limit}, the most {total.dtype.name} holds"
    )
    fits = tf.Assert(tf.reduce_all(result >= total), [message])
    with tf.control_dependencies([fits]):
        return tf.identity(result)


def _tensorflow(create: Callable[..., tuple], *arguments) -> _Block:
    proto, type_signature = create(*arguments)
    return building_blocks.CompiledComputation(proto, type_signature=type_signature)
