"""What a piece of work costs in time and memory, with the processes that it starts."""

import threading
import time
from typing import Self

import psutil

_SECONDS_BETWEEN_LOOKS = 0.02


class Usage:
    """Watches the time and memory of this process and those below it.

    Used as a context manager.

    Attributes:
        wall_seconds: The seconds that the block takes.
        cpu_seconds: Processor time of all the processes, without that of watching
            them; of one that ends meanwhile, without its last 20 ms.
        peak_bytes: The most resident memory of all of them at a time, looked at every
            20 ms.
        peak_own_bytes: The same without pages that are shared, such as mapped files,
            which the system may drop at any time.
    """

    def __init__(self):
        self._process = psutil.Process()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.wall_seconds = self.cpu_seconds = 0.0
        self.peak_bytes = self.peak_own_bytes = 0
        self._own_seconds = 0.0
        # By process, also of those that have ended: what they had used when last seen.
        self._cpu: dict[psutil.Process, float] = {}

    def _look(self) -> None:
        total = shared = 0
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                memory, times = process.memory_info(), process.cpu_times()
            except psutil.NoSuchProcess:
                continue
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
