"""Client work in two parts: reading on the processor, and work that XLA may compile.

A block's computation first reads columns, which are far larger than a block and stay in
the processor's memory. It then works on the block's rows, wherever the runtime's device
is. With `--xla`, XLA compiles this second part for that device:

    with compiled.reading():
        rows = compiled.padded(rows_of(block["clients"]), block_size)
    return compiled.compiled(work)(rows, message["seed"])

XLA makes an executable for each combination of shapes. So rows are padded to few sizes,
with values that do not change the result.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from federated_hh.runtime.worker import engine_options


def is_on() -> bool:
    """Returns whether the chosen runtime compiles client work."""
    return engine_options.chosen().runtime.xla


def reading() -> contextlib.AbstractContextManager[Any]:
    """Returns a context whose TensorFlow operations stay on the processor."""
    return tf.device("/CPU:0")


def compiled(work: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that XLA compiles with `--xla`, and else the function itself.

    Args:
        work: From tensors to tensors, nested in any way. Its shapes may depend on those
            of its arguments, and not on their values. It takes every tensor that it
            uses as an argument.
    """
    if not is_on():
        return work
    return tf.function(work, autograph=False, jit_compile=True)


def room(rows: int) -> int:
    """Returns the number of rows to pad an array to: with `--xla` a power of two.

    Args:
        rows: Number of rows, at least 0.
    """
    return 1 << max(0, rows - 1).bit_length() if is_on() else rows


def padded(values: tf.Tensor, rows: int, value: int = 0) -> tf.Tensor:
    """Returns a tensor with rows added to it with `--xla`, and else the tensor itself.

    Args:
        values: Tensor of shape [at most `rows`, ...].
        rows: Number of rows of the result.
        value: The number in the added rows.
    """
    if not is_on():
        return values
    added = [[0, rows - tf.shape(values)[0]], *[[0, 0]] * (values.shape.rank - 1)]
    return tf.ensure_shape(
        tf.pad(values, added, constant_values=tf.cast(value, values.dtype)),
        [rows, *values.shape[1:]],
    )
