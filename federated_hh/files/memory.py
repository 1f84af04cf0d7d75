"""Memory and disk: checks before the system stops the work, caches, freed memory."""

import contextlib
import ctypes
import functools
import gc
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from federated_hh.files import population_error

# Below this, the next steps (table growth, sorting) may no longer fit.
RESERVE_BYTES = 512 << 20

# Of glibc's malloc.h.
_M_MMAP_THRESHOLD = -3

_MEMINFO = pathlib.Path("/proc/meminfo")
_CGROUP = pathlib.Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Returns the memory that can still be taken, or None where it is not known.

    That of the machine, or of the control group (container) if it has less.
    """
    try:
        lines = _MEMINFO.read_text().splitlines()
        values = dict(line.split(":", 1) for line in lines)
        available = int(values["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # or "max"
        used = int((_CGROUP / "memory.current").read_text())
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        statistics = dict(line.split() for line in lines)
        # File pages are given back when memory is asked for.
        freed = int(statistics["active_file"]) + int(statistics["inactive_file"])
        available = min(available, limit - used + freed)
    except (OSError, KeyError, ValueError):
        pass
    return available


def readable(num_bytes: int) -> str:
    """Returns a number of bytes as errors name it: in GiB, or in MiB if it is small."""
    if num_bytes < 2**30 / 10:
        return f"{num_bytes / 2**20:,.1f} MiB"
    return f"{num_bytes / 2**30:,.1f} GiB"


def check(num_words: int, num_clients: int) -> None:
    """Stops reading when there is little memory left.

    Args:
        num_words: Distinct words held so far.
        num_clients: Distinct client ids held so far.

    Raises:
        PopulationError: If less than `RESERVE_BYTES` are available.
    """
    available = available_bytes()
    if available is not None and available < RESERVE_BYTES:
        raise population_error.PopulationError(
            f"only {readable(available)} of memory are left, with {num_words:,} "
            f"distinct words and {num_clients:,} client ids held in memory (about 150 "
            "bytes each) while reading. Run on a machine with more memory, end other "
            "programs, or leave words out with --alphabet or --known_words."
        )


def check_needed(needed: int, what: str) -> None:
    """Refuses what would not fit into memory.

    Args:
        needed: About how many bytes it takes.
        what: It, with the options that decide on it, for the message.

    Raises:
        PopulationError: If that is more than is available besides `RESERVE_BYTES`.
    """
    available = available_bytes()
    if available is not None and needed > available - RESERVE_BYTES:
        raise population_error.PopulationError(
            f"{what} takes about {readable(needed)} of memory, and "
            f"{readable(available)} are left (of which {readable(RESERVE_BYTES)} "
            "are kept free). Ask for less, or run on a machine with more memory."
        )


def check_disk(directory: pathlib.Path, needed: int, what: str) -> None:
    """Refuses what would not fit onto the disk.

    Args:
        directory: Directory of the file.
        needed: About how many bytes it takes from now on.
        what: It, with the options that decide on it, for the message.

    Raises:
        PopulationError: If less is free there.
    """
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise population_error.PopulationError(
            f"{what} takes about {readable(needed)} on disk, and {readable(free)} "
            f"are free in {directory.parent}. Ask for less, free some space, or choose "
            "another place with --population_cache."
        )


@contextlib.contextmanager
def quick_collections() -> Iterator[None]:
    """Keeps what there is now out of collections of garbage, until the block ends.

    With TensorFlow, TFF and pandas there are a million objects, and a collection of all
    takes 0.2 s; afterwards one looks at what the block has made.
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
    """Gives memory that is no longer in use back to the system.

    Messages that nobody has any more may refer to themselves; and what was freed glibc
    may keep for later. It takes milliseconds in `quick_collections`, and what is asked
    for next some more; so for the end of a step whose arrays are large and differ from
    those of the next one. Where there is no glibc, only garbage is freed.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def return_large_at_once() -> None:
    """Has arrays of 4 MiB and more go back to the system when they are freed.

    For the rest of the program, so to be called before there are any: glibc would keep
    the room of those up to 32 MiB once one was freed. Where the environment has
    MALLOC_MMAP_THRESHOLD_, or there is no glibc, nothing happens.
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
    """Clears all caches of `cached`; what is asked for again is computed again."""
    for kept in _KEPT:
        kept.cache_clear()
