"""Memory that goes back: garbage, freed arrays, and caches of data preparation."""

import contextlib
import ctypes
import functools
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

# Of glibc's malloc.h.
_M_MMAP_THRESHOLD = -3


@contextlib.contextmanager
def quick_collections() -> Iterator[None]:
    """Keeps existing objects out of garbage collections, until the block ends.

    With TensorFlow, TFF and pandas there are a million objects, and a collection of all
    takes 0.2 s; within the block one looks at newer objects only.
    """
    is_outermost = gc.get_freeze_count() == 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if is_outermost:
            gc.unfreeze()


def return_freed() -> None:
    """Returns unused memory to the system.

    Unused messages may refer to themselves, and glibc may keep freed memory for later.
    The call takes milliseconds in `quick_collections`, and the next allocations some
    more: call it after a step whose large arrays differ from the next one's. Without
    glibc only garbage is freed.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def return_large_at_once() -> None:
    """Makes freed arrays of 4 MiB and more return to the system.

    This holds for the rest of the program; call it before there are any, because glibc
    keeps the memory of arrays up to 32 MiB once one was freed. It does nothing if the
    environment has MALLOC_MMAP_THRESHOLD_, or without glibc.
    """
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        choose(_M_MMAP_THRESHOLD, 4 << 20)


F = TypeVar("F", bound=Callable[..., Any])
_KEPT: list[Any] = []


def cached(maxsize: int | None) -> Callable[[F], F]:
    """Returns a decorator: `functools.lru_cache` until `forget` is called.

    For caches that serve the preparation of data.

    Args:
        maxsize: Largest number of kept results; None for all.
    """

    def decorate(function: F) -> F:
        kept: Any = functools.lru_cache(maxsize=maxsize)(function)
        _KEPT.append(kept)
        return kept

    return decorate


def forget() -> None:
    """Clears all caches of `cached`; values asked for later are computed again."""
    for kept in _KEPT:
        kept.cache_clear()
