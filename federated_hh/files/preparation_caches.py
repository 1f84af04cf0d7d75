"""Caches that serve the preparation of data, and are let go of when it is over."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_KEPT: list[Any] = []


def cached(maxsize: int | None) -> Callable[[F], F]:
    """Returns a decorator: `functools.lru_cache` until `forget` is called.

    Args:
        maxsize: Largest number of kept results; None for all.
    """

    def decorate(function: F) -> F:
        kept: Any = functools.lru_cache(maxsize=maxsize)(function)
        _KEPT.append(kept)
        return kept

    return decorate


def forget() -> None:
    """Empties all of them; what is asked for again is computed again."""
    for kept in _KEPT:
        kept.cache_clear()
