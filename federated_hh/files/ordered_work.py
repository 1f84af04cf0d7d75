"""Work in pieces that threads share, with the results in order.

It is for NumPy code on pieces of some hundred thousand numbers, during which other
threads can run; on small pieces threads only wait for the interpreter.
"""

import collections
import concurrent.futures
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def in_order(
    function: Callable[[int], _T], count: int, threads: int | None = None
) -> Iterator[_T]:
    """Yields function(0), function(1), ..., computed a little ahead by threads.

    Args:
        function: May run in several threads at once.
        count: Number of results.
        threads: Thread count; None for one a core.
    """
    threads = threads or len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(threads) as executor:
        pending: collections.deque = collections.deque()
        for index in range(count):
            pending.append(executor.submit(function, index))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
