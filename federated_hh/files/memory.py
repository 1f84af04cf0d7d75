"""Checks of memory and disk, so that work stops before the system stops it."""

import pathlib
import shutil

from federated_hh.files import verified_files

# Below this, the next steps (table growth, sorting) may no longer fit.
RESERVE_BYTES = 512 << 20

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
        raise verified_files.PopulationError(
            f"only {readable(available)} of memory are available, with {num_words:,} "
            f"distinct words and {num_clients:,} client ids held in memory (about 150 "
            "bytes each) while reading. Run on a machine with more memory, close "
            "other programs, or drop words with --alphabet or --known_words."
        )


def check_needed(needed: int, what: str) -> None:
    """Raises an error if an amount of memory is not available.

    Args:
        needed: Approximate number of bytes.
        what: Noun for the message, with the options that decide on the size.

    Raises:
        PopulationError: If that is more than is available besides `RESERVE_BYTES`.
    """
    available = available_bytes()
    if available is not None and needed > available - RESERVE_BYTES:
        raise verified_files.PopulationError(
            f"{what} takes about {readable(needed)} of memory, and "
            f"{readable(available)} are available (of which {readable(RESERVE_BYTES)} "
            "are kept free). Ask for fewer clients or words, or run on a machine "
            "with more memory."
        )


def check_disk(directory: pathlib.Path, needed: int, what: str) -> None:
    """Raises an error if an amount of disk is not available.

    Args:
        directory: Directory of the file.
        needed: Approximate number of bytes from now on.
        what: Noun for the message, with the options that decide on the size.

    Raises:
        PopulationError: If less is free there.
    """
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise verified_files.PopulationError(
            f"{what} takes about {readable(needed)} on disk, and {readable(free)} are "
            f"free in {directory.parent}. Ask for fewer clients or words, free some "
            "space, or choose another directory with --population_cache."
        )
