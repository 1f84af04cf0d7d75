"""Progress of long work: a bar on a terminal, log lines elsewhere."""

import sys
import time
from typing import Self

from absl import logging

_SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Reports the progress of some work; a context manager.

    Attributes:
        description: Work in progress, such as "Reading tweets.csv".
        total: Total amount of work.
        unit: Unit of the amount, such as "clients" or "B".
    """

    def __init__(self, description: str, total: int, unit: str):
        self.description = description
        self.total = total
        self.unit = unit
        self._done = 0
        self._bar = None
        self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            import tqdm

            self._bar = tqdm.tqdm(
                desc=self.description,
                total=self.total,
                unit=self.unit,
                unit_scale=True,
                leave=False,
            )
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.close()

    def set(self, done: int) -> None:
        """Shows the amount of work done, out of `total`."""
        if self._bar is not None:
            self._bar.update(done - self._done)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
            logging.info(
                "%s: %s of %s %s (%.0f%%).",
                self.description,
                f"{done:,}",
                f"{self.total:,}",
                self.unit,
                100.0 * done / max(self.total, 1),
            )
        self._done = done
