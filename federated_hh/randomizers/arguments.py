"""Arguments that all local randomizers take: their limits and checks."""

import functools
import math
import numbers
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from federated_hh.files import memory
from federated_hh.options import checks

# Beyond this e^-epsilon comes near 2^-64, the smallest chance that a coin has.
MAX_EPSILON = 40.0
MAX_DOMAIN_SIZE = 2**31 - 1
MAX_COUNT = 2**63 - 1
# A randomizer of any kind can be made for so few items.
_SMALL_DOMAIN = 250
# Faster growth than a matrix's is measured again: another thread may have allocated.
_SELDOM_MORE = 2.2
_MOST_MEASUREMENTS = 4


def check_epsilon(epsilon: float) -> float:
    """Returns epsilon, or raises a `ValueError` if it is not in (0, 40]."""
    return checks.positive(epsilon=epsilon, most=MAX_EPSILON, why="coins of 64 bits")


def check_seed(seed: tf.types.experimental.TensorLike) -> tf.Tensor:
    """Returns the stateless seed as a tensor, or raises a `ValueError`."""
    seed = tf.convert_to_tensor(seed)
    if seed.dtype not in (tf.int32, tf.int64) or seed.shape.as_list() != [2]:
        raise ValueError(
            f"seed is {seed.dtype.name} of shape {seed.shape}; it has to be int32 or "
            "int64 of shape [2]"
        )
    return seed


def check_items(items: tf.types.experimental.TensorLike, domain_size: int) -> tf.Tensor:
    """Returns the items as int32, or raises if one is outside the domain."""
    if not tf.is_tensor(items):
        items = np.asarray(items)
        # An empty list has no type of its own.
        items = items.astype(np.int32) if items.size == 0 else items
    items = tf.convert_to_tensor(items)
    if items.dtype not in (tf.int32, tf.int64) or items.shape.rank != 1:
        raise ValueError(
            f"items is {items.dtype.name} of shape {items.shape}; it has to be "
            "int32 or int64 of shape [reports]"
        )
    allowed = f"items has to be in [0, {domain_size - 1}], the domain; "
    if tf.executing_eagerly():
        values = items.numpy()
        outside = (values < 0) | (values >= domain_size)
        if outside.any():
            first = int(np.flatnonzero(outside)[0])
            raise ValueError(f"{allowed}items[{first}] is {values[first]}")
        return tf.cast(items, tf.int32)
    outside = tf.logical_or(items < 0, items >= domain_size)
    values = tf.boolean_mask(items, outside)
    fits = tf.Assert(tf.equal(tf.size(values), 0), [allowed, "outside:", values])
    with tf.control_dependencies([fits]):
        # A cast to the same type is no operation that could wait for the check.
        return tf.cast(tf.identity(items), tf.int32)


def check_histogram(
    histogram: np.ndarray, domain_size: int, values_per_report: int
) -> np.ndarray:
    """Returns the histogram as int64, or raises a `ValueError`."""
    # NumPy would make a list with a number beyond int64 one of float64.
    is_array = hasattr(histogram, "__array__")
    counts = np.asarray(histogram, None if is_array else object)
    if counts.shape != (domain_size,):
        raise ValueError(
            f"histogram has shape {counts.shape}; it has to be "
            f"({domain_size},), a count for each item of the domain"
        )
    whole = counts.dtype.kind in "iu"
    if counts.dtype.kind == "O":
        whole = all(isinstance(c, numbers.Integral) for c in counts)
        whole = whole and not any(isinstance(c, bool) for c in counts)
    if not whole:
        raise ValueError(f"histogram is {counts.dtype}; it has to be of integers")
    # The most that a sum of reports holds, "no item" and all other items added.
    limit = MAX_COUNT // values_per_report
    for wrong in (counts < 0, counts > limit):
        if np.any(wrong):
            item = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"histogram[{item}] is {counts[item]}; it has to be in [0, {limit}]"
            )
    counts = counts.astype(np.int64)
    # float64 is enough to tell whether the exact sum is needed.
    if counts.sum(dtype=np.float64) > limit / 2 and sum(counts.tolist()) > limit:
        raise ValueError(
            f"histogram has a sum of {sum(counts.tolist())}; it has to be in "
            f"[0, {limit}], as a report has {values_per_report} values and "
            "their sum has to fit in 64 bits"
        )
    return counts


def check_memory(
    make: Callable[[float, int], Any],
    epsilon: float,
    domain_size: int,
    num_reports: int,
) -> None:
    """Raises an error if a randomizer, such as a custom one, will not fit into memory.

    Its need, to be made and to sum its reports, follows from that of two small ones,
    as a power of the domain's size.

    Args:
        make: Makes a randomizer from epsilon and its domain size.
        epsilon: Checked.
        domain_size: The size to foretell.
        num_reports: Number of reports that are summed.

    Raises:
        PopulationError: If it needs more memory than is left.
    """
    large = 2 * _SMALL_DOMAIN
    if domain_size <= large:
        return
    needed, power = 0.0, 0.0
    for small_need, large_need in _needs_of_small_ones(make, epsilon, num_reports):
        grows = _growth(small_need, large_need)
        need = large_need * (domain_size / large) ** grows
        needed, power = max((needed, power), (need, grows))
    memory.check_needed(
        int(needed),
        f"{getattr(make, '__name__', make)} for {domain_size:,} items (its memory "
        f"grows like their number to the power of {power:.1f}; fewer max_prefixes or "
        "a smaller alphabet make fewer items, and docs/guide/custom_randomizer.md has "
        "a randomizer without a matrix)",
    )


def _growth(small_need: int, large_need: int) -> float:
    """Returns the power of the domain's size with which a need grows."""
    return max(0.0, math.log2(max(1, large_need) / max(1, small_need)))


@functools.lru_cache(maxsize=16)
def _needs_of_small_ones(
    make: Callable[[float, int], Any], epsilon: float, num_reports: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns bytes to make a small one and one of twice its size, and to sum with."""
    small, large = (
        make(epsilon, size).bytes_to_sum(num_reports)
        for size in (_SMALL_DOMAIN, 2 * _SMALL_DOMAIN)
    )
    for _ in range(_MOST_MEASUREMENTS):
        # What is cached for one epsilon would need nothing when it is made again.
        epsilon = math.nextafter(epsilon, 0.0)
        made = _needs_to_make(make, epsilon)
        if _growth(*made) < _SELDOM_MORE:
            break
    return made, (small, large)


def _needs_to_make(
    make: Callable[[float, int], Any], epsilon: float
) -> tuple[int, int]:
    """Returns bytes to make a small one, and one of twice its size, as traced once."""
    needs = []
    is_traced = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        for size in (_SMALL_DOMAIN, 2 * _SMALL_DOMAIN):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            made = make(epsilon, size)
            needs.append(max(1, tracemalloc.get_traced_memory()[1] - before))
            del made
    finally:
        if not is_traced:
            tracemalloc.stop()
    return needs[0], needs[1]
