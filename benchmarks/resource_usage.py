"""Time and memory of a piece of work, with those of the processes that it starts."""

import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import psutil

_SECONDS_BETWEEN_LOOKS = 0.02


def _processes(root: psutil.Process) -> Iterator[tuple[psutil.Process, Any, Any]]:
    """Yields a process and those below it, each with its memory and its times."""
    for process in [root, *root.children(recursive=True)]:
        try:
            yield process, process.memory_info(), process.cpu_times()
        except psutil.NoSuchProcess:
            continue


def own_bytes() -> int:
    """Returns the resident memory of this process and those below it, unshared."""
    return sum(m.rss - m.shared for _, m, _ in _processes(psutil.Process()))


class Usage:
    """Watches the time and memory of this process and those below it.

    Used as a context manager.

    Attributes:
        wall_seconds: Seconds of the block.
        cpu_seconds: Processor seconds of all the processes, without those of watching
            them; of one that ends meanwhile, without its last 20 ms.
        peak_bytes: Largest sum of their resident memory, looked at every 20 ms.
        peak_own_bytes: The same without shared pages, such as mapped files, which the
            system may drop at any time.
    """

    def __init__(self):
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.wall_seconds = self.cpu_seconds = 0.0
        self.peak_bytes = self.peak_own_bytes = 0
        self._own_seconds = 0.0
        # Processor seconds when last seen, by process, also of those that have ended.
        self._cpu: dict[psutil.Process, float] = {}

    def _look(self) -> None:
        total = shared = 0
        for process, memory, times in _processes(self._process):
            self._cpu[process] = times.user + times.system
            total += memory.rss
            shared += memory.shared
        self.peak_bytes = max(self.peak_bytes, total)
        self.peak_own_bytes = max(self.peak_own_bytes, total - shared)

    def _watch(self) -> None:
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            self._look()
        self._own_seconds = time.thread_time()

    def __enter__(self) -> Self:
        self._look()
        self._start = time.perf_counter(), sum(self._cpu.values())
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.wall_seconds = time.perf_counter() - self._start[0]
        self._stop.set()
        self._thread.join()
        self._look()
        used = sum(self._cpu.values()) - self._start[1]
        self.cpu_seconds = used - self._own_seconds

    def __str__(self) -> str:
        return (
            f"{self.wall_seconds:.1f} s ({self.cpu_seconds:.1f} processor seconds), "
            f"peak memory {self.peak_bytes / 2**30:.2f} GiB "
            f"({self.peak_own_bytes / 2**30:.2f} without mapped files)"
        )
