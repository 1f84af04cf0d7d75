"""Rows that cannot be read: counted, listed, and too many of them an error."""

from typing import Any

from absl import logging

from federated_hh.files import verified_files

_SHOWN_IN_ERROR = 10
_MAX_REASON = 200  # characters: a reason may quote a value of any length


class BadRows:
    """The bad rows of all files of a population."""

    def __init__(self, limit: int, num_files: int = 1):
        """Starts with none.

        Args:
            limit: Largest number of bad rows in all files, at least 0.
            num_files: Number of files; if there are several, each row says which it is
                in.
        """
        self._limit = limit
        self._num_files = num_files
        self._path = ""
        self._listed: list[dict[str, Any]] = []

    def start_file(self, path: str) -> None:
        """Says which file the next bad rows are in."""
        self._path = path

    def add(self, line: int, reason: str) -> None:
        """Notes a bad row.

        Args:
            line: Number of its first line, from 1.
            reason: The row's fault.

        Raises:
            PopulationError: If there are now more than allowed.
        """
        if len(reason) > _MAX_REASON:
            reason = f"{reason[:_MAX_REASON]}..."
        row: dict[str, Any] = {"line": line, "reason": reason}
        if self._num_files > 1:
            row["file"] = self._path
        self._listed.append(row)
        logging.warning("%s:%d: row left out: %s", self._path, line, reason)
        if len(self._listed) > self._limit:
            whole = self._path
            if self._num_files > 1:
                whole = f"the population of {self._num_files} files"
            raise verified_files.PopulationError(
                f"{whole} has more than {self._limit} bad rows "
                f"(--max_bad_rows={self._limit}): {self.summary()}. Fix the file or "
                "the options for reading it, or raise --max_bad_rows."
            )

    def summary(self) -> str:
        """Returns the first bad rows, as text."""
        shown = self._listed[:_SHOWN_IN_ERROR]
        text = "; ".join(
            f"{row['file']}:{row['line']}: {row['reason']}"
            if "file" in row
            else f"line {row['line']}: {row['reason']}"
            for row in shown
        )
        return text + ("; ..." if len(self._listed) > len(shown) else "")

    def report(self) -> dict[str, Any]:
        """Returns the number of bad rows and the list of them, as JSON values."""
        return {"count": len(self._listed), "rows": list(self._listed)}
