"""Rows that cannot be read: counted, listed, and too many of them an error."""

from typing import Any

from absl import logging

from simulation import population_options

_SHOWN_IN_ERROR = 10
_MAX_REASON = 200  # characters: a reason may quote a value of any length


class BadRows:
    """The bad rows of one file."""

    def __init__(self, path: str, limit: int):
        """Starts with none.

        Args:
            path: The file, for messages.
            limit: How many there may be, at least 0.
        """
        self._path = path
        self._limit = limit
        self._listed: list[dict[str, Any]] = []

    def add(self, line: int, reason: str) -> None:
        """Notes a bad row.

        Args:
            line: Where it starts, from 1.
            reason: What is wrong with it.

        Raises:
            PopulationError: If there are now more than allowed.
        """
        if len(reason) > _MAX_REASON:
            reason = f"{reason[:_MAX_REASON]}..."
        self._listed.append({"line": line, "reason": reason})
        logging.warning("%s:%d: row left out: %s", self._path, line, reason)
        if len(self._listed) > self._limit:
            raise population_options.PopulationError(
                f"{self._path} has more than {self._limit} bad rows "
                f"(--max_bad_rows={self._limit}): {self.summary()}. Mend the file or "
                "the options that say how to read it, or allow more bad rows."
            )

    def summary(self) -> str:
        """Returns the first bad rows, as text."""
        shown = self._listed[:_SHOWN_IN_ERROR]
        text = "; ".join(f"line {row['line']}: {row['reason']}" for row in shown)
        return text + ("; ..." if len(self._listed) > len(shown) else "")

    def report(self) -> dict[str, Any]:
        """Returns the number of bad rows and the list of them, as JSON values."""
        return {"count": len(self._listed), "rows": list(self._listed)}
